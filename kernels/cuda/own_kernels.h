// Kernels of our own beside a library's for the same op. Where one is the faster was found on one
// kind of device; with --autotune it is measured.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "kernels/cuda/autotune.h"
#include "kernels/cuda/plan_cache.h"
#include "kernels/kernel.h"

namespace warpstep::cuda {

class OwnKernels {
 public:
  // `versions` of these kernels and of the libraries beside which they are measured; a choice of
  // others is not used.
  OwnKernels(const Settings& settings, std::string_view versions);

  // `own`, or with --autotune the faster of it and the library's kernel: measured once for each op
  // with its shapes, and kept in the plan cache. `own` where the library has no kernel or there is
  // no memory to measure them.
  std::unique_ptr<Kernel> or_faster(std::unique_ptr<Kernel> own, const warpstep::Operands& operands,
                                    const std::function<std::unique_ptr<Kernel>()>& library);

  // With `on`, or_faster() measures nothing; initially off.
  void only_plan(bool on) { only_plans_ = on; }

 private:
  bool measures_, only_plans_ = false;
  PlanCache cache_;
  std::optional<Stopwatch> stopwatch_;
};

}  // namespace warpstep::cuda
