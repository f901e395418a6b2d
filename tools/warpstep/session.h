// What a run computes with, made from its options: backend and programs.
#pragma once

#include <memory>

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

}  // namespace warpstep::tools
