// Memory for the code that oneDNN generates.
#pragma once

namespace warpstep::cpu {

// To be called before a primitive is made: throws DeviceError when little memory is left. Where it
// is refused memory for its code, oneDNN 2.6 ends by SIGSEGV.
void require_room();

}  // namespace warpstep::cpu
