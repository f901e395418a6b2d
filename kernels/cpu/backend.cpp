// The CPU backend as the engine sees it: instruction sets, layouts, binding, memory in huge pages.
#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include "engine/core/cpu_isa.h"
#include "engine/core/error.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/team.h"

namespace warpstep::cpu {
namespace {

constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;

// oneDNN's weight gradients give the bias's in the same pass, and it knows no masks; nor does it
// know anything of norms while it convolves.
constexpr std::array<std::string_view, 6> unwanted{
    fusion::dgrad_bias, fusion::linear_dgrad_relu, fusion::conv_statistics,
    fusion::norm_conv,  fusion::join_conv,         fusion::dgrad_norm_dgrad};

std::string_view isa_name(dnnl::cpu_isa isa) {
  if (isa == dnnl::cpu_isa::avx512_core_amx) return "AVX-512 with AMX";
  if (isa == dnnl::cpu_isa::avx512_core_bf16) return "AVX-512 with bf16";
  if (isa == dnnl::cpu_isa::avx512_core_vnni) return "AVX-512 with VNNI";
  if (isa == dnnl::cpu_isa::avx512_core) return "AVX-512";
  if (isa == dnnl::cpu_isa::avx2 || isa == dnnl::cpu_isa::avx2_vnni) return "AVX2";
  if (isa == dnnl::cpu_isa::avx) return "AVX";
  return "SSE4.1";
}

// oneDNN accepts a limit once, before its first primitive; DNNL_MAX_CPU_ISA limits only oneDNN.
void limit_onednn() {
  const std::optional<CpuIsa> limit = cpu_isa_limit();
  if (limit == CpuIsa::avx2) dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2);
  if (limit == CpuIsa::sse41) dnnl_set_max_cpu_isa(dnnl_cpu_isa_sse41);
}

// The instruction sets in use: oneDNN's and our loops' differ where only one of them is limited.
std::string isa_text() {
  const std::string_view library = isa_name(dnnl::get_effective_cpu_isa());
  std::string text = library.starts_with(name(cpu_isa()))
                         ? std::string(library)
                         : fmt::format("{}, own loops {}", library, name(cpu_isa()));
  if (cpu_isa() < best_cpu_isa())
    text += fmt::format(" by WARPSTEP_CPU_ISA, of {}", name(best_cpu_isa()));
  return text;
}

// Checked before oneDNN is asked: its own answer would only be that it has no fast kernel.
void require_f32(const Graph& graph, const Node& node) {
  for (const auto* ids : {&node.in, &node.out})
    for (const int id : *ids)
      if (const DType dtype = graph.value(id).type.dtype; is_float(dtype) && dtype != DType::f32)
        fail<DeviceError>("cpu: {} is {}; the CPU backend computes in fp32, use --precision fp32",
                          node.title(), warpstep::name(dtype));
}

// Channels per block of oneDNN's fast layout: one vector register of our loops.
std::int64_t block_of(std::string_view library) {
  if (library.starts_with("AVX-512") && cpu_isa() == CpuIsa::avx512) return 16;
  return library == "AVX2" && cpu_isa() >= CpuIsa::avx2 ? 8 : 0;
}

class Cpu final : public Backend {
 public:
  explicit Cpu(const BackendOptions& options) {
    context_.exact_math = options.exact_math;
    context_.block = block_of(isa_name(dnnl::get_effective_cpu_isa()));
    // oneDNN divides its work when a primitive is created, so the number of threads is set once,
    // before the first one.
    if (options.threads > 0) omp_set_num_threads(options.threads);
  }

  std::string_view name() const override { return "cpu"; }

  std::string describe() const override {
    const dnnl_version_t* v = dnnl::version();
    return fmt::format("oneDNN {}.{}.{} ({}), {} thread{}", v->major, v->minor, v->patch,
                       isa_text(), omp_get_max_threads(), omp_get_max_threads() == 1 ? "" : "s");
  }

  void choose_layouts(Graph& graph) const override {
    for (const Node& node : graph.nodes) require_f32(graph, node);
    cpu::choose_layouts(graph, context_);
  }

  std::unique_ptr<Kernel> bind(const Graph& graph, const Node& node) const override {
    require_room();
    const Operands operands{{graph, node}, context_};
    return bind_node(node, [&](const auto& op) { return cpu::bind(op, operands); });
  }

  bool wants(std::string_view fusion) const override {
    return std::find(unwanted.begin(), unwanted.end(), fusion) == unwanted.end();
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
    return std::make_unique<CpuStream>(context_.engine);
  }

  void write(const Value& value, void* stored, std::span<const std::byte> plain) const override {
    copy(value, plain_descriptor(value.type), const_cast<std::byte*>(plain.data()),
         descriptor(value), stored, plain.size());
  }

  void read(const Value& value, const void* stored, std::span<std::byte> plain) const override {
    copy(value, descriptor(value), const_cast<void*>(stored), plain_descriptor(value.type),
         plain.data(), plain.size());
  }

 private:
  void copy(const Value& value, const dnnl::memory::desc& from, void* source,
            const dnnl::memory::desc& to, void* target, std::size_t plain_bytes) const {
    if (value.layout.tag.empty()) {
      std::memcpy(target, source, plain_bytes);
      return;
    }
    require_room();
    const auto [source_md, target_md] = with_equal_dimensions(from, to);
    dnnl::memory in(source_md, context_.engine, source), out(target_md, context_.engine, target);
    CpuStream stream(context_.engine);
    dnnl::reorder(in, out).execute(stream.stream, in, out);
    stream.wait();
  }

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
  warpstep::cpu::limit_onednn();  // throws before oneDNN has an engine
  return new warpstep::cpu::Cpu(options);
}
