#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "engine/core/error.h"
#include "engine/files/safetensors_values.h"

namespace warpstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace fs = std::filesystem;
constexpr float infinite_value = std::numeric_limits<float>::infinity();

// rounded() works without bit operations.
TEST(Halves, AreTheNearestAndComeBackTheSame) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    for (const auto& [from, to] :
         {std::pair{&from_f16, &to_f16}, std::pair{&from_bf16, &to_bf16}}) {
      const float value = from(half);
      if (std::isnan(value)) {
        ASSERT_TRUE(std::isnan(from(to(value)))) << bits;
      } else {
        ASSERT_EQ(to(value), half) << value;
      }
    }
  }
  std::mt19937 random(1);
  for (int i = 0; i < 300000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (std::isnan(value)) continue;
    const auto exact = static_cast<double>(value);
    ASSERT_EQ(static_cast<double>(from_f16(to_f16(value))), rounded(exact, DType::f16)) << value;
    ASSERT_EQ(static_cast<double>(from_bf16(to_bf16(value))), rounded(exact, DType::bf16)) << value;
    // Near the numbers half-way between two of the narrow type.
    const float near = from_f16(static_cast<std::uint16_t>(random() & 0x7bff));
    const float tie = near + std::max(std::ldexp(near, -11), 0x1p-25F);
    for (const float v : {tie, std::nextafter(tie, 0.0F), std::nextafter(tie, infinite_value)})
      ASSERT_EQ(static_cast<double>(from_f16(to_f16(v))),
                rounded(static_cast<double>(v), DType::f16))
          << v;
  }
  EXPECT_EQ(from_f16(0x3c00), 1.0F);
  EXPECT_EQ(from_f16(0x0001), 0x1p-24F);
  EXPECT_EQ(from_f16(0x7bff), 65504.0F);
  EXPECT_EQ(to_f16(65519.0F), 0x7bff);
  EXPECT_EQ(to_f16(-65520.0F), 0xfc00);
  EXPECT_EQ(from_bf16(0xbf80), -1.0F);
}

class TensorFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "warpstep-values-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
    path_ = directory_ / "in.safetensors";
    out_ = directory_ / "out.safetensors";
  }
  void TearDown() override { fs::remove_all(directory_); }

  template <class T>
  void put(StoredType type, const std::vector<T>& values, const Metadata& metadata = {}) const {
    write_safetensors(
        path_,
        std::vector<TensorToStore>{{"t", type, {values.size()}, std::as_bytes(std::span(values))}},
        metadata);
  }
  std::vector<float> values(const fs::path& path, const std::string& name) const {
    const SafetensorsFile file(path);
    return read_values(file, file.at(name));
  }
  // Like a checkpoint: weights, a count, and a moment.
  void put_checkpoint() const {
    const std::vector<TensorToStore> tensors = {
        {"module.fc.weight", StoredType::f32, {2, 2}, std::as_bytes(std::span(weights_))},
        {"module.fc.bias", StoredType::f64, {1}, std::as_bytes(std::span(&bias_, 1))},
        {"module.bn.num_batches_tracked", StoredType::i64, {}, std::as_bytes(std::span(&step_, 1))},
        {"optimizer.exp_avg.fc.weight",
         StoredType::f32,
         {2, 2},
         std::as_bytes(std::span(weights_))}};
    ValueChecksum checksum;
    checksum.add(weights_);
    write_safetensors(path_, tensors,
                      {{"warpstep.model", "toy"},
                       {"warpstep.progress", "{}"},
                       {"warpstep.checksum.module.fc.weight", checksum.text()},
                       {"author", "me"}});
  }

  fs::path directory_, path_, out_;
  std::array<float, 4> weights_ = {1, -2.5F, 3e-30F, 4e30F};
  double bias_ = 0.1;
  std::int64_t step_ = -7;
};

TEST_F(TensorFile, EveryTypeIsRead) {
  put(StoredType::f64, std::vector<double>{0.1, -1e300});
  EXPECT_EQ(values(path_, "t"), (std::vector<float>{0.1F, -infinite_value}));
  put(StoredType::f16, std::vector<std::uint16_t>{0x3c00, 0xc000});
  EXPECT_EQ(values(path_, "t"), (std::vector<float>{1, -2}));
  put(StoredType::bf16, std::vector<std::uint16_t>{0x3f80, 0xc000});
  EXPECT_EQ(values(path_, "t"), (std::vector<float>{1, -2}));
  put(StoredType::i8, std::vector<std::int8_t>{-128, 127});
  EXPECT_EQ(values(path_, "t"), (std::vector<float>{-128, 127}));
  put(StoredType::i16, std::vector<std::int16_t>{-300});
  EXPECT_EQ(values(path_, "t"), (std::vector<float>{-300}));
  put(StoredType::i64, std::vector<std::int64_t>{-7});
  EXPECT_EQ(values(path_, "t"), (std::vector<float>{-7}));
  put(StoredType::boolean, std::vector<std::uint8_t>{1, 0});
  EXPECT_EQ(values(path_, "t"), (std::vector<float>{1, 0}));
}

// More than one piece, far from zero.
TEST_F(TensorFile, StatisticsAreThoseOfTheFiniteValues) {
  std::vector<double> numbers(300001);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = 1e6 + (i % 2 == 0 ? 1.0 : -1.0);
  numbers[7] = std::numeric_limits<double>::quiet_NaN();
  numbers[200001] = numbers[200002] = -static_cast<double>(infinite_value);
  put(StoredType::f64, numbers);
  const SafetensorsFile file(path_);
  const TensorStatistics found = statistics(file, file.at("t"));
  EXPECT_EQ(found.nan, 1U);
  EXPECT_EQ(found.infinite, 2U);
  EXPECT_EQ(found.finite, 299998U);
  EXPECT_EQ(found.min, 1e6 - 1);
  EXPECT_EQ(found.max, 1e6 + 1);
  EXPECT_NEAR(found.mean, 1e6, 1e-5);
  EXPECT_NEAR(found.std, 1, 1e-9);
}

TEST_F(TensorFile, StatisticsOfLargeAndSmallNumbersAreFinite) {
  constexpr double most = std::numeric_limits<double>::max();
  for (const double size : {most, 1e200, 1e-200}) {
    put(StoredType::f64, std::vector<double>{-size, size, -size, size});
    const SafetensorsFile file(path_);
    const TensorStatistics found = statistics(file, file.at("t"));
    EXPECT_EQ(found.mean, 0) << size;
    EXPECT_DOUBLE_EQ(found.std, size);
  }
  put(StoredType::f64, std::vector<double>{1, 1 + 1e-9, 1e300, 3e300});
  const SafetensorsFile file(path_);
  const TensorStatistics found = statistics(file, file.at("t"));
  EXPECT_DOUBLE_EQ(found.mean, 1e300);
  EXPECT_DOUBLE_EQ(found.std, std::sqrt(1.5) * 1e300);
}

TEST_F(TensorFile, NoFiniteValueHasNoStatistics) {
  put(StoredType::f32, std::vector<float>{});
  const SafetensorsFile file(path_);
  EXPECT_EQ(statistics(file, file.at("t")).finite, 0U);
}

TEST_F(TensorFile, ADamagedTensorIsReported) {
  put_checkpoint();
  EXPECT_EQ(values(path_, "module.fc.weight")[1], -2.5F);
  std::string content = read_file(path_);
  content[SafetensorsFile(path_).at("module.fc.weight").offset] ^= 1;
  write_atomically(path_, content);
  EXPECT_THAT([&] { values(path_, "module.fc.weight"); },
              ThrowsMessage<DataError>(HasSubstr("wrong checksum")));
  EXPECT_THAT([&] { convert_safetensors(path_, out_, {}); },
              ThrowsMessage<DataError>(HasSubstr("wrong checksum")));
  EXPECT_FALSE(fs::exists(out_));
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), {}), 1) << "no temporary stays";
}

TEST_F(TensorFile, ACheckpointBecomesAStateDict) {
  put_checkpoint();
  const ConvertReport report = convert_safetensors(path_, out_,
                                                   {.type = StoredType::f16,
                                                    .drop_optimizer = true,
                                                    .strip_prefix = "module.",
                                                    .renames = {{"fc", "head"}}});
  EXPECT_EQ(report.tensors, 3U);
  EXPECT_EQ(report.dropped, 1U);
  EXPECT_EQ(report.stripped, 3U);
  EXPECT_EQ(report.renamed, 2U);
  EXPECT_EQ(report.converted, 2U);
  EXPECT_EQ(report.infinite, 1U);
  EXPECT_EQ(report.bytes, fs::file_size(out_));
  const SafetensorsFile file(out_);
  EXPECT_EQ(file.tensors()[0].name, "bn.num_batches_tracked") << "the widest first";
  EXPECT_EQ(file.tensors()[0].type, StoredType::i64);
  EXPECT_EQ(values(out_, "head.weight"), (std::vector<float>{1, -2.5F, 0, infinite_value}));
  EXPECT_EQ(values(out_, "head.bias"), (std::vector<float>{from_f16(to_f16(0.1F))}));
  EXPECT_EQ(file.metadata(),
            (Metadata{{"author", "me"}, {"format", "pt"}, {"warpstep.model", "toy"}}));
}

TEST_F(TensorFile, AveragesReplaceTheirWeightsAndZerosAreAdded) {
  const std::vector<float> weight{1, 2}, average{3, 4}, other{5};
  write_safetensors(
      path_, std::vector<TensorToStore>{
                 {"fc.weight", StoredType::f32, {2}, std::as_bytes(std::span(weight))},
                 {"head.weight", StoredType::f32, {1}, std::as_bytes(std::span(other))},
                 {"ema.fc.weight", StoredType::f32, {2}, std::as_bytes(std::span(average))}});
  const std::vector<StoredTensor> zeros{{"fc.bias", StoredType::f32, {3}, 0, 0}};
  const ConvertReport report = convert_safetensors(
      path_, out_,
      {.type = StoredType::f16, .drop_optimizer = true, .use_average = true, .zeros = zeros});
  EXPECT_EQ(report.averaged, 1U);
  EXPECT_EQ(report.averages, 1U);
  EXPECT_EQ(report.dropped, 0U);
  EXPECT_EQ(report.tensors, 3U);
  EXPECT_EQ(values(out_, "fc.weight"), average);
  EXPECT_EQ(values(out_, "head.weight"), other);
  EXPECT_EQ(values(out_, "fc.bias"), std::vector<float>(3, 0));
  EXPECT_EQ(SafetensorsFile(out_).at("fc.bias").type, StoredType::f16);
  convert_safetensors(path_, out_, {.drop_optimizer = true});
  EXPECT_EQ(values(out_, "fc.weight"), weight);
}

// A float is next to these doubles, or half-way between two numbers of 16 bits: rounding to it
// first rounds the wrong way.
TEST_F(TensorFile, DoublesAreRoundedOnce) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto converted = [&](StoredType type, const std::vector<double>& doubles) {
    put(StoredType::f64, doubles);
    const ConvertReport report = convert_safetensors(path_, out_, {.type = type});
    return std::pair(values(out_, "t"), report.infinite);
  };
  const auto [f16, beyond_f16] = converted(
      StoredType::f16, {65520 - 1e-9, -65520, 0x1p-25 * (1 + 0x1p-40), -0x1p-25,
                        1 + 0x1p-11 + 0x1p-30, 1 + 0x1p-11, -1 - 0x1p-11 - 0x1p-30, 1e-300, nan});
  EXPECT_EQ(f16[0], 65504);
  EXPECT_EQ(f16[1], -infinite_value);
  EXPECT_EQ(f16[2], 0x1p-24F);
  EXPECT_EQ(f16[3], 0);
  EXPECT_EQ(f16[4], 1 + 0x1p-10F);
  EXPECT_EQ(f16[5], 1);
  EXPECT_EQ(f16[6], -1 - 0x1p-10F);
  EXPECT_EQ(f16[7], 0);
  EXPECT_TRUE(std::isnan(f16[8]));
  EXPECT_EQ(beyond_f16, 1U);
  const auto [bf16, beyond_bf16] =
      converted(StoredType::bf16, {1 + 0x1p-8 + 0x1p-40, 1 + 0x1p-8, 1e300, infinite_value});
  EXPECT_EQ(bf16, (std::vector<float>{1 + 0x1p-7F, 1, infinite_value, infinite_value}));
  EXPECT_EQ(beyond_bf16, 1U);
  const auto [f32, beyond_f32] = converted(StoredType::f32, {0.1, 1e300, -infinite_value});
  EXPECT_EQ(f32, (std::vector<float>{0.1F, infinite_value, -infinite_value}));
  EXPECT_EQ(beyond_f32, 1U);
}

TEST_F(TensorFile, WithoutOptionsTheBytesStay) {
  put_checkpoint();
  convert_safetensors(path_, out_, {});
  const SafetensorsFile before(path_), after(out_);
  ASSERT_EQ(after.tensors().size(), before.tensors().size());
  for (const StoredTensor& tensor : before.tensors()) {
    std::vector<std::byte> a(tensor.bytes), b(tensor.bytes);
    before.read(tensor, a);
    after.read(after.at(tensor.name), b);
    EXPECT_EQ(a, b) << tensor.name;
    EXPECT_EQ(after.at(tensor.name).type, tensor.type);
    EXPECT_EQ(after.at(tensor.name).offset % size_bytes(tensor.type), 0U) << tensor.name;
  }
}

TEST_F(TensorFile, LargeTensorsPassInPieces) {
  std::vector<float> numbers(1'000'003);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i % 251);
  put(StoredType::f32, numbers);
  convert_safetensors(path_, out_, {.type = StoredType::bf16});
  EXPECT_EQ(SafetensorsFile(out_).at("t").bytes, 2 * numbers.size());
  EXPECT_EQ(values(out_, "t"), numbers);
  fs::rename(out_, path_);
  convert_safetensors(path_, out_, {});  // raw bytes
  EXPECT_EQ(values(out_, "t"), numbers);
}

TEST_F(TensorFile, RefusesConversionsThatCannotBeMeant) {
  put_checkpoint();
  const auto convert = [&](const fs::path& out, const ConvertOptions& options) {
    return [this, out, options] { convert_safetensors(path_, out, options); };
  };
  const fs::path link = directory_ / "link";
  fs::create_symlink(path_, link);
  for (const fs::path& same : {path_, link, directory_ / "." / "in.safetensors"})
    EXPECT_THAT(convert(same, {}), ThrowsMessage<UsageError>(HasSubstr("is the input file")));
  EXPECT_THAT(convert(out_, {.strip_prefix = "modul."}),
              ThrowsMessage<UsageError>(
                  AllOf(HasSubstr("begins with \"modul.\""), HasSubstr("\"module.fc.weight\""))));
  EXPECT_THAT(convert(out_, {.renames = {{"module.fc.wieght", "w"}}}),
              ThrowsMessage<UsageError>(HasSubstr("did you mean module.fc.weight?")));
  EXPECT_THAT(convert(out_, {.renames = {{"module.fc.weight", "module.fc.bias"}}}),
              ThrowsMessage<UsageError>(HasSubstr("two tensors are called \"module.fc.bias\"")));
  EXPECT_FALSE(fs::exists(out_));
  EXPECT_EQ(SafetensorsFile(path_).tensors().size(), 4U);
}

}  // namespace
}  // namespace warpstep
