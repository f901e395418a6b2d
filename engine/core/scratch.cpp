#include "engine/core/scratch.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

namespace warpstep {

void Scratch::Free::operator()(float* memory) const {
  std::free(memory);
}

std::span<float> Scratch::floats(std::size_t count) {
  if (count > count_) {
    constexpr std::size_t huge_page = std::size_t{2} << 20;
    const std::size_t bytes = count * sizeof(float);
    const bool is_large = bytes >= huge_page;
    const std::size_t unit = is_large ? huge_page : 64;
    const std::size_t rounded = (bytes + unit - 1) / unit * unit;
    count_ = 0;
    memory_.reset();  // first: both would be in memory at the same time
    memory_.reset(static_cast<float*>(std::aligned_alloc(unit, rounded)));
    if (!memory_) throw std::bad_alloc();
    if (is_large) ::madvise(memory_.get(), rounded, MADV_HUGEPAGE);  // may be refused
    count_ = count;
  }
  return {memory_.get(), count};
}

}  // namespace warpstep
