#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/formats/npy.h"
#include "engine/core/file.h"
#include "tests/data_testing.h"
#include "tests/npy_file.h"

namespace warpstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::put;
using testing::some_pixels;
using testing::TemporaryFolder;
using testing::write_npy;
using Bytes = std::vector<std::uint8_t>;
using Extents = std::vector<std::uint64_t>;

class Npy : public ::testing::Test {
 protected:
  // A version 1 file of this header's text and as many bytes.
  std::string refusal(const std::string& text, std::size_t bytes = 0, char version = 1) {
    std::string file = std::string("\x93NUMPY") + version + '\0' +
                       static_cast<char>(text.size() & 0xff) + static_cast<char>(text.size() >> 8);
    if (version > 1) file += std::string(2, '\0');
    put(path_, file + text + std::string(bytes, 'x'));
    return message_of([&] { read_npy_header(MappedFile(path_)); });
  }
  void put_images(const std::string& split, std::uint64_t count, const Shape& shape,
                  const Extents& extents) {
    Bytes all;
    for (std::uint32_t i = 0; i < count; ++i) {
      const Bytes pixels = some_pixels(shape, i);
      all.insert(all.end(), pixels.begin(), pixels.end());
    }
    write_npy(folder_ / (split + "-images.npy"), StoredType::u8, extents, all);
  }
  void put_labels(const std::string& split, const Bytes& labels) {
    write_npy(folder_ / (split + "-labels.npy"), StoredType::u8, Extents{labels.size()}, labels);
  }
  std::string open_refusal(Split split = Split::train) {
    return message_of([&] { open(folder_.path(), split); });
  }

  TemporaryFolder folder_;
  std::string path_ = folder_ / "a.npy";
};

TEST_F(Npy, WritesWhatNumPyWrites) {
  write_npy(path_, StoredType::u16, Extents{3}, Bytes{1, 0, 2, 0, 3, 0});
  const std::string content = read_file(path_);
  EXPECT_EQ(content, std::string("\x93NUMPY\x01\0\x76\0", 10) +
                         "{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }" +
                         std::string(60, ' ') + "\n" + std::string("\1\0\2\0\3\0", 6));
  const NpyArray array = read_npy_header(MappedFile(path_));
  EXPECT_EQ(array.type, StoredType::u16);
  EXPECT_EQ(array.offset, 128U);
  EXPECT_THAT(array.shape, ElementsAre(3));
  EXPECT_THROW(npy_beginning(StoredType::f32, Extents{1}), UsageError);
}

TEST_F(Npy, ReadsVersionsAndSpellings) {
  const std::string text = R"({"shape":(2,2),"fortran_order":False,"descr":"<i4"})";
  for (const char version : {'\1', '\2', '\3'}) EXPECT_EQ(refusal(text, 16, version), "");
  EXPECT_EQ(refusal("{'descr': '|u1', 'fortran_order': False, 'shape': (), }   \n", 1), "");
}

TEST_F(Npy, RefusesHeadersByNameAndByte) {
  put(path_, std::string("PK\3\4 is a .npz file"));
  EXPECT_THAT(message_of([&] { read_npy_header(MappedFile(path_)); }),
              HasSubstr("a.npy: is not a .npy file"));
  EXPECT_THAT(refusal("{}", 0, 4), HasSubstr("byte 6: .npy version 4.0"));
  EXPECT_THAT(refusal("{'descr': '|u1'"), HasSubstr("byte 25: the header has no '}' here"));
  EXPECT_THAT(refusal("{'descr': '|u1', 'shape': (1,)}", 1), HasSubstr("lacks the key 'fortran"));
  const auto with = [&](const std::string& type, const std::string& shape,
                        const std::string& order = "False", const std::string& more = "") {
    return refusal(
        "{'descr': " + type + ", 'fortran_order': " + order + ", 'shape': " + shape + "}" + more,
        4);
  };
  EXPECT_EQ(with("'|u1'", "(4,)"), "");
  EXPECT_THAT(with("'<f4'", "(1,)"), HasSubstr("elements of '<f4'"));
  EXPECT_THAT(with("'>u2'", "(2,)"), HasSubstr("elements of '>u2'"));
  EXPECT_THAT(with("[('a', '|u1')]", "(4,)"), HasSubstr("a structured type"));
  EXPECT_THAT(with("'|u1'", "(4,)", "True"), HasSubstr("Fortran order; save it with"));
  EXPECT_THAT(with("'|u1'", "(4,)", "Maybe"), HasSubstr("neither True nor False"));
  EXPECT_THAT(with("|u1", "(4,)"), HasSubstr("byte 20: the header has no quoted text here"));
  EXPECT_THAT(with("'|u1", "(4,)"), HasSubstr("has elements of '|u1, '"));
  EXPECT_THAT(with("'|u1'", "(-4,)"), HasSubstr("an invalid shape"));
  EXPECT_THAT(with("'|u1'", "(4"), HasSubstr("no ')' here"));
  EXPECT_THAT(with("'|u1'", "(4,)", "False", " more"), HasSubstr("extra data after its dict"));
  EXPECT_THAT(with("'|u1', 'descr': '|u1'", "(4,)"), HasSubstr("has the key 'descr'"));
  EXPECT_THAT(with("'|u1'", "(3,)"), HasSubstr("announces (3) of 1 bytes each, but 4 bytes"));
  EXPECT_THAT(with("'|u1'", "(5,)"), HasSubstr("copy it again"));
  EXPECT_THAT(with("'<i8'", "(4294967296, 4294967296, 2)"), HasSubstr("but 4 bytes follow"));
  put(path_, std::string("\x93NUMPY\1\0\xff\xff{}", 12));
  EXPECT_THAT(message_of([&] { read_npy_header(MappedFile(path_)); }),
              HasSubstr("a header of 65535 bytes, but the file has 12"));
}

TEST_F(Npy, ReadsASetInPlace) {
  const Shape shape{4, 5, 3};
  put_images("train", 3, shape, {3, 4, 5, 3});
  put_labels("train", {2, 0, 1});
  put_images("test", 2, {4, 5, 1}, {2, 4, 5});
  put_labels("test", {1, 1});
  for (const Io io : {Io::mmap, Io::pread}) {
    const auto set = open(folder_.path(), Split::train, {io});
    EXPECT_EQ(set->kind(), "NPY");
    EXPECT_EQ(set->image_shape(), shape);
    EXPECT_THAT(set->classes(), ElementsAre("0", "1", "2"));
    EXPECT_EQ(set->max_fetched_bytes(), io == Io::mmap ? 0U : 60U);
    EXPECT_THAT(set->name(2), HasSubstr("/train-images.npy[2]"));
    Scratch scratch;
    Bytes pixels(60);
    for (std::uint32_t i = 0; i < 3; ++i) {
      set->will_need(i);
      set->read(i, scratch, pixels);
      EXPECT_EQ(pixels, some_pixels(shape, i));
    }
    EXPECT_EQ(scratch.bytes.empty(), io == Io::mmap);
    EXPECT_EQ(set->label(0), 2);
    set->check_unchanged();
  }
  const auto test = open(folder_.path(), Split::test);
  EXPECT_EQ(test->image_shape(), (Shape{4, 5, 1}));
  EXPECT_EQ(test->classes().size(), 3U);
  put(folder_ / "classes.txt", std::string("cat\r\ndog\nowl"));
  EXPECT_THAT(open(folder_.path(), Split::test)->classes(), ElementsAre("cat", "dog", "owl"));
}

TEST_F(Npy, RefusesSetsThatDoNotFit) {
  put_images("train", 2, {4, 5, 3}, {2, 4, 5, 3});
  EXPECT_THAT(open_refusal(), HasSubstr("/train-labels.npy: cannot be read"));
  put_labels("train", {1, 0, 1});
  EXPECT_THAT(open_refusal(), HasSubstr("has 2 images, but there are 3 labels"));
  put_labels("train", {1, 0});
  EXPECT_THAT(open_refusal(Split::test), HasSubstr("/test-images.npy: cannot be read"));
  put(folder_ / "classes.txt", std::string("one\n"));
  EXPECT_THAT(open_refusal(), HasSubstr("sample 0 has label 1, but the data set has 1 classes"));
  put(folder_ / "classes.txt", std::string("a\n\nb\n"));
  EXPECT_THAT(open_refusal(), HasSubstr("classes.txt: line 2 is empty"));
  put(folder_ / "classes.txt", std::string("a\na\n"));
  EXPECT_THAT(open_refusal(), HasSubstr("line 2: the name 'a' occurs twice"));
  put(folder_ / "classes.txt", std::string("a\nb\n"));
  const Bytes negative(16, 0xff);
  write_npy(folder_ / "train-labels.npy", StoredType::i64, Extents{2}, negative);
  EXPECT_THAT(open_refusal(), HasSubstr("sample 0 has label -1"));
  write_npy(folder_ / "train-labels.npy", StoredType::u8, Extents{2, 1}, Bytes{0, 1});
  EXPECT_THAT(open_refusal(), HasSubstr("has the shape (2, 1); labels must have one dimension"));
  put_labels("train", {1, 0});
  put_images("train", 2, {4, 5, 3}, {2, 60});
  EXPECT_THAT(open_refusal(), HasSubstr("has U8 of shape (2, 60); images must be uint8"));
  put_images("train", 2, {4, 5, 3}, {2, 4, 3, 5});
  EXPECT_THAT(open_refusal(), HasSubstr("images of 5 channels"));
  put_images("train", 0, {4, 5, 3}, {2, 0, 5, 3});
  EXPECT_THAT(open_refusal(), HasSubstr("images of 0 x 5"));
  put_images("train", 0, {4, 5, 3}, {0, 4, 5, 3});
  put_labels("train", {});
  EXPECT_THAT(open_refusal(), HasSubstr("has no images"));
}

}  // namespace
}  // namespace warpstep::data
