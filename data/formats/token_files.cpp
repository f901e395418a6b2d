// Which files hold the tokens of a data set, and what their headers say.
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <utility>

#include "data/formats/npy.h"
#include "data/formats/tokens.h"
#include "data/text/tokenizer.h"
#include "engine/core/checksum.h"
#include "engine/core/error.h"
#include "engine/core/text.h"

namespace warpstep::data {
namespace {

// One file's tokens and what it says about them.
struct TokenFile {
  TokenSet::Part part;
  TokenFormat format = TokenFormat::safetensors;
  StoredType type = StoredType::u16;
  std::int64_t vocabulary = 0;  // 0: does not say
};

void check_tokens(const std::string& path, StoredType type,
                  const std::vector<std::uint64_t>& shape) {
  if ((type != StoredType::u16 && type != StoredType::u32) || shape.size() != 1 || shape[0] == 0)
    fail<DataError>(
        "{}: tokens are {} [{}], but must be U16 or U32 [n], n at least 1: save one list of them, "
        "with a.astype(numpy.uint16) or numpy.uint32",
        path, name(type), fmt::join(shape, ","));
}

TokenFile open_safetensors_tokens(const std::string& path, Io io) {
  const SafetensorsFile header(path);
  const StoredTensor& tensor = header.at("token");
  check_tokens(path, tensor.type, tensor.shape);
  TokenFile file{{std::make_shared<MappedFile>(path, io), tensor.offset, tensor.shape[0]},
                 TokenFormat::safetensors,
                 tensor.type};
  if (const auto found = header.metadata().find("vocabulary"); found != header.metadata().end()) {
    const std::string& text = found->second;
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), file.vocabulary);
    if (error != std::errc() || end != text.data() + text.size() || file.vocabulary < 1 ||
        file.vocabulary > std::int64_t{1} << 31)
      fail<DataError>("{}: the metadata's vocabulary is '{}', but must be a number of 1 to 2^31",
                      path, shown(text));
  }
  return file;
}

TokenFile open_npy_tokens(const std::string& path, Io io) {
  auto file = std::make_shared<MappedFile>(path, io);
  const NpyArray array = read_npy_header(*file);
  check_tokens(path, array.type, array.shape);
  return {{std::move(file), array.offset, array.shape[0]}, TokenFormat::npy, array.type};
}

// llm.c's magic numbers are dates, 2024MMDD. As two u16 they are 54,912 or more and 308, which is
// no beginning of GPT-2's tokens: those are below 50,257.
bool is_llmc_magic(std::int32_t magic) {
  return magic >= 20240000 && magic <= 20249999;
}

TokenFile open_llmc_tokens(std::shared_ptr<const MappedFile> file,
                           std::array<std::int32_t, 3> header) {
  const std::string& path = file->path();
  const auto [magic, version, tokens] = header;
  constexpr std::array kinds{llmc_gpt2, llmc_llama3};
  const auto* const kind =
      std::ranges::find_if(kinds, [&](const LlmcKind& known) { return known.magic == magic; });
  if (kind == kinds.end())
    fail<DataError>(
        "{}: byte 0: has llm.c's magic number {}, which is not that of tokens ({} or {})", path,
        magic, kinds[0].magic, kinds[1].magic);
  if (version != kind->version)
    fail<DataError>("{}: byte 4: version {} of magic number {}; only version {} is supported", path,
                    version, magic, kind->version);
  if (tokens < 1) fail<DataError>("{}: byte 8: the header announces {} tokens", path, tokens);
  const auto count = static_cast<std::uint64_t>(tokens);
  const std::uint64_t bytes = llmc_header_bytes + count * size_bytes(kind->type);
  if (bytes != file->bytes())
    fail<DataError>(
        "{}: byte 8: the header announces {} tokens of {} bytes each, a file of {} bytes, but it "
        "has {}; copy it again",
        path, tokens, size_bytes(kind->type), bytes, file->bytes());
  return {
      {std::move(file), llmc_header_bytes, count}, TokenFormat::llmc, kind->type, kind->vocabulary};
}

TokenFile open_bin_tokens(const std::string& path, Io io) {
  auto file = std::make_shared<const MappedFile>(path, io);
  std::array<std::int32_t, 3> header{};
  if (file->bytes() >= sizeof header) {
    std::vector<std::uint8_t> scratch;
    std::memcpy(header.data(), file->view(0, sizeof header, scratch).data(), sizeof header);
    if (is_llmc_magic(header[0])) return open_llmc_tokens(std::move(file), header);
  }
  if (file->bytes() == 0 || file->bytes() % 2 != 0)
    fail<DataError>(
        "{}: has no header of llm.c, and its {} bytes are not a whole number of 2-byte tokens, as "
        "nanoGPT writes them; copy it again",
        path, file->bytes());
  const std::uint64_t tokens = file->bytes() / 2;
  return {{std::move(file), 0, tokens}, TokenFormat::headless, StoredType::u16};
}

TokenFile open_token_file(const std::string& path, Io io) {
  if (path.ends_with(".safetensors")) return open_safetensors_tokens(path, io);
  if (path.ends_with(".npy")) return open_npy_tokens(path, io);
  return open_bin_tokens(path, io);
}

// The name before _SPLIT.bin or _SPLIT_NUMBER.bin, llm.c's names; empty for other names.
std::string_view shard_prefix(std::string_view file, std::string_view split) {
  if (!file.ends_with(".bin")) return {};
  file.remove_suffix(4);
  const std::string ending = fmt::format("_{}", split);
  if (file.ends_with(ending)) return file.substr(0, file.size() - ending.size());
  const std::size_t digits = file.find_last_not_of("0123456789") + 1;
  if (digits == file.size() || !file.substr(0, digits).ends_with(ending + "_")) return {};
  return file.substr(0, digits - ending.size() - 1);
}

// The files of a split; empty when there are none. Throws DataError when the folder holds several
// sets.
std::vector<std::string> files_of(const std::string& spec, std::string_view split,
                                  std::span<const Entry> entries) {
  std::vector<std::string> single;
  std::vector<std::string> shards;
  std::string_view prefix;
  for (const Entry& entry : entries) {
    const std::string path = fmt::format("{}/{}", spec, entry.name);
    if (entry.name == fmt::format("{}.npy", split) ||
        entry.name == fmt::format("{}-tokens.npy", split) ||
        entry.name == fmt::format("{}.bin", split) ||
        (entry.name == fmt::format("{}.safetensors", split) &&
         SafetensorsFile(path).find("token") != nullptr))
      single.push_back(path);
    if (const std::string_view found = shard_prefix(entry.name, split); !found.empty()) {
      if (!shards.empty() && found != prefix)
        fail<DataError>("{}: holds the tokens of both {} and {}; give each its own folder", spec,
                        shown(prefix), shown(found));
      prefix = found;
      shards.push_back(path);
    }
  }
  if (single.empty()) return shards;
  single.insert(single.end(), shards.begin(), shards.end());
  if (single.size() > 1)
    fail<DataError>("{}: holds the {} split more than once: {}; keep one of them", spec, split,
                    first_few(single));
  return single;
}

// `val`, else `test`.
std::vector<std::string> val_files_of(const std::string& spec, std::span<const Entry> entries) {
  std::vector<std::string> files = files_of(spec, "val", entries);
  return files.empty() ? files_of(spec, "test", entries) : files;
}

// Files of one split, opened; the vocabulary is what they say, else 0.
struct OpenSplit {
  std::vector<TokenSet::Part> parts;
  TokenFormat format = TokenFormat::safetensors;
  StoredType type = StoredType::u16;
  std::int64_t vocabulary = 0;

  TokenSet set(std::int64_t limit) const { return {parts, format, type, limit}; }
};

OpenSplit open_split(const std::vector<std::string>& paths, Io io) {
  OpenSplit split;
  for (const std::string& path : paths) {
    TokenFile file = open_token_file(path, io);
    if (paths.size() > 1 && file.format != TokenFormat::llmc)
      fail<DataError>("{}: has no header of llm.c, which each of several shards must have", path);
    if (!split.parts.empty() && file.type != split.type)
      fail<DataError>("{}: has tokens of {}, but {} has {}", path, name(file.type), paths.front(),
                      name(split.type));
    split.parts.push_back(std::move(file.part));
    split.format = file.format;
    split.type = file.type;
    split.vocabulary = std::max(split.vocabulary, file.vocabulary);
  }
  return split;
}

// tokenizer.json in the folder of the tokens. Training needs none: one that is not supported, such
// as Llama's, is left out.
void read_tokenizer(TokenData& data, const std::string& spec) {
  const std::string folder =
      is_folder(spec) ? spec : std::filesystem::path(spec).parent_path().string();
  const std::string path = folder.empty() ? "tokenizer.json" : folder + "/tokenizer.json";
  if (!exists(path)) return;
  try {
    const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(path);
    data.tokenizer = path;
    data.tokenizer_name = tokenizer->name();
    data.end_of_text = tokenizer->end_of_text();
    const std::string content = tokenizer->json();
    data.tokenizer_checksum =
        crc32c({reinterpret_cast<const std::uint8_t*>(content.data()), content.size()});
    data.vocabulary = tokenizer->vocabulary();
    data.vocabulary_from = path;
  } catch (const UnsupportedTokenizer& error) {
    data.unused_tokenizer = path;
    data.warnings.push_back(fmt::format(
        "{}; it is not used: the vocabulary is that of the tokens, and `sample` knows numbers of "
        "tokens only (--ids)",
        error.what()));
  }
}

void note_reading(const TokenData& data, const TokenOptions& options) {
  const std::uint64_t tokens = data.train.size() + data.val.size();
  const TokenSet& first = data.train.size() > 0 ? data.train : data.val;
  if (!options.note || tokens * size_bytes(first.type()) < options.noted_bytes) return;
  options.note(
      fmt::format("{}: neither the file nor a tokenizer.json next to it says how large the "
                  "vocabulary is: reading all {} tokens for the largest id",
                  first.path(), grouped(tokens)));
}

void resolve_vocabulary(TokenData& data, const OpenSplit& train, const OpenSplit& val,
                        const TokenOptions& options) {
  const std::string path = (data.train.size() > 0 ? data.train : data.val).path();
  if (data.vocabulary == 0) {
    data.vocabulary = std::max(train.vocabulary, val.vocabulary);
    data.vocabulary_from = "the header of " + path;
  }
  if (data.vocabulary == 0 && options.vocabulary == 0) {
    note_reading(data, options);
    data.largest_of_train = data.train.largest();
    data.largest_of_val = data.val.largest();
    const std::uint32_t largest = std::max(*data.largest_of_train, *data.largest_of_val);
    if (largest >= std::uint32_t{1} << 31)
      fail<DataError>("{}: the largest token is {}; at most 2^31 - 1 is allowed", path, largest);
    data.vocabulary = std::int64_t{largest} + 1;
    data.vocabulary_from = "the largest id";
  }
  if (options.vocabulary == 0) return;
  if (data.vocabulary > options.vocabulary)
    fail<DataError>("{}: has a vocabulary of {} ({}), but only {} are possible here", path,
                    data.vocabulary, data.vocabulary_from, options.vocabulary);
  data.vocabulary = options.vocabulary;
  data.vocabulary_from = "given";
}

// Takes val from the end of train.
void split_off(TokenData& data, double share) {
  const TokenSet all = data.train;
  data.largest_of_train = data.largest_of_val = std::nullopt;
  const auto held = static_cast<std::uint64_t>(static_cast<double>(all.size()) * share);
  if (held == 0 || held >= all.size())
    fail<DataError>("{}: --val-split {} of {} tokens leaves no tokens for {}", all.path(), share,
                    all.size(), held == 0 ? "validation" : "training");
  data.train = all.part(0, all.size() - held);
  data.val = all.part(all.size() - held, held);
}

std::vector<Entry> entries_of(const std::string& spec) {
  std::vector<Entry> entries = list_folder(spec);
  std::erase_if(entries, [](const Entry& entry) { return entry.folder; });
  return entries;
}

}  // namespace

bool is_token_file_name(std::string_view path) {
  return path.ends_with(".safetensors") || path.ends_with(".npy") || path.ends_with(".bin");
}

bool has_tokens(const std::string& spec) {
  if (!is_folder(spec)) return exists(spec) && is_token_file_name(spec);
  const std::vector<Entry> entries = entries_of(spec);
  return !files_of(spec, "train", entries).empty() || !val_files_of(spec, entries).empty();
}

bool has_val_tokens(const std::string& spec) {
  return is_folder(spec) && !val_files_of(spec, entries_of(spec)).empty();
}

TokenData open_tokens(const std::string& spec, const TokenOptions& options) {
  if (options.val_split && !(*options.val_split >= 0 && *options.val_split < 1))
    fail<UsageError>("--val-split {}: must be at least 0 and below 1", *options.val_split);
  std::vector<std::string> train_paths{spec};
  std::vector<std::string> val_paths;
  if (!exists(spec)) fail<DataError>("{}: there is no such file or folder", spec);
  if (is_folder(spec)) {
    const std::vector<Entry> entries = entries_of(spec);
    train_paths = files_of(spec, "train", entries);
    val_paths = val_files_of(spec, entries);
    if (train_paths.empty() && (options.needs_train || val_paths.empty()))
      fail<DataError>(
          "{}: has no tokens to train on: no train.safetensors with a tensor `token`, train.npy, "
          "train-tokens.npy, train.bin or *_train.bin; `warpstep data tokenize` writes them from "
          "text",
          spec);
  } else if (!is_token_file_name(spec)) {
    fail<DataError>(
        "{}: is neither a folder nor a file of tokens (.bin, .npy or .safetensors); `warpstep data "
        "tokenize` writes them from text",
        spec);
  }
  if (val_paths.empty() && !options.val_split && options.needs_val)
    fail<DataError>(
        "{}: has no tokens for validation (val.*); take the last tenth of the others with "
        "--val-split 0.1",
        spec);
  if (!val_paths.empty() && options.val_split.value_or(0) > 0)
    fail<UsageError>("{}: has its own validation tokens, {}; leave --val-split out", spec,
                     val_paths.front());

  const OpenSplit train = open_split(train_paths, options.io);
  const OpenSplit val = open_split(val_paths, options.io);
  TokenData data;
  constexpr std::int64_t any = std::int64_t{1} << 31;
  data.train = train.set(any);
  data.val = val.set(any);
  read_tokenizer(data, spec);
  resolve_vocabulary(data, train, val, options);
  data.train = train.set(data.vocabulary);
  data.val = val.set(data.vocabulary);
  if (options.val_split.value_or(0) > 0) split_off(data, *options.val_split);
  for (const TokenSet* set : {&data.train, &data.val}) {
    if (set->size() == 0 || set->format() != TokenFormat::headless) continue;
    data.warnings.push_back(
        fmt::format("{}: has no header; read as 2-byte tokens of nanoGPT", set->path()));
  }
  return data;
}

}  // namespace warpstep::data
