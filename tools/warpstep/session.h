// What a run computes with, made from its options: backend and programs.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/run/program.h"
#include "engine/run/store.h"
#include "tools/warpstep/run_options.h"
#include "tools/warpstep/source.h"

namespace CLI {

// Weights that a run or an evaluation starts from: --weights FILE.

class App;
}  // namespace CLI

namespace warpstep::tools {

struct StartWeights {
  std::string file;  // empty: none
  bool allow_missing = false;
};

void declare_start_weights(CLI::App& app, StartWeights& weights);

// UsageError for --allow-missing without --weights, and for --weights of a run that goes on.
void check_start_weights(const StartWeights& weights, bool resumes);

// Loads them, if there are any, and tells on stderr what was loaded. What config.json keeps of it;
// null without weights.
nlohmann::ordered_json load_start_weights(const StartWeights& weights, Store& store);

struct Device {
  std::shared_ptr<Backend> backend;
  std::string why;  // for `auto`: why not a better one; else empty
};
// Opens --device; `auto` takes CUDA where it works, else the CPU.
Device open_device(const RunOptions& options);

// The training step; the parameters are initialised from --seed.
std::unique_ptr<Program> training_program(const RunOptions& options, const Source& source,
                                          std::shared_ptr<Backend> backend,
                                          const Schedule& schedule);
// The forward half; shares `store` if it is given.
std::unique_ptr<Program> evaluation_program(const RunOptions& options, const Source& source,
                                            std::shared_ptr<Backend> backend,
                                            std::shared_ptr<Store> store);

// A training step with its evaluation.
struct Programs {
  std::unique_ptr<Program> step, evaluation;
};
// Both, if what they and the loaders take is free: `free` bytes, measured before anything was made
// (see fitting.h). Else throws DeviceError: by how much it is too much, what is the peak, and the
// largest --batch that fits.
Programs fitting_programs(const RunOptions& options, const Source& training, const Source& test,
                          const std::shared_ptr<Backend>& backend, const Schedule& schedule,
                          std::uint64_t free);

// What --recompute gives and costs a training program, see recomputing.h; empty without it.
std::string recompute_line(const RunOptions& options, const Source& source, const Program& program);

}  // namespace warpstep::tools
