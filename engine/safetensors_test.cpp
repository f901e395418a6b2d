#include "engine/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>

#include "engine/core/error.h"

namespace warpstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace fs = std::filesystem;

class SafetensorsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "warpstep-safetensors-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
    path_ = directory_ / "file.safetensors";
  }
  void TearDown() override { fs::remove_all(directory_); }

  // Two tensors and metadata, 24 bytes of data.
  void put_sample() const {
    const std::vector<TensorToStore> tensors = {
        {"conv.weight", StoredType::f32, {2, 2}, std::as_bytes(std::span(weights_))},
        {"step", StoredType::i64, {}, std::as_bytes(std::span(&step_, 1))}};
    write_safetensors(path_, tensors, {{"format", "pt"}, {"note", "\"quoted\" \xC3\xA9"}});
  }

  fs::path directory_, path_;
  std::array<float, 4> weights_ = {1, -2.5F, 3e-30F, 4e30F};
  std::int64_t step_ = -7;
};

TEST_F(SafetensorsTest, GivesBackWhatWasWritten) {
  put_sample();
  const SafetensorsFile file(path_);
  EXPECT_EQ(file.metadata(), (Metadata{{"format", "pt"}, {"note", "\"quoted\" \xC3\xA9"}}));
  ASSERT_EQ(file.tensors().size(), 2U);
  const StoredTensor& weight = file.at("conv.weight");
  EXPECT_EQ(weight.type, StoredType::f32);
  EXPECT_THAT(weight.shape, ElementsAre(2, 2));
  EXPECT_EQ(weight.offset % 8, 0U);
  std::array<float, 4> weights{};
  file.read(weight, std::as_writable_bytes(std::span(weights)));
  EXPECT_EQ(weights, weights_);
  std::int64_t step = 0;
  EXPECT_TRUE(file.at("step").shape.empty());
  file.read(file.at("step"), std::as_writable_bytes(std::span(&step, 1)));
  EXPECT_EQ(step, step_);
  EXPECT_EQ(file.find("other"), nullptr);
}

TEST_F(SafetensorsTest, EveryTypeAndEmptyTensorsSurvive) {
  const std::array<std::byte, 6 * 8> bytes{};
  std::vector<TensorToStore> tensors;
  for (const StoredType type :
       {StoredType::f32, StoredType::f16, StoredType::bf16, StoredType::f64, StoredType::u8,
        StoredType::u16, StoredType::u32, StoredType::u64, StoredType::i8, StoredType::i16,
        StoredType::i32, StoredType::i64, StoredType::boolean}) {
    tensors.push_back(
        {std::string(name(type)), type, {2, 3}, std::span(bytes).first(6 * size_bytes(type))});
    tensors.push_back({fmt::format("empty {}", name(type)), type, {3, 0}, {}});
  }
  write_safetensors(path_, tensors);
  const SafetensorsFile file(path_);
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (const TensorToStore& tensor : tensors) {
    EXPECT_EQ(file.at(tensor.name).type, tensor.type);
    EXPECT_EQ(file.at(tensor.name).bytes, tensor.bytes.size());
  }
  EXPECT_EQ(stored_type(DType::bf16), StoredType::bf16);
}

TEST_F(SafetensorsTest, AFileWithoutTensorsIsAFile) {
  write_safetensors(path_, {});
  EXPECT_EQ(read_file(path_).substr(8), "{}      ");
  EXPECT_TRUE(SafetensorsFile(path_).tensors().empty());
}

TEST_F(SafetensorsTest, BytesAreThoseOfTheFormat) {
  const std::array<std::uint8_t, 3> values = {1, 2, 3};
  const std::vector<TensorToStore> tensors = {
      {"a", StoredType::u8, {3}, std::as_bytes(std::span(values))}};
  write_safetensors(path_, tensors, {{"k", "v"}});
  const std::string header =
      R"({"__metadata__":{"k":"v"},"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})";
  const std::string content = read_file(path_);
  EXPECT_EQ(content, std::string("\x50\0\0\0\0\0\0\0", 8) + header +
                         std::string(80 - header.size(), ' ') + "\1\2\3");
}

TEST_F(SafetensorsTest, ABeginningLeavesRoomForAShapeThatIsKnownLater) {
  const std::vector<StoredTensor> wide = {{"data", StoredType::u8, {1'000'000}, 0, 1'000'000}};
  const std::vector<StoredTensor> real = {{"data", StoredType::u8, {3}, 0, 3}};
  const std::size_t room = safetensors_beginning(path_, wide, {}).size();
  const std::string begin = safetensors_beginning(path_, real, {}, room);
  EXPECT_EQ(begin.size(), room);
  EXPECT_LT(safetensors_beginning(path_, real, {}).size(), room);
  write_atomically(path_, begin + "abc");
  EXPECT_EQ(SafetensorsFile(path_).at("data").offset, room);
  EXPECT_THROW(safetensors_beginning(path_, std::vector{real[0], real[0]}, {}), UsageError);
}

TEST_F(SafetensorsTest, TheDataMayLieInAnotherOrderThanTheHeader) {
  const std::string header = R"({"b":{"shape":[2],"data_offsets":[4,8],"dtype":"F16"},
          "a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}} )";
  std::string content(8, '\0');
  content[0] = static_cast<char>(header.size());
  write_atomically(path_, content + header + "01234567");
  const SafetensorsFile file(path_);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_EQ(file.at("b").offset, file.at("a").offset + 4);
}

TEST_F(SafetensorsTest, RefusesToWriteWhatItWouldNotRead) {
  const auto write = [&](TensorToStore tensor) {
    return [this, tensor] { write_safetensors(path_, std::vector{tensor}); };
  };
  const std::span<const std::byte> bytes = std::as_bytes(std::span(weights_));
  EXPECT_THAT(write({"w", StoredType::f32, {5}, bytes}),
              ThrowsMessage<UsageError>(AllOf(HasSubstr("16 bytes"), HasSubstr("takes 20"))));
  EXPECT_THROW(write({"w", StoredType::f32, {~0ULL, 4}, bytes})(), UsageError);
  EXPECT_THROW(write({"__metadata__", StoredType::f32, {4}, bytes})(), UsageError);
  EXPECT_THAT(write({"\xFF", StoredType::f32, {4}, bytes}),
              ThrowsMessage<UsageError>(HasSubstr("not UTF-8")));
  const TensorToStore good = {"w", StoredType::f32, {4}, bytes};
  EXPECT_THAT(
      [&] {
        write_safetensors(path_, std::vector{good, good});
      },
      ThrowsMessage<UsageError>(HasSubstr("two tensors")));
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(SafetensorsTest, NamesTheTensorThatIsMissingOrOfAnotherSize) {
  put_sample();
  const SafetensorsFile file(path_);
  EXPECT_THAT([&] { file.at("conv.bias"); },
              ThrowsMessage<DataError>(AllOf(HasSubstr(path_.string()), HasSubstr("conv.bias"),
                                             HasSubstr("\"conv.weight\", \"step\""))));
  std::array<std::byte, 4> out{};
  EXPECT_THROW(file.read(file.at("step"), out), UsageError);
}

}  // namespace
}  // namespace warpstep
