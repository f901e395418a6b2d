// Every case on a backend (tests/tested_backend.h) against the reference, with the computed
// tolerance; the same bits from run to run, and with every dead buffer poisoned.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "engine/core/error.h"
#include "engine/passes/fuse.h"
#include "engine/passes/precision.h"
#include "tests/tested_backend.h"
#include "tests/tolerance.h"
#include "tests/trial.h"

namespace warpstep {
namespace simt {
// Of the emulated device, where the program has one.
[[gnu::weak]] void set_schedule(std::uint64_t seed);
}  // namespace simt
namespace testing_support {
// Of Warpstep's own ops (tests/random_cases.cpp).
[[gnu::weak]] std::vector<cases::Case> random_cases(std::uint32_t count);
}  // namespace testing_support

namespace {

using testing_support::relative_difference;
using testing_support::Result;
using testing_support::tolerance;
using testing_support::Trial;

// Cases whose numbers, or whose ties after rounding, are meaningless in so few bits.
bool is_for_f32_alone(const cases::Case& c) {
  return c.name.find("1e3") != std::string::npos || c.name.find("1e4") != std::string::npos ||
         c.name.find("1e-6") != std::string::npos || c.name.find("after conv") != std::string::npos;
}

// Nodes of fusions that options_for() disables on this backend.
bool is_declined(const cases::Case& c) {
  if (c.fusion.empty()) return false;
  try {
    static const auto backend =
        testing_support::open_tested_backend(testing_support::tested_backend());
    return !backend->wants(c.fusion);
  } catch (const DeviceError&) {
    return false;  // every test is skipped, with the reason
  }
}

// Nodes of fusions that the library has no engine for, in this precision; if `deterministic`, none
// that gives the same bits every time.
template <bool deterministic>
bool is_refused(const cases::Case& c) {
  if (testing_support::tested_backend() == "ref") return false;
  try {
    static const auto backend = testing_support::open_tested_backend(
        testing_support::tested_backend(), {.deterministic = deterministic});
    return testing_support::lacks_engine(c, *backend);
  } catch (const DeviceError&) {
    return false;  // every test is skipped, with the reason
  }
}

// Random ones for backends that choose their kernels by extents; the device's libraries take many
// of those alone.
std::uint32_t random_count() {
  if (testing_support::tested_backend() == "cpu") return 400;
  return testing_support::tested_backend() == "cuda_emulated" ? 150 : 0;
}

std::vector<cases::Case> in_f32() {
  std::vector<cases::Case> all = cases::all();
  if (testing_support::random_cases != nullptr)
    for (cases::Case& c : testing_support::random_cases(random_count()))
      all.push_back(std::move(c));
  std::erase_if(all, [](const cases::Case& c) { return c.heavy || is_declined(c); });
  for (cases::Case& c : all)
    if (cases::has_adjoint(c)) c = cases::with_adjoint(std::move(c));
  return all;
}

std::vector<cases::Case> everything() {
  std::vector<cases::Case> all = in_f32();
  const std::vector<cases::Case> f32 = all;
  for (const Precision precision : testing_support::tested_16_bits())
    for (const cases::Case& c : f32) {
      if (is_for_f32_alone(c)) continue;
      all.push_back(c);
      all.back().name += fmt::format(" in {}", name(precision));
      all.back().graph = apply_precision(c.graph, precision);
    }
  std::erase_if(all, is_refused<false>);
  return all;
}

std::vector<cases::Case> repeatable() {
  std::vector<cases::Case> all = everything();
  std::erase_if(all, is_refused<true>);
  // On the emulated grid bf16 takes the time of fp16, in the same templates and the same order.
  if (testing_support::tested_backend() == "cuda_emulated")
    std::erase_if(all, [](const cases::Case& c) { return c.name.ends_with(" in bf16"); });
  return all;
}

// Cases with a relu or a maximum, with NaN in their operands. Of cuDNN and cublasLt, which may make
// 0 of it, the device tests nothing, and the emulated ones keep it but for their masks.
std::vector<cases::Case> with_nan() {
  std::vector<cases::Case> all = everything();
  std::erase_if(all, [](const cases::Case& c) {
    const auto has = [&](std::string_view part) { return c.name.find(part) != std::string::npos; };
    const bool of_libraries = has("conv/") || has("linear/");
    if (testing_support::tested_backend() == "cuda" && of_libraries) return true;
    if (testing_support::tests_cuda() && (has("norm_conv/") || has("with a mask"))) return true;
    // Of windows in which a transform has spread NaN, another place passes the gradient on.
    if (has(", pool, seed ")) return true;
    return !(has("relu") || has("pool/") || has(" pool")) || has("average");
  });
  for (cases::Case& c : all)
    for (const int id : c.graph.inputs)
      if (is_float(c.graph.value(id).type.dtype)) c.fills[id].nan = true;
  return all;
}

// Cases with products, which only tf32 changes: their graphs are those of fp32. The emulated
// libraries have no tf32.
std::vector<cases::Case> products() {
  std::vector<cases::Case> all;
  if (testing_support::tested_backend() == "cuda") all = in_f32();
  std::erase_if(all, [](const cases::Case& c) {
    return !(c.name.starts_with("conv/") || c.name.starts_with("linear/")) || is_for_f32_alone(c);
  });
  std::erase_if(all, is_refused<false>);
  return all;
}

class OnBackend : public testing::TestWithParam<cases::Case> {
 protected:
  // Skips if there is no device, or none with this precision.
  void open(Precision precision, const BackendOptions& options) {
    try {
      backend_ = testing_support::open_tested_backend(testing_support::tested_backend(), options);
    } catch (const DeviceError& error) {
      GTEST_SKIP() << error.what();
    }
    const std::string missing = testing_support::why_not(*backend_, precision);
    if (!missing.empty()) GTEST_SKIP() << missing;
  }
  void expect_agreement(double operands) const;

  std::shared_ptr<Backend> backend_;
};

Precision precision_of(const cases::Case& c) {
  return c.name.ends_with(" in bf16") ? Precision::bf16 : Precision::fp32;
}

class Op : public OnBackend {
 protected:
  void SetUp() override { open(precision_of(GetParam()), {}); }
};

// Two runs are compared bit for bit: no algorithm that adds in another order each time. The blocks,
// warps and lanes of the emulated device take turns in another order in each.
class DeterministicOp : public OnBackend {
 protected:
  void SetUp() override {
    open(precision_of(GetParam()), {.deterministic = true});
    if (testing_support::tested_backend() == "cuda_emulated") {
      ASSERT_TRUE(simt::set_schedule != nullptr);
    }
  }
  void TearDown() override { shuffle(0); }
  static void shuffle(std::uint64_t seed) {
    if (simt::set_schedule != nullptr) simt::set_schedule(seed);
  }
};

class OpInTf32 : public OnBackend {
 protected:
  void SetUp() override { open(Precision::tf32, {.tf32 = true}); }
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OpInTf32);

double largest_difference(std::span<const float> a, std::span<const float> b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return largest;
}

double largest_magnitude(std::span<const float> numbers) {
  double largest = 0;
  for (const float number : numbers)
    largest = std::max(largest, std::abs(static_cast<double>(number)));
  return largest;
}

// The maxima of a pool behind a convolution, of sums that two sound roundings order differently
// where they nearly tie: in 16 bits in a few of 1,000 windows.
bool is_equal_but_for_ties(const std::vector<std::int32_t>& a, const std::vector<std::int32_t>& b) {
  std::size_t other = 0;
  for (std::size_t i = 0; i < a.size(); ++i) other += a[i] != b[i];
  return a.size() == b.size() && other <= a.size() / 100;
}

// Moments in bf16 are rounded by random bits that all backends share, but for where parameters lie
// in the store: of the first one, if it is not padded, to the same numbers, where the errors of f32
// do not cross the place between two.
bool has_bits_of_reference(const Graph& graph, const Result& result) {
  if (result.dtype != DType::bf16 || graph.parameters.empty()) return false;
  return std::ranges::any_of(graph.parameters[0].moments, [&](int id) {
    const Value& value = graph.value(id);
    return result.what == value.name + " " + value.type.text() &&
           value.layout.bytes == value.type.bytes();
  });
}
bool is_equal_but_for_crossings(const std::vector<float>& a, const std::vector<float>& b) {
  std::size_t other = 0;
  for (std::size_t i = 0; i < a.size(); ++i) other += a[i] != b[i];
  return a.size() == b.size() && other <= 1 + a.size() / 200;
}

// Numbers that overflow do so on both sides, and are no part of the comparison.
void expect_same_overflows(Result& ours, Result& theirs) {
  for (std::size_t i = 0; i < ours.floats.size(); ++i) {
    if (!std::isinf(ours.floats[i])) continue;
    const float most = ours.dtype == DType::f16 ? 65504 : 3.3e38F;
    EXPECT_GE(std::copysign(1.0F, ours.floats[i]) * theirs.floats[i], most) << ours.what;
    ours.floats[i] = theirs.floats[i] = 0;
  }
}

// `operands`: what rounding the operands of a product may add to the difference.
void OnBackend::expect_agreement(double operands) const {
  Trial trial(GetParam(), backend_);
  std::vector<Result> ours = trial.run();
  std::vector<Result> theirs = Trial(GetParam(), open_backend("ref")).run_beside(ours);
  ASSERT_LE(theirs.size(), ours.size());
  ASSERT_FALSE(theirs.empty());
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    ASSERT_EQ(ours[i].what, theirs[i].what);
    // A sum that tf32 moves across 0 passes or stops a whole gradient, and a mask is not copied.
    if (operands > 0 && ours[i].what.find("linear.dgrad") != std::string::npos &&
        GetParam().name.find("with a mask") != std::string::npos)
      break;
    ASSERT_EQ(ours[i].floats.size(), theirs[i].floats.size());
    if (GetParam().fusion == fusion::conv_pool && GetParam().name.ends_with("16"))
      EXPECT_TRUE(is_equal_but_for_ties(ours[i].integers, theirs[i].integers)) << ours[i].what;
    else
      EXPECT_EQ(ours[i].integers, theirs[i].integers) << ours[i].what;
    if (has_bits_of_reference(trial.program().graph(), ours[i])) {
      EXPECT_TRUE(is_equal_but_for_crossings(ours[i].floats, theirs[i].floats)) << ours[i].what;
    }
    expect_same_overflows(ours[i], theirs[i]);
    const double limit = tolerance(ours[i].dtype, ours[i].depth, ours[i].between) + operands +
                         GetParam().function_error;
    EXPECT_LE(relative_difference(ours[i].floats, theirs[i].floats), limit) << ours[i].what;
    EXPECT_LE(largest_difference(ours[i].floats, theirs[i].floats),
              limit * largest_magnitude(theirs[i].floats))
        << ours[i].what;
    EXPECT_LT(limit, 0.1) << ours[i].what << ": zeros, or twice the result, are off by 1";
  }
}

TEST_P(Op, AgreesWithTheReference) {
  expect_agreement(0);
}

// tf32 has a mantissa of 10 bits, as f16. Cutting the others off both operands, not rounding them,
// moves the results of these cases by up to 2.2 eps: most where three sums nearly cancel.
TEST_P(OpInTf32, AgreesWithTheReference) {
  expect_agreement(4 * epsilon(DType::f16));
}

class OpOfNaN : public Op {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OpOfNaN);

// Products and transforms may spread it: NaN times 0 is NaN.
TEST_P(OpOfNaN, IsNaNWhereTheReferenceIs) {
  const std::vector<Result> ours = Trial(GetParam(), backend_).run();
  const std::vector<Result> theirs = Trial(GetParam(), open_backend("ref")).run();
  const std::string& name = GetParam().name;
  const bool spreads = name.starts_with("conv/") || name.starts_with("linear/");
  ASSERT_EQ(ours.size(), theirs.size());
  std::size_t found = 0;
  for (std::size_t r = 0; r < ours.size(); ++r) {
    ASSERT_EQ(ours[r].floats.size(), theirs[r].floats.size());
    for (std::size_t i = 0; i < ours[r].floats.size(); ++i) {
      const bool nan = std::isnan(theirs[r].floats[i]);
      if (nan || !spreads) {
        ASSERT_EQ(std::isnan(ours[r].floats[i]), nan) << ours[r].what << " " << i;
      }
      found += nan ? 1 : 0;
    }
    if (spreads) {  // a pool's index comes after its output
      for (std::size_t i = 0; i < ours[r].integers.size(); ++i)
        if (std::isnan(theirs[r - 1].floats[i])) {
          ASSERT_LT(ours[r].integers[i], 4) << ours[r].what << " " << i;
        }
    } else {
      EXPECT_EQ(ours[r].integers, theirs[r].integers) << ours[r].what;
    }
  }
  EXPECT_GT(found, 0U);
}

// NaN is not equal to itself, so bits are compared.
std::vector<std::uint32_t> bits(const std::vector<Result>& results) {
  std::vector<std::uint32_t> all;
  for (const Result& result : results) {
    for (const float number : result.floats) all.push_back(std::bit_cast<std::uint32_t>(number));
    for (const std::int32_t number : result.integers)
      all.push_back(static_cast<std::uint32_t>(number));
  }
  return all;
}

TEST_P(DeterministicOp, GivesTheSameBitsEveryTimeAndReadsNoDeadBuffer) {
  const std::vector<std::uint32_t> first = bits(Trial(GetParam(), backend_).run());
  shuffle(1);
  Trial second(GetParam(), backend_, 1, testing_support::Guarded::begin);
  EXPECT_EQ(first, bits(second.run(true))) << "second program, dead buffers poisoned";
  shuffle(2);
  if (std::any_of(GetParam().graph.nodes.begin(), GetParam().graph.nodes.end(),
                  [](const Node& node) { return node.phase == Phase::update; })) {
    // A second update continues from the first.
    EXPECT_EQ(first, bits(Trial(GetParam(), backend_).run())) << "third program";
    return;
  }
  second.fill_store(GetParam());  // running statistics continue from those of the first run
  EXPECT_EQ(first, bits(second.run())) << "second run of one program";
}

INSTANTIATE_TEST_SUITE_P(Cases, Op, testing::ValuesIn(everything()), testing_support::test_name);
INSTANTIATE_TEST_SUITE_P(Cases, OpOfNaN, testing::ValuesIn(with_nan()), testing_support::test_name);
INSTANTIATE_TEST_SUITE_P(Cases, DeterministicOp, testing::ValuesIn(repeatable()),
                         testing_support::test_name);
INSTANTIATE_TEST_SUITE_P(Cases, OpInTf32, testing::ValuesIn(products()),
                         testing_support::test_name);

}  // namespace
}  // namespace warpstep
