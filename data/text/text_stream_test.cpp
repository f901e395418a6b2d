#include "data/text/text_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/core/error.h"

namespace warpstep::data {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> pieces_of_bytes(std::string_view bytes) {
  const auto tokenizer = make_byte_tokenizer();
  TextStream stream(*tokenizer);
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

TEST(TextStream, RefusesTokensOutsideOfTheVocabulary) {
  const auto tokenizer = make_character_tokenizer(U"abc");
  TextStream stream(*tokenizer);
  EXPECT_EQ(stream.add(2), "c");
  EXPECT_THROW(stream.add(3), DataError);
}

}  // namespace
}  // namespace warpstep::data
