// Files of /proc and /sys: short texts of lines and fields.
#pragma once

#include <charconv>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace warpstep::profiler {

// The whole text, or nothing: what is not a readable file, or longer than 4 MiB, is nothing. Never
// waits (a FIFO is nothing), never throws but std::bad_alloc.
std::optional<std::string> read_text(const std::filesystem::path& path);

// The first line without blanks around it; empty when there is none.
std::string first_line(const std::filesystem::path& path);

// The value of the first line "key<separator>value", without blanks and quotes around it; else "".
std::string value_of(std::string_view text, std::string_view key, char separator);

// Takes the first line off `text`, or the next field between blanks off `line`; empty at the end.
std::string_view next_line(std::string_view& text);
std::string_view next_field(std::string_view& line);

// A whole field as a number; nothing when it is anything else or does not fit.
template <class Number = std::uint64_t>
std::optional<Number> parse_number(std::string_view field) {
  Number value{};
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc() || end != field.data() + field.size()) return std::nullopt;
  return value;
}

}  // namespace warpstep::profiler
