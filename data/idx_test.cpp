#include "data/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/data_testing.h"
#include "tests/gzipped.h"
#include "tests/largest_allocation.h"

namespace warpstep::data {
namespace {

using ::testing::AllOf;
using testing::gzipped;
using ::testing::HasSubstr;
using testing::message_of;
using testing::put;

using Bytes = std::vector<std::uint8_t>;

Bytes idx_header(std::uint8_t kind, std::initializer_list<std::uint32_t> words) {
  Bytes bytes{0, 0, 8, kind};
  for (const std::uint32_t word : words)
    for (int shift = 24; shift >= 0; shift -= 8)
      bytes.push_back(static_cast<std::uint8_t>(word >> shift));
  return bytes;
}

class IdxMemory : public ::testing::Test {
 protected:
  static constexpr std::uint32_t count = 200;

  void SetUp() override {
    Bytes labels = idx_header(1, {count});
    labels.resize(labels.size() + count, 1);
    put(labels_, labels);
  }
  // So many bytes of images of 256 x 256, all zero.
  void put_images(std::size_t bytes) {
    Bytes images = idx_header(3, {count, 256, 256});
    images.resize(images.size() + bytes);
    put(images_, gzipped(images));
  }
  std::string refusal(const OpenOptions& options = {}) {
    return message_of([&] { open_idx(folder_.path(), Split::train, options); });
  }

  const testing::TemporaryFolder folder_;
  const std::string labels_ = folder_ / "train-labels-idx1-ubyte";
  const std::string images_ = folder_ / "train-images-idx3-ubyte.gz";
};

constexpr std::size_t all_bytes = 200 * 256 * 256;

TEST_F(IdxMemory, TakesMemoryAsBytesCome) {
  put_images(all_bytes);
  EXPECT_EQ(open_idx(folder_.path(), Split::train)->size(), count);
  // What follows the zipped bytes makes the file large enough to hold what its idx_header promises.
  put_images(1000);
  Bytes file;
  read_into(file, images_);
  file.resize(20'000, 0);
  put(images_, file);
  testing_support::forget_allocations();
  EXPECT_THAT(refusal(), HasSubstr("is truncated"));
  EXPECT_LT(testing_support::largest_allocation_bytes(), 1'000'000U);
}

TEST_F(IdxMemory, HeedsTheMemoryThatItMayTake) {
  put_images(all_bytes);
  EXPECT_THAT(refusal({.memory_bytes = all_bytes - 1}),
              AllOf(HasSubstr(images_), HasSubstr("take 13107200 bytes of memory, more than the "
                                                  "13107199 that --memory allows")));
  EXPECT_EQ(open_idx(folder_.path(), Split::train, {.memory_bytes = all_bytes})->size(), count);
}

TEST_F(IdxMemory, DoesNotWaitForAPipe) {
  put_images(all_bytes);
  for (const std::string& path : {images_, labels_}) {
    std::filesystem::remove(path);
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    EXPECT_THAT(refusal(), HasSubstr(path + ": is not a file"));
  }
}

}  // namespace
}  // namespace warpstep::data
