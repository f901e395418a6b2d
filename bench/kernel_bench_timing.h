// Timing of a single call, and the device's measured ceilings to compare it with.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "bench/kernel_bench_subjects.h"
#include "tests/trial.h"

namespace warpstep::bench {

// One call on several sets of buffers in turn, which together exceed the last-level cache if so
// many sets are affordable: a call in a step seldom finds its operands there. Values are random;
// the calls that the timed one depends on have run.
class Rotation {
 public:
  Rotation(const Subject& subject, const Device& device);

  // Makes calls_at_once() calls and returns the seconds from the first enqueue until all are done.
  // That is one call if enqueue() computes at once; otherwise a recording of many, launched until
  // their time is long against that of an empty wait.
  double run();
  int calls_at_once() const { return launches_ * calls_per_launch_; }

  const Cost& cost() const { return calls_[0]->cost; }
  std::string implementation() const { return calls_[0]->kernel->implementation(); }
  std::size_t sets() const { return calls_.size(); }
  double bytes() const { return cost().bytes * static_cast<double>(sets()); }  // of all sets

 private:
  void add_set(const Subject& subject, const Device& device);
  void enqueue_one();
  void launch();

  std::vector<std::unique_ptr<testing_support::Trial>> trials_;
  std::vector<const Call*> calls_;  // one per set
  Stream* stream_ = nullptr;        // of the first set
  std::size_t next_ = 0;
  std::unique_ptr<Recording> recording_;
  int calls_per_launch_ = 1, launches_ = 1;
};

// The ceilings of this backend on this device, measured when the program starts.
struct Peaks {
  double copy_bytes_per_s = 0;              // read and written, by a relu of a large value
  std::map<Precision, double> flops_per_s;  // of a large matrix product
  double floor_s(const Cost& cost, Precision precision) const;  // the roofline's time
};
Peaks measure_peaks(const Device& device, const std::vector<Precision>& precisions);

}  // namespace warpstep::bench
