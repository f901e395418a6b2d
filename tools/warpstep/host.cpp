#include "tools/warpstep/host.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "engine/core/clock.h"
#include "engine/core/control_group.h"
#include "engine/core/cpu_isa.h"
#include "engine/graph/layers.h"
#include "engine/passes/compile.h"
#include "engine/run/runner.h"
#include "profiler/sources/sampler_proc.h"
#include "profiler/sources/stamp.h"
#include "tools/warpstep/fitting.h"
#include "tools/warpstep/peaks.h"

namespace warpstep::tools {
namespace {

constexpr int steady_runs = 8;  // without a shorter time: end
constexpr int most_runs = 40;

// The shortest time of a step, measured until it no longer gets shorter.
double best_seconds(Graph graph, const std::shared_ptr<Backend>& backend,
                    const std::string& precision) {
  const StepOptions options = options_for(
      *backend, {.training = false, .precision = parse_precision(precision), .no_fuse = {}});
  Program program(compile_step(std::move(graph), options), backend);
  program.store().initialize(0);
  // The reference computes in double.
  const Graph& bound = program.graph();
  const auto input = backend->allocate(bound.value(bound.inputs[0]).layout.bytes);
  const void* const slot = input.get();
  program.set_inputs(std::span(&slot, 1));
  const auto runner = eager_runner(program);
  double best = 0;
  int since_best = 0;
  for (int i = 0; i <= most_runs && since_best < steady_runs; ++i) {
    const std::uint64_t begin = now_ns();
    runner->step();
    program.wait();
    const double seconds = static_cast<double>(now_ns() - begin) * 1e-9;
    if (i == 0) continue;  // the first run loads and tunes
    since_best = best > 0 && seconds > 0.98 * best ? since_best + 1 : 0;
    best = best > 0 ? std::min(best, seconds) : seconds;
  }
  return best;
}

}  // namespace

Json measure_peaks(const std::shared_ptr<Backend>& backend, const std::string& precision) {
  // Large enough to fill the device, and takes some ten milliseconds.
  const bool is_device = backend->steps_in_flight() > 0;
  const PeakSizes sizes = is_device ? PeakSizes{.product = 8192, .stream = std::int64_t{1} << 28}
                                    : host_peak_sizes(free_bytes(*backend));
  const std::int64_t n = sizes.product, count = sizes.stream;
  Json peaks = Json::object();
  try {
    if (n > 0) {
      Graph product;
      const Tensor x = product.input("x", {DType::f32, {n, n}}, Role::resident);
      product.logits = linear("peak", x, {.out = n}).id;
      const double seconds = best_seconds(std::move(product), backend, precision);
      const double side = static_cast<double>(n);
      peaks["flops_per_second"] = {{precision, 2.0 * side * side * side / seconds}};
      peaks["how"] = fmt::format("a {0} x {0} matrix product in {1}", n, precision);
    }
    if (n > 0 && count > 0) {
      Graph stream;
      const Tensor y = stream.input("y", {DType::f32, {count / 1024, 1024}}, Role::resident);
      stream.logits = relu(y).id;
      const double seconds = best_seconds(std::move(stream), backend, "fp32");
      peaks["bytes_per_second"] = 8.0 * static_cast<double>(count) / seconds;
      peaks["how"] = fmt::format(
          "a {0} x {0} matrix product in {1} and a relu of {2} MiB, the best of several runs", n,
          precision, count >> 18);
    }
    return peaks;
  } catch (const std::exception&) {
    return Json::object();  // a device without the memory: no roofline
  }
}

namespace {

using profiler::value_of;

std::string text_of(const char* path) {
  return profiler::read_text(path).value_or("");
}

std::string vector_instructions(const std::string& cpuinfo) {
  const std::string flags =
      fmt::format(" {} {} ", value_of(cpuinfo, "flags", ':'), value_of(cpuinfo, "Features", ':'));
  constexpr std::array known{"amx_bf16", "avx512_bf16", "avx512f", "avx2",
                             "avx",      "sse4_2",      "sve",     "asimd"};
  for (const std::string_view flag : known)
    if (flags.find(fmt::format(" {} ", flag)) != std::string::npos) return std::string(flag);
  return "unknown";
}

std::string or_unknown(std::string text) {
  if (text.empty()) return "unknown";
  return text;
}

}  // namespace

std::vector<profiler::GpuPlace> gpu_of(const Backend& backend) {
  const std::optional<Accelerator> device = backend.accelerator();
  if (!device) return {};
  return {{static_cast<unsigned>(device->ordinal), device->bus}};
}

Json machine_record(const CpuSet& allowed, const std::vector<profiler::GpuPlace>& gpus) {
  Json record = profiler::machine_stamp("/", allowed.empty() ? "" : text_of_cpus(allowed), gpus);
  record["cpu"]["instruction_set"] = cpu_isa_text();
  if (auto openmp = profiler::openmp_stamp(); !openmp.empty()) record["openmp"] = std::move(openmp);
  return record;
}

Host host() {
  Host result;
  utsname names{};
  if (uname(&names) == 0) result.name = names.nodename;
  result.system = or_unknown(value_of(text_of("/etc/os-release"), "PRETTY_NAME", '='));
  if (names.release[0] != 0) result.system += std::string(", Linux ") + names.release;
  const std::string cpuinfo = text_of("/proc/cpuinfo");
  result.cpu = or_unknown(profiler::cpu_model(cpuinfo));
  result.vector_instructions = vector_instructions(cpuinfo);
  result.cores_of_machine = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  result.cores = allowed_cores();
  const std::string total = value_of(text_of("/proc/meminfo"), "MemTotal", ':');  // "16384 kB"
  std::string_view fields = total;
  result.memory_of_machine_bytes =
      profiler::parse_number(profiler::next_field(fields)).value_or(0) * 1024;
  result.memory_bytes =
      std::min(result.memory_of_machine_bytes, memory_limit().value_or(UINT64_MAX));
  return result;
}

}  // namespace warpstep::tools
