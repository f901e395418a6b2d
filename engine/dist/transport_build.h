// What a transport's module was built from, as backend_build.h of a backend's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "engine/core/module_build.h"
#include "engine/core/plugin.h"
#include "engine/dist/communicator.h"

namespace warpstep {

constexpr std::uint64_t transport_interface() {
  std::uint64_t mixed = 1;  // counts changes that show in no size, as of a virtual function
  for (const std::size_t size : {sizeof(Transport), sizeof(Transport::Message), sizeof(World)})
    mixed = mix_interface(mixed, size);
  return mixed;
}

// Opens the transport of this module, whose function warpstep_transport_build() names its build.
// Throws RankError when it does not load or is of another build.
std::unique_ptr<Transport> load_transport(const std::filesystem::path& path);

}  // namespace warpstep
