// What becomes of the settings, of the cache and of graphs that no engine computes, without a GPU.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "engine/core/error.h"
#include "kernels/attention/attention_graph.cuda.h"
#include "kernels/cuda/assumed_devices.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/dnn.h"
#include "kernels/cuda/plan_cache.h"
#include "kernels/cuda/runtime.h"

namespace warpstep::cuda::dnn {
namespace {

using testing::HasSubstr;
using testing::Not;

// A 3x3 convolution of 16x16 images from 32 to 64 channels, as conv3 of cifar10cnn.
Graph convolution(DType dtype, Convolution::Direction direction = Convolution::Direction::forward) {
  return {
      .name = "conv3/conv",
      .tensors = {nhwc(1, dtype, 128, 16, 16, 32), nhwc(2, dtype, 64, 3, 3, 32),
                  nhwc(3, dtype, 128, 16, 16, 64)},
      .operations = {Convolution{.direction = direction, .x = 1, .w = 2, .y = 3, .padding = 1}}};
}

// Memory for a stream where none can be made: it is named, and never looked at.
union NoStream {
  NoStream() {}
  ~NoStream() {}
  CudaStream stream;
};

std::string chosen(const Settings& settings, const Graph& graph) {
  const Planned planned = open_library(settings)->plan(graph);
  return planned.plan ? planned.plan->implementation() : "none: " + planned.why_not;
}

TEST(CudnnLibrary, FullF32KeepsOffTensorCoresAndTf32TakesThem) {
  Settings settings = assume_device("sm_90");
  for (const auto direction : {Convolution::Direction::forward, Convolution::Direction::data_grad,
                               Convolution::Direction::weight_grad}) {
    const Graph graph = convolution(DType::f32, direction);
    settings.tf32 = false;
    EXPECT_THAT(chosen(settings, graph), Not(HasSubstr("tensor cores")));
    settings.tf32 = true;
    EXPECT_THAT(chosen(settings, graph), HasSubstr("tensor cores"));
  }
  settings.tf32 = false;  // is about f32 alone
  EXPECT_THAT(chosen(settings, convolution(DType::f16)), HasSubstr("tensor cores"));
}

TEST(CudnnLibrary, EnginesAboveTheWorkspaceCapAreLeftOut) {
  Settings settings = assume_device("sm_90");
  settings.tf32 = true;
  const Graph graph = convolution(DType::f32, Convolution::Direction::weight_grad);
  const Planned roomy = open_library(settings)->plan(graph);
  ASSERT_NE(roomy.plan, nullptr) << roomy.why_not;
  ASSERT_GT(roomy.plan->workspace_bytes(), 1000u);
  settings.workspace_cap = roomy.plan->workspace_bytes() - 1;
  const Planned tight = open_library(settings)->plan(graph);
  ASSERT_NE(tight.plan, nullptr) << tight.why_not;
  EXPECT_LE(tight.plan->workspace_bytes(), settings.workspace_cap);
}

TEST(CudnnLibrary, ExactMathKeepsOffWinograd) {
  Settings settings = assume_device("sm_80");
  EXPECT_THAT(chosen(settings, convolution(DType::f32)), HasSubstr("winograd"));
  settings.exact_math = true;
  EXPECT_THAT(chosen(settings, convolution(DType::f32)), HasSubstr("cudnn engine"));
  EXPECT_THAT(chosen(settings, convolution(DType::f32)), Not(HasSubstr("winograd")));
}

TEST(CudnnLibrary, DeterministicKeepsOffEnginesThatAreNot) {
  Settings settings = assume_device("sm_90");
  settings.workspace_cap = 0;  // without workspace, the first that is left adds with atomics
  const Graph graph = convolution(DType::f32, Convolution::Direction::weight_grad);
  EXPECT_EQ(chosen(settings, graph), "cudnn engine 20 (precompiled, not deterministic)");
  settings.deterministic = true;
  EXPECT_THAT(chosen(settings, graph), HasSubstr("cudnn engine"));
  EXPECT_THAT(chosen(settings, graph), Not(HasSubstr("not deterministic")));
}

TEST(CudnnLibrary, AGraphThatNoEngineComputesIsRefused) {
  Settings settings = assume_device("sm_90");
  Graph graph = convolution(DType::f16, Convolution::Direction::weight_grad);
  graph.tensors[1].dtype = DType::f32;  // gradients of weights come in the type of their factors
  const Planned planned = open_library(settings)->plan(graph);
  EXPECT_EQ(planned.plan, nullptr);
  EXPECT_THAT(planned.why_not, HasSubstr("cuDNN offers no engine"));
}

TEST(CudnnLibrary, AGraphWhoseExtentsDoNotFitIsRefused) {
  Graph graph = convolution(DType::f16);
  graph.tensors[2] = nhwc(3, DType::f16, 128, 15, 15, 64);
  const Planned planned = open_library(assume_device("sm_90"))->plan(graph);
  EXPECT_EQ(planned.plan, nullptr);
  EXPECT_THAT(planned.why_not, HasSubstr("CUDNN_STATUS_BAD_PARAM"));
}

TEST(CudnnLibrary, APlanForAnAssumedDeviceIsNotExecuted) {
  const Planned planned = open_library(assume_device("sm_80"))->plan(convolution(DType::bf16));
  ASSERT_NE(planned.plan, nullptr) << planned.why_not;
  NoStream none;
  EXPECT_THROW(planned.plan->execute(none.stream, {}, nullptr), DeviceError);
}

// cuDNN itself would offer no engine.
TEST(CudnnLibrary, AttentionIsPlannedLaterWhereThereIsNoDriver) {
  if (dlopen("libcuda.so.1", RTLD_LAZY) != nullptr) GTEST_SKIP() << "this machine has a driver";
  const Settings settings = assume_device("sm_90");
  AttentionShape shape{
      .sequences = 2, .heads = 2, .length = 64, .features = 64, .qkv_pitch = 384, .o_pitch = 128};
  const Planned planned =
      open_library(settings)->plan(attention_graph("attention", shape, DType::bf16));
  ASSERT_NE(planned.plan, nullptr) << planned.why_not;
  EXPECT_EQ(planned.plan->implementation(), "cudnn (chosen on the device)");
  NoStream none;
  EXPECT_THROW(planned.plan->execute(none.stream, {}, nullptr), DeviceError);
  shape.features = 65;
  EXPECT_EQ(chosen(settings, attention_graph("attention", shape, DType::bf16)),
            "none: 65 features per head are not a multiple of 8 up to 256");
}

class KeptPlan : public testing::Test {
 protected:
  KeptPlan() {
    // A folder of this process alone: tests run side by side.
    settings_.cache = std::filesystem::path(testing::TempDir()) /
                      fmt::format("warpstep_kept_plan_{}", ::getpid());
    std::filesystem::remove_all(settings_.cache);
  }
  ~KeptPlan() override { std::filesystem::remove_all(settings_.cache); }

  void plant(std::string_view saved) {
    PlanCache(settings_, open_library(settings_)->version()).keep(graph_.key(), saved);
  }
  std::string saved() {
    return PlanCache(settings_, open_library(settings_)->version()).find(graph_.key()).value_or("");
  }

  Settings settings_ = assume_device("sm_90");
  Graph graph_ = convolution(DType::f16);
};

TEST_F(KeptPlan, IsRestoredFromItsJson) {
  const std::string fresh = chosen(settings_, graph_);
  const std::string plan = saved();
  ASSERT_EQ("cudnn " + plan.substr(0, plan.find('\n')), fresh);
  // The name that is written next to the plan distinguishes a restored plan from a new one.
  plant("engine 41 (planted)" + plan.substr(plan.find('\n')));
  const Planned restored = open_library(settings_)->plan(graph_);
  ASSERT_NE(restored.plan, nullptr);
  EXPECT_EQ(restored.plan->implementation(), "cudnn engine 41 (planted)");
}

// The step asks first whether a fusion has an engine, then for its plan.
TEST_F(KeptPlan, IsThatOfTheQuestionWhetherThereIsOne) {
  const std::unique_ptr<Library> library = open_library(settings_);
  ASSERT_TRUE(library->supports(graph_));
  const std::string plan = saved();
  ASSERT_NE(plan, "");
  EXPECT_EQ(library->plan(graph_).plan->implementation(),
            "cudnn " + plan.substr(0, plan.find('\n')));
}

// Plans of memory leave nothing behind, and say what others would.
TEST_F(KeptPlan, IsNotOneThatOnlyTellsItsWorkspace) {
  const std::unique_ptr<Library> library = open_library(settings_);
  library->only_plan(true);
  EXPECT_TRUE(library->supports(graph_));
  const Planned alone = library->plan(graph_);
  ASSERT_NE(alone.plan, nullptr) << alone.why_not;
  EXPECT_EQ(saved(), "");
  library->only_plan(false);
  const Planned kept = library->plan(graph_);
  EXPECT_EQ(kept.plan->implementation(), alone.plan->implementation());
  EXPECT_NE(saved(), "");
}

TEST_F(KeptPlan, IsMadeAnewAndKeptWhenCudnnRefusesIt) {
  const std::string fresh = chosen(settings_, graph_);
  for (const std::string_view bad : {"engine 41 (planted)\n{}", "engine 41 (planted)\n", "{}",
                                     "engine 41 (planted)\nnot json"}) {
    plant(bad);
    EXPECT_EQ(chosen(settings_, graph_), fresh) << bad;
    EXPECT_THAT(saved(), Not(HasSubstr("planted"))) << bad;
  }
}

TEST(AssumedDevices, AreAllAcceptedByCudnn) {
  for (const std::string& name : assumed_devices()) {
    EXPECT_THAT(chosen(assume_device(name), convolution(DType::f16)), HasSubstr("cudnn engine"))
        << name;
  }
}

TEST(SurroundingsOfCuda, NameTheFileOfCudnn) {
  EXPECT_THAT(describe_optional_libraries(),
              testing::ContainsRegex(", cuDNN of /.*/libcudnn[.]so[.]9"));
}

TEST(AssumedDevices, AnUnknownNameIsAnsweredWithTheKnownOnes) {
  try {
    assume_device("sm90");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean sm_90?"));
    EXPECT_THAT(error.what(), HasSubstr("sm_75, sm_80"));
  }
}

}  // namespace
}  // namespace warpstep::cuda::dnn
