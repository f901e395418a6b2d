// The settings of the CUDA backend: which device, and how plans are chosen for it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace warpstep::cuda {

struct Settings {
  // The device: its ordinal, or, to plan without one, the name of hand-written properties (one of
  // assumed_devices()).
  int ordinal = 0;
  std::string assumed;
  std::string device_name;  // "NVIDIA H200": with the libraries' versions, the key of caches
  int multiprocessors = 0;
  int compute_capability = 0;  // 90 for 9.0
  int kernel_capability = 0;   // that our kernels may use: of an earlier one, if compiled for that

  bool tf32 = false;            // fp32 products on tensor cores, inputs rounded to tf32
  bool exact_math = false;      // no Winograd or FFT
  bool deterministic = false;   // only plans whose results are bit-identical in every run
  bool autotune = false;        // measure plans instead of trusting heuristics
  bool plan_by_handle = false;  // cuDNN's plans for a handle instead of the device's properties
  std::size_t workspace_cap = std::size_t{256} << 20;  // bytes per call
  std::filesystem::path cache;  // a folder for plans and choices; empty: none is kept

  bool has_device() const { return assumed.empty(); }
};

}  // namespace warpstep::cuda
