#include "data/loader_stats.h"

#include <fmt/format.h>

#include <algorithm>

namespace warpstep::data {
namespace {

double share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string advice(const LoaderStats& stats, const StageTime& longest, const std::string& encoding,
                   int most_workers) {
  const std::string more =
      stats.active < most_workers
          ? fmt::format("--workers {}", std::min(most_workers, 2 * std::max(1, stats.active)))
          : "a machine with more cores";
  if (longest.name == "decode" && encoding == "jpeg")
    return fmt::format(
        "pack the set with `warpstep data pack` (seekable JPEG decodes only what a "
        "crop needs), or take {}",
        more);
  if (longest.name == "decode" && encoding == "packed jpeg")
    return fmt::format("smaller crops, or take {}", more);
  if (longest.name == "decode")
    return fmt::format(
        "--tier mapped keeps decoded images, `warpstep data pack --decode` stores "
        "them; or take {}",
        more);
  if (longest.name == "read")
    return fmt::format(
        "pack the set with `warpstep data pack`: one file instead of many; or take "
        "{}",
        more);
  if (longest.name == "pixels") return "--normalize device takes this off the workers";
  return fmt::format("take {}", more);
}

}  // namespace

std::uint64_t LoaderStats::stage_ns(const std::string& name) const {
  for (const StageTime& stage : stages)
    if (stage.name == name) return stage.ns;
  return 0;
}

std::string MemoryBound::text() const {
  const auto mib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  return fmt::format("{:.1f} MiB (slots {:.1f}, workers {:.1f}, order {:.1f}, data set {:.1f})",
                     mib(total()), mib(slots), mib(workers), mib(order), mib(dataset));
}

std::string diagnose(const LoaderStats& stats, const std::string& encoding, int most_workers) {
  if (stats.batches < 2) return "data: too few batches to tell";
  std::uint64_t busy = 0;
  for (const StageTime& stage : stats.stages) busy += stage.ns;
  std::vector<StageTime> order = stats.stages;
  std::stable_sort(order.begin(), order.end(),
                   [](const StageTime& a, const StageTime& b) { return a.ns > b.ns; });
  const std::uint64_t whole = stats.last_taken_ns - stats.first_taken_ns;
  const double waits = share(std::min(stats.trainer_wait_ns, whole), whole);
  std::string text = fmt::format("data: {} worker{}, trainer waits {:.1f} %, ", stats.active,
                                 stats.active == 1 ? "" : "s", waits);
  std::string stages;
  for (const StageTime& stage : order) {
    if (share(stage.ns, busy) < 0.5) continue;
    stages +=
        fmt::format("{}{} {:.0f} %", stages.empty() ? "" : ", ", stage.name, share(stage.ns, busy));
  }
  text += stages.empty() ? "no work" : "workers: " + stages;
  const auto longest =
      std::find_if(order.begin(), order.end(), [](const StageTime& s) { return s.name != "wait"; });
  if (waits < 1 || longest == order.end()) return text + "; loading is hidden behind the step";
  return text + fmt::format("; bottleneck: {}: {}", longest->name,
                            advice(stats, *longest, encoding, most_workers));
}

}  // namespace warpstep::data
