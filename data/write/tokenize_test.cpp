#include "data/write/tokenize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>

#include "data/text/tokenizer.h"
#include "data/write/token_writer.h"
#include "engine/core/file.h"
#include "tests/data_testing.h"

namespace warpstep::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::put;
using testing::TemporaryFolder;
using Ids = std::vector<std::int32_t>;

Ids ids_of(const TokenSet& set) {
  Ids ids(set.size());
  set.read(0, ids);
  return ids;
}

class Tokenize : public ::testing::Test {
 protected:
  std::string text(const std::string& name, const std::string& content) {
    put(folder_ / name, content);
    return folder_ / name;
  }
  // Decodes what tokenize() writes.
  std::string decoded(const TokenSet& set) {
    return load_tokenizer(out_ + "/tokenizer.json")->decode(ids_of(set));
  }
  TokenData run(const std::vector<std::string>& texts, const TokenizeOptions& options) {
    std::filesystem::remove_all(out_);
    summary_ = tokenize(texts, out_, options);
    TokenData data = open_tokens(
        out_, {.val_split = options.val_fraction == 0 ? std::optional<double>(0) : std::nullopt});
    EXPECT_EQ(data.train.size(), summary_.train.tokens);
    EXPECT_EQ(data.val.size(), summary_.val.tokens);
    EXPECT_EQ(data.vocabulary, summary_.vocabulary);
    EXPECT_EQ(data.tokenizer_name, summary_.tokenizer);
    EXPECT_LT(data.train.largest(), data.vocabulary);
    return data;
  }
  template <class E = DataError>
  std::string refusal(const std::vector<std::string>& texts, const TokenizeOptions& options) {
    const std::string message = message_of<E>([&] { tokenize(texts, out_, options); });
    EXPECT_FALSE(exists(out_));
    EXPECT_EQ(list_hidden(), 0);  // nothing is left of the temporary folder
    return message;
  }
  int list_hidden() const {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
      count += entry.path().filename().string().starts_with(".") ? 1 : 0;
    return count;
  }

  TemporaryFolder folder_;
  std::string out_ = folder_ / "out";
  TokenizeSummary summary_;
};

std::string some_text(std::size_t words) {
  constexpr std::array<const char*, 8> list{"the ", "sea",  " shore's\n", "12 ",
                                            "\n\n", "é東 ", "!? ",        "  she'll\t"};
  std::string text;
  std::uint32_t state = 1;
  for (std::size_t i = 0; i < words; ++i) {
    state = state * 1664525 + 1013904223;
    text += list[state >> 29];
  }
  return text;
}

TEST_F(Tokenize, WritesEveryFormatOfEveryTokenizer) {
  const std::string all = some_text(2000);
  const std::string file = text("a.txt", all);
  const std::string merges = text("vocab.bpe", "t h\nth e\nĠ the\ns e\nse a\n");
  for (const TokenFormat format :
       {TokenFormat::safetensors, TokenFormat::npy, TokenFormat::llmc, TokenFormat::headless}) {
    for (const std::string kind : {"char", "byte", "bpe", "merges"}) {
      TokenizeOptions options{.tokenizer = kind, .vocabulary = 300, .format = format};
      if (kind == "merges") {
        options.tokenizer = "bpe";
        options.merges = merges;
      }
      const TokenData data = run({file}, options);
      EXPECT_EQ(data.train.format(), format);
      EXPECT_EQ(data.train.type(), StoredType::u16);
      EXPECT_EQ(decoded(data.train) + decoded(data.val), all);
      EXPECT_EQ(summary_.train.bytes + summary_.val.bytes, all.size());
      EXPECT_EQ(summary_.vocabulary == 300, kind == "bpe");
    }
  }
}

TEST_F(Tokenize, SplitsByCharactersOfAllTexts) {
  // 20 characters: 18 are for training.
  const std::vector<std::string> texts{text("a", "éééééé\n"), text("b", "中中中中中中"),
                                       text("c", ""), text("d", "abcdefg")};
  const TokenData data = run(texts, {.tokenizer = "char"});
  EXPECT_EQ(decoded(data.train), "éééééé\n中中中中中中abcde");
  EXPECT_EQ(decoded(data.val), "fg");
  // In ascending order of their code points.
  EXPECT_EQ(ids_of(data.val), (Ids{6, 7}));
  EXPECT_EQ(run(texts, {.tokenizer = "char", .val_fraction = 0.35}).val.size(), 7U);
  EXPECT_EQ(decoded(run(texts, {.tokenizer = "char", .val_fraction = 0.35}).train),
            "éééééé\n中中中中中中");
  EXPECT_EQ(run(texts, {.tokenizer = "byte", .val_fraction = 0}).train.size(), 13U + 18U + 7U);
  EXPECT_FALSE(exists(out_ + "/val.safetensors"));
}

// Bytes that are in no character of UTF-8 count as one each.
TEST_F(Tokenize, SplitsBytesThatAreNoText) {
  const std::string file = text("a", std::string(20, '\x80'));
  for (const std::string kind : {"byte", "bpe"}) {
    const TokenData data = run({file}, {.tokenizer = kind, .vocabulary = 257});
    EXPECT_EQ(decoded(data.train), std::string(18, '\x80'));
    EXPECT_EQ(decoded(data.val), "\x80\x80");
  }
  const TokenData mixed =
      run({text("b", "é\x80\x80東\xe6\x9d")}, {.tokenizer = "byte", .val_fraction = 0.5});
  EXPECT_EQ(decoded(mixed.train), "é\x80\x80");
}

TEST_F(Tokenize, ChunksAndWorkersChangeNothing) {
  const std::string all = some_text(700'000);  // 4 chunks
  const std::string file = text("a.txt", all);
  TokenizeOptions options{.tokenizer = "bpe", .vocabulary = 400, .val_fraction = 0, .workers = 1};
  const TokenData data = run({file}, options);
  EXPECT_GT(all.size(), 3U << 20);
  EXPECT_EQ(ids_of(data.train), load_tokenizer(out_ + "/tokenizer.json")->encode(all));
  options.val_fraction = 0.3;
  run({file}, options);
  const std::string train = read_file(out_ + "/train.safetensors");
  const std::string val = read_file(out_ + "/val.safetensors");
  options.workers = 3;
  std::uint64_t last = 0;
  options.progress = [&](std::uint64_t done, std::uint64_t chunks) {
    EXPECT_EQ(done, ++last);
    EXPECT_LE(done, chunks);
  };
  run({file}, options);
  EXPECT_GE(last, 5U);
  EXPECT_EQ(read_file(out_ + "/train.safetensors"), train);
  EXPECT_EQ(read_file(out_ + "/val.safetensors"), val);
}

TEST_F(Tokenize, CutsLongRunsBetweenCharacters) {
  std::string run_of_letters;
  while (run_of_letters.size() < 5U << 20) run_of_letters += "東京abc";
  const std::string file = text("a.txt", run_of_letters);
  for (const std::string kind : {"char", "bpe"}) {
    const TokenData data = run({file}, {.tokenizer = kind, .vocabulary = 257, .val_fraction = 0});
    EXPECT_EQ(decoded(data.train), run_of_letters);
  }
}

TEST_F(Tokenize, PutsEndOfTextBetweenTexts) {
  const std::vector<std::string> texts{text("a", "one<|endoftext|>two"), text("b", "3"),
                                       text("c", "4<|endoftext|>")};
  TokenizeOptions options{
      .tokenizer = "bpe", .vocabulary = 257, .val_fraction = 0, .end_of_text = true};
  const TokenData data = run(texts, options);
  EXPECT_EQ(decoded(data.train), "one<|endoftext|>two<|endoftext|>3<|endoftext|>4<|endoftext|>");
  EXPECT_EQ(data.train.size(), 3U + 1 + 3 + 1 + 1 + 1 + 1 + 1);
  EXPECT_EQ(data.train.token(3), 256U);
  EXPECT_EQ(run({text("d", "5<|endoftext|>"), text("e", "6")}, options).train.size(), 3U)
      << "one token between texts, also where the first has it at its end";
  options.end_of_text = false;
  EXPECT_EQ(run(texts, options).train.size(), 3U + 13 + 3 + 1 + 1 + 13);
  options.end_of_text = true;
  options.tokenizer = "char";
  EXPECT_THAT(refusal<UsageError>((std::filesystem::remove_all(out_), texts), options),
              HasSubstr("the tokenizer 'char' has no token <|endoftext|>; leave it out"));
}

TEST_F(Tokenize, CutsNoNameOfEndOfText) {
  TokenizeOptions options{
      .tokenizer = "bpe", .vocabulary = 257, .val_fraction = 0.5, .end_of_text = true};
  const std::string file = text("a", "aaaa<|endoftext|>bbbb");
  TokenData data = run({file}, options);  // 10 of 21 characters are for training
  EXPECT_EQ(decoded(data.train), "aaaa");
  EXPECT_THAT(ids_of(data.val), ElementsAre(256, 65, 65, 65, 65));
  options.val_fraction = 0.7;
  EXPECT_EQ(decoded(run({file}, options).train), "aaaa");
  EXPECT_THAT(refusal((std::filesystem::remove_all(out_), std::vector{text("b", "<|endoftext|>b")}),
                      options),
              HasSubstr("leaves none for training"));
  // A long run without a space is cut at 2 MiB.
  options.val_fraction = 0;
  for (const std::size_t before : {1U, 6U, 12U}) {
    data = run({text("c", std::string((2U << 20) - before, 'a') + "<|endoftext|>aa")}, options);
    EXPECT_EQ(data.train.size(), (2U << 20) - before + 3);
  }
}

TEST_F(Tokenize, TakesTheTokenizerOfAnotherSet) {
  run({text("a.txt", "abcabcabc abcabc")}, {.tokenizer = "bpe", .vocabulary = 260});
  std::filesystem::copy(out_ + "/tokenizer.json", folder_ / "kept.json");
  const TokenData data = run({text("b.txt", "abc cab abcabc")},
                             {.tokenizer = folder_ / "kept.json", .val_fraction = 0.5});
  EXPECT_EQ(read_file(out_ + "/tokenizer.json"), read_file(folder_ / "kept.json"));
  EXPECT_EQ(decoded(data.train) + decoded(data.val), "abc cab abcabc");
  EXPECT_LT(data.train.size() + data.val.size(), 10U);
}

TEST_F(Tokenize, UsesFourBytesForLargeVocabularies) {
  std::string all;
  for (char32_t code = 0x10000; code < 0x10000 + 66000; ++code) {
    all += static_cast<char>(0xf0 | code >> 18);
    all += static_cast<char>(0x80 | (code >> 12 & 0x3f));
    all += static_cast<char>(0x80 | (code >> 6 & 0x3f));
    all += static_cast<char>(0x80 | (code & 0x3f));
  }
  const std::string file = text("a.txt", all);
  for (const TokenFormat format : {TokenFormat::safetensors, TokenFormat::npy, TokenFormat::llmc}) {
    const TokenData data = run({file}, {.tokenizer = "char", .val_fraction = 0, .format = format});
    EXPECT_EQ(data.train.type(), StoredType::u32);
    EXPECT_EQ(data.train.token(65999), 65999U);
  }
  std::filesystem::remove_all(out_);
  EXPECT_THAT(
      refusal<UsageError>({file}, {.tokenizer = "char", .format = TokenFormat::headless}),
      HasSubstr("nanoGPT's format has 2 bytes per token, too few for a vocabulary of 66000"));
}

// It would be another one, of 16 bits.
TEST_F(Tokenize, WritesNoTokenOutsideOfTheVocabulary) {
  for (const std::int32_t id : {-1, 9, 65545}) {
    TokenWriter writer(folder_ / fmt::format("t{}.bin", id), {.vocabulary = 9});
    EXPECT_THAT(message_of<UsageError>([&] { writer.append(std::span(&id, 1)); }),
                HasSubstr(fmt::format("token {} of a vocabulary of 9", id)));
  }
}

TEST_F(Tokenize, RefusesByName) {
  const std::string good = text("good.txt", "some text of some words");
  const std::string bad = text("bad.txt", "abc\xff");
  EXPECT_THAT(refusal<UsageError>({good}, {}),
              AllOf(HasSubstr("needs GPT-2's merges, the file vocab.bpe (456 KB)"),
                    HasSubstr("--merges FILE")));
  EXPECT_THAT(refusal({good}, {.merges = text("m.bpe", "t h\n")}),
              HasSubstr("m.bpe: its 258 tokens are not GPT-2's 50257"));
  EXPECT_THAT(refusal<UsageError>({good}, {.tokenizer = "byte", .merges = "x"}),
              HasSubstr("--merges is for --tokenizer gpt2 and bpe, not byte"));
  EXPECT_THAT(refusal<UsageError>({good}, {.tokenizer = "words"}),
              HasSubstr("--tokenizer words: must be gpt2, char, byte, bpe or a file"));
  EXPECT_THAT(refusal({good, bad}, {.tokenizer = "char"}),
              HasSubstr("bad.txt: byte 3: is not UTF-8 (0xff); convert it, or use --tokenizer"));
  EXPECT_THAT(refusal({folder_ / "none.txt"}, {.tokenizer = "char"}), HasSubstr("none.txt"));
  EXPECT_THAT(refusal({folder_.path()}, {.tokenizer = "char"}), HasSubstr(folder_.path()));
  EXPECT_THAT(refusal({text("empty.txt", "")}, {.tokenizer = "byte"}), HasSubstr("has no text"));
  EXPECT_THAT(refusal({text("x.txt", "x")}, {.tokenizer = "byte"}),
              HasSubstr("--val-fraction 0.1 of 1 characters leaves none for training"));
  EXPECT_THAT(refusal<UsageError>({good}, {.tokenizer = "byte", .val_fraction = 1}),
              HasSubstr("must be at least 0 and below 1"));
  save_tokenizer(*make_character_tokenizer(U"some txf"), folder_ / "few.json");
  EXPECT_THAT(refusal({good}, {.tokenizer = folder_ / "few.json", .val_fraction = 0}),
              HasSubstr("good.txt: byte 18: the character U+0077 is not one of the 8"));
  put(out_ + "/file", std::string("x"));
  EXPECT_THAT(message_of([&] { tokenize({good}, out_, {.tokenizer = "byte"}); }),
              HasSubstr("/out: exists and is not an empty folder"));
}

}  // namespace
}  // namespace warpstep::data
