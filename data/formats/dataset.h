// A labelled set of images, and open(), which finds out what a folder holds.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/decode/decode.h"
#include "data/decode/image.h"
#include "data/io/file.h"

namespace warpstep::data {

enum class Split : std::uint8_t { train, test };

std::string_view name(Split split);  // "train", "test"

// Immutable: all members are const and may be called from many threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual std::string kind() const = 0;  // "PNG folder", "IDX", "CIFAR-10 binary"
  virtual std::string path() const = 0;  // what was opened, for messages
  // [height, width, channels], channels 1 or 3; of the first sample where they differ in size.
  virtual Shape image_shape() const = 0;
  virtual std::uint64_t size() const = 0;                     // samples, at least 1
  virtual std::int32_t label(std::uint64_t index) const = 0;  // in [0, classes().size())
  virtual const std::vector<std::string>& classes() const = 0;
  virtual std::string name(std::uint64_t index) const = 0;  // file (and record), for messages
  // Of names, sizes and labels: a checkpoint that was made with another set is told by it.
  virtual std::uint64_t fingerprint() const = 0;
  // Visits the files whose times tell whether they were written to since: none where all bytes are
  // read when the set is opened.
  using FileVisitor = std::function<void(const std::string& path, std::int64_t modified_ns)>;
  virtual void each_file(const FileVisitor& /*visit*/) const {}
  // The sample's bytes, valid until the next fetch() with this scratch. Throws DataError that names
  // the file, what is wrong with it and what to do.
  virtual Sample fetch(std::uint64_t index, Scratch& scratch) const = 0;
  // Tells the system that the sample will be fetched soon; costs about a microsecond.
  virtual void will_need(std::uint64_t /*index*/) const {}
  // Throws DataError naming the file when one was exchanged or cut since it was opened: called
  // between epochs, for sets that are mapped.
  virtual void check_unchanged() const {}
  // Bound on the bytes that fetch() puts into a scratch; 0 where it gives views.
  virtual std::uint64_t max_fetched_bytes() const { return 0; }
  // What it keeps in memory: tables and pixels, mapped files not counted.
  virtual std::uint64_t memory_bytes() const { return 0; }
  // All images side by side, [size(), image_shape()...], where they are so in memory or mapped.
  virtual std::span<const std::uint8_t> all_pixels() const { return {}; }
  // Samples that take about 20 us to read: what a worker should claim at a time.
  virtual std::int64_t claim() const { return 1; }

  // Fetches and decodes all of sample `index`, which must be of image_shape(), into pixels,
  // image_shape().count() of them. Throws DataError like fetch().
  void read(std::uint64_t index, Scratch& scratch, std::span<std::uint8_t> pixels) const;
};

// Implemented besides Dataset by formats that may carry checksums.
class Checksums {
 public:
  virtual ~Checksums() = default;
  // CRC32C of the bytes that fetch() gives for the sample, computed when it was packed.
  virtual std::optional<std::uint32_t> stored_crc32c(std::uint64_t index) const = 0;
};

struct OpenOptions {
  Io io = Io::mmap;  // of formats that hold many samples a file: .npy, safetensors, tar
  std::uint64_t memory_bytes = 0;  // most that a set that is read whole may take; 0: what there is
};

// Opens one split of the folder `spec` (docs/data.md has the layouts of all formats). Throws
// DataError that lists what was looked for and what is there.
std::unique_ptr<Dataset> open(const std::string& spec, Split split,
                              const OpenOptions& options = {});

// Whether `spec` has this split; throws DataError where open() would find no data set at all.
bool has_split(const std::string& spec, Split split);

}  // namespace warpstep::data
