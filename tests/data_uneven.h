// A data set whose samples take different times, so that workers overtake each other.
#pragma once

#include <chrono>
#include <thread>

#include "tests/data_testing.h"

namespace warpstep::data::testing {

// One sample may be broken.
class Uneven : public Dataset {
 public:
  Uneven(std::uint32_t samples, std::int64_t broken = -1)
      : inner_(in_memory(samples)), broken_(broken) {}
  std::string kind() const override { return "uneven"; }
  std::string path() const override { return "uneven"; }
  Shape image_shape() const override { return inner_->image_shape(); }
  std::uint64_t size() const override { return inner_->size(); }
  std::int32_t label(std::uint64_t index) const override { return inner_->label(index); }
  const std::vector<std::string>& classes() const override { return inner_->classes(); }
  std::string name(std::uint64_t index) const override { return inner_->name(index); }
  std::uint64_t fingerprint() const override { return inner_->fingerprint(); }
  std::int64_t claim() const override { return 2; }
  Sample fetch(std::uint64_t index, Scratch& scratch) const override {
    std::this_thread::sleep_for(std::chrono::microseconds(index * 37 % 50));
    if (broken_ >= 0 && index == static_cast<std::uint64_t>(broken_)) {
      fail<DataError>("{}: is broken", name(index));
    }
    return inner_->fetch(index, scratch);
  }

 private:
  std::shared_ptr<Dataset> inner_;
  std::int64_t broken_;
};

}  // namespace warpstep::data::testing
