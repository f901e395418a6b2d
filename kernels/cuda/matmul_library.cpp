// cublasLt as a MatmulLibrary: an algorithm comes from the plan cache, or is the first of
// cublasLt's heuristics that runs, or the fastest by measurement.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/core/error.h"
#include "kernels/cuda/autotune.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/matmul_cublaslt.h"
#include "kernels/cuda/plan_cache.h"

namespace warpstep::cuda {
namespace {

using cublaslt::Algorithm;
using cublaslt::CublasLtPlan;
using cublaslt::Problem;

// The workspace that cublasLt's heuristics are tuned for on Hopper and later; never more.
constexpr std::size_t largest_workspace_bytes = std::size_t{32} << 20;
constexpr int candidates_asked_for = 8;

std::string cublaslt_version() {
  const std::size_t version = cublasLtGetVersion();  // 130100
  return fmt::format("cuBLASLt {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

// How the partial sums of a split product may be added. In d's type only if that is f32, because
// sums are f32; in place only if not deterministic, because the order of additions may vary.
std::uint32_t reduction_schemes(DType dtype, bool deterministic) {
  std::uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  if (dtype == DType::f32) schemes |= CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  if (dtype == DType::f32 && !deterministic) schemes |= CUBLASLT_REDUCTION_SCHEME_INPLACE;
  return schemes;
}

class CublasLtLibrary final : public MatmulLibrary {
 public:
  explicit CublasLtLibrary(const Settings& settings)
      : settings_(settings), cache_(settings, cublaslt_version()) {
    if (settings.has_device()) handle_ = cublaslt::make_handle();
  }

  std::unique_ptr<MatmulPlan> plan(const Matmul& matmul, const std::string& name) override;
  std::string version() const override { return cublaslt_version(); }

 private:
  std::size_t workspace_cap() const {
    return std::min(settings_.workspace_cap, largest_workspace_bytes);
  }
  Algorithm choose(const Matmul& matmul, const std::string& name,
                   const std::shared_ptr<const Problem>& problem);
  std::optional<Algorithm> kept(const Matmul& matmul, const Problem& problem) const;
  std::vector<Algorithm> proposed(const Matmul& matmul, const Problem& problem) const;
  // The fastest of the algorithms with --autotune, else the first that runs, or without memory to
  // try them the first; empty if none does.
  std::optional<Chosen> tried(const Matmul& matmul, const std::string& name,
                              const std::shared_ptr<const Problem>& problem,
                              const std::vector<Algorithm>& algorithms, std::string& why);

  Settings settings_;
  PlanCache cache_;
  std::shared_ptr<cublasLtContext> handle_;  // for all streams: it has no state per call
  std::optional<Stopwatch> stopwatch_;
};

std::unique_ptr<MatmulPlan> CublasLtLibrary::plan(const Matmul& matmul, const std::string& name) {
  const auto problem = std::make_shared<const Problem>(matmul, settings_.tf32);
  Algorithm algorithm{.workspace_bytes = workspace_cap(), .text = "(chosen on the device)"};
  if (settings_.has_device()) algorithm = choose(matmul, name, problem);
  return std::make_unique<CublasLtPlan>(name, problem, std::move(algorithm), handle_);
}

Algorithm CublasLtLibrary::choose(const Matmul& matmul, const std::string& name,
                                  const std::shared_ptr<const Problem>& problem) {
  if (std::optional<Algorithm> algorithm = kept(matmul, *problem)) return *algorithm;

  std::vector<Algorithm> algorithms = proposed(matmul, *problem);
  if (algorithms.empty()) {
    require_sound_device();
    fail<DeviceError>(
        "{}: {} has no algorithm for {} on {} with at most {} bytes of workspace; pitches that "
        "are multiples of 16 bytes are supported best",
        name, cublaslt_version(), matmul.key(), settings_.device_name, workspace_cap());
  }
  std::string why;
  const std::optional<Chosen> best = tried(matmul, name, problem, algorithms, why);
  if (!best)
    fail<DeviceError>("{}: none of the {} algorithms of {} for {} runs on {}: {:.400}", name,
                      algorithms.size(), cublaslt_version(), matmul.key(), settings_.device_name,
                      why);
  Algorithm& algorithm = algorithms[best->candidate];
  if (best->measured) algorithm.text += " (measured)";
  if (best->measured || !settings_.autotune || algorithms.size() == 1)
    cache_.keep(matmul.key(), cublaslt::save(algorithm));
  else
    cache_.keep_unmeasured(matmul.key(), cublaslt::save(algorithm));
  return algorithm;
}

std::optional<Algorithm> CublasLtLibrary::kept(const Matmul& matmul, const Problem& problem) const {
  const std::optional<std::string> saved = cache_.find(matmul.key());
  std::optional<Algorithm> algorithm = saved ? cublaslt::restore(*saved) : std::nullopt;
  if (!algorithm) return std::nullopt;
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status = cublasLtMatmulAlgoCheck(
      handle_.get(), problem.operation.get(), problem.a.get(), problem.b.get(), problem.d.get(),
      problem.d.get(), &algorithm->algorithm, &result);
  if (status != CUBLAS_STATUS_SUCCESS || result.workspaceSize > workspace_cap()) return {};
  algorithm->workspace_bytes = result.workspaceSize;
  return algorithm;
}

std::vector<Algorithm> CublasLtLibrary::proposed(const Matmul& matmul,
                                                 const Problem& problem) const {
  const cublaslt::Preference preference = cublaslt::make_preference();
  cublaslt::set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                std::uint64_t{workspace_cap()});
  cublaslt::set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                reduction_schemes(matmul.dtype, settings_.deterministic));
  for (const auto alignment :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    cublaslt::set(preference, alignment, std::uint32_t{16});
  }
  std::array<cublasLtMatmulHeuristicResult_t, candidates_asked_for> results{};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_.get(), problem.operation.get(), problem.a.get(), problem.b.get(), problem.d.get(),
      problem.d.get(), preference.get(), candidates_asked_for, results.data(), &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
  check(status, "cublasLtMatmulAlgoGetHeuristic");

  std::vector<Algorithm> algorithms;
  for (const auto& result : std::span(results).first(static_cast<std::size_t>(count))) {
    if (result.state != CUBLAS_STATUS_SUCCESS) continue;
    algorithms.push_back({result.algo, result.workspaceSize, cublaslt::describe(result.algo)});
  }
  return algorithms;
}

std::optional<Chosen> CublasLtLibrary::tried(const Matmul& matmul, const std::string& name,
                                             const std::shared_ptr<const Problem>& problem,
                                             const std::vector<Algorithm>& algorithms,
                                             std::string& why) {
  const bool measures = settings_.autotune && algorithms.size() > 1;
  const auto matrix = [&](std::int64_t rows, std::int64_t pitch) {
    const std::size_t bytes = idx(rows * pitch) * size_bytes(matmul.dtype);
    return measures ? random_values(matmul.dtype, bytes) : allocate_device(bytes);
  };
  std::shared_ptr<std::byte> a, b, d, bias, aux, workspace;
  try {
    a = matrix(matmul.transpose_a ? matmul.depth : matmul.rows, matmul.pitch_a);
    b = matrix(matmul.transpose_b ? matmul.columns : matmul.depth, matmul.pitch_b);
    d = matrix(matmul.rows, matmul.pitch_d);
    if (matmul.has_bias()) bias = matrix(1, std::max(matmul.rows, matmul.columns));
    if (matmul.has_aux()) aux = allocate_device(matmul.aux_bytes());
    workspace = allocate_device(workspace_cap());
  } catch (const OutOfDeviceMemory&) {
    return Chosen{};  // no memory to try them: a step that fits shares its memory among its calls
  }
  const MatmulBuffers buffers{a.get(), b.get(), d.get(), bias.get(), aux.get()};

  std::vector<Enqueue> candidates;
  for (const Algorithm& algorithm : algorithms) {
    const auto plan = std::make_shared<CublasLtPlan>(name, problem, algorithm, handle_);
    candidates.emplace_back([plan, &buffers, &workspace](CudaStream& stream) {
      plan->execute(stream, buffers, workspace.get());
    });
  }
  if (!stopwatch_) stopwatch_.emplace();
  return fastest_or_first(*stopwatch_, candidates, measures, why);
}

}  // namespace

std::unique_ptr<MatmulLibrary> open_matmul_library(const Settings& settings) {
  return std::make_unique<CublasLtLibrary>(settings);
}

}  // namespace warpstep::cuda
