// Ten Adam steps from the weights and data of tests/golden/parity-*.json, on a backend
// (tests/tested_backend.h), against what PyTorch computed in double precision.
// tests/golden/README.md says where the tolerances come from.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/compile.h"
#include "engine/core/error.h"
#include "engine/program.h"
#include "engine/runner.h"
#include "models/zoo.h"
#include "tests/golden_batch.h"
#include "tests/source_file.h"
#include "tests/tested_backend.h"

namespace warpstep {
namespace {

using nlohmann::json;

double norm(const std::vector<float>& values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(sum);
}

// L2 norm of the difference at the golden's samples, relative to theirs.
double sample_difference(const std::vector<float>& values, const json& golden, std::size_t stride) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < golden.at("samples").size(); ++i) {
    const double expected = golden.at("samples")[i].get<double>();
    const double actual = static_cast<double>(values[i * stride % values.size()]);
    difference += (actual - expected) * (actual - expected);
    size += expected * expected;
  }
  return std::sqrt(difference / size);
}

// Winograd's transforms round some hundred times more than sums do, and Adam makes whole steps of a
// gradient that is rounding noise: 2e-4 of the weights after ten steps, where exact algorithms stay
// below 3e-7. So the weights themselves are held tightly without Winograd, and loosely with it.
struct Way {
  std::string model;
  bool exact_math;
};

class Parity : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    std::shared_ptr<Backend> backend;
    try {
      backend = testing_support::open_tested_backend(testing_support::tested_backend(),
                                                     {.exact_math = GetParam().exact_math});
    } catch (const DeviceError& error) {
      GTEST_SKIP() << error.what();
    }
    std::ifstream file(
        testing_support::source_file("tests/golden/parity-" + GetParam().model + ".json"));
    golden_ = json::parse(file);
    const auto adam = golden_.at("adam");
    const StepOptions options{
        .optimizer = {.beta1 = adam["betas"][0], .beta2 = adam["betas"][1], .epsilon = adam["eps"]},
        .schedule = {.peak = adam["lr"]}};
    const models::BuildOptions build{
        .batch = golden_.at("batch"), .mean = golden_.at("mean"), .std = golden_.at("std")};
    program_ =
        std::make_unique<Program>(compile_step(models::build(models::find(GetParam().model), build),
                                               options_for(*backend, options)),
                                  backend);
    program_->store().initialize(golden_.at("seed"));
  }

  void step(std::uint32_t index) {
    const Shape& image = models::find(GetParam().model).image;
    batch_ = golden_batch(golden_.at("seed"), index, golden_.at("batch"), image);
    const std::array<const void*, 2> slots{batch_.images.data(), batch_.labels.data()};
    program_->set_inputs(slots);
    eager_runner(*program_)->step();
  }

  json golden_;
  std::unique_ptr<Program> program_;
  GoldenBatch batch_;
};

TEST_P(Parity, TenStepsAgreeWithPyTorch) {
  const json& parameters = golden_.at("parameters");
  Store& store = program_->store();
  ASSERT_EQ(store.parameters().size(), parameters.size());
  std::vector<std::vector<float>> initial;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    ASSERT_EQ(store.parameters()[p].name, parameters[p].at("name"));
    initial.push_back(store.read(p));
    for (std::size_t i = 0; i < 8; ++i)
      EXPECT_FLOAT_EQ(initial[p][i], parameters[p]["initial"]["first"][i].get<float>());
    EXPECT_NEAR(norm(initial[p]), parameters[p]["initial"]["norm"].get<double>(),
                1e-6 * norm(initial[p]));
  }
  for (std::uint32_t s = 0; s < 10; ++s) {
    step(s);
    const double expected = golden_["losses"]["float64"][s];
    EXPECT_NEAR(program_->loss(), expected, 1e-5 * expected) << "step " << s;
    EXPECT_NEAR(program_->correct(), golden_["correct"]["float64"][s].get<int>(), 1)
        << "step " << s;
    for (std::size_t p = 0; s == 0 && p < parameters.size(); ++p)
      // A max pool's winner or a relu's sign that hangs on the last bit sends a gradient elsewhere
      // in conv1 to conv3.
      EXPECT_LT(sample_difference(store.read(p, Store::Section::gradient),
                                  parameters[p]["first_gradient"], parameters[p]["stride"]),
                parameters[p]["name"].get<std::string>().starts_with("conv") ? 1e-3 : 1e-5)
          << parameters[p]["name"];
  }
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const std::vector<float> final_values = store.read(p);
    EXPECT_LT(sample_difference(final_values, parameters[p]["final"], parameters[p]["stride"]),
              GetParam().exact_math ? 1e-5 : 1e-3)
        << parameters[p]["name"];
    std::vector<float> moved = final_values;
    for (std::size_t i = 0; i < moved.size(); ++i) moved[i] -= initial[p][i];
    const double expected = parameters[p]["moved_norm"];
    EXPECT_NEAR(norm(moved), expected, 1e-3 * expected) << parameters[p]["name"];
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Parity,
                         testing::Values(Way{"cifar10cnn", true}, Way{"cifar10cnn", false},
                                         Way{"mlp", true}),
                         [](const auto& of) {
                           return of.param.model + (of.param.exact_math ? "" : "_winograd");
                         });

}  // namespace
}  // namespace warpstep
