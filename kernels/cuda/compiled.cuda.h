// For which devices the kernels of this build are compiled.
#pragma once

namespace warpstep::cuda {

// The compute capability, as 90 for 9.0, of the code that the current device runs: of its PTX, if
// the driver compiles that for a later device. Throws DeviceError if there is no code for it.
int compiled_capability();

}  // namespace warpstep::cuda
