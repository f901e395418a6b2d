// Where the pixels of batches come from (the tiers of --tier), and CachedDataset, which decodes
// each image of an encoded set once. All tiers give the same batches, bit for bit.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/formats/dataset.h"

namespace warpstep::data {

enum class Tier : std::uint8_t {
  automatic,
  resident,  // the decoded set is in the device's memory; a kernel gathers and augments
  mapped,    // the decoded set is in memory or in the page cache; samples are copied
  decoded    // samples are decoded whenever they are read
};
std::string_view name(Tier tier);
Tier parse_tier(std::string_view text);  // throws UsageError that lists the tiers

struct TierFacts {
  std::uint64_t samples = 0;
  std::uint64_t decoded_bytes = 0;  // of the whole set
  bool is_decoded = false;          // it is stored as pixels
  bool sets_extent = false;         // rows are cropped or resized from images of any size
  bool is_gathered = true;          // rows are windows of images (Recipe::is_gathered)
  std::string not_gathered;         // if not: the transform that makes them other pixels
  bool normalizes_on_device = true;
  bool has_device = false;                // with memory of its own
  std::uint64_t device_budget_bytes = 0;  // for a set in the device's memory; 0: unknown
  std::uint64_t host_budget_bytes = 0;    // for a set in the host's memory
  // The option that sets this budget, "--memory 2GiB", and what loading takes of its value beside
  // the set; empty: the machine does.
  std::string host_budget_option;
  std::uint64_t loading_bytes = 0;
  bool many_epochs = true;
};

struct TierChoice {
  Tier tier = Tier::decoded;
  std::string why;
  bool fits_mapped = true;  // whether Tier::mapped would be possible
};

// `wanted`, or for automatic the fastest tier that fits. Throws UsageError when `wanted` is not
// possible.
TierChoice choose_tier(Tier wanted, const TierFacts& facts);

// A quarter of the memory that this process may use: the machine's, or the lowest limit of its
// control groups. Processes of a job on one machine divide it.
std::uint64_t host_budget_bytes(int processes = 1, const std::filesystem::path& root = "/");

// Decodes a sample when it is first fetched and keeps its pixels, so from the second epoch on a
// sample is only copied. A sample that cannot be decoded whole, or differs in size from the first
// image, is returned as it is stored. Address space for all pixels is reserved at once; memory is
// used as samples are decoded.
class CachedDataset : public Dataset {
 public:
  // Throws UsageError when the memory cannot be reserved.
  explicit CachedDataset(std::shared_ptr<const Dataset> inner);
  ~CachedDataset() override;

  std::string kind() const override { return inner_->kind(); }
  std::string path() const override { return inner_->path(); }
  Shape image_shape() const override { return shape_; }
  std::uint64_t size() const override { return inner_->size(); }
  std::int32_t label(std::uint64_t index) const override { return inner_->label(index); }
  const std::vector<std::string>& classes() const override { return inner_->classes(); }
  std::string name(std::uint64_t index) const override { return inner_->name(index); }
  std::uint64_t fingerprint() const override { return inner_->fingerprint(); }
  Sample fetch(std::uint64_t index, Scratch& scratch) const override;
  void will_need(std::uint64_t index) const override;
  void check_unchanged() const override { inner_->check_unchanged(); }
  std::uint64_t max_fetched_bytes() const override { return inner_->max_fetched_bytes(); }
  std::uint64_t memory_bytes() const override { return inner_->memory_bytes() + bytes_; }
  std::span<const std::uint8_t> all_pixels() const override;  // once decode_all() has returned
  std::int64_t claim() const override { return inner_->claim(); }

  // Decodes all samples that are not decoded yet, on `workers` threads (0: all cores). Throws
  // DataError for the sample with the lowest index that cannot be decoded or has another size.
  void decode_all(int workers = 0);

 private:
  std::uint8_t* pixels_of(std::uint64_t index) const { return pixels_ + index * image_bytes_; }

  std::shared_ptr<const Dataset> inner_;
  Shape shape_;
  std::size_t image_bytes_ = 0;
  std::uint64_t bytes_ = 0;  // of all images
  std::uint8_t* pixels_ = nullptr;
  mutable std::vector<std::atomic<std::uint8_t>> states_;  // [samples], see cached.cpp
  bool whole_ = false;
};

}  // namespace warpstep::data
