// A library with the functions of cuDNN that the backend calls. It offers two engines for any graph
// and computes nothing; a test decides plans of which way run.
#pragma once

namespace warpstep::testing_support {

struct StandInCudnn {
  bool runs_for_properties = true, runs_for_handles = true;
  bool makes_handles = true;         // else "not initialized", as where the device has no memory
  int asked = 0;                     // the heuristics, for engines
  bool last_was_for_handle = false;  // of the plans that ran
};
StandInCudnn& stand_in_cudnn();

}  // namespace warpstep::testing_support
