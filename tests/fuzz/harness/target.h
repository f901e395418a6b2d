// A fuzz target: a function that takes any bytes and ends the process when a promise is broken.
// tests/fuzz/NAME.cpp registers target NAME, in a namespace NAME_target, as several files are
// compiled together:
//
//   void run(Input input) { ... promise(decoded == expected, "pixels differ"); }
//   std::vector<Bytes> seeds() { return {a_good_small_file()}; }
//   const Registered target{"NAME", run, seeds};
//
// A DataError thrown by run() is the right answer to a broken file; any other exception is a
// finding, and so is a crash, a sanitizer's report, or one allocation out of proportion.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace warpstep::fuzz {

using Bytes = std::vector<std::uint8_t>;
using Input = std::span<const std::uint8_t>;

struct Target {
  std::string name;
  void (*run)(Input input);
  std::vector<Bytes> (*seeds)();  // small good files, made by our own encoders
};

class Registered {
 public:
  Registered(std::string name, void (*run)(Input), std::vector<Bytes> (*seeds)());
};

const std::vector<Target>& targets();
const Target& target(std::string_view name);  // throws UsageError that lists the targets

// The target's own seeds and then the files of tests/fuzz/corpus/NAME/.
std::vector<Bytes> corpus(const Target& target);

// Calls target.run(), swallows DataError, and ends the process by abort() for every other throw.
void run_once(const Target& target, Input input);

// Ends the process when `kept` is false, and prints the broken promise.
void promise(bool kept, std::string_view what);

// For readers that need a path: a file of this process, overwritten by each call, removed at the
// end. Its folder has only files of this function.
std::string file_of(const std::string& name, Input input);

}  // namespace warpstep::fuzz
