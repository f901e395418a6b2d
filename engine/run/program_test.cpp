// Programs and their runners, on the reference backend.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/core/text.h"
#include "engine/explain/explain.h"
#include "engine/run/program.h"
#include "engine/run/runner.h"
#include "tests/deferred_backend.h"
#include "tests/runners.h"
#include "tests/stepping.h"

namespace warpstep {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using testing_support::check_runner;
using testing_support::model_step;
using testing_support::relative_difference;
using testing_support::Stepping;
using testing_support::tolerance;

StepOptions evaluation_options() {
  StepOptions options;
  options.training = false;
  return options;
}

TEST(Program, TrainsAndEvaluatesOneStore) {
  StepOptions options;
  options.schedule.peak = 1e-2;
  Stepping training(model_step("mlp", 4, options), open_backend("ref"));
  Stepping testing(model_step("mlp", 4, evaluation_options()), open_backend("ref"),
                   training.program.shared_store());
  training.program.store().initialize(3);
  training.load(1);
  testing.load(1);
  const auto train = eager_runner(training.program), evaluate = eager_runner(testing.program);
  evaluate->step();
  const float before = testing.program.loss();
  EXPECT_NEAR(static_cast<double>(before), std::log(10.0), 0.5);
  for (int step = 0; step < 20; ++step) train->step();
  evaluate->step();
  EXPECT_LT(testing.program.loss(), before / 2);
  EXPECT_EQ(testing.program.correct(), 4);
  EXPECT_EQ(training.program.store().step_state().step, 20);
}

TEST(Program, RefusesAWrongNumberOfInputs) {
  Program program(model_step("mlp", 4), open_backend("ref"));
  const void* slot = nullptr;
  EXPECT_THAT([&] { program.set_inputs(std::span(&slot, 1)); },
              ThrowsMessage<Error>("the step has 2 inputs, not 1"));
}

TEST(Program, RunsWithItsInputsAndItsMemoryAlone) {
  const auto refused = [](Runner& runner, const std::string& words) {
    EXPECT_THAT([&] { runner.step(); }, ThrowsMessage<UsageError>(HasSubstr(words)));
  };
  Program program(model_step("mlp", 4), open_backend("ref"));
  program.store().initialize(1);
  for (const auto& runner :
       {eager_runner(program), graph_runner(program), numerics_runner(program)})
    refused(*runner, "the step's input 'images' was never given: call give_batch()");
  const std::vector<StepVariant> variants{program.variant()};
  EXPECT_THAT([&] { graph_runner(program)->steps(variants); },
              ThrowsMessage<UsageError>(HasSubstr("'images' was never given")));
  Program listed(model_step("mlp", 4), open_backend("ref"), nullptr, false);
  const std::array<const void*, 2> slots{&refused, &refused};
  listed.set_inputs(slots);
  refused(*eager_runner(listed), "made without memory: it can be explained, not run");
  // Also without a runner, and of slots that the step does not have.
  EXPECT_THAT([&] { program.enqueue(0); },
              ThrowsMessage<UsageError>(HasSubstr("'images' was never given")));
  EXPECT_THAT([&] { listed.enqueue(0); },
              ThrowsMessage<UsageError>(HasSubstr("made without memory")));
  EXPECT_THAT([&] { listed.correct(); },
              ThrowsMessage<UsageError>(HasSubstr("made without memory")));
  for (std::size_t call = 0; call < listed.calls().size(); ++call)
    EXPECT_NO_THROW(listed.poison_dead_buffers(call));
  const std::vector<StepVariant> more{{{&refused, &refused, nullptr}}};
  EXPECT_THAT([&] { eager_runner(program)->steps(more); },
              ThrowsMessage<Error>("the step has 2 inputs, not 3"));
}

TEST(Program, ReadsNumbersThatItHas) {
  Stepping stepping(model_step("mlp", 4), open_backend("ref"));
  const Program& program = stepping.program;
  const auto refused = [&](int id, const std::string& words) {
    EXPECT_THAT([&] { program.read(id); }, ThrowsMessage<UsageError>(HasSubstr(words)));
  };
  const int values = static_cast<int>(program.graph().values.size());
  refused(-1, fmt::format("value -1 of a step of {}", values));
  refused(values, "its model sets none of this kind");
  refused(program.graph().inputs[0], "images is u8 4x28x28x1; only floating-point values are read");
  refused(program.graph().inputs[1], "labels is i32 4; only");
  EXPECT_THAT([&] { stepping.program.enqueue(9999); },
              ThrowsMessage<UsageError>(HasSubstr("call 9999 of a step of ")));
  EXPECT_THAT([&] { program.runs(9999); }, ThrowsMessage<UsageError>(HasSubstr("call 9999 of")));
  EXPECT_THAT([&] { program.poison_dead_buffers(9999); },
              ThrowsMessage<UsageError>(HasSubstr("call 9999 of")));
  for (const int id : {-1, values})
    EXPECT_THAT([&] { program.address(id); },
                ThrowsMessage<UsageError>(HasSubstr(fmt::format("value {} of a step", id))));
  Graph graph;
  const Tensor x = graph.input("x", {DType::f32, {2, 2}});
  const Tensor y = relu(x);
  graph.logits = y.id;
  const Program small(compile_step(std::move(graph), {.training = false}), open_backend("ref"));
  EXPECT_THAT([&] { small.loss(); }, ThrowsMessage<UsageError>(HasSubstr("the step has no loss")));
  EXPECT_THAT(
      [&] { small.read(small.graph().inputs[0]); },
      ThrowsMessage<UsageError>(HasSubstr("x has no memory: the step does not compute it")));
  EXPECT_THAT([] { Program({}, nullptr); },
              ThrowsMessage<UsageError>(HasSubstr("a program of no backend")));
}

TEST(Program, SaysThatAStoreIsOfAnotherModel) {
  const Program mlp(model_step("mlp", 4), open_backend("ref"));
  EXPECT_THROW(Program(model_step("cifar10cnn", 4), open_backend("ref"), mlp.shared_store()),
               Error);
}

struct Named final : testing_support::DeferredBackend {
  using DeferredBackend::DeferredBackend;
  std::string_view name() const override { return "other"; }
};

// It stores numbers in another format.
TEST(Program, RefusesAStoreOfAnotherBackend) {
  const Program step(model_step("mlp", 4), open_backend("ref"));
  const auto other = std::make_shared<Named>(open_backend("ref"));
  EXPECT_THAT([&] { Program(model_step("mlp", 4), other, step.shared_store()); },
              ThrowsMessage<UsageError>(
                  HasSubstr("a program of other cannot use the memory of a store of ref;")));
}

struct Watcher final : CallObserver {
  void on_call(const Call& call, std::int64_t begin_ns, std::int64_t end_ns) override {
    titles.push_back(call.title);
    EXPECT_GE(begin_ns, last_ns);
    EXPECT_GE(end_ns, begin_ns);
    last_ns = end_ns;
  }
  std::vector<std::string> titles;
  std::int64_t last_ns = 0;
};

TEST(EagerRunner, ReportsEveryCallInOrder) {
  Stepping step(model_step("mlp", 4), open_backend("ref"));
  step.load(0);
  Watcher watcher;
  eager_runner(step.program, &watcher)->step();
  std::vector<std::string> titles;
  for (const Call& call : step.program.calls()) titles.push_back(call.title);
  EXPECT_EQ(watcher.titles, titles);
}

// Counts what is recorded; a recording runs nothing.
struct Recorder final : testing_support::DeferredBackend {
  explicit Recorder(bool its_records)
      : DeferredBackend(open_backend("ref")), records(its_records) {}
  std::unique_ptr<Recording> record(Stream&, const std::function<void()>&) const override {
    struct Nothing final : Recording {
      void launch(Stream&) override {}
    };
    ++recorded;
    return records ? std::make_unique<Nothing>() : nullptr;
  }
  bool records;
  mutable std::size_t recorded = 0;
};

Graph tiny_step() {
  Graph g;
  const Tensor x = g.input("x", {DType::f32, {1, 2}});
  cross_entropy(linear("fc", x, {.out = 2}), g.input("labels", {DType::i32, {1}}));
  return compile_step(std::move(g), {});
}

// Of a source that gives each batch in other memory.
TEST(GraphRunner, RecordsNoEndOfAddresses) {
  for (const bool records : {true, false}) {
    const auto backend = std::make_shared<Recorder>(records);
    Stepping step(tiny_step(), backend);
    step.program.store().initialize(1);
    const auto runner = graph_runner(step.program);
    const std::size_t sets = most_recordings + 8;
    std::vector<double> images(sets + 1);  // each set begins at the next number
    std::vector<const void*> slots(step.program.inputs().begin(), step.program.inputs().end());
    for (int pass = 0; pass < 2; ++pass)
      for (std::size_t set = 0; set < sets; ++set) {
        slots[0] = images.data() + set;
        step.program.set_inputs(slots);
        runner->step();
      }
    step.program.wait();
    EXPECT_EQ(backend->recorded, records ? most_recordings : 1);
    // The first, those beyond and their repetitions ran; or all.
    EXPECT_EQ(step.program.store().step_state().step,
              static_cast<std::int64_t>(records ? 1 + 7 + 8 : 2 * sets));
  }
}

TEST(GraphRunner, KeepsItsRecordingsWhereALaterOneFindsNoMemory) {
  const auto backend = std::make_shared<Recorder>(true);
  Stepping step(tiny_step(), backend);
  step.program.store().initialize(1);
  const auto runner = graph_runner(step.program);
  std::vector<double> images(3);  // each set begins at the next number
  std::vector<const void*> slots(step.program.inputs().begin(), step.program.inputs().end());
  for (const std::size_t set : {0, 0, 1, 1, 0}) {  // warm, recorded, none for the second, as before
    slots[0] = images.data() + set;
    step.program.set_inputs(slots);
    if (set == 1) backend->records = false;
    runner->step();
  }
  step.program.wait();
  EXPECT_EQ(backend->recorded, 2U);
  EXPECT_EQ(step.program.store().step_state().step, 1 + 2) << "those that ran call by call";
}

TEST(CheckRunner, FindsNoDifferenceBetweenEquals) {
  Stepping one(model_step("mlp", 4), open_backend("ref"));
  Stepping two(model_step("mlp", 4), open_backend("ref"));
  for (Stepping* each : {&one, &two}) {
    each->program.store().initialize(3);
    each->load(0);
  }
  const auto check = check_runner(one.program, two.program);
  for (int step = 0; step < 3; ++step) EXPECT_NO_THROW(check->step());
}

TEST(CheckRunner, NamesTheFirstCallThatDiffers) {
  Stepping one(model_step("mlp", 4), open_backend("ref"));
  Stepping two(model_step("mlp", 4), open_backend("ref"));
  for (Stepping* each : {&one, &two}) {
    each->program.store().initialize(3);
    each->load(0);
  }
  std::vector<float> weight = one.program.store().read(2);
  for (float& w : weight) w *= 1.001F;
  one.program.store().write(2, weight);  // of fc2
  EXPECT_THAT([&] { check_runner(one.program, two.program)->step(); },
              ThrowsMessage<NumericError>(testing::AllOf(HasSubstr("fc2/linear (loops of ref)"),
                                                         HasSubstr("is acceptable"))));
}

TEST(CheckRunner, RefusesADifferentStep) {
  StepOptions apart;
  apart.no_fuse = {"linear+relu"};
  Stepping one(model_step("mlp", 4), open_backend("ref"));
  Stepping two(model_step("mlp", 4, apart), open_backend("ref"));
  EXPECT_THAT([&] { check_runner(one.program, two.program); },
              ThrowsMessage<UsageError>(testing::AllOf(HasSubstr("are different steps: call 4 is "),
                                                       HasSubstr("compile both with the same"))));
}

TEST(Tolerance, GrowsWithTheRootOfTheDepthAndNotWithThatOf16Bits) {
  EXPECT_DOUBLE_EQ(tolerance(DType::f32, 1), 4 * 0x1p-23);
  EXPECT_DOUBLE_EQ(tolerance(DType::f32, 100), 40 * 0x1p-23);
  EXPECT_DOUBLE_EQ(tolerance(DType::bf16, 0), 2 * 0x1p-7 + 4 * 0x1p-23);
  EXPECT_DOUBLE_EQ(tolerance(DType::f16, 100), 2 * 0x1p-10 + 40 * 0x1p-23);
  EXPECT_DOUBLE_EQ(tolerance(DType::bf16, 1, DType::bf16), 4 * 0x1p-7 + 4 * 0x1p-23);
  EXPECT_LT(tolerance(DType::bf16, 1e8, DType::bf16), 0.1);
}

TEST(RelativeDifference, IsThatOfTheRootMeanSquares) {
  const std::vector<float> zero{0, 0}, b{3, 4}, a{3, 4.5F};
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_DOUBLE_EQ(relative_difference(a, b), 0.1);
  EXPECT_EQ(relative_difference(zero, zero), 0);
  EXPECT_EQ(relative_difference(b, b), 0);
  EXPECT_EQ(relative_difference(b, zero), std::numeric_limits<double>::infinity());
  EXPECT_EQ(relative_difference(std::vector<float>{nan, 4}, b),
            std::numeric_limits<double>::infinity());
}

// The documented rule for ties, by hand: the first of equals, and padding never wins.
TEST(Reference, PoolsTheFirstOfEquals) {
  Graph g;
  const Tensor x = g.input("x", {DType::f32, {1, 2, 4, 1}});
  max_pool(x);
  Program program(std::move(g), open_backend("ref"));
  std::vector<double> pixels{1, 1, -2, 0,  //
                             1, 1, 0,  0};
  const void* slots[] = {pixels.data()};
  program.set_inputs(slots);
  program.enqueue(0);
  EXPECT_EQ(program.read(program.graph().nodes[0].out[0]), (std::vector{1.0F, 0.0F}));
  const auto* index =
      static_cast<const std::uint8_t*>(program.address(program.graph().nodes[0].out[1]));
  EXPECT_EQ(index[0], 0);
  EXPECT_EQ(index[1], 1);
}

TEST(Reference, PoolsNoPadding) {
  Graph g;
  const Tensor x = g.input("x", {DType::f32, {1, 2, 2, 1}});
  max_pool(x, {.window = 3, .stride = 2, .padding = 1, .relu = false});
  max_pool(x, {.window = 3, .stride = 2, .padding = 1, .relu = true});
  Program program(std::move(g), open_backend("ref"));
  std::vector<double> pixels{-4, -3, -3, -9};
  const void* slots[] = {pixels.data()};
  program.set_inputs(slots);
  const auto index = [&](std::size_t node) {
    program.enqueue(node);
    return *static_cast<const std::uint8_t*>(program.address(program.graph().nodes[node].out[1]));
  };
  EXPECT_EQ(index(0), 5);  // row 0, column 1 of the image; the window begins one column before it
  EXPECT_EQ(index(1), MaxPool::none);
}

// ---- explain

TEST(Explain, SpellsSizes) {
  EXPECT_EQ(size_text(0), "0 B");
  EXPECT_EQ(size_text(1023), "1023 B");
  EXPECT_EQ(size_text(1536), "1.5 KiB");
  EXPECT_EQ(size_text(3.25 * (1 << 20)), "3.25 MiB");
}

TEST(Explain, HasTheSameNumbersInJson) {
  const Program program(model_step("cifar10cnn", 8), open_backend("ref"));
  const nlohmann::json json = explain_json(program);
  ASSERT_EQ(json.at("calls").size(), program.calls().size());
  double flops = 0;
  for (std::size_t i = 0; i < program.calls().size(); ++i) {
    EXPECT_EQ(json["calls"][i]["title"], program.calls()[i].title);
    EXPECT_EQ(json["calls"][i]["number"], i + 1);
    flops += program.calls()[i].cost.flops;
  }
  EXPECT_THAT(json["calls"][1]["source"].get<std::string>(),
              ::testing::MatchesRegex("models/[a-z0-9]+.cpp:[0-9]+"));
  EXPECT_EQ(json["calls"].back()["source"], "") << "the step's report is of no line of a model";
  EXPECT_DOUBLE_EQ(json["totals"]["step"]["flops"].get<double>(), flops);
  EXPECT_EQ(json["totals"]["parameters"], 4311754);
  EXPECT_EQ(json["memory"]["arena_bytes"], program.plan().arena_bytes);
  EXPECT_EQ(json["memory"]["live_bytes"].size(), program.calls().size());
  EXPECT_EQ(json["backend"]["name"], "ref");
  EXPECT_EQ(json["inputs"][0]["shape"], nlohmann::json({8, 32, 32, 3}));
}

// The characters of a line in UTF-8.
std::ptrdiff_t columns(const std::string& line) {
  return std::count_if(line.begin(), line.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

TEST(Explain, FitsOnAPage) {
  for (const models::Model& model : models::zoo()) {
    const std::int64_t batch = model.image.count() > 65536 ? 16 : 128;  // of doubles
    const Program program(model_step(model.name, batch), open_backend("ref"));
    std::stringstream lines(explain(program));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(columns(line), 142) << line;
  }
}

}  // namespace
}  // namespace warpstep
