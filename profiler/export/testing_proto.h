// Reads protobuf's wire format in tests: fields by number, in order.
#pragma once

#include <bit>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace warpstep::profiler::testing {

struct ProtoField {
  std::uint32_t number = 0;
  std::uint32_t wire = 0;
  std::uint64_t value = 0;  // of varints and fixed ones
  std::string_view bytes;   // of what has a length
};

class ProtoView {
 public:
  // Throws std::runtime_error for what is no message.
  explicit ProtoView(std::string_view bytes) {
    for (std::size_t at = 0; at < bytes.size();) fields_.push_back(next(bytes, at));
  }

  const std::vector<ProtoField>& fields() const { return fields_; }
  const ProtoField* find(std::uint32_t number) const {
    for (const ProtoField& field : fields_)
      if (field.number == number) return &field;
    return nullptr;
  }
  bool has(std::uint32_t number) const { return find(number) != nullptr; }
  std::uint64_t number(std::uint32_t number, std::uint64_t otherwise = 0) const {
    const ProtoField* found = find(number);
    return found == nullptr ? otherwise : found->value;
  }
  double real(std::uint32_t field) const { return std::bit_cast<double>(number(field)); }
  float real32(std::uint32_t field) const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(number(field)));
  }
  std::string text(std::uint32_t number) const {
    const ProtoField* found = find(number);
    return found == nullptr ? std::string() : std::string(found->bytes);
  }
  ProtoView message(std::uint32_t number) const {
    const ProtoField* found = find(number);
    return ProtoView(found == nullptr ? std::string_view() : found->bytes);
  }
  std::vector<ProtoView> messages(std::uint32_t number) const {
    std::vector<ProtoView> all;
    for (const ProtoField& field : fields_)
      if (field.number == number) all.emplace_back(field.bytes);
    return all;
  }
  std::vector<std::uint64_t> numbers(std::uint32_t number) const {
    std::vector<std::uint64_t> all;
    for (const ProtoField& field : fields_)
      if (field.number == number) all.push_back(field.value);
    return all;
  }

 private:
  static std::uint64_t varint(std::string_view bytes, std::size_t& at) {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(bytes, at, 1)[0]);
      value |= std::uint64_t{byte & 0x7FU} << (shift & 63U);
      if (byte < 0x80) return value;
    }
    throw std::runtime_error("a varint of more than ten bytes");
  }
  static std::string_view take(std::string_view bytes, std::size_t& at, std::uint64_t count) {
    if (count > bytes.size() - at) throw std::runtime_error("a message is cut short");
    const std::string_view taken = bytes.substr(at, count);
    at += count;
    return taken;
  }
  static ProtoField next(std::string_view bytes, std::size_t& at) {
    const std::uint64_t tag = varint(bytes, at);
    ProtoField field{.number = static_cast<std::uint32_t>(tag >> 3),
                     .wire = static_cast<std::uint32_t>(tag & 7)};
    if (field.number == 0) throw std::runtime_error("a field of number 0");
    if (field.wire == 0) {
      field.value = varint(bytes, at);
    } else if (field.wire == 2) {
      field.bytes = take(bytes, at, varint(bytes, at));
    } else if (field.wire == 1 || field.wire == 5) {
      const std::string_view fixed = take(bytes, at, field.wire == 1 ? 8 : 4);
      for (std::size_t i = fixed.size(); i-- > 0;)
        field.value = field.value << 8 | static_cast<unsigned char>(fixed[i]);
    } else {
      throw std::runtime_error("an unused wire type");
    }
    return field;
  }

  std::vector<ProtoField> fields_;
};

}  // namespace warpstep::profiler::testing
