#include "data/text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>

#include "data/text/pieces.h"
#include "data/text/train_merges.h"
#include "engine/core/file.h"
#include "tests/data_testing.h"

namespace warpstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::put;
using testing::TemporaryFolder;
using Ids = std::vector<std::int32_t>;

// Bytes have the ids of GPT-2: ! is 0, a is 64. The merges make 256 th, 257 he, 258 the, 259 Ġthe,
// 260 aa, 261 aaaa.
constexpr const char* small_merges = "#version: 0.2\nt h\nh e\nth e\nĠ the\na a\naa aa\n";

class Text : public ::testing::Test {
 protected:
  std::unique_ptr<Tokenizer> small() {
    put(folder_ / "vocab.bpe", std::string(small_merges));
    return read_merges(folder_ / "vocab.bpe");
  }
  std::string merges_refusal(const std::string& text) {
    put(folder_ / "bad.bpe", text);
    return message_of([&] { read_merges(folder_ / "bad.bpe"); });
  }
  std::unique_ptr<Tokenizer> reloaded(const Tokenizer& tokenizer) {
    save_tokenizer(tokenizer, folder_ / "tokenizer.json");
    return load_tokenizer(folder_ / "tokenizer.json");
  }
  // The file of small() with one text replaced.
  std::string json_refusal(const std::string& from, const std::string& to) {
    std::string json = small()->json();
    const std::size_t at = json.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    json.replace(at, from.size(), to);
    return load_refusal(json);
  }
  std::string load_refusal(const std::string& json) {
    put(folder_ / "bad.json", json);
    return message_of([&] { load_tokenizer(folder_ / "bad.json"); });
  }

  TemporaryFolder folder_;
};

TEST_F(Text, MergesPairsInTheOrderOfTheList) {
  const auto tokenizer = small();
  EXPECT_EQ(tokenizer->name(), "bpe");
  EXPECT_EQ(tokenizer->vocabulary(), 263);
  EXPECT_EQ(tokenizer->end_of_text(), 262);
  // "th" comes before "he"; " the" only with its space; "aaaaa" is merged from the left.
  EXPECT_THAT(tokenizer->encode("the the then"), ElementsAre(258, 259, 259, 77));
  EXPECT_THAT(tokenizer->encode("he! aaaaa"), ElementsAre(257, 0, 220, 261, 64));
  EXPECT_EQ(tokenizer->bytes_of(259), " the");
  EXPECT_EQ(tokenizer->bytes_of(262), "<|endoftext|>");
  EXPECT_EQ(tokenizer->decode(Ids{258, 262, 0}), "the<|endoftext|>!");
  EXPECT_THAT(tokenizer->encode(""), ElementsAre());
  // The name of the special token is plain text.
  EXPECT_EQ(tokenizer->encode("<|endoftext|>").size(), 13U);
  for (const std::int32_t id : {-1, 263})
    EXPECT_THAT(message_of([&] { tokenizer->bytes_of(id); }),
                HasSubstr("is not in the vocabulary"));
}

TEST_F(Text, LongPiecesAreMergedAsShortOnes) {
  const auto tokenizer = small();
  // 'a' in pairs of pairs, whatever the length of the run; 48 bytes is where the algorithm changes.
  for (const std::size_t count : {3U, 26U, 27U, 47U, 48U, 49U, 50U, 1001U}) {
    Ids expected(count / 4, 261);
    if (count % 4 >= 2) expected.push_back(260);
    if (count % 2 == 1) expected.push_back(64);
    EXPECT_EQ(tokenizer->encode(std::string(count, 'a')), expected) << count;
  }
  std::string long_word;
  Ids expected;
  for (int i = 0; i < 40; ++i) {
    long_word += i % 3 == 0 ? "the" : i % 3 == 1 ? "aab" : "he";
    const Ids part = tokenizer->encode(i % 3 == 0 ? "the" : i % 3 == 1 ? "aab" : "he");
    expected.insert(expected.end(), part.begin(), part.end());
  }
  EXPECT_EQ(tokenizer->encode(long_word), expected);
}

TEST_F(Text, AnyBytesComeBack) {
  MergeTrainer trainer;
  trainer.add("to be or not to be, that is the question: the \xff\xfe bytes é é é 東京 東京");
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  tokenizers.push_back(small());
  tokenizers.push_back(make_byte_tokenizer());
  tokenizers.push_back(make_byte_pair_tokenizer(trainer.train(290)));
  EXPECT_LE(tokenizers[2]->vocabulary(), 290);
  EXPECT_GT(tokenizers[2]->vocabulary(), 270);
  EncodeScratch scratch;  // shared by all: its cache must not be
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (std::uint64_t i = random() % (round % 50 == 0 ? 20000 : 200); i-- > 0;)
      text += round % 2 == 0 ? static_cast<char>(random() % 256) : "the abt '\n"[random() % 10];
    for (const auto& tokenizer : tokenizers) {
      Ids ids;
      tokenizer->encode(text, ids, scratch);
      EXPECT_EQ(tokenizer->decode(ids), text);
      EXPECT_EQ(tokenizer->encode(text), ids);
      for (std::size_t i = 1; i < std::min<std::size_t>(text.size(), 200); ++i) {
        if (!is_piece_cut(text, i)) continue;
        Ids parts = tokenizer->encode(text.substr(0, i));
        for (const std::int32_t id : tokenizer->encode(text.substr(i))) parts.push_back(id);
        ASSERT_EQ(parts, ids) << i;
      }
    }
  }
}

TEST_F(Text, RefusesOtherMergesByLine) {
  EXPECT_THAT(merges_refusal("#version: 0.2\nt h\n\nth e\n"), HasSubstr("line 3: '' is not two"));
  EXPECT_THAT(merges_refusal("t h\nthe\n"), HasSubstr("bad.bpe: line 2: 'the' is not two tokens"));
  EXPECT_THAT(merges_refusal("t h e\n"), HasSubstr("line 1: 'h e' has characters that stand for"));
  EXPECT_THAT(merges_refusal("t \n"), HasSubstr("line 1: '' has characters"));
  EXPECT_THAT(merges_refusal("t h\nthe n\n"), HasSubstr("line 2: 'the' is neither a byte nor"));
  EXPECT_THAT(merges_refusal("t h\nt h\n"), HasSubstr("line 2: 't h' makes a token that exists"));
  EXPECT_THAT(merges_refusal("t \xff\n"), HasSubstr("stand for no byte"));
  EXPECT_THAT(merges_refusal("#version: 0.2\n"), HasSubstr("has no merges; GPT-2's are in vocab"));
  EXPECT_EQ(merges_refusal("t h\r\nth e\r\n"), "");
  EXPECT_EQ(merges_refusal("t h\nth e"), "");
  EXPECT_EQ(merges_refusal("t h\nth e\n\n"), "");
  EXPECT_THAT(message_of([&] { read_merges(folder_ / "none"); }), HasSubstr("none"));
}

TEST_F(Text, CharactersAreRefusedByByte) {
  const auto tokenizer = make_character_tokenizer(U"\n abé中\U0001F600");
  EXPECT_EQ(tokenizer->name(), "char");
  EXPECT_EQ(tokenizer->vocabulary(), 7);
  EXPECT_THAT(tokenizer->encode("ab\né中😀"), ElementsAre(2, 3, 0, 4, 5, 6));
  EXPECT_EQ(tokenizer->decode(Ids{5, 1, 6}), "中 😀");
  EXPECT_FALSE(tokenizer->end_of_text().has_value());
  EncodeScratch scratch;
  scratch.source = "a.txt";
  scratch.source_offset = 100;
  Ids ids;
  EXPECT_THAT(message_of([&] { tokenizer->encode("aéc", ids, scratch); }),
              HasSubstr("a.txt: byte 103: the character U+0063 is not one of the 7 of"));
  EXPECT_THAT(message_of([&] { tokenizer->encode("a\xff", ids, scratch); }),
              HasSubstr("a.txt: byte 101: is not UTF-8 (0xff); encode it as bytes"));
  EXPECT_THAT(message_of([&] { tokenizer->bytes_of(7); }), HasSubstr("token 7 is not in the"));
}

TEST_F(Text, FilesComeBack) {
  MergeTrainer trainer;
  trainer.add("she sells sea shells \"by\" the \\ sea shore");
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  tokenizers.push_back(small());
  tokenizers.push_back(make_byte_tokenizer());
  tokenizers.push_back(make_byte_pair_tokenizer(trainer.train(300)));
  tokenizers.push_back(make_character_tokenizer(U"\t\n \"\\shelzaory\u007f\u00e9\u2028\U0001F600"));
  for (const auto& tokenizer : tokenizers) {
    const auto again = reloaded(*tokenizer);
    EXPECT_EQ(again->name(), tokenizer->name());
    EXPECT_EQ(again->vocabulary(), tokenizer->vocabulary());
    EXPECT_EQ(again->end_of_text(), tokenizer->end_of_text());
    EXPECT_EQ(again->json(), tokenizer->json());
    EXPECT_EQ(again->encode("he sells shoes"), tokenizer->encode("he sells shoes"));
    for (std::int32_t id = 0; id < tokenizer->vocabulary(); ++id)
      EXPECT_EQ(again->bytes_of(id), tokenizer->bytes_of(id));
  }
}

TEST_F(Text, ReadsOtherFilesOfTheFormat) {
  // Special tokens first, merges as pairs, no type: as various versions write them.
  std::string vocabulary = R"("<|endoftext|>": 0)";
  for (int byte = 0; byte < 256; ++byte)
    vocabulary += fmt::format(
        ", {}: {}", nlohmann::json(printable_bytes(std::string(1, static_cast<char>(byte)))).dump(),
        byte + 1);
  const std::string json =
      fmt::format(R"({{"added_tokens": [{{"id": 0, "content": "<|endoftext|>"}},)"
                  R"({{"id": 258, "content": "é "}}],)"
                  R"("pre_tokenizer": {{"type": "ByteLevel", "add_prefix_space": false}},)"
                  R"("model": {{"vocab": {{{}, "th": 257}}, "merges": [["t", "h"]]}}}})",
                  vocabulary);
  EXPECT_EQ(load_refusal(json), "");
  const auto tokenizer = load_tokenizer(folder_ / "bad.json");
  EXPECT_EQ(tokenizer->end_of_text(), 0);
  EXPECT_EQ(tokenizer->vocabulary(), 259);
  EXPECT_THAT(tokenizer->encode("that"), ElementsAre(257, 'a' + 1, 't' + 1));
  EXPECT_EQ(tokenizer->decode(Ids{258, 0}), "é <|endoftext|>");
  EXPECT_EQ(reloaded(*tokenizer)->json(), tokenizer->json());
}

TEST_F(Text, WritesManySpecialTokensAsFastAsItReadsThem) {
  std::string added;
  for (int i = 0; i < 100'000; ++i)
    added += fmt::format(R"({{"id": {}, "content": "<{}>"}},)", 263 + i, i);
  std::string json = small()->json();
  const std::string list = "\"added_tokens\": [";
  json.insert(json.find(list) + list.size(), added);
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  ASSERT_EQ(load_refusal(json), "");
  const auto tokenizer = load_tokenizer(folder_ / "bad.json");
  const auto loaded = Clock::now();
  EXPECT_GT(tokenizer->json().size(), json.size());
  EXPECT_LT(Clock::now() - loaded, 4 * (loaded - begin));
  EXPECT_EQ(tokenizer->bytes_of(100'262), "<99999>");
}

TEST_F(Text, RefusesFilesThatWouldEncodeOtherwise) {
  EXPECT_THAT(load_refusal("{"), HasSubstr("bad.json: byte 2: is not JSON"));
  EXPECT_THAT(load_refusal("{\"a\": 1e999}"), HasSubstr("is not JSON"));
  EXPECT_THAT(load_refusal("\"\xff\""), HasSubstr("is not JSON"));
  EXPECT_THAT(load_refusal(std::string("{}\0x", 4)), HasSubstr("byte 3: is not JSON"));
  EXPECT_THAT(load_refusal("[]"), HasSubstr("is not a JSON object"));
  EXPECT_THAT(load_refusal("{}"), HasSubstr("has no 'model'"));
  EXPECT_THAT(load_refusal(std::string(100000, '[')), HasSubstr("nested more than 16 levels"));
  EXPECT_THAT(json_refusal("\"normalizer\": null", "\"normalizer\": {\"type\": \"NFC\"}"),
              HasSubstr("has a 'normalizer', which is not supported"));
  EXPECT_THAT(json_refusal("\"BPE\"", "\"Unigram\""), HasSubstr("model.type is not BPE"));
  EXPECT_THAT(json_refusal("\"ignore_merges\": false", "\"ignore_merges\": true"),
              HasSubstr("has a 'ignore_merges'"));
  EXPECT_THAT(json_refusal("\"dropout\": null", "\"dropout\": 0.1"), HasSubstr("has a 'dropout'"));
  EXPECT_EQ(json_refusal("\"dropout\": null", "\"dropout\": 0.0"), "");
  EXPECT_THAT(json_refusal("\"add_prefix_space\": false", "\"add_prefix_space\": true"),
              HasSubstr("has a 'add_prefix_space'"));
  EXPECT_THAT(json_refusal("\"use_regex\": true", "\"use_regex\": false"), HasSubstr("use_regex"));
  EXPECT_THAT(json_refusal("{\"type\": \"ByteLevel\"", "{\"type\": \"Metaspace\""),
              HasSubstr("pre_tokenizer is not ByteLevel"));
  EXPECT_THAT(json_refusal("\"special\": true", "\"special\": false"),
              HasSubstr("the added token '<|endoftext|>' is not special: it is matched in text"));
  const auto processor_refusal = [&](const std::string& json) {
    return json_refusal("\"post_processor\": null", "\"post_processor\": " + json);
  };
  const std::string harmless = R"({"type": "ByteLevel", "trim_offsets": false})",
                    adds = R"({"type": "TemplateProcessing", "single": []})";
  EXPECT_EQ(processor_refusal(harmless), "");
  EXPECT_EQ(processor_refusal(R"({"type": "Sequence", "processors": [)" + harmless + "]}"), "");
  for (const std::string& json :
       {adds, R"({"type": "Sequence", "processors": [)" + harmless + ", " + adds + "]}"})
    EXPECT_THAT(processor_refusal(json),
                HasSubstr("its post_processor 'TemplateProcessing' adds tokens to texts"));
}

TEST_F(Text, RefusesVocabulariesThatDoNotFit) {
  EXPECT_THAT(json_refusal("\"th\": 256", "\"th\": 255"), HasSubstr("have the same id 255"));
  EXPECT_THAT(json_refusal("\"th\": 256", "\"th\": 300"), HasSubstr("but there are 263 tokens"));
  EXPECT_THAT(json_refusal("\"th\": 256", "\"th\": -1"), HasSubstr("the id of 'th' is not a"));
  EXPECT_THAT(json_refusal("\"th\": 256", "\"th\": 1.5"), HasSubstr("the id of 'th' is not a"));
  EXPECT_THAT(json_refusal("\"th\": 256", "\"t中\": 256"), HasSubstr("stand for no byte"));
  EXPECT_THAT(json_refusal("\"a\": 64", "\"a!\": 64"), HasSubstr("has no token for the byte 0x61"));
  EXPECT_THAT(json_refusal("{\"id\": 262", "{\"id\": 3"), HasSubstr("has the ids 262 and 3"));
  EXPECT_THAT(json_refusal("\"t h\"", "\"the h\""),
              HasSubstr("merge 0: the token 'theh' is not in"));
  EXPECT_THAT(json_refusal("\"t h\"", "\"th\""), HasSubstr("merge 0 is not a pair"));
  EXPECT_THAT(json_refusal("\"t h\"", "[\"t\", 3]"), HasSubstr("merge 0 is not a pair"));
  EXPECT_THAT(json_refusal("\"t h\",\n", ""),
              HasSubstr("'th' is made by a later merge or by none"));
  EXPECT_THAT(json_refusal("\"h e\"", "\"t h\""), HasSubstr("merge 1: 't h' occurs twice"));
  const auto characters = [&](const std::string& vocabulary, const std::string& merges = "") {
    return load_refusal(R"({"model": {"type": "BPE", "vocab": {)" + vocabulary +
                        R"(}, "merges": [)" + merges + "]}}");
  };
  EXPECT_EQ(characters(R"("a": 1, "é": 0)"), "");
  EXPECT_THAT(characters(R"("ab": 1, "é": 0)"), HasSubstr("the token 'ab' is not one character"));
  EXPECT_THAT(characters(R"("": 0)"), HasSubstr("is not one character"));
  EXPECT_THAT(characters(R"("a": 0)", R"("a a")"), HasSubstr("has no pre_tokenizer; only"));
  EXPECT_THAT(characters(""), HasSubstr("model.vocab has no tokens"));
  EXPECT_THAT(load_refusal(R"({"model": {"type": "BPE", "vocab": ["a", "b"], "merges": []}})"),
              HasSubstr("model.vocab is of type array; it must be an object of tokens and their"));
}

TEST_F(Text, RefusesMergesOfTokensThatAreNotMadeBefore) {
  for (const std::array<std::int32_t, 2> merge : {std::array{0, 256}, {-1, 0}})
    EXPECT_THAT(message_of<UsageError>([&] { byte_pair_vocabulary(std::span(&merge, 1)); }),
                HasSubstr(fmt::format("merge 0 is of tokens {} and {}, but 256 are known before it",
                                      merge[0], merge[1])));
}

TEST_F(Text, TrainsTheMostFrequentPairs) {
  MergeTrainer trainer;
  for (int i = 0; i < 5; ++i) trainer.add("low low low lower");
  trainer.add(" newest newest newest");
  const BytePairVocabulary vocabulary = trainer.train(1000);
  std::vector<std::string> made;
  for (const Merge& merge : vocabulary.merges)
    made.push_back(vocabulary.tokens[static_cast<std::size_t>(merge.merged)]);
  // 20 each: "lo", "ow"; the ids of l and o are lower. Then 15 " low", 5 "low" + "er".
  ASSERT_GE(made.size(), 6U);
  EXPECT_THAT(std::vector(made.begin(), made.begin() + 3), ElementsAre("lo", "low", " low"));
  EXPECT_THAT(made, ::testing::Contains(" newest"));
  EXPECT_EQ(vocabulary.tokens.size(), 257 + made.size());
  EXPECT_EQ(trainer.train(258).merges.size(), 1U);
  EXPECT_EQ(trainer.train(257).merges.size(), 0U);
  EXPECT_EQ(make_byte_pair_tokenizer(trainer.train(257))->name(), "bpe");  // of 257 tokens
  EXPECT_THROW(trainer.train(256), UsageError);
}

// One line of letters without spaces is one piece of GPT-2's pattern.
TEST_F(Text, TrainsOnPartsOfLongPieces) {
  std::uint32_t state = 1;
  std::string line;
  for (int i = 0; i < 5'000'000; ++i) {  // more than the parts that are kept
    state = state * 1664525 + 1013904223;
    line += "ACGT"[state >> 30];
  }
  MergeTrainer trainer;
  trainer.add(line);
  EXPECT_EQ(trainer.train(264).tokens.size(), 264U);

  // 1,025 bytes, whose characters would be broken at 1,024.
  MergeTrainer characters;
  std::string text = "aa";
  for (int i = 0; i < 341; ++i) text += "東";
  characters.add(text);
  const BytePairVocabulary vocabulary = characters.train(260);
  ASSERT_EQ(vocabulary.merges.size(), 3U);
  EXPECT_EQ(vocabulary.tokens[257], "東");
  MergeTrainer bytes;  // no text at all
  bytes.add(std::string(5000, '\x80'));
  EXPECT_EQ(bytes.train(258).tokens[256], "\x80\x80");
}

// The first 138 merges of GPT-2's vocab.bpe. They encode a text as all 50,000 do if those make no
// token from 394 on of it.
constexpr const char* first_merges =
    "Ġ t\nĠ a\nh e\ni n\nr e\no n\nĠt he\ne r\nĠ s\na t\nĠ w\nĠ o\ne n\nĠ c\ni t\ni s\na n\no r\n"
    "e s\nĠ b\ne d\nĠ f\nin g\nĠ p\no u\nĠa n\na l\na r\nĠt o\nĠ m\nĠo f\nĠ in\nĠ d\nĠ h\nĠan d\n"
    "i c\na s\nl e\nĠt h\ni on\no m\nl l\nen t\nĠ n\nĠ l\ns t\nĠ re\nv e\nĠ e\nr o\nl y\nĠb e\n"
    "Ġ g\nĠ T\nc t\nĠ S\ni d\no t\nĠ I\nu t\ne t\nĠ A\nĠ is\nĠ on\ni m\na m\no w\na y\na d\ns e\n"
    "Ġth at\nĠ C\ni g\nĠf or\na c\nĠ y\nv er\nu r\nĠ u\nl d\nĠs t\nĠ M\n' s\nĠ he\nĠ it\nat ion\n"
    "it h\ni r\nc e\nĠy ou\ni l\nĠ B\nĠw h\no l\nĠ P\nĠw ith\nĠ 1\nt er\nc h\nĠa s\nĠw e\nĠ (\n"
    "n d\ni ll\nĠ D\ni f\nĠ 2\na g\ner s\nk e\nĠ \"\nĠ H\ne m\nĠc on\nĠ W\nĠ R\nhe r\nĠw as\n"
    "Ġ r\no d\nĠ F\nu l\nat e\nĠa t\nr i\np p\no re\nĠT he\nĠs e\nu s\nĠp ro\nĠh a\nu m\nĠa re\n"
    "Ġd e\na in\nan d\nĠo r\n";

struct Published {
  std::string_view text;
  Ids ids;  // GPT-2's
};
std::vector<Published> published() {
  return {{"he was in it for that, and we are on to you",
           {258, 373, 287, 340, 329, 326, 11, 290, 356, 389, 319, 284, 345}},
          {"it's in that: a 1 or a 2, as he is",
           {270, 338, 287, 326, 25, 257, 352, 393, 257, 362, 11, 355, 339, 318}},
          {"is\tat\nan", {271, 197, 265, 198, 272}}};
}

TEST(Gpt2Tokenizer, GivesThePublishedTokensOfItsFirstMerges) {
  const TemporaryFolder folder;
  put(folder / "vocab.bpe", std::string(first_merges));
  const auto tokenizer = read_merges(folder / "vocab.bpe");
  EXPECT_EQ(tokenizer->vocabulary(), 256 + 138 + 1);
  for (const auto& [text, ids] : published()) {
    EXPECT_EQ(tokenizer->encode(text), ids) << text;
    EXPECT_EQ(tokenizer->decode(ids), text);
  }
}

// With the published files: WARPSTEP_GPT2_MERGES names vocab.bpe, WARPSTEP_TINY_SHAKESPEARE the
// text. The counts are those that nanoGPT publishes.
TEST(Gpt2Tokenizer, GivesThePublishedTokens) {
  const char* const merges = std::getenv("WARPSTEP_GPT2_MERGES");
  if (merges == nullptr) GTEST_SKIP() << "WARPSTEP_GPT2_MERGES does not name GPT-2's vocab.bpe";
  const auto tokenizer = read_merges(merges);
  EXPECT_EQ(tokenizer->name(), "gpt2");
  EXPECT_EQ(tokenizer->vocabulary(), 50257);
  EXPECT_EQ(tokenizer->end_of_text(), 50256);
  EXPECT_THAT(tokenizer->encode("Hello, world!"), ElementsAre(15496, 11, 995, 0));
  for (const auto& [text, ids] : published()) EXPECT_EQ(tokenizer->encode(text), ids) << text;
  EXPECT_THAT(read_file(merges), HasSubstr(first_merges));
  const TemporaryFolder folder;
  save_tokenizer(*tokenizer, folder / "tokenizer.json");
  EXPECT_EQ(load_tokenizer(folder / "tokenizer.json")->name(), "gpt2");
  const char* const text = std::getenv("WARPSTEP_TINY_SHAKESPEARE");
  if (text == nullptr) GTEST_SKIP() << "WARPSTEP_TINY_SHAKESPEARE does not name the text";
  const std::string all = read_file(text);
  const std::size_t train = all.size() * 9 / 10;
  EXPECT_EQ(tokenizer->encode(all.substr(0, train)).size(), 301966U);
  EXPECT_EQ(tokenizer->encode(all.substr(train)).size(), 36059U);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(all)), all);
}

}  // namespace
}  // namespace warpstep::data
