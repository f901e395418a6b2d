// Spans as NVTX ranges of the domain "warpstep", so that nsys and ncu show the model's own names.
#pragma once

namespace warpstep::cuda::ranges {

// From now on every record::Span is also an NVTX range if such a profiler is attached. Further
// calls have no effect.
void follow();

}  // namespace warpstep::cuda::ranges
