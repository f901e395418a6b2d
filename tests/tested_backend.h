// The backends that test programs run on: those of the product by name, and "cuda_emulated", the
// CUDA backend's own sources over tests/cuda_on_cpu.
#pragma once

#include <memory>
#include <string>

#include "engine/backend.h"

namespace warpstep::testing_support {

inline std::shared_ptr<Backend> open_tested_backend(const std::string& name,
                                                    const BackendOptions& options = {}) {
  if (name != "cuda_emulated") return open_backend(name, options);
  return load_backend(WARPSTEP_BINARY_DIR "/lib/libwarpstep_cuda_emulated.so", options);
}

}  // namespace warpstep::testing_support
