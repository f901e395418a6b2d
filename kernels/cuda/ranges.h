// Spans that a profiler attached from outside (nsys, ncu) shows by the model's own words: the NVTX
// domain "warpstep".
#pragma once

namespace warpstep::cuda::ranges {

// From now on every record::Span is an NVTX range too, if such a profiler is attached. Once is
// enough.
void follow();

}  // namespace warpstep::cuda::ranges
