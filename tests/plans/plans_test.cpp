// Every convolution of the models has a plan on every architecture and in every precision: checked
// without a GPU, by planning for assumed devices. A support check, not a measurement.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "kernels/cuda/assumed_devices.h"
#include "kernels/cuda/dnn.h"

namespace warpstep::cuda::dnn {
namespace {

using Direction = Convolution::Direction;

// A square convolution without groups: extents of its input; padding "same", except for its stride.
struct Shape {
  std::int64_t batch, size, channels, out, kernel, stride = 1;

  std::int64_t padding() const { return kernel / 2; }
  std::int64_t out_size() const { return (size + 2 * padding() - kernel) / stride + 1; }
  std::string text() const {
    return fmt::format("{}x{}/{} {}->{} at {}, batch {}", kernel, kernel, stride, channels, out,
                       size, batch);
  }
};

constexpr std::array cifar10cnn{Shape{128, 32, 3, 8, 3}, Shape{128, 32, 8, 32, 3},
                                Shape{128, 16, 32, 64, 3}, Shape{128, 8, 64, 128, 3}};

constexpr std::array resnet50{
    Shape{64, 224, 3, 64, 7, 2},   Shape{64, 56, 64, 64, 1},    Shape{64, 56, 64, 64, 3},
    Shape{64, 56, 64, 256, 1},     Shape{64, 56, 256, 64, 1},   Shape{64, 56, 256, 128, 1},
    Shape{64, 56, 128, 128, 3, 2}, Shape{64, 28, 128, 512, 1},  Shape{64, 56, 256, 512, 1, 2},
    Shape{64, 28, 512, 128, 1},    Shape{64, 28, 128, 128, 3},  Shape{64, 28, 512, 256, 1},
    Shape{64, 28, 256, 256, 3, 2}, Shape{64, 14, 256, 1024, 1}, Shape{64, 28, 512, 1024, 1, 2},
    Shape{64, 14, 1024, 256, 1},   Shape{64, 14, 256, 256, 3},  Shape{64, 14, 1024, 512, 1},
    Shape{64, 14, 512, 512, 3, 2}, Shape{64, 7, 512, 2048, 1},  Shape{64, 14, 1024, 2048, 1, 2},
    Shape{64, 7, 2048, 512, 1},    Shape{64, 7, 512, 512, 3},
};

struct Target {
  std::string device, precision;
  DType dtype;
  bool tf32;
};

void PrintTo(const Target& target, std::ostream* out) {  // in the tests' names
  *out << target.device << " in " << target.precision;
}

// Every precision on every device that has it: Turing has neither bf16 nor tf32.
std::vector<Target> targets() {
  std::vector<Target> all;
  for (const std::string& device : assumed_devices()) {
    all.push_back({device, "f32", DType::f32, false});
    all.push_back({device, "f16", DType::f16, false});
    if (assume_device(device).compute_capability < 80) continue;
    all.push_back({device, "tf32", DType::f32, true});
    all.push_back({device, "bf16", DType::bf16, false});
  }
  return all;
}

// Channels in memory, with zeros appended: tensor cores load rows of 16 bytes.
std::int64_t stored(std::int64_t channels, DType dtype) {
  const auto step = static_cast<std::int64_t>(16 / size_bytes(dtype));
  return (channels + step - 1) / step * step;
}

struct Case {
  std::string name;
  Graph graph;
};

Case plain(const Shape& s, DType dtype, Direction direction, std::string name) {
  const std::int64_t c = stored(s.channels, dtype), size = s.out_size();
  return {std::move(name),
          {.name = s.text(),
           .tensors = {nhwc(1, dtype, s.batch, s.size, s.size, c),
                       nhwc(2, dtype, s.out, s.kernel, s.kernel, c),
                       nhwc(3, dtype, s.batch, size, size, s.out)},
           .operations = {Convolution{.direction = direction,
                                      .x = 1,
                                      .w = 2,
                                      .y = 3,
                                      .padding = s.padding(),
                                      .stride = s.stride}}}};
}

Case with_bias(const Shape& s, DType dtype, bool relu) {
  Case fused = plain(s, dtype, Direction::forward, relu ? "conv+bias+relu" : "conv+bias");
  Graph& graph = fused.graph;
  graph.tensors.push_back(nhwc(4, dtype, 1, 1, 1, s.out));
  graph.tensors.push_back(virtual_like(graph.tensor(3), 5));
  std::get<Convolution>(graph.operations[0]).y = 5;
  graph.operations.push_back(Pointwise{.x = 5, .b = 4, .y = relu ? 6 : 3});
  if (relu) {
    graph.tensors.push_back(virtual_like(graph.tensor(3), 6));
    graph.operations.push_back(Pointwise{.mode = Pointwise::Mode::relu, .x = 6, .y = 3});
  }
  return fused;
}

std::vector<Case> cases(const Shape& shape, DType dtype) {
  return {plain(shape, dtype, Direction::forward, "conv"), with_bias(shape, dtype, false),
          with_bias(shape, dtype, true), plain(shape, dtype, Direction::data_grad, "data gradient"),
          plain(shape, dtype, Direction::weight_grad, "weight gradient")};
}

class Plans : public testing::TestWithParam<Target> {
 protected:
  void expect_plans(std::span<const Shape> shapes);
};

void Plans::expect_plans(std::span<const Shape> shapes) {
  const Target& target = GetParam();
  Settings settings = assume_device(target.device);
  settings.tf32 = target.tf32;
  const bool full_f32 = target.dtype == DType::f32 && !target.tf32;
  const auto library = open_library(settings);
  std::size_t largest_workspace_bytes = 0;
  for (const Shape& shape : shapes) {
    for (const auto& [name, graph] : cases(shape, target.dtype)) {
      const auto [plan, why_not] = library->plan(graph);
      const std::string what = fmt::format("{} {}", name, graph.name);
      if (plan == nullptr) {
        ADD_FAILURE() << what << ": " << why_not;
        continue;
      }
      const std::string engine = plan->implementation();
      EXPECT_LE(plan->workspace_bytes(), settings.workspace_cap) << what << ": " << engine;
      largest_workspace_bytes = std::max(largest_workspace_bytes, plan->workspace_bytes());
      const bool uses_tensor_cores = engine.find("tensor cores") != std::string::npos;
      EXPECT_FALSE(full_f32 && uses_tensor_cores) << what << ": " << engine;
      if (engine.find("fallback") != std::string::npos || uses_tensor_cores == full_f32 ||
          engine.find("runtime compiled") != std::string::npos) {
        std::cout << "note: " << what << ": " << engine << '\n';
      }
    }
  }
  std::cout << fmt::format("{} in {}: at most {:.1f} MiB of workspace\n", target.device,
                           target.precision,
                           static_cast<double>(largest_workspace_bytes) / (1 << 20));
}

TEST_P(Plans, Cifar10cnn) {
  expect_plans(cifar10cnn);
}

TEST_P(Plans, Resnet50) {
  expect_plans(resnet50);
}

INSTANTIATE_TEST_SUITE_P(, Plans, testing::ValuesIn(targets()), [](const auto& test) {
  return test.param.device + "_" + test.param.precision;
});

}  // namespace
}  // namespace warpstep::cuda::dnn
