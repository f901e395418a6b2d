// Readings of the machine from the kernel's files, and the metrics of one reading (levels) or of
// two (rates). Pure functions of texts and of a folder, so that tests can supply their own.
#pragma once

#include <charconv>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace warpstep::profiler {

// ---- Files of /proc and /sys: short texts of lines and fields.

// The whole text; nothing if this is not a readable file of at most 4 MiB. Never waits (a FIFO
// gives nothing), throws only std::bad_alloc.
std::optional<std::string> read_text(const std::filesystem::path& path);

// The first line without surrounding blanks; empty without a readable file.
std::string first_line(const std::filesystem::path& path);

// The value of the first line "key<separator>value", without surrounding blanks and quotes; else
// "".
std::string value_of(std::string_view text, std::string_view key, char separator);
// The CPU by /proc/cpuinfo; on Arm, which names no model, "Arm, implementer 0x41, part 0xd4f".
// Empty if it says neither.
std::string cpu_model(std::string_view cpuinfo);

// Removes and returns the first line of `text`, or the next field of `line`; empty at the end.
std::string_view next_line(std::string_view& text);
std::string_view next_field(std::string_view& line);

// A whole field as a number; nothing if it is not one or does not fit.
template <class Number = std::uint64_t>
std::optional<Number> parse_number(std::string_view field) {
  Number value{};
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc() || end != field.data() + field.size()) return std::nullopt;
  return value;
}

// ---- Readings.

struct CpuTicks {
  int core = -1;             // -1: all together
  std::uint64_t busy = 0;    // with stolen
  std::uint64_t total = 0;   // with idle and iowait
  std::uint64_t stolen = 0;  // the hypervisor ran another virtual machine
};
struct DiskCounters {
  std::string name;
  std::uint64_t read_bytes = 0, written_bytes = 0;
  std::uint64_t busy_ms = 0;  // with requests in flight
};
struct NetworkCounters {
  std::string name;
  std::uint64_t received_bytes = 0, sent_bytes = 0;
};
struct MemoryUse {
  std::optional<std::uint64_t> available_bytes;
  std::optional<std::uint64_t> swap_used_bytes;
};

struct ProcessPages {
  std::uint64_t resident = 0;
  std::uint64_t shared = 0;  // of these: of files, or with other processes
};

// Each parses the text of one file; nothing, or an empty list, from any other text. Invalid lines
// are skipped.
std::vector<CpuTicks> parse_stat(std::string_view text);                  // /proc/stat
std::optional<std::uint64_t> parse_process_ticks(std::string_view text);  // /proc/PID/stat
std::optional<ProcessPages> parse_process_pages(std::string_view text);   // /proc/PID/statm
MemoryUse parse_meminfo(std::string_view text);
// Whole disks: no partitions, and no devices on top of other disks (loop, dm, md, ram, ...), whose
// transfers would count twice.
std::vector<DiskCounters> parse_diskstats(std::string_view text);
// Interfaces that connect to other machines: not lo, nor bridges and the like, whose bytes pass
// through another interface too.
std::vector<NetworkCounters> parse_network(std::string_view text);

// Another process of the same job, a rank.
struct Sibling {
  int process = 0;
  double share = 1;  // of the CPUs that it may use: those that this process may use too
};
struct SiblingTicks {
  int process = 0;
  double ticks = 0;  // user and system time, by its share
};

struct MachineReading {
  std::uint64_t at_ns = 0;  // engine/core/clock.h
  std::vector<CpuTicks> cpus;
  std::optional<std::uint64_t> process_ticks;  // user and system time
  std::vector<SiblingTicks> siblings;          // without those that have ended
  std::optional<std::uint64_t> resident_bytes, private_bytes;
  MemoryUse memory;
  std::vector<DiskCounters> disks;
  std::vector<NetworkCounters> networks;
  std::vector<std::string> problems;  // one sentence per missing or unexpected file
};
// `proc` is /proc except in tests. Throws only std::bad_alloc.
MachineReading read_machine(const std::filesystem::path& proc,
                            const std::vector<Sibling>& siblings = {});

// ---- Metrics.

struct Metric {
  std::string name;  // as sampler.h lists them
  double value = 0;
};
// The metrics of one reading: bytes in use.
std::vector<Metric> levels(const MachineReading& now);
// Shares and rates between two readings. None for a counter that went backwards, for a core or a
// disk that is not in both, or if no time passed.
std::vector<Metric> rates(const MachineReading& before, const MachineReading& after,
                          double ticks_per_second);

}  // namespace warpstep::profiler
