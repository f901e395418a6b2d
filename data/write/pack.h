// `warpstep data pack`: copies a data set into few large files, as it is, with seekable JPEG files,
// or decoded.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/formats/dataset.h"

namespace warpstep::data {

enum class PackTo : std::uint8_t {
  tar,      // shards of encoded samples
  encoded,  // safetensors of encoded samples
  decoded   // safetensors of decoded images, all of one size
};

struct PackOptions {
  PackTo to = PackTo::tar;
  // Baseline JPEG files get restart markers, losslessly (make_seekable); progressive ones stay as
  // they are.
  bool seekable = true;
  std::uint64_t shard_bytes = std::uint64_t{256} << 20;                 // of tar
  int workers = 0;                                                      // 0: all cores
  std::function<void(std::uint64_t done, std::uint64_t all)> progress;  // may be empty
};

struct PackSummary {
  std::uint64_t samples = 0;
  std::uint64_t files = 0;               // tar or safetensors
  std::uint64_t bytes = 0;               // of these files
  std::uint64_t from_bytes = 0;          // of the original samples
  std::uint64_t seekable = 0;            // JPEG files that can now be read in part
  std::uint64_t kept = 0;                // JPEG files that cannot: progressive
  std::vector<std::string> passed_over;  // files that are no samples: Dataset::passed_over()
};

// Writes the splits of `from` to the folder `out`, which must not exist or be empty. Writes to
// .NAME.tmp-PID next to it, which is renamed when everything is complete and synced to disk. The
// same samples give the same bytes for any number of workers. Throws DataError that names the
// sample or the file, and removes its files then.
PackSummary pack(const std::string& from, const std::string& out, const PackOptions& options = {});

}  // namespace warpstep::data
