#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "data/formats/formats.h"
#include "tests/data_testing.h"
#include "tests/gzipped.h"

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

std::uint64_t status_bytes(const char* field) {
  std::ifstream status("/proc/self/status");
  for (std::string name; status >> name; status.ignore(1000, '\n'))
    if (std::uint64_t kibibytes = 0; name == field && status >> kibibytes) return kibibytes << 10;
  return 0;
}

// By how much the memory that the process uses grows at most while `work` runs.
template <class Work>
std::uint64_t growth(const Work& work) {
  std::ofstream("/proc/self/clear_refs") << "5\n";  // resets the peak
  const std::uint64_t before = status_bytes("VmRSS:");
  work();
  return status_bytes("VmHWM:") - std::min(before, status_bytes("VmHWM:"));
}

TEST_F(IdxMemory, TakesMemoryAsBytesCome) {
  put_images(all_bytes);
  std::unique_ptr<Dataset> set;
  EXPECT_LT(growth([&] { set = open_idx(folder_.path(), Split::train); }), all_bytes * 3 / 2);
  EXPECT_EQ(set->size(), count);
  // What follows the zipped bytes makes the file large enough to hold what its header promises.
  put_images(1000);
  Bytes file;
  read_into(file, images_);
  file.resize(20'000, 0);
  put(images_, file);
  EXPECT_LT(growth([&] { EXPECT_THAT(refusal(), HasSubstr("is truncated")); }), all_bytes / 2);
}

TEST_F(IdxMemory, HeedsTheMemoryThatItMayTake) {
  put_images(all_bytes);
  EXPECT_THAT(refusal({.memory_bytes = all_bytes - 1}),
              AllOf(HasSubstr(images_), HasSubstr("need 13107200 bytes of memory, more than the "
                                                  "13107199 that --memory allows")));
  EXPECT_EQ(open_idx(folder_.path(), Split::train, {.memory_bytes = all_bytes})->size(), count);
}

// 200 images of 1024 x 1024, all of them zero, in 204 KB.
TEST_F(IdxMemory, RefusesWhatNoZippedFileOfImagesHolds) {
  Bytes images = idx_header(3, {count, 1024, 1024});
  constexpr std::size_t bytes = std::size_t{count} << 20;
  images.resize(images.size() + bytes);
  put(images_, gzipped(images));
  std::string said;
  EXPECT_LT(growth([&] { said = refusal(); }), 10'000'000U);
  EXPECT_THAT(said, AllOf(HasSubstr(images_), HasSubstr("times the file"), HasSubstr("gunzip")));
  EXPECT_EQ(open_idx(folder_.path(), Split::train, {.memory_bytes = bytes})->size(), count);
}

// Their bytes are not read, and are missing here.
TEST_F(IdxMemory, ComparesHowManyLabelsThereAreBeforeItReadsThem) {
  put_images(0);
  std::filesystem::remove(labels_);
  put(labels_ + ".gz", gzipped(idx_header(1, {1000})));
  EXPECT_THAT(refusal(), HasSubstr("has 200 images, but there are 1000 labels"));
  Bytes file = gzipped(idx_header(1, {90'000'000}));
  file.resize(100'000, 0);  // large enough to hold them
  put(labels_ + ".gz", file);
  EXPECT_THAT(refusal(), HasSubstr("announces 90000000 bytes of labels, 900 times the file"));
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
