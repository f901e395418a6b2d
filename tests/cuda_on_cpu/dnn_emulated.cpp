// dnn::Library by plain loops over the same description that cuDNN receives: sums in double, each
// result rounded once to its tensor's dtype, whether it is stored or not.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "kernels/cuda/check.h"
#include "kernels/cuda/runtime.h"
#include "tests/cuda_on_cpu/dnn_checks.h"
#include "tests/cuda_on_cpu/elements.h"
#include "tests/cuda_on_cpu/fake_runtime.h"

namespace warpstep::cuda::dnn {
namespace {

// Not 0, so that a step's memory plan must place it, and a number that occurs nowhere else.
constexpr std::size_t workspace_need = 1040;

using Dense = std::vector<float>;  // a tensor's elements in the order N, H, W, C

template <class Visit>
void for_each_element(const Tensor& tensor, Visit visit) {
  std::size_t dense = 0;
  const auto& [n_count, c_count, h_count, w_count] = tensor.dims;
  for (std::int64_t n = 0; n < n_count; ++n)
    for (std::int64_t h = 0; h < h_count; ++h)
      for (std::int64_t w = 0; w < w_count; ++w)
        for (std::int64_t c = 0; c < c_count; ++c) visit(dense++, Extents{n, c, h, w});
}

std::int64_t place(const Tensor& tensor, const Extents& at) {
  std::int64_t offset = 0;
  for (std::size_t axis = 0; axis < at.size(); ++axis)
    offset += (tensor.dims[axis] == 1 ? 0 : at[axis]) * tensor.strides[axis];  // broadcast
  return offset;
}

std::int64_t count(const Tensor& tensor) {
  const auto& [n, c, h, w] = tensor.dims;
  return n * c * h * w;
}

// Calls visit(x pixel, w pixel, y pixel) for each product of a convolution, as indices into dense
// tensors of pixels; pixels in the padding are left out.
template <class Visit>
void for_each_tap(const Convolution& conv, const Tensor& x, const Tensor& w, const Tensor& y,
                  Visit visit) {
  for (std::int64_t n = 0; n < y.dims[0]; ++n)
    for (std::int64_t p = 0; p < y.dims[2]; ++p)
      for (std::int64_t q = 0; q < y.dims[3]; ++q)
        for (std::int64_t r = 0; r < w.dims[2]; ++r)
          for (std::int64_t s = 0; s < w.dims[3]; ++s) {
            const std::int64_t i = p * conv.stride - conv.padding + r * conv.dilation;
            const std::int64_t j = q * conv.stride - conv.padding + s * conv.dilation;
            if (i < 0 || j < 0 || i >= x.dims[2] || j >= x.dims[3]) continue;
            visit(idx((n * x.dims[2] + i) * x.dims[3] + j), idx(r * w.dims[3] + s),
                  idx((n * y.dims[2] + p) * y.dims[3] + q));
          }
}

struct Operands {
  const Dense &x, &w, &y;  // the written one is empty
};

Dense convolve(const Convolution& conv, const Tensor& x, const Tensor& w, const Tensor& y,
               const Operands& of) {
  using enum Convolution::Direction;
  const std::size_t in = idx(x.dims[1]), group_in = idx(w.dims[1]), out = idx(y.dims[1]);
  const std::size_t groups = in / group_in, group_out = out / groups;
  const std::size_t taps = idx(w.dims[2] * w.dims[3]);
  const Tensor& result = conv.direction == forward ? y : conv.direction == data_grad ? x : w;
  std::vector<double> sums(idx(count(result)));
  for_each_tap(conv, x, w, y, [&](std::size_t from, std::size_t tap, std::size_t to) {
    for (std::size_t k = 0; k < out; ++k) {
      const std::size_t first_x = from * in + k / group_out * group_in;
      const std::size_t first_w = (k * taps + tap) * group_in, at_y = to * out + k;
      if (conv.direction == forward) {
        double sum = 0;
        for (std::size_t c = 0; c < group_in; ++c)
          sum += static_cast<double>(of.x[first_x + c]) * of.w[first_w + c];
        sums[at_y] += sum;
        continue;
      }
      const bool to_data = conv.direction == data_grad;
      const double d_y = of.y[at_y];
      const float* factors = to_data ? &of.w[first_w] : &of.x[first_x];
      double* into = &sums[to_data ? first_x : first_w];
      for (std::size_t c = 0; c < group_in; ++c) into[c] += d_y * static_cast<double>(factors[c]);
    }
  });
  return {sums.begin(), sums.end()};
}

// One run of a graph on the memory of a call.
class Run {
 public:
  Run(const Graph& graph, std::span<const Binding> bindings) : graph_(graph) {
    for (const auto& [uid, address] : bindings) addresses_[uid] = address;
  }
  void operator()() {
    for (const Operation& operation : graph_.operations) {
      const std::vector<Dense> results =
          std::visit([this](const auto& o) { return compute(o); }, operation);
      const std::vector<std::int64_t> uids = written_by(operation);
      for (std::size_t i = 0; i < uids.size(); ++i) write(graph_.tensor(uids[i]), results[i]);
    }
  }

 private:
  using Results = std::vector<Dense>;  // in the order of written_by()

  Results compute(const Convolution& conv) const {
    using enum Convolution::Direction;
    const Tensor &x = graph_.tensor(conv.x), &w = graph_.tensor(conv.w), &y = graph_.tensor(conv.y);
    const Dense none;
    const Dense dense_x = conv.direction == data_grad ? none : read(x);
    const Dense dense_w = conv.direction == weight_grad ? none : read(w);
    const Dense dense_y = conv.direction == forward ? none : read(y);
    return {convolve(conv, x, w, y, {dense_x, dense_w, dense_y})};
  }
  Results compute(const Pointwise& pointwise) const {
    using enum Pointwise::Mode;
    Dense result = read(graph_.tensor(pointwise.x));
    if (pointwise.mode == relu) {
      for (float& value : result) value = value > 0 || value != value ? value : 0;  // NaN stays
      return {result};
    }
    const Tensor &b = graph_.tensor(pointwise.b), &y = graph_.tensor(pointwise.y);
    const Dense dense_b = read(b);
    const auto& [n_count, c_count, h_count, w_count] = b.dims;
    const Tensor packed{.dims = b.dims,
                        .strides = {h_count * w_count * c_count, 1, w_count * c_count, c_count}};
    for_each_element(y, [&](std::size_t dense, const Extents& at) {
      const float operand = dense_b[idx(place(packed, at))];
      float& value = result[dense];
      switch (pointwise.mode) {
        case add: value += operand; break;
        case subtract: value -= operand; break;
        case multiply: value *= operand; break;
        case relu: break;
        case relu_grad: value = value > 0 ? operand : 0; break;
      }
    });
    return {result};
  }

  // Channels are innermost in the result of read().
  Results compute(const ChannelSums& sums) const {
    const Dense x = read(graph_.tensor(sums.x));
    const std::size_t channels = idx(graph_.tensor(sums.x).dims[1]);
    std::vector<double> sum(channels), squares(channels);
    for (std::size_t i = 0; i < x.size(); ++i) {
      sum[i % channels] += static_cast<double>(x[i]);
      squares[i % channels] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    }
    return {{sum.begin(), sum.end()}, {squares.begin(), squares.end()}};
  }

  Results compute(const NormGradSums& op) const {
    const Dense x = read(graph_.tensor(op.x)), d_y = read(graph_.tensor(op.d_y));
    const Dense mean = read(graph_.tensor(op.mean)), inv_std = read(graph_.tensor(op.inv_std));
    const Dense scale = read(graph_.tensor(op.scale));
    const std::size_t channels = mean.size();
    const double rows = static_cast<double>(x.size()) / static_cast<double>(channels);
    std::vector<double> sum(channels), product(channels);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t c = i % channels;
      const auto g = static_cast<double>(d_y[i]);
      sum[c] += g;
      product[c] += g * (static_cast<double>(x[i]) - mean[c]) * inv_std[c];
    }
    Results all(5, Dense(channels));
    for (std::size_t c = 0; c < channels; ++c) {
      const double by_d_y = static_cast<double>(scale[c]) * inv_std[c];
      const double by_x = -by_d_y * inv_std[c] * product[c] / rows;
      const std::array numbers{product[c], sum[c], by_d_y, by_x,
                               -by_d_y * sum[c] / rows - by_x * mean[c]};
      for (std::size_t i = 0; i < numbers.size(); ++i) all[i][c] = static_cast<float>(numbers[i]);
    }
    return all;
  }

  double at(std::int64_t uid, const Extents& where) const {
    const Tensor& tensor = graph_.tensor(uid);
    return static_cast<double>(load(addresses_.at(uid), tensor.dtype, place(tensor, where)));
  }

  // A query's scores with the keys that it sees; part 0 of qkv are the queries, 1 the keys.
  std::vector<double> scores(const Attention& op, std::int64_t n, std::int64_t h,
                             std::int64_t i) const {
    const auto& [batch, parts, length, features] = graph_.tensor(op.qkv).dims;
    std::vector<double> s(idx(op.causal ? i + 1 : length));
    for (std::size_t j = 0; j < s.size(); ++j) {
      for (std::int64_t d = 0; d < features; ++d)
        s[j] += at(op.qkv, {n, h, i, d}) *
                at(op.qkv, {n, parts / 3 + h, static_cast<std::int64_t>(j), d});
      s[j] /= std::sqrt(static_cast<double>(features));
    }
    return s;
  }

  // Calls visit(n, h, i) for every row of probabilities.
  template <class Visit>
  void for_each_row(const Attention& op, Visit visit) const {
    const auto& [batch, parts, length, features] = graph_.tensor(op.qkv).dims;
    for (std::int64_t n = 0; n < batch; ++n)
      for (std::int64_t h = 0; h < parts / 3; ++h)
        for (std::int64_t i = 0; i < length; ++i) visit(n, h, i);
  }

  static double& element(std::vector<double>& dense, const Tensor& tensor, const Extents& where) {
    const auto& [n, c, h, w] = tensor.dims;
    return dense[idx(((where[0] * h + where[2]) * w + where[3]) * c + where[1])];
  }

  Results compute(const Attention& op) const {
    return op.direction == Attention::Direction::forward ? attend(op) : attention_gradients(op);
  }

  // What a product reads has the type of qkv.
  double rounded_like(const Attention& op, double value) const {
    return static_cast<double>(
        rounded(graph_.tensor(op.qkv).dtype, {static_cast<float>(value)})[0]);
  }

  Results attend(const Attention& op) const {
    const Tensor &o = graph_.tensor(op.o), &statistics = graph_.tensor(op.statistics);
    std::vector<double> sums(idx(count(o))), logs(idx(count(statistics)));
    for_each_row(op, [&](std::int64_t n, std::int64_t h, std::int64_t i) {
      std::vector<double> p = scores(op, n, h, i);
      const double most = std::ranges::max(p);
      double sum = 0;
      for (double& each : p) sum += each = std::exp(each - most);
      element(logs, statistics, {n, h, i, 0}) = most + std::log(sum);
      for (std::size_t j = 0; j < p.size(); ++j) {
        const double factor = rounded_like(op, p[j] / sum);
        for (std::int64_t d = 0; d < o.dims[3]; ++d)
          element(sums, o, {n, h, i, d}) +=
              factor * at(op.qkv, {n, 2 * o.dims[1] + h, static_cast<std::int64_t>(j), d});
      }
    });
    return {{sums.begin(), sums.end()}, {logs.begin(), logs.end()}};
  }

  // Of the statistics and o as they were stored.
  Results attention_gradients(const Attention& op) const {
    const Tensor &o = graph_.tensor(op.o), &d_qkv = graph_.tensor(op.d_qkv);
    const std::int64_t heads = o.dims[1], features = o.dims[3];
    const double scale = 1 / std::sqrt(static_cast<double>(features));
    std::vector<double> sums(idx(count(d_qkv)));
    for_each_row(op, [&](std::int64_t n, std::int64_t h, std::int64_t i) {
      const std::vector<double> s = scores(op, n, h, i);
      double mean = 0;
      for (std::int64_t d = 0; d < features; ++d)
        mean += at(op.d_o, {n, h, i, d}) * at(op.o, {n, h, i, d});
      for (std::int64_t j = 0; j < std::ssize(s); ++j) {
        const double exact = std::exp(s[idx(j)] - at(op.statistics, {n, h, i, 0}));
        const double p = rounded_like(op, exact);
        double d_p = 0;
        for (std::int64_t d = 0; d < features; ++d)
          d_p += at(op.d_o, {n, h, i, d}) * at(op.qkv, {n, 2 * heads + h, j, d});
        const double d_s = rounded_like(op, exact * (d_p - mean) * scale);
        for (std::int64_t d = 0; d < features; ++d) {
          element(sums, d_qkv, {n, h, i, d}) += d_s * at(op.qkv, {n, heads + h, j, d});
          element(sums, d_qkv, {n, heads + h, j, d}) += d_s * at(op.qkv, {n, h, i, d});
          element(sums, d_qkv, {n, 2 * heads + h, j, d}) += p * at(op.d_o, {n, h, i, d});
        }
      }
    });
    Results results{{sums.begin(), sums.end()}};
    if (op.d_q_sums != 0)  // of no use to anyone after the call
      results.emplace_back(idx(count(graph_.tensor(op.d_q_sums))),
                           std::numeric_limits<float>::quiet_NaN());
    return results;
  }

  Dense read(const Tensor& tensor) const {
    if (tensor.is_virtual) return virtual_.at(tensor.uid);
    Dense dense(idx(count(tensor)));
    const void* base = addresses_.at(tensor.uid);
    for_each_element(tensor, [&](std::size_t to, const Extents& at) {
      dense[to] = load(base, tensor.dtype, place(tensor, at));
    });
    return dense;
  }
  static Dense rounded(DType dtype, Dense dense) {
    for (float& value : dense) {
      float stored = 0;
      store(&stored, dtype, 0, value);
      value = load(&stored, dtype, 0);
    }
    return dense;
  }
  void write(const Tensor& tensor, const Dense& dense) {
    if (tensor.is_virtual) {
      virtual_[tensor.uid] = rounded(tensor.dtype, dense);
      return;
    }
    void* base = addresses_.at(tensor.uid);
    for_each_element(tensor, [&](std::size_t from, const Extents& at) {
      store(base, tensor.dtype, place(tensor, at), dense[from]);
    });
  }

  const Graph& graph_;
  std::map<std::int64_t, void*> addresses_;
  std::map<std::int64_t, Dense> virtual_;
};

// Fused convolutions and batch norms for which cuDNN 9 has no engine: any dtype but f16; a norm
// with a shortcut before any convolution but a 1x1 of stride 1.
std::string refused_with_norms(const Graph& graph) {
  const auto is_of_norms = [](const Operation& operation) {
    const auto* pointwise = std::get_if<Pointwise>(&operation);
    return std::holds_alternative<ChannelSums>(operation) ||
           std::holds_alternative<NormGradSums>(operation) ||
           (pointwise && pointwise->mode == Pointwise::Mode::multiply);
  };
  if (std::ranges::none_of(graph.operations, is_of_norms)) return {};
  bool joins = false;
  for (const Operation& operation : graph.operations) {
    if (const auto* pointwise = std::get_if<Pointwise>(&operation))
      joins = joins || (pointwise->mode == Pointwise::Mode::add &&
                        graph.tensor(pointwise->b).dims == graph.tensor(pointwise->x).dims);
    const auto* conv = std::get_if<Convolution>(&operation);
    if (!conv) continue;
    for (const std::int64_t uid : read_by(operation))
      if (graph.tensor(uid).dtype != DType::f16) return "norms are fused in f16 alone";
    const Tensor& w = graph.tensor(conv->w);
    if (joins && (w.dims[2] != 1 || conv->stride != 1 || conv->padding != 0))
      return "a shortcut is fused into 1x1 convolutions alone";
  }
  return {};
}

// What cuDNN 9 has no engines of attention for.
std::string refused_attention(const Graph& graph, const Settings& settings) {
  const Attention* attention = attention_of(graph);
  if (attention == nullptr) return {};
  const Tensor& qkv = graph.tensor(attention->qkv);
  if (qkv.dtype == DType::f32) return "attention is computed in 16 bits alone";
  if (qkv.dims[2] == 1) return "sequences of one position";
  if (qkv.dims[3] % 8 != 0 || qkv.dims[3] > 128) return "heads have a multiple of 8 features";
  if (attention_workspace(graph, settings.compute_capability) > settings.workspace_cap)
    return "it needs too much workspace";
  return {};
}

class EmulatedPlan final : public Plan {
 public:
  EmulatedPlan(const Graph& graph, bool has_device)
      : graph_(std::make_shared<Graph>(graph)), has_device_(has_device) {}
  std::size_t workspace_bytes() const override { return workspace_need; }
  std::string implementation() const override { return "emulated loops"; }
  void execute(CudaStream& stream, std::span<const Binding> bindings,
               void* workspace) const override {
    if (!has_device_) fail<Error>("{}: planned without a device, so not to be run", graph_->name);
    check_call(*graph_, bindings, workspace, workspace_need);
    const std::vector<Binding> bound(bindings.begin(), bindings.end());
    const auto run = [graph = graph_, bound, workspace] {
      std::memset(workspace, 0xff, workspace_need);  // everything else there becomes NaN
      Run(*graph, bound)();
    };
    check(fake_cuda::enqueue(stream.handle(), graph_->name, run), graph_->name.c_str());
  }

 private:
  std::shared_ptr<const Graph> graph_;  // a captured call outlives its plan
  bool has_device_;
};

class EmulatedLibrary final : public Library {
 public:
  explicit EmulatedLibrary(const Settings& settings) : settings_(settings) {}
  Planned plan(const Graph& graph) override {
    check_graph(graph);
    if (workspace_need > settings_.workspace_cap)
      return {nullptr, fmt::format("it needs {} bytes of workspace, and {} are allowed",
                                   workspace_need, settings_.workspace_cap)};
    // Acts as a library that fuses nothing, so that the backend's own kernels are tested too.
    if (graph.operations.size() > 1 && std::getenv("WARPSTEP_EMULATED_UNFUSED"))
      return {nullptr, "WARPSTEP_EMULATED_UNFUSED refuses graphs of several operations"};
    if (const std::string why = refused_with_norms(graph); !why.empty()) return {nullptr, why};
    if (const std::string why = refused_attention(graph, settings_); !why.empty())
      return {nullptr, why};
    if (settings_.deterministic && adds_in_any_order(graph))
      return {nullptr, "it is not deterministic"};
    return {std::make_unique<EmulatedPlan>(graph, settings_.has_device()), {}};
  }
  bool supports(const Graph& graph) override { return plan(graph).plan != nullptr; }
  std::string version() const override { return "emulated cuDNN"; }

 private:
  Settings settings_;
};

}  // namespace

std::unique_ptr<Library> open_library(const Settings& settings) {
  return std::make_unique<EmulatedLibrary>(settings);
}

}  // namespace warpstep::cuda::dnn
