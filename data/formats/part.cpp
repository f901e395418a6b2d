#include "data/formats/part.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/random.h"

namespace warpstep::data {
namespace {

// Of Purpose::order, whose sequences are epochs otherwise: none has this number.
constexpr std::uint32_t validation_sequence = UINT32_MAX;

// Another set's samples, by default all of them in its order.
class View : public Dataset {
 public:
  explicit View(std::shared_ptr<const Dataset> whole) : whole_(std::move(whole)) {}

  std::string kind() const override { return whole_->kind(); }
  std::string path() const override { return whole_->path(); }
  Shape image_shape() const override { return whole_->image_shape(); }
  std::uint64_t size() const override { return whole_->size(); }
  std::int32_t label(std::uint64_t index) const override { return whole_->label(at(index)); }
  const std::vector<std::string>& classes() const override { return whole_->classes(); }
  std::string name(std::uint64_t index) const override { return whole_->name(at(index)); }
  std::uint64_t fingerprint() const override { return whole_->fingerprint(); }
  void each_file(const FileVisitor& visit) const override { whole_->each_file(visit); }
  std::vector<std::string> passed_over() const override { return whole_->passed_over(); }
  Sample fetch(std::uint64_t index, Scratch& scratch) const override {
    return whole_->fetch(at(index), scratch);
  }
  Shape shape_of(std::uint64_t index, Scratch& scratch) const override {
    return whole_->shape_of(at(index), scratch);
  }
  void will_need(std::uint64_t index) const override { whole_->will_need(at(index)); }
  void check_unchanged() const override { whole_->check_unchanged(); }
  std::uint64_t max_fetched_bytes() const override { return whole_->max_fetched_bytes(); }
  std::uint64_t memory_bytes() const override { return whole_->memory_bytes(); }
  std::int64_t claim() const override { return whole_->claim(); }

 protected:
  virtual std::uint64_t at(std::uint64_t index) const { return index; }

  std::shared_ptr<const Dataset> whole_;
};

class Part final : public View {
 public:
  Part(std::shared_ptr<const Dataset> whole, Split split, const PartOptions& options)
      : View(std::move(whole)), indices_(indices_of(*whole_, split, options)) {
    if (indices_.empty())
      fail<UsageError>("--val-split {}: the {} part of {} has no samples", options.share,
                       data::name(split), whole_->path());
    Hash hash;
    hash.add(whole_->fingerprint());
    hash.add(std::bit_cast<std::uint64_t>(options.share));
    hash.add(options.seed);
    hash.add(static_cast<std::uint64_t>(split));
    fingerprint_ = hash.value();
  }

  std::uint64_t size() const override { return indices_.size(); }
  std::uint64_t fingerprint() const override { return fingerprint_; }
  std::uint64_t memory_bytes() const override {
    return whole_->memory_bytes() + indices_.size() * sizeof(std::uint64_t);
  }

 private:
  std::uint64_t at(std::uint64_t index) const override { return indices_[index]; }

  std::vector<std::uint64_t> indices_;
  std::uint64_t fingerprint_ = 0;
};

class WithAlpha final : public View {
 public:
  WithAlpha(std::shared_ptr<const Dataset> whole, Alpha alpha)
      : View(std::move(whole)), alpha_(alpha) {}

  Sample fetch(std::uint64_t index, Scratch& scratch) const override {
    Sample sample = whole_->fetch(index, scratch);
    sample.alpha = alpha_;
    return sample;
  }
  std::span<const std::uint8_t> all_pixels() const override { return whole_->all_pixels(); }

 private:
  Alpha alpha_;
};

std::size_t test_samples(std::size_t samples, double share) {
  if (samples < 2) return 0;
  const auto wanted = static_cast<std::size_t>(std::lround(static_cast<double>(samples) * share));
  return std::clamp<std::size_t>(wanted, 1, samples - 1);
}

}  // namespace

std::vector<std::uint64_t> indices_of(const Dataset& whole, Split split,
                                      const PartOptions& options) {
  if (!(options.share > 0 && options.share < 1))
    fail<UsageError>("--val-split {}: is a share of the images, above 0 and below 1",
                     options.share);
  check_labels_of(whole);
  // Samples of each class, in the order of their random numbers: the first ones are the test part.
  using Drawn = std::pair<std::uint64_t, std::uint64_t>;
  std::vector<std::vector<Drawn>> classes(whole.classes().size());
  for (std::uint64_t i = 0; i < whole.size(); ++i) {
    const auto words = draw(options.seed, Purpose::order, validation_sequence, i);
    classes[idx(whole.label(i))].emplace_back(std::uint64_t{words[0]} << 32 | words[1], i);
  }
  std::vector<std::uint64_t> indices;
  for (std::vector<Drawn>& samples : classes) {
    std::sort(samples.begin(), samples.end());
    const std::size_t tests = test_samples(samples.size(), options.share);
    const std::size_t begin = split == Split::test ? 0 : tests;
    const std::size_t end = split == Split::test ? tests : samples.size();
    for (std::size_t i = begin; i < end; ++i) indices.push_back(samples[i].second);
  }
  std::sort(indices.begin(), indices.end());
  return indices;
}

std::unique_ptr<Dataset> open_part(std::shared_ptr<const Dataset> whole, Split split,
                                   const PartOptions& options) {
  return std::make_unique<Part>(std::move(whole), split, options);
}

std::shared_ptr<const Dataset> with_alpha(std::shared_ptr<const Dataset> whole, Alpha alpha) {
  if (alpha == Alpha::drop) return whole;
  return std::make_shared<WithAlpha>(std::move(whole), alpha);
}

}  // namespace warpstep::data
