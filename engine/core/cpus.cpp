#include "engine/core/cpus.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>

#include "engine/core/control_group.h"
#include "engine/core/error.h"

namespace warpstep {
namespace {

constexpr int most_cpus = 8192;  // the limit of Linux's configurations

[[noreturn]] void refuse_cpus(std::string_view text, const std::string& why) {
  fail<UsageError>("'{}' is not a list of CPUs: {}; write it as taskset does: 0-3,6 or 0-10:2",
                   text, why);
}

int cpu_number(std::string_view text, std::string_view field) {
  int number = -1;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), number);
  if (error == std::errc::result_out_of_range || (error == std::errc() && number >= most_cpus))
    refuse_cpus(text, fmt::format("'{}' is above {}", field, most_cpus - 1));
  if (error != std::errc() || end != field.data() + field.size() || number < 0)
    refuse_cpus(text, fmt::format("'{}' is not a CPU number", field));
  return number;
}

// One part of a list: "6", "0-3" or "0-10:2".
void add_range(std::string_view text, std::string_view part, CpuSet& cpus) {
  const std::size_t colon = part.find(':');
  const std::string_view range = part.substr(0, colon);
  const std::size_t dash = range.find('-');
  const int first = cpu_number(text, range.substr(0, dash));
  const int last = dash == range.npos ? first : cpu_number(text, range.substr(dash + 1));
  const int stride = colon == part.npos ? 1 : cpu_number(text, part.substr(colon + 1));
  if (last < first) refuse_cpus(text, fmt::format("'{}' ends before it begins", range));
  if (stride == 0 || (colon != part.npos && dash == range.npos))
    refuse_cpus(text, fmt::format("'{}' is not a range with a stride of at least 1", part));
  for (int cpu = first; cpu <= last; cpu += stride) cpus.push_back(cpu);
}

void sort_unique(CpuSet& cpus) {
  std::ranges::sort(cpus);
  const auto rest = std::ranges::unique(cpus);
  cpus.erase(rest.begin(), rest.end());
}

// The kernel's masks have one bit per possible CPU of the machine.
struct AffinityMask {
  static std::size_t bytes() { return CPU_ALLOC_SIZE(most_cpus); }
  cpu_set_t* const bits = CPU_ALLOC(most_cpus);

  AffinityMask() { CPU_ZERO_S(bytes(), bits); }
  ~AffinityMask() { CPU_FREE(bits); }
  AffinityMask(const AffinityMask&) = delete;
  AffinityMask& operator=(const AffinityMask&) = delete;
};

std::optional<std::string> line_in_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

int number_in_file(const std::filesystem::path& path, int otherwise) {
  const std::string line = line_in_file(path).value_or("");
  int number = otherwise;
  std::from_chars(line.data(), line.data() + line.size(), number);
  return number;
}

// The lowest CPU of the same core, as the kernel lists its threads; the CPU itself if unknown. A
// core's own number repeats in the dies of a package.
int first_sibling(const std::filesystem::path& topology, int cpu) {
  for (const char* const name : {"core_cpus_list", "thread_siblings_list"}) try {
      if (const auto line = line_in_file(topology / name)) return parse_cpus(*line).front();
    } catch (const UsageError&) {  // some other system's file
    }
  return cpu;
}

// Whether the environment makes OpenMP's library bind the thread that loads it to one CPU, which
// threads that this one starts would inherit.
bool openmp_binds() {
  const char* const bind = std::getenv("OMP_PROC_BIND");
  if (bind != nullptr && ::strcasecmp(bind, "false") == 0) return false;
  return bind != nullptr || std::getenv("OMP_PLACES") != nullptr ||
         std::getenv("GOMP_CPU_AFFINITY") != nullptr;
}

ThreadPlaces& mutable_places() {
  static ThreadPlaces placed;
  return placed;
}

}  // namespace

CpuSet parse_cpus(std::string_view text) {
  CpuSet cpus;
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    add_range(text, rest.substr(0, comma), cpus);
    if (comma == rest.npos) break;
    rest.remove_prefix(comma + 1);
  }
  sort_unique(cpus);
  return cpus;
}

std::string text_of_cpus(std::span<const int> cpus) {
  CpuSet sorted(cpus.begin(), cpus.end());
  sort_unique(sorted);
  std::string text;
  for (std::size_t i = 0; i < sorted.size();) {
    std::size_t last = i;
    while (last + 1 < sorted.size() && sorted[last + 1] == sorted[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", sorted[i]);
    if (last > i) text += fmt::format("-{}", sorted[last]);
    i = last + 1;
  }
  return text.empty() ? "none" : text;
}

CpuSet allowed_cpus(int thread) {
  const AffinityMask mask;
  CpuSet cpus;
  if (::sched_getaffinity(thread, AffinityMask::bytes(), mask.bits) != 0) return cpus;
  for (int cpu = 0; cpu < most_cpus; ++cpu)
    if (CPU_ISSET_S(static_cast<std::size_t>(cpu), AffinityMask::bytes(), mask.bits))
      cpus.push_back(cpu);
  return cpus;
}

namespace {

// Read when this library is loaded: backends, and OpenMP's library with them, come later.
const CpuSet cpus_at_start = allowed_cpus();

}  // namespace

CpuSet cpus_of_new_threads() {
  if (const CpuSet& others = thread_places().others; !others.empty()) return others;
  return openmp_binds() ? cpus_at_start : CpuSet();
}

int cores_within(std::size_t cpus, std::optional<double> quota) {
  double cores = static_cast<double>(std::max<std::size_t>(1, cpus));
  if (quota) cores = std::min(cores, std::max(1.0, std::ceil(*quota)));
  return static_cast<int>(cores);
}

int allowed_cores() {
  static const int cores = [] {
    const std::size_t cpus = (openmp_binds() ? cpus_at_start : allowed_cpus()).size();
    return cores_within(cpus > 0 ? cpus : std::thread::hardware_concurrency(), cpu_quota());
  }();
  return cores;
}

bool run_on(std::span<const int> cpus) {
  if (cpus.empty()) return false;
  const AffinityMask mask;
  for (const int cpu : cpus)
    CPU_SET_S(static_cast<std::size_t>(cpu), AffinityMask::bytes(), mask.bits);
  return ::sched_setaffinity(0, AffinityMask::bytes(), mask.bits) == 0;
}

namespace {

using CpuPlace = std::tuple<int, int, int, int>;  // thread of its core, package, core, CPU

std::vector<CpuPlace> places_of(const CpuSet& cpus, const std::filesystem::path& root) {
  std::vector<CpuPlace> places;
  std::map<int, int> seen;  // of a core: how many of its threads are in `cpus`
  for (const int cpu : cpus) {
    const std::filesystem::path topology =
        root / fmt::format("sys/devices/system/cpu/cpu{}/topology", cpu);
    const int core = first_sibling(topology, cpu);
    places.emplace_back(seen[core]++, number_in_file(topology / "physical_package_id", 0), core,
                        cpu);
  }
  return places;
}

}  // namespace

std::vector<int> by_core(const CpuSet& cpus, const std::filesystem::path& root) {
  std::vector<CpuPlace> places = places_of(cpus, root);
  std::ranges::sort(places);
  std::vector<int> order;
  for (const CpuPlace& place : places) order.push_back(std::get<3>(place));
  return order;
}

CpuSet part_of(const CpuSet& cpus, CpuShare share, const std::filesystem::path& root) {
  std::vector<CpuPlace> places = places_of(cpus, root);
  std::ranges::sort(places, {}, [](const CpuPlace& place) {
    const auto [thread, package, core, cpu] = place;
    return std::tuple(package, core, thread, cpu);
  });
  const std::size_t index = static_cast<std::size_t>(share.index),
                    count = static_cast<std::size_t>(share.count);
  CpuSet part;
  for (std::size_t i = index * places.size() / count; i < (index + 1) * places.size() / count; ++i)
    part.push_back(std::get<3>(places[i]));
  // More processes than CPUs: some share one.
  if (part.empty() && !places.empty())
    part.push_back(std::get<3>(places[index * places.size() / count]));
  std::ranges::sort(part);
  return part;
}

void place_threads(ThreadPlaces places) {
  allowed_cores();  // of the process, not of the CPU to which the calling thread is pinned
  mutable_places() = std::move(places);
}

const ThreadPlaces& thread_places() {
  return mutable_places();
}

}  // namespace warpstep
