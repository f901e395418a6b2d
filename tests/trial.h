// Runs a case on a backend and stores every result.
#pragma once

#include <gtest/gtest.h>

#include <iosfwd>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/run/program.h"
#include "kernels/cases.h"

namespace warpstep::cases {
void PrintTo(const Case& c, std::ostream* out);  // for GoogleTest's messages
}

namespace warpstep::testing_support {

// The case's name with the letters that GoogleTest allows.
std::string test_name(const testing::TestParamInfo<cases::Case>& info);

struct Result {
  std::string what;          // value's name and shape
  DType dtype = DType::f32;  // as it is stored
  // Of all computations before it: where results cancel, as after a mean of 1,000, the rounding of
  // an operand counts as much as that of the sums. Of its own alone for what a call changes.
  double depth = 1;
  DType between = DType::f32;          // of what that call may round on the way
  std::vector<float> floats;           // for floating-point dtypes
  std::vector<std::int32_t> integers;  // for the others
  bool operator==(const Result&) const = default;
};

// Whether the case has a fused op that the backend may decline, and declines.
bool lacks_engine(const cases::Case& c, const Backend& backend);

// Which end of each operand lies at a page that cannot be accessed, on the backend "cpu": a kernel
// that reads beyond it ends the test by a signal. AddressSanitizer sees that only of the reference,
// whose memory is malloc's; the CPU's is mapped, and sanitizers leave out its kernels with vectors.
enum class Guarded : std::uint8_t { end, begin };

// Zeros, `bytes` rounded up to whole cache lines, and a guard page at both sides; `guarded` says
// at which of them the memory lies.
std::shared_ptr<std::byte> guarded_memory(std::size_t bytes, Guarded guarded);

class Trial {
 public:
  // Fills the operands from `seed`.
  Trial(const cases::Case& c, std::shared_ptr<Backend> backend, std::uint64_t seed = 1,
        Guarded guarded = Guarded::end);

  const Program& program() const { return program_; }

  // Runs the calls one by one and reads the outputs of each when it is done: of the nodes of the
  // case, without masks, which only the backend can read, and without the reorders that it
  // inserted; then the step's state, and all values in the store. With `poison`, every buffer is
  // filled with NaN patterns after its last reader.
  std::vector<Result> run(bool poison = false);

  // The same without the values in the store, and what a call gives or changes is replaced by what
  // it gave in `other`, another backend's run of the case, once it is read: every call computes
  // from the operands that it had there.
  std::vector<Result> run_beside(const std::vector<Result>& other);

  // Writes the persistent values again.
  void fill_store(const cases::Case& c, std::uint64_t seed = 1);

  // For the ref backend, whose values are doubles in the plain layout.
  std::vector<double> exact(int value) const;
  // Runs the step; every node's outputs when it was done, by value.
  std::map<int, std::vector<double>> exact_results();
  void set_exact(int value, std::span<const double> numbers);
  void enqueue_all();
  // Enqueues all calls without running them, where the backend records.
  void record_all();

 private:
  void fill(const cases::Case& c, std::uint64_t seed);
  std::vector<Result> run(bool poison, const std::vector<Result>* other);
  Result read(int value, DType between, double depth) const;
  void replace(int value, const Result& by);
  void read_state(std::vector<Result>& results) const;
  void read_sections(std::vector<Result>& results) const;

  std::shared_ptr<Backend> backend_;
  std::vector<Node> nodes_;  // of the case
  Program program_;
  std::vector<std::shared_ptr<std::byte>> slots_;
  std::vector<const void*> slot_addresses_;
};

}  // namespace warpstep::testing_support
