#include "data/text/pieces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "data/text/unicode.h"

namespace warpstep::data {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> pieces_of(std::string_view text) {
  std::vector<std::string> pieces;
  while (!text.empty()) {
    pieces.emplace_back(text.substr(0, first_piece(text)));
    text.remove_prefix(pieces.back().size());
  }
  return pieces;
}

TEST(Pieces, SplitsWordsNumbersAndSigns) {
  EXPECT_THAT(pieces_of("Hello, world 2026!?"), ElementsAre("Hello", ",", " world", " 2026", "!?"));
  EXPECT_THAT(pieces_of("ab12 c-d_e"), ElementsAre("ab", "12", " c", "-", "d", "_", "e"));
}

TEST(Pieces, SplitsContractionsInLowerCase) {
  EXPECT_THAT(pieces_of("I'll've 'said 's'S"),
              ElementsAre("I", "'ll", "'ve", " '", "said", " '", "s", "'", "S"));
  EXPECT_THAT(pieces_of("'d'm're'l'"), ElementsAre("'d", "'m", "'re", "'", "l", "'"));
}

TEST(Pieces, KeepsTheLastSpaceForTheNextWord) {
  EXPECT_THAT(pieces_of("a   b"), ElementsAre("a", "  ", " b"));
  EXPECT_THAT(pieces_of("a \n\nb"), ElementsAre("a", " \n", "\n", "b"));
  EXPECT_THAT(pieces_of("a\n b  "), ElementsAre("a", "\n", " b", "  "));
  EXPECT_THAT(pieces_of(" "), ElementsAre(" "));
  EXPECT_THAT(pieces_of("\t "), ElementsAre("\t "));
}

TEST(Pieces, KnowsUnicode) {
  EXPECT_THAT(pieces_of("Äpfel Straße\u3000東京二\u0663x"),
              ElementsAre("Äpfel", " Straße", "\u3000", "東京二", "\u0663", "x"));
  // Two no-break spaces: the second one stays alone, only a plain space joins a word.
  EXPECT_THAT(pieces_of("\u00a0\u00a0x"), ElementsAre("\u00a0", "\u00a0", "x"));
  // U+001C is no White_Space, U+0085 is.
  EXPECT_THAT(pieces_of("a\x1c\u0085 b"), ElementsAre("a", "\x1c", "\u0085", " b"));
}

TEST(Pieces, TakesInvalidBytesForSigns) {
  EXPECT_THAT(pieces_of("a\xff\x80 b\xc3"), ElementsAre("a", "\xff\x80", " b", "\xc3"));
  EXPECT_THAT(pieces_of("\xe2\x82z"), ElementsAre("\xe2\x82", "z"));
}

TEST(Pieces, ACutChangesNoPiece) {
  const std::string text = "It's  a\n\ntest\u3000\u3000of 'll \xe2\x82 cuts,\t\xc3 12 \u00a0 x ";
  int cuts = 0;
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (!is_piece_cut(text, i)) continue;
    ++cuts;
    std::vector<std::string> both = pieces_of(std::string_view(text).substr(0, i));
    for (const std::string& piece : pieces_of(std::string_view(text).substr(i)))
      both.push_back(piece);
    EXPECT_EQ(both, pieces_of(text)) << i;
  }
  EXPECT_EQ(cuts, 10);
}

TEST(Unicode, DecodesOnlyValidUtf8) {
  for (const char32_t code :
       {0x0, 0x7f, 0x80, 0x7ff, 0x800, 0xd7ff, 0xe000, 0xffff, 0x10000, 0x10ffff}) {
    std::string text;
    append_utf8(text, code);
    const Character first = first_character(text);
    EXPECT_TRUE(first.valid);
    EXPECT_EQ(first.code, code);
    EXPECT_EQ(first.bytes, text.size());
    EXPECT_EQ(last_character("x" + text).code, code);
    EXPECT_EQ(count_characters(text), 1U);
    if (text.size() == 1) continue;
    const Character cut = first_character(std::string_view(text).substr(0, text.size() - 1));
    EXPECT_FALSE(cut.valid);
    EXPECT_EQ(cut.bytes, 1U);
  }
  for (const char* bad : {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80",
                          "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"}) {
    EXPECT_FALSE(first_character(bad).valid) << bad;
    EXPECT_FALSE(last_character(bad).valid) << bad;
  }
  EXPECT_EQ(count_characters("aé東\xf0\x9f\x98\x80"), 4U);
  EXPECT_EQ(count_characters("\x80\xbf\xe6\x9d"), 4U) << "bytes of no character";
}

TEST(Unicode, HasTheClassesOfCharacters) {
  const auto expect = [](CharacterClass kind, std::u32string_view characters) {
    for (const char32_t code : characters) EXPECT_EQ(class_of(code), kind) << std::uint32_t{code};
  };
  expect(CharacterClass::letter, U"AzªµÀÿĀжאعक가中\U00020000");
  expect(CharacterClass::number, U"09²¼Ⅷ٣𝟎");
  expect(CharacterClass::space, U"\t\n\r \u0085\u00a0\u1680\u2000\u2028\u3000");
  expect(CharacterClass::other, U"!_\x1c\u0300\u200b\ufeff\U0001F600\U0010FFFF");
  std::uint32_t end = 0;
  for (const CharacterRange& range : character_ranges()) {
    EXPECT_TRUE(range.first >= end && range.last >= range.first);
    end = range.last + 1;
  }
}

}  // namespace
}  // namespace warpstep::data
