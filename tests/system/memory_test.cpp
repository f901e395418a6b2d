// Runs that do not fit into memory: refused before they begin, with a batch size that fits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/system/program.h"
#include "tests/system/sets.h"

namespace warpstep::system_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class Memory : public testing::Test {
 protected:
  void SetUp() override { make_set(data_); }
  void TearDown() override { ::unsetenv("WARPSTEP_FREE_BYTES"); }

  // A step of a run with this limit of memory.
  Ended train(std::uint64_t free_bytes, int batch) const {
    ::setenv("WARPSTEP_FREE_BYTES", std::to_string(free_bytes).c_str(), 1);
    fs::remove_all(out_);
    return run({"train", "mlp", "--data", data_, "--out", out_, "--device", "cpu", "--steps", "1",
                "--workers", "1", "--batch", std::to_string(batch)});
  }

  const TemporaryFolder folder_;
  const std::string data_ = folder_ / "data";
  const std::string out_ = folder_ / "run";
};

TEST_F(Memory, TheBatchThatIsNamedFitsAndTheNextDoesNot) {
  const std::string named = "the largest that fits is --batch ";
  Ended refused;
  std::uint64_t free = 4 << 20;
  for (; free < std::uint64_t{1} << 30; free += free / 32) {
    refused = train(free, 192);
    ASSERT_EQ(refused.exit_code, 1) << refused.err;
    if (refused.err.find(named) != std::string::npos) break;
    ASSERT_THAT(refused.err, HasSubstr("not even --batch 1 fits"));
  }
  EXPECT_FALSE(fs::exists(out_));
  EXPECT_THAT(refused.err, AllOf(HasSubstr("mlp with --batch 192 takes "), HasSubstr(" on cpu, "),
                                 HasSubstr(" more than the "), HasSubstr(" is the peak with "),
                                 HasSubstr("the largest values are ")));
  const int fits = std::stoi(refused.err.substr(refused.err.find(named) + named.size()));
  ASSERT_GE(fits, 1);
  ASSERT_LT(fits, 192);
  const Ended trained = train(free, fits);
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
  const Ended next = train(free, fits + 1);
  EXPECT_EQ(next.exit_code, 1);
  EXPECT_THAT(next.err, HasSubstr(named + std::to_string(fits)));
}

TEST_F(Memory, RecomputingReportsItsSavingsAndChangesNothing) {
  const std::string plain = folder_ / "plain", again = folder_ / "again";
  ASSERT_EQ(run(short_run(data_, plain)).exit_code, 0);
  const Ended ended = run(with(short_run(data_, again), "--recompute", "fc1"));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, testing::ContainsRegex(
                             "recompute fc1: arena [0-9.]+ -> [0-9.]+ MiB, [0-9.]+ % more FLOPs"));
  EXPECT_EQ(tensors(checkpoints(plain).back()), tensors(checkpoints(again).back()));
  EXPECT_EQ(timeless_metrics(plain), timeless_metrics(again));
  EXPECT_EQ(run(with(short_run(data_, folder_ / "none"), "--recompute", "fc")).exit_code, 2);
}

}  // namespace
}  // namespace warpstep::system_test
