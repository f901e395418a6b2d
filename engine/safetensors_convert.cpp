#include "engine/safetensors_convert.h"

#include <algorithm>
#include <cmath>

#include "engine/core/error.h"
#include "engine/core/text.h"
#include "engine/safetensors_header.h"
#include "engine/safetensors_values.h"

namespace warpstep {
namespace {

namespace fs = std::filesystem;
using safetensors::printable;

struct Move {
  const StoredTensor* from = nullptr;
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
                     printable(prefix), moves.empty() ? "none" : printable(moves[0].to.name));
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
                     printable(before), printable(before + "."),
                     suggestion(before, names_of(moves)));
  return renamed;
}

// What goes where; wide elements first, so that all of them are aligned.
std::vector<Move> plan(const SafetensorsFile& file, const ConvertOptions& options,
                       ConvertReport& report) {
  std::vector<Move> moves;
  for (const StoredTensor& tensor : file.tensors()) {
    if (options.drop_optimizer &&
        (tensor.name.starts_with(optimizer_prefix) || tensor.name.starts_with(average_prefix))) {
      ++report.dropped;
      continue;
    }
    Move& move = moves.emplace_back(Move{&tensor, tensor});
    if (!options.type || !is_float(tensor.type) || tensor.type == *options.type) continue;
    move.to.type = *options.type;
    move.to.bytes = tensor.bytes / size_bytes(tensor.type) * size_bytes(*options.type);
    ++report.converted;
  }
  if (!options.strip_prefix.empty())
    report.stripped = strip(moves, options.strip_prefix, file.path());
  for (const auto& rule : options.renames) report.renamed += rename(moves, rule, file.path());
  std::ranges::stable_sort(moves, std::greater<>(),
                           [](const Move& move) { return size_bytes(move.to.type); });
  report.tensors = moves.size();
  return moves;
}

Metadata metadata_of(const SafetensorsFile& file) {
  Metadata kept{{"format", "pt"}};  // transformers wants to be told
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

std::uint64_t write_values(const SafetensorsFile& file, const Move& move, AtomicFile& out) {
  std::uint64_t infinite = 0;
  std::vector<std::byte> bytes;
  std::vector<float> again;
  for_each_piece(file, *move.from, [&](std::span<const float> values) {
    bytes.resize(values.size() * size_bytes(move.to.type));
    again.resize(values.size());
    encode(move.to.type, values, bytes);
    decode(move.to.type, bytes, std::span(again));
    for (std::size_t i = 0; i < values.size(); ++i)
      infinite += std::isinf(again[i]) && std::isfinite(values[i]) ? 1 : 0;
    out.write(bytes);
  });
  return infinite;
}

}  // namespace

ConvertReport convert_safetensors(const fs::path& in, const fs::path& out,
                                  const ConvertOptions& options) {
  const SafetensorsFile file(in);
  std::error_code ignored;
  if (fs::equivalent(in, out, ignored))
    fail<UsageError>("{}: is the file that is read; write to another", out.string());
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
    // F32 that stays so is read as numbers too: it may have a checksum.
    if (move.to.type == move.from->type && move.to.type != StoredType::f32)
      copy_bytes(file, *move.from, written);
    else
      report.infinite += write_values(file, move, written);
  }
  written.commit();
  return report;
}

}  // namespace warpstep
