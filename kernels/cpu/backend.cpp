// The CPU backend as the engine sees it: instruction sets, binding, memory in huge pages.
#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "engine/core/bf16.h"
#include "engine/core/cpu_isa.h"
#include "engine/core/cpus.h"
#include "engine/core/error.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/team.h"

namespace warpstep::cpu {
namespace {

constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;

// A weight gradient gives the bias's, too; the other rows pay where a value that was just written
// is no longer in a cache.
constexpr std::array<std::string_view, 10> unwanted{
    fusion::dgrad_bias,        fusion::linear_dgrad_relu, fusion::linear_gelu,
    fusion::linear_dgrad_gelu, fusion::conv_statistics,   fusion::norm_conv,
    fusion::join_conv,         fusion::dgrad_norm_dgrad,  fusion::norm_dgrad_norm_dgrad,
    fusion::norm_pool};

void require_dtype(const Node& node, DType dtype) {
  if (!is_float(dtype) || dtype == DType::f32) return;
  if (dtype != DType::bf16)
    fail<DeviceError>(
        "cpu: {} is {}; the CPU backend computes in fp32 and, with AVX512_BF16 or "
        "AMX, in bf16; use --precision fp32 or bf16",
        node.title(), warpstep::name(dtype));
  if (bf16_isa() == Bf16Isa::none)
    fail<DeviceError>(
        "cpu: {} is bf16, which needs the instructions AVX512_BF16 or AMX, and neither "
        "can be used here ({}); use --precision fp32",
        node.title(), cpu_isa_text());
}

void require_dtypes(const Graph& graph, const Node& node) {
  for (const auto* ids : {&node.in, &node.out})
    for (const int id : *ids)
      if (const Value& value = graph.value(id); value.role != Role::moment)  // widened by any CPU
        require_dtype(node, value.type.dtype);
}

// Before anything changes it: OpenMP's number, which takes OMP_NUM_THREADS and the affinity mask.
const int openmp_threads = omp_get_max_threads();

// OpenMP's own default does not know the quota of a control group.
int threads_of(const BackendOptions& options) {
  int threads = openmp_threads;
  if (options.threads > 0)
    threads = options.threads;
  else if (std::getenv("OMP_NUM_THREADS") == nullptr)
    threads = std::min(threads, allowed_cores());
  return std::min(threads, omp_get_thread_limit());
}

class CpuStream final : public Stream {
 public:
  void wait() override {}  // a kernel has finished when enqueue() returns
};

class Cpu final : public Backend {
 public:
  explicit Cpu(const BackendOptions& options) : threads_(threads_of(options)) {
    context_.exact_math = options.exact_math;
    context_.communicator = options.communicator;
  }

  std::string_view name() const override { return "cpu"; }

  std::string describe() const override {
    return fmt::format("{}, {} thread{}", cpu_isa_text(), threads_, threads_ == 1 ? "" : "s");
  }

  int threads() const override { return threads_; }

  void choose_layouts(Graph& graph) const override {
    for (const Node& node : graph.nodes) require_dtypes(graph, node);
    for (Value& value : graph.values)
      value.layout = {.tag = "", .bytes = value.type.bytes(), .native = nullptr};
  }

  std::unique_ptr<Kernel> bind(const Graph& graph, const Node& node) const override {
    const TeamSize team(threads_);  // among which kernels divide their work
    const Operands operands{{graph, node}, context_};
    return bind_node(node, [&](const auto& op) { return cpu::bind(op, operands); });
  }

  bool wants(std::string_view fusion) const override {
    return std::find(unwanted.begin(), unwanted.end(), fusion) == unwanted.end();
  }

  bool computes(const AnyOp& op, const Types& in) const override {
    const auto* conv = std::get_if<Conv>(&op);
    return conv && computes_pooled(*conv, in[0], context_);
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
    void* aligned = memory;
    std::size_t room = rounded + huge_page_bytes;
    std::align(huge_page_bytes, rounded, aligned, room);
    if (bytes >= huge_page_bytes) madvise(aligned, rounded, MADV_HUGEPAGE);
    return {static_cast<std::byte*>(aligned),
            [memory, rounded](std::byte*) { munmap(memory, rounded + huge_page_bytes); }};
  }

  void begin_step() const override { cpu::begin_step(threads_); }
  void end_step() const override { cpu::end_step(); }

  std::unique_ptr<Stream> make_stream(Precedence) const override {
    settle_team(threads_);
    return std::make_unique<CpuStream>();
  }

  void write(const Value& value, void* stored, std::span<const std::byte> plain) const override {
    if (value.type.dtype != DType::bf16) {
      if (!plain.empty()) std::memcpy(stored, plain.data(), plain.size());
      return;
    }
    for (std::size_t i = 0; i < plain.size() / sizeof(float); ++i) {
      float number = 0;
      std::memcpy(&number, plain.data() + i * sizeof number, sizeof number);
      static_cast<Bf16*>(stored)[i] = narrowed(number);
    }
  }

  void read(const Value& value, const void* stored, std::span<std::byte> plain) const override {
    if (value.type.dtype != DType::bf16) {
      if (!plain.empty()) std::memcpy(plain.data(), stored, plain.size());
      return;
    }
    for (std::size_t i = 0; i < plain.size() / sizeof(float); ++i) {
      const float number = widened(static_cast<const Bf16*>(stored)[i]);
      std::memcpy(plain.data() + i * sizeof number, &number, sizeof number);
    }
  }

 private:
  const int threads_;
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
  if (options.tf32)
    warpstep::fail<warpstep::DeviceError>(
        "cpu: tf32 is a format of GPUs; use --precision fp32, or bf16 where the CPU has it");
  return new warpstep::cpu::Cpu(options);
}
