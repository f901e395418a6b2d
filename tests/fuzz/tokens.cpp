// Token files of llm.c and nanoGPT: the tokens end where the file ends, and every way of reading
// them agrees. What is written is read again.
#include "data/formats/tokens.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>

#include "data/write/token_writer.h"
#include "engine/core/error.h"
#include "tests/fuzz/harness/target.h"

namespace warpstep::fuzz::tokens_target {
namespace {

using Ids = std::vector<std::int32_t>;

Ids all_of(const data::TokenSet& set) {
  Ids ids(set.size());
  set.read(0, ids);
  return ids;
}

Bytes written(const Ids& ids, data::TokenFormat format, std::int64_t vocabulary) {
  const std::string path = file_of("written.bin", {});
  std::filesystem::remove(path);
  data::TokenWriter writer(path, {format, vocabulary, "bpe"});
  writer.append(ids);
  writer.finish();
  Bytes file;
  data::read_into(file, path);
  return file;
}

std::optional<data::TokenSet> opened(const std::string& path, data::Io io) {
  try {
    return data::open_tokens(path, {.io = io, .val_split = 0, .vocabulary = 1 << 20}).train;
  } catch (const DataError&) {
    return std::nullopt;
  }
}

void run(Input input) {
  const std::string path = file_of("input.bin", input);
  const std::optional<data::TokenSet> mapped = opened(path, data::Io::mmap),
                                      read = opened(path, data::Io::pread);
  promise(mapped.has_value() == read.has_value(), "both ways of reading refuse the same files");
  if (!read) return;
  const data::TokenSet& set = *read;
  const bool has_header = set.format() == data::TokenFormat::llmc;
  promise((has_header ? data::llmc_header_bytes : 0) + set.size() * size_bytes(set.type()) ==
              input.size(),
          "the tokens end where the file ends");
  const Ids ids = all_of(set);
  promise(
      mapped->format() == set.format() && mapped->type() == set.type() && all_of(*mapped) == ids,
      "a mapped file has the same tokens");
  promise(set.largest() == static_cast<std::uint32_t>(*std::ranges::max_element(ids)),
          "the largest id is one of them");
  for (std::uint64_t i = 0; i < set.size(); i += 7)
    promise(set.token(i) == static_cast<std::uint32_t>(ids[i]), "one token is read as all are");
  const data::TokenSet half = set.part(set.size() / 2, set.size() - set.size() / 2);
  promise(std::ranges::equal(all_of(half), std::span(ids).subspan(set.size() / 2)),
          "a part has the tokens of the whole");
  const std::int64_t least = set.type() == StoredType::u16 ? 65536 : 65537;
  const std::int64_t vocabulary = std::max<std::int64_t>(least, std::int64_t{set.largest()} + 1);
  const Bytes again = written(ids, set.format(), vocabulary);
  const std::optional<data::TokenSet> reread = opened(file_of("again.bin", again), data::Io::pread);
  promise(reread && all_of(*reread) == ids, "what is written is read again");
}

std::vector<Bytes> seeds() {
  const Ids ids{0, 1, 50256, 65535, 7, 8, 9, 10, 11, 12, 13};
  return {written(ids, data::TokenFormat::llmc, 65536),
          written(ids, data::TokenFormat::llmc, 65537),
          written(ids, data::TokenFormat::headless, 65536)};
}

const Registered target_{"tokens", run, seeds};

}  // namespace
}  // namespace warpstep::fuzz::tokens_target
