// Writes protobuf's wire format, without its library: a message is its fields one after the other.
// https://protobuf.dev/programming-guides/encoding/
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace warpstep::profiler {

class ProtoMessage {
 public:
  ProtoMessage& varint(std::uint32_t field, std::uint64_t value) {
    tag(field, 0);
    raw_varint(value);
    return *this;
  }
  ProtoMessage& fixed64(std::uint32_t field, std::uint64_t value) {
    tag(field, 1);
    little_endian(value, 8);
    return *this;
  }
  ProtoMessage& float64(std::uint32_t field, double value) {
    return fixed64(field, std::bit_cast<std::uint64_t>(value));
  }
  ProtoMessage& float32(std::uint32_t field, float value) {
    tag(field, 5);
    little_endian(std::bit_cast<std::uint32_t>(value), 4);
    return *this;
  }
  ProtoMessage& text(std::uint32_t field, std::string_view bytes) {
    tag(field, 2);
    raw_varint(bytes.size());
    bytes_.append(bytes);
    return *this;
  }
  ProtoMessage& message(std::uint32_t field, const ProtoMessage& inner) {
    return text(field, inner.bytes_);
  }

  ProtoMessage& fields(const ProtoMessage& more) {
    bytes_ += more.bytes_;
    return *this;
  }

  const std::string& bytes() const { return bytes_; }
  bool empty() const { return bytes_.empty(); }
  void clear() { bytes_.clear(); }

 private:
  void tag(std::uint32_t field, std::uint32_t wire) {
    raw_varint(std::uint64_t{field} << 3 | wire);
  }
  void raw_varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }
  void little_endian(std::uint64_t value, int count) {
    for (int i = 0; i < count; ++i) bytes_.push_back(static_cast<char>(value >> (8 * i)));
  }

  std::string bytes_;
};

}  // namespace warpstep::profiler
