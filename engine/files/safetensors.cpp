#include "engine/files/safetensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <exception>
#include <functional>
#include <iterator>
#include <new>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "engine/core/checksum.h"
#include "engine/core/error.h"
#include "engine/core/json_text.h"
#include "engine/core/scratch.h"
#include "engine/core/text.h"
#include "engine/core/thread.h"

namespace warpstep {
namespace {

static_assert(std::endian::native == std::endian::little, "the format's bytes are little-endian");

constexpr std::uint64_t length_bytes = 8;                // the field that holds the length
constexpr std::uint64_t max_header_bytes = 100'000'000;  // the reference reader's limit
constexpr std::size_t max_rank = 32;
constexpr std::string_view metadata_name = "__metadata__";

constexpr std::array all_types = {
    StoredType::f32, StoredType::f16, StoredType::bf16,   StoredType::f64, StoredType::u8,
    StoredType::u16, StoredType::u32, StoredType::u64,    StoredType::i8,  StoredType::i16,
    StoredType::i32, StoredType::i64, StoredType::boolean};

// The checked JSON header of a file.
struct Header {
  Metadata metadata;
  std::vector<StoredTensor> tensors;  // in the data's order
};

// Elements times their size; false when that does not fit 64 bits.
bool size_of(StoredType type, const std::vector<std::uint64_t>& shape, std::uint64_t& bytes) {
  bytes = size_bytes(type);
  bool fits = true;
  // A zero extent makes the product zero whatever the others are, so look for one first.
  if (std::ranges::find(shape, 0U) != shape.end()) bytes = 0;
  for (const std::uint64_t extent : shape) fits &= !__builtin_mul_overflow(bytes, extent, &bytes);
  return fits;
}

// Reports to the parser's caller how far it has read: JSON events have no position.
struct CountingIterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at = nullptr;
  const char** furthest = nullptr;

  reference operator*() const { return *at; }
  CountingIterator& operator++() {
    *furthest = ++at;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at == other.at; }
};

// Accepts the parser's events only in the order of a valid header and fails at the first other one,
// so that nothing is built from a file that will be refused.
class HeaderEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderEvents(const std::string& path, std::string_view text) : path_(path), text_(text) {}

  const char** furthest() { return &furthest_; }
  Header take() { return std::move(header_); }

  bool key(string_t& key) override {
    if (where_ == Where::metadata) {
      if (header_.metadata.contains(key)) refuse("the key {} twice", printable_name(key));
    } else if (where_ == Where::file) {
      tensor_ = {.name = key, .type = {}, .shape = {}};
      type_.reset(), shape_.reset(), offsets_.reset();
      if (!names_.insert(key).second) refuse("its name twice");
    } else if ((key == "dtype" && type_) || (key == "shape" && shape_) ||
               (key == "data_offsets" && offsets_)) {
      refuse("{} twice", printable_name(key));
    } else if (key != "dtype" && key != "shape" && key != "data_offsets") {
      refuse("the field {}, expected only dtype, shape and data_offsets", printable_name(key));
    }
    key_ = key;
    return true;
  }

  bool string(string_t& value) override {
    if (where_ == Where::metadata) {
      header_.metadata.emplace(key_, value);
      return true;
    }
    if (where_ != Where::tensor || key_ != "dtype") return unexpected("a string");
    type_ = stored_type(value);
    if (!type_)
      refuse("the dtype {}; F16, BF16, F32, F64, BOOL and integers of 8 to 64 bits are supported",
             printable_name(value));
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (where_ != Where::shape && where_ != Where::offsets) return unexpected("a number");
    auto& list = where_ == Where::shape ? *shape_ : *offsets_;
    const std::size_t most = where_ == Where::shape ? max_rank : 2;
    if (list.size() == most) refuse("more than {} numbers in {}", most, printable_name(key_));
    list.push_back(value);
    return true;
  }

  bool start_object(std::size_t) override {
    if (where_ == Where::start)
      where_ = Where::file;
    else if (where_ == Where::file)
      where_ = tensor_.name == metadata_name ? Where::metadata : Where::tensor;
    else
      return unexpected("an object");
    return true;
  }

  bool end_object() override {
    if (where_ == Where::tensor) finish_tensor();
    where_ = where_ == Where::file ? Where::end : Where::file;
    return true;
  }

  bool start_array(std::size_t) override {
    if (where_ != Where::tensor || key_ == "dtype") return unexpected("a list");
    (key_ == "shape" ? shape_ : offsets_).emplace();
    where_ = key_ == "shape" ? Where::shape : Where::offsets;
    return true;
  }

  bool end_array() override {
    where_ = Where::tensor;
    return true;
  }

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a truth value"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return unexpected("a number that is not a 64-bit integer");
  }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception& error) override {
    fail<DataError>("{}: byte {}: the header is not valid JSON: {:.200}", path_,
                    length_bytes + position - std::min<std::size_t>(position, 1), error.what());
  }

 private:
  enum class Where { start, file, metadata, tensor, shape, offsets, end };

  void finish_tensor() {
    if (!type_ || !shape_ || !offsets_)
      refuse("no {}", !type_ ? "dtype" : !shape_ ? "shape" : "data_offsets");
    if (offsets_->size() != 2 || (*offsets_)[0] > (*offsets_)[1])
      refuse("data_offsets [{}], which must be [begin, end]", fmt::join(*offsets_, ","));
    tensor_.type = *type_;
    tensor_.shape = *std::move(shape_);
    tensor_.offset = (*offsets_)[0];
    tensor_.bytes = (*offsets_)[1] - (*offsets_)[0];
    std::uint64_t needed = 0;
    if (!size_of(*type_, tensor_.shape, needed))
      refuse("the shape [{}], whose size does not fit 64 bits", fmt::join(tensor_.shape, ","));
    if (needed != tensor_.bytes)
      refuse("{} bytes of data for the shape [{}] of {}, which takes {}", tensor_.bytes,
             fmt::join(tensor_.shape, ","), name(*type_), needed);
    header_.tensors.push_back(std::move(tensor_));
  }

  bool unexpected(std::string_view what) const {
    refuse("{} where the format requires {}", what, expected());
  }

  std::string_view expected() const {
    switch (where_) {
      case Where::start: return "an object";
      case Where::file: return "the object of a tensor";
      case Where::metadata: return "a string";
      case Where::tensor: return key_ == "dtype" ? "a string" : "a list";
      case Where::shape:
      case Where::offsets: return "a whole number of at least 0";
      case Where::end: break;
    }
    return "nothing more";
  }

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail<DataError>("{}: byte {}: {} has {}", path_,
                    length_bytes + static_cast<std::uint64_t>(furthest_ - text_.data()) - 1,
                    subject(), fmt::format(format, std::forward<Args>(args)...));
  }

  std::string subject() const {
    switch (where_) {
      case Where::start:
      case Where::end: return "the header";
      case Where::metadata: return "the metadata";
      default: return "tensor " + printable_name(tensor_.name);
    }
  }

  const std::string& path_;
  std::string_view text_;
  const char* furthest_ = text_.data();
  Header header_;
  std::set<std::string> names_;
  Where where_ = Where::start;
  std::string key_;
  StoredTensor tensor_;
  std::optional<StoredType> type_;
  std::optional<std::vector<std::uint64_t>> shape_, offsets_;
};

// Sorts the tensors by their data and makes their offsets those of the file. One pass proves that
// no two tensors share a byte and that every byte belongs to a tensor.
void place_tensors(const std::string& path, Header& header, std::uint64_t data_begin,
                   std::uint64_t data_bytes) {
  auto& tensors = header.tensors;
  std::ranges::sort(tensors, {}, [](const StoredTensor& tensor) {
    return std::tuple(tensor.offset, tensor.bytes, std::string_view(tensor.name));
  });
  std::uint64_t covered = 0;
  std::string before = "the header";
  for (StoredTensor& tensor : tensors) {
    const std::uint64_t end = tensor.offset + tensor.bytes;  // one 64-bit number in the file
    if (end > data_bytes)
      fail<DataError>("{}: tensor {} ends at data byte {}, but the file has {} bytes of data{}",
                      path, printable_name(tensor.name), end, data_bytes,
                      "; it is truncated or its header is wrong");
    if (tensor.offset != covered)
      fail<DataError>("{}: byte {}: tensor {} begins at data byte {}, but {} ends at {}: {}", path,
                      data_begin + tensor.offset, printable_name(tensor.name), tensor.offset,
                      before, covered, tensor.offset < covered ? "they overlap" : "a hole");
    covered = end;
    before = printable_name(tensor.name);
    tensor.offset += data_begin;
  }
  if (covered != data_bytes)
    fail<DataError>("{}: byte {}: {} bytes after the last tensor belong to no tensor", path,
                    data_begin + covered, data_bytes - covered);
}

// `text` follows the length, `data_bytes` follow the text. Throws DataError that begins with
// `path`.
Header parse_header(const std::string& path, std::string_view text, std::uint64_t data_bytes) {
  if (const std::size_t zero = zero_byte(text); zero != std::string_view::npos)
    fail<DataError>("{}: byte {}: the header is not valid JSON: it has a zero byte", path,
                    length_bytes + zero);
  HeaderEvents events(path, text);
  const char *const begin = text.data(), *const end = begin + text.size();
  nlohmann::json::sax_parse(CountingIterator{begin, events.furthest()},
                            CountingIterator{end, events.furthest()}, &events);
  Header header = events.take();
  place_tensors(path, header, length_bytes + text.size(), data_bytes);
  return header;
}

// torch.save() writes a zip of pickles or one pickle; reading them means running their code, so
// they are never read.
void refuse_pickles(const InputFile& file) {
  std::array<std::byte, 4> begin{};
  file.read(0, begin);
  const bool zip = begin == std::array{std::byte{'P'}, std::byte{'K'}, std::byte{3}, std::byte{4}};
  const bool pickle =
      begin[0] == std::byte{0x80} && begin[1] >= std::byte{2} && begin[1] <= std::byte{5};
  if (!zip && !pickle) return;
  const std::string path = file.path().string();
  const std::string out = std::filesystem::path(path).replace_extension(".safetensors").string();
  fail<DataError>(
      "{}: is a {}, as torch.save() writes, which can run code when it is loaded; make a "
      "safetensors file of its state_dict, once: python3 -c 'import torch, sys, "
      "safetensors.torch as s; s.save_file({{k: v.contiguous().clone() for k, v in "
      "torch.load(sys.argv[1], map_location=\"cpu\", weights_only=True).items()}}, sys.argv[2], "
      "{{\"format\": \"pt\"}})' {} {}; where the state_dict is a part of what was saved, "
      "torch.load(...)[\"state_dict\"].items(), of nanoGPT [\"model\"]",
      path, zip ? "zip of pickles" : "pickle", shell_word(path), shell_word(out));
}

// The length that a header begins with leaves its last bytes 0; JSON has text there.
void refuse_json(const InputFile& file) {
  std::array<char, length_bytes> begin{};
  file.read(0, std::as_writable_bytes(std::span(begin)));
  if (begin.front() != '{' || begin.back() == 0) return;
  const std::string path = file.path().string();
  constexpr std::string_view index = ".index.json";
  if (!path.ends_with(index))
    fail<DataError>("{}: is JSON, not safetensors; give the file that holds the weights", path);
  const std::string folder = (file.path().parent_path() / "").string();
  fail<DataError>(
      "{}: is JSON that lists the files of sharded weights, which are read as one file; merge "
      "them, once: python3 -c 'import json, sys, safetensors.torch as s; s.save_file({{k: v for f "
      "in set(json.load(open(sys.argv[1]))[\"weight_map\"].values()) for k, v in "
      "s.load_file(sys.argv[2] + f).items()}}, sys.argv[2] + \"merged.safetensors\", "
      "{{\"format\": \"pt\"}})' {} {}",
      path, shell_word(path), shell_word(folder));
}

Header read_header(const InputFile& file) {
  const std::string path = file.path().string();
  if (file.bytes() < length_bytes)
    fail<DataError>("{}: not a safetensors file: {} bytes, and the header's length alone takes {}",
                    path, file.bytes(), length_bytes);
  std::uint64_t length = 0;
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  const std::uint64_t rest = file.bytes() - length_bytes;
  if (length > rest || length > max_header_bytes) {
    refuse_pickles(file);
    refuse_json(file);
    fail<DataError>(
        "{}: byte 0: a header of {} bytes, but {}; the file is truncated or not safetensors", path,
        length,
        length > rest ? fmt::format("only {} follow", rest)
                      : fmt::format("at most {} are allowed", max_header_bytes));
  }
  std::string text(length, '\0');
  file.read(length_bytes, std::as_writable_bytes(std::span(text)));
  return parse_header(path, text, rest - length);
}

// Metadata that another program wrote has no checksum.
void check_metadata(const std::filesystem::path& path, const Metadata& metadata) {
  const auto expected = metadata.find(metadata_checksum_key);
  if (expected != metadata.end() && expected->second != metadata_checksum(metadata))
    fail<DataError>(
        "{}: the metadata is not as it was saved (wrong checksum); the disk or a copy damaged it: "
        "use another checkpoint",
        path.string());
}

std::string json_text(const std::filesystem::path& path, std::string_view text) {
  try {
    return strictly_quoted(text);
  } catch (const nlohmann::json::exception&) {
    fail<UsageError>("{}: {} is not UTF-8; names and metadata of safetensors must be",
                     path.string(), printable_name(text));
  }
}

void require_valid(const std::filesystem::path& path, const StoredTensor& tensor) {
  std::uint64_t needed = 0;
  if (tensor.name == metadata_name)
    fail<UsageError>("{}: a tensor cannot be called {}", path.string(), metadata_name);
  if (!size_of(tensor.type, tensor.shape, needed) || needed != tensor.bytes)
    fail<UsageError>("{}: tensor {} has {} bytes, but its shape [{}] of {} takes {}", path.string(),
                     printable_name(tensor.name), tensor.bytes, fmt::join(tensor.shape, ","),
                     name(tensor.type), needed);
}

}  // namespace

std::string_view name(StoredType type) {
  switch (type) {
    case StoredType::f32: return "F32";
    case StoredType::f16: return "F16";
    case StoredType::bf16: return "BF16";
    case StoredType::f64: return "F64";
    case StoredType::u8: return "U8";
    case StoredType::u16: return "U16";
    case StoredType::u32: return "U32";
    case StoredType::u64: return "U64";
    case StoredType::i8: return "I8";
    case StoredType::i16: return "I16";
    case StoredType::i32: return "I32";
    case StoredType::i64: return "I64";
    case StoredType::boolean: return "BOOL";
  }
  return "?";
}

std::size_t size_bytes(StoredType type) {
  switch (type) {
    case StoredType::u8:
    case StoredType::i8:
    case StoredType::boolean: return 1;
    case StoredType::f16:
    case StoredType::bf16:
    case StoredType::u16:
    case StoredType::i16: return 2;
    case StoredType::f32:
    case StoredType::u32:
    case StoredType::i32: return 4;
    case StoredType::f64:
    case StoredType::i64:
    case StoredType::u64: return 8;
  }
  return 0;
}

std::optional<StoredType> stored_type(std::string_view text) {
  const auto found = std::ranges::find(all_types, text, [](StoredType type) { return name(type); });
  return found == all_types.end() ? std::nullopt : std::optional(*found);
}

std::string printable_name(std::string_view name) {
  constexpr std::size_t most = 80;
  const bool cut = name.size() > most;
  return nlohmann::json(name.substr(0, most))
             .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) +
         (cut ? "..." : "");
}

// The lengths say where keys and values end.
std::string metadata_checksum(const Metadata& metadata) {
  std::string text;
  for (const auto& [key, value] : metadata)
    if (key.starts_with("warpstep.") && key != metadata_checksum_key)
      text += fmt::format("{} {} {}{}", key.size(), value.size(), key, value);
  return fmt::format(
      "{:08x}", crc32c(std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size())));
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) try : file_(path) {
  Header header = read_header(file_);
  check_metadata(path, header.metadata);
  metadata_ = std::move(header.metadata);
  tensors_ = std::move(header.tensors);
  for (std::size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
} catch (const std::bad_alloc&) {
  fail<DataError>("{}: out of memory while reading its header", path.string());
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

const StoredTensor& SafetensorsFile::at(std::string_view name) const {
  if (const StoredTensor* tensor = find(name)) return *tensor;
  std::vector<std::string> some;
  for (std::size_t i = 0; i < tensors_.size() && i < 8; ++i)
    some.push_back(printable_name(tensors_[i].name));
  fail<DataError>("{}: no tensor {} among its {}: {}{}", path().string(), printable_name(name),
                  tensors_.size(), fmt::join(some, ", "), tensors_.size() > 8 ? ", ..." : "");
}

void SafetensorsFile::read(const StoredTensor& tensor, std::span<std::byte> out) const {
  if (out.size() != tensor.bytes)
    fail<UsageError>("{}: tensor {} has {} bytes, but {} were requested", path().string(),
                     printable_name(tensor.name), tensor.bytes, out.size());
  file_.read(tensor.offset, out);
}

void SafetensorsFile::read_part(const StoredTensor& tensor, std::uint64_t begin,
                                std::span<std::byte> out) const {
  if (begin > tensor.bytes || out.size() > tensor.bytes - begin)
    fail<UsageError>("{}: tensor {} has {} bytes, but {} from byte {} on were requested",
                     path().string(), printable_name(tensor.name), tensor.bytes, out.size(), begin);
  file_.read(tensor.offset + begin, out);
}

std::string safetensors_beginning(const std::filesystem::path& path,
                                  std::span<const StoredTensor> tensors, const Metadata& metadata,
                                  std::size_t least_bytes) {
  std::string text(length_bytes, '\0');
  std::vector<std::string> entries;
  if (!metadata.empty()) {
    for (const auto& [key, value] : metadata)
      entries.push_back(json_text(path, key) + ":" + json_text(path, value));
    entries = {fmt::format("\"{}\":{{{}}}", metadata_name, fmt::join(entries, ","))};
  }
  std::set<std::string_view> names;
  std::uint64_t begin = 0;
  for (const StoredTensor& tensor : tensors) {
    require_valid(path, tensor);
    if (!names.insert(tensor.name).second)
      fail<UsageError>("{}: two tensors are called {}", path.string(), printable_name(tensor.name));
    const std::uint64_t end = begin + tensor.bytes;
    entries.push_back(fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                                  json_text(path, tensor.name), name(tensor.type),
                                  fmt::join(tensor.shape, ","), begin, end));
    begin = end;
  }
  text += fmt::format("{{{}}}", fmt::join(entries, ","));
  text.resize((std::max(text.size(), least_bytes) + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size() - length_bytes;
  if (length > max_header_bytes)
    fail<UsageError>("{}: a header of {} bytes; readers accept at most {}", path.string(), length,
                     max_header_bytes);
  std::memcpy(text.data(), &length, length_bytes);
  return text;
}

namespace {

std::uint64_t bytes_of(const TensorToStore& tensor) {
  if (!tensor.values) return tensor.bytes.size();
  return std::accumulate(tensor.shape.begin(), tensor.shape.end(), std::uint64_t{sizeof(float)},
                         std::multiplies<>());
}

constexpr std::uint64_t large_bytes = std::uint64_t{1} << 20;  // worth a thread's start

// Work that a thread of its own does beside the caller's, or this one at once.
class Beside {
 public:
  Beside(bool in_thread, const std::function<void()>& work) {
    const auto guarded = [this, work] {
      try {
        work();
      } catch (...) {
        error_ = std::current_exception();
      }
    };
    if (!in_thread || !try_start_thread(thread_, "checksum", guarded).empty()) guarded();
  }
  ~Beside() {
    if (thread_.joinable()) thread_.join();
  }
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;

  void finish() {
    if (thread_.joinable()) thread_.join();
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace

void write_safetensors(const std::filesystem::path& path, std::span<const TensorToStore> tensors,
                       Metadata metadata, const SeeValues& seen) {
  std::vector<StoredTensor> stored;
  std::uint64_t largest = 0;
  for (const TensorToStore& tensor : tensors) {
    stored.push_back({tensor.name, tensor.type, tensor.shape, 0, bytes_of(tensor)});
    if (tensor.values) largest = std::max(largest, stored.back().bytes);
  }
  const std::string header = safetensors_beginning(path, stored, metadata);
  std::uint64_t bytes = header.size();
  for (const StoredTensor& tensor : stored) bytes += tensor.bytes;
  AtomicFile file(path, bytes);
  file.write(header);
  Scratch memory;
  memory.floats(largest / sizeof(float));
  for (const TensorToStore& tensor : tensors) {
    if (!tensor.values) {
      file.write(tensor.bytes);
      continue;
    }
    const std::span<float> values = memory.floats(bytes_of(tensor) / sizeof(float));
    tensor.values(values);
    Beside looking(values.size_bytes() >= large_bytes && seen, [&] {
      if (seen) seen(tensor, values, metadata);
    });
    file.write(std::as_bytes(values));
    looking.finish();
  }
  if (seen) {
    const std::string again = safetensors_beginning(path, stored, metadata);
    if (again.size() != header.size())
      fail<UsageError>("{}: the metadata changed its length while the file was written",
                       path.string());
    file.rewrite_beginning(again);
  }
  file.commit();
}

}  // namespace warpstep
