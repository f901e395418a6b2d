#include "profiler/sources/sampler_proc.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>

#include "engine/core/clock.h"

namespace warpstep::profiler {
namespace {

constexpr std::string_view blanks = " \t\r\n";
constexpr std::size_t max_text_bytes = std::size_t{4} << 20;

std::string_view trimmed(std::string_view text, std::string_view around) {
  const std::size_t first = text.find_first_not_of(around);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(around) + 1 - first);
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Fills `numbers` from the line's next fields; false if one is missing or not a number.
template <std::size_t count>
bool take_numbers(std::string_view& line, std::array<std::uint64_t, count>& numbers) {
  for (std::uint64_t& number : numbers) {
    const auto value = parse_number(next_field(line));
    if (!value) return false;
    number = *value;
  }
  return true;
}

bool begins_with_any(std::string_view name, std::span<const std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [name](std::string_view prefix) { return name.starts_with(prefix); });
}

// "sda1" of "sda", "nvme0n1p2" of "nvme0n1".
bool is_partition_of(std::string_view name, std::string_view disk) {
  if (disk.empty() || name.size() <= disk.size() || !name.starts_with(disk)) return false;
  std::string_view rest = name.substr(disk.size());
  if (is_digit(disk.back())) {
    if (rest.front() != 'p' || rest.size() == 1) return false;
    rest.remove_prefix(1);
  }
  return std::all_of(rest.begin(), rest.end(), is_digit);
}

std::optional<std::uint64_t> kibibytes(std::string_view text, std::string_view key) {
  std::string value = value_of(text, key, ':');
  if (!value.ends_with(" kB")) return std::nullopt;
  value.resize(value.find(' '));
  const auto number = parse_number(value);
  if (!number || *number > UINT64_MAX / 1024) return std::nullopt;
  return *number * 1024;
}

// Per second; nothing for a counter that went backwards.
std::optional<double> rate(std::uint64_t before, std::uint64_t after, double seconds) {
  if (after < before) return std::nullopt;
  return static_cast<double>(after - before) / seconds;
}

template <class Counters>
const Counters* named(const std::vector<Counters>& all, const std::string& name) {
  const auto at = std::find_if(all.begin(), all.end(),
                               [&name](const Counters& one) { return one.name == name; });
  return at == all.end() ? nullptr : &*at;
}

void add_cpus(const MachineReading& before, const MachineReading& after,
              std::vector<Metric>& metrics) {
  double stolen = 0;
  bool is_stolen_from = false;
  // Cores have the same order, except for those that were switched on or off in between.
  auto then = before.cpus.begin();
  for (const CpuTicks& now : after.cpus) {
    while (then != before.cpus.end() && then->core < now.core) ++then;
    if (then == before.cpus.end() || then->core != now.core) continue;
    if (now.total <= then->total || now.busy < then->busy) continue;
    const double percent = 100 * static_cast<double>(now.busy - then->busy) /
                           static_cast<double>(now.total - then->total);
    // Idle time may decrease a little; then busy grows by more than the total.
    metrics.push_back(
        {now.core < 0 ? "cpu %" : fmt::format("cpu {} %", now.core), std::min(percent, 100.0)});
    if (now.core < 0 || now.stolen < then->stolen) continue;
    is_stolen_from |= now.stolen > 0;
    stolen += std::min(100.0, 100 * static_cast<double>(now.stolen - then->stolen) /
                                  static_cast<double>(now.total - then->total));
  }
  // Most machines are not shared, and have no use for a metric that is always 0.
  if (is_stolen_from) metrics.push_back({"stolen cpu %", stolen});
}

// Of those that are in both readings: a rank that ended takes no cores any more.
void add_siblings(const MachineReading& before, const MachineReading& after, double seconds,
                  double ticks_per_second, std::vector<Metric>& metrics) {
  double ticks = 0;
  bool any = false;
  for (const SiblingTicks& now : after.siblings) {
    const auto then = std::ranges::find(before.siblings, now.process, &SiblingTicks::process);
    if (then == before.siblings.end() || now.ticks < then->ticks) continue;
    any = true;
    ticks += now.ticks - then->ticks;
  }
  if (any) metrics.push_back({"siblings cpu %", 100 * ticks / seconds / ticks_per_second});
}

void add_disks(const MachineReading& before, const MachineReading& after, double seconds,
               std::vector<Metric>& metrics) {
  double read = 0, written = 0, busy = 0;
  bool any = false;
  for (const DiskCounters& now : after.disks) {
    const DiskCounters* then = named(before.disks, now.name);
    if (!then) continue;
    const auto reads = rate(then->read_bytes, now.read_bytes, seconds);
    const auto writes = rate(then->written_bytes, now.written_bytes, seconds);
    const auto ms = rate(then->busy_ms, now.busy_ms, seconds);
    if (!reads || !writes || !ms) continue;
    any = true;
    read += *reads;
    written += *writes;
    busy = std::max(busy, std::min(*ms / 10, 100.0));  // 1000 ms/s is 100 %
  }
  if (!any) return;
  metrics.push_back({"disk read bytes/s", read});
  metrics.push_back({"disk write bytes/s", written});
  metrics.push_back({"disk busy %", busy});
}

void add_networks(const MachineReading& before, const MachineReading& after, double seconds,
                  std::vector<Metric>& metrics) {
  double received = 0, sent = 0;
  bool any = false;
  for (const NetworkCounters& now : after.networks) {
    const NetworkCounters* then = named(before.networks, now.name);
    if (!then) continue;
    const auto in = rate(then->received_bytes, now.received_bytes, seconds);
    const auto out = rate(then->sent_bytes, now.sent_bytes, seconds);
    if (!in || !out) continue;
    any = true;
    received += *in;
    sent += *out;
  }
  if (!any) return;
  metrics.push_back({"network received bytes/s", received});
  metrics.push_back({"network sent bytes/s", sent});
}

}  // namespace

std::optional<std::string> read_text(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return std::nullopt;
  // /proc generates a text when it is read: its size is not known before, and one large read costs
  // the kernel less than several small ones.
  std::string text;
  std::size_t size = 0;
  ssize_t got = 1;
  while (got != 0 && size <= max_text_bytes) {
    if (size == text.size()) text.resize(size + (std::size_t{16} << 10));
    got = ::read(file, text.data() + size, text.size() - size);
    if (got < 0 && errno != EINTR) break;
    if (got > 0) size += static_cast<std::size_t>(got);
  }
  ::close(file);
  if (got != 0) return std::nullopt;
  text.resize(size);
  return text;
}

std::string first_line(const std::filesystem::path& path) {
  const std::optional<std::string> text = read_text(path);
  if (!text) return {};
  std::string_view rest = *text;
  return std::string(trimmed(next_line(rest), blanks));
}

std::string value_of(std::string_view text, std::string_view key, char separator) {
  while (!text.empty()) {
    const std::string_view line = next_line(text);
    if (!line.starts_with(key)) continue;
    const std::size_t at = line.find(separator);
    if (at == std::string_view::npos || line.find_first_not_of(" \t", key.size()) != at) continue;
    return std::string(trimmed(line.substr(at + 1), " \t\r\""));
  }
  return {};
}

std::string cpu_model(std::string_view cpuinfo) {
  std::string model = value_of(cpuinfo, "model name", ':');
  const std::string implementer = value_of(cpuinfo, "CPU implementer", ':');
  if (!model.empty() || implementer.empty()) return model;
  return fmt::format("Arm, implementer {}, part {}", implementer,
                     value_of(cpuinfo, "CPU part", ':'));
}

std::string_view next_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

std::string_view next_field(std::string_view& line) {
  line.remove_prefix(std::min(line.size(), line.find_first_not_of(blanks)));
  const std::string_view field = line.substr(0, line.find_first_of(blanks));
  line.remove_prefix(field.size());
  return field;
}

std::vector<CpuTicks> parse_stat(std::string_view text) {
  std::vector<CpuTicks> cpus;
  while (text.starts_with("cpu")) {
    std::string_view line = next_line(text);
    const std::string_view core = next_field(line).substr(3);
    CpuTicks ticks;
    if (!core.empty()) ticks.core = parse_number<int>(core).value_or(-2);
    // user, nice, system, idle, iowait, irq, softirq, steal; user and nice include guests' time.
    std::array<std::uint64_t, 8> spent{};
    if (ticks.core < -1 || !take_numbers(line, spent)) continue;
    for (const std::uint64_t part : spent) ticks.total += part;
    ticks.busy = ticks.total - spent[3] - spent[4];
    ticks.stolen = spent[7];
    cpus.push_back(ticks);
  }
  return cpus;
}

std::optional<std::uint64_t> parse_process_ticks(std::string_view text) {
  // The second field is the program's name in parentheses, which may contain blanks and
  // parentheses.
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string_view::npos) return std::nullopt;
  text.remove_prefix(name_end + 1);
  for (int field = 3; field < 14; ++field) next_field(text);
  std::array<std::uint64_t, 2> user_and_system{};
  if (!take_numbers(text, user_and_system)) return std::nullopt;
  return user_and_system[0] + user_and_system[1];
}

std::optional<ProcessPages> parse_process_pages(std::string_view text) {
  std::array<std::uint64_t, 3> size_resident_shared{};
  if (!take_numbers(text, size_resident_shared)) return std::nullopt;
  return ProcessPages{size_resident_shared[1], size_resident_shared[2]};
}

MemoryUse parse_meminfo(std::string_view text) {
  MemoryUse use;
  use.available_bytes = kibibytes(text, "MemAvailable");
  const auto total = kibibytes(text, "SwapTotal");
  const auto free = kibibytes(text, "SwapFree");
  if (total && free && *free <= *total) use.swap_used_bytes = *total - *free;
  return use;
}

std::vector<DiskCounters> parse_diskstats(std::string_view text) {
  static constexpr std::array<std::string_view, 8> others{"loop", "ram", "zram", "dm-",
                                                          "md",   "sr",  "fd",   "drbd"};
  constexpr std::uint64_t sector_bytes = 512;  // in this file, whatever the disk's sectors are
  std::vector<DiskCounters> disks;
  while (!text.empty()) {
    std::string_view line = next_line(text);
    std::array<std::uint64_t, 2> device{};
    if (!take_numbers(line, device)) continue;
    const std::string_view name = next_field(line);
    // reads, merged, sectors, ms; writes, merged, sectors, ms; in flight, busy ms
    std::array<std::uint64_t, 10> fields{};
    if (begins_with_any(name, others) || !take_numbers(line, fields)) continue;
    disks.push_back(
        {std::string(name), fields[2] * sector_bytes, fields[6] * sector_bytes, fields[9]});
  }
  std::vector<DiskCounters> whole;
  for (const DiskCounters& disk : disks)
    if (std::none_of(disks.begin(), disks.end(), [&disk](const DiskCounters& other) {
          return is_partition_of(disk.name, other.name);
        }))
      whole.push_back(disk);
  return whole;
}

std::vector<NetworkCounters> parse_network(std::string_view text) {
  static constexpr std::array<std::string_view, 5> inner{"veth", "docker", "br-", "virbr", "bond"};
  std::vector<NetworkCounters> networks;
  while (!text.empty()) {
    std::string_view line = next_line(text);
    const std::size_t colon = line.rfind(':');
    if (colon == std::string_view::npos) continue;
    std::string_view before = line.substr(0, colon);
    const std::string_view name = next_field(before);
    line.remove_prefix(colon + 1);
    std::array<std::uint64_t, 9> fields{};  // received: bytes and 7 more; sent: bytes
    // "eth0.100" is a VLAN on eth0.
    if (name.empty() || name == "lo" || name.find('.') != std::string_view::npos ||
        begins_with_any(name, inner) || !take_numbers(line, fields))
      continue;
    networks.push_back({std::string(name), fields[0], fields[8]});
  }
  return networks;
}

MachineReading read_machine(const std::filesystem::path& proc,
                            const std::vector<Sibling>& siblings) {
  MachineReading reading;
  const auto text_of = [&](const char* file) {
    std::optional<std::string> text = read_text(proc / file);
    if (!text) reading.problems.push_back(fmt::format("{} cannot be read", (proc / file).string()));
    return text;
  };
  const auto unexpected = [&](const char* file) {
    reading.problems.push_back(
        fmt::format("{} is not in the expected format", (proc / file).string()));
  };
  reading.at_ns = now_ns();
  if (const auto text = text_of("stat"))
    if (reading.cpus = parse_stat(*text); reading.cpus.empty()) unexpected("stat");
  if (const auto text = text_of("self/stat"))
    if (reading.process_ticks = parse_process_ticks(*text); !reading.process_ticks)
      unexpected("self/stat");
  for (const Sibling& sibling : siblings)
    if (const auto text = read_text(proc / std::to_string(sibling.process) / "stat"))
      if (const auto ticks = parse_process_ticks(*text))
        reading.siblings.push_back({sibling.process, sibling.share * static_cast<double>(*ticks)});
  if (const auto text = text_of("self/statm")) {
    const auto pages = parse_process_pages(*text);
    const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    if (pages && pages->resident <= UINT64_MAX / page_bytes) {
      reading.resident_bytes = pages->resident * page_bytes;
      reading.private_bytes =
          (pages->resident - std::min(pages->resident, pages->shared)) * page_bytes;
    } else {
      unexpected("self/statm");
    }
  }
  if (const auto text = text_of("meminfo")) {
    reading.memory = parse_meminfo(*text);
    if (!reading.memory.available_bytes && !reading.memory.swap_used_bytes) unexpected("meminfo");
  }
  // On a machine without disks or interfaces these files are empty or have only a heading.
  if (const auto text = text_of("diskstats")) reading.disks = parse_diskstats(*text);
  if (const auto text = text_of("net/dev")) reading.networks = parse_network(*text);
  return reading;
}

std::vector<Metric> levels(const MachineReading& now) {
  std::vector<Metric> metrics;
  const auto add = [&metrics](const char* name, const std::optional<std::uint64_t>& value) {
    if (value) metrics.push_back({name, static_cast<double>(*value)});
  };
  add("process rss bytes", now.resident_bytes);
  add("process private bytes", now.private_bytes);
  add("memory available bytes", now.memory.available_bytes);
  add("swap used bytes", now.memory.swap_used_bytes);
  return metrics;
}

std::vector<Metric> rates(const MachineReading& before, const MachineReading& after,
                          double ticks_per_second) {
  std::vector<Metric> metrics;
  if (after.at_ns <= before.at_ns) return metrics;
  const double seconds = static_cast<double>(after.at_ns - before.at_ns) * 1e-9;
  add_cpus(before, after, metrics);
  if (before.process_ticks && after.process_ticks)
    if (const auto ticks = rate(*before.process_ticks, *after.process_ticks, seconds))
      metrics.push_back({"process cpu %", 100 * *ticks / ticks_per_second});
  add_siblings(before, after, seconds, ticks_per_second, metrics);
  add_disks(before, after, seconds, metrics);
  add_networks(before, after, seconds, metrics);
  return metrics;
}

}  // namespace warpstep::profiler
