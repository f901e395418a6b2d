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
#include "tests/command_output.h"

namespace warpstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Result run(const std::string& arguments, bool messages = false) {
  return run_command("profile", arguments, messages);
}

class ProfileCommand : public testing::Test {
 protected:
  ProfileCommand() { ::setenv("XDG_RUNTIME_DIR", folder_.root().c_str(), 1); }

  profiler::testing::Tree folder_;
  std::string own_ = std::to_string(::getpid());
};

TEST_F(ProfileCommand, PrintsTheJobsAnswer) {
  profiler::TriggerListener job([](const profiler::TriggerRequest& request) {
    return fmt::format("recording {} steps, deep {}", request.steps, request.deep);
  });
  ASSERT_EQ(job.why(), "");
  EXPECT_EQ(run(own_).text, "recording 8 steps, deep false\n");
  EXPECT_EQ(run(own_ + " --steps 3 --deep").text, "recording 3 steps, deep true\n");
  const auto json = nlohmann::json::parse(run(own_ + " --json").text);
  EXPECT_EQ(json.at("answer"), "recording 8 steps, deep false");
  EXPECT_EQ(json.at("pid"), ::getpid());
}

// For scripts, which read the exit code.
TEST_F(ProfileCommand, FailsWhenTheJobRefuses) {
  profiler::TriggerListener job([](const profiler::TriggerRequest&) { return "busy: a window"; });
  const Result plain = run(own_), json = run(own_ + " --json");
  EXPECT_EQ(plain.code, 1);
  EXPECT_EQ(plain.text, "busy: a window\n");
  EXPECT_EQ(json.code, 1);
  EXPECT_EQ(nlohmann::json::parse(json.text).at("accepted"), false);
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
