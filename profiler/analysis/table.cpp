#include "profiler/analysis/table.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <span>

namespace warpstep::profiler {
namespace {

struct Scale {
  double factor;
  const char* unit;
};

constexpr std::array<Scale, 3> times{{{1e3, "us"}, {1e6, "ms"}, {1e9, "s"}}};
constexpr std::array<Scale, 5> sizes{{{1, "B"},
                                      {1024.0, "KiB"},
                                      {1024.0 * 1024, "MiB"},
                                      {1024.0 * 1024 * 1024, "GiB"},
                                      {1024.0 * 1024 * 1024 * 1024, "TiB"}}};
constexpr std::array<Scale, 6> operations{{{1, "FLOP"},
                                           {1e3, "kFLOP"},
                                           {1e6, "MFLOP"},
                                           {1e9, "GFLOP"},
                                           {1e12, "TFLOP"},
                                           {1e15, "PFLOP"}}};
constexpr std::array<Scale, 5> rates{
    {{1, "FLOP/s"}, {1e6, "MFLOP/s"}, {1e9, "GFLOP/s"}, {1e12, "TFLOP/s"}, {1e15, "PFLOP/s"}}};
constexpr std::array<Scale, 5> bandwidths{
    {{1, "B/s"}, {1e3, "kB/s"}, {1e6, "MB/s"}, {1e9, "GB/s"}, {1e12, "TB/s"}}};

// Three digits, or all before the point.
std::string digits(double value) {
  const double size = std::abs(value);
  if (size == 0) return "0";
  return size < 9.995   ? fmt::format("{:.2f}", value)
         : size < 99.95 ? fmt::format("{:.1f}", value)
                        : fmt::format("{:.0f}", value);
}

std::string scaled(double value, std::span<const Scale> scales) {
  std::size_t i = 0;
  while (i + 1 < scales.size() && std::abs(value) >= 0.9995 * scales[i + 1].factor) ++i;
  const bool is_whole = scales[i].factor == 1 && value == std::floor(value);
  return fmt::format("{} {}",
                     is_whole ? fmt::format("{:.0f}", value) : digits(value / scales[i].factor),
                     scales[i].unit);
}

std::string plain(double value) {
  return value == std::floor(value) && std::abs(value) < 1e15 ? fmt::format("{:.0f}", value)
                                                              : fmt::format("{:.4g}", value);
}

std::string shown_number(double value, Unit unit) {
  if (!std::isfinite(value)) return "-";
  switch (unit) {
    case Unit::none:
    case Unit::count: return plain(value);
    case Unit::ns: return scaled(value, times);
    case Unit::bytes: return scaled(value, sizes);
    case Unit::share: return fmt::format("{:.1f} %", 100 * value);
    case Unit::flops: return scaled(value, operations);
    case Unit::per_second_flops: return scaled(value, rates);
    case Unit::per_second_bytes: return scaled(value, bandwidths);
  }
  return "-";
}

}  // namespace

std::string shown(const Cell& cell, Unit unit) {
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  if (const auto* number = std::get_if<double>(&cell)) return shown_number(*number, unit);
  if (const auto* count = std::get_if<std::int64_t>(&cell))
    return unit == Unit::none || unit == Unit::count
               ? fmt::format("{}", *count)
               : shown_number(static_cast<double>(*count), unit);
  return "-";
}

}  // namespace warpstep::profiler
