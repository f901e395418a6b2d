#include "kernels/cpu/room.h"

#include <sys/mman.h>

#include "engine/core/error.h"

namespace warpstep::cpu {

void require_room() {
  constexpr std::size_t bytes = std::size_t{128} << 20;  // far more than one takes
  void* room = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED)
    fail<DeviceError>(
        "cpu: no memory is left for oneDNN's code; use a smaller --batch or fewer --workers, or "
        "raise the limit of memory (ulimit -v)");
  munmap(room, bytes);
}

}  // namespace warpstep::cpu
