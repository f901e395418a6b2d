#include "tools/warpstep/pinning.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "engine/core/control_group.h"
#include "engine/core/error.h"
#include "engine/core/text.h"

namespace warpstep::tools {
namespace {

CpuSet difference_of(const CpuSet& all, CpuSet without) {
  std::ranges::sort(without);
  CpuSet rest;
  std::ranges::set_difference(all, without, std::back_inserter(rest));
  return rest;
}

CpuSet listed(const std::string& text, const CpuSet& allowed) {
  CpuSet cpus = parse_cpus(text);
  const CpuSet missing = difference_of(cpus, allowed);
  if (!missing.empty())
    fail<UsageError>(
        "--pin-cpus {}: this process may not run on CPU {}, only on {} (its affinity mask and the "
        "container's CPUs, as far as they are online); choose among these, or --pin-cpus auto or "
        "none",
        text, text_of_cpus(missing), text_of_cpus(allowed));
  return cpus;
}

}  // namespace

std::string Pinning::text() const {
  if (places.team.empty()) return {};
  const auto on = [](const std::vector<int>& cpus) {
    return fmt::format("CPU{} {}", cpus.size() == 1 ? "" : "s", text_of_cpus(cpus));
  };
  return fmt::format("{} on {}, loader on {}{}", counted(threads(), "thread"), on(places.team),
                     shares ? "the same " : "", on(places.others));
}

void to_json(Json& json, const Pinning& pinning) {
  json = {{"team", text_of_cpus(pinning.places.team)},
          {"others", text_of_cpus(pinning.places.others)}};
}

AvailableCpus available_cpus() {
  return {allowed_cpus(), cpu_quota()};
}

void check_pin_cpus(const std::string& text) {
  if (text != "auto" && text != "none") parse_cpus(text);
}

Pinning choose_pinning(const std::string& text, int threads, const AvailableCpus& available,
                       CpuShare share, const std::filesystem::path& root) {
  if (text == "none") return {};
  const bool is_list = text != "auto";
  const CpuSet cpus =
      part_of(is_list ? listed(text, available.allowed) : available.allowed, share, root);
  if (cpus.empty())
    fail<UsageError>("--pin-cpus {}: the kernel does not say which CPUs there are; use none", text);
  std::vector<int> team = by_core(cpus, root);
  std::string limit =
      share.count > 1 ? fmt::format(", one of {} parts, one for each rank", share.count) : "";
  const std::optional<double> quota =
      available.quota ? std::optional(*available.quota / share.count) : std::nullopt;
  const bool is_limited = !is_list && quota && *quota < static_cast<double>(team.size());
  if (is_limited) {
    team.resize(static_cast<std::size_t>(std::max(1.0, std::ceil(*quota))));
    limit += fmt::format(", of which the control group's quota of {:.2f} cores allows {}", *quota,
                         team.size());
  }
  if (threads > static_cast<int>(team.size()))
    fail<UsageError>(
        "--pin-cpus {}: {} threads do not fit on CPU{} {}{}; use --threads {}, {}--pin-cpus none",
        text, threads, cpus.size() == 1 ? "" : "s", text_of_cpus(cpus), limit, team.size(),
        is_list      ? "more CPUs or "
        : is_limited ? "a list of CPUs or "
                     : "or ");
  if (threads > 0) team.resize(static_cast<std::size_t>(threads));
  Pinning pinning{.places = {.team = team, .others = difference_of(cpus, team)}};
  pinning.shares = pinning.places.others.empty();
  if (pinning.shares) pinning.places.others = cpus;
  return pinning;
}

}  // namespace warpstep::tools
