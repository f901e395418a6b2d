// What a backend's module was built from: its function warpstep_backend_build(), of
// kernels/build.cpp, returns a ModuleBuild with this interface.
#pragma once

#include <cstdint>
#include <variant>

#include "engine/core/plugin.h"
#include "engine/run/backend.h"

namespace warpstep {

// Differs between builds whose headers describe differently what an engine and its backends
// exchange. Mixed are the sizes of that and the names of all ops in their order.
constexpr std::uint64_t backend_interface() {
  std::uint64_t mixed = 1;  // counts changes that show in neither, as of a virtual function
#define WARPSTEP_MIX_NAME(Op) \
  for (const char letter : #Op) mixed = mix_interface(mixed, static_cast<unsigned char>(letter));
  WARPSTEP_EACH_OP(WARPSTEP_MIX_NAME)
#undef WARPSTEP_MIX_NAME
  for (const std::size_t size :
       {sizeof(Backend), sizeof(BackendOptions), sizeof(Buffers), sizeof(Communicator),
        sizeof(Exchange), sizeof(Graph), sizeof(Node), sizeof(Value), sizeof(AnyOp),
        std::variant_size_v<OpVariant>, sizeof(Parameter)})
    mixed = mix_interface(mixed, size);
  return mixed;
}

}  // namespace warpstep
