// The CPU backend as the engine sees it: instruction sets, binding, memory in huge pages.
#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/core/cpu_isa.h"
#include "engine/core/error.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/team.h"

namespace warpstep::cpu {
namespace {

constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;

// A weight gradient gives the bias's, too; the other rows pay where a value that was just written
// is no longer in a cache.
constexpr std::array<std::string_view, 6> unwanted{
    fusion::dgrad_bias, fusion::linear_dgrad_relu, fusion::conv_statistics,
    fusion::norm_conv,  fusion::join_conv,         fusion::dgrad_norm_dgrad};

std::string isa_text() {
  std::string text{warpstep::name(cpu_isa())};
  if (cpu_isa() < best_cpu_isa())
    text += fmt::format(" by WARPSTEP_CPU_ISA, of {}", warpstep::name(best_cpu_isa()));
  return text;
}

void require_f32(const Graph& graph, const Node& node) {
  for (const auto* ids : {&node.in, &node.out})
    for (const int id : *ids)
      if (const DType dtype = graph.value(id).type.dtype; is_float(dtype) && dtype != DType::f32)
        fail<DeviceError>("cpu: {} is {}; the CPU backend computes in fp32, use --precision fp32",
                          node.title(), warpstep::name(dtype));
}

class CpuStream final : public Stream {
 public:
  void wait() override {}  // a kernel has finished when enqueue() returns
};

class Cpu final : public Backend {
 public:
  explicit Cpu(const BackendOptions& options) {
    context_.exact_math = options.exact_math;
    // Kernels divide their work when they are bound, so the number of threads is set once.
    if (options.threads > 0) omp_set_num_threads(options.threads);
  }

  std::string_view name() const override { return "cpu"; }

  std::string describe() const override {
    return fmt::format("{}, {} thread{}", isa_text(), omp_get_max_threads(),
                       omp_get_max_threads() == 1 ? "" : "s");
  }

  void choose_layouts(Graph& graph) const override {
    for (const Node& node : graph.nodes) require_f32(graph, node);
    for (Value& value : graph.values)
      value.layout = {.tag = "", .bytes = value.type.bytes(), .native = nullptr};
  }

  std::unique_ptr<Kernel> bind(const Graph& graph, const Node& node) const override {
    const Operands operands{{graph, node}, context_};
    return bind_node(node, [&](const auto& op) { return cpu::bind(op, operands); });
  }

  bool wants(std::string_view fusion) const override {
    return std::find(unwanted.begin(), unwanted.end(), fusion) == unwanted.end();
  }

  bool computes(const AnyOp& op, const Types& in) const override {
    const auto* conv = std::get_if<Conv>(&op);
    return conv && computes_pooled(*conv, in[0].shape, context_);
  }

  std::shared_ptr<std::byte> allocate(std::size_t bytes) const override {
    const std::size_t rounded =
        (std::max<std::size_t>(bytes, 1) + huge_page_bytes - 1) / huge_page_bytes * huge_page_bytes;
    void* memory = mmap(nullptr, rounded + huge_page_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
      fail<DeviceError>("cpu: cannot allocate {:.1f} MiB of memory; use a smaller --batch",
                        static_cast<double>(bytes) / (1 << 20));
    // Huge pages save a step thousands of page-table walks; without them small pages work, too.
    auto* aligned = reinterpret_cast<std::byte*>(
        (reinterpret_cast<std::uintptr_t>(memory) + huge_page_bytes - 1) / huge_page_bytes *
        huge_page_bytes);
    if (bytes >= huge_page_bytes) madvise(aligned, rounded, MADV_HUGEPAGE);
    return {aligned, [memory, rounded](std::byte*) { munmap(memory, rounded + huge_page_bytes); }};
  }

  void begin_step() const override { flush_denormals(); }
  void end_step() const override { restore_denormals(); }

  std::unique_ptr<Stream> make_stream() const override {
    settle_team();
    return std::make_unique<CpuStream>();
  }

  void write(const Value&, void* stored, std::span<const std::byte> plain) const override {
    std::memcpy(stored, plain.data(), plain.size());
  }

  void read(const Value&, const void* stored, std::span<std::byte> plain) const override {
    std::memcpy(plain.data(), stored, plain.size());
  }

 private:
  Context context_;
};

}  // namespace

void refuse_fusion(const Operands& operands, std::string_view fusion) {
  fail<Error>(
      "cpu: {} ({}) was made by the fusion {}, which the CPU backend does not support; compile the "
      "step with options_for() of the backend, or with --no-fuse '{}'",
      operands.node.title(), text(operands.node.op), fusion, fusion);
}

}  // namespace warpstep::cpu

extern "C" warpstep::Backend* warpstep_backend(const warpstep::BackendOptions& options) {
  warpstep::cpu_isa_limit();  // throws if it is invalid
  return new warpstep::cpu::Cpu(options);
}
