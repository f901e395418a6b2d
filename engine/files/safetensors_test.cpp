#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <random>

#include "engine/core/error.h"
#include "engine/core/text.h"
#include "engine/files/safetensors.h"
#include "tests/largest_allocation.h"

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

// The same file, and each tensor is made once, after the one before it was written.
TEST_F(SafetensorsTest, TensorsMayBeMadeWhenTheyAreWritten) {
  const std::vector<float> first{1, 2, 3, 4}, second{5, 6};
  std::string made;
  const auto make = [&](char name, const std::vector<float>& values) {
    return [&made, &values, name](std::span<float> room) {
      made += name;
      ASSERT_EQ(room.size(), values.size());
      std::ranges::copy(values, room.begin());
    };
  };
  write_safetensors(path_, std::vector<TensorToStore>{
                               {"a", StoredType::f32, {2, 2}, std::as_bytes(std::span(first))},
                               {"b", StoredType::f32, {2}, std::as_bytes(std::span(second))}});
  const std::string whole = read_file(path_);
  const std::vector<TensorToStore> later{{"a", StoredType::f32, {2, 2}, {}, make('a', first)},
                                         {"b", StoredType::f32, {2}, {}, make('b', second)}};
  write_safetensors(path_, later);
  EXPECT_EQ(read_file(path_), whole);
  EXPECT_EQ(made, "ab");
}

// What is known of the values only when they are written stands in the header all the same.
TEST_F(SafetensorsTest, MetadataMayTellOfTheValuesWritten) {
  const std::vector<TensorToStore> tensors{
      {"a", StoredType::f32, {2}, {}, [](auto values) { values[0] = 1, values[1] = 2; }}};
  const auto sum = [](const std::string& text) {
    return [text](const TensorToStore& tensor, std::span<const float> values, Metadata& metadata) {
      EXPECT_EQ(tensor.name, "a");
      EXPECT_THAT(values, ElementsAre(1, 2));
      metadata["sum"] = text;
    };
  };
  write_safetensors(path_, tensors, {{"sum", "?"}}, sum("3"));
  const std::string with_sum = read_file(path_);
  EXPECT_EQ(SafetensorsFile(path_).metadata().at("sum"), "3");
  write_safetensors(path_, tensors, {{"sum", "3"}});
  EXPECT_EQ(read_file(path_), with_sum);
  EXPECT_THAT(
      [&] {
        write_safetensors(path_, tensors, {{"sum", "?"}}, sum("a longer text"));
      },
      ThrowsMessage<UsageError>(HasSubstr("changed its length")));
  EXPECT_EQ(read_file(path_), with_sum) << "a failure leaves the old file";
}

// Large values are looked at in another thread while they are written.
TEST_F(SafetensorsTest, MetadataMayTellOfLargeValues) {
  constexpr std::uint64_t count = 700'001;
  std::vector<TensorToStore> tensors;
  for (const char* name : {"a", "b"})
    tensors.push_back({name, StoredType::f32, {count}, {}, [name](auto values) {
                         std::ranges::fill(values, name[0] == 'a' ? 1.0F : 2.0F);
                       }});
  const auto first = [](const TensorToStore& tensor, std::span<const float> values, Metadata& m) {
    EXPECT_TRUE(std::ranges::all_of(values, [&](float value) { return value == values[0]; }));
    m[tensor.name + "0"] = values[0] == 1 ? "1" : "2";
  };
  write_safetensors(path_, tensors, {{"a0", "?"}, {"b0", "?"}}, first);
  EXPECT_EQ(SafetensorsFile(path_).metadata().at("a0"), "1");
  EXPECT_EQ(SafetensorsFile(path_).metadata().at("b0"), "2");
  const auto fails = [](const TensorToStore&, std::span<const float>, Metadata&) {
    throw DataError("not these");
  };
  EXPECT_THAT([&] { write_safetensors(path_, tensors, {}, fails); },
              ThrowsMessage<DataError>(HasSubstr("not these")));
  EXPECT_EQ(SafetensorsFile(path_).tensors().size(), 2U) << "a failure leaves the old file";
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

TEST_F(SafetensorsTest, RefusesToWriteFilesThatItWouldRefuseToRead) {
  const auto write = [&](const TensorToStore& tensor) {
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

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;
using testing_support::forget_allocations;
using testing_support::largest_allocation_bytes;

namespace fs = std::filesystem;

class HostileSafetensorsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "warpstep-safetensors-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
    path_ = directory_ / "file.safetensors";
  }
  void TearDown() override { fs::remove_all(directory_); }

  // Without the fsync of write_atomically: thousands of these files are written.
  void put_bytes(std::string_view content) const {
    std::ofstream(path_, std::ios::binary) << content;
  }
  // A file with this header and this many data bytes; `length` is the length that the file claims.
  void put(std::string_view header, std::size_t data_bytes, std::uint64_t length) const {
    std::string content(8, '\0');
    std::memcpy(content.data(), &length, 8);
    put_bytes(content.append(header).append(data_bytes, 'd'));
  }
  void put(std::string_view header, std::size_t data_bytes = 0) const {
    put(header, data_bytes, header.size());
  }
  // Two tensors and metadata, 24 bytes of data.
  void put_sample() const {
    const std::array<std::byte, 16> bytes{};
    const std::vector<TensorToStore> tensors = {
        {"conv.weight", StoredType::f32, {2, 2}, bytes},
        {"step", StoredType::i64, {}, std::span(bytes).first(8)}};
    write_safetensors(path_, tensors, {{"format", "pt"}});
  }
  void expect_refused(std::string_view header, std::size_t data_bytes, const char* part) const {
    put(header, data_bytes);
    EXPECT_THAT([&] { SafetensorsFile file(path_); },
                ThrowsMessage<DataError>(AllOf(StartsWith(path_.string()), HasSubstr(part))))
        << header;
  }

  fs::path directory_, path_;
};

TEST_F(HostileSafetensorsTest, RefusesEveryTruncation) {
  put_sample();
  const std::string content = read_file(path_);
  for (std::size_t bytes = 0; bytes < content.size(); ++bytes) {
    put_bytes(std::string_view(content).substr(0, bytes));
    EXPECT_THAT([&] { SafetensorsFile file(path_); },
                ThrowsMessage<DataError>(StartsWith(path_.string())))
        << bytes;
  }
  put_bytes(content + "x");
  EXPECT_THAT([&] { SafetensorsFile file(path_); },
              ThrowsMessage<DataError>(HasSubstr("1 bytes after the last tensor")));
}

TEST_F(HostileSafetensorsTest, RefusesHeaderLengthsThatLie) {
  forget_allocations();
  for (const std::uint64_t length :
       {std::uint64_t{3}, std::uint64_t{100'000'001}, ~std::uint64_t{0}, ~std::uint64_t{7}}) {
    put("{}", 0, length);
    EXPECT_THAT([&] { SafetensorsFile file(path_); },
                ThrowsMessage<DataError>(HasSubstr(std::to_string(length))));
  }
  put("{}", 0, 100'000'001);
  fs::resize_file(path_, 200'000'000);  // sparse: the bytes exist, but the limit refuses them
  EXPECT_THAT([&] { SafetensorsFile file(path_); },
              ThrowsMessage<DataError>(HasSubstr("at most 100000000")));
  EXPECT_LT(largest_allocation_bytes(), 100'000U);
}

// A path can be any text; pasting the command must not run it.
TEST_F(HostileSafetensorsTest, QuotesThePathsOfTheCommandThatConverts) {
  const fs::path path = directory_ / "a';touch x;echo '\"$(touch x).pt";
  std::ofstream(path) << std::string("PK\3\4", 4) << std::string(100, '\0');
  const std::string out = fs::path(path).replace_extension(".safetensors").string();
  EXPECT_THAT([&] { SafetensorsFile file(path); },
              ThrowsMessage<DataError>(HasSubstr("torch.load(sys.argv[1], ")));
  EXPECT_THAT([&] { SafetensorsFile file(path); },
              ThrowsMessage<DataError>(
                  HasSubstr("})' " + shell_word(path.string()) + " " + shell_word(out) + "; ")));
}

// Files of torch.save() are never unpickled; the message has the command that converts them.
TEST_F(HostileSafetensorsTest, NamesTheWayOutOfPicklesAndZips) {
  for (const std::string_view begin :
       {std::string_view("PK\3\4\0\0\x08\x08\0\0", 10), std::string_view("\x80\x02\x8a\nl\xfc\x9c"
                                                                         "F\xf9 ",
                                                                         10)}) {
    put_bytes(std::string(begin) + std::string(100, '\0'));
    EXPECT_THAT([&] { SafetensorsFile file(path_); },
                ThrowsMessage<DataError>(
                    AllOf(StartsWith(path_.string()), HasSubstr("as torch.save() writes"),
                          HasSubstr("v.contiguous().clone() for k, v in"),
                          HasSubstr("weights_only=True"), HasSubstr("[\"model\"]"))));
  }
}

// The JSON beside the shards of a large model has the name that people try first.
TEST_F(HostileSafetensorsTest, SaysThatAFileIsJsonAndHowToMergeShards) {
  const auto refused = [&](const fs::path& path, const std::string& text) {
    std::ofstream(path) << text;
    try {
      SafetensorsFile file(path);
    } catch (const DataError& error) {
      fs::remove(path);
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  const fs::path index = path_.string() + ".index.json";
  const std::string map = R"({"weight_map": {"a": "model-00001-of-00002.safetensors"}})";
  EXPECT_THAT(
      refused(index, map),
      AllOf(StartsWith(index.string() + ": is JSON that lists the files of sharded weights"),
            HasSubstr("merge them"), HasSubstr("[\"weight_map\"].values())"),
            EndsWith(index.string() + " " + (index.parent_path() / "").string())));
  EXPECT_EQ(refused(path_, map), path_.string() +
                                     ": is JSON, not safetensors; give the file that "
                                     "holds the weights");
  EXPECT_EQ(refused(path_, "{\n  \"metadata\": 1}").substr(path_.string().size(), 9), ": is JSON");
}

TEST_F(HostileSafetensorsTest, RefusesHeadersThatAreNoHeader) {
  for (const char* header : {"", " ", "{", "nul", "{} {}", "{\"a\":}", "{\"\xFF\":{}}", "\xEF\xBB"})
    expect_refused(header, 0, "not valid JSON");
  expect_refused({"{}\0x", 4}, 0, "byte 10: the header is not valid JSON: it has a zero byte");
  expect_refused("[]", 0, "a list where the format requires an object");
  expect_refused("7", 0, "a number where the format requires an object");
  expect_refused(R"({"a":7})", 0, "tensor \"a\" has a number");
  expect_refused(R"({"__metadata__":{"a":7}})", 0, "the metadata has a number");
  expect_refused(R"({"__metadata__":{"a":"","a":""}})", 0, "the key \"a\" twice");
  expect_refused(R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,1],"x":0}})", 1, "field \"x\"");
  expect_refused(R"({"a":{"dtype":"U8","dtype":"U8"}})", 1, "\"dtype\" twice");
  expect_refused(R"({"a":{"dtype":"U8","shape":[]}})", 1, "no data_offsets");
  expect_refused(R"({"a":{"dtype":7}})", 1, "where the format requires a string");
  expect_refused(R"({"a":{"shape":[[1]]}})", 1, "a list where the format requires a whole number");
  expect_refused(R"({"a":{"shape":[-1]}})", 1, "a negative number");
  expect_refused(R"({"a":{"shape":[1.5]}})", 1, "not a 64-bit integer");
  expect_refused(R"({"a":{"shape":[18446744073709551616]}})", 1, "not a 64-bit integer");
  expect_refused(R"({"a":{"dtype":"F99","shape":[],"data_offsets":[0,1]}})", 1, "dtype \"F99\"");
  const std::string one = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  expect_refused("{" + one + "," + one + "}", 1, "tensor \"a\" has its name twice");
}

TEST_F(HostileSafetensorsTest, NamesTheByteOfTheHeader) {
  expect_refused(R"({"a":{"dtype":7}})", 0, "byte 23: tensor \"a\"");
}

TEST_F(HostileSafetensorsTest, RefusesSizesThatDoNotFit) {
  const auto with = [&](const char* shape, const char* offsets, const char* part) {
    expect_refused(
        fmt::format(R"({{"w":{{"dtype":"F32","shape":{},"data_offsets":{}}}}})", shape, offsets), 8,
        part);
  };
  with("[2]", "[0,7]", "takes 8");
  with("[2]", "[8,0]", "must be [begin, end]");
  with("[2]", "[0]", "must be [begin, end]");
  with("[2]", "[0,8,8]", "more than 2");
  with("[4611686018427387904]", "[0,0]", "does not fit 64 bits");
  with("[4294967296,4294967296]", "[0,8]", "does not fit 64 bits");
  with("[4]", "[0,16]", "truncated");
  with("[2]", "[18446744073709551608,18446744073709551615]", "takes 8");
  with("[1]", "[18446744073709551611,18446744073709551615]", "truncated");
  with("[1]", "[0,4]", "4 bytes after the last tensor");
  with("[1]", "[4,8]", "a hole");
  with("[0,18446744073709551615]", "[0,0]", "8 bytes after the last tensor");
  with("[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,4]", "than 32");
}

TEST_F(HostileSafetensorsTest, RefusesOverlapsAndHoles) {
  const auto two = [](int begin, int end) {
    return fmt::format(R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":[0,4]}},
                            "b":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}}}})",
                       end - begin, begin, end);
  };
  expect_refused(two(3, 8), 8, "they overlap");
  expect_refused(two(0, 8), 8, "they overlap");
  expect_refused(two(5, 8), 8, "a hole");
  put(two(4, 8), 8);
  EXPECT_EQ(SafetensorsFile(path_).tensors().size(), 2U);
}

TEST_F(HostileSafetensorsTest, DeepNestingAndLongNamesCostNothing) {
  forget_allocations();
  expect_refused(R"({"a":{"shape":)" + std::string(1'000'000, '['), 0, "a list where");
  put("{\"" + std::string(1'000'000, 'n') + "\":7}");
  try {
    SafetensorsFile file(path_);
    FAIL();
  } catch (const DataError& error) {
    EXPECT_LT(std::strlen(error.what()), 400U);
  }
  EXPECT_LT(largest_allocation_bytes(), 4'000'000U);
}

// One of the ways in which a file is damaged, on disk or by an attacker.
std::string mutated(std::string content, std::mt19937& random) {
  const auto below = [&](std::size_t n) { return random() % n; };
  static constexpr std::string_view digits = "0123456789\"[]{},:-.eE";
  for (std::size_t edits = 1 + below(3); edits > 0 && !content.empty(); --edits) {
    const std::size_t at = below(content.size());
    switch (below(5)) {
      case 0: content[at] = static_cast<char>(random()); break;
      case 1: content[at] = digits[below(digits.size())]; break;
      case 2: content.insert(at, 1, digits[below(digits.size())]); break;
      case 3: content.erase(at, 1 + below(16)); break;
      default: content.insert(at, content.substr(below(content.size()), below(32)));
    }
    // Half of the files have the correct length again, so that the edit reaches the parser.
    if (content.size() >= 32 && below(2) == 0) {
      const std::uint64_t length = content.size() - 8 - 24;
      std::memcpy(content.data(), &length, 8);
    }
  }
  return content;
}

TEST_F(HostileSafetensorsTest, NoMutationCrashesOrAllocatesMuch) {
  put_sample();
  const std::string good = read_file(path_);
  std::mt19937 random(1);
  int accepted = 0, refused = 0;
  forget_allocations();
  for (int i = 0; i < 5000; ++i) {
    const std::string content = mutated(good, random);
    put_bytes(content);
    try {
      const SafetensorsFile file(path_);
      for (const StoredTensor& tensor : file.tensors()) {
        std::vector<std::byte> out(tensor.bytes);
        ASSERT_LE(tensor.offset + tensor.bytes, content.size());
        file.read(tensor, out);
      }
      ++accepted;
    } catch (const DataError& error) {
      ASSERT_THAT(error.what(), StartsWith(path_.string()));
      ++refused;
    }
  }
  EXPECT_GT(accepted, 100);  // edits of the data and of names are no errors
  EXPECT_GT(refused, 1000);
  EXPECT_LT(largest_allocation_bytes(), 100'000U);
}

}  // namespace
}  // namespace warpstep
