#include "data/tar_index.h"

#include <algorithm>

#include "data/file.h"
#include "engine/core/error.h"

namespace warpstep::data {
namespace {

// The next line, taken off `rest` together with its end.
std::string_view take_line(std::string_view& rest) {
  const std::size_t end = std::min(rest.find('\n'), rest.size());
  std::string_view line = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// The line without every fourth word: v1.1 has no names.
std::string without_names(std::string_view line) {
  std::string result;
  for (int word = 0; !line.empty(); ++word) {
    const std::size_t end = std::min(line.find(' '), line.size());
    if (word % 4 != 3) (result += result.empty() ? "" : " ") += line.substr(0, end);
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return result;
}

}  // namespace

void TarIndexText::add(const TarMember& member) {
  const auto [key, extension] = split_tar_name(member.name);
  if (samples_ == 0 || key != key_) {
    if (samples_ > 0) lines_ += '\n';
    ++samples_;
    key_ = key;
  } else {
    lines_ += ' ';
  }
  fits_ = fits_ && !extension.empty() &&
          member.name.find_first_of(" \t\n\r\v\f") == std::string_view::npos;
  lines_ += fmt::format("{} {} {} {}", extension, member.offset, member.bytes, member.name);
}

std::string TarIndexText::text() const {
  if (samples_ == 0 || !fits_) return {};
  return fmt::format("v1.2 {}\n{}\n", samples_, lines_);
}

void check_tar_index(std::string_view found, const std::string& path, std::string_view expected) {
  const std::string_view first = take_line(found);
  const bool named = first.starts_with("v1.2 ");
  if (!named && !first.starts_with("v1.1 "))
    fail<DataError>("{}: line 1: '{}' is not 'v1.2 SAMPLES'; remove the file and it is made anew",
                    path, printable(first));
  const std::string_view header = take_line(expected);
  if (first.substr(5) != header.substr(5))
    fail<DataError>(
        "{}: line 1: has {} samples, but the shard has {}; remove the file and it is "
        "made anew",
        path, printable(first.substr(5)), header.substr(5));
  for (int number = 2; !expected.empty() || !found.empty(); ++number) {
    const std::string_view line = take_line(found);
    const std::string_view real = take_line(expected);
    if (real.empty() || (named ? line != real : line != without_names(real)))
      fail<DataError>(
          "{}: line {}: says '{}', but in the shard is '{}'; remove the file and it is "
          "made anew",
          path, number, printable(line), printable(real));
  }
}

}  // namespace warpstep::data
