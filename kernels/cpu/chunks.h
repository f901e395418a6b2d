// Loops over long arrays, divided among the team in pieces of a fixed size: the same bits from any
// team.
#pragma once

#include <algorithm>
#include <cstdint>

namespace warpstep::cpu {

constexpr std::int64_t chunk_elements = 16384;  // elements of a task: 64 KiB an operand

constexpr std::int64_t chunks(std::int64_t count) {
  return (count + chunk_elements - 1) / chunk_elements;
}

// Calls run(begin, end) for the chunks of [0, count), on the team where there are more than four.
template <class Run>
void for_chunks(std::int64_t count, Run run) {
#pragma omp parallel for schedule(static) if (count > 4 * chunk_elements)
  for (std::int64_t begin = 0; begin < count; begin += chunk_elements)
    run(begin, std::min(count, begin + chunk_elements));
}

}  // namespace warpstep::cpu
