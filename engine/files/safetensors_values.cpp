#include "engine/files/safetensors_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>

#include "engine/core/bf16.h"
#include "engine/core/error.h"
#include "engine/core/text.h"

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

// Calls `visit` with the tensor's numbers in pieces, as floats or as doubles.
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
  return widened(Bf16{bits});
}

std::uint16_t to_bf16(float value) {
  return narrowed(value).bits;
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

// Sums differences from the first finite value: numbers far from zero and close to each other keep
// their digits.
TensorStatistics statistics(const SafetensorsFile& file, const StoredTensor& tensor) {
  TensorStatistics found;
  std::optional<double> origin;
  double unit = 0, sum = 0, squares = 0;  // half the differences, in units that keep squares finite
  decode_pieces<double>(file, tensor, [&](std::span<const double> values) {
    for (const double value : values) {
      if (!std::isfinite(value)) {
        ++(std::isnan(value) ? found.nan : found.infinite);
        continue;
      }
      if (!origin) origin = found.min = found.max = value;
      found.min = std::min(found.min, value);
      found.max = std::max(found.max, value);
      ++found.finite;
      const double half = value / 2 - *origin / 2;
      if (half == 0) continue;
      if (std::abs(half) >= 2 * unit) {
        const double grown = std::exp2(std::ilogb(half)), ratio = unit / grown;
        sum *= ratio;
        squares *= ratio * ratio;
        unit = grown;
      }
      sum += half / unit;
      squares += half / unit * (half / unit);
    }
  });
  if (found.finite == 0) return found;
  const auto count = static_cast<double>(found.finite);
  const double mean = sum / count;
  found.mean = *origin + unit * mean + unit * mean;  // twice a half may be infinite
  found.std = 2 * (unit * std::sqrt(std::max(0.0, squares / count - mean * mean)));
  return found;
}

void ValueChecksum::add(std::span<const float> values) {
  for (const float value : values)
    hash_ = (hash_ ^ std::bit_cast<std::uint32_t>(value)) * 0x100000001b3;
}

std::string ValueChecksum::text() const {
  return fmt::format("{:016x}", hash_);
}

namespace {

namespace fs = std::filesystem;

struct Move {
  const StoredTensor* from = nullptr;  // null: zeros
  StoredTensor to;
};

std::vector<std::string> names_of(const std::vector<Move>& moves) {
  std::vector<std::string> names;
  for (const Move& move : moves) names.push_back(move.to.name);
  return names;
}

std::size_t strip(std::vector<Move>& moves, const std::string& prefix, const fs::path& path) {
  std::size_t stripped = 0;
  for (Move& move : moves) {
    if (!move.to.name.starts_with(prefix) || move.to.name == prefix) continue;
    move.to.name.erase(0, prefix.size());
    ++stripped;
  }
  if (stripped == 0)
    fail<UsageError>("{}: no tensor's name begins with {}; the first is {}", path.string(),
                     printable_name(prefix),
                     moves.empty() ? "none" : printable_name(moves[0].to.name));
  return stripped;
}

std::size_t rename(std::vector<Move>& moves, const std::pair<std::string, std::string>& rule,
                   const fs::path& path) {
  const auto& [before, after] = rule;
  std::size_t renamed = 0;
  for (Move& move : moves) {
    std::string& name = move.to.name;
    if (name != before && !name.starts_with(before + ".")) continue;
    name.replace(0, before.size(), after);
    ++renamed;
  }
  if (renamed == 0)
    fail<UsageError>("{}: no tensor is called {}, and no name begins with {}{}", path.string(),
                     printable_name(before), printable_name(before + "."),
                     suggestion(before, names_of(moves)));
  return renamed;
}

// The average of a tensor in a checkpoint, null if there is none of its type and shape.
const StoredTensor* average_of(const SafetensorsFile& file, const StoredTensor& tensor) {
  const StoredTensor* average = file.find(fmt::format("{}{}", average_prefix, tensor.name));
  return average && average->type == tensor.type && average->shape == tensor.shape ? average
                                                                                   : nullptr;
}

void add_zeros(const ConvertOptions& options, std::vector<Move>& moves) {
  for (StoredTensor zeros : options.zeros) {
    zeros.type = options.type.value_or(StoredType::f32);
    zeros.bytes = size_bytes(zeros.type);
    for (const std::uint64_t extent : zeros.shape) zeros.bytes *= extent;
    moves.push_back({nullptr, zeros});
  }
}

// The tensors to write; wide elements first, so that all of them are aligned.
std::vector<Move> plan(const SafetensorsFile& file, const ConvertOptions& options,
                       ConvertReport& report) {
  std::vector<Move> moves;
  for (const StoredTensor& tensor : file.tensors()) {
    const bool of_optimizer = tensor.name.starts_with(optimizer_prefix);
    const bool is_average = tensor.name.starts_with(average_prefix);
    report.averages += is_average ? 1 : 0;
    if (options.drop_optimizer && (of_optimizer || is_average)) {
      report.dropped += of_optimizer ? 1 : 0;
      continue;
    }
    Move& move = moves.emplace_back(Move{&tensor, tensor});
    if (const StoredTensor* average = average_of(file, tensor); options.use_average && average) {
      move.from = average;
      ++report.averaged;
    }
    if (!options.type || !is_float(tensor.type) || tensor.type == *options.type) continue;
    move.to.type = *options.type;
    move.to.bytes = tensor.bytes / size_bytes(tensor.type) * size_bytes(*options.type);
    ++report.converted;
  }
  if (!options.strip_prefix.empty())
    report.stripped = strip(moves, options.strip_prefix, file.path());
  for (const auto& rule : options.renames) report.renamed += rename(moves, rule, file.path());
  add_zeros(options, moves);
  std::ranges::stable_sort(moves, std::greater<>(),
                           [](const Move& move) { return size_bytes(move.to.type); });
  report.tensors = moves.size();
  return moves;
}

Metadata metadata_of(const SafetensorsFile& file) {
  Metadata kept{{"format", "pt"}};  // required by the transformers library
  for (const auto& [key, value] : file.metadata())
    if (!key.starts_with("warpstep.") || key == "warpstep.model") kept[key] = value;
  return kept;
}

void copy_bytes(const SafetensorsFile& file, const StoredTensor& tensor, AtomicFile& out) {
  std::vector<std::byte> piece(std::min<std::uint64_t>(tensor.bytes, std::uint64_t{1} << 20));
  for (std::uint64_t at = 0; at < tensor.bytes; at += piece.size()) {
    piece.resize(std::min<std::uint64_t>(piece.size(), tensor.bytes - at));
    file.read_part(tensor, at, piece);
    out.write(piece);
  }
}

// To be rounded again, to 16 bits. What a float cannot hold becomes the neighbour whose last bit is
// set, so that a number next to a tie stays next to it.
float rounded_to_odd(double value) {
  const auto near = static_cast<float>(value);
  const auto back = static_cast<double>(near);
  if (back == value || std::isnan(value)) return near;
  const std::uint32_t beyond = std::abs(back) > std::abs(value) ? 1 : 0;
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(near) - beyond) | 1);
}

std::uint64_t write_values(const SafetensorsFile& file, const Move& move, AtomicFile& out) {
  std::uint64_t infinite = 0;
  std::vector<std::byte> bytes;
  std::vector<float> floats;
  const auto write = [&](const auto& values) {
    bytes.resize(values.size() * size_bytes(move.to.type));
    floats.resize(values.size());
    std::ranges::transform(values, floats.begin(), [&](auto value) {
      return move.to.type == StoredType::f32 ? static_cast<float>(value) : rounded_to_odd(value);
    });
    encode(move.to.type, floats, bytes);
    decode(move.to.type, bytes, std::span(floats));
    for (std::size_t i = 0; i < values.size(); ++i)
      infinite += std::isinf(floats[i]) && std::isfinite(values[i]) ? 1 : 0;
    out.write(bytes);
  };
  if (move.from->type == StoredType::f64)
    decode_pieces<double>(file, *move.from, write);
  else
    for_each_piece(file, *move.from, write);
  return infinite;
}

}  // namespace

ConvertReport convert_safetensors(const fs::path& in, const fs::path& out,
                                  const ConvertOptions& options) {
  const SafetensorsFile file(in);
  std::error_code ignored;
  if (fs::equivalent(in, out, ignored))
    fail<UsageError>("{}: is the input file; write to another one", out.string());
  ConvertReport report;
  const std::vector<Move> moves = plan(file, options, report);
  std::vector<StoredTensor> tensors;
  for (const Move& move : moves) tensors.push_back(move.to);
  const std::string beginning = safetensors_beginning(out, tensors, metadata_of(file));
  report.bytes = beginning.size();
  for (const StoredTensor& tensor : tensors) report.bytes += tensor.bytes;
  AtomicFile written(out, report.bytes);
  written.write(beginning);
  for (const Move& move : moves) {
    // F32 is always read as numbers, even if it stays F32: it may have a checksum to verify.
    if (!move.from)
      written.write(std::vector<std::byte>(move.to.bytes));
    else if (move.to.type == move.from->type && move.to.type != StoredType::f32)
      copy_bytes(file, *move.from, written);
    else
      report.infinite += write_values(file, move, written);
  }
  written.commit();
  return report;
}

}  // namespace warpstep
