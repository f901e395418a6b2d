#include "engine/core/caught.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace warpstep {
namespace {

template <class Exception>
std::string text_of(const Exception& exception) {
  try {
    throw exception;
  } catch (...) {
    return caught_text();
  }
}

struct Wordless {};

TEST(CaughtText, NamesTheTypeOfWhatSaysNothing) {
  EXPECT_EQ(text_of(std::runtime_error("no disk")), "no disk");
  EXPECT_EQ(text_of(std::runtime_error("")),
            "an exception of type std::runtime_error without a text");
  EXPECT_EQ(text_of(42), "an exception of type int, which is not a std::exception");
  EXPECT_THAT(text_of(Wordless()), testing::HasSubstr("Wordless, which is not a std::exception"));
}

}  // namespace
}  // namespace warpstep
