// The backend that a test program runs on: its own, or the one that the environment variable
// WARPSTEP_TESTED_BACKEND names. Names are the product's, and "cuda_emulated", the CUDA backend's
// own sources over tests/cuda_on_cpu; a name with a slash is a module's path. A program's own is
// all that differs from the same tests on another backend: tested_backend.cpp has it.
#pragma once

#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/core/cpu_isa.h"
#include "engine/core/error.h"
#include "engine/passes/precision.h"
#include "engine/run/backend.h"
#include "tests/build_tree.h"

namespace warpstep::testing_support {

// DeviceError: there is no device, and the test is to be skipped. std::runtime_error, where the
// process that started the test has seen the device (WARPSTEP_DEVICE_SEEN): it is lost, and the
// test fails.
inline std::shared_ptr<Backend> open_tested_backend(const std::string& name,
                                                    const BackendOptions& options = {}) {
  const bool is_path = name.find('/') != name.npos;
  try {
    return name == "cuda_emulated"
               ? load_backend(binary_dir() + "/lib/libwarpstep_cuda_emulated.so", options)
           : is_path ? load_backend(name, options)
                     : open_backend(name, options);
  } catch (const DeviceError& error) {
    if (std::getenv("WARPSTEP_DEVICE_SEEN") == nullptr) throw;
    throw std::runtime_error(std::string("the device was seen before: ") + error.what());
  }
}

// Defined in the programs that test one backend (warpstep_test(... BACKEND ...)).
std::string tested_backend();

inline bool tests_cuda() {
  return tested_backend() != "ref" && tested_backend() != "cpu";
}

// The precisions of 16 bits that it computes in; on the reference they would test nothing.
inline std::vector<Precision> tested_16_bits() {
  if (tests_cuda()) return {Precision::bf16, Precision::fp16};
  if (tested_backend() == "cpu" && bf16_isa() != Bf16Isa::none) return {Precision::bf16};
  return {};
}

// The reason why this device cannot compute in that precision; empty if it can. Tensor cores
// support bf16 and tf32 since Ampere.
inline std::string why_not(const Backend& backend, Precision precision) {
  const bool wants_ampere = precision == Precision::bf16 || precision == Precision::tf32;
  if (!wants_ampere || backend.describe().find("(sm_75") == std::string::npos) return {};
  return std::string(name(precision)) + " needs a device of compute capability 8.0 or later";
}

}  // namespace warpstep::testing_support
