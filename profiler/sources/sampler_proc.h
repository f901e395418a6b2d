// What the kernel's files tell of the machine at one instant, and what two instants tell together.
// Pure functions of texts and of a folder, so that tests hand in their own.
#pragma once

#include <charconv>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace warpstep::profiler {

// Files of /proc and /sys: short texts of lines and fields.

// The whole text, or nothing: what is not a readable file, or longer than 4 MiB, is nothing. Never
// waits (a FIFO is nothing), never throws but std::bad_alloc.
std::optional<std::string> read_text(const std::filesystem::path& path);

// The first line without blanks around it; empty when there is none.
std::string first_line(const std::filesystem::path& path);

// The value of the first line "key<separator>value", without blanks and quotes around it; else "".
std::string value_of(std::string_view text, std::string_view key, char separator);

// Takes the first line off `text`, or the next field between blanks off `line`; empty at the end.
std::string_view next_line(std::string_view& text);
std::string_view next_field(std::string_view& line);

// A whole field as a number; nothing when it is anything else or does not fit.
template <class Number = std::uint64_t>
std::optional<Number> parse_number(std::string_view field) {
  Number value{};
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc() || end != field.data() + field.size()) return std::nullopt;
  return value;
}

struct CpuTicks {
  int core = -1;  // -1: all together
  std::uint64_t busy = 0;
  std::uint64_t total = 0;  // with idle and iowait
};
struct DiskCounters {
  std::string name;
  std::uint64_t read_bytes = 0, written_bytes = 0;
  std::uint64_t busy_ms = 0;  // with requests under way
};
struct NetworkCounters {
  std::string name;
  std::uint64_t received_bytes = 0, sent_bytes = 0;
};
struct MemoryUse {
  std::optional<std::uint64_t> available_bytes;
  std::optional<std::uint64_t> swap_used_bytes;
};

// Each reads the text of one file; nothing, or an empty list, from a text that is something else.
// Lines that make no sense are passed over.
std::vector<CpuTicks> parse_stat(std::string_view text);                   // /proc/stat
std::optional<std::uint64_t> parse_process_ticks(std::string_view text);   // /proc/PID/stat
std::optional<std::uint64_t> parse_resident_pages(std::string_view text);  // /proc/PID/statm
MemoryUse parse_meminfo(std::string_view text);
// Whole disks: no partitions, and nothing that stands on other disks (loop, dm, md, ram, ...),
// whose transfers would count twice.
std::vector<DiskCounters> parse_diskstats(std::string_view text);
// Interfaces that lead out of the machine: not lo, nor bridges and the like, whose bytes pass
// another one too.
std::vector<NetworkCounters> parse_network(std::string_view text);

struct MachineReading {
  std::uint64_t at_ns = 0;  // engine/core/clock.h
  std::vector<CpuTicks> cpus;
  std::optional<std::uint64_t> process_ticks;  // user and system time
  std::optional<std::uint64_t> resident_bytes;
  MemoryUse memory;
  std::vector<DiskCounters> disks;
  std::vector<NetworkCounters> networks;
  std::vector<std::string> problems;  // a sentence a file that is missing or something else
};
// `proc` is /proc but in tests. Throws nothing but std::bad_alloc.
MachineReading read_machine(const std::filesystem::path& proc);

struct Metric {
  std::string name;  // as sampler.h lists them
  double value = 0;
};
// What `now` tells alone: bytes in use.
std::vector<Metric> levels(const MachineReading& now);
// Shares and rates between two readings. A counter that went backwards, a core or a disk that is
// not in both gives none, and so does a clock that stood still.
std::vector<Metric> rates(const MachineReading& before, const MachineReading& after,
                          double ticks_per_second);

}  // namespace warpstep::profiler
