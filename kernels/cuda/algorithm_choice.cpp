#include "kernels/cuda/algorithm_choice.h"

#include "kernels/cuda/check.h"

namespace warpstep::cuda {

Offer::~Offer() = default;

AlgorithmChoice::AlgorithmChoice(const Settings& settings, std::string_view library)
    : measures_(settings.autotune && settings.has_device()), cache_(settings, library) {}

std::optional<Chosen> AlgorithmChoice::choose(Offer& offer, std::string& why) {
  const std::string key = offer.key();
  if (const auto untried = untried_.find(key); untried != untried_.end())
    if (offer.restore(untried->second)) return Chosen{};
  // Callers ask again and rely on the same answer.
  if (const auto refused = refused_.find(key); refused != refused_.end()) {
    why += refused->second;
    return std::nullopt;
  }
  if (const std::optional<std::string> saved = cache_.find(key))
    if (offer.restore(*saved) && restored_runs(offer, *saved, why)) return Chosen{};
  if (only_plans_) return offer.propose() > 0 ? std::optional(Chosen{}) : std::nullopt;
  const std::optional<Chosen> chosen = choose_anew(offer, why);
  if (!chosen) refused_[key] = why;
  return chosen;
}

// True, too, where there is no memory to try it: it ran in the process that stored it.
bool AlgorithmChoice::restored_runs(Offer& offer, const std::string& saved, std::string& why) {
  const std::pair id(offer.key(), saved);
  if (only_plans_ || ran_.contains(id)) return true;
  try {
    offer.allocate(false);
    why = stopwatch().why_not(offer.enqueue(0));
  } catch (const OutOfDeviceMemory&) {
    return true;
  }
  if (why.empty()) ran_.insert(id);
  return why.empty();
}

std::optional<Chosen> AlgorithmChoice::choose_anew(Offer& offer, std::string& why) {
  const std::size_t count = offer.propose();
  if (count == 0) return std::nullopt;
  const bool measures = measures_ && count > 1;
  std::optional<Chosen> best;
  try {
    offer.allocate(measures);
    std::vector<Enqueue> candidates;
    for (std::size_t candidate = 0; candidate < count; ++candidate)
      candidates.push_back(offer.enqueue(candidate));
    best = fastest_or_first(stopwatch(), candidates, measures, why);
  } catch (const OutOfDeviceMemory&) {  // a step that fits shares its memory among its calls
    untried_[offer.key()] = offer.save(0, false);
    return Chosen{};
  }
  if (!best) return best;
  const std::string saved = offer.save(best->candidate, best->measured);
  ran_.emplace(offer.key(), saved);
  if (best->measured || !measures)
    cache_.keep(offer.key(), saved);
  else
    cache_.keep_unmeasured(offer.key(), saved);
  return best;
}

Stopwatch& AlgorithmChoice::stopwatch() {
  if (!stopwatch_) stopwatch_.emplace();
  return *stopwatch_;
}

}  // namespace warpstep::cuda
