// What the CUDA backend refuses with a message of its own, where the runtime or a library would say
// less, later, or nothing.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

#include "engine/core/error.h"
#include "engine/graph/adjoint.h"
#include "engine/graph/layers.h"
#include "engine/run/runner.h"
#include "engine/run/step_memory.h"
#include "kernels/cuda/launch_kernel.h"
#include "tests/cuda_on_cpu/fake_runtime.h"
#include "tests/stepping.h"
#include "tests/tested_backend.h"

namespace warpstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;
using testing_support::model_step;
using testing_support::open_tested_backend;
using testing_support::Stepping;

constexpr const char* refusing_backend = "cuda_emulated";

void plan_for(const std::string& device, Precision precision, DType moments = DType::f32) {
  const auto backend = open_tested_backend(
      refusing_backend, {.tf32 = precision == Precision::tf32, .assumed_device = device});
  StepOptions options{.precision = precision};
  options.optimizer.moment_dtype = moments;
  plan_step(model_step("mlp", 2, options_for(*backend, options)), *backend);
}

TEST(CudaPrecision, IsRefusedOnDevicesWithoutIt) {
  for (const Precision precision : {Precision::bf16, Precision::tf32}) {
    EXPECT_THAT([&] { plan_for("sm_75", precision); },
                ThrowsMessage<DeviceError>(AllOf(HasSubstr("Tesla T4 (sm_75) does not compute in "),
                                                 HasSubstr(std::string(name(precision))),
                                                 HasSubstr("--precision fp16 or fp32"))));
    EXPECT_NO_THROW(plan_for("sm_80", precision));
  }
  for (const Precision precision : {Precision::fp32, Precision::fp16})
    EXPECT_NO_THROW(plan_for("sm_75", precision));
  EXPECT_NO_THROW(plan_for("sm_75", Precision::fp16, DType::bf16));
}

// A size that is taken for 0 would put all gradients into one exchange, after the backward half.
TEST(CudaBuckets, HaveASizeThatIsANumber) {
  const auto backend = open_tested_backend(refusing_backend);
  const auto bytes_with = [&](const char* chosen) {
    ::setenv("WARPSTEP_BUCKET_MIB", chosen, 1);
    return backend->exchange().bucket_bytes;
  };
  EXPECT_EQ(bytes_with("0"), 0U);
  EXPECT_EQ(bytes_with("0.5"), 512U << 10);
  EXPECT_EQ(bytes_with("65536"), std::size_t{64} << 30);
  for (const char* wrong :
       {"", "auto", "x25", "25 MiB", "25x", "-1", "nan", "inf", "1e30", "1e999", "65537"})
    EXPECT_THAT([&] { bytes_with(wrong); },
                ThrowsMessage<UsageError>(HasSubstr(
                    fmt::format("WARPSTEP_BUCKET_MIB is '{}'; it must be from 0 (all", wrong))))
        << wrong;
  ::unsetenv("WARPSTEP_BUCKET_MIB");
  EXPECT_EQ(backend->exchange().bucket_bytes, std::size_t{25} << 20);
}

// x as it is, by a kernel that does something else besides.
class CopyAnd final : public CustomOp {
 public:
  explicit CopyAnd(std::function<void(cudaStream_t)> besides) : besides_(std::move(besides)) {}
  std::string_view name() const override { return "copy"; }
  Types infer(const Types& in) const override { return in; }
  Cost cost(const Types& in, const Types& out) const override {
    return {1, bytes_of(in) + bytes_of(out), 1};
  }
  void grad(Adjoint& adjoint) const override { adjoint.give(0, adjoint.d_out()); }
  std::unique_ptr<Kernel> bind(std::string_view, const Graph& graph,
                               const Node& node) const override {
    return cuda::launch_kernel(
        "copy", [besides = besides_, bytes = bytes_of({graph.value(node.in[0]).type})](
                    const Buffers& b, cuda::CudaStream& stream) {
          (void)cudaMemcpyAsync(b.out[0], b.in[0], static_cast<std::size_t>(bytes),
                                cudaMemcpyDeviceToDevice, stream.handle());
          besides(stream.handle());
        });
  }

 private:
  std::function<void(cudaStream_t)> besides_;
};

// The first step runs call by call, the second is captured.
void train_with(std::function<void(cudaStream_t)> besides) {
  Graph g;
  const Tensor x = g.input("x", {DType::f32, {2, 16}});
  const Tensor labels = g.input("labels", {DType::i32, {2}});
  const Tensor h = linear("fc1", x, {.out = 8});
  const Tensor copied = custom("middle", std::make_shared<CopyAnd>(std::move(besides)), {h});
  cross_entropy(linear("fc2", copied, {.out = 3}), labels);
  const auto backend = open_tested_backend(refusing_backend);
  Stepping step(compile_step(g, options_for(*backend, {})), backend);
  const auto runner = graph_runner(step.program);
  for (int i = 0; i < 3; ++i) runner->step();
}

TEST(CudaCapture, NamesTheCustomOpThatSpoilsIt) {
  EXPECT_NO_THROW(train_with([](cudaStream_t) {}));
  const auto named = AllOf(HasSubstr("middle/copy cannot be part of a step that is captured"),
                           HasSubstr("--no-graph"));
  EXPECT_THAT(
      [] {
        train_with([](cudaStream_t) {
          void* memory = nullptr;
          if (cudaMalloc(&memory, 16) == cudaSuccess) cudaFree(memory);
        });
      },
      ThrowsMessage<DeviceError>(named));
  EXPECT_THAT([] { train_with([](cudaStream_t stream) { cudaStreamSynchronize(stream); }); },
              ThrowsMessage<DeviceError>(named));
  // One that looks at what the runtime returns.
  const auto checked = [](cudaStream_t) {
    void* memory = nullptr;
    if (cudaMalloc(&memory, 16) != cudaSuccess) fail<DeviceError>("no memory for the op");
    (void)cudaFree(memory);
  };
  EXPECT_THAT([&] { train_with(checked); },
              ThrowsMessage<DeviceError>(AllOf(named, HasSubstr("(no memory for the op)"))));
  (void)cudaGetLastError();
}

TEST(CudaCapture, OfAnyOtherCallThatFailsNamesTheWayOn) {
  Stepping step(model_step("mlp", 2), open_tested_backend(refusing_backend));
  const auto runner = graph_runner(step.program);
  runner->step();
  fake_cuda::fail_next("cudaStreamEndCapture", cudaErrorStreamCaptureInvalidated);
  EXPECT_THAT([&] { runner->step(); },
              ThrowsMessage<DeviceError>(
                  AllOf(HasSubstr("cudaStreamEndCapture failed"), HasSubstr("--no-graph"))));
}

}  // namespace
}  // namespace warpstep
