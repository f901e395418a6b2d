#include "engine/safetensors_header.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "engine/core/error.h"

namespace warpstep::safetensors {
namespace {

using nlohmann::json;

constexpr std::array all_types = {
    StoredType::f32, StoredType::f16, StoredType::bf16,   StoredType::f64, StoredType::u8,
    StoredType::u16, StoredType::u32, StoredType::u64,    StoredType::i8,  StoredType::i16,
    StoredType::i32, StoredType::i64, StoredType::boolean};

// Tells the parser's caller how far it has come: JSON events carry no position of their own.
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

// Takes the parser's events in the one order that a header can have and fails at the first other
// one, so nothing is built from what will be refused.
class Events : public nlohmann::json_sax<json> {
 public:
  Events(const std::string& path, std::string_view text) : path_(path), text_(text) {}

  const char** furthest() { return &furthest_; }
  Header take() { return std::move(header_); }

  bool key(string_t& key) override {
    if (where_ == Where::metadata) {
      if (header_.metadata.contains(key)) refuse("the key {} twice", printable(key));
    } else if (where_ == Where::file) {
      tensor_ = {.name = key, .type = {}, .shape = {}};
      type_.reset(), shape_.reset(), offsets_.reset();
      if (!names_.insert(key).second) refuse("its name twice");
    } else if ((key == "dtype" && type_) || (key == "shape" && shape_) ||
               (key == "data_offsets" && offsets_)) {
      refuse("{} twice", printable(key));
    } else if (key != "dtype" && key != "shape" && key != "data_offsets") {
      refuse("the field {}, which is none of dtype, shape, data_offsets", printable(key));
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
    const auto type = std::ranges::find(all_types, value, [](StoredType t) { return name(t); });
    if (type == all_types.end())
      refuse("the dtype {}; F16, BF16, F32, F64, BOOL and integers of 8 to 64 bits are supported",
             printable(value));
    type_ = *type;
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (where_ != Where::shape && where_ != Where::offsets) return unexpected("a number");
    auto& list = where_ == Where::shape ? *shape_ : *offsets_;
    const std::size_t most = where_ == Where::shape ? max_rank : 2;
    if (list.size() == most) refuse("more than {} numbers in {}", most, printable(key_));
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
                   const json::exception& error) override {
    fail<DataError>("{}: byte {}: the header is not valid JSON: {:.200}", path_,
                    length_bytes + position - std::min<std::size_t>(position, 1), error.what());
  }

 private:
  enum class Where { start, file, metadata, tensor, shape, offsets, end };

  void finish_tensor() {
    if (!type_ || !shape_ || !offsets_)
      refuse("no {}", !type_ ? "dtype" : !shape_ ? "shape" : "data_offsets");
    if (offsets_->size() != 2 || (*offsets_)[0] > (*offsets_)[1])
      refuse("data_offsets [{}], which is no begin and end", fmt::join(*offsets_, ","));
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
    refuse("{} where the format has {}", what, expected());
  }

  std::string_view expected() const {
    switch (where_) {
      case Where::start: return "an object";
      case Where::file: return "the object of a tensor";
      case Where::metadata: return "a string";
      case Where::tensor: return key_ == "dtype" ? "a string" : "a list";
      case Where::shape:
      case Where::offsets: return "a whole number from 0 on";
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
      default: return "tensor " + printable(tensor_.name);
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

// Sorts by place and makes offsets those of the file. One pass proves both that no two tensors
// share a byte and that every byte has its tensor.
void place(const std::string& path, Header& header, std::uint64_t data_begin,
           std::uint64_t data_bytes) {
  auto& tensors = header.tensors;
  std::ranges::sort(tensors, {}, [](const StoredTensor& tensor) {
    return std::tuple(tensor.offset, tensor.bytes, std::string_view(tensor.name));
  });
  std::uint64_t covered = 0;
  std::string before = "the header";
  for (StoredTensor& tensor : tensors) {
    const std::uint64_t end = tensor.offset + tensor.bytes;  // was one 64-bit number in the file
    if (end > data_bytes)
      fail<DataError>("{}: tensor {} ends at data byte {}, but the file has {} bytes of data{}",
                      path, printable(tensor.name), end, data_bytes,
                      "; it is truncated or its header is wrong");
    if (tensor.offset != covered)
      fail<DataError>("{}: byte {}: tensor {} begins at data byte {}, but {} ends at {}: {}", path,
                      data_begin + tensor.offset, printable(tensor.name), tensor.offset, before,
                      covered, tensor.offset < covered ? "they overlap" : "a hole");
    covered = end;
    before = printable(tensor.name);
    tensor.offset += data_begin;
  }
  if (covered != data_bytes)
    fail<DataError>("{}: byte {}: {} bytes after the last tensor belong to none", path,
                    data_begin + covered, data_bytes - covered);
}

}  // namespace

bool size_of(StoredType type, const std::vector<std::uint64_t>& shape, std::uint64_t& bytes) {
  bytes = size_bytes(type);
  bool fits = true;
  // A zero extent makes the product zero whatever the others are, so look for one first.
  if (std::ranges::find(shape, 0U) != shape.end()) bytes = 0;
  for (const std::uint64_t extent : shape) fits &= !__builtin_mul_overflow(bytes, extent, &bytes);
  return fits;
}

std::string printable(std::string_view name) {
  constexpr std::size_t most = 80;
  const bool cut = name.size() > most;
  return json(name.substr(0, most)).dump(-1, ' ', true, json::error_handler_t::replace) +
         (cut ? "..." : "");
}

Header parse_header(const std::string& path, std::string_view text, std::uint64_t data_bytes) {
  Events events(path, text);
  const char* const end = text.data() + text.size();
  json::sax_parse(CountingIterator{text.data(), events.furthest()},
                  CountingIterator{end, events.furthest()}, &events);
  Header header = events.take();
  place(path, header, length_bytes + text.size(), data_bytes);
  return header;
}

}  // namespace warpstep::safetensors
