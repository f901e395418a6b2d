// Runs with planted bottlenecks: does the profiler name them, and does its advice give the step
// time that it predicts?
#include "bench/planted_run.h"
#include "engine/core/cpus.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <vector>

namespace {

using namespace warpstep;
using bench::Plant;

struct Case {
  std::string name;
  Plant plant;
  std::string finding;
};

std::vector<Case> cases() {
  const int cores = allowed_cores();
  return {
      {"a slow disk", {.read_us = 400, .step_us = 1500}, "slow-disk"},
      {"a slow transform", {.transform_us = 400, .step_us = 1500}, "slow-transform"},
      {"too few workers", {.transform_us = 250, .step_us = 2000}, "data-wait"},
      {"an oversubscribed CPU",
       {.transform_us = 2, .workers = 2 * cores, .batch = 512, .threads = 4 * cores, .steps = 1000},
       "oversubscribed"},
      {"waiting for a loss and printing it",
       {.step_us = 2000, .observer_us = 1000},
       "slow-observers"},
      {"tiny batches", {.batch = 1, .steps = 400}, "tiny-batch"},
  };
}

int check_names(const std::string& folder, const std::string& only) {
  int missed = 0;
  for (const Case& c : cases()) {
    if (!only.empty() && c.finding != only) continue;
    const bench::PlantedResult result = bench::run_planted(c.plant, folder);
    const bool named = result.names(c.finding);
    missed += named ? 0 : 1;
    fmt::print("{:40} {} {}\n", c.name, named ? "named:" : "NOT named; wanted", c.finding);
    for (const profiler::Finding& finding : result.analysis.findings)
      fmt::print("    {} {} -> {}\n", finding.text, finding.evidence, finding.advice);
  }
  return missed;
}

// Follows the advice for a loader that is too slow (for a disk: workers need no core) and compares
// the predicted wait with the measured one.
int check_predictions(const std::string& folder, int runs) {
  int missed = 0;
  for (const int workers : {1, 2, 3}) {
    for (int i = 0; i < runs; ++i) {
      Plant plant{.read_us = 500, .step_us = 1800, .workers = workers, .steps = 200};
      const bench::PlantedResult before = bench::run_planted(plant, folder);
      const profiler::Stall& stall = before.analysis.stall;
      for (const int then : {workers + 1, stall.workers_needed}) {
        if (then <= workers || static_cast<std::size_t>(then) > stall.wait_by_workers_ns.size())
          continue;
        plant.workers = then;
        const bench::PlantedResult after = bench::run_planted(plant, folder);
        const double predicted = stall.wait_by_workers_ns[static_cast<std::size_t>(then - 1)];
        const double off = (predicted - after.wait_ns) / after.step_ns;
        missed += std::abs(off) > 0.10 ? 1 : 0;
        fmt::print(
            "{} -> {} workers: wait {:.2f} ms of {:.2f}, predicted {:.2f}, measured {:.2f} of "
            "{:.2f}: "
            "off by {:+.1f} % of the step\n",
            workers, then, before.wait_ns * 1e-6, before.step_ns * 1e-6, predicted * 1e-6,
            after.wait_ns * 1e-6, after.step_ns * 1e-6, 100 * off);
      }
    }
  }
  return missed;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("runs with planted bottlenecks, and the profiler's findings");
  std::string folder = "/tmp", only;
  bool names = false;
  int runs = 1;
  app.add_option("--out", folder, "folder for the session files")->capture_default_str();
  app.add_option("--only", only, "the case of one finding");
  app.add_flag("--names-only", names, "skip predictions, which need an idle machine");
  app.add_option("--runs", runs, "of each prediction")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    int missed = check_names(folder, only);
    if (!names) missed += check_predictions(folder, runs);
    return missed == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "planted_bottlenecks: {}\n", error.what());
    return 1;
  }
}
