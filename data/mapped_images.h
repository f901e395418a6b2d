// Decoded images of one size that lie one after the other in a file: a sample is a view.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/asked.h"
#include "data/checksum.h"
#include "data/dataset.h"
#include "data/mapped_file.h"

namespace warpstep::data {

struct MappedParts {
  std::string kind;
  std::unique_ptr<MappedFile> file;
  std::uint64_t offset = 0;              // of the first image in the file
  Shape shape;                           // [height, width, channels]
  std::vector<std::int32_t> labels;      // [samples], in [0, classes)
  std::vector<std::string> classes;      //
  std::vector<std::uint32_t> checksums;  // [samples] or empty: CRC32C of each image's bytes
};

class MappedImages : public Dataset, public Checksums {
 public:
  // Throws DataError when the images do not lie inside the file or there are none.
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
  Asked asked_;
  std::uint64_t image_bytes_ = 0;
  std::uint64_t fingerprint_ = 0;
};

// Throws DataError naming `where` for sides outside 1 to 16384 and channels other than 1 and 3.
Shape image_shape_of(std::uint64_t height, std::uint64_t width, std::uint64_t channels,
                     const std::string& where);

}  // namespace warpstep::data
