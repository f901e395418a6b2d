#include "profiler/analysis/throttle.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace warpstep::profiler::advice {
namespace {

constexpr std::array<std::pair<std::uint64_t, const char*>, 5> reasons{{{0x04, "power cap"},
                                                                        {0x08, "hardware slowdown"},
                                                                        {0x20, "thermal"},
                                                                        {0x40, "hardware thermal"},
                                                                        {0x80, "power brake"}}};

}  // namespace

std::vector<Throttle> throttled(const Session& session) {
  std::vector<Throttle> found;
  for (const Device& device : session.devices) {
    const std::string metric = fmt::format("gpu {} throttle reasons", device.id);
    std::size_t samples = 0, slowed = 0;
    std::uint64_t seen = 0;
    for (const Sample& sample : session.samples) {
      if (session.name(sample.name) != metric || sample.value < 0 || sample.value > 9e15) continue;
      ++samples;
      std::uint64_t mask = 0;
      for (const auto& [bit, why] : reasons) mask |= static_cast<std::uint64_t>(sample.value) & bit;
      slowed += mask != 0 ? 1 : 0;
      seen |= mask;
    }
    if (slowed == 0) continue;
    Throttle throttle{device.id, static_cast<double>(slowed) / static_cast<double>(samples), ""};
    for (const auto& [bit, why] : reasons)
      if ((seen & bit) != 0) throttle.why += (throttle.why.empty() ? "" : ", ") + std::string(why);
    found.push_back(throttle);
  }
  return found;
}

}  // namespace warpstep::profiler::advice
