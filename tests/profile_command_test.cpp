// `warpstep profile` as a user runs it, with this test as the running job.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "profiler/recorder/trigger.h"
#include "profiler/sources/testing_tree.h"

namespace warpstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Result {
  int code = -1;
  std::string text;
};

// stdout, or with `messages` stderr instead.
Result run(const std::string& arguments, bool messages = false) {
  const std::string command = fmt::format("{}/bin/warpstep profile {} {}", WARPSTEP_BINARY_DIR,
                                          arguments, messages ? "2>&1 >/dev/null" : "2>/dev/null");
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return {};
  Result result;
  char part[4096];
  for (std::size_t n = 0; (n = std::fread(part, 1, sizeof part, pipe)) > 0;)
    result.text.append(part, n);
  result.code = WEXITSTATUS(pclose(pipe));
  return result;
}

class ProfileCommand : public testing::Test {
 protected:
  ProfileCommand() { ::setenv("XDG_RUNTIME_DIR", folder_.root().c_str(), 1); }

  profiler::testing::Tree folder_;
  std::string own_ = std::to_string(::getpid());
};

TEST_F(ProfileCommand, PrintsTheJobsAnswer) {
  profiler::TriggerListener job([](const profiler::TriggerRequest& request) {
    return fmt::format("{} steps, deep {}", request.steps, request.deep);
  });
  ASSERT_EQ(job.why(), "");
  EXPECT_EQ(run(own_).text, "8 steps, deep false\n");
  EXPECT_EQ(run(own_ + " --steps 3 --deep").text, "3 steps, deep true\n");
  const auto json = nlohmann::json::parse(run(own_ + " --json").text);
  EXPECT_EQ(json.at("answer"), "8 steps, deep false");
  EXPECT_EQ(json.at("pid"), ::getpid());
}

TEST_F(ProfileCommand, ListsJobs) {
  profiler::TriggerListener job([](const profiler::TriggerRequest&) { return ""; });
  const Result result = run("--list");
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.text, AllOf(HasSubstr(own_), HasSubstr("profile_command_test")));
  bool found = false;
  for (const auto& one : nlohmann::json::parse(run("--list --json").text))
    found |= one.at("pid") == ::getpid();
  EXPECT_TRUE(found);
}

TEST_F(ProfileCommand, ExplainsItsRefusals) {
  const auto expect = [](const std::string& arguments, const char* message) {
    const Result result = run(arguments, true);
    EXPECT_EQ(result.code, 2) << arguments;
    EXPECT_THAT(result.text, HasSubstr(message));
  };
  expect(own_, "does not listen");
  expect("", "--list prints them");
  expect("--list " + own_, "not both");
  expect(own_ + " --steps 0", "--steps 0");
  expect("job", "pid");
}

}  // namespace
}  // namespace warpstep
