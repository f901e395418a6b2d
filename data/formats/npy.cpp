#include "data/formats/npy.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "data/formats/many.h"
#include "data/io/file.h"
#include "engine/core/error.h"
#include "engine/core/file.h"

namespace warpstep::data {
namespace {

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::uint64_t max_header_bytes = 65536;
constexpr std::size_t max_rank = 32;

constexpr std::array<std::pair<std::string_view, StoredType>, 5> types{{{"|u1", StoredType::u8},
                                                                        {"<u2", StoredType::u16},
                                                                        {"<u4", StoredType::u32},
                                                                        {"<i4", StoredType::i32},
                                                                        {"<i8", StoredType::i64}}};

// The header is a Python dict literal with three keys. Parses only the form that NumPy writes.
class HeaderParser {
 public:
  HeaderParser(const std::string& path, std::string_view text, std::uint64_t begin)
      : path_(path), text_(text), begin_(begin) {}

  NpyArray parse() {
    expect('{');
    while (!take('}')) {
      parse_item();
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    skip_spaces();
    if (at_ != text_.size()) refuse("has extra data after its dict");
    if (!type_ || !order_ || !shape_)
      refuse(fmt::format("lacks the key '{}'", !type_    ? "descr"
                                               : !order_ ? "fortran_order"
                                                         : "shape"));
    return {*type_, *std::move(shape_), 0, 0};
  }

 private:
  void parse_item() {
    const std::string_view key = quoted();
    expect(':');
    if (key == "descr" && !type_) {
      parse_type();
    } else if (key == "fortran_order" && !order_) {
      order_ = true;
      if (word("True"))
        refuse("is in Fortran order; save it with numpy.save(f, numpy.ascontiguousarray(a))");
      if (!word("False")) refuse("has a fortran_order that is neither True nor False");
    } else if (key == "shape" && !shape_) {
      parse_shape();
    } else {
      refuse(fmt::format("has the key '{}'; it must have descr, fortran_order and shape once each",
                         shown(key)));
    }
  }

  void parse_type() {
    skip_spaces();
    if (at_ == text_.size() || text_[at_] == '[') refuse("is of a structured type");
    const std::string_view text = quoted();
    const auto found =
        std::ranges::find(types, text, [](const auto& entry) { return entry.first; });
    if (found == types.end())
      refuse(
          fmt::format("has elements of '{}'; must be |u1, <u2, <u4, <i4 or <i8: save images with "
                      "a.astype(numpy.uint8), labels with numpy.int64, tokens with numpy.uint16",
                      shown(text)));
    type_ = found->second;
  }

  void parse_shape() {
    shape_.emplace();
    expect('(');
    while (!take(')')) {
      skip_spaces();
      std::uint64_t extent = 0;
      const char* begin = text_.data() + at_;
      const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), extent);
      if (error != std::errc() || shape_->size() == max_rank) refuse("has an invalid shape");
      at_ += static_cast<std::size_t>(end - begin);
      shape_->push_back(extent);
      if (!take(',')) {
        expect(')');
        break;
      }
    }
  }

  std::string_view quoted() {
    skip_spaces();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    const std::size_t end =
        quote == '\'' || quote == '"' ? text_.find(quote, at_ + 1) : std::string_view::npos;
    if (end == std::string_view::npos) refuse("has no quoted text here");
    const std::string_view result = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return result;
  }
  bool word(std::string_view expected) {
    skip_spaces();
    if (!text_.substr(at_).starts_with(expected)) return false;
    at_ += expected.size();
    return true;
  }
  bool take(char expected) { return word(std::string_view(&expected, 1)); }
  void expect(char expected) {
    if (!take(expected)) refuse(fmt::format("has no '{}' here", expected));
  }
  void skip_spaces() { at_ = std::min(text_.find_first_not_of(" \n", at_), text_.size()); }

  [[noreturn]] void refuse(const std::string& what) const {
    fail<DataError>("{}: byte {}: the header {}", path_, begin_ + at_, what);
  }

  const std::string& path_;
  std::string_view text_;
  std::uint64_t begin_;
  std::size_t at_ = 0;
  std::optional<StoredType> type_;
  std::optional<bool> order_;
  std::optional<std::vector<std::uint64_t>> shape_;
};

// Computes the bytes of the array; false when they do not fit 64 bits.
bool size_of(const NpyArray& array, std::uint64_t& bytes) {
  bytes = size_bytes(array.type);
  for (const std::uint64_t extent : array.shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return false;
  }
  return true;
}

}  // namespace

NpyArray read_npy_header(const MappedFile& file) {
  std::vector<std::uint8_t> scratch;
  const std::string& path = file.path();
  const auto head = file.view(0, std::min<std::uint64_t>(file.bytes(), 12), scratch);
  if (head.size() < 10 || !std::equal(magic.begin(), magic.end(), head.begin(),
                                      [](char a, std::uint8_t b) { return a == char(b); }))
    fail<DataError>("{}: is not a .npy file; write it with numpy.save", path);
  const int version = head[6];
  if (version < 1 || version > 3 || head[7] != 0)
    fail<DataError>("{}: byte 6: .npy version {}.{}; versions 1.0, 2.0 and 3.0 are supported", path,
                    version, head[7]);
  const std::uint64_t begin = version == 1 ? 10 : 12;
  std::uint64_t length = std::uint64_t{head[8]} | std::uint64_t{head[9]} << 8;
  if (version > 1 && head.size() == 12)
    length |= std::uint64_t{head[10]} << 16 | std::uint64_t{head[11]} << 24;
  if (length > max_header_bytes || begin + length > file.bytes())
    fail<DataError>(
        "{}: byte 8: a header of {} bytes, but the file has {} and at most {} are allowed", path,
        length, file.bytes(), max_header_bytes);
  const auto text = file.view(begin, length, scratch);
  NpyArray array =
      HeaderParser(path, {reinterpret_cast<const char*>(text.data()), text.size()}, begin).parse();
  array.offset = begin + length;
  const std::uint64_t data_bytes = file.bytes() - array.offset;
  if (!size_of(array, array.bytes) || array.bytes != data_bytes)
    fail<DataError>(
        "{}: the header announces ({}) of {} bytes each, but {} bytes follow it; copy it again",
        path, fmt::join(array.shape, ", "), size_bytes(array.type), data_bytes);
  return array;
}

std::string npy_beginning(StoredType type, std::span<const std::uint64_t> shape) {
  const auto found = std::ranges::find(types, type, [](const auto& entry) { return entry.second; });
  if (found == types.end()) fail<UsageError>(".npy files of {} are not supported", name(type));
  std::string text =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", found->first,
                  fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  constexpr std::size_t head = 10;
  text.resize((head + text.size() + 1 + 63) / 64 * 64 - head - 1, ' ');  // data at a multiple of 64
  text += '\n';
  return std::string(magic) + '\1' + '\0' + static_cast<char>(text.size() & 0xff) +
         static_cast<char>(text.size() >> 8) + text;
}

namespace {

std::string path_of(const std::string& spec, Split split, const char* what) {
  return fmt::format("{}/{}-{}.npy", spec, name(split), what);
}

std::vector<std::int32_t> labels_of(const std::string& spec, Split split) {
  const MappedFile file(path_of(spec, split, "labels"), Io::pread);
  const NpyArray array = read_npy_header(file);
  if (array.shape.size() != 1)
    fail<DataError>("{}: has the shape ({}); labels must have one dimension", file.path(),
                    fmt::join(array.shape, ", "));
  std::vector<std::uint8_t> scratch;
  return read_labels(array.type, file.view(array.offset, array.bytes, scratch), file.path());
}

}  // namespace

bool has_npy_files(const std::string& spec, Split split) {
  return exists(path_of(spec, split, "images"));
}

std::unique_ptr<Dataset> open_npy(const std::string& spec, Split split,
                                  const OpenOptions& options) {
  MappedParts parts;
  parts.kind = "NPY";
  parts.file = std::make_unique<MappedFile>(path_of(spec, split, "images"), options.io);
  const std::string& path = parts.file->path();
  const NpyArray images = read_npy_header(*parts.file);
  const std::vector<std::uint64_t>& shape = images.shape;
  if (images.type != StoredType::u8 || shape.size() < 3 || shape.size() > 4)
    fail<DataError>(
        "{}: has {} of shape ({}); images must be uint8 of [samples, height, width] or "
        "[samples, height, width, channels]",
        path, name(images.type), fmt::join(shape, ", "));
  parts.shape = image_shape_of(shape[1], shape[2], shape.size() == 4 ? shape[3] : 1, path);
  parts.offset = images.offset;
  parts.labels = labels_of(spec, split);
  if (parts.labels.size() != shape[0])
    fail<DataError>("{}: has {} images, but there are {} labels", path, shape[0],
                    parts.labels.size());
  parts.classes = read_class_names(spec);
  if (parts.classes.empty()) {  // the training split, if it exists, defines their number
    const bool own = split == Split::train || !exists(path_of(spec, Split::train, "labels"));
    parts.classes = numbered_classes(own ? parts.labels : labels_of(spec, Split::train));
  }
  check_labels(parts.labels, parts.classes.size(), path_of(spec, split, "labels"));
  return std::make_unique<MappedImages>(std::move(parts));
}

}  // namespace warpstep::data
