// A Matmul in cublasLt's terms, and its plan.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/matmul.h"

namespace warpstep::cuda::cublaslt {

// cublasLt counts columns first: what it calls a matrix of m rows and n columns lies in memory as
// our n rows of m. So it is asked for the transpose, d' = op(b)' op(a)', whose factors and result
// are our matrices as they lie in memory, with nothing moved:
//
//   its A = our b, m = columns      its B = our a, n = rows      its D = our d      k = depth
//
// A row-major b [depth,columns] is its m x k matrix as it is (no transposition); one stored
// [columns,depth] is k x m, and it has to transpose. Likewise a. What belongs to its rows of D (a
// bias, a bias gradient, leading dimensions) belongs to our columns.
struct Problem {
  Problem(const Matmul& matmul, bool tf32);

  Operation operation;
  Layout a, b, d;  // in its terms
};

struct Algorithm {
  cublasLtMatmulAlgo_t algorithm{};
  std::size_t workspace_bytes = 0;
  std::string text;  // "algo 66 tile 20 stages 35 split-k 2"
};
std::string describe(const cublasLtMatmulAlgo_t& algorithm);

// As text for a cache, and back; valid for one version of cublasLt.
std::string save(const Algorithm& algorithm);
std::optional<Algorithm> restore(std::string_view saved);

// One thread at a time executes a plan: the addresses of bias and aux are set in its operation.
class CublasLtPlan final : public MatmulPlan {
 public:
  CublasLtPlan(std::string name, std::shared_ptr<const Problem> problem, Algorithm algorithm,
               std::shared_ptr<cublasLtContext> handle);

  const Algorithm& algorithm() const { return algorithm_; }
  std::size_t workspace_bytes() const override { return algorithm_.workspace_bytes; }
  std::string implementation() const override { return "cublasLt " + algorithm_.text; }
  void execute(CudaStream& stream, const MatmulBuffers& buffers, void* workspace) const override;

 private:
  std::string name_;
  std::shared_ptr<const Problem> problem_;
  Algorithm algorithm_;
  std::shared_ptr<cublasLtContext> handle_;  // null without a device
};

}  // namespace warpstep::cuda::cublaslt
