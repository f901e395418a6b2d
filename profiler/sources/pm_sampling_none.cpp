// For builds without CUPTI's headers, where a GPU's counters cannot be read.
#include "profiler/sources/pm_sampling.h"

namespace warpstep::profiler {

OpenedPmSampling open_pm_sampling(int) {
  return {
      nullptr,
      "The GPU's counters are not sampled: this program was built without CUPTI 13.0's headers; "
      "install cuda-cupti-dev-13-0 and build it again."};
}

}  // namespace warpstep::profiler
