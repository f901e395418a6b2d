// How the CPU backend stores the values of a residual network.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/core/error.h"
#include "engine/run/runner.h"
#include "tests/small_graphs.h"
#include "tests/stepping.h"

namespace warpstep {
namespace {

using testing_support::Residual;
using testing_support::residual;
using testing_support::Stepping;

class Layouts : public testing::TestWithParam<Residual> {
 protected:
  void SetUp() override {
    backend_ = open_backend("cpu");
    has_blocks_ = backend_->describe().find("AVX") != std::string::npos &&
                  backend_->describe().find("SSE") == std::string::npos;
  }
  Graph step(StepOptions options = {}) const {
    return compile_step(residual(GetParam()), options_for(*backend_, options));
  }

  // The first convolution makes blocks of images in planes.
  std::vector<std::string> images_alone() const {
    return has_blocks_ ? std::vector<std::string>{"input/normalize"} : std::vector<std::string>{};
  }

  std::shared_ptr<Backend> backend_;
  bool has_blocks_ = false;
};

bool is_image(const Value& value) {
  return value.type.shape.rank() == 4 && !is_persistent(value.role) && value.parameter < 0;
}

// Weights may have a reorder, what grows with the batch may not.
std::vector<std::string> reordered_images(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes)
    if (std::holds_alternative<Reorder>(node.op) && is_image(graph.value(node.in[0])))
      names.push_back(graph.value(node.in[0]).name);
  return names;
}

TEST_P(Layouts, OfAResidualNetworkStayInBlocksFromEndToEnd) {
  StepOptions unfused;
  for (const FusionRow& row : fusion_table()) unfused.no_fuse.emplace(row.name);
  for (const StepOptions& options : {StepOptions{}, unfused}) {
    const Program program(step(options), backend_);
    const Graph& graph = program.graph();
    EXPECT_EQ(reordered_images(graph), images_alone());
    int images = 0;
    for (const Node& node : graph.nodes) {
      if (std::holds_alternative<Conv>(node.op)) ++images;
      for (const int id : node.out) {
        const Value& value = graph.value(id);
        const bool small =
            value.type.shape.rank() != 4 || value.type.shape[1] == 1 || value.type.shape[3] == 3;
        if (has_blocks_ && is_image(value) && !small) {
          EXPECT_FALSE(value.layout.tag.empty()) << node.title() << " " << value.name;
        }
      }
    }
    EXPECT_EQ(images, 8);
  }
}

TEST_P(Layouts, LeaveTheStepsResultAlone) {
  for (const bool fused : {true, false}) {
    StepOptions options;
    options.optimizer.kind = Optimizer::Kind::sgd;
    if (!fused)
      for (const FusionRow& row : fusion_table()) options.no_fuse.emplace(row.name);
    Stepping ours(step(options), backend_), theirs(step(options), open_backend("ref"));
    for (Stepping* one : {&ours, &theirs}) one->program.store().initialize(3);
    const auto check = check_runner(ours.program, theirs.program);
    for (std::uint64_t i = 0; i < 2; ++i) {
      ours.load(i);
      theirs.load(i);
      ASSERT_NO_THROW(check->step()) << "step " << i;
    }
    for (std::size_t b = 0; b < ours.program.store().buffers().size(); ++b)
      EXPECT_LE(relative_difference(ours.program.store().read_buffer(b),
                                    theirs.program.store().read_buffer(b)),
                1e-4)
          << ours.program.store().buffers()[b].name;
  }
}

TEST_P(Layouts, OfTheNetworkInUseAreThoseThatItWasTrainedIn) {
  auto trained = std::make_unique<Stepping>(step(), backend_);
  trained->program.store().initialize(3);
  StepOptions options;
  options.training = false;
  const auto store = std::make_shared<Store>(backend_, trained->program.graph());
  store->initialize(3);
  const Graph graph = compile_step(residual(GetParam()), options_for(*backend_, options));
  Stepping ours(graph, backend_, store), theirs(graph, open_backend("ref"));
  theirs.program.store().initialize(3);
  EXPECT_EQ(reordered_images(ours.program.graph()), images_alone());
  for (Stepping* one : {&ours, &theirs}) {
    one->load(0);
    eager_runner(one->program)->step();
  }
  EXPECT_NEAR(ours.program.loss(), theirs.program.loss(), 1e-5 * theirs.program.loss());
}

TEST_P(Layouts, GiveTheSameBitsOnEveryRun) {
  const auto run = [&](auto make) {
    Stepping one(step(), backend_);
    one.program.store().initialize(3);
    const std::unique_ptr<Runner> runner = make(one.program);
    for (std::uint64_t i = 0; i < 3; ++i) {
      one.load(i);
      runner->step();
    }
    std::vector<std::vector<float>> all = one.parameters();
    for (std::size_t b = 0; b < one.program.store().buffers().size(); ++b)
      all.push_back(one.program.store().read_buffer(b));
    return all;
  };
  const auto first = run([](Program& p) { return eager_runner(p); });
  EXPECT_EQ(first, run([](Program& p) { return eager_runner(p); }));
  EXPECT_EQ(first, run([](Program& p) { return poisoning_runner(p); }));
}

INSTANTIATE_TEST_SUITE_P(
    Networks, Layouts,
    testing::Values(Residual{}, Residual{.pool = false},
                    Residual{.batch = 8, .size = 64, .dropout = 0.25, .average = true}),
    [](const auto& tested) {
      return std::string(tested.param.pool ? "pool" : "straight") +
             (tested.param.dropout > 0 ? "_dropout" : "");
    });

}  // namespace
}  // namespace warpstep
