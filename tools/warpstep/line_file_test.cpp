#include "tools/warpstep/line_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/core/file.h"
#include "tests/data_testing.h"
#include "tools/warpstep/json.h"

namespace warpstep::tools {
namespace {

using data::testing::put;
using data::testing::TemporaryFolder;
using testing::AllOf;
using testing::HasSubstr;

TEST(LineFile, AddsToWhatIsThere) {
  const TemporaryFolder folder;
  put(folder / "f", std::string("a\n"));
  LineFile file(folder / "f");
  file.sync();
  file.append("b");
  LineFile moved(std::move(file));
  moved.append("c");
  moved.close();
  moved.close();
  EXPECT_EQ(read_file(folder / "f"), "a\nb\nc\n");
}

TEST(LineFile, SaysWhatTheSystemSays) {
  LineFile full("/dev/full");
  EXPECT_THAT([&] { full.append("x"); },
              testing::ThrowsMessage<DataError>(
                  AllOf(HasSubstr("/dev/full: cannot write: "), HasSubstr("No space left"))));
  const TemporaryFolder folder;
  LineFile nowhere(folder / "no/f");
  EXPECT_THAT([&] { nowhere.open(); },
              testing::ThrowsMessage<DataError>(HasSubstr("No such file")));
}

TEST(KeepLines, DropsWhatIsNotOfTheRunWithOneNote) {
  const TemporaryFolder folder;
  const std::string path = folder / "metrics.jsonl";
  const std::string mine = "{\"step\":1}\n{\"step\":2}\n";
  put(path, "5\nnull\n[]\n{}\n\n{\"step\":\"x\"}\n" + std::string(100'000, '[') + "\n" + mine +
                "{\"step\":3}\n{\"st");
  testing::internal::CaptureStderr();
  keep_lines(path, [](const Json& line) { return line.at("step").get<int>() < 3; });
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(path + ": 8 lines that "));
  EXPECT_EQ(read_file(path), mine);
  testing::internal::CaptureStderr();
  keep_lines(path, [](const auto&) { return true; });
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(read_file(path), mine);
}

}  // namespace
}  // namespace warpstep::tools
