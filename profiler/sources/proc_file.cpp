#include "profiler/sources/proc_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace warpstep::profiler {
namespace {

constexpr std::string_view blanks = " \t\r\n";
constexpr std::size_t most_bytes = std::size_t{4} << 20;

std::string_view trimmed(std::string_view text, std::string_view around) {
  const std::size_t first = text.find_first_not_of(around);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(around) + 1 - first);
}

}  // namespace

std::optional<std::string> read_text(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return std::nullopt;
  // /proc makes a text as it is read: its size is not known before, and one large read costs the
  // kernel less than several.
  std::string text;
  std::size_t size = 0;
  ssize_t got = 1;
  while (got != 0 && size <= most_bytes) {
    if (size == text.size()) text.resize(size + (std::size_t{16} << 10));
    got = ::read(file, text.data() + size, text.size() - size);
    if (got < 0 && errno != EINTR) break;
    if (got > 0) size += static_cast<std::size_t>(got);
  }
  ::close(file);
  if (got != 0) return std::nullopt;
  text.resize(size);
  return text;
}

std::string first_line(const std::filesystem::path& path) {
  const std::optional<std::string> text = read_text(path);
  if (!text) return {};
  std::string_view rest = *text;
  return std::string(trimmed(next_line(rest), blanks));
}

std::string value_of(std::string_view text, std::string_view key, char separator) {
  while (!text.empty()) {
    const std::string_view line = next_line(text);
    if (!line.starts_with(key)) continue;
    const std::size_t at = line.find(separator);
    if (at == std::string_view::npos || line.find_first_not_of(" \t", key.size()) != at) continue;
    return std::string(trimmed(line.substr(at + 1), " \t\r\""));
  }
  return {};
}

std::string_view next_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

std::string_view next_field(std::string_view& line) {
  line.remove_prefix(std::min(line.size(), line.find_first_not_of(blanks)));
  const std::string_view field = line.substr(0, line.find_first_of(blanks));
  line.remove_prefix(field.size());
  return field;
}

}  // namespace warpstep::profiler
