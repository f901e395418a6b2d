// Convolutions, pools and linear layers that nobody designed, as cases, and one other op for four
// of them: a backend that chooses its kernels by extents has borders between them, and these cross
// most. Part of the op tests of Warpstep's own ops; those of a user's op have none.
#include <algorithm>
#include <vector>

#include "engine/passes/fuse.h"
#include "kernels/cases.h"
#include "tests/random_draws.h"

namespace warpstep::testing_support {
namespace {

class RandomCase : RandomDraws {
 public:
  explicit RandomCase(std::uint32_t seed) : RandomDraws(seed, 1) {}

  cases::Case build() {
    cases::Case c;
    switch (drawn(12)) {
      case 0:
      case 1: add_pool(c); break;
      case 2:
      case 3: add_linear(c); break;
      case 4:
      case 5: add_pooled_convolution(c); break;
      case 6: add_convolution_of_many_channels(c); break;
      default: add_convolution(c);
    }
    c.name += fmt::format(", seed {}", seed());
    return c;
  }

 private:
  // Those of vectors, or any.
  std::int64_t channels() {
    return drawn(2) == 0 ? one_of({1, 2, 3, 4, 8, 16, 32}) : from_to(1, 40);
  }

  void add_convolution(cases::Case& c) {
    Conv op;
    op.groups = drawn(2) == 0 ? 1 : from_to(2, 12);
    const auto of_group = [&] { return op.groups > 1 ? from_to(1, 9) : channels(); };
    const std::int64_t in = of_group(), out = drawn(2) == 0 ? in : of_group();
    op.out = op.groups * out;
    op.bias = drawn(2) == 0;
    op.relu = drawn(2) == 0;
    Type x;
    do {  // until there is a window
      x = images(18, 22, op.groups * in);
      op.kernel = one_of({1, 2, 3, 3, 3, 4, 5, 7, 9});
      op.stride = drawn(3) > 0 ? 1 : from_to(2, 4);
      op.dilation = drawn(4) > 0 ? 1 : from_to(2, 3);
      op.padding = drawn(2) == 0 ? op.kernel / 2 : from_to(0, op.kernel);
    } while (std::min(x.shape[1], x.shape[2]) + 2 * op.padding < op.dilation * (op.kernel - 1) + 1);
    c.name = fmt::format("conv/{}x{} to {} channels, {}", op.kernel, op.kernel, op.out, x.text());
    if (op.groups > 1) c.name += fmt::format(", {} groups", op.groups);
    if (op.stride > 1) c.name += fmt::format(", stride {}", op.stride);
    if (op.dilation > 1) c.name += fmt::format(", dilation {}", op.dilation);
    conv("conv", cases::input(c, "x", x), op);
  }

  // Of maps so small that its weights are what it reads most of.
  void add_convolution_of_many_channels(cases::Case& c) {
    const Type x{DType::f32, {from_to(1, 4), from_to(2, 9), from_to(2, 11), 16 * from_to(4, 8)}};
    const Conv op{.out = 16 * from_to(4, 8),
                  .kernel = 3,
                  .padding = from_to(1, 2),
                  .bias = drawn(2) == 0,
                  .relu = drawn(2) == 0};
    c.name = fmt::format("conv/3x3 to {} channels, {}", op.out, x.text());
    conv("conv", cases::input(c, "x", x), op);
  }

  // With its pool, which a backend may decline.
  void add_pooled_convolution(cases::Case& c) {
    const auto channels = [&] { return drawn(2) == 0 ? 8 * from_to(1, 4) : from_to(1, 40); };
    const std::int64_t in = channels();
    const Type x{DType::f32, {from_to(1, 5), from_to(2, 18), from_to(2, 22), in}};
    Conv op{.out = drawn(2) == 0 ? in : channels(), .kernel = 3, .padding = 1};
    op.pool = MaxPool{.window = 2, .stride = 2, .padding = 0, .relu = drawn(2) == 0};
    c.fusion = fusion::conv_pool;
    c.name = fmt::format("conv/3x3 to {} channels, {}, pool", op.out, x.text());
    conv("conv", cases::input(c, "x", x), op);
  }

  void add_pool(cases::Case& c) {
    const bool is_average = drawn(2) == 0;
    Type x;
    std::int64_t window = 0, padding = 0;
    do {
      x = images(18, 22, channels());
      window = drawn(3) == 0 ? from_to(1, 15) : from_to(1, 4);
      padding = from_to(0, window / 2);
    } while (std::min(x.shape[1], x.shape[2]) + 2 * padding < window);
    const std::int64_t stride = from_to(1, 5);
    c.name = fmt::format("pool/{}{}x{} of {}, stride {}, padding {}", is_average ? "average " : "",
                         window, window, x.text(), stride, padding);
    if (is_average)  // of numbers that do not cancel
      avg_pool(cases::input(c, "x", x, {cases::Fill::Kind::positive, 1}),
               {.window = window, .stride = stride, .padding = padding});
    else
      max_pool(cases::input(c, "x", x, {cases::Fill::Kind::distinct, 1}),
               {.window = window, .stride = stride, .padding = padding, .relu = drawn(2) == 0});
  }

  void add_linear(cases::Case& c) {
    const auto extent = [&] { return drawn(2) == 0 ? from_to(1, 40) : from_to(1, 300); };
    const Type x{DType::f32, {extent(), extent()}};
    Linear op;
    op.out = extent();
    op.bias = drawn(2) == 0;
    op.relu = drawn(2) == 0;
    c.name = fmt::format("linear/{} to {}", x.text(), op.out);
    linear("linear", cases::input(c, "x", x), op);
  }
};

}  // namespace

cases::Case random_rows(std::uint32_t seed);  // tests/random_rows.cpp

std::vector<cases::Case> random_cases(std::uint32_t count) {
  std::vector<cases::Case> all;
  for (std::uint32_t seed = 0; seed < count; ++seed) all.push_back(RandomCase(seed).build());
  for (std::uint32_t seed = 0; seed < count / 4; ++seed) all.push_back(random_rows(seed));
  return all;
}

}  // namespace warpstep::testing_support
