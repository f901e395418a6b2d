// cublasLt as a MatmulLibrary: an algorithm comes from the plan cache, or is the first of
// cublasLt's heuristics that runs, or the fastest by measurement.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/core/error.h"
#include "kernels/cuda/algorithm_choice.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/matmul_cublaslt.h"

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

class CublasLtOffer final : public Offer {
 public:
  CublasLtOffer(const Matmul& matmul, const std::string& name,
                std::shared_ptr<const Problem> problem, std::shared_ptr<cublasLtContext> handle,
                const Settings& settings, std::size_t workspace_cap)
      : matmul_(matmul),
        name_(name),
        problem_(std::move(problem)),
        handle_(std::move(handle)),
        is_deterministic_(settings.deterministic),
        workspace_cap_(workspace_cap) {}

  std::string key() const override { return matmul_.key(); }
  bool restore(const std::string& saved) override;
  std::size_t propose() override;
  std::string save(std::size_t candidate, bool measured) const override {
    return cublaslt::save(named(candidate, measured));
  }
  void allocate(bool random) override;
  Enqueue enqueue(std::size_t candidate) override;

  Algorithm named(std::size_t candidate, bool measured) const {
    Algorithm algorithm = algorithms_.at(candidate);
    if (measured) algorithm.text += " (measured)";
    return algorithm;
  }

 private:
  const Matmul& matmul_;
  const std::string& name_;
  std::shared_ptr<const Problem> problem_;
  std::shared_ptr<cublasLtContext> handle_;
  bool is_deterministic_;
  std::size_t workspace_cap_;
  std::vector<Algorithm> algorithms_;
  std::vector<std::shared_ptr<std::byte>> owned_;
  MatmulBuffers buffers_;
  std::byte* workspace_ = nullptr;
};

bool CublasLtOffer::restore(const std::string& saved) {
  std::optional<Algorithm> algorithm = cublaslt::restore(saved);
  if (!algorithm) return false;
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status = cublasLtMatmulAlgoCheck(
      handle_.get(), problem_->operation.get(), problem_->a.get(), problem_->b.get(),
      problem_->d.get(), problem_->d.get(), &algorithm->algorithm, &result);
  if (status != CUBLAS_STATUS_SUCCESS || result.workspaceSize > workspace_cap_) return false;
  algorithm->workspace_bytes = result.workspaceSize;
  algorithms_ = {std::move(*algorithm)};
  return true;
}

std::size_t CublasLtOffer::propose() {
  algorithms_.clear();
  const cublaslt::Preference preference = cublaslt::make_preference();
  cublaslt::set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                std::uint64_t{workspace_cap_});
  cublaslt::set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                reduction_schemes(matmul_.dtype, is_deterministic_));
  for (const auto alignment :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    cublaslt::set(preference, alignment, std::uint32_t{16});
  }
  std::array<cublasLtMatmulHeuristicResult_t, candidates_asked_for> results{};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_.get(), problem_->operation.get(), problem_->a.get(), problem_->b.get(),
      problem_->d.get(), problem_->d.get(), preference.get(), candidates_asked_for, results.data(),
      &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return 0;
  check(status, "cublasLtMatmulAlgoGetHeuristic");
  for (const auto& result : std::span(results).first(static_cast<std::size_t>(count))) {
    if (result.state != CUBLAS_STATUS_SUCCESS) continue;
    algorithms_.push_back({result.algo, result.workspaceSize, cublaslt::describe(result.algo)});
  }
  return algorithms_.size();
}

void CublasLtOffer::allocate(bool random) {
  owned_.clear();
  const auto keep = [&](std::shared_ptr<std::byte> memory) {
    owned_.push_back(std::move(memory));
    return owned_.back().get();
  };
  const auto matrix = [&](std::int64_t rows, std::int64_t pitch) {
    const std::size_t bytes = idx(rows * pitch) * size_bytes(matmul_.dtype);
    return keep(random ? random_values(matmul_.dtype, bytes) : allocate_device(bytes));
  };
  buffers_ = {.a = matrix(matmul_.transpose_a ? matmul_.depth : matmul_.rows, matmul_.pitch_a),
              .b = matrix(matmul_.transpose_b ? matmul_.columns : matmul_.depth, matmul_.pitch_b),
              .d = matrix(matmul_.rows, matmul_.pitch_d)};
  if (matmul_.has_bias()) buffers_.bias = matrix(1, std::max(matmul_.rows, matmul_.columns));
  if (matmul_.has_aux()) buffers_.aux = keep(allocate_device(matmul_.aux_bytes()));
  workspace_ = keep(allocate_device(workspace_cap_));
}

Enqueue CublasLtOffer::enqueue(std::size_t candidate) {
  const auto plan =
      std::make_shared<CublasLtPlan>(name_, problem_, algorithms_.at(candidate), handle_);
  return [plan, this](CudaStream& stream) { plan->execute(stream, buffers_, workspace_); };
}

class CublasLtLibrary final : public MatmulLibrary {
 public:
  explicit CublasLtLibrary(const Settings& settings)
      : settings_(settings), choice_(settings, cublaslt_version()) {
    if (settings.has_device()) handle_ = cublaslt::make_handle();
  }

  std::unique_ptr<MatmulPlan> plan(const Matmul& matmul, const std::string& name) override;
  void only_plan(bool on) override { choice_.only_plan(on); }
  std::string version() const override { return cublaslt_version(); }

 private:
  std::size_t workspace_cap() const {
    return std::min(settings_.workspace_cap, largest_workspace_bytes);
  }
  Algorithm choose(const Matmul& matmul, const std::string& name,
                   const std::shared_ptr<const Problem>& problem);

  Settings settings_;
  AlgorithmChoice choice_;
  std::shared_ptr<cublasLtContext> handle_;  // for all streams: it has no state per call
};

std::unique_ptr<MatmulPlan> CublasLtLibrary::plan(const Matmul& matmul, const std::string& name) {
  const auto problem = std::make_shared<const Problem>(matmul, settings_.tf32);
  Algorithm algorithm{.workspace_bytes = workspace_cap(), .text = "(chosen on the device)"};
  if (settings_.has_device()) algorithm = choose(matmul, name, problem);
  return std::make_unique<CublasLtPlan>(name, problem, std::move(algorithm), handle_);
}

Algorithm CublasLtLibrary::choose(const Matmul& matmul, const std::string& name,
                                  const std::shared_ptr<const Problem>& problem) {
  CublasLtOffer offer(matmul, name, problem, handle_, settings_, workspace_cap());
  std::string why;
  if (const std::optional<Chosen> best = choice_.choose(offer, why))
    return offer.named(best->candidate, best->measured);
  require_sound_device();
  if (why.empty())
    fail<DeviceError>(
        "{}: {} has no algorithm for {} on {} with at most {} bytes of workspace; pitches that "
        "are multiples of 16 bytes are supported best",
        name, cublaslt_version(), matmul.key(), settings_.device_name, workspace_cap());
  fail<DeviceError>("{}: none of the algorithms of {} for {} runs on {}: {:.400}", name,
                    cublaslt_version(), matmul.key(), settings_.device_name, why);
}

}  // namespace

std::unique_ptr<MatmulLibrary> open_matmul_library(const Settings& settings) {
  return std::make_unique<CublasLtLibrary>(settings);
}

}  // namespace warpstep::cuda
