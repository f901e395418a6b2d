// Where packed samples go; used by pack.cpp alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/dataset.h"
#include "data/pack.h"

namespace warpstep::data {

struct Packed {
  std::vector<std::uint8_t> bytes;
  Encoding encoding = Encoding::pixels;
  std::int32_t label = 0;
  std::uint32_t crc32c = 0;
  std::uint64_t from_bytes = 0;
  bool seekable = false;
};

class PackSink {
 public:
  virtual ~PackSink() = default;
  virtual void add(std::uint64_t index, const Packed& sample) = 0;  // indices rise by 1
  virtual std::pair<std::uint64_t, std::uint64_t> finish() = 0;     // files and their bytes
};

// Writes STEM-000000.tar ... or STEM.safetensors.
std::unique_ptr<PackSink> make_pack_sink(const Dataset& set, const std::string& stem, PackTo to,
                                         std::uint64_t shard_bytes);

// classes.txt. Throws DataError for a name that has a line's end in it.
std::string class_lines(const Dataset& set);

}  // namespace warpstep::data
