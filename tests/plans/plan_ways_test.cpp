// cuDNN's two ways to plan, for the device's properties and for a handle: where no plan of one way
// runs, one of the other is used, is kept as such, and is found again. On the emulated device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <tuple>

#include "engine/core/error.h"
#include "kernels/cuda/dnn.h"
#include "kernels/cuda/dnn_cudnn_graph.h"
#include "kernels/cuda/plan_cache.h"
#include "kernels/cuda/runtime.h"
#include "tests/cuda_on_cpu/fake_runtime.h"
#include "tests/plans/stand_in_cudnn.h"

namespace warpstep::cuda::dnn {
namespace {

using testing::HasSubstr;
using testing_support::stand_in_cudnn;

// With and without --autotune; the first way is that for a handle, or for properties.
class PlanWays : public testing::TestWithParam<std::tuple<bool, bool>> {
 protected:
  PlanWays() {
    settings_.autotune = std::get<0>(GetParam());
    settings_.plan_by_handle = std::get<1>(GetParam());
    settings_.cache = std::filesystem::path(testing::TempDir()) /
                      fmt::format("warpstep_plan_ways_{}", ::getpid());
    std::filesystem::remove_all(settings_.cache);
    stand_in_cudnn() = {};
  }
  ~PlanWays() override { std::filesystem::remove_all(settings_.cache); }

  void only_the_other_way_runs() {
    stand_in_cudnn().runs_for_properties = settings_.plan_by_handle;
    stand_in_cudnn().runs_for_handles = !settings_.plan_by_handle;
  }

  // Runs the library's plan, and says what it is.
  std::string run(Library& library) {
    const Planned planned = library.plan(graph_);
    if (planned.plan == nullptr) return "none: " + planned.why_not;
    CudaStream stream;
    std::vector<std::shared_ptr<std::byte>> memory;
    std::vector<Binding> bindings;
    for (const Tensor& tensor : graph_.tensors)
      bindings.push_back({tensor.uid, memory.emplace_back(allocate_device(16)).get()});
    planned.plan->execute(stream, bindings, nullptr);
    return planned.plan->implementation();
  }

  Settings settings_{.device_name = "emulated", .compute_capability = 90};
  Graph graph_{.name = "conv",
               .tensors = {nhwc(1, DType::f16, 2, 4, 4, 8), nhwc(2, DType::f16, 8, 1, 1, 8),
                           nhwc(3, DType::f16, 2, 4, 4, 8)},
               .operations = {Convolution{.x = 1, .w = 2, .y = 3}}};
};

TEST_P(PlanWays, TheOtherOneIsKeptWithThePlan) {
  only_the_other_way_runs();
  const auto library = open_library(settings_);
  const std::string chosen = run(*library);
  EXPECT_THAT(chosen, HasSubstr(settings_.autotune ? "measured" : "engine 1 (precompiled)"));
  const int asked = stand_in_cudnn().asked;
  EXPECT_EQ(run(*library), chosen) << "for an equal layer";
  EXPECT_EQ(run(*open_library(settings_)), chosen) << "in a later process";
  EXPECT_EQ(stand_in_cudnn().asked, asked) << "both without planning again";
}

TEST_P(PlanWays, TheOtherOneIsFoundByTheQuestionWhetherThereIsAPlan) {
  only_the_other_way_runs();
  const auto library = open_library(settings_);
  EXPECT_TRUE(library->supports(graph_));
  const int asked = stand_in_cudnn().asked;
  EXPECT_THAT(run(*library), HasSubstr("cudnn engine"));
  EXPECT_EQ(stand_in_cudnn().asked, asked) << "without planning again";
}

TEST_P(PlanWays, TheFirstOneIsTakenWhereBothRun) {
  Settings others = settings_;
  others.plan_by_handle = !settings_.plan_by_handle;
  run(*open_library(others));
  EXPECT_EQ(stand_in_cudnn().last_was_for_handle, others.plan_by_handle);
  for (int process = 0; process < 2; ++process) {
    run(*open_library(settings_));
    EXPECT_EQ(stand_in_cudnn().last_was_for_handle, settings_.plan_by_handle);
  }
}

TEST_P(PlanWays, NeitherIsTakenWhereNeitherRuns) {
  stand_in_cudnn().runs_for_properties = stand_in_cudnn().runs_for_handles = false;
  const auto library = open_library(settings_);
  EXPECT_FALSE(library->supports(graph_));
  EXPECT_THAT(run(*library), HasSubstr("none: cuDNN offers "));
}

// cuDNN then makes no handle, and does not say why.
TEST_P(PlanWays, ALackOfMemoryForAHandleRefusesNoGraph) {
  const auto library = open_library(settings_);
  stand_in_cudnn().makes_handles = false;
  fake_cuda::set_device_memory(fake_cuda::live().bytes + (std::size_t{1} << 20));
  if (settings_.plan_by_handle)
    EXPECT_THROW(library->supports(graph_), OutOfDeviceMemory);
  else
    EXPECT_TRUE(library->supports(graph_)) << "untried";
  fake_cuda::set_device_memory(std::size_t{8} << 30);
  EXPECT_THROW(handle_of(*std::make_unique<CudaStream>()), DeviceError);
  stand_in_cudnn().makes_handles = true;
  EXPECT_THAT(run(*library), HasSubstr("cudnn engine"));
}

// As an earlier version kept it.
TEST_P(PlanWays, APlanWithoutItsWayIsPlannedAgainWhereItDoesNotRun) {
  only_the_other_way_runs();
  const auto library = open_library(settings_);
  PlanCache(settings_, library->version()).keep(graph_.key(), "engine 1 (planted)\n1");
  const std::string chosen = run(*library);
  EXPECT_THAT(chosen, HasSubstr("engine"));
  EXPECT_THAT(chosen, testing::Not(HasSubstr("planted")));
}

INSTANTIATE_TEST_SUITE_P(, PlanWays, testing::Combine(testing::Bool(), testing::Bool()),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param) ? "measured" : "first") +
                                  (std::get<1>(test.param) ? "_by_handle" : "_by_properties");
                         });

}  // namespace
}  // namespace warpstep::cuda::dnn
