// Every adjoint of the reference backend against central finite differences of its forward kernels,
// in double. The other backends are compared with the reference in op_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "engine/core/random.h"
#include "tests/build_tree.h"
#include "tests/trial.h"

namespace warpstep {
namespace {

using testing_support::Trial;

std::vector<cases::Case> differentiable() {
  std::vector<cases::Case> all = cases::all();
  std::erase_if(
      all, [](const cases::Case& c) { return c.heavy || !c.smooth || !cases::has_adjoint(c); });
  return all;
}

// The loss whose gradient the adjoints compute: the sum of d_out times the output, or the output
// itself if it is a loss.
class Loss {
 public:
  Loss(const cases::Case& forward, const std::vector<double>& d_out)
      : trial_(forward, open_backend("ref")),
        out_(forward.graph.nodes.back().out[0]),
        d_out_(d_out) {}

  std::vector<double> operand(int value) const { return trial_.exact(value); }
  double at(int value, const std::vector<double>& numbers) {
    trial_.set_exact(value, numbers);
    trial_.enqueue_all();
    const std::vector<double> out = trial_.exact(out_);
    double sum = 0;
    terms_ = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const double term = d_out_.empty() ? out[i] : out[i] * d_out_[i];
      sum += term;
      terms_ += std::abs(term);
    }
    return sum;
  }
  // The rounding error of a slope over 2h: each term of the loss is exact to a few units.
  double rounding(double h) const { return 8 * 0x1p-52 * terms_ / h; }
  // (loss(x + h v) - loss(x - h v)) / 2h
  double slope(int value, const std::vector<double>& direction, double h) {
    const std::vector<double> x = operand(value);
    std::vector<double> ahead = x, behind = x;
    for (std::size_t i = 0; i < x.size(); ++i) {
      ahead[i] += h * direction[i];
      behind[i] -= h * direction[i];
    }
    const double slope = (at(value, ahead) - at(value, behind)) / (2 * h);
    trial_.set_exact(value, x);
    return slope;
  }

 private:
  Trial trial_;
  int out_;
  std::vector<double> d_out_;
  double terms_ = 0;
};

// Directions to test: single elements, among them the first and the last, and all at once.
std::vector<std::vector<double>> directions(std::size_t count, std::size_t singles) {
  std::vector<std::vector<double>> all;
  std::set<std::size_t> elements{0, count - 1};
  for (std::uint64_t i = 0; elements.size() < std::min(singles, count) && i < 1000; ++i)
    elements.insert(below(draw(7, Purpose::synthetic, 0, i)[0], static_cast<std::uint32_t>(count)));
  for (const std::size_t element : elements) {
    all.emplace_back(count, 0.0);
    all.back()[element] = 1;
  }
  std::vector<double> dense;
  for (std::size_t i = 0; i < count; ++i)
    dense.push_back(2 * static_cast<double>(uniform(draw(8, Purpose::synthetic, 0, i)[0])) - 1);
  all.push_back(std::move(dense));
  return all;
}

double magnitude(const std::vector<double>& numbers) {
  double largest = 0;
  for (const double number : numbers) largest = std::max(largest, std::abs(number));
  return largest;
}

class AdjointOf : public testing::TestWithParam<cases::Case> {};

TEST_P(AdjointOf, IsTheSlopeOfTheForwardKernels) {
  const cases::Case& forward = GetParam();
  const cases::Case whole = cases::with_adjoint(forward);
  Trial adjoint(whole, open_backend("ref"));
  // The arena is reused from call to call, so each gradient is read right after its call.
  const std::map<int, std::vector<double>> results = adjoint.exact_results();
  std::vector<double> d_out;
  if (whole.d_out >= 0) d_out = adjoint.exact(whole.d_out);
  Loss loss(forward, d_out);

  double flops = 1;
  for (const Node& node : forward.graph.nodes) flops += forward.graph.cost(node).flops;
  const auto singles = static_cast<std::size_t>(
      testing_support::sanitized() ? 1.0 : std::clamp(2e7 / flops, 2.0, 24.0));
  int compared = 0;
  for (std::size_t id = 0; id < forward.graph.values.size(); ++id) {
    const int value = static_cast<int>(id);
    const Role role = forward.graph.value(value).role;
    if (role != Role::input && role != Role::parameter) continue;
    if (!is_float(forward.graph.value(value).type.dtype)) continue;
    ASSERT_TRUE(whole.gradients.contains(value)) << forward.graph.value(value).name;
    const int d = whole.gradients.at(value);
    const std::vector<double> gradient = results.contains(d) ? results.at(d) : adjoint.exact(d);
    const double size = magnitude(loss.operand(value));
    const double h = 1e-6 * (size > 0 ? size : 1);
    for (const std::vector<double>& direction : directions(gradient.size(), singles)) {
      double expected = 0;
      for (std::size_t i = 0; i < gradient.size(); ++i) expected += gradient[i] * direction[i];
      const double slope = loss.slope(value, direction, h);
      const double limit = 1e-6 * (magnitude(gradient) + std::abs(expected)) + loss.rounding(h);
      EXPECT_NEAR(slope, expected, limit) << forward.graph.value(value).name;
      ++compared;
    }
  }
  EXPECT_GT(compared, 0);
}

INSTANTIATE_TEST_SUITE_P(Cases, AdjointOf, testing::ValuesIn(differentiable()),
                         testing_support::test_name);

TEST(Cases, HaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const cases::Case& c : cases::all()) EXPECT_TRUE(names.insert(c.name).second) << c.name;
}

}  // namespace
}  // namespace warpstep
