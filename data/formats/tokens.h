// Token sequences for language models: each split is one long list of ids.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/formats/cached.h"
#include "data/io/mapped_file.h"
#include "engine/files/safetensors.h"

namespace warpstep::data {

enum class TokenFormat : std::uint8_t {
  safetensors,  // a tensor `token`, U16 or U32 [n]
  npy,          // <u2 or <u4 [n]
  llmc,         // llm.c's .bin: a header of 1,024 bytes, then u16 or u32
  headless      // nanoGPT's .bin: only u16
};
std::string_view name(TokenFormat format);  // "safetensors", "npy", "llm.c", "headless"

// Tokens in one file, or in several (shards) that follow each other. Immutable; const members may
// be called from many threads at once. Copies share the open files.
class TokenSet {
 public:
  struct Part {
    std::shared_ptr<const MappedFile> file;
    std::uint64_t offset = 0;  // byte of its first token
    std::uint64_t size = 0;    // tokens
  };

  TokenSet() = default;  // no tokens
  // The type is u16 or u32. Ids must be below `vocabulary`, which is checked by read(). Memory may
  // hold `budget_bytes` of files that will_need() requests.
  TokenSet(std::vector<Part> parts, TokenFormat format, StoredType type,
           std::int64_t vocabulary = std::int64_t{1} << 31,
           std::uint64_t budget_bytes = host_budget_bytes());

  TokenFormat format() const { return format_; }
  StoredType type() const { return type_; }
  std::uint64_t size() const { return size_; }  // tokens
  std::int64_t vocabulary() const { return vocabulary_; }
  std::string path() const;                       // of the first file
  std::vector<std::string> paths() const;         // of all files
  std::uint32_t token(std::uint64_t i) const;     // i below size()
  TokenSet below(std::int64_t vocabulary) const;  // the same, whose ids must be below
  // Tokens [begin, begin + size) as a set of its own; throws UsageError when there are fewer.
  TokenSet part(std::uint64_t begin, std::uint64_t size) const;

  // Tokens [begin, begin + tokens.size()). Throws DataError naming file and byte when there are
  // fewer, or when an id is not below vocabulary().
  void read(std::uint64_t begin, std::span<std::int32_t> tokens) const;
  // Asks the system to read them soon, if memory may not hold all tokens; about a microsecond, and
  // never an error.
  void will_need(std::uint64_t begin, std::uint64_t tokens) const;
  // Whether a token occurs in the set; of a large one in 16 Mi tokens, in evenly spaced runs.
  bool has(std::uint32_t id) const;
  std::uint64_t fingerprint() const;  // of the size and 64 Ki tokens, evenly spaced
  std::uint32_t largest() const;      // reads all tokens, at the speed of the disk; 0 if none
  void check_unchanged() const;       // throws DataError for a file replaced or modified since

 private:
  struct Place {
    std::size_t part = 0;
    std::uint64_t token = 0;  // in the part
  };
  Place place_of(std::uint64_t i) const;
  template <class Visit>  // (part, first token in it, count, number of tokens before)
  void each_run(std::uint64_t begin, std::uint64_t count, const Visit& visit) const;

  std::vector<Part> parts_;
  std::vector<std::uint64_t> begins_;  // number of each part's first token
  TokenFormat format_ = TokenFormat::safetensors;
  StoredType type_ = StoredType::u16;
  std::int64_t vocabulary_ = std::int64_t{1} << 31;
  std::uint64_t size_ = 0, budget_bytes_ = 0;
};

struct TokenOptions {
  Io io = Io::mmap;
  // The part of the tokens, from the end, that becomes `val` where there is no file of that split;
  // in [0, 1), where 0 leaves `val` empty. Without a value the file is required.
  std::optional<double> val_split = {};
  std::int64_t vocabulary = 0;  // ids must be below; 0: what the files declare
  // Else a folder may have tokens for validation only, and `train` is empty then.
  bool needs_train = true;
  bool needs_val = true;  // without it, `val` may be empty whatever val_split says
  // Receives a line before all tokens are read of files of `noted_bytes`, which takes seconds.
  std::function<void(const std::string&)> note = {};
  std::uint64_t noted_bytes = std::uint64_t{1} << 30;
};

// The data of a language model.
struct TokenData {
  // train is empty only without needs_train, val only without needs_val or with val_split 0
  TokenSet train, val;
  // The tokenizer's, else that of a safetensors file's metadata or of llm.c's header, else the
  // largest id + 1 (which reads all tokens).
  std::int64_t vocabulary = 0;
  // The largest ids of train and val where they decided the vocabulary.
  std::optional<std::uint32_t> largest_of_train, largest_of_val;
  std::string vocabulary_from;              // for messages: a path, "the largest id"
  std::optional<std::string> tokenizer;     // path of tokenizer.json, next to the tokens
  std::string tokenizer_name;               // "gpt2", "bpe", "byte" or "char"; empty: there is none
  std::optional<std::int32_t> end_of_text;  // the tokenizer's
  std::uint32_t tokenizer_checksum = 0;     // of its vocabulary and merges, not of their layout
  std::optional<std::string> unused_tokenizer;  // path of one that is not supported
  std::vector<std::string> warnings;            // one line each
};

bool is_token_file_name(std::string_view path);  // one that ends with .bin, .npy or .safetensors
// Whether `spec` is a folder with a split of tokens, or a .bin, .npy or .safetensors file.
bool has_tokens(const std::string& spec);
bool has_val_tokens(const std::string& spec);  // a folder with files of val, or test

// Opens the folder `spec` with the splits train and val (else test), each as SPLIT.safetensors,
// SPLIT.npy, SPLIT-tokens.npy, SPLIT.bin, or llm.c's *_SPLIT.bin or *_SPLIT_*.bin; or a single file
// (docs/tokens.md). Throws DataError naming the file and the byte, UsageError for wrong options.
TokenData open_tokens(const std::string& spec, const TokenOptions& options = {});

// The header of llm.c's .bin files: 256 i32, of which the first three are used.
inline constexpr std::uint64_t llmc_header_bytes = 1024;
inline constexpr std::uint64_t llmc_most_tokens = 0x7fffffff;  // their number is an i32
struct LlmcKind {
  std::int32_t magic, version;
  StoredType type;
  std::int64_t vocabulary;
};
inline constexpr LlmcKind llmc_gpt2{20240520, 1, StoredType::u16, 50257};
inline constexpr LlmcKind llmc_llama3{20240801, 7, StoredType::u32, 128256};

}  // namespace warpstep::data
