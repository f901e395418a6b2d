// Encoded samples that lie in few large files: a sample is a view.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/asked.h"
#include "data/checksum.h"
#include "data/dataset.h"
#include "data/mapped_file.h"

namespace warpstep::data {

struct PackedParts {
  std::string kind;
  std::string path;
  std::vector<std::unique_ptr<MappedFile>> files;
  std::vector<std::uint64_t> firsts;     // [files]: the number of each file's first sample, rising
  std::vector<std::uint64_t> offsets;    // [samples]: in its file
  std::vector<std::uint32_t> lengths;    // [samples]: bytes
  std::vector<std::int32_t> labels;      // [samples], in [0, classes)
  std::vector<std::string> classes;      //
  std::vector<std::uint32_t> checksums;  // [samples] or empty: CRC32C of each sample's bytes
  bool jpeg = false;                     // any sample is: images have 3 channels then
};

// Keeps 17 bytes a sample, 21 with checksums.
class PackedSamples : public Dataset, public Checksums {
 public:
  // Reads the first sample's header. Throws DataError when there is none, when it is damaged, and
  // for samples that do not lie inside their file.
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
  Asked asked_;
  Shape shape_;
  bool mapped_ = true;
  std::uint32_t longest_ = 0;
  std::uint64_t fingerprint_ = 0;
};

}  // namespace warpstep::data
