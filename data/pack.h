// Copies of data sets in few large files: as they are, made seekable, or decoded.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "data/dataset.h"

namespace warpstep::data {

enum class PackTo : std::uint8_t {
  tar,      // shards of encoded samples
  encoded,  // safetensors of encoded samples
  decoded   // safetensors of images, all of one size
};

struct PackOptions {
  PackTo to = PackTo::tar;
  // JPEG files that are baseline get restart markers (make_seekable), losslessly; progressive ones
  // stay as they are.
  bool seekable = true;
  std::uint64_t shard_bytes = std::uint64_t{256} << 20;                 // of tar
  int workers = 0;                                                      // 0: all cores
  std::function<void(std::uint64_t done, std::uint64_t all)> progress;  // may be empty
};

struct PackSummary {
  std::uint64_t samples = 0;
  std::uint64_t files = 0;       // tar or safetensors
  std::uint64_t bytes = 0;       // of these files
  std::uint64_t from_bytes = 0;  // of the samples as they were
  std::uint64_t seekable = 0;    // JPEG files that can be read in part now
  std::uint64_t kept = 0;        // JPEG files that cannot: progressive
};

// Writes the splits that `from` has to the folder `out`, which must not exist or be empty: aside,
// as .NAME.tmp-PID in the same folder, renamed when all is whole and on the disk. The same samples
// give the same bytes for any number of workers. Throws DataError that names the sample or the file
// and leaves nothing behind.
PackSummary pack(const std::string& from, const std::string& out, const PackOptions& options = {});

}  // namespace warpstep::data
