// Where device and host time went: calls of the program, layers, ops, kernels, host functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/analysis/scope.h"
#include "profiler/session/session.h"

namespace warpstep::profiler {

// The machine's ceilings for the roofline.
struct Peaks {
  double flops_per_second = 0;  // in the program's dtype; 0: not known
  double bytes_per_second = 0;
  double flops_now = 0;  // what was reached when the run ended, if less; 0: the same, or not known
};

// A call of the program; one without a name collects device time that belongs to none.
struct CallRow {
  int call = -1;
  std::string title, layer, op, phase;  // phase: forward, loss, data_grad, weight_grad, update
  std::string implementation;
  std::string source;          // line of the model: "models/mlp.cpp:6"; may be empty
  std::string inputs;          // "f32 128x32x32x3, f32 8x3x3x3"
  std::uint64_t count = 0;     // runs in the windows
  std::uint64_t total_ns = 0;  // of them: kernels' time, on the host the call's own
  // Median per step; of a call that about half of the steps or fewer run, its median in those
  // times their share.
  double ns = 0;
  double median_ns = 0, p95_ns = 0;  // of the steps that run it
  std::uint64_t host_ns = 0;         // enqueuing
  double flops = 0, bytes = 0;       // per run
  double executed_flops = 0;         // less than `flops` where the implementation needs fewer
  // Of the steps' time, of 1. A moment in which several kernels run is divided among them, so that
  // the shares add up to at most 1; their times, which each has in full, may not.
  double share = 0;
  double flops_per_second = 0, bytes_per_second = 0;  // in `median_ns`
  double of_peak = 0;  // of 1: of what its intensity allows; 0: not known
  std::string bound;   // "compute", "memory" or "" when not known
  // "yes"; of a convolution or product "no" or "no: channels are not multiples of 8"; "" of other
  // ops, on the host, and where no kernel was recorded.
  std::string tensor_cores;
};

// A layer: its calls by phase.
struct LayerRow {
  std::string layer;
  std::uint64_t calls = 0;                                                     // per step
  double forward_ns = 0, data_grad_ns = 0, weight_grad_ns = 0, update_ns = 0;  // per step, mean
  double ns = 0;  // their sum and what has no phase; over all layers the device's time
  double flops = 0, bytes = 0;  // per step
  double share = 0;
  double flops_per_second = 0, bytes_per_second = 0, of_peak = 0;
};

struct OpRow {  // calls by what they compute; figures are means per step
  std::string op, phase;
  std::uint64_t count = 0;
  double ns = 0, share = 0, flops = 0, bytes = 0, flops_per_second = 0;
};

struct KernelRow {  // of launches alike; on the host the library's implementations
  std::string kernel;
  std::string launch;  // "grid 66x1x1 block 256x1x1, 64 registers, 0 B"
  std::uint64_t count = 0, total_ns = 0, min_ns = 0, max_ns = 0;
  double mean_ns = 0, share = 0;  // of all kernels
  double blocks_per_multiprocessor = 0, occupancy = 0;
  bool tensor_cores = false;
};

struct HostRow {  // functions of the host: host_api spans, What::api, What::sync, ranges
  std::string function, kind;
  std::uint64_t count = 0, total_ns = 0, self_ns = 0, max_ns = 0;
  double share = 0;  // of the steps' time on the trainer's thread, by self time
};

struct Work {
  Peaks peaks;
  std::vector<CallRow> calls;    // in the order of the program
  std::vector<LayerRow> layers;  // in the order of the program
  std::vector<OpRow> ops;        // longest first, as the following
  std::vector<KernelRow> kernels;
  std::vector<HostRow> host;
  double attributed = 0;      // of 1: of the device's kernel time
  bool has_overlaps = false;  // work that ran at once is 1 % of the calls' times or more
  std::size_t steps = 0;      // recorded ones, which the totals are over
};
Work find_work(const View& view);

}  // namespace warpstep::profiler
