#include "tools/warpstep/throughput.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "models/build.h"
#include "models/zoo.h"
#include "profiler/analysis/table.h"
#include "tools/warpstep/json.h"
#include "tools/warpstep/progress.h"

namespace warpstep::tools {
namespace {

Graph step_of(const char* model, const std::vector<std::string>& recompute = {}) {
  StepOptions options;
  options.recompute = recompute;
  return compile_step(models::build(models::find(model), {.batch = 16}), options);
}

Program program_of(Graph step) {
  return {std::move(step), open_backend("ref"), nullptr, false};
}

// 784-512-512-10: three products forward, three weight gradients, two data gradients.
TEST(Throughput, CountsForwardAndBackward) {
  const double products = 2.0 * 16 * (3.0 * (784 * 512 + 512 * 512 + 512 * 10) - 784 * 512);
  const double flops = model_flops(step_of("mlp"));
  EXPECT_GE(flops, products);
  EXPECT_LT(flops, 1.01 * products) << "activations, biases and the loss";
  EXPECT_GT(model_flops(step_of("resnet18", {"layer1"})), 1.02 * model_flops(step_of("resnet18")))
      << "what is computed again must be left out before";
}

// 6 per parameter of a product and 12 per unmasked score and channel, as PaLM counts; the fifth
// product of attention's gradient would add 0.7 %.
TEST(Throughput, OfTextLeavesOutWhatIsComputedAgain) {
  const models::Model& model = models::find("gpt2-nano");
  const std::vector<std::string> settings{"vocabulary=65"};
  const Graph step = compile_step(
      models::build(
          model,
          {.batch = 2, .settings = models::resolve_settings(model, settings), .sequence = 64}),
      {});
  const double layers = 4, width = 128, keys = (64 + 1) / 2.0;
  const double products =
      2 * 64 * (6 * (12 * layers * width * width + width * 65) + 12 * layers * keys * width);
  EXPECT_GE(model_flops(step), products);
  EXPECT_LT(model_flops(step), 1.025 * products);
}

TEST(Throughput, LeavesOutCallsThatFewStepsRun) {
  StepOptions options;
  options.statistics = true;
  const Graph measured = compile_step(models::build(models::find("mlp"), {.batch = 16}), options);
  const Graph plain = step_of("mlp");
  EXPECT_GT(measured.nodes.size(), plain.nodes.size());
  EXPECT_EQ(model_flops(measured), model_flops(plain));
  const std::string device = "NVIDIA H200 (sm_90";
  EXPECT_EQ(floor_line(program_of(measured), device, "bf16"),
            floor_line(program_of(plain), device, "bf16"));
}

TEST(Throughput, IsSaidWithItsPeakIfThatIsKnown) {
  const Throughput known{3e9, {1e12, "measured"}};
  EXPECT_EQ(known.text(0.01), "300 GFLOP/s (30 % of peak)");
  EXPECT_EQ(known.text(0.1), "30.0 GFLOP/s (3.0 % of peak)");
  EXPECT_DOUBLE_EQ(known.utilisation(0.01), 0.3);
  EXPECT_EQ(to_compute_json(known, 0.01).dump(),
            R"({"model_flops_per_step":3000000000.0,"model_tflops_per_second":0.3,)"
            R"("peak_tflops_per_second":1.0,"peak_source":"measured","mfu":0.3})");
  EXPECT_EQ(above_peak_reason(1), "");
  EXPECT_THAT(std::string(above_peak_reason(1.01)), testing::HasSubstr("Winograd"));
  const Throughput unknown{3e9, {}};
  EXPECT_EQ(unknown.text(0.01), "300 GFLOP/s");
  EXPECT_FALSE(to_compute_json(unknown, 0.01).contains("mfu"));
  EXPECT_EQ(Throughput().text(0.01), "");
  EXPECT_TRUE(to_compute_json({}, 0.01).empty());
}

TEST(Throughput, OfAGpuIsComparedWithItsDataSheet) {
  EXPECT_EQ(data_sheet_peak("NVIDIA H200 (sm_90, 132 SMs", "bf16").flops_per_second, 989.4e12);
  EXPECT_EQ(data_sheet_peak("NVIDIA H200 (sm_90, 132 SMs", "bf16").source,
            "data sheet of NVIDIA H200, bf16");
  EXPECT_EQ(data_sheet_peak("NVIDIA A100-SXM4-80GB (sm_80", "tf32").flops_per_second, 156e12);
  EXPECT_EQ(data_sheet_peak("NVIDIA L40S (sm_89", "fp32").flops_per_second, 91.6e12);
  EXPECT_EQ(data_sheet_peak("NVIDIA H200 NVL (sm_90", "bf16").flops_per_second, 0);
  EXPECT_EQ(data_sheet_peak("NVIDIA A100-SXM4-40GB MIG 1g.5gb (sm_80", "bf16").flops_per_second, 0);
  EXPECT_EQ(data_sheet_peak("NVIDIA GeForce RTX 9999 (sm_190", "bf16").flops_per_second, 0);
}

// Of 20 s between two steps 19.5 were an evaluation.
TEST(ProgressLine, HasTheSpeedOfTheStepsAloneAndTheTimeOfAll) {
  ProgressLine line(0, 12, Items::images, {.flops_per_step = 5e9, .peak = {}});
  StepRecord r{.step = 1, .epoch = 1, .step_in_epoch = 1, .steps_per_epoch = 12, .count = 100};
  r.times.kernels_ns = 500'000'000;
  EXPECT_EQ(line.line_at(r, 1'000'000'000), "");
  r.step = 2;
  const std::string text = line.line_at(r, 21'000'000'000);
  for (const char* part : {"  200 images/s  ", "  10.0 GFLOP/s  ", "  3:20 left"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

// Within the only epoch of a text run the epoch's mean says how training began.
TEST(ProgressLine, OfTextHasTheLossSinceTheLastLineAndTheStepsOfTheRun) {
  ProgressLine line(0, 500, Items::tokens, {.flops_per_step = 0, .peak = {}});
  std::uint64_t now = 1'000'000'000;
  const auto step = [&](std::uint64_t number, double loss, std::uint64_t ns) {
    StepRecord r{.step = number, .epoch = 1, .step_in_epoch = number, .steps_per_epoch = 9000};
    r.count = 10;
    if (loss > 0) r.score = {.loss_sum = 10 * loss, .correct = 0, .count = 10, .weight = 10};
    r.epoch_score = {.loss_sum = 90, .correct = 0, .count = 10, .weight = 10};
    r.times.kernels_ns = 1'000'000;
    return line.line_at(r, now += ns);
  };
  EXPECT_EQ(step(1, 4, 0), "");
  EXPECT_EQ(step(2, 3, 1'000'000), "");
  EXPECT_TRUE(step(3, 2, 11'000'000'000).starts_with("step 3/500  loss 3.0000  perplexity 20.09"));
  EXPECT_EQ(step(4, 2, 1'000'000), "");
  EXPECT_TRUE(step(5, 1, 11'000'000'000).starts_with("step 5/500  loss 1.5000  "));
  EXPECT_TRUE(step(6, 0, 11'000'000'000).starts_with("step 6/500  loss 1.5000  "))
      << "of a skipped step there is none";
}

// A longer line would wrap, and each refresh leave a row of it behind.
TEST(ProgressLine, FitsIntoOneRowOfTheTerminal) {
  const auto at_columns = [](std::size_t columns) {
    ProgressLine line(8, 3120, Items::images, {.flops_per_step = 5e9, .peak = {}});
    StepRecord r{.step = 1, .epoch = 1, .step_in_epoch = 1, .steps_per_epoch = 390, .count = 100};
    r.gradient_norm = 1.25;
    r.times.kernels_ns = 500'000'000;
    line.line_at(r, 1'000'000'000);
    r.step = r.step_in_epoch = 2;
    r.epoch_score = {.loss_sum = 230, .correct = 12, .count = 100, .weight = 100};
    return line.line_at(r, 21'000'000'000, columns);
  };
  const std::string whole = at_columns(0);
  EXPECT_EQ(whole,
            "epoch 1/8  step 2/390  loss 2.3000  accuracy 12.0 %  gradients 1.25  200 images/s  "
            "10.0 GFLOP/s  17:19:20 left");
  EXPECT_EQ(at_columns(200), whole);
  EXPECT_EQ(at_columns(whole.size() + 1), whole);
  EXPECT_EQ(at_columns(whole.size()),
            "epoch 1/8  step 2/390  loss 2.3000  accuracy 12.0 %  gradients 1.25  200 images/s  "
            "17:19:20 left");
  EXPECT_EQ(at_columns(80), "epoch 1/8  step 2/390  loss 2.3000  accuracy 12.0 %  17:19:20 left");
  EXPECT_EQ(at_columns(40), "epoch 1/8  step 2/390  17:19:20 left");
  EXPECT_EQ(at_columns(10), "epoch 1/8");
  EXPECT_EQ(at_columns(1), "");
}

TEST(Roofline, OfAGpuIsThatOfItsDataSheet) {
  const Program step = program_of(step_of("mlp"));
  const Json peaks{{"flops_per_second", {{"bf16", 989.4e12}}}, {"bytes_per_second", 4.8e12}};
  const double ms = roofline_json(step, peaks, "bf16", 1)["floor_ms"];
  const std::string line = floor_line(step, "NVIDIA H200 (sm_90, 132 SMs", "bf16");
  EXPECT_TRUE(line.starts_with("floor") &&
              line.find(profiler::quantity(1e6 * ms, profiler::Unit::ns) + ": each call") !=
                  line.npos)
      << line;
  EXPECT_EQ(floor_line(step, "NVIDIA A100-SXM4-80GB (sm_80", "bf16"), "") << "of 40 or 80 GB";
  EXPECT_EQ(floor_line(step, "AVX-512, 2 threads", "fp32"), "");
}

TEST(Roofline, AddsUpTheFloorsOfTheCalls) {
  const Program step = program_of(step_of("mlp"));
  double bytes = 0;
  for (const Call& call : step.calls()) bytes += call.cost.bytes;
  const Json peaks{{"flops_per_second", {{"fp32", 1e30}}}, {"bytes_per_second", 1e9}};
  const auto roofline = roofline_json(step, peaks, "fp32", 1);
  EXPECT_NEAR(roofline["floor_ms"].get<double>(), bytes * 1e-6, bytes * 1e-12);
  EXPECT_NEAR(roofline["share"].get<double>(), bytes * 1e-9, bytes * 1e-15);
  EXPECT_TRUE(roofline_json(step, Json::object(), "fp32", 1).empty());
  // Where memory is short the bandwidth is not measured.
  EXPECT_TRUE(roofline_json(step, {{"flops_per_second", {{"fp32", 1e30}}}}, "fp32", 1).empty());
}

// Adds up FLOPs, or with `bytes` bytes, in units of 1e9.
double floor_of(const Program& step, bool bytes = false) {
  const Json peaks{{"flops_per_second", {{"fp32", bytes ? 1e30 : 1e9}}},
                   {"bytes_per_second", bytes ? 1e9 : 1e30}};
  return 1e-3 * roofline_json(step, peaks, "fp32", 1)["floor_ms"].get<double>();
}

// 36 products for 16 outputs in place of 144, of most of the model's convolutions.
TEST(Roofline, OfWinogradCountsTheProductsThatItComputes) {
  const Graph model = models::build(models::find("airbench"), {.batch = 32});
  const auto program = [&](bool exact_math) {
    auto backend = open_backend("cpu", {.threads = 1, .exact_math = exact_math});
    Graph step = compile_step(model, options_for(*backend, {}));
    return Program(std::move(step), std::move(backend), nullptr, false);
  };
  const Program direct = program(true), winograd = program(false);
  const auto counted_of = [](const Program& step) {
    double flops = 0;
    for (const Call& call : step.calls()) flops += 1e-9 * call.cost.flops;
    return flops;
  };
  const double counted = counted_of(direct);
  EXPECT_NEAR(floor_of(direct), counted, 1e-6 * counted);
  EXPECT_LT(floor_of(winograd), 0.5 * counted);
  EXPECT_GT(floor_of(winograd), 0.2 * counted);
  EXPECT_NEAR(counted_of(winograd), counted, 0.01 * counted) << "what fusions add";
}

TEST(Roofline, CountsAnUpdateInOneOfItsSteps) {
  StepOptions options;
  options.update.average_decay = 0.99;
  const models::Model& mlp = models::find("mlp");
  const auto program = [&](std::int64_t accumulate) {
    options.update.accumulate = accumulate;
    return program_of(compile_step(models::build(mlp, {.batch = 16}), options));
  };
  const Program each = program(1), fourth = program(4);
  double of_updates = 0, accumulate = 0;
  for (const Call& call : fourth.calls()) {
    const AnyOp& op = fourth.graph().nodes[idx(call.node)].op;
    if (is_update(op) || std::holds_alternative<Average>(op)) of_updates += 1e-9 * call.cost.bytes;
    if (std::holds_alternative<Accumulate>(op)) accumulate += 1e-9 * call.cost.bytes;
  }
  EXPECT_GT(of_updates, 0);
  EXPECT_NEAR(floor_of(fourth, true), floor_of(each, true) + accumulate - 0.75 * of_updates, 1e-9);
  const std::string device = "NVIDIA H200 (sm_90";
  EXPECT_THAT(floor_line(fourth, device, "bf16"),
              testing::HasSubstr(", mean of the 4 steps of an update: each call"));
  EXPECT_THAT(floor_line(each, device, "bf16"), testing::Not(testing::HasSubstr("mean")));
}

}  // namespace
}  // namespace warpstep::tools
