// How fast a run computes: the model's FLOP/s, and their share of the device's arithmetic peak.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "engine/graph/graph.h"
#include "engine/run/program.h"
#include "tools/warpstep/json.h"
#include "tools/warpstep/session.h"

namespace warpstep::tools {

// The FLOPs of a step's forward and backward calls, a multiply-add counted as two. Updates do not
// count, nor does what is computed again: attention's scores in its gradient, and what --recompute
// drops: `step` must be compiled without it. Masked scores of causal attention do not count either.
double model_flops(const Graph& step);

struct Peak {
  double flops_per_second = 0;  // 0: not known
  std::string source;           // "measured: AVX-512, 2 threads", "data sheet of NVIDIA H200, bf16"
};
// The arithmetic peak of the device in this precision. On a CPU it is measured, in about 25 ms,
// with the threads and CPUs of the run (engine/core/cpu_peak.h); of a GPU it is the data sheet's
// for matrix products without sparsity, if the product is one of those listed.
Peak arithmetic_peak(const Device& device, const std::string& precision);
// `name` as the CUDA backend describes its device: "NVIDIA H200 (sm_90, ...".
Peak data_sheet_peak(const std::string& name, const std::string& precision);

// The peaks of the data sheet of a device named as above; 0 where it is not listed.
struct Roofline {
  double flops_per_second = 0, bytes_per_second = 0;
  double seconds(const Cost& cost) const {
    return std::max(cost.flops / flops_per_second, cost.bytes / bytes_per_second);
  }
};
Roofline data_sheet_roofline(const std::string& device, const std::string& precision);

// "floor  75.2 ms: each call at the longer of ...", the least time of a step by the data sheet of
// this GPU, named as for data_sheet_peak(); empty for devices that are not listed. Where gradients
// accumulate it is the mean of the steps of an update.
std::string floor_line(const Program& step, const std::string& device,
                       const std::string& precision);

struct Throughput {
  double flops_per_step = 0;
  Peak peak;

  // The share of the peak at this time per step: model FLOPs utilisation (MFU), as in Chowdhery et
  // al., "PaLM: scaling language modeling with pathways" (2022), appendix B. 0: not known.
  double utilisation(double step_seconds) const;
  // "152 GFLOP/s (41 % of peak)"; without a known peak its first half; empty if there are no FLOPs.
  std::string text(double step_seconds) const;
};
// Why a share of the peak is above 1; empty if it is not.
std::string_view above_peak_reason(double share);
// {"model_flops_per_step", "model_tflops_per_second", and where the peak is known
// "peak_tflops_per_second", "peak_source", "mfu"}; empty if there are no FLOPs.
Json to_compute_json(const Throughput& throughput, double step_seconds);

// The roofline: the least time of a step, call by call the longer of its FLOPs at one peak and its
// bytes at the other, from measure_peaks(). Of an algorithm that needs fewer FLOPs than the model
// counts, they are its own. {"floor_ms", "share": of the step's time}; empty without peaks.
Json roofline_json(const Program& step, const Json& peaks, const std::string& precision,
                   double step_seconds);

}  // namespace warpstep::tools
