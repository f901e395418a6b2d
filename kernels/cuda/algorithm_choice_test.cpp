// The choice of an algorithm over the emulated runtime, for an offer whose first one fails.
#include "kernels/cuda/algorithm_choice.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "engine/core/error.h"
#include "kernels/cuda/check.h"
#include "tests/cuda_on_cpu/fake_runtime.h"

namespace warpstep::cuda {
namespace {

// Algorithms "0" to "2". Those in `broken` are offered, and fail when they are enqueued.
class ThreeAlgorithms final : public Offer {
 public:
  explicit ThreeAlgorithms(std::set<std::string> broken = {"0"}) : broken_(std::move(broken)) {}

  std::string key() const override { return "product"; }
  bool restore(const std::string& saved) override {
    algorithms_ = {saved};
    return true;
  }
  std::size_t propose() override {
    ++proposals;
    algorithms_ = {"0", "1", "2"};
    return algorithms_.size();
  }
  std::string save(std::size_t candidate, bool) const override { return algorithms_.at(candidate); }
  void allocate(bool) override {
    if (!has_memory) fail<OutOfDeviceMemory>("no memory");
  }
  Enqueue enqueue(std::size_t candidate) override {
    return [name = algorithms_.at(candidate), this](CudaStream& stream) {
      if (!has_memory_to_run) fail<OutOfDeviceMemory>("no memory for the code of {}", name);
      if (broken_.contains(name)) fail<DeviceError>("{} is not on this device", name);
      check(fake_cuda::enqueue(stream.handle(), name, [] {}), "enqueue");
    };
  }

  bool has_memory = true, has_memory_to_run = true;
  int proposals = 0;

 private:
  std::set<std::string> broken_;
  std::vector<std::string> algorithms_;
};

class Choosing : public testing::Test {
 protected:
  Choosing() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    settings_.cache =
        std::filesystem::path(testing::TempDir()) /
        (std::string("warpstep_choice_") + test->name() + "_" + std::to_string(::getpid()));
    std::filesystem::remove_all(settings_.cache);
    settings_.device_name = "NVIDIA H200";
    fake_cuda::reset_counts();
  }
  ~Choosing() override { std::filesystem::remove_all(settings_.cache); }

  AlgorithmChoice process() const { return AlgorithmChoice(settings_, "cuBLASLt 13.1.0"); }
  // The name of what is chosen; what is wrong where nothing is.
  static std::string chosen(AlgorithmChoice& choice, ThreeAlgorithms& offer) {
    std::string why;
    const std::optional<Chosen> best = choice.choose(offer, why);
    return best ? offer.save(best->candidate, best->measured) : why;
  }
  std::string kept() const {
    return PlanCache(settings_, "cuBLASLt 13.1.0").find("product").value_or("nothing");
  }

  Settings settings_;
};

TEST_F(Choosing, TakesAndKeepsTheFirstThatRuns) {
  AlgorithmChoice first = process();
  ThreeAlgorithms offer;
  EXPECT_EQ(chosen(first, offer), "1");
  EXPECT_EQ(kept(), "1");
  EXPECT_EQ(chosen(first, offer), "1");
  EXPECT_EQ(fake_cuda::runs("1"), 1U);
  EXPECT_EQ(offer.proposals, 1);
}

TEST_F(Choosing, StoresNothingThatHasNotRun) {
  AlgorithmChoice first = process();
  ThreeAlgorithms offer;
  offer.has_memory = false;
  EXPECT_EQ(chosen(first, offer), "0");
  EXPECT_EQ(kept(), "nothing");
  offer.has_memory = true;  // the calls of one step rely on one answer
  EXPECT_EQ(chosen(first, offer), "0");
  AlgorithmChoice next = process();
  EXPECT_EQ(chosen(next, offer), "1");
  EXPECT_EQ(kept(), "1");
}

TEST_F(Choosing, RefusesNothingForWhichThereWasNoMemory) {
  AlgorithmChoice first = process();
  ThreeAlgorithms offer;
  offer.has_memory_to_run = false;
  EXPECT_EQ(chosen(first, offer), "0");
  EXPECT_EQ(kept(), "nothing");
  offer.has_memory_to_run = true;
  AlgorithmChoice next = process();
  EXPECT_EQ(chosen(next, offer), "1");
  AlgorithmChoice last = process();
  offer.has_memory_to_run = false;
  EXPECT_EQ(chosen(last, offer), "1") << "it ran where it was kept";
}

TEST_F(Choosing, RunsAKeptOneOnceInEachProcess) {
  AlgorithmChoice first = process();
  ThreeAlgorithms offer;
  EXPECT_EQ(chosen(first, offer), "1");
  AlgorithmChoice next = process();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(chosen(next, offer), "1");
  EXPECT_EQ(fake_cuda::runs("1"), 2U);
  EXPECT_EQ(offer.proposals, 1);
  AlgorithmChoice without_memory = process();
  offer.has_memory = false;
  EXPECT_EQ(chosen(without_memory, offer), "1");
  EXPECT_EQ(fake_cuda::runs("1"), 2U);
}

TEST_F(Choosing, ReplacesAKeptOneThatDoesNotRun) {
  AlgorithmChoice first = process();
  ThreeAlgorithms offer, later({"0", "1"});
  EXPECT_EQ(chosen(first, offer), "1");
  AlgorithmChoice next = process();
  EXPECT_EQ(chosen(next, later), "2");
  EXPECT_EQ(kept(), "2");
}

TEST_F(Choosing, StaysWithARefusal) {
  AlgorithmChoice first = process();
  ThreeAlgorithms none({"0", "1", "2"});
  const std::string why = chosen(first, none);
  EXPECT_EQ(why, "0 is not on this device; 1 is not on this device; 2 is not on this device");
  none.has_memory = false;
  EXPECT_EQ(chosen(first, none), why);
  EXPECT_EQ(none.proposals, 1);
  EXPECT_EQ(kept(), "nothing");
}

TEST_F(Choosing, RunsAndStoresNothingWhereItOnlyPlans) {
  AlgorithmChoice first = process();
  ThreeAlgorithms offer;
  first.only_plan(true);
  EXPECT_EQ(chosen(first, offer), "0");
  EXPECT_EQ(kept(), "nothing");
  first.only_plan(false);
  EXPECT_EQ(chosen(first, offer), "1");
  AlgorithmChoice next = process();
  next.only_plan(true);
  EXPECT_EQ(chosen(next, offer), "1") << "what is kept is planned";
  EXPECT_EQ(fake_cuda::runs("1"), 1U);
}

TEST_F(Choosing, OnALostDeviceThrows) {
  AlgorithmChoice first = process();
  ThreeAlgorithms offer;
  fake_cuda::fail_next("cudaStreamSynchronize", cudaErrorIllegalAddress);
  EXPECT_THROW(chosen(first, offer), DeviceLost);
  EXPECT_EQ(kept(), "nothing");
}

}  // namespace
}  // namespace warpstep::cuda
