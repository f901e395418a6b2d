#include "data/formats/tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <optional>

#include "data/text/tokenizer.h"
#include "engine/files/safetensors.h"
#include "tests/data_testing.h"
#include "tests/largest_allocation.h"
#include "tests/npy_file.h"

namespace warpstep::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::message_of;
using testing::put;
using testing::TemporaryFolder;
using testing::write_npy;
using Bytes = std::vector<std::uint8_t>;
using Narrow = std::vector<std::uint16_t>;
using Wide = std::vector<std::uint32_t>;

template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// A .bin file of llm.c.
template <class T>
Bytes llmc(std::int32_t magic, std::int32_t version, std::int32_t count,
           const std::vector<T>& ids) {
  std::vector<std::int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  Bytes file = bytes_of(header);
  const Bytes rest = bytes_of(ids);
  file.insert(file.end(), rest.begin(), rest.end());
  return file;
}
Bytes gpt2(const Narrow& ids) {
  return llmc(20240520, 1, static_cast<std::int32_t>(ids.size()), ids);
}

std::vector<std::int32_t> all_of(const TokenSet& set) {
  std::vector<std::int32_t> ids(set.size());
  set.read(0, ids);
  return ids;
}

class Tokens : public ::testing::Test {
 protected:
  template <class T>
  void write(const std::string& file, StoredType type, const std::vector<T>& ids,
             const Metadata& metadata = {}) {
    const std::vector<TensorToStore> tensors{
        {"token", type, {ids.size()}, std::as_bytes(std::span(ids))}};
    write_safetensors(folder_ / file, tensors, metadata);
  }
  void write_npy_tokens(const std::string& file, const Narrow& ids) {
    write_npy(folder_ / file, StoredType::u16, std::vector<std::uint64_t>{ids.size()},
              bytes_of(ids));
  }
  TokenData open(const TokenOptions& options = {.val_split = 0}) {
    return open_tokens(folder_.path(), options);
  }
  template <class E = DataError>
  std::string refusal(const TokenOptions& options = {.val_split = 0}) {
    return message_of<E>([&] { open(options); });
  }
  std::string bin_refusal(const Bytes& file) {
    put(folder_ / "train.bin", file);
    return refusal();
  }

  TemporaryFolder folder_;
};

TEST_F(Tokens, HaveAFingerprintOfAllTheirParts) {
  const auto fingerprint = [&](const Narrow& ids) {
    put(folder_ / "train.bin", bytes_of(ids));
    return open().train.fingerprint();
  };
  // All of few, and of more 65,536 at equal distances.
  for (const std::size_t size : {3U, 65536U, 131072U}) {
    Narrow ids(size);
    for (std::size_t i = 0; i < size; ++i) ids[i] = static_cast<std::uint16_t>(i * i % 1000);
    Hash hash;
    hash.add(std::uint64_t{size});
    for (std::size_t i = 0; i<size; i += size> 65536 ? 2 : 1) hash.add(std::uint64_t{ids[i]});
    EXPECT_EQ(fingerprint(ids), hash.value()) << size;
  }
  Narrow ids(131071);
  const std::uint64_t before = fingerprint(ids);
  ids[131068] = ids[131069] = 1;
  EXPECT_NE(fingerprint(ids), before) << "at the end";
}

// Of this thread, since it began: syscr of /proc; nothing where the system does not count them.
std::optional<std::uint64_t> read_calls() {
  std::ifstream file("/proc/thread-self/io");
  for (std::string name; file >> name;)
    if (std::uint64_t calls = 0; name == "syscr:" && file >> calls) return calls;
  return {};
}

// Tokens that are close together are read in pieces, the others one by one.
TEST_F(Tokens, TakeFewReadsForTheirFingerprint) {
  const auto picked = [](const TokenSet& set) {  // one by one
    Hash hash;
    hash.add(set.size());
    for (std::uint64_t i = 0; i < 65536; ++i)
      hash.add(std::uint64_t{set.token(i * set.size() / 65536)});
    return hash.value();
  };
  const auto set_of = [](const std::vector<std::string>& paths, StoredType type, Io io) {
    std::vector<TokenSet::Part> parts;
    for (const std::string& path : paths) {
      const auto file = std::make_shared<MappedFile>(path, io);
      parts.push_back({file, 2, (file->bytes() - 2) / size_bytes(type)});
    }
    return TokenSet(parts, TokenFormat::npy, type);
  };
  Narrow ids((std::size_t{2} << 20) + 77);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::uint16_t>(i * 40503 >> 7);
  put(folder_ / "a", bytes_of(ids));
  ids.resize(70001);
  put(folder_ / "b", bytes_of(ids));
  put(folder_ / "large", bytes_of(ids));
  std::filesystem::resize_file(folder_ / "large", std::uint64_t{3} << 29);  // sparse
  const TokenSet large = set_of({folder_ / "large"}, StoredType::u16, Io::pread);
  testing_support::forget_allocations();
  const std::uint64_t of_large = large.fingerprint();
  EXPECT_LT(testing_support::largest_allocation_bytes(), 4096U);
  EXPECT_EQ(of_large, picked(large));
  for (const StoredType type : {StoredType::u16, StoredType::u32})
    for (const auto& paths : {std::vector{folder_ / "a"}, {folder_ / "a", folder_ / "b"}}) {
      const TokenSet set = set_of(paths, type, Io::pread);
      EXPECT_EQ(set.fingerprint(), picked(set));
      EXPECT_EQ(set.fingerprint(), set_of(paths, type, Io::mmap).fingerprint());
      const auto before = read_calls(), idle = read_calls();
      set.fingerprint();
      const auto after = read_calls();
      if (before) {
        EXPECT_LE((*after - *idle) - (*idle - *before),
                  (set.size() * size_bytes(type) >> 20) + 1 + paths.size());
      }
    }
  if (!read_calls()) GTEST_SKIP() << "the number of reads: this system does not count them";
}

TEST_F(Tokens, ReadsEveryFormatAsTheSameIds) {
  const Narrow train{5, 65535, 7, 0};
  const Narrow val{9, 1};
  for (const Io io : {Io::mmap, Io::pread}) {
    const auto expect = [&](const char* format) {
      ASSERT_TRUE(has_tokens(folder_.path()));
      const TokenData data = open({.io = io, .vocabulary = 65536});
      EXPECT_EQ(name(data.train.format()), format);
      EXPECT_THAT(all_of(data.train), ElementsAre(5, 65535, 7, 0));
      EXPECT_THAT(all_of(data.val), ElementsAre(9, 1));
      EXPECT_EQ(data.train.largest(), 65535U);
      EXPECT_EQ(data.train.token(2), 7U);
      EXPECT_NE(data.train.fingerprint(), data.val.fingerprint());
      data.train.will_need(1, 100);
      data.train.check_unchanged();
      std::filesystem::remove_all(folder_.path());
      std::filesystem::create_directory(folder_.path());
    };
    EXPECT_FALSE(has_tokens(folder_.path()));
    write("train.safetensors", StoredType::u16, train);
    write("val.safetensors", StoredType::u32, Wide{9, 1});
    expect("safetensors");
    write_npy_tokens("train.npy", train);
    write_npy_tokens("test-tokens.npy", val);
    expect("npy");
    put(folder_ / "train.bin", gpt2(train));
    put(folder_ / "val.bin", llmc(20240801, 7, 2, Wide{9, 1}));
    std::filesystem::create_directory(folder_ / "notes.bin");
    EXPECT_THAT(refusal(TokenOptions{.io = io, .vocabulary = 65536}),
                HasSubstr("has a vocabulary of 128256 (the header of "));
    put(folder_ / "val.bin", gpt2(val));
    expect("llm.c");
    put(folder_ / "train.bin", bytes_of(train));
    put(folder_ / "val.bin", bytes_of(val));
    expect("headless");
  }
}

TEST_F(Tokens, KnowWhetherTheyHaveAnId) {
  TokenData data;
  std::string ids(std::size_t{6} << 20, '\1');  // 3 Mi tokens of 257
  ids[ids.size() - 2] = 5;
  put(folder_ / "long.bin", ids);
  data = open_tokens(folder_ / "long.bin", {.val_split = 0});
  EXPECT_TRUE(data.train.has(257));
  EXPECT_TRUE(data.train.has(256 + 5));
  EXPECT_FALSE(data.train.has(5));
  EXPECT_FALSE(data.train.part(0, data.train.size() - 1).has(256 + 5));
  EXPECT_FALSE(TokenSet().has(0));
}

TEST_F(Tokens, JoinsShards) {
  put(folder_ / "web_train_000001.bin", gpt2({1, 2, 3}));
  put(folder_ / "web_train_000002.bin", gpt2({4}));
  put(folder_ / "web_train_000010.bin", gpt2({5, 6}));
  put(folder_ / "web_val.bin", gpt2({7}));
  const TokenData data = open({});
  EXPECT_EQ(data.vocabulary, 50257);
  EXPECT_THAT(data.vocabulary_from, HasSubstr("the header of "));
  EXPECT_THAT(data.warnings, IsEmpty());
  EXPECT_THAT(all_of(data.train), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(data.train.paths().size(), 3U);
  EXPECT_EQ(data.train.token(3), 4U);
  std::vector<std::int32_t> ids(3);
  data.train.read(2, ids);
  EXPECT_THAT(ids, ElementsAre(3, 4, 5));
  EXPECT_THAT(all_of(data.train.part(2, 3)), ElementsAre(3, 4, 5));
  EXPECT_THAT(message_of([&] { data.train.read(4, ids); }),
              AllOf(HasSubstr("has 6 tokens, too few for 3 from number 4 on")));
  EXPECT_THROW(data.train.part(4, 3), UsageError);

  put(folder_ / "other_train.bin", gpt2({1}));
  EXPECT_THAT(refusal(), HasSubstr("holds the tokens of both other and web"));
  std::filesystem::remove(folder_ / "other_train.bin");
  put(folder_ / "web_train_000002.bin", llmc(20240801, 7, 1, Wide{4}));
  EXPECT_THAT(refusal(), AllOf(HasSubstr("web_train_000002.bin: has tokens of U32, but"),
                               HasSubstr("web_train_000001.bin has U16")));
  put(folder_ / "web_train_000002.bin", bytes_of(Narrow{4}));
  EXPECT_THAT(refusal(), HasSubstr("web_train_000002.bin: has no header of llm.c, which each"));
}

TEST_F(Tokens, SaysThatItReadsAllOfLargeFiles) {
  put(folder_ / "tokens.bin", bytes_of(Narrow{0, 1, 9, 3, 4, 5, 6, 7, 8, 2}));
  const std::string file = folder_ / "tokens.bin";
  std::vector<std::string> notes;
  TokenOptions options{.val_split = 0,
                       .note = [&](const std::string& note) { notes.push_back(note); },
                       .noted_bytes = 20};
  const TokenData data = open_tokens(file, options);
  EXPECT_THAT(notes, ElementsAre(HasSubstr("reading all 10 tokens for the largest id")));
  EXPECT_EQ(data.largest_of_train, 9U);
  options.vocabulary = 12;  // known: nothing is read
  EXPECT_FALSE(open_tokens(file, options).largest_of_train);
  options.vocabulary = 0;
  options.noted_bytes = 21;
  options.val_split = 0.1;  // a part's largest id is not known
  EXPECT_FALSE(open_tokens(file, options).largest_of_train);
  EXPECT_EQ(notes.size(), 1U);
}

TEST_F(Tokens, TakesValidationFromTheEndOfASingleFile) {
  put(folder_ / "tokens.bin", bytes_of(Narrow{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  const std::string file = folder_ / "tokens.bin";
  EXPECT_TRUE(has_tokens(file));
  EXPECT_FALSE(has_tokens(folder_ / "none.bin"));
  const TokenData data = open_tokens(file, {.val_split = 0.25});
  EXPECT_THAT(all_of(data.train), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(all_of(data.val), ElementsAre(8, 9));
  EXPECT_EQ(data.vocabulary, 10);
  EXPECT_EQ(data.vocabulary_from, "the largest id");
  EXPECT_THAT(data.warnings, ElementsAre(HasSubstr("tokens.bin: has no header; read as 2-byte"),
                                         HasSubstr("tokens.bin")));
  EXPECT_EQ(open_tokens(file, {.val_split = 0}).val.size(), 0U);
  EXPECT_THAT(message_of([&] { open_tokens(file); }),
              HasSubstr("has no tokens for validation (val.*); take the last tenth"));
  EXPECT_THAT(message_of([&] { open_tokens(file, {.val_split = 0.01}); }),
              HasSubstr("--val-split 0.01 of 10 tokens leaves no tokens for validation"));
  EXPECT_THROW(open_tokens(file, {.val_split = 1.0}), UsageError);
  put(folder_ / "text.txt", std::string("text"));
  EXPECT_THAT(message_of([&] { open_tokens(folder_ / "text.txt"); }),
              HasSubstr("is neither a folder nor a file of tokens"));
  EXPECT_THAT(message_of([&] { open_tokens(folder_ / "none"); }), HasSubstr("no such file or"));
}

TEST_F(Tokens, MayBeForValidationOnly) {
  const TokenOptions without{.needs_train = false};
  EXPECT_THAT(refusal(without), HasSubstr("no train.safetensors"));
  write("val.safetensors", StoredType::u16, Narrow{1, 2, 1}, {{"vocabulary", "3"}});
  EXPECT_THAT(refusal({}), HasSubstr("has no tokens to train on: no train.safetensors"));
  const TokenData data = open(without);
  EXPECT_EQ(data.train.size(), 0U);
  EXPECT_THAT(all_of(data.val), ElementsAre(1, 2, 1));
  EXPECT_EQ(data.vocabulary, 3);
  EXPECT_EQ(data.vocabulary_from, "the header of " + (folder_ / "val.safetensors"));
  EXPECT_THAT(refusal({.vocabulary = 2, .needs_train = false}),
              HasSubstr("val.safetensors: has a vocabulary of 3"));
}

TEST_F(Tokens, ChecksIdsAgainstTheVocabulary) {
  write("train.safetensors", StoredType::u16, Narrow{1, 2, 300, 3}, {{"vocabulary", "300"}});
  const TokenData data = open();
  EXPECT_EQ(data.vocabulary, 300);
  std::vector<std::int32_t> ids(2);
  data.train.read(0, ids);
  EXPECT_THAT(message_of([&] { data.train.read(1, ids); }),
              AllOf(HasSubstr("train.safetensors: byte "),
                    HasSubstr("token 2 is 300, but ids must be below 300, the size of the")));
  EXPECT_EQ(open({.val_split = 0, .vocabulary = 400}).train.vocabulary(), 400);
  EXPECT_THAT(refusal({.val_split = 0, .vocabulary = 200}),
              HasSubstr("has a vocabulary of 300 (the header of"));
  write("train.safetensors", StoredType::u16, Narrow{1}, {{"vocabulary", "-3"}});
  EXPECT_THAT(refusal(), HasSubstr("the metadata's vocabulary is '-3', but must be a number"));
  write("train.safetensors", StoredType::u32, Wide{1, 0x80000000});
  EXPECT_THAT(refusal(), HasSubstr("the largest token is 2147483648; at most 2^31 - 1"));
  const TokenSet all = open({.val_split = 0, .vocabulary = 0x7fffffff}).train;
  EXPECT_THAT(message_of([&] { all.read(0, ids); }), HasSubstr("token 1 is 2147483648, but"));
}

TEST_F(Tokens, TheTokenizerDecidesTheVocabulary) {
  put(folder_ / "train.bin", gpt2({1, 0, 2}));
  save_tokenizer(*make_character_tokenizer(U"abc"), folder_ / "tokenizer.json");
  for (const std::string& spec : {folder_.path(), folder_ / "train.bin"}) {
    const TokenData data = open_tokens(spec, {.val_split = 0});
    EXPECT_EQ(data.vocabulary, 3);
    EXPECT_EQ(data.tokenizer, folder_ / "tokenizer.json");
    EXPECT_EQ(data.vocabulary_from, folder_ / "tokenizer.json");
    EXPECT_EQ(data.tokenizer_name, "char");
    EXPECT_EQ(data.train.vocabulary(), 3);
  }
  put(folder_ / "tokenizer.json", std::string("{}"));
  EXPECT_THAT(refusal(), HasSubstr("tokenizer.json: has no 'model'"));
}

// As Llama's: training needs no tokenizer.
TEST_F(Tokens, AreUsedWithoutATokenizerThatIsNotSupported) {
  put(folder_ / "train.bin", llmc(20240801, 7, 3, Wide{1, 128000, 2}));
  put(folder_ / "tokenizer.json",
      std::string(R"({"added_tokens": [], "model": {"type": "BPE", "ignore_merges": true}})"));
  for (const std::string& spec : {folder_.path(), folder_ / "train.bin"}) {
    const TokenData data = open_tokens(spec, {.val_split = 0});
    EXPECT_EQ(data.vocabulary, 128256);
    EXPECT_EQ(data.vocabulary_from, "the header of " + (folder_ / "train.bin"));
    EXPECT_EQ(data.tokenizer, std::nullopt);
    EXPECT_EQ(data.unused_tokenizer, folder_ / "tokenizer.json");
    EXPECT_THAT(data.warnings,
                ElementsAre(AllOf(HasSubstr("tokenizer.json: has a 'ignore_merges', which is not"),
                                  HasSubstr("it is not used"), HasSubstr("--ids"))));
  }
  put(folder_ / "tokenizer.json", std::string(R"({"added_tokens": [], "model": {"typ)"));
  EXPECT_THAT(refusal(), HasSubstr("tokenizer.json: byte 36: is not JSON; copy it again"));
}

TEST_F(Tokens, RefusesBrokenBinFiles) {
  EXPECT_THAT(bin_refusal(llmc(20240326, 3, 1, Narrow{1})),
              HasSubstr("byte 0: has llm.c's magic number 20240326, which is not that of tokens"));
  EXPECT_THAT(bin_refusal(llmc(20240520, 2, 1, Narrow{1})),
              HasSubstr("byte 4: version 2 of magic number 20240520; only version 1 is supported"));
  EXPECT_THAT(bin_refusal(llmc(20240801, 1, 1, Wide{1})), HasSubstr("only version 7 is supported"));
  EXPECT_THAT(bin_refusal(llmc(20240520, 1, 0, Narrow{})), HasSubstr("announces 0 tokens"));
  EXPECT_THAT(bin_refusal(llmc(20240520, 1, -1, Narrow{})), HasSubstr("announces -1 tokens"));
  EXPECT_THAT(bin_refusal(llmc(20240520, 1, 3, Narrow{1, 2})),
              AllOf(HasSubstr("train.bin: byte 8: the header announces 3 tokens of 2 bytes each"),
                    HasSubstr("a file of 1030 bytes, but it has 1028; copy it again")));
  EXPECT_THAT(bin_refusal(llmc(20240520, 1, 1, Narrow{1, 2})), HasSubstr("but it has 1028"));
  Bytes cut = gpt2({1});
  cut.resize(12);
  EXPECT_THAT(bin_refusal(cut), HasSubstr("but it has 12"));
  EXPECT_THAT(bin_refusal({}), HasSubstr("its 0 bytes are not a whole number of 2-byte tokens"));
  EXPECT_THAT(bin_refusal({1, 2, 3}), HasSubstr("its 3 bytes are not"));
}

TEST_F(Tokens, RefusesOtherTensorsAndFolders) {
  EXPECT_THAT(refusal(), HasSubstr("has no tokens to train on: no train.safetensors"));
  const auto npy = [&](StoredType type, const std::vector<std::uint64_t>& shape,
                       const Bytes& bytes) {
    write_npy(folder_ / "train.npy", type, shape, bytes);
    return refusal();
  };
  EXPECT_THAT(
      npy(StoredType::i64, {1}, Bytes(8)),
      AllOf(HasSubstr("tokens are I64 [1], but must be U16"), HasSubstr("a.astype(numpy.uint16)")));
  EXPECT_THAT(npy(StoredType::u16, {2, 2}, Bytes(8)), HasSubstr("U16 [2,2]"));
  EXPECT_THAT(npy(StoredType::u16, {0}, {}), HasSubstr("n at least 1"));
  write_npy_tokens("train.npy", {1, 2});
  write_npy_tokens("val.npy", {1, 2});
  EXPECT_THAT(
      refusal<UsageError>({.val_split = 0.5}),
      AllOf(HasSubstr("has its own validation tokens"), HasSubstr("leave --val-split out")));
  write("train.safetensors", StoredType::u16, Narrow{1});
  EXPECT_THAT(refusal(), HasSubstr("holds the train split more than once"));
  std::filesystem::remove(folder_ / "train.npy");
  write_npy_tokens("test.npy", {1, 2, 3});
  EXPECT_EQ(open_tokens(folder_.path(), {}).val.size(), 2U) << "val, else test";
  write_npy_tokens("val-tokens.npy", {1, 2});
  EXPECT_THAT(refusal(), HasSubstr("holds the val split more than once"));
  const std::string other = folder_ / "other.safetensors";
  write_safetensors(other, {}, {});
  EXPECT_THAT(message_of([&] { open_tokens(other, {.val_split = 0}); }),
              HasSubstr("no tensor \"token\""));
}

}  // namespace
}  // namespace warpstep::data
