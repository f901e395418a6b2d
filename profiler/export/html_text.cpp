#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "profiler/export/html.h"
#include "profiler/export/quantity.h"

namespace warpstep::profiler::html {
namespace {

// Bytes of the well-formed UTF-8 sequence that starts at `at`; 0 when there is none there.
std::size_t sequence_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  const std::size_t length = first < 0x80                    ? 1
                             : first >= 0xC2 && first < 0xE0 ? 2
                             : first >= 0xE0 && first < 0xF0 ? 3
                             : first >= 0xF0 && first < 0xF5 ? 4
                                                             : 0;
  if (length == 0 || at + length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(at + i) & 0xC0) != 0x80) return 0;
  if (length < 3) return length;
  const unsigned char second = byte(at + 1);  // overlong forms, surrogates, beyond U+10FFFF
  const bool is_wrong = (first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
                        (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F);
  return is_wrong ? 0 : length;
}

unsigned hex_digit(char c) {
  return static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10);
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = sequence_length(text, at);
    const char c = text[at];
    if (length == 0 || (c >= 0 && c < ' ' && c != '\n' && c != '\t') || c == 0x7F)
      result += "\xEF\xBF\xBD";
    else if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (c == '&')
      result += "&amp;";
    else if (c == '"')
      result += "&quot;";
    else if (c == '\'')
      result += "&#39;";
    else
      result += text.substr(at, length);
    at += length == 0 ? 1 : length;
  }
  return result;
}

std::string prose(std::string_view text) {
  constexpr std::string_view units[] = {
      "%",    "ns",   "us",   "ms",      "s",   "B", "KiB", "MiB",   "GiB",     "TiB",
      "GB/s", "TB/s", "MB/s", "GFLOP/s", "MHz", "W", "MB",  "GFLOP", "TFLOP/s", "MFLOP/s"};
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t space = std::min(text.find(' ', at), text.size());
    result += escaped(text.substr(at, space - at));
    if (space == text.size()) break;
    const std::string_view rest = text.substr(space + 1);
    std::string_view word = rest.substr(0, rest.find(' '));
    while (!word.empty() && std::string_view(".,;:)").find(word.back()) != std::string_view::npos)
      word.remove_suffix(1);
    const bool follows_number = space > 0 && text[space - 1] >= '0' && text[space - 1] <= '9';
    const bool is_unit = std::ranges::find(units, word) != std::end(units);
    result += follows_number && is_unit ? "\u00a0" : " ";
    at = space + 1;
  }
  return result;
}

std::string script_json(const Json& json) {
  std::string result;
  for (const char c : json.dump(-1, ' ', false, Json::error_handler_t::replace)) {
    if (c == '<' || c == '>' || c == '&')
      result += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      result += c;
  }
  return result;
}

std::string policy_source(std::string_view sha256_hex) {
  constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string base64;
  // 3 hexadecimal digits are 2 of base 64; the 64 of a hash leave one, whose 4 bits get 2 zeros.
  for (std::size_t i = 0; i + 3 <= sha256_hex.size(); i += 3) {
    const unsigned bits = hex_digit(sha256_hex[i]) << 8 | hex_digit(sha256_hex[i + 1]) << 4 |
                          hex_digit(sha256_hex[i + 2]);
    base64 += {digits[bits >> 6], digits[bits & 63]};
  }
  if (sha256_hex.size() % 3 == 1) base64 += {digits[hex_digit(sha256_hex.back()) << 2], '='};
  return "'sha256-" + base64 + "'";
}

std::string cell_text(const Cell& cell, Unit unit) {
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  if (const auto* whole = std::get_if<std::int64_t>(&cell))
    return quantity(static_cast<double>(*whole), unit == Unit::none ? Unit::count : unit);
  if (const auto* real = std::get_if<double>(&cell)) return quantity(*real, unit);
  return "-";
}

std::string section(std::string_view id, std::string_view title, const std::string& lead,
                    const std::string& body) {
  return fmt::format(
      "<section id=\"{0}\" aria-labelledby=\"{0}-title\">\n<h2 id=\"{0}-title\">{1}</h2>\n{2}{3}"
      "</section>\n",
      id, escaped(title), lead.empty() ? "" : fmt::format("<p class=\"lead\">{}</p>\n", lead),
      body);
}

}  // namespace warpstep::profiler::html
