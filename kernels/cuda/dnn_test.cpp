#include "kernels/cuda/dnn.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "engine/core/error.h"
#include "kernels/cuda/matmul.h"

namespace warpstep::cuda {
namespace {

using dnn::Convolution;
using dnn::Graph;
using dnn::nhwc;
using dnn::Pointwise;
using dnn::Tensor;

// relu(conv(x, w) + bias) of a 3x3 convolution from 32 to 64 channels.
Graph fused_convolution() {
  const Tensor y = nhwc(5, DType::f16, 128, 16, 16, 64);
  return {.name = "conv3/conv",
          .tensors = {nhwc(1, DType::f16, 128, 16, 16, 32), nhwc(2, DType::f16, 64, 3, 3, 32),
                      nhwc(3, DType::f16, 1, 1, 1, 64), virtual_like(y, 6), virtual_like(y, 7), y},
          .operations = {Convolution{.x = 1, .w = 2, .y = 6, .padding = 1},
                         Pointwise{.x = 6, .b = 3, .y = 7},
                         Pointwise{.mode = Pointwise::Mode::relu, .x = 7, .y = 5}}};
}

TEST(DnnTensor, NhwcHasTheChannelsInnermostInOrderOfNchwDims) {
  const Tensor tensor = nhwc(4, DType::bf16, 2, 5, 7, 3);
  EXPECT_EQ(tensor.dims, (dnn::Extents{2, 3, 5, 7}));
  EXPECT_EQ(tensor.strides, (dnn::Extents{105, 1, 21, 3}));
  EXPECT_FALSE(tensor.is_virtual);
  const Tensor between = virtual_like(tensor, 9);
  EXPECT_EQ(between.uid, 9);
  EXPECT_EQ(between.dtype, DType::f32);
  EXPECT_EQ(between.dims, tensor.dims);
  EXPECT_TRUE(between.is_virtual);
}

TEST(DnnGraph, KeyIsOneLineWithoutBlanksThatIgnoresNamesOrderAndWhatNobodyReads) {
  const Graph graph = fused_convolution();
  const std::string key = graph.key();
  EXPECT_EQ(key.find_first_of(" \t\n"), std::string::npos) << key;

  Graph same = graph;
  same.name = "elsewhere";
  std::ranges::reverse(same.tensors);
  same.tensors.push_back(nhwc(99, DType::f32, 1, 1, 1, 1));
  std::get<Pointwise>(same.operations[2]).b = 3;  // of a relu
  EXPECT_EQ(same.key(), key);
}

TEST(DnnGraph, KeyTellsApartWhatComputesSomethingElse) {
  std::vector<Graph> variants(15, fused_convolution());
  const auto convolution = [&](std::size_t i) -> Convolution& {
    return std::get<Convolution>(variants[i].operations[0]);
  };
  variants[1].tensors[0].dims[0] = 64;
  variants[2].tensors[0].strides[2] = 1024;
  variants[3].tensors[0].dtype = DType::bf16;
  variants[4].tensors[3].dtype = DType::f16;
  variants[5].tensors[3].is_virtual = false;
  convolution(6).padding = 0;
  convolution(7).stride = 2;
  convolution(8).dilation = 2;
  convolution(9).direction = Convolution::Direction::data_grad;
  convolution(10).direction = Convolution::Direction::weight_grad;
  variants[11].operations.pop_back();
  std::get<Pointwise>(variants[12].operations[1]).b = 1;
  std::get<Pointwise>(variants[13].operations[1]).mode = Pointwise::Mode::relu;
  std::swap(variants[14].operations[1], variants[14].operations[2]);
  std::set<std::string> keys;
  for (const Graph& graph : variants) keys.insert(graph.key());
  EXPECT_EQ(keys.size(), variants.size());
}

TEST(DnnGraph, OperationsSayWhatTheyReadAndWrite) {
  using Uids = std::vector<std::int64_t>;
  EXPECT_EQ(read_by(dnn::NormGradSums{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), (Uids{1, 2, 3, 4, 5}));
  EXPECT_EQ(written_by(dnn::NormGradSums{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), (Uids{6, 7, 8, 9, 10}));
  EXPECT_EQ(written_by(dnn::ChannelSums{1, 2, 3}), (Uids{2, 3}));
  EXPECT_EQ(read_by(Pointwise{Pointwise::Mode::relu, 1, 2, 3}), (Uids{1}));
  EXPECT_EQ(read_by(Pointwise{Pointwise::Mode::relu_grad, 1, 2, 3}), (Uids{1, 2}));
  EXPECT_EQ(written_by(Convolution{Convolution::Direction::weight_grad, 1, 2, 3}), (Uids{2}));
  // One pair of sums is not another's, nor a mode another mode.
  Graph graph = fused_convolution();
  graph.tensors.push_back(nhwc(8, DType::f32, 1, 1, 1, 64));
  graph.tensors.push_back(nhwc(9, DType::f32, 1, 1, 1, 64));
  graph.operations.push_back(dnn::ChannelSums{5, 8, 9});
  const std::string key = graph.key();
  graph.operations.back() = dnn::ChannelSums{5, 9, 8};
  EXPECT_NE(graph.key(), key);
  std::set<std::string> keys;
  for (const auto mode : {Pointwise::Mode::add, Pointwise::Mode::subtract,
                          Pointwise::Mode::multiply, Pointwise::Mode::relu_grad}) {
    std::get<Pointwise>(graph.operations[1]).mode = mode;
    keys.insert(graph.key());
  }
  EXPECT_EQ(keys.size(), 4U);
}

TEST(DnnGraph, ATensorThatIsMissingIsNamed) {
  Graph graph = fused_convolution();
  graph.tensors.pop_back();
  try {
    graph.key();
    FAIL() << "uid 5 was found";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "conv3/conv: no tensor of the graph has uid 5; there are 5");
  }
}

TEST(Matmul, KeyTellsApartEveryField) {
  const Matmul base{.rows = 128,
                    .columns = 2048,
                    .depth = 2048,
                    .pitch_a = 2048,
                    .pitch_b = 2048,
                    .pitch_d = 2048};
  std::vector<Matmul> variants(13, base);
  variants[1].dtype = DType::f16;
  variants[2].rows = 64;
  variants[3].columns = 64;
  variants[4].depth = 64;
  variants[5].transpose_a = true;
  variants[6].transpose_b = true;
  variants[7].pitch_a = 4096;
  variants[8].pitch_b = 4096;
  variants[9].pitch_d = 4096;
  variants[10].epilogue = Matmul::Epilogue::bias;
  variants[11].epilogue = Matmul::Epilogue::drelu_bias_gradient;
  variants[12].aux_pitch = 128;
  std::set<std::string> keys;
  for (const Matmul& matmul : variants) {
    keys.insert(matmul.key());
    EXPECT_EQ(matmul.key().find_first_of(" \t\n"), std::string::npos);
  }
  EXPECT_EQ(keys.size(), variants.size());
}

}  // namespace
}  // namespace warpstep::cuda
