// The reference backend as the engine sees it.
#include <cstdlib>
#include <cstring>

#include "engine/core/error.h"
#include "kernels/ref/ref.h"

namespace warpstep::ref {

void column_sums(const double* x, std::int64_t count, std::int64_t channels, double* sums) {
  std::fill_n(sums, channels, 0.0);
  for (std::int64_t i = 0; i < count; ++i) sums[i % channels] += x[i];
}

namespace {

struct HostStream final : Stream {
  void wait() override {}
};

std::size_t stored_bytes(const Type& type) {
  return idx(type.shape.count()) * (is_float(type.dtype) ? sizeof(double) : size_bytes(type.dtype));
}

class Reference final : public Backend {
 public:
  std::string_view name() const override { return "ref"; }
  std::string describe() const override {
    return "reference loops in double precision, one thread";
  }

  void choose_layouts(Graph& graph) const override {
    for (Value& value : graph.values) value.layout.bytes = stored_bytes(value.type);
  }

  std::unique_ptr<Kernel> bind(const Graph& graph, const Node& node) const override {
    const Operands operands{graph, node};
    return bind_node(node, [&](const auto& op) { return ref::bind(op, operands); });
  }

  std::shared_ptr<std::byte> allocate(std::size_t bytes) const override {
    void* memory = std::calloc(std::max<std::size_t>(bytes, 1), 1);
    if (!memory) fail<DeviceError>("ref: cannot allocate {} bytes of memory", bytes);
    return {static_cast<std::byte*>(memory), [](std::byte* p) { std::free(p); }};
  }

  std::unique_ptr<Stream> make_stream(Precedence) const override {
    return std::make_unique<HostStream>();
  }

  void write(const Value& value, void* stored, std::span<const std::byte> plain) const override {
    if (!is_float(value.type.dtype)) {
      if (!plain.empty()) std::memcpy(stored, plain.data(), plain.size());
      return;
    }
    for (std::size_t i = 0; i < plain.size() / sizeof(float); ++i) {
      float element = 0;
      std::memcpy(&element, plain.data() + i * sizeof(float), sizeof(float));
      static_cast<double*>(stored)[i] = rounded(static_cast<double>(element), value.type.dtype);
    }
  }

  void read(const Value& value, const void* stored, std::span<std::byte> plain) const override {
    if (!is_float(value.type.dtype)) {
      if (!plain.empty()) std::memcpy(plain.data(), stored, plain.size());
      return;
    }
    for (std::size_t i = 0; i < plain.size() / sizeof(float); ++i) {
      const auto element = static_cast<float>(static_cast<const double*>(stored)[i]);
      std::memcpy(plain.data() + i * sizeof(float), &element, sizeof(float));
    }
  }
};

}  // namespace
}  // namespace warpstep::ref

extern "C" warpstep::Backend* warpstep_backend(const warpstep::BackendOptions&) {
  return new warpstep::ref::Reference;
}
