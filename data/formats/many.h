// Sets that store many samples per file, for the formats built on them (.npy, safetensors, tar):
// MappedImages has decoded images of one size, PackedSamples has encoded ones. A sample is a view
// of the file. Also the labels and class names that these formats share.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/formats/dataset.h"
#include "data/io/mapped_file.h"
#include "engine/files/safetensors.h"

namespace warpstep::data {

// Converts little-endian integers of `type` to labels. Throws DataError naming `where` for floats
// and bools, and also the sample for a label outside [0, 65536).
std::vector<std::int32_t> read_labels(StoredType type, std::span<const std::uint8_t> bytes,
                                      const std::string& where);

// The names in folder/classes.txt, one per line, class 0 first; empty when there is no such file.
// Throws DataError for an empty line, a repeated name and more than 65536 names.
std::vector<std::string> read_class_names(const std::string& folder);

// "0", "1", ... up to the highest label.
std::vector<std::string> numbered_classes(std::span<const std::int32_t> labels);

// Throws DataError naming `where` and the sample when a label is not below `classes`.
void check_labels(std::span<const std::int32_t> labels, std::size_t classes,
                  const std::string& where);

struct MappedParts {
  std::string kind;
  std::unique_ptr<MappedFile> file;
  std::uint64_t offset = 0;              // of the first image in the file
  Shape shape;                           // [height, width, channels]
  std::vector<std::int32_t> labels;      // [samples], in [0, classes)
  std::vector<std::string> classes;      //
  std::vector<std::uint32_t> checksums;  // [samples] or empty: CRC32C of each image's bytes
};

// Decoded images of one size, stored one after the other in one file.
class MappedImages : public Dataset, public Checksums {
 public:
  // Throws DataError when there are no images or the file is too short for them.
  explicit MappedImages(MappedParts parts);

  std::string kind() const override { return parts_.kind; }
  std::string path() const override { return parts_.file->path(); }
  Shape image_shape() const override { return parts_.shape; }
  std::uint64_t size() const override { return parts_.labels.size(); }
  std::int32_t label(std::uint64_t index) const override { return parts_.labels[index]; }
  const std::vector<std::string>& classes() const override { return parts_.classes; }
  std::string name(std::uint64_t index) const override;
  std::uint64_t fingerprint() const override { return fingerprint_; }
  void each_file(const FileVisitor& visit) const override {
    visit(path(), parts_.file->modified_ns());
  }
  Sample fetch(std::uint64_t index, Scratch& scratch) const override;
  void will_need(std::uint64_t index) const override;
  void check_unchanged() const override { parts_.file->check_unchanged(); }
  std::uint64_t max_fetched_bytes() const override;
  std::uint64_t memory_bytes() const override {
    return 5 * parts_.labels.size() + 4 * parts_.checksums.size();
  }
  std::span<const std::uint8_t> all_pixels() const override;
  std::int64_t claim() const override { return image_bytes_ <= 4096 ? 32 : 4; }
  std::optional<std::uint32_t> stored_crc32c(std::uint64_t index) const override;

 private:
  MappedParts parts_;
  Readahead readahead_;
  std::uint64_t image_bytes_ = 0;
  std::uint64_t fingerprint_ = 0;
};

// The shape of stored images. Throws DataError naming `where` for sides outside 1 to 16384 and
// channels other than 1 and 3.
Shape image_shape_of(std::uint64_t height, std::uint64_t width, std::uint64_t channels,
                     const std::string& where);

struct PackedParts {
  std::string kind;
  std::string path;
  std::vector<std::unique_ptr<MappedFile>> files;
  std::vector<std::uint64_t> firsts;     // [files]: index of each file's first sample, ascending
  std::vector<std::uint64_t> offsets;    // [samples]: in its file
  std::vector<std::uint32_t> lengths;    // [samples]: bytes
  std::vector<std::int32_t> labels;      // [samples], in [0, classes)
  std::vector<std::string> classes;      //
  std::vector<std::uint32_t> checksums;  // [samples] or empty: CRC32C of each sample's bytes
  bool jpeg = false;                     // any sample is JPEG
  std::int64_t channels = 0;  // of images; 0: 3 with JPEG samples, else those of the first
};

// Encoded samples in one or more files. Needs 17 bytes per sample, 21 with checksums.
class PackedSamples : public Dataset, public Checksums {
 public:
  // Throws DataError when there are no samples, when no header of the first hundred can be read,
  // and for samples outside of their file.
  explicit PackedSamples(PackedParts parts);

  std::string kind() const override { return parts_.kind; }
  std::string path() const override { return parts_.path; }
  Shape image_shape() const override { return shape_; }
  std::uint64_t size() const override { return parts_.labels.size(); }
  std::int32_t label(std::uint64_t index) const override { return parts_.labels[index]; }
  const std::vector<std::string>& classes() const override { return parts_.classes; }
  std::string name(std::uint64_t index) const override;
  std::uint64_t fingerprint() const override { return fingerprint_; }
  void each_file(const FileVisitor& visit) const override {
    for (const auto& file : parts_.files) visit(file->path(), file->modified_ns());
  }
  Sample fetch(std::uint64_t index, Scratch& scratch) const override;
  void will_need(std::uint64_t index) const override;
  void check_unchanged() const override;
  std::uint64_t max_fetched_bytes() const override;
  std::uint64_t memory_bytes() const override {
    return 17 * parts_.labels.size() + 4 * parts_.checksums.size();
  }
  std::int64_t claim() const override { return shape_.count() <= 4096 ? 2 : 1; }
  std::optional<std::uint32_t> stored_crc32c(std::uint64_t index) const override;

 protected:
  const MappedFile& file_of(std::uint64_t index) const;
  std::uint64_t offset_of(std::uint64_t index) const { return parts_.offsets[index]; }

 private:
  PackedParts parts_;
  Readahead readahead_;
  Shape shape_;
  bool mapped_ = true;
  std::uint32_t longest_ = 0;
  std::uint64_t fingerprint_ = 0;
};

}  // namespace warpstep::data
