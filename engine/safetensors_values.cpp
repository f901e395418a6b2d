#include "engine/safetensors_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "engine/core/error.h"

namespace warpstep {
namespace {

constexpr std::uint64_t piece_elements = std::uint64_t{1} << 17;

template <class Stored, class Value, class Convert>
void decode_as(std::span<const std::byte> bytes, std::span<Value> values, Convert convert) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + i * sizeof stored, sizeof stored);
    values[i] = static_cast<Value>(convert(stored));
  }
}

template <class Value>
void decode_any(StoredType type, std::span<const std::byte> bytes, std::span<Value> values) {
  if (bytes.size() != values.size() * size_bytes(type))
    fail<UsageError>("{} bytes of {} are not {} numbers", bytes.size(), name(type), values.size());
  const auto same = [](auto value) { return value; };
  switch (type) {
    case StoredType::f32: return decode_as<float>(bytes, values, same);
    case StoredType::f64: return decode_as<double>(bytes, values, same);
    case StoredType::f16: return decode_as<std::uint16_t>(bytes, values, from_f16);
    case StoredType::bf16: return decode_as<std::uint16_t>(bytes, values, from_bf16);
    case StoredType::u8:
    case StoredType::boolean: return decode_as<std::uint8_t>(bytes, values, same);
    case StoredType::u16: return decode_as<std::uint16_t>(bytes, values, same);
    case StoredType::u32: return decode_as<std::uint32_t>(bytes, values, same);
    case StoredType::u64: return decode_as<std::uint64_t>(bytes, values, same);
    case StoredType::i8: return decode_as<std::int8_t>(bytes, values, same);
    case StoredType::i16: return decode_as<std::int16_t>(bytes, values, same);
    case StoredType::i32: return decode_as<std::int32_t>(bytes, values, same);
    case StoredType::i64: return decode_as<std::int64_t>(bytes, values, same);
  }
}

// The tensor's numbers in pieces, as floats or as doubles.
template <class Value, class Visit>
void decode_pieces(const SafetensorsFile& file, const StoredTensor& tensor, Visit visit) {
  const std::uint64_t size = size_bytes(tensor.type);
  const std::uint64_t count = tensor.bytes / size;
  std::vector<std::byte> bytes(std::min(count, piece_elements) * size);
  std::vector<Value> values(std::min(count, piece_elements));
  for (std::uint64_t at = 0; at < count; at += piece_elements) {
    const std::uint64_t now = std::min(count - at, piece_elements);
    const std::span<std::byte> raw = std::span(bytes).first(now * size);
    file.read_part(tensor, at * size, raw);
    decode(tensor.type, raw, std::span(values).first(now));
    visit(std::span<const Value>(values).first(now));
  }
}

}  // namespace

bool is_float(StoredType type) {
  return type == StoredType::f32 || type == StoredType::f16 || type == StoredType::bf16 ||
         type == StoredType::f64;
}

float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float from_f16(std::uint16_t bits) {
  const std::uint32_t sign = std::uint32_t{bits & 0x8000U} << 16;
  const std::uint32_t exponent = bits >> 10 & 0x1f;
  const std::uint32_t mantissa = bits & 0x3ff;
  if (exponent == 0) {  // a multiple of 2^-24, exact
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return sign ? -magnitude : magnitude;
  }
  const std::uint32_t wide = exponent == 31 ? 0xff : exponent + 112;  // biases 15 and 127
  return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
}

std::uint16_t to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
  const std::uint32_t magnitude = bits & 0x7fffffff;
  const auto with_sign = [&](std::uint32_t half) {
    return static_cast<std::uint16_t>(sign | half);
  };
  if (magnitude > 0x7f800000) return with_sign(0x7e00 | (magnitude >> 13 & 0x3ff));
  if (magnitude >= 0x477ff000) return with_sign(0x7c00);  // 65520 and beyond round to infinity
  if (magnitude >= 0x38800000)                            // 2^-14: a normal number
    return with_sign((magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13);
  // The sum's last digit is 2^-24, so the addition rounds as the format does.
  const float rounded = std::bit_cast<float>(magnitude) + 0.5F;
  return with_sign(std::bit_cast<std::uint32_t>(rounded) - 0x3f000000);
}

void decode(StoredType type, std::span<const std::byte> bytes, std::span<float> values) {
  decode_any(type, bytes, values);
}

void decode(StoredType type, std::span<const std::byte> bytes, std::span<double> values) {
  decode_any(type, bytes, values);
}

void encode(StoredType type, std::span<const float> values, std::span<std::byte> bytes) {
  if (type != StoredType::f32 && type != StoredType::f16 && type != StoredType::bf16)
    fail<UsageError>("values are written as F32, F16 or BF16, not as {}", name(type));
  if (bytes.size() != values.size() * size_bytes(type))
    fail<UsageError>("{} numbers do not fill {} bytes of {}", values.size(), bytes.size(),
                     name(type));
  if (type == StoredType::f32) {
    std::ranges::copy(std::as_bytes(values), bytes.begin());
    return;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t half = type == StoredType::f16 ? to_f16(values[i]) : to_bf16(values[i]);
    std::memcpy(bytes.data() + i * sizeof half, &half, sizeof half);
  }
}

void for_each_piece(const SafetensorsFile& file, const StoredTensor& tensor,
                    const std::function<void(std::span<const float>)>& visit) {
  // Weights that another program wrote have no checksum.
  const auto expected = file.metadata().find(std::string(checksum_prefix) + tensor.name);
  const bool checked = expected != file.metadata().end() && tensor.type == StoredType::f32;
  ValueChecksum checksum;
  decode_pieces<float>(file, tensor, [&](std::span<const float> values) {
    if (checked) checksum.add(values);
    visit(values);
  });
  if (checked && expected->second != checksum.text())
    fail<DataError>(
        "{}: byte {}: {} is not as it was saved (wrong checksum); the disk or a copy damaged it: "
        "use another checkpoint",
        file.path().string(), tensor.offset, tensor.name);
}

std::vector<float> read_values(const SafetensorsFile& file, const StoredTensor& tensor) {
  std::vector<float> all;
  all.reserve(tensor.bytes / size_bytes(tensor.type));
  for_each_piece(file, tensor, [&](std::span<const float> values) {
    all.insert(all.end(), values.begin(), values.end());
  });
  return all;
}

// Sums of the differences from the first finite value: numbers that are far from zero and close to
// each other keep their digits.
TensorStatistics statistics(const SafetensorsFile& file, const StoredTensor& tensor) {
  TensorStatistics found;
  std::optional<double> origin;
  double sum = 0, squares = 0;
  decode_pieces<double>(file, tensor, [&](std::span<const double> values) {
    for (const double value : values) {
      if (!std::isfinite(value)) {
        ++(std::isnan(value) ? found.nan : found.infinite);
        continue;
      }
      if (!origin) origin = found.min = found.max = value;
      found.min = std::min(found.min, value);
      found.max = std::max(found.max, value);
      const double difference = value - *origin;
      sum += difference;
      squares += difference * difference;
      ++found.finite;
    }
  });
  if (found.finite == 0) return found;
  const auto count = static_cast<double>(found.finite);
  found.mean = *origin + sum / count;
  found.std = std::sqrt(std::max(0.0, squares / count - sum / count * (sum / count)));
  return found;
}

void ValueChecksum::add(std::span<const float> values) {
  for (const float value : values)
    hash_ = (hash_ ^ std::bit_cast<std::uint32_t>(value)) * 0x100000001b3;
}

std::string ValueChecksum::text() const {
  return fmt::format("{:016x}", hash_);
}

}  // namespace warpstep
