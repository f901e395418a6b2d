// A labelled set of images, and open(), which finds out what a folder holds.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/types.h"

namespace warpstep::data {

enum class Split : std::uint8_t { train, test };

std::string_view name(Split split);  // "train", "test"

// What one reader needs again and again: owned by a worker, never shared between threads.
struct Scratch {
  std::vector<std::uint8_t> bytes;  // the encoded sample
  std::uint64_t bytes_read = 0;     // sums over all read() calls with this scratch
  std::uint64_t read_ns = 0;        // getting the encoded bytes
  std::uint64_t decode_ns = 0;      // turning them into pixels
};

// Immutable: all members are const and may be called from many threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual std::string kind() const = 0;    // "PNG folder", "IDX", "CIFAR-10 binary"
  virtual std::string path() const = 0;    // what was opened, for messages
  virtual Shape image_shape() const = 0;   // [height, width, channels], channels 1 or 3
  virtual std::uint64_t size() const = 0;  // samples, at least 1
  virtual std::int32_t label(std::uint64_t index) const = 0;  // in [0, classes().size())
  virtual const std::vector<std::string>& classes() const = 0;
  virtual std::string name(std::uint64_t index) const = 0;  // file (and record), for messages
  // Of names, sizes and labels: a checkpoint that was made with another set is told by it.
  virtual std::uint64_t fingerprint() const = 0;
  // Decodes sample `index` as uint8 into pixels, image_shape().count() of them. Throws DataError
  // that names the file, what is wrong with it and what to do.
  virtual void read(std::uint64_t index, Scratch& scratch,
                    std::span<std::uint8_t> pixels) const = 0;
  // Samples that take about 20 us to read: what a worker should claim at a time.
  virtual std::int64_t claim() const { return 1; }
};

// Opens one split of the folder `spec`: train/ and test/ folders of PNG files, IDX files, or
// CIFAR-10 binary batches (docs/data.md has the layouts). Throws DataError that lists what was
// looked for and what is there.
std::unique_ptr<Dataset> open(const std::string& spec, Split split);

// Whether `spec` has this split; throws DataError where open() would find no data set at all.
bool has_split(const std::string& spec, Split split);

}  // namespace warpstep::data
