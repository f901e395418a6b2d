// A training run that is ready to start, and what `train` prints about it.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/warpstep/json.h"
#include "tools/warpstep/options.h"
#include "tools/warpstep/progress.h"
#include "tools/warpstep/resume.h"
#include "tools/warpstep/session.h"
#include "tools/warpstep/source.h"
#include "tools/warpstep/throughput.h"

namespace warpstep::tools {

// Data opened, programs bound, parameters initialised.
struct Job {
  RunOptions options;
  Device device;
  Json data;                      // of config.json
  bool measured = false;          // --mean and --std were, on the data
  std::uint64_t epoch_steps = 0;  // of an epoch, which --limit-batches may shorten
  std::uint64_t run_steps = 0;
  Throughput throughput;
  std::unique_ptr<Program> step, evaluation;
  Source training, test;  // end first: their threads copy for the programs' steps

  Items items() const { return training.is_text() ? Items::tokens : Items::images; }
};

Job prepare(RunOptions options, const std::optional<Resumed>& resumed, bool allow_changed_data);

Throughput throughput_of(const Job& job);

// What is trained, on what and how, and what may surprise in it. `useless`: see useless_options().
void announce(const Job& job, const std::vector<std::string>& useless);

}  // namespace warpstep::tools
