// Convolutions and the operations fused with them, and attention, as values: a small graph of
// operations that cuDNN plans as a whole. Described here, planned and run by a Library: cuDNN's
// (dnn_cudnn.cpp), or in tests plain loops over the same description.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "engine/core/types.h"
#include "kernels/cuda/settings.h"

namespace warpstep::cuda {
class CudaStream;
}

namespace warpstep::cuda::dnn {

using Extents = std::array<std::int64_t, 4>;  // N, C, H, W: cuDNN's order, whatever the strides say

struct Tensor {
  std::int64_t uid = 0;  // of the graph's tensors; how operations and bindings name it
  DType dtype = DType::f32;
  Extents dims{};
  Extents strides{};        // in elements
  bool is_virtual = false;  // only between two operations, never in memory
  bool operator==(const Tensor&) const = default;
};
// An NHWC tensor; a weight [out,kernel,kernel,C/groups] is one with N = out. A vector of channels
// is {1,C,1,1}.
Tensor nhwc(std::int64_t uid, DType dtype, std::int64_t n, std::int64_t h, std::int64_t w,
            std::int64_t c);
Tensor virtual_like(const Tensor& other, std::int64_t uid, DType dtype = DType::f32);

struct Convolution {
  enum class Direction : std::uint8_t { forward, data_grad, weight_grad };
  Direction direction = Direction::forward;
  std::int64_t x = 0, w = 0, y = 0;  // uids; the direction says which one is written
  std::int64_t padding = 0, stride = 1,
               dilation = 1;  // of both axes; groups follow from C of x and w
  bool operator==(const Convolution&) const = default;
};

// y = x + b, x - b or x b, with b broadcast where its extent is 1; max(0, x); or, for relu_grad, b
// where x is above 0, else 0.
struct Pointwise {
  enum class Mode : std::uint8_t { add, subtract, multiply, relu, relu_grad };
  Mode mode = Mode::add;
  std::int64_t x = 0, b = 0, y = 0;
  bool operator==(const Pointwise&) const = default;
};

// The sums of each channel's numbers and of their squares, f32 {1,C,1,1}.
struct ChannelSums {
  std::int64_t x = 0, sum = 0, squares = 0;
  bool operator==(const ChannelSums&) const = default;
};

// The channels' sums of a batch norm's adjoint, from x and d_y, all f32 {1,C,1,1}: d_scale, d_bias,
// and the three coefficients of d_x = by_d_y d_y + by_x x + constant.
struct NormGradSums {
  std::int64_t x = 0, d_y = 0, mean = 0, inv_std = 0, scale = 0;
  std::int64_t d_scale = 0, d_bias = 0, by_d_y = 0, by_x = 0, constant = 0;
  bool operator==(const NormGradSums&) const = default;
};

// Multi-head attention with o = softmax(q k^T / sqrt(D)) v, or its adjoint; with `causal` position
// i sees the positions up to i. qkv has dims {B,3H,T,D}: the heads of q, then of k, then of v; o
// and d_o {B,H,T,D}; the statistics, log(sum of exp(scores)), f32 {B,H,T,1}. In cuDNN's terms it is
// a graph of up to 22 operations (dnn_cudnn_attention.cpp), alone in its Graph. The adjoint adds up
// the queries' gradients in `d_q_sums`, f32 like o, in an order that differs from run to run; or,
// where that is 0, in a fixed order, for 2 bytes of workspace per pair of positions and head. Both
// sums and workspace may hold anything before.
struct Attention {
  enum class Direction : std::uint8_t { forward, backward };
  Direction direction = Direction::forward;
  bool causal = true;
  std::int64_t qkv = 0, o = 0, statistics = 0;    // uids: forward writes o and statistics
  std::int64_t d_o = 0, d_qkv = 0, d_q_sums = 0;  // of the adjoint
  bool operator==(const Attention&) const = default;
};

using Operation = std::variant<Convolution, Pointwise, ChannelSums, NormGradSums, Attention>;
std::vector<std::int64_t> read_by(const Operation& operation);  // uids
std::vector<std::int64_t> written_by(const Operation& operation);

struct Graph {
  std::string name;  // for people: "conv2/conv"; not part of the key
  std::vector<Tensor> tensors;
  std::vector<Operation> operations;  // in order; arithmetic in f32

  const Tensor& tensor(std::int64_t uid) const;  // Error if there is none
  // For caches: equal for two graphs exactly if they compute the same; one line without blanks.
  // Includes the uids, because bindings refer to them, but not the name, the order of the tensors
  // or unused tensors.
  std::string key() const;
};

// The attention that is a graph's only operation; null in other graphs.
const Attention* attention_of(const Graph& graph);
// Whether its results may differ from run to run, whatever engine computes it: an attention's
// gradients of the queries, and all sums over channels. None of cuDNN 9.19's engines says so; on an
// H200 the last bits of the sums differed in 9 of ResNet-50's calls.
bool adds_in_any_order(const Graph& graph);
// At most so many bytes of workspace take cuDNN 9's plans of an attention, for callers that divide
// a batch; tests/plans/attention_test.cpp compares.
std::size_t attention_workspace(const Graph& graph, int compute_capability);

struct Binding {
  std::int64_t uid = 0;
  void* address = nullptr;  // aligned to 16 bytes
};

// An executable plan of one graph on one device.
class Plan {
 public:
  virtual ~Plan();
  virtual std::size_t workspace_bytes() const = 0;
  virtual std::string implementation() const = 0;  // "cudnn engine 37 (precompiled)"
  // Enqueues on the stream; `bindings` has every tensor that is not virtual. Never allocates or
  // waits.
  virtual void execute(CudaStream& stream, std::span<const Binding> bindings,
                       void* workspace) const = 0;
};

struct Planned {
  std::unique_ptr<Plan> plan;  // null: no engine of the library computes this graph within the cap
  std::string why_not;
};

class Library {
 public:
  virtual ~Library();
  // Both throw DeviceLost when the device fails.
  virtual Planned plan(const Graph& graph) = 0;
  // Whether plan() finds a plan, which is kept for it.
  virtual bool supports(const Graph& graph) = 0;
  // With `on`, plan() and supports() run nothing on the device and keep no plans; initially off.
  virtual void only_plan(bool /*on*/) {}
  virtual std::string version() const = 0;  // "cuDNN 9.19.0"
};

// For the device and the settings of the backend.
std::unique_ptr<Library> open_library(const Settings& settings);

}  // namespace warpstep::cuda::dnn
