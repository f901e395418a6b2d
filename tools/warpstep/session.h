// The backend, weights and programs of a run, created from its options.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/run/program.h"
#include "engine/run/store.h"
#include "tools/warpstep/json.h"
#include "tools/warpstep/options.h"
#include "tools/warpstep/pinning.h"
#include "tools/warpstep/source.h"

namespace warpstep::tools {

// Weights that a run or an evaluation starts from: --weights FILE.
struct StartWeights {
  std::string file;  // empty: none
  bool allow_missing = false;
};

void declare_start_weights(const Parser& parser, StartWeights& weights, const char* group = "");

// UsageError for --allow-missing without --weights, and for --weights with --resume.
void check_start_weights(const StartWeights& weights, bool resumes);

// Loads the file, if one is given, into `model`'s store and prints what was loaded to stderr.
// Returns the record for config.json; null without weights.
Json load_start_weights(const StartWeights& weights, const std::string& model, Store& store);

struct Device {
  std::shared_ptr<Backend> backend;
  std::string why;  // for `auto`: why not a better device; otherwise empty
  CpuSet allowed;   // the process's CPUs before it pinned threads
  Pinning pinning;
  int threads = 0;  // of the CPU backend's team; 0 on other devices
};
// Opens --device; `auto` uses CUDA if it works, otherwise the CPU. Decides by --pin-cpus where the
// threads run that start from now on.
Device open_device(const RunOptions& options);

// Off the CPU the thread that launches steps is the team; the CPU backend places its own. Call it
// when all programs exist: threads of a driver's own would inherit its CPU.
void pin_launching_thread(const Device& device);

// The training step; the parameters are initialised from --seed.
std::unique_ptr<Program> training_program(const RunOptions& options, const Source& source,
                                          std::shared_ptr<Backend> backend,
                                          const Schedule& schedule);
// The forward half; shares `store` if given.
std::unique_ptr<Program> evaluation_program(const RunOptions& options, const Source& source,
                                            std::shared_ptr<Backend> backend,
                                            std::shared_ptr<Store> store);

// The graph of the same training step without --recompute: what the model itself computes.
Graph graph_without_recompute(const RunOptions& options, const Source& source,
                              const Backend& backend);

// A training step with its evaluation.
struct Programs {
  std::unique_ptr<Program> step, evaluation;
};
// Both, if they and the loaders fit into `free` bytes, measured before anything was allocated (see
// fitting.h). Otherwise throws DeviceError with the missing amount, the peak, and the largest
// --batch that fits.
Programs fitting_programs(const RunOptions& options, const Source& training, const Source& test,
                          const std::shared_ptr<Backend>& backend, const Schedule& schedule,
                          std::uint64_t free);

// The saving and the price of --recompute: "recompute layer1: arena 812.3 -> 640.1 MiB, 4.2 % more
// FLOPs". `without`: the graph of the same step compiled without it.
std::string recompute_line(const std::vector<std::string>& scopes, Graph without,
                           const Program& program);
// The same for a run's training program; empty without --recompute.
std::string recompute_line(const RunOptions& options, const Source& source, const Program& program);

// Where calls of attention run without tensor cores: how many, why, what that costs and what to do;
// empty where none does.
std::string attention_note(const Program& program);

}  // namespace warpstep::tools
