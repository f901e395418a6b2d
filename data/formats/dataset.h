// The interface of all data sets: numbered, labelled samples whose bytes are fetched. open()
// detects the format of a folder and opens it.
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
  virtual std::string path() const = 0;  // of the file or folder, for messages
  // [height, width, channels], channels 1 to 3, files of images 1 or 3; where samples differ in
  // size, of the first that can be read.
  virtual Shape image_shape() const = 0;
  virtual std::uint64_t size() const = 0;                     // samples, at least 1
  virtual std::int32_t label(std::uint64_t index) const = 0;  // in [0, classes().size())
  virtual const std::vector<std::string>& classes() const = 0;
  virtual std::string name(std::uint64_t index) const = 0;  // file (and record), for messages
  // Identifies the data set by names, sizes and labels; checkpoints compare it.
  virtual std::uint64_t fingerprint() const = 0;
  // Visits the files whose modification times show later changes; none where all bytes are read
  // when the set is opened.
  using FileVisitor = std::function<void(const std::string& path, std::int64_t modified_ns)>;
  virtual void each_file(const FileVisitor& /*visit*/) const {}
  // Files of the folder that are neither images nor labels.
  virtual std::vector<std::string> passed_over() const { return {}; }
  // The sample's bytes, valid until the next fetch() with this scratch. Throws DataError that names
  // the file, the fault and the fix.
  virtual Sample fetch(std::uint64_t index, Scratch& scratch) const = 0;
  // Asks the system to read the sample ahead; costs about a microsecond.
  virtual void will_need(std::uint64_t /*index*/) const {}
  // Throws DataError naming the file when one was replaced or truncated after it was opened; called
  // between epochs, for mapped sets.
  virtual void check_unchanged() const {}
  // The most bytes that fetch() copies into a scratch; 0 where it returns views.
  virtual std::uint64_t max_fetched_bytes() const { return 0; }
  // Memory of its tables and pixels, without mapped files.
  virtual std::uint64_t memory_bytes() const { return 0; }
  // All images, [size(), image_shape()...], if they are contiguous in memory or in a mapped file.
  virtual std::span<const std::uint8_t> all_pixels() const { return {}; }
  // How many samples a worker should claim at a time: about 20 us of work.
  virtual std::int64_t claim() const { return 1; }

  // fetch() for checks. What it throws that is no Error, in a set of a user's own, becomes one that
  // names the sample.
  Sample checked_fetch(std::uint64_t index, Scratch& scratch) const;
  // decoded_shape() of the sample; a format may read less for it than fetch() does. Throws
  // DataError like fetch().
  virtual Shape shape_of(std::uint64_t index, Scratch& scratch) const;

  // Fetches and decodes the whole sample, which must have image_shape(), into `pixels`
  // [image_shape()]. Throws DataError like fetch().
  void read(std::uint64_t index, Scratch& scratch, std::span<std::uint8_t> pixels) const;
};

struct FirstSample {
  Shape shape;  // decoded_shape()
  Encoding encoding{};
};
// What the first sample with a readable header is, among the first hundred: a broken one is
// reported when its turn comes, and may be left out then. Throws the first one's error if none
// is readable.
FirstSample first_readable(const Dataset& dataset);

// Throws DataError with the path for a shape that images cannot have: theirs is [height, width,
// channels], sides from 1 and 1 to 3 channels (engine/core/pixels.h). open(), Loader and
// MemoryDataset call it.
void check_image_shape(const Shape& shape, const std::string& path);

// A label is an index where samples are counted, and names the place that the loss writes to.
// Throws DataError for one that is no class; open() does so for every set, also one of a plugin's
// format.
void check_labels_of(const Dataset& dataset);

// Implemented besides Dataset by formats that may carry checksums.
class Checksums {
 public:
  virtual ~Checksums() = default;
  // CRC32C of the bytes that fetch() gives for the sample, computed when it was packed.
  virtual std::optional<std::uint32_t> stored_crc32c(std::uint64_t index) const = 0;
};

// For messages about images that differ in size: the options that bring all to one, ready to paste.
std::string cropping_options(const Shape& image);

struct OpenOptions {
  Io io = Io::mmap;                // for formats with many samples per file: .npy, safetensors, tar
  std::uint64_t memory_bytes = 0;  // limit for sets that are read into memory; 0: what is available
};

// Opens one split of the folder `spec` (docs/data.md has the layouts of all formats). Throws
// DataError that lists the formats it looked for and the files that are there.
std::unique_ptr<Dataset> open(const std::string& spec, Split split,
                              const OpenOptions& options = {});

// Whether `spec` has this split; throws DataError where open() would find no data set.
bool has_split(const std::string& spec, Split split);

}  // namespace warpstep::data
