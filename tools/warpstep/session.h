// Everything that a run needs, made from its options: backend, data, programs.
#pragma once

#include <memory>

#include "data/dataset.h"
#include "data/loader.h"
#include "engine/program.h"
#include "models/zoo.h"
#include "tools/warpstep/run_options.h"

namespace warpstep::tools {

struct Device {
  std::shared_ptr<Backend> backend;
  std::string why;  // for `auto`: why not a better one; else empty
};
// Opens --device; `auto` takes CUDA where it works, else the CPU.
Device open_device(const RunOptions& options);

// A data set's split with its loader.
struct Source {
  std::shared_ptr<const data::Dataset> dataset;
  std::unique_ptr<data::SlotMemory> slots;  // of a device; outlives the loader
  std::unique_ptr<data::Loader> loader;
};
// The training split shuffles and drops the tail; the test split does neither and pads it.
Source open_source(const RunOptions& options, data::Split split,
                   const std::shared_ptr<Backend>& backend);

// Mean and std of the channels: --mean and --std, or measured.
void resolve_normalization(RunOptions& options, const data::Dataset& training);

models::BuildOptions build_options(const RunOptions& options, const data::Dataset& dataset);

// The training step; the parameters are initialised from --seed.
std::unique_ptr<Program> training_program(const RunOptions& options, const data::Dataset& dataset,
                                          std::shared_ptr<Backend> backend,
                                          const Schedule& schedule);
// The forward half; shares `store` if it is given.
std::unique_ptr<Program> evaluation_program(const RunOptions& options, const data::Dataset& dataset,
                                            std::shared_ptr<Backend> backend,
                                            std::shared_ptr<Store> store);

}  // namespace warpstep::tools
