// Which other programs used the CPU, of those that this process can see, and whether one traces it.
// A container's processes see no others: then there are none.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "profiler/sources/sampler_proc.h"

namespace warpstep::profiler {

struct ProgramReading {
  struct Process {
    std::string name;         // of at most 15 bytes, printable; then " (real-time)" where it is
    std::uint64_t ticks = 0;  // user and system time
  };
  std::uint64_t at_ns = 0;
  std::map<int, Process> processes;  // by id; without this one and its siblings
};
// The program that traces this process: "gdb"; mostly none.
std::string tracer_of(const std::filesystem::path& proc);

// Throws only std::bad_alloc.
ProgramReading read_programs(const std::filesystem::path& proc,
                             const std::vector<Sibling>& siblings);

// Those that used the CPU most: "program NAME cpu %", at most three and each at least 5 % of a
// core, all processes of one name together. A process that is not in `before` began since; one that
// has ended is not counted.
std::vector<Metric> rates(const ProgramReading& before, const ProgramReading& after,
                          double ticks_per_second);

// Reads the processes as often as that costs little, as a machine may have thousands of them.
class OtherPrograms {
 public:
  // The next reading is made so many times later than what one took.
  explicit OtherPrograms(std::uint64_t rarely = 1000) : rarely_(rarely) {}

  // "traced by NAME", 1, if a program does now: all the more rarely are the others read then. From
  // the second reading on the metrics of the last two, the newest of them made now or not long ago,
  // and "other processes", those seen.
  std::vector<Metric> look(const std::filesystem::path& proc, const std::vector<Sibling>& siblings,
                           double ticks_per_second);

 private:
  void read(const std::filesystem::path& proc, const std::vector<Sibling>& siblings,
            double ticks_per_second);

  std::optional<ProgramReading> last_;
  std::vector<Metric> metrics_;
  std::set<std::string> names_;  // given so far: a session keeps each for ever
  std::uint64_t rarely_, next_ns_ = 0;
};

}  // namespace warpstep::profiler
