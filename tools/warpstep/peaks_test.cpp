#include "tools/warpstep/peaks.h"
#include "tools/warpstep/json.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace warpstep::tools {
namespace {

Json peaks(double flops, double bytes) {
  return {{"flops_per_second", {{"fp32", flops}}}, {"bytes_per_second", bytes}, {"how", "so"}};
}

TEST(Peaks, AreTheBestOfEarlierRunsOfThisMachine) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / "warpstep-peaks" / std::to_string(::getpid());
  std::filesystem::remove_all(folder);
  EXPECT_EQ(with_best_peaks(peaks(10, 5), "a", folder), peaks(10, 5));
  const Json busy = with_best_peaks(peaks(3, 7), "a", folder);
  EXPECT_EQ(busy["flops_per_second"]["fp32"], 10);
  EXPECT_EQ(busy["bytes_per_second"], 7);
  EXPECT_EQ(busy["how"], "so; the best seen on this machine");
  EXPECT_EQ(busy["now"],
            Json::parse(R"({"flops_per_second": {"fp32": 3}, "bytes_per_second": 7})"));
  EXPECT_EQ(with_best_peaks(peaks(1, 1), "a", folder)["bytes_per_second"], 7);
  EXPECT_EQ(with_best_peaks(peaks(1, 1), "other threads", folder), peaks(1, 1));
  EXPECT_EQ(with_best_peaks(peaks(1, 1), "a", {}), peaks(1, 1));
  EXPECT_EQ(with_best_peaks(Json::object(), "a", folder), Json::object());
  std::ofstream(folder / "peaks.json") << "damaged";
  EXPECT_EQ(with_best_peaks(peaks(1, 1), "a", folder), peaks(1, 1));
  std::ofstream(folder / "peaks.json") << R"({"a": {"bytes_per_second": 9}})" << '\0' << "x";
  EXPECT_EQ(with_best_peaks(peaks(1, 1), "a", folder), peaks(1, 1));
  EXPECT_EQ(with_best_peaks(peaks(0.5, 0.5), "a", folder)["bytes_per_second"], 1);
  EXPECT_EQ(with_best_peaks(peaks(1, 1), "a", "/proc/no such folder"), peaks(1, 1));
  std::filesystem::remove_all(folder);
}

TEST(Peaks, AreNotMeasuredIntoAMemoryLimit) {
  const std::uint64_t mib = 1 << 20;
  EXPECT_EQ(host_peak_sizes(20 * mib).product, 0);
  EXPECT_EQ(host_peak_sizes(96 * mib).product, 1024);
  EXPECT_EQ(host_peak_sizes(511 * mib).stream, 0);
  EXPECT_EQ(host_peak_sizes(512 * mib).stream, 1 << 24);
}

}  // namespace
}  // namespace warpstep::tools
