// What a run computes with, made from its options: backend and programs.
#pragma once

#include <memory>
#include <string>

#include "engine/program.h"
#include "tools/warpstep/run_options.h"
#include "tools/warpstep/source.h"

namespace warpstep::tools {

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
