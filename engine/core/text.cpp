#include "engine/core/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace warpstep {
namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = lower(c);
  return result;
}

bool begins_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) != 0x80;
}

// "resnet101" and "resnet18": names of two things, not a mistyped one.
bool differ_in_numbers_alone(std::string_view a, std::string_view b) {
  const auto parts = [](std::string_view text) {
    std::string letters, digits;
    for (const char c : text) (c >= '0' && c <= '9' ? digits : letters) += c;
    return std::pair(letters, digits);
  };
  const auto [a_letters, a_digits] = parts(a);
  const auto [b_letters, b_digits] = parts(b);
  return a_letters == b_letters && a_digits != b_digits;
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Rows i-2, i-1 and i of the table of distances between prefixes.
  std::vector<std::size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(above.begin(), above.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (same ? 0U : 1U)});
      const bool swapped = i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                           lower(a[i - 2]) == lower(b[j - 1]);
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above.back();
}

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  constexpr std::size_t shortest_prefix = 3;
  const std::string typed = lower(word);
  const std::string* best = nullptr;
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::string name = lower(candidate);
    if (differ_in_numbers_alone(typed, name)) continue;
    const bool prefix = std::min(typed.size(), name.size()) >= shortest_prefix &&
                        (typed.starts_with(name) || name.starts_with(typed));
    const std::size_t distance = prefix ? std::size_t{typed != name} : edit_distance(typed, name);
    if (distance >= best_distance) continue;
    best = &candidate;
    best_distance = distance;
  }
  return best ? *best : std::string();
}

std::string suggestion(std::string_view word, std::span<const std::string> candidates,
                       std::string_view prefix) {
  const std::string near = nearest(word, candidates);
  return near.empty() ? std::string() : fmt::format("; did you mean {}{}?", prefix, near);
}

std::string grouped(double value) {
  const std::string digits = fmt::format("{:.0f}", std::abs(value));
  std::string text(value < 0 ? "-" : "");
  for (std::size_t at = 0; at < digits.size(); ++at) {
    if (at > 0 && (digits.size() - at) % 3 == 0) text += ',';
    text += digits[at];
  }
  return text;
}

namespace {

// Three significant digits, but whole numbers from 100 on.
std::string three_digits(double value) {
  const double size = std::abs(value);
  if (size == 0) return "0";
  return fmt::format("{:.{}f}", value, size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
}

std::string scaled(double value, double base, std::span<const char* const> units) {
  const bool is_whole = value == std::floor(value);
  std::size_t at = 0;
  // 999.6 would be shown as 1000: in the next unit it is 1.00.
  while (at + 1 < units.size() && std::abs(value) >= 0.9995 * base) {
    value /= base;
    ++at;
  }
  const bool is_large = std::abs(value) >= 999.5;  // no unit is left
  return fmt::format(
      "{} {}", is_large || (at == 0 && is_whole) ? grouped(value) : three_digits(value), units[at]);
}

constexpr std::array time_units{"ns", "us", "ms", "s"};
constexpr std::array byte_units{"B", "KiB", "MiB", "GiB", "TiB"};
constexpr std::array flop_units{"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"};
constexpr std::array flop_rates{"FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s"};
constexpr std::array byte_rates{"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};

}  // namespace

std::string quantity(double value, Unit unit) {
  if (!std::isfinite(value)) return "-";
  switch (unit) {
    case Unit::ns: return scaled(value, 1000, time_units);
    case Unit::bytes: return scaled(value, 1024, byte_units);
    case Unit::flops: return scaled(value, 1000, flop_units);
    case Unit::per_second_flops: return scaled(value, 1000, flop_rates);
    case Unit::per_second_bytes: return scaled(value, 1000, byte_rates);
    case Unit::share:
      return value > 0 && value < 0.0005 ? "< 0.1 %" : fmt::format("{:.1f} %", value * 100);
    case Unit::count: return grouped(value);
    case Unit::none: break;
  }
  const double size = std::abs(value);  // beyond 2^50 not all digits are known
  return size >= 1000 && size < 1e15 ? grouped(value) : fmt::format("{:.4g}", value);
}

std::string counted(double count, std::string_view noun) {
  return fmt::format("{} {}{}", grouped(count), noun, count == 1 ? "" : "s");
}

std::size_t utf8_bytes(std::string_view text) {
  const auto byte = [text](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const unsigned first = byte(0), second = byte(1);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  const std::size_t bytes = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  for (std::size_t i = 1; i < bytes; ++i)
    if ((byte(i) & 0xC0U) != 0x80) return 0;
  const bool is_invalid = (first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
                          (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F);
  return is_invalid ? 0 : bytes;
}

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, begins_character));
}

std::string clipped(std::string_view text, std::size_t most) {
  if (characters(text) <= most) return std::string(text);
  std::size_t end = 0;
  for (std::size_t n = 0; end < text.size(); ++end)
    if (begins_character(text[end]) && ++n == most - 2) break;
  return fmt::format("{}...", text.substr(0, end));
}

namespace {

std::string without_controls(std::string_view text, std::string_view kept) {
  std::string result;
  while (!text.empty()) {
    const std::size_t bytes = utf8_bytes(text), length = std::max<std::size_t>(1, bytes);
    const std::string_view character = text.substr(0, length);
    const bool is_control = bytes == 1
                                ? static_cast<unsigned char>(text[0]) < 0x20 || text[0] == '\x7F'
                                : character >= "\xC2\x80" && character <= "\xC2\x9F";
    if (bytes == 0 || (is_control && kept.find(text[0]) == kept.npos))
      result += '?';
    else
      result += character;
    text.remove_prefix(length);
  }
  return result;
}

}  // namespace

std::string printable(std::string_view text) {
  return without_controls(text, "");
}

std::string printable_lines(std::string_view text) {
  return without_controls(text, "\n\t");
}

std::string size_text(double bytes) {
  if (bytes >= 1 << 20) return fmt::format("{:.2f} MiB", bytes / (1 << 20));
  if (bytes >= 1 << 10) return fmt::format("{:.1f} KiB", bytes / (1 << 10));
  return fmt::format("{:.0f} B", bytes);
}

std::string shell_word(std::string_view word) {
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%+,-./:=@_";
  if (!word.empty() && word.find_first_not_of(plain) == std::string_view::npos)
    return std::string(word);
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace warpstep
