#include "data/tier.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>

#include "engine/core/error.h"

namespace warpstep::data {
namespace {

constexpr std::array tiers{Tier::automatic, Tier::resident, Tier::mapped, Tier::decoded};

double mib(std::uint64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

// Why the set cannot be resident; empty when it can.
std::string not_resident(const TierFacts& facts) {
  if (!facts.is_gathered) return "its recipe resizes images or changes their bytes";
  if (!facts.normalizes_on_device) return "it is normalised on the CPU";
  if (facts.has_device && facts.device_budget_bytes > 0 &&
      facts.decoded_bytes > facts.device_budget_bytes)
    return fmt::format("its {:.0f} MiB of pixels are more than the {:.0f} MiB that it may take",
                       mib(facts.decoded_bytes), mib(facts.device_budget_bytes));
  if ((!facts.has_device || !facts.is_decoded) && facts.decoded_bytes > facts.host_budget_bytes)
    return fmt::format(
        "its {:.0f} MiB of pixels are more than the {:.0f} MiB of memory that it "
        "may take",
        mib(facts.decoded_bytes), mib(facts.host_budget_bytes));
  return {};
}

}  // namespace

std::string_view name(Tier tier) {
  switch (tier) {
    case Tier::automatic: return "auto";
    case Tier::resident: return "resident";
    case Tier::mapped: return "mapped";
    case Tier::decoded: return "decoded";
  }
  return "?";
}

Tier parse_tier(std::string_view text) {
  for (const Tier tier : tiers)
    if (name(tier) == text) return tier;
  fail<UsageError>("--tier {}: there are auto, resident, mapped and decoded", text);
}

TierChoice choose_tier(Tier wanted, const TierFacts& facts) {
  const std::string against = not_resident(facts);
  if (wanted == Tier::resident && !against.empty())
    fail<UsageError>("--tier resident: the set cannot be resident: {}; use --tier auto", against);
  if (wanted == Tier::decoded && facts.is_decoded) return {Tier::mapped, "it is stored decoded"};
  if (wanted == Tier::mapped && !facts.is_decoded && facts.decoded_bytes > facts.host_budget_bytes)
    fail<UsageError>(
        "--tier mapped: {:.0f} MiB of pixels are more than the {:.0f} MiB of memory "
        "that the set may take; use --tier decoded, or pack it with `warpstep data "
        "pack --decode`",
        mib(facts.decoded_bytes), mib(facts.host_budget_bytes));
  if (wanted != Tier::automatic) return {wanted, "as asked"};
  if (facts.has_device && against.empty() && !facts.sets_extent)
    return {Tier::resident, "its pixels fit the device"};
  if (facts.is_decoded) return {Tier::mapped, "it is stored decoded"};
  if (facts.many_epochs && !facts.sets_extent && facts.decoded_bytes <= facts.host_budget_bytes)
    return {Tier::mapped, "its pixels fit into memory"};
  return {Tier::decoded, facts.sets_extent   ? "only the pixels that are wanted are decoded"
                         : facts.many_epochs ? "its pixels do not fit into memory"
                                             : "every sample is needed once"};
}

std::uint64_t host_budget_bytes() {
  std::uint64_t bytes = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                        static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::string text;
    std::ifstream(path) >> text;
    std::uint64_t limit = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), limit);
    if (error == std::errc() && end == text.data() + text.size()) bytes = std::min(bytes, limit);
  }
  return bytes / 4;
}

}  // namespace warpstep::data
