// Which of a library's algorithms computes something: the one that an earlier run kept, the first
// that runs, or with --autotune the fastest by measurement.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "kernels/cuda/autotune.h"
#include "kernels/cuda/plan_cache.h"

namespace warpstep::cuda {

// What a library offers for one computation.
class Offer {
 public:
  virtual ~Offer();
  virtual std::string key() const = 0;  // names the computation in caches
  // The algorithm that save() wrote becomes candidate 0; false if the library refuses it now.
  virtual bool restore(const std::string& saved) = 0;
  virtual std::size_t propose() = 0;  // asks for candidates, best first; returns how many there are
  virtual std::string save(std::size_t candidate, bool measured) const = 0;
  // Memory for runs of any candidate outside of a step, zeros or random values. Throws
  // OutOfDeviceMemory.
  virtual void allocate(bool random) = 0;
  virtual Enqueue enqueue(std::size_t candidate) = 0;  // in that memory, which must outlive it
};

class AlgorithmChoice {
 public:
  AlgorithmChoice(const Settings& settings, std::string_view library);

  // A candidate of the offer. It has run in this process, unless there was no memory to try it:
  // then nothing is stored, and this process chooses the same again. Empty if none runs or is
  // offered, with the reasons in `why`. Throws DeviceLost.
  std::optional<Chosen> choose(Offer& offer, std::string& why);
  // With `on`, choose() runs and stores nothing; initially off.
  void only_plan(bool on) { only_plans_ = on; }

 private:
  bool restored_runs(Offer& offer, const std::string& saved, std::string& why);
  std::optional<Chosen> choose_anew(Offer& offer, std::string& why);
  Stopwatch& stopwatch();

  bool measures_, only_plans_ = false;
  PlanCache cache_;
  std::set<std::pair<std::string, std::string>> ran_;  // keys and algorithms, in this process
  std::map<std::string, std::string> untried_;         // the algorithm by key, where nothing ran
  std::map<std::string, std::string> refused_;         // why, by key
  std::optional<Stopwatch> stopwatch_;
};

}  // namespace warpstep::cuda
