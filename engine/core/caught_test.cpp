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

template <class Exception>
void raise_named(const Exception& exception) {
  naming("mine", "grad()", [&]() -> int { throw exception; });
}

TEST(Naming, SaysWhoseCodeThrew) {
  const auto text = [](const auto& exception) {
    try {
      raise_named(exception);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(text(std::runtime_error("no disk")), "mine: its grad() threw: no disk");
  EXPECT_EQ(text(42),
            "mine: its grad() threw: an exception of type int, which is not a std::exception");
  EXPECT_THROW(raise_named(DataError("file: broken")), DataError);  // names what it must
  EXPECT_THROW(raise_named(std::bad_alloc()), std::bad_alloc);      // told apart by callers
  EXPECT_EQ(naming("mine", "grad()", [] { return 3; }), 3);
}

}  // namespace
}  // namespace warpstep
