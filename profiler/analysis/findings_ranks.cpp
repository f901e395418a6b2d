// Findings about the other ranks of a job: what exchanging gradients costs, and who is waited for.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "profiler/analysis/findings.h"
#include "profiler/analysis/ranks.h"
#include "profiler/analysis/scope.h"

namespace warpstep::profiler {
namespace {

constexpr double least_communication = 0.10;  // torch_tb_profiler's

// More samples for each exchange, which an update has one of.
std::string larger_update(const Facts& facts) {
  const std::int64_t accumulate = fields::whole(facts.options, "accumulate", 1);
  return accumulate > 1 ? fmt::format("--accumulate {}", 2 * accumulate) : facts.larger_batch();
}

}  // namespace

// Where the ranks' sessions were compared, waiting for the slowest is no cost of the exchange.
void find_communication(const Facts& facts, std::vector<Finding>& findings) {
  const std::optional<SlowRank>& slow = facts.analysis.slow_rank;
  const bool is_own = slow && slow->rank == fields::whole(facts.session.stamp, "rank", -1);
  const double all_ns = facts.part(Category::communication),
               waited_ns = slow && !is_own ? std::min(all_ns, slow->excess_ns) : 0,
               ns = all_ns - waited_ns;
  if (ns <= least_communication * facts.step_ns) return;
  Finding finding{.key = "communication",
                  .text = facts.on_host ? "Ranks wait for each other's gradients."
                                        : "Devices wait for each other's gradients.",
                  .evidence = facts.of_step(ns),
                  .flag = larger_update(facts),
                  .gain_ns = facts.unless_waiting(ns / 2)};
  if (waited_ns > 0)
    finding.evidence += fmt::format(", without {} of waiting for rank {}",
                                    quantity(waited_ns, Unit::ns), slow->rank);
  finding.advice = fmt::format(
      "use larger batches: {} exchanges the same gradients for twice the samples; `warpstep ranks "
      "RUN RUN/ranks/1` shows whether the ranks wait for a late one{}; docs/distributed.md",
      finding.flag,
      facts.on_host ? ""
                    : " and which bucket of gradients is not hidden by computing "
                      "(WARPSTEP_BUCKET_MIB sets their size)");
  findings.push_back(finding);
}

// One rank that the others of its job wait for, in its own report and in theirs.
void find_slow_rank(const Facts& facts, std::vector<Finding>& findings) {
  const std::optional<SlowRank>& slow = facts.analysis.slow_rank;
  if (!slow) return;
  const bool is_own = slow->rank == fields::whole(facts.session.stamp, "rank", -1);
  const std::string run = slow->rank == 0 ? "RUN" : fmt::format("RUN/ranks/{}", slow->rank);
  findings.push_back(
      {.key = "slow-rank",
       .text = is_own ? fmt::format("The other ranks wait for this one, rank {}.", slow->rank)
                      : fmt::format("All ranks wait for rank {} ({}).", slow->rank, slow->host),
       .evidence = fmt::format("it is {}", text_of(*slow)),
       .advice = is_own ? "find in this report what it does longer than they do; `warpstep ranks` "
                          "compares them part by part"
                        : fmt::format("read its own report: warpstep report {}; other programs, a "
                                      "slower CPU or GPU, a narrower affinity or a slower disk on "
                                      "its machine are the usual causes",
                                      run),
       .gain_ns = facts.unless_waiting(slow->excess_ns)});
}

}  // namespace warpstep::profiler
