#include "data/text/text_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/core/error.h"

namespace warpstep::data {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> pieces_of_bytes(std::string_view bytes, const std::string& stop = {}) {
  const auto tokenizer = make_byte_tokenizer();
  TextStream stream(*tokenizer, stop);
  std::vector<std::string> pieces;
  for (const char byte : bytes) pieces.push_back(stream.add(static_cast<unsigned char>(byte)));
  pieces.push_back(stream.rest());
  return pieces;
}

TEST(TextStream, HoldsACharacterBackUntilItIsWhole) {
  EXPECT_THAT(pieces_of_bytes("a\xC3\xA9z"), ElementsAre("a", "", "\xC3\xA9", "z", ""));
  EXPECT_THAT(pieces_of_bytes("\xE2\x82\xAC"), ElementsAre("", "", "\xE2\x82\xAC", ""));
  EXPECT_THAT(pieces_of_bytes("\xF0\x9F\x98\x80!"),
              ElementsAre("", "", "", "\xF0\x9F\x98\x80", "!", ""));
}

TEST(TextStream, GivesWhatIsNoTextAsItIs) {
  EXPECT_THAT(pieces_of_bytes("\x80\xFFq"), ElementsAre("\x80", "", "\xFFq", ""));
  EXPECT_THAT(pieces_of_bytes("\xE2\x82q"), ElementsAre("", "", "\xE2\x82q", ""));
  EXPECT_THAT(pieces_of_bytes("a\xF0\x9F"), ElementsAre("a", "", "", "\xF0\x9F"));
}

TEST(TextStream, KeepsEveryByte) {
  std::string all;
  for (int i = 0; i < 1 << 12; ++i) all += static_cast<char>(i * 7919 >> 4);
  std::string joined;
  for (const std::string& piece : pieces_of_bytes(all)) joined += piece;
  EXPECT_EQ(joined, all);
}

TEST(TextStream, EndsBeforeTheStopWithoutShowingAnyOfIt) {
  EXPECT_THAT(pieces_of_bytes("ab\n\ncd", "\n\n"), ElementsAre("a", "b", "", "", "", "", ""));
  EXPECT_THAT(pieces_of_bytes("a\nb", "\n\n"), ElementsAre("a", "", "\nb", ""));
  EXPECT_THAT(pieces_of_bytes("xaab", "aab"), ElementsAre("x", "", "", "", ""));
  EXPECT_THAT(pieces_of_bytes("aaab", "aab"), ElementsAre("", "", "a", "", ""));
  EXPECT_THAT(pieces_of_bytes("aa", "aab"), ElementsAre("", "", "aa"));
  // Bytes that can be printed have the ids from '!' on.
  constexpr std::array<std::array<std::int32_t, 2>, 2> merges{
      {{'x' - '!', 'S' - '!'}, {256, 'y' - '!'}}};
  const auto words = make_byte_pair_tokenizer(byte_pair_vocabulary(merges));
  TextStream within(*words, "S");  // inside of the token "xSy"
  EXPECT_EQ(within.add(257), "x");
  EXPECT_TRUE(within.stopped());
  EXPECT_EQ(within.rest(), "");
}

TEST(TextStream, RefusesTokensOutsideOfTheVocabulary) {
  const auto tokenizer = make_character_tokenizer(U"abc");
  TextStream stream(*tokenizer);
  EXPECT_EQ(stream.add(2), "c");
  EXPECT_THROW(stream.add(3), DataError);
}

}  // namespace
}  // namespace warpstep::data
