// Whether the files of a set have changed since a run began, in ways that fingerprint() does not
// see: a file may be replaced by one of the same name, size and label.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/formats/dataset.h"

namespace warpstep::data {

struct Content {
  // Hash of the bytes of samples: of all samples if the set is small and stored as pixels, else of
  // a few hundred, evenly spaced. A copy of a set has the same.
  std::uint64_t sample = 0;
  // Hash of the files' names and times, which may differ in a copy; 0 where `sample` covers all
  // samples.
  std::uint64_t times = 0;
  std::int64_t newest_ns = 0;  // the latest of these times
};

// Reads the samples that are hashed; of an unreadable one it hashes the index.
Content content_of(const Dataset& set);

// The files that were modified after `ns`, in the set's order.
std::vector<std::string> written_after(const Dataset& set, std::int64_t ns);

}  // namespace warpstep::data
