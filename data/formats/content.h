// Whether the files of a set are still those that a run began with, beyond what fingerprint() sees:
// a file may be exchanged for one of the same name, size and label.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/formats/dataset.h"

namespace warpstep::data {

struct Content {
  // Of the bytes of samples: of all in a set that lies in memory or is small, else of a few hundred
  // that are spread evenly. A copy of a set has the same.
  std::uint64_t sample = 0;
  // Of the names and times of the files, which a copy may have others of; 0 where all samples count
  // above.
  std::uint64_t times = 0;
  std::int64_t newest_ns = 0;  // of these times
};

// Reads the samples that count; of one that cannot be read, that it cannot.
Content content_of(const Dataset& set);

// The files whose time is after `ns`, in the set's order.
std::vector<std::string> written_after(const Dataset& set, std::int64_t ns);

}  // namespace warpstep::data
