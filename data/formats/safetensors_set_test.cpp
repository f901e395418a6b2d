#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/formats/formats.h"
#include "engine/core/checksum.h"
#include "engine/files/safetensors.h"
#include "tests/data_testing.h"

namespace warpstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::some_pixels;
using testing::some_png;
using testing::TemporaryFolder;
using Bytes = std::vector<std::uint8_t>;
using Extents = std::vector<std::uint64_t>;

template <class T>
TensorToStore tensor(const std::string& name, StoredType type, const Extents& shape,
                     const std::vector<T>& values) {
  return {name, type, shape, std::as_bytes(std::span(values))};
}

class SafetensorsSet : public ::testing::Test {
 protected:
  SafetensorsSet() {
    for (std::uint32_t i = 0; i < 3; ++i) {
      const Bytes pixels = some_pixels(shape_, i);
      pixels_.insert(pixels_.end(), pixels.begin(), pixels.end());
      const Bytes png = some_png(shape_, i);
      data_.insert(data_.end(), png.begin(), png.end());
      offsets_.push_back(data_.size());
      checksums_.push_back(crc32c(png));
    }
  }
  void write(const std::vector<TensorToStore>& tensors, const Metadata& metadata = {},
             const std::string& split = "train") {
    write_safetensors(folder_ / (split + ".safetensors"), tensors, metadata);
  }
  TensorToStore labels() { return tensor("label", StoredType::i64, {3}, labels_); }
  TensorToStore image() { return tensor("image", StoredType::u8, {3, 4, 5, 3}, pixels_); }
  TensorToStore data() { return tensor("data", StoredType::u8, {data_.size()}, data_); }
  TensorToStore offset() { return tensor("offset", StoredType::u64, {offsets_.size()}, offsets_); }
  std::string refusal(const std::vector<TensorToStore>& tensors, const Metadata& metadata = {}) {
    write(tensors, metadata);
    return message_of([&] { open(folder_.path(), Split::train); });
  }
  void expect_samples(Io io) {
    const auto set = open(folder_.path(), Split::train, {io});
    EXPECT_EQ(set->size(), 3U);
    EXPECT_EQ(set->image_shape(), shape_);
    Scratch scratch;
    Bytes pixels(60);
    for (std::uint32_t i = 0; i < 3; ++i) {
      set->will_need(i);
      set->read(i, scratch, pixels);
      EXPECT_EQ(pixels, some_pixels(shape_, i));
      EXPECT_EQ(set->label(i), labels_[i]);
    }
    EXPECT_EQ(scratch.bytes.empty(), io == Io::mmap);
    EXPECT_EQ(set->max_fetched_bytes() == 0, io == Io::mmap);
    set->check_unchanged();
  }

  TemporaryFolder folder_;
  Shape shape_{4, 5, 3};
  std::vector<std::int64_t> labels_{1, 0, 1};
  Bytes pixels_, data_;
  std::vector<std::uint64_t> offsets_{0};
  std::vector<std::uint32_t> checksums_;
};

TEST_F(SafetensorsSet, ReadsDecodedImagesInPlace) {
  write({image(), labels()}, {{"classes", R"(["cat","dog"])"}});
  expect_samples(Io::mmap);
  expect_samples(Io::pread);
  const auto set = open(folder_.path(), Split::train);
  EXPECT_EQ(set->kind(), "safetensors");
  EXPECT_THAT(set->classes(), ElementsAre("cat", "dog"));
}

TEST_F(SafetensorsSet, LabelsMayBeNarrow) {
  const std::vector<std::int8_t> bytes{1, 0, 1}, negative{1, 0, -1};
  write({image(), tensor("label", StoredType::i8, {3}, bytes)});
  expect_samples(Io::mmap);
  const std::vector<std::int16_t> shorts{1, 0, 1};
  write({image(), tensor("label", StoredType::i16, {3}, shorts)});
  expect_samples(Io::mmap);
  EXPECT_THAT(refusal({image(), tensor("label", StoredType::i8, {3}, negative)}),
              HasSubstr("sample 2 has label -1"));
  const std::vector<double> floats{1, 0, 1};
  EXPECT_THAT(refusal({image(), tensor("label", StoredType::f64, {3}, floats)}),
              HasSubstr("labels of F64; must be integers"));
}

TEST_F(SafetensorsSet, ReadsEncodedSamplesInPlaceAlsoUnaligned) {
  const Bytes odd{1};  // tensors after it begin at odd bytes
  write({tensor("a", StoredType::u8, {1}, odd), data(), labels(), offset(),
         tensor("crc32c", StoredType::u32, {3}, checksums_)},
        {{"encoding", "png"}});
  expect_samples(Io::mmap);
  expect_samples(Io::pread);
  const auto set = open(folder_.path(), Split::train);
  EXPECT_THAT(set->classes(), ElementsAre("0", "1"));
  EXPECT_THAT(set->name(2), HasSubstr("train.safetensors[2] (byte "));
  const auto* checksums = dynamic_cast<const Checksums*>(set.get());
  ASSERT_NE(checksums, nullptr);
  EXPECT_EQ(checksums->stored_crc32c(1), checksums_[1]);
}

TEST_F(SafetensorsSet, TheTrainingSplitDecidesTheClasses) {
  write({image(), labels()});
  labels_ = {0, 0, 2};
  write({image(), labels()}, {}, "test");
  EXPECT_THAT(message_of([&] { open(folder_.path(), Split::test); }),
              HasSubstr("sample 2 has label 2, but the data set has 2 classes"));
  labels_ = {0, 0, 0};
  write({image(), labels()}, {}, "test");
  EXPECT_EQ(open(folder_.path(), Split::test)->classes().size(), 2U);
  write({image(), labels()}, {{"classes", R"(["a"])"}}, "test");
  write({image(), labels()}, {{"classes", R"(["b"])"}});
  EXPECT_THAT(message_of([&] { open(folder_.path(), Split::test); }),
              HasSubstr("has classes that the training split lacks: a, and lacks classes of the "
                        "training split: b; give both splits the same classes"));
}

TEST_F(SafetensorsSet, RefusesDecodedSetsThatDoNotFit) {
  EXPECT_THAT(refusal({labels()}), HasSubstr("neither a tensor image nor data"));
  EXPECT_THAT(refusal({image()}), HasSubstr("no tensor \"label\""));
  EXPECT_THAT(refusal({tensor("image", StoredType::u8, {3, 60}, pixels_), labels()}),
              HasSubstr("tensor image is U8 [3,60], but must be"));
  EXPECT_THAT(refusal({tensor("image", StoredType::u8, {2, 6, 5, 3}, pixels_), labels()}),
              HasSubstr("has 2 images, but there are 3 labels"));
  EXPECT_THAT(refusal({tensor("image", StoredType::u8, {3, 5, 2, 6}, pixels_), labels()}),
              HasSubstr("images of 6 channels"));
  EXPECT_THAT(refusal({image(), tensor("label", StoredType::i64, {3, 1}, labels_)}),
              HasSubstr("labels must have one dimension"));
  EXPECT_THAT(refusal({image(), tensor("label", StoredType::f32, {6}, labels_)}),
              HasSubstr("labels of F32"));
  EXPECT_THAT(refusal({image(), labels(), tensor("crc32c", StoredType::i32, {3}, checksums_)}),
              HasSubstr("tensor crc32c is I32 [3], but must be U32 [3]"));
  for (const char* classes : {"cat", "[]", "[1,2]", R"(["a","a"])", R"({"a":1})"})
    EXPECT_THAT(refusal({image(), labels()}, {{"classes", classes}}),
                HasSubstr("not a JSON array of different names"));
  const std::string begin(100'000, '['), end(100'000, ']');  // as of an attack
  EXPECT_THAT(refusal({image(), labels()}, {{"classes", begin + end}}),
              HasSubstr("not a JSON array of different names"));
  labels_[1] = -1;
  EXPECT_THAT(refusal({image(), labels()}), HasSubstr("sample 1 has label -1"));
}

TEST_F(SafetensorsSet, RefusesEncodedSetsThatDoNotFit) {
  EXPECT_EQ(refusal({data(), offset(), labels()}), "");
  EXPECT_THAT(refusal({data(), labels()}), HasSubstr("no tensor \"offset\""));
  EXPECT_THAT(refusal({data(), offset(), labels()}, {{"encoding", "webp"}}),
              HasSubstr("encoding is 'webp'; must be png, jpeg or mixed"));
  std::swap(offsets_[1], offsets_[2]);
  EXPECT_THAT(refusal({data(), offset(), labels()}), HasSubstr("sample 1 is at data bytes"));
  offsets_[1] = ~std::uint64_t{0};
  EXPECT_THAT(refusal({data(), offset(), labels()}), HasSubstr("offsets must rise"));
  offsets_.back() += 1;
  EXPECT_THAT(refusal({data(), offset(), labels()}), HasSubstr("must cover the data's"));
  offsets_.pop_back();
  EXPECT_THAT(refusal({data(), offset(), labels()}),
              HasSubstr("tensor offset is U64 [3], but must be U64 [4]"));
}

TEST_F(SafetensorsSet, RefusesTokens) {
  write({tensor("token", StoredType::u16, {3}, std::vector<std::uint16_t>{1, 2, 3})});
  EXPECT_THAT(message_of([&] { open(folder_.path(), Split::train); }),
              HasSubstr("holds tokens, not images"));
}

TEST_F(SafetensorsSet, TakesTheChannelsOfTheTestPartFromTraining) {
  const Bytes gray = some_png({4, 5, 1});
  const std::vector<std::uint64_t> ends{0, gray.size()};
  const std::vector<std::uint8_t> label{0};
  write({tensor("data", StoredType::u8, {gray.size()}, gray),
         tensor("offset", StoredType::u64, {2}, ends), tensor("label", StoredType::u8, {1}, label)},
        {}, "test");
  EXPECT_EQ(open(folder_.path(), Split::test)->image_shape(), (Shape{4, 5, 1}));
  write({data(), offset(), labels()});
  EXPECT_EQ(open(folder_.path(), Split::test)->image_shape(), (Shape{4, 5, 3}));
  write({image(), labels()});
  EXPECT_EQ(open(folder_.path(), Split::test)->image_shape(), (Shape{4, 5, 3}));
}

}  // namespace
}  // namespace warpstep::data
