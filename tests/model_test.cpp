// Whole models on a fast backend: call by call against the reference, the same bits from run to
// run, and with every dead buffer poisoned.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "engine/core/cpu_isa.h"
#include "engine/core/error.h"
#include "engine/passes/precision.h"
#include "engine/run/runner.h"
#include "tests/runners.h"
#include "tests/small_graphs.h"
#include "tests/stepping.h"

namespace warpstep {
namespace {

using testing_support::check_runner;
using testing_support::model_step;
using testing_support::poisoning_runner;
using testing_support::Stepping;

class ModelOnCpu : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    try {
      open_backend("cpu");
    } catch (const DeviceError& error) {
      GTEST_SKIP() << error.what();
    }
  }

  static std::unique_ptr<Stepping> stepping(const char* backend, const StepOptions& options = {},
                                            std::int64_t batch = 4) {
    const StepOptions wanted = options_for(*open_backend("cpu"), options);
    auto step =
        std::make_unique<Stepping>(model_step(GetParam(), batch, wanted), open_backend(backend));
    step->program.store().initialize(1);
    return step;
  }

  using MakeRunner = std::function<std::unique_ptr<Runner>(Program&)>;
  // Losses and parameters of some steps.
  static std::vector<std::vector<float>> results(Stepping& step, const MakeRunner& make) {
    const std::unique_ptr<Runner> runner = make(step.program);
    std::vector<float> losses;
    for (std::uint64_t i = 0; i < 4; ++i) {
      step.load(i, i == 2);
      runner->step();
      losses.push_back(step.program.loss());
    }
    std::vector<std::vector<float>> all = step.parameters();
    all.push_back(losses);
    return all;
  }
};

TEST_P(ModelOnCpu, AgreesWithTheReferenceCallByCall) {
  for (const Optimizer::Kind kind : {Optimizer::Kind::adam, Optimizer::Kind::sgd}) {
    StepOptions options;
    options.optimizer.kind = kind;
    const auto ours = stepping("cpu", options), theirs = stepping("ref", options);
    const auto check = check_runner(ours->program, theirs->program);
    for (std::uint64_t step = 0; step < 3; ++step) {
      ours->load(step, step == 2);
      theirs->load(step, step == 2);
      ASSERT_NO_THROW(check->step()) << "step " << step;
      EXPECT_EQ(ours->program.correct(), theirs->program.correct());
    }
  }
}

TEST_P(ModelOnCpu, GivesTheSameBitsEveryTimeAndReadsNoDeadBuffer) {
  const auto eager = [](Program& program) { return eager_runner(program); };
  const auto first = results(*stepping("cpu"), eager);
  EXPECT_EQ(first, results(*stepping("cpu"), eager));
  EXPECT_EQ(first, results(*stepping("cpu"), poisoning_runner));
}

TEST_P(ModelOnCpu, ComputesTheSameWithoutItsFusions) {
  StepOptions unfused;
  for (const FusionRow& row : fusion_table()) unfused.no_fuse.emplace(row.name);
  const auto ours = stepping("cpu", unfused), theirs = stepping("ref", unfused);
  const auto check = check_runner(ours->program, theirs->program);
  ours->load(0);
  theirs->load(0);
  EXPECT_NO_THROW(check->step());
}

// The CPU gains nothing from some fusions: the step is compiled without them; bind() may refuse
// them.
TEST_P(ModelOnCpu, RefusesTheFusionsThatItDeclines) {
  const auto cpu = open_backend("cpu");
  StepOptions users;
  users.no_fuse = {"conv+relu"};
  EXPECT_EQ(options_for(*open_backend("ref"), users).no_fuse, users.no_fuse);
  for (const FusionRow& row : fusion_table()) {
    const bool left_out = options_for(*cpu, users).no_fuse.contains(row.name);
    EXPECT_EQ(left_out, row.name == "conv+relu" || !cpu->wants(row.name)) << row.name;
    if (cpu->wants(row.name)) continue;
    StepOptions options = options_for(*cpu, {});
    options.no_fuse.erase(std::string(row.name));
    const bool of_norms = row.name.find("norm") != row.name.npos || row.name == "join+conv" ||
                          row.name == "conv+statistics";
    if (of_norms) {  // made where a backend computes them, and this one does not
      options.no_fuse.clear();
      EXPECT_NO_THROW(Program(compile_step(testing_support::residual(), options), cpu));
      continue;
    }
    const bool of_gelu = row.name.find("gelu") != row.name.npos;
    const Graph graph = model_step(of_gelu ? "gpt2" : "cifar10cnn", 2, options);
    EXPECT_THAT([&] { Program(graph, cpu); },
                testing::ThrowsMessage<Error>(testing::HasSubstr(fmt::format(
                    "made by the fusion {}, which the CPU backend does not support", row.name))));
  }
}

// The number of threads belongs to the calling thread, and may be another when kernels run than it
// was when they were bound.
TEST(ModelOnCpuAlone, StepsWithTheThreadsThatItWasBoundFor) {
  const auto cpu = open_backend("cpu", {.threads = 1});
  const Graph graph = model_step("cifar10cnn", 16, options_for(*cpu, {}));
  testing_support::Stepping before(graph, cpu), after(graph, cpu);
  const auto step = [](testing_support::Stepping& one, const Backend& team) {
    const StepScope scope(team);
    one.program.store().initialize(5);
    one.load(0);
    for (std::size_t c = 0; c < one.program.calls().size(); ++c) one.program.enqueue(c);
    return testing_support::all_numbers(one);
  };
  const std::vector<float> numbers = step(before, *cpu);
  EXPECT_EQ(step(after, *open_backend("cpu", {.threads = 8})), numbers);
}

TEST(ModelOnCpuAlone, RefusesPoolsThatItDoesNotComputeWithAConvolution) {
  StepOptions options = options_for(*open_backend("cpu"), {});
  options.computes = [](const AnyOp& op, const Types&) { return std::holds_alternative<Conv>(op); };
  const Graph graph = model_step("cifar10cnn", 2, options);
  const auto cpu = open_backend("cpu", {.exact_math = true});
  EXPECT_THAT([&] { Program(graph, cpu); },
              testing::ThrowsMessage<Error>(testing::HasSubstr(
                  "made by the fusion conv+pool, which the CPU backend does not support")));
}

TEST(ModelOnCpuAlone, RefusesNormsThatAreFusedWithConvolutions) {
  StepOptions options = options_for(*open_backend("cpu"), {});
  options.no_fuse.clear();
  options.computes = [](const AnyOp&, const Types&) { return true; };
  EXPECT_THAT(
      [&] { Program(compile_step(testing_support::residual(), options), open_backend("cpu")); },
      testing::ThrowsMessage<Error>(
          testing::HasSubstr("made by the fusion conv+statistics, which the CPU backend")));
}

TEST_P(ModelOnCpu, EvaluatesLikeTheReference) {
  StepOptions options;
  options.training = false;
  const auto ours = stepping("cpu", options, 5), theirs = stepping("ref", options, 5);
  const auto check = check_runner(ours->program, theirs->program);
  ours->load(0, true);
  theirs->load(0, true);
  EXPECT_NO_THROW(check->step());
  EXPECT_EQ(ours->program.correct(), theirs->program.correct());
}

TEST_P(ModelOnCpu, ReadsNoDeadBufferOnTheReferenceEither) {
  const auto first = results(*stepping("ref", {}, 2), [](Program& p) { return eager_runner(p); });
  EXPECT_EQ(first, results(*stepping("ref", {}, 2), poisoning_runner));
}

// In bf16 every kernel of a step, and what the precision makes of the graph: copies, f32
// statistics.
class ModelInBf16 : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (bf16_isa() == Bf16Isa::none) GTEST_SKIP() << "no bf16 in " << cpu_isa_text();
  }
  static std::unique_ptr<Stepping> stepping(const char* backend) {
    StepOptions options;
    options.precision = Precision::bf16;
    models::BuildOptions build = testing_support::test_build(GetParam(), 4);
    const models::Model& model = models::find(GetParam());
    if (!model.is_text() && model.name != "mlp") build.image = {32, 32, 3};
    Graph graph =
        compile_step(models::build(model, build), options_for(*open_backend("cpu"), options));
    auto step = std::make_unique<Stepping>(std::move(graph), open_backend(backend));
    step->program.store().initialize(1);
    return step;
  }
};

TEST_P(ModelInBf16, AgreesWithTheReferenceCallByCall) {
  const auto ours = stepping("cpu"), theirs = stepping("ref");
  const auto check = check_runner(ours->program, theirs->program);
  for (std::uint64_t step = 0; step < 2; ++step) {
    ours->load(step, step == 1);
    theirs->load(step, step == 1);
    ASSERT_NO_THROW(check->step()) << "step " << step;
  }
}

TEST_P(ModelInBf16, GivesTheSameBitsEveryTimeAndReadsNoDeadBuffer) {
  const auto numbers = [](const auto& make) {
    const auto step = stepping("cpu");
    const auto runner = make(step->program);
    for (std::uint64_t i = 0; i < 3; ++i) {
      step->load(i, i == 2);
      runner->step();
    }
    return testing_support::all_numbers(*step);
  };
  const auto first = numbers([](Program& program) { return eager_runner(program); });
  EXPECT_EQ(first, numbers([](Program& program) { return eager_runner(program); }));
  EXPECT_EQ(first, numbers(poisoning_runner));
}

std::string name_of(const testing::TestParamInfo<const char*>& tested) {
  std::string name = tested.param;
  std::ranges::replace(name, '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Zoo, ModelInBf16,
                         testing::Values("cifar10cnn", "mlp", "airbench", "resnet18", "gpt2-nano"),
                         name_of);

// Multiplies what one call gives before it is compared.
class SpoilingRunner final : public testing_support::CheckRunner {
 public:
  SpoilingRunner(Program& program, Program& reference, std::size_t spoiled, float factor)
      : CheckRunner(program, reference), spoiled_(spoiled), factor_(factor) {}

  // Whether it changed anything.
  bool has_spoiled() const { return has_spoiled_; }

 private:
  void after(std::size_t call) override {
    if (call != spoiled_) return;
    const Graph& graph = program_.graph();
    for (const int id : graph.nodes[idx(program_.calls()[call].node)].out) {
      const Value& value = graph.value(id);
      if (value.type.dtype != DType::bf16 || !program_.address(id)) continue;
      std::vector<float> numbers = program_.read(id);
      for (float& number : numbers) {
        has_spoiled_ = has_spoiled_ || number != 0;
        number *= factor_;
      }
      program_.backend().write(value, program_.address(id), std::as_bytes(std::span(numbers)));
    }
  }

  std::size_t spoiled_;
  float factor_;
  bool has_spoiled_ = false;
};

class SpoiltModelInBf16 : public ModelInBf16 {};  // a step for each call: small models

// A result that is 0, or twice what it should be, is no rounding: of no call of a step.
TEST_P(SpoiltModelInBf16, IsRefusedIfACallGivesZerosOrTwiceItsResult) {
  const auto ours = stepping("cpu"), theirs = stepping("ref");
  std::size_t spoiled = 0;
  for (const float factor : {0.0F, 2.0F})
    for (std::size_t call = 0; call < ours->program.calls().size(); ++call) {
      for (Stepping* step : {ours.get(), theirs.get()}) {
        step->program.store().initialize(1);
        step->program.store().set_step_state({});
        step->load(0);
      }
      SpoilingRunner runner(ours->program, theirs->program, call, factor);
      bool refused = false;
      try {
        runner.step();
      } catch (const NumericError& error) {
        refused = true;
        EXPECT_THAT(error.what(), testing::StartsWith(ours->program.calls()[call].title));
      }
      EXPECT_EQ(refused, runner.has_spoiled()) << ours->program.calls()[call].title;
      spoiled += runner.has_spoiled() ? 1 : 0;
    }
  EXPECT_GT(spoiled, ours->program.calls().size());
}
INSTANTIATE_TEST_SUITE_P(Zoo, SpoiltModelInBf16, testing::Values("mlp", "gpt2-nano"), name_of);

TEST(ModelOnCpuAlone, ComputesInFp32AndBf16Only) {
  const auto cpu = open_backend("cpu");
  const auto bind = [&](Precision precision) {
    StepOptions options;
    options.precision = precision;
    Program(model_step("mlp", 2, options_for(*cpu, options)), cpu);
  };
  EXPECT_THAT([&] { bind(Precision::fp16); },
              testing::ThrowsMessage<DeviceError>(
                  testing::HasSubstr("is f16; the CPU backend computes in fp32 and, with "
                                     "AVX512_BF16 or AMX, in bf16; use --precision fp32 or bf16")));
  EXPECT_THAT([&] { open_backend("cpu", {.tf32 = true}); },
              testing::ThrowsMessage<DeviceError>(testing::HasSubstr("tf32 is a format of GPUs")));
  if (bf16_isa() != Bf16Isa::none)
    EXPECT_NO_THROW(bind(Precision::bf16));
  else
    EXPECT_THAT([&] { bind(Precision::bf16); },
                testing::ThrowsMessage<DeviceError>(testing::HasSubstr(
                    "is bf16, which needs the instructions AVX512_BF16 or AMX, and neither can be "
                    "used here (" +
                    cpu_isa_text() + "); use --precision fp32")));
}

INSTANTIATE_TEST_SUITE_P(Zoo, ModelOnCpu, testing::Values("cifar10cnn", "mlp"),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace warpstep
