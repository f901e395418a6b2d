// Standard streams that cannot be written: the run and its files are the same without them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <sstream>

#include "tests/system/program.h"
#include "tests/system/sets.h"

namespace warpstep::system_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::AnyOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class Output : public testing::Test {
 protected:
  void SetUp() override {
    make_set(data_);
    ASSERT_EQ(run(short_run(data_, alone_)).exit_code, 0);
  }

  const TemporaryFolder folder_;
  const std::string data_ = folder_ / "data", alone_ = folder_ / "alone", out_ = folder_ / "run";
};

TEST(Help, FitsInto100Columns) {
  for (const char* command : {"train", "eval", "explain", "report", "compare", "export",
                              "check-trace", "profile", "replay", "ranks", "info"}) {
    const Ended ended = run({command, "--help"});
    EXPECT_EQ(ended.exit_code, 0);
    std::istringstream lines(ended.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
  }
  EXPECT_THAT(run({"train", "--help"}).out,
              AllOf(HasSubstr("\nData:\n"), HasSubstr("\nProfile:\n"), HasSubstr("\nRun:\n")));
}

TEST_F(Output, ALostStderrChangesNothing) {
  for (const Standard err : {Standard::closed, Standard::full, Standard::gone}) {
    SCOPED_TRACE(static_cast<int>(err));
    fs::remove_all(out_);
    const Ended ended = run(short_run(data_, out_), {.err = err});
    EXPECT_EQ(ended.exit_code, 0) << "signal " << ended.signal;
    EXPECT_THAT(ended.out, HasSubstr("2 epochs, 12 steps, finished (adam, lr 0.001)"));
    expect_equal_runs(alone_, out_);  // for example, metrics.jsonl has only JSON
  }
}

TEST_F(Output, ALostStdoutCostsTheExitCodeAlone) {
  struct Case {
    Standard in, out, err;
    int exit_code;
  };
  for (const Case& c : {Case{Standard::kept, Standard::gone, Standard::kept, 0},
                        Case{Standard::kept, Standard::full, Standard::kept, 1},
                        Case{Standard::kept, Standard::closed, Standard::kept, 1},
                        Case{Standard::closed, Standard::closed, Standard::closed, 0}}) {
    SCOPED_TRACE(static_cast<int>(c.out));
    fs::remove_all(out_);
    const Ended ended = run(with(short_run(data_, out_), "--profile", "spans"),
                            {.in = c.in, .out = c.out, .err = c.err});
    EXPECT_EQ(ended.exit_code, c.exit_code) << "signal " << ended.signal;
    if (c.out == Standard::full) {
      EXPECT_THAT(ended.err, HasSubstr("standard output: No space"));
    }
    expect_equal_runs(alone_, out_);
    EXPECT_TRUE(fs::exists(out_ + "/report.html"));
  }
}

TEST_F(Output, ErrorsKeepTheirExitCodes) {
  for (const Standard err : {Standard::closed, Standard::full, Standard::gone}) {
    SCOPED_TRACE(static_cast<int>(err));
    EXPECT_EQ(run({"train", "mlp", "--data", folder_ / "nowhere"}, {.err = err}).exit_code, 1);
    EXPECT_EQ(run({"train", "mpl"}, {.err = err}).exit_code, 2);
    EXPECT_EQ(run({"eval", alone_}, {.err = err}).exit_code, 0);
  }
}

TEST(Limits, ASmallStackIsRefusedWithItsLimit) {
  const Ended ended = run({"info"}, {.max_stack_bytes = 256 << 10});
  EXPECT_EQ(ended.exit_code, 1) << "signal " << ended.signal;
  EXPECT_THAT(ended.err, HasSubstr("the stack is limited to 256 KiB, and 1024 KiB are needed"));
}

TEST(Limits, LittleMemoryEndsInAMessage) {
  if (testing_support::sanitized()) GTEST_SKIP() << "sanitizers map terabytes";
  const TemporaryFolder folder;
  make_set(folder / "data");
  for (const std::uint64_t mib : {150, 200, 230, 260, 300}) {
    SCOPED_TRACE(mib);
    const Ended ended =
        run(with(short_run(folder / "data", folder / "run", "cifar10cnn"), "--overwrite"),
            {.max_address_bytes = mib << 20});
    EXPECT_EQ(ended.signal, 0) << ended.err;
    EXPECT_THAT(ended.exit_code, AnyOf(0, 1));
    if (ended.exit_code == 1) {
      EXPECT_THAT(ended.err, ContainsRegex("memory|ulimit"));
    }
    EXPECT_THAT(ended.err, Not(HasSubstr("internal error")));
  }
}

// A closed terminal: SIGHUP, more than once, and nothing can be printed.
TEST_F(Output, AClosedTerminalStopsAndSaves) {
  Program program(endless_run(data_, out_), {.out = Standard::gone, .err = Standard::gone});
  ASSERT_TRUE(program.wait_until([&] { return !checkpoints(out_).empty(); }));
  program.signal(SIGHUP);
  program.signal(SIGHUP);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.exit_code, 130) << "signal " << ended.signal;
  const Json summary = read_json(out_ + "/summary.json");
  EXPECT_EQ(summary["outcome"], "interrupted");
  EXPECT_EQ(summary["checkpoint"], checkpoints(out_).back().filename().string());
}

}  // namespace
}  // namespace warpstep::system_test
