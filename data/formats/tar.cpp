#include "data/formats/tar.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <utility>

#include "data/io/file.h"
#include "engine/core/error.h"

namespace warpstep::data {
namespace {

constexpr std::size_t window_bytes = 4096;
constexpr std::uint64_t max_tar_text_bytes = 65536;  // of pax records or a long name

// The fields of a ustar header: first byte and length.
struct Field {
  std::size_t begin, length;
};
constexpr Field name_field{0, 100}, mode_field{100, 8}, uid_field{108, 8}, gid_field{116, 8},
    size_field{124, 12}, time_field{136, 12}, sum_field{148, 8}, magic_field{257, 6},
    prefix_field{345, 155};
constexpr std::size_t type_at = 156;

using Block = std::span<const std::uint8_t, tar_block_bytes>;  // TarReader::Block converts to it

std::string_view text_of(Block block, Field field) {
  const std::string_view all(reinterpret_cast<const char*>(block.data()) + field.begin,
                             field.length);
  return all.substr(0, all.find('\0'));
}

// A number in octal, where no digit is 0, or in base 256 with the first bit set as GNU writes large
// ones; empty for anything else.
std::optional<std::uint64_t> number_of(Block block, Field field) {
  const auto bytes = block.subspan(field.begin, field.length);
  std::uint64_t value = 0;
  if (bytes[0] == 0x80) {
    for (const std::uint8_t byte : bytes.subspan(1)) {
      if (value >> 56 != 0) return std::nullopt;
      value = value << 8 | byte;
    }
    return value;
  }
  std::string_view text = text_of(block, field);
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  if (text.empty()) return 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 8);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::uint64_t sum_of(Block block) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < block.size(); ++i) {
    const bool is_sum_field = i >= sum_field.begin && i < sum_field.begin + sum_field.length;
    sum += is_sum_field ? ' ' : block[i];
  }
  return sum;
}

bool is_zero(std::span<const std::uint8_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t byte) { return byte == 0; });
}

// Why a member with this name is refused; empty when it is accepted.
std::string_view fault_of_name(std::string_view name) {
  if (name.empty()) return "has no name";
  if (name.find('\0') != std::string_view::npos) return "has a zero byte in its name";
  if (name.front() == '/') return "has an absolute name";
  for (std::string_view rest = name; !rest.empty();) {
    const std::size_t end = std::min(rest.find('/'), rest.size());
    if (rest.substr(0, end) == "..") return "has '..' in its name";
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return {};
}

std::string_view fault_of_type(char type) {
  switch (type) {
    case '1': return "is a hard link";
    case '2': return "is a symbolic link";
    case '3':
    case '4': return "is a device";
    case '6': return "is a pipe";
    case 'S': return "is a sparse file";
    case 'M': return "continues from another archive";
    default: return "is of an unknown type";
  }
}

constexpr std::uint64_t padded(std::uint64_t bytes) {
  return (bytes + tar_block_bytes - 1) / tar_block_bytes * tar_block_bytes;
}

}  // namespace

TarReader::TarReader(const std::string& path) : file_(path) {}

void TarReader::refuse(std::uint64_t byte, const std::string& what) const {
  fail<DataError>("{}: byte {}: {}", file_.path().string(), byte, what);
}

void TarReader::read(std::uint64_t offset, std::span<std::uint8_t> out) {
  if (out.empty()) return;
  const bool inside = offset >= window_begin_ && offset - window_begin_ <= window_.size() &&
                      out.size() <= window_.size() - (offset - window_begin_);
  if (!inside && out.size() <= window_bytes) {
    window_.resize(window_bytes);
    window_.resize(file_.read_some(offset, std::as_writable_bytes(std::span(window_))));
    window_begin_ = offset;
    if (window_.size() < out.size())
      refuse(offset, "the archive ends inside a member; copy it again");
  } else if (!inside) {
    file_.read(offset, std::as_writable_bytes(out));
    return;
  }
  std::memcpy(out.data(), window_.data() + (offset - window_begin_), out.size());
}

void TarReader::expect_end() {
  std::vector<std::uint8_t> rest(65536);
  for (std::uint64_t at = at_; at < bytes(); at += rest.size()) {
    rest.resize(std::min<std::uint64_t>(rest.size(), bytes() - at));
    file_.read(at, std::as_writable_bytes(std::span(rest)));
    if (!is_zero(rest))
      refuse(at, "there are bytes after the archive's end; archives cannot be joined with cat");
  }
}

bool TarReader::read_header(Block& block) {
  if (at_ > bytes() || bytes() - at_ < tar_block_bytes)
    refuse(at_, "the archive is truncated: its end is missing; copy it again");
  read(at_, block);
  if (is_zero(block)) {
    expect_end();
    return false;
  }
  if (number_of(block, sum_field) != sum_of(block))
    refuse(at_, at_ == 0 ? "is not a tar archive (a compressed one must be unpacked first)"
                         : "a header's checksum is wrong; copy the archive again");
  return true;
}

std::string TarReader::read_text(std::uint64_t bytes) {
  if (bytes > max_tar_text_bytes)
    refuse(at_, fmt::format("an extended header of {} bytes; at most {} are allowed", bytes,
                            max_tar_text_bytes));
  std::string text(bytes, '\0');
  const std::uint64_t begin = at_ + tar_block_bytes;
  if (begin > file_.bytes() || bytes > file_.bytes() - begin)
    refuse(at_, "the archive ends inside a member; copy it again");
  read(begin, {reinterpret_cast<std::uint8_t*>(text.data()), text.size()});
  return text;
}

// Records "LENGTH KEY=VALUE\n", where the length counts the whole record.
void TarReader::take_pax(std::string_view records, TarMember& overrides, bool& has_size) {
  while (!records.empty()) {
    std::size_t length = 0;
    const auto [end, error] =
        std::from_chars(records.data(), records.data() + records.size(), length);
    const auto digits = static_cast<std::size_t>(end - records.data());
    if (error != std::errc() || length > records.size() || length < digits + 3 ||
        records[digits] != ' ' || records[length - 1] != '\n')
      refuse(at_, "a pax record is damaged; copy the archive again");
    const std::string_view record = records.substr(digits + 1, length - digits - 2);
    const std::string_view key = record.substr(0, record.find('='));
    const std::string_view value =
        key.size() < record.size() ? record.substr(key.size() + 1) : std::string_view();
    if (key == "path") overrides.name = value;
    if (key == "size") {
      const auto [last, bad] =
          std::from_chars(value.data(), value.data() + value.size(), overrides.bytes);
      if (bad != std::errc() || last != value.data() + value.size())
        refuse(at_, "a pax record has an invalid size; copy the archive again");
      has_size = true;
    }
    if (key.starts_with("GNU.sparse"))
      refuse(at_, "a member is a sparse file; pack with: tar --format=pax without --sparse");
    records.remove_prefix(length);
  }
}

bool TarReader::next(TarMember& member) {
  TarMember overrides;
  bool has_size = false;
  for (Block block; read_header(block);) {
    const char type = static_cast<char>(block[type_at]);
    std::optional<std::uint64_t> size = number_of(block, size_field);
    const bool extends = type == 'x' || type == 'g' || type == 'L' || type == 'K' || type == 'V';
    if (has_size && !extends) size = overrides.bytes;
    if (!size) refuse(at_, "a header has an invalid size; copy the archive again");
    if (extends) {
      const std::string text = read_text(*size);
      if (type == 'x') take_pax(text, overrides, has_size);
      if (type == 'L') overrides.name = text.substr(0, text.find('\0'));
      at_ += tar_block_bytes + padded(*size);
      continue;
    }
    member.name = overrides.name.empty() ? tar_name(block) : std::move(overrides.name);
    const bool regular = type == '0' || type == '\0' || type == '7';
    if (const std::string_view fault = fault_of_name(member.name); !fault.empty())
      refuse(at_, fmt::format("member '{}' {}", shown(member.name), fault));
    if (!regular && type != '5')
      refuse(at_, fmt::format("member '{}' {}; shards may hold only regular files",
                              shown(member.name), fault_of_type(type)));
    member.offset = at_ + tar_block_bytes;
    member.bytes = regular ? *size : 0;
    if (member.bytes > bytes() - member.offset)
      refuse(at_, fmt::format("member '{}' has {} bytes, but only {} follow; copy it again",
                              shown(member.name), *size, bytes() - member.offset));
    at_ = member.offset + padded(member.bytes);
    if (regular) return true;
    overrides = {};
    has_size = false;
  }
  return false;
}

std::array<std::uint8_t, tar_block_bytes> tar_header(std::string_view name, std::uint64_t bytes) {
  if (name.empty() || name.size() > name_field.length || bytes >= std::uint64_t{1} << 33)
    fail<UsageError>("tar member '{}' of {} bytes: names have 1 to 100 bytes, members below 8 GiB",
                     shown(name), bytes);
  std::array<std::uint8_t, tar_block_bytes> block{};
  const auto put = [&](Field field, std::string_view text) {
    std::memcpy(block.data() + field.begin, text.data(), text.size());
  };
  put(name_field, name);
  put(mode_field, "0000644");
  put(uid_field, "0000000");
  put(gid_field, "0000000");
  put(size_field, fmt::format("{:011o}", bytes));
  put(time_field, "00000000000");
  block[type_at] = '0';
  put(magic_field, std::string_view("ustar\0"
                                    "00",
                                    8));
  put(sum_field, fmt::format("{:06o}", sum_of(block)) + '\0' + ' ');
  return block;
}

std::string tar_name(Block header) {
  const std::string_view prefix =
      text_of(header, magic_field) == "ustar" ? text_of(header, prefix_field) : std::string_view();
  const std::string_view last = text_of(header, name_field);
  return prefix.empty() ? std::string(last) : fmt::format("{}/{}", prefix, last);
}

TarName split_tar_name(std::string_view name) {
  const std::size_t slash = name.rfind('/');
  const std::size_t dot = name.find('.', slash == std::string_view::npos ? 0 : slash + 1);
  if (dot == std::string_view::npos) return {name, {}};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

namespace {

// Removes and returns the next line of `rest`, without its line end.
std::string_view take_line(std::string_view& rest) {
  const std::size_t end = std::min(rest.find('\n'), rest.size());
  std::string_view line = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// Removes every fourth word, the name, which v1.1 does not have.
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
    fail<DataError>(
        "{}: line 1: '{}' is not 'v1.2 SAMPLES'; remove the file, and it is written again", path,
        shown(first));
  const std::string_view header = take_line(expected);
  if (first.substr(5) != header.substr(5))
    fail<DataError>(
        "{}: line 1: has {} samples, but the shard has {}; remove the file, and it is written "
        "again",
        path, shown(first.substr(5)), header.substr(5));
  for (int number = 2; !expected.empty() || !found.empty(); ++number) {
    const std::string_view line = take_line(found);
    const std::string_view real = take_line(expected);
    if (real.empty() || (named ? line != real : line != without_names(real)))
      fail<DataError>(
          "{}: line {}: has '{}', but the shard has '{}'; remove the file, and it is written again",
          path, number, shown(line), shown(real));
  }
}

}  // namespace warpstep::data
