// The CUDA backend's calls of the runtime, observed through the fake one: enqueuing makes no call
// that a capture forbids, everything is freed at the end, and a failed call gives a message that a
// user can act on.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <functional>
#include <set>
#include <thread>

#include "engine/core/error.h"
#include "engine/core/file.h"
#include "engine/core/version.h"
#include "engine/graph/layers.h"
#include "engine/run/feeder.h"
#include "engine/run/step_memory.h"
#include "engine/run/trainer.h"
#include "kernels/cuda/runtime.h"
#include "tests/cuda_on_cpu/fake_runtime.h"
#include "tests/row_plans.h"
#include "tests/tested_backend.h"
#include "tests/trial.h"

namespace warpstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;
using testing_support::model_step;
using testing_support::open_tested_backend;
using testing_support::Stepping;
using testing_support::Trial;

constexpr const char* backend_name = "cuda_emulated";

// All functions of the runtime that allocate, wait, or change the device otherwise than by
// enqueuing work.
const std::set<std::string> forbidden_in_enqueue{"cudaMalloc",
                                                 "cudaFree",
                                                 "cudaMallocHost",
                                                 "cudaHostAlloc",
                                                 "cudaFreeHost",
                                                 "cudaMemcpy",
                                                 "cudaMemset",
                                                 "cudaMemGetInfo",
                                                 "cudaStreamSynchronize",
                                                 "cudaStreamQuery",
                                                 "cudaEventSynchronize",
                                                 "cudaEventQuery",
                                                 "cudaDeviceSynchronize",
                                                 "cudaEventCreateWithFlags",
                                                 "cudaStreamCreateWithFlags",
                                                 "cudaDeviceGetStreamPriorityRange",
                                                 "cudaFuncSetAttribute",
                                                 "cudaGetDeviceProperties"};

std::vector<cases::Case> light_cases(const Backend& backend) {
  std::vector<cases::Case> all = cases::all();
  std::erase_if(all, [&](const cases::Case& c) {
    return c.heavy || (!c.fusion.empty() && !backend.wants(c.fusion));
  });
  for (cases::Case& c : all)
    if (cases::has_adjoint(c)) c = cases::with_adjoint(std::move(c));
  return all;
}

TEST(CudaEnqueue, AllocatesNothingAndWaitsForNothing) {
  const auto backend = open_tested_backend(backend_name);
  std::size_t launches = 0;
  for (cases::Case& c : light_cases(*backend)) {
    if (testing_support::lacks_engine(c, *backend))  // in f32
      c.graph = apply_precision(std::move(c.graph), Precision::fp16);
    if (testing_support::lacks_engine(c, *backend)) continue;
    Trial trial(c, backend);
    trial.record_all();  // the streams' events are created at their first use
    fake_cuda::reset_counts();
    trial.record_all();  // what kernels compute is op_cuda_emulated_test's
    for (const std::string& function : forbidden_in_enqueue)
      EXPECT_EQ(fake_cuda::calls(function), 0U) << c.name << " called " << function;
    launches += fake_cuda::calls("cudaLaunchKernelExC");
  }
  EXPECT_GT(launches, 100U) << "the counts count nothing";
}

TEST(CudaStep, IsOneLaunchAndOneWait) {
  Stepping step(model_step("cifar10cnn", 2), open_tested_backend(backend_name));
  const auto runner = graph_runner(step.program);
  for (int i = 0; i < 2; ++i) runner->step();  // warm-up, capture
  step.program.wait();
  fake_cuda::reset_counts();
  runner->step();
  step.program.stream().wait_for(step.program.stream().mark());
  EXPECT_EQ(fake_cuda::calls("cudaGraphLaunch"), 1U);
  EXPECT_EQ(fake_cuda::calls("cudaLaunchKernelExC"), 0U);
  EXPECT_EQ(fake_cuda::calls("cudaEventSynchronize"), 1U);
  EXPECT_EQ(fake_cuda::calls("cudaStreamSynchronize"), 0U);
  EXPECT_EQ(fake_cuda::runs("report"), 1U);
}

TEST(CudaStep, RunsCallByCallWhereAGraphHasNoMemory) {
  for (const char* function : {"cudaGraphInstantiate", "cudaGraphUpload"}) {
    Stepping step(model_step("mlp", 2), open_tested_backend(backend_name));
    const auto runner = graph_runner(step.program);
    runner->step();
    step.program.wait();
    fake_cuda::reset_counts();
    fake_cuda::fail_next(function, cudaErrorMemoryAllocation);
    for (int i = 0; i < 2; ++i) runner->step();
    step.program.stream().wait();
    EXPECT_EQ(fake_cuda::calls(function), 1U) << "it is not tried again";
    EXPECT_EQ(fake_cuda::calls("cudaGraphLaunch"), 0U);
    EXPECT_EQ(fake_cuda::runs("report"), 2U) << function;
  }
}

// Alternating slots, as a loader's: one recording each, made once.
TEST(CudaStep, IsCapturedOnceForEachInputSlot) {
  const auto backend = open_tested_backend(backend_name);
  Stepping step(model_step("mlp", 2), backend);
  const std::vector<const void*> first(step.program.inputs().begin(), step.program.inputs().end());
  const auto images = backend->allocate_host(2 * 28 * 28), labels = backend->allocate_host(8);
  const std::vector<const void*> second{images.get(), labels.get()};
  const auto runner = graph_runner(step.program);
  runner->step();
  fake_cuda::reset_counts();
  for (int i = 0; i < 3; ++i) {
    step.program.set_inputs(first);
    runner->step();
    step.program.set_inputs(second);
    runner->step();
  }
  EXPECT_EQ(fake_cuda::calls("cudaGraphInstantiate"), 2U);
  EXPECT_EQ(fake_cuda::calls("cudaGraphLaunch"), 6U);
}

// A data set is read in place; labels and plans come with each batch.
TEST(CudaStep, ReadsWhatIsResidentInPlace) {
  const std::vector<RowPlan> rows = testing_support::row_plans(4);
  std::vector<float> losses;
  for (const auto& backend : {open_backend("ref"), open_tested_backend(backend_name)})
    for (const Precision precision : {Precision::fp32, Precision::fp16}) {
      if (backend->name() == "ref" && precision != Precision::fp32) continue;
      const Graph graph = models::build(models::find("mlp"), testing_support::set_of_windows(4));
      const StepOptions options = options_for(*backend, {.precision = precision});
      Stepping step(compile_step(graph, options), backend);
      step.program.store().initialize(5);
      testing_support::load_with_plans(step, 2, rows);
      std::vector<std::string> uploaded;
      for (const Node& node : step.program.graph().nodes)
        if (std::holds_alternative<Upload>(node.op)) uploaded.push_back(node.scope);
      const bool on_device = backend->name() != "ref";
      EXPECT_EQ(uploaded, on_device ? std::vector<std::string>({"rows", "labels"})
                                    : std::vector<std::string>());
      const auto runner = graph_runner(step.program);
      for (int i = 0; i < 3; ++i) runner->step();
      losses.push_back(step.program.loss());
    }
  EXPECT_NEAR(losses[1], losses[0], 1e-4 * losses[0]);
  EXPECT_NEAR(losses[2], losses[0], 1e-2 * losses[0]);
}

// The weights and biases of two layers, in f32 and as copies of 16 bits.
std::vector<std::vector<float>> weights_of(const std::shared_ptr<Backend>& backend,
                                           std::int64_t features, std::int64_t hidden) {
  Graph g;
  const Tensor images = g.input("images", {DType::u8, {2, 1, features, 1}});
  const Tensor labels = g.input("labels", {DType::i32, {2}});
  const std::vector<float> half{0.5F};
  const Tensor h = linear("fc1", flatten(normalize(images, half, half)), {.out = hidden});
  cross_entropy(linear("fc2", relu(h), {.out = 3}), labels);
  const bool is_ref = backend->name() == "ref";
  const StepOptions options{.training = false,
                            .precision = is_ref ? Precision::fp32 : Precision::fp16};
  Program program(compile_step(g, options_for(*backend, options)), backend);
  Store& store = program.store();
  store.initialize(3);
  std::vector<std::vector<float>> all;
  for (std::size_t p = 0; p < store.parameters().size(); ++p)
    for (const auto section : {Store::Section::parameter, Store::Section::copy})
      all.push_back(store.read(p, is_ref ? Store::Section::parameter : section));
  return all;
}

// Pieces that end within the rows of padding, between rows of which each is shorter than its
// padding, and rows that are longer than a piece.
TEST(CudaReadback, GivesWhatWasWrittenWhereverPiecesEnd) {
  constexpr std::array<std::pair<std::int64_t, std::int64_t>, 3> sizes{
      {{16, 130'001}, {1, 1'100'001}, {3, 40'000}}};
  const auto backend = open_tested_backend(backend_name);
  for (const auto& [features, hidden] : sizes) {
    const auto expected = weights_of(open_backend("ref"), features, hidden),
               found = weights_of(backend, features, hidden);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i].size(), expected[i].size());
      const bool is_copy = i % 2 == 1;
      float most = 0, off = 0;
      for (std::size_t e = 0; e < found[i].size(); ++e) {
        most = std::max(most, std::abs(expected[i][e]));
        off = std::max(off, std::abs(found[i][e] - expected[i][e]));
      }
      // Half of the last of a half's 11 digits.
      EXPECT_LE(off, is_copy ? std::ldexp(most, -11) : 0) << hidden << ", " << i;
      EXPECT_GT(most, 0) << hidden << ", " << i;
    }
  }
}

TEST(CudaReadback, CopiesLargeValuesToPinnedMemoryThatIsAllocatedOnce) {
  Stepping step(model_step("cifar10cnn", 2), open_tested_backend(backend_name));
  const Store& store = step.program.store();
  const auto read_all = [&] {
    for (std::size_t p = 0; p < store.parameters().size(); ++p) (void)store.read(p);
  };
  read_all();
  fake_cuda::reset_counts();
  const fake_cuda::Live before = fake_cuda::live();
  read_all();
  EXPECT_TRUE(fake_cuda::live() == before);
  EXPECT_EQ(fake_cuda::calls("cudaHostAlloc"), 0U);
  EXPECT_EQ(fake_cuda::calls("cudaMemcpy"), 8U);  // six biases, conv1 and conv2
  // 16 MiB of fc1 in pieces of 4; conv3, conv4 and fc2.
  EXPECT_EQ(fake_cuda::calls("cudaMemcpyAsync"), 4U + 3U);
}

TEST(CudaReadback, ThatFailsSaysWhy) {
  Stepping step(model_step("cifar10cnn", 2), open_tested_backend(backend_name));
  const Store& store = step.program.store();
  fake_cuda::fail_next("cudaMemcpyAsync", cudaErrorECCUncorrectable, 1);
  EXPECT_THAT(
      [&] {
        for (std::size_t p = 0; p < store.parameters().size(); ++p) (void)store.read(p);
      },
      ThrowsMessage<DeviceError>(HasSubstr("cudaMemcpyAsync failed")));
}

TEST(CudaProgram, FreesEverything) {
  const auto backend = open_tested_backend(backend_name);
  const fake_cuda::Live before = fake_cuda::live();
  {
    Stepping step(model_step("cifar10cnn", 2), backend);
    const auto runner = graph_runner(step.program);
    for (int i = 0; i < 3; ++i) runner->step();
    EXPECT_GT(fake_cuda::live().bytes, before.bytes);
  }
  EXPECT_TRUE(fake_cuda::live() == before);
}

TEST(CudaProgram, ThatDoesNotFitSaysHowMuchThereIs) {
  const auto backend = open_tested_backend(backend_name);
  fake_cuda::set_device_memory(std::size_t{64} << 20);
  EXPECT_THAT([&] { Stepping(model_step("cifar10cnn", 64), backend); },
              ThrowsMessage<DeviceError>(AllOf(HasSubstr("cuda: cannot allocate "),
                                               HasSubstr("of 64.0 MiB are free"),
                                               HasSubstr("smaller --batch"))));
  fake_cuda::set_device_memory(std::size_t{8} << 30);
}

TEST(CudaBackend, SaysThatPinnedMemoryIsTheHosts) {
  const auto backend = open_tested_backend(backend_name);
  fake_cuda::fail_next("cudaHostAlloc", cudaErrorMemoryAllocation);
  EXPECT_THAT([&] { (void)backend->allocate_host(3 << 20); },
              ThrowsMessage<DeviceError>(
                  AllOf(HasSubstr("cannot pin 3.0 MiB of host memory"), HasSubstr("--prefetch"))));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST(CudaCapture, ThatFailsLeavesTheStreamUsable) {
  Stepping step(model_step("mlp", 2), open_tested_backend(backend_name));
  const auto runner = graph_runner(step.program);
  runner->step();
  fake_cuda::fail_next("cudaMemcpyAsync", cudaErrorInvalidValue);
  EXPECT_THAT([&] { runner->step(); },
              ThrowsMessage<DeviceError>(HasSubstr("cudaMemcpyAsync failed")));
  EXPECT_NO_THROW(runner->step());
  EXPECT_NO_THROW(step.program.wait());
}

TEST(CudaDevice, LostNamesTheCallAndTheWayOn) {
  Stepping step(model_step("mlp", 2), open_tested_backend(backend_name));
  const auto runner = graph_runner(step.program);
  for (int i = 0; i < 2; ++i) runner->step();
  fake_cuda::fail_next("cudaGraphLaunch", cudaErrorECCUncorrectable);
  EXPECT_THAT(
      [&] { runner->step(); },
      ThrowsMessage<DeviceError>(AllOf(HasSubstr("cudaGraphLaunch failed"),
                                       HasSubstr("the device is lost"), HasSubstr("--resume"))));
}

TEST(CudaStreams, HaveTheDevicesPriorities) {
  const auto backend = open_tested_backend(backend_name);
  const auto priority_of = [&](Precedence precedence) {
    const auto stream = backend->make_stream(precedence);
    int priority = 1;
    EXPECT_EQ(cudaStreamGetPriority(static_cast<cuda::CudaStream&>(*stream).handle(), &priority),
              cudaSuccess);
    return priority;
  };
  EXPECT_EQ(priority_of(Precedence::first), -5);
  EXPECT_EQ(priority_of(Precedence::second), -2);
  EXPECT_EQ(priority_of(Precedence::last), 0);
}

// The current device is a thread's own; the feeder fills its buffers in a thread that it starts.
TEST(CudaDevice, OfEveryThreadIsTheOneThatWasAskedFor) {
  fake_cuda::set_devices(2);
  const auto backend = open_tested_backend(backend_name, {.device = 1});
  std::vector<std::shared_ptr<std::byte>> memory;
  std::thread([&] {
    memory.push_back(backend->allocate(1000));
    const auto stream = backend->make_stream(Precedence::first);
    memory.push_back(backend->allocate_host(1000));
    backend->fill(memory[0].get(), 0, 1000);
    backend->upload(*stream, memory[0].get(), memory[1].get(), 1000);
    stream->wait();
    int device = 0;
    EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
    EXPECT_EQ(device, 1);
  }).join();
  std::thread([&] {
    const StepScope step(*backend);
    int device = 0;
    EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
    EXPECT_EQ(device, 1);
  }).join();
  for (const auto& block : memory) EXPECT_EQ(fake_cuda::device_of(block.get()), 1);
  Graph graph = model_step("mlp", 2);
  backend->choose_layouts(graph);
  const auto device_after = [](const std::function<void()>& planning) {
    int device = 0;
    std::thread([&] {
      planning();
      EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
    }).join();
    return device;
  };
  EXPECT_EQ(device_after([&] { (void)backend->bind(graph, graph.nodes.front()); }), 1);
  EXPECT_EQ(device_after([&] { (void)backend->computes(Conv{}, {}); }), 1);
  memory.clear();
  fake_cuda::set_devices(1);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST(CudaDevice, IsKnownByItsPlaceOnTheBus) {
  fake_cuda::set_devices(2);
  const auto backend = open_tested_backend(backend_name, {.device = 1});
  const std::optional<Accelerator> device = backend->accelerator();
  ASSERT_TRUE(device);
  EXPECT_EQ(device->ordinal, 1);
  EXPECT_EQ(device->bus, "0000:02:00.0");
  fake_cuda::fail_next("cudaDeviceGetPCIBusId", cudaErrorInvalidValue);
  EXPECT_EQ(backend->accelerator()->bus, "");
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  fake_cuda::set_devices(1);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_FALSE(open_tested_backend(backend_name, {.assumed_device = "sm_90"})->accelerator());
}

// Compiled for an older device, the kernels have no products of tensor cores, whatever runs them.
TEST(CudaDevice, IsUsedAsFarAsKernelsAreCompiledFor) {
  const auto own_products = [](int compiled) {
    fake_cuda::set_compiled(compiled);
    const Stepping step(model_step("cifar10cnn", 2, {.precision = Precision::fp16}),
                        open_tested_backend(backend_name));
    fake_cuda::set_compiled(90);
    return std::ranges::count_if(step.program.calls(), [](const Call& call) {
      return call.kernel->implementation().find("tensor cores") != std::string::npos;
    });
  };
  EXPECT_EQ(own_products(75), 0);
  EXPECT_GT(own_products(80), 0);
}

TEST(CudaDevice, ThatCannotBeUsedSaysWhy) {
  const auto open = [] { open_tested_backend(backend_name); };
  const auto refused = [&](cudaError_t status, const char* reason) {
    fake_cuda::fail_next("cudaGetDeviceCount", status);
    EXPECT_THAT(open, ThrowsMessage<DeviceError>(HasSubstr(reason)));
  };
  refused(cudaErrorNoDevice, "CUDA_VISIBLE_DEVICES");
  refused(cudaErrorInsufficientDriver, "update the driver");
  refused(cudaErrorStubLibrary, "stub");
  refused(cudaErrorDevicesUnavailable, "another process has the device");
  refused(cudaErrorSystemNotReady, "nvidia-fabricmanager must run");
  EXPECT_THAT([] { open_tested_backend(backend_name, {.device = 7}); },
              ThrowsMessage<DeviceError>(HasSubstr("there is no cuda:7; this machine has 1")));
  EXPECT_NO_THROW(open());
}

Graph convolution_and_classifier(const Backend& backend) {
  Graph g;
  const Tensor images = g.input("images", {DType::u8, {2, 4, 4, 3}});
  const Tensor labels = g.input("labels", {DType::i32, {2}});
  const std::vector<float> half{0.5F, 0.5F, 0.5F};
  const Tensor h =
      conv("conv", normalize(images, half, half), {.out = 8, .kernel = 3, .padding = 1});
  cross_entropy(linear("fc", flatten(relu(h)), {.out = 10}), labels);
  return compile_step(g, options_for(backend, {.precision = Precision::fp16}));
}

// Which of our own kernels and the library's is faster is found once, and kept in the plan cache.
TEST(CudaAutotune, MeasuresOwnKernelsBesideALibrarysOnce) {
  std::string folder = std::filesystem::temp_directory_path() / "warpstep-plans-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const auto implementations = [&](bool autotune) {
    const auto backend =
        open_tested_backend(backend_name, {.autotune = autotune, .plan_cache = folder});
    const Stepping step(convolution_and_classifier(*backend), backend);
    std::vector<std::string> all;
    for (const Call& call : step.program.calls()) all.push_back(call.kernel->implementation());
    return all;
  };
  fake_cuda::reset_counts();
  const std::vector<std::string> first = implementations(true);
  EXPECT_GT(fake_cuda::runs("narrow_forward"), 0U);
  EXPECT_GT(fake_cuda::runs("few_forward"), 0U);
  fake_cuda::reset_counts();
  EXPECT_EQ(implementations(true), first);
  EXPECT_EQ(implementations(false), first);
  EXPECT_EQ(fake_cuda::calls("cudaGraphLaunch"), 0U);
  std::size_t chosen = 0;  // not to be found by another version, of a library or of ours
  const std::string versions =
      fmt::format("own kernels of {} beside emulated cuDNN, emulated cuBLASLt | ", commit());
  for (const auto& file : std::filesystem::directory_iterator(folder))
    if (read_file(file.path()).find(versions) != std::string::npos) ++chosen;
  EXPECT_GT(chosen, 0U);
  std::filesystem::remove_all(folder);
}

TEST(CudaAutotune, WithoutMemoryTakesOwnKernels) {
  const auto backend = open_tested_backend(backend_name, {.autotune = true});
  Graph graph = model_step("mlp", 2);
  backend->choose_layouts(graph);
  fake_cuda::reset_counts();
  for (const Node& node : graph.nodes) {
    const auto* linear = std::get_if<Linear>(&node.op);
    if (!linear || linear->out > 10) continue;
    fake_cuda::fail_next("cudaMalloc", cudaErrorMemoryAllocation);
    EXPECT_EQ(backend->bind(graph, node)->implementation(), "few outputs");
  }
  EXPECT_EQ(fake_cuda::calls("cudaMalloc"), 1U);
  EXPECT_EQ(fake_cuda::calls("cudaGraphLaunch"), 0U);
}

// A batch that does not fit is followed by plans of others, for a message: nothing may run for
// them.
TEST(CudaAutotune, PlansOfMemoryRunNothingAndAllocateNothing) {
  std::string folder = std::filesystem::temp_directory_path() / "warpstep-plans-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const auto backend = open_tested_backend(backend_name, {.autotune = true, .plan_cache = folder});
  fake_cuda::reset_counts();
  const fake_cuda::Live before = fake_cuda::live();
  const StepMemory planned = plan_step(convolution_and_classifier(*backend), *backend);
  EXPECT_GT(planned.plan.arena_bytes, 0U);
  for (const char* call : {"cudaMalloc", "cudaLaunchKernelExC", "cudaGraphLaunch", "cudaMemcpy"})
    EXPECT_EQ(fake_cuda::calls(call), 0U) << call;
  EXPECT_EQ(fake_cuda::live(), before);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  // What was measured is planned.
  const Stepping step(convolution_and_classifier(*backend), backend);
  EXPECT_GT(fake_cuda::calls("cudaGraphLaunch"), 0U);
  fake_cuda::reset_counts();
  EXPECT_EQ(plan_step(convolution_and_classifier(*backend), *backend).plan.arena_bytes,
            step.program.plan().arena_bytes);
  EXPECT_EQ(fake_cuda::calls("cudaMalloc"), 0U);
  std::filesystem::remove_all(folder);
}

// Wherever it is seen: while memory is filled, tried or measured.
TEST(CudaAutotune, ALostDeviceIsNoChoice) {
  Graph graph = model_step("mlp", 2);
  open_tested_backend(backend_name)->choose_layouts(graph);
  const auto few = std::ranges::find_if(graph.nodes, [](const Node& node) {
    const auto* linear = std::get_if<Linear>(&node.op);
    return linear && linear->out <= 10;
  });
  const auto bind = [&] {
    return open_tested_backend(backend_name, {.autotune = true})->bind(graph, *few);
  };
  fake_cuda::reset_counts();
  (void)bind();
  const std::size_t waits = fake_cuda::calls("cudaStreamSynchronize");
  EXPECT_GT(waits, 10U);
  for (std::size_t skipped = 0; skipped < waits; ++skipped) {
    fake_cuda::fail_next("cudaStreamSynchronize", cudaErrorIllegalAddress, skipped);
    EXPECT_THROW((void)bind(), DeviceLost) << skipped;
  }
}

TEST(CudaProgram, OnALostDeviceIsNotOutOfMemory) {
  const auto backend = open_tested_backend(backend_name);
  fake_cuda::fail_next("cudaMalloc", cudaErrorIllegalAddress);
  EXPECT_THAT([&] { Stepping(model_step("mlp", 2), backend); },
              ThrowsMessage<DeviceLost>(HasSubstr("cudaMalloc failed")));
}

}  // namespace
}  // namespace warpstep
