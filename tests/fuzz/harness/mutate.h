// Damage to files, reproducible from seed and round.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/fuzz/harness/target.h"

namespace warpstep::fuzz {

// A file of the corpus (not empty) after 1 to 8 edits: flips, other bytes, interesting integers of
// 1 to 8 bytes in either byte order, cuts, insertions, ranges copied or repeated, and splices with
// another file of the corpus. At most 64 KiB longer than the longest.
Bytes mutated(const std::vector<Bytes>& corpus, std::uint64_t seed, std::uint32_t round);

}  // namespace warpstep::fuzz
