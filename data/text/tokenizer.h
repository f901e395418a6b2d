// Text to token ids and back.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/byte_pairs.h"
#include "engine/core/error.h"

namespace warpstep::data {

// Memory of one thread that encodes; it may serve several tokenizers in turn. Pieces that were
// encoded before are found in a cache of 4 MiB.
struct EncodeScratch {
  static constexpr std::size_t longest_piece = 26;
  static constexpr std::size_t most_ids = 9;
  struct Cached {
    std::array<std::int32_t, most_ids> ids;
    std::array<char, longest_piece> piece;
    std::uint8_t bytes, count;  // bytes 0: empty
  };

  std::string source = "the text";  // for messages: the name of the file,
  std::uint64_t source_offset = 0;  // and where in it the text begins

  std::uint64_t owner = 0;  // the tokenizer whose pieces are in the cache
  std::vector<Cached> cache;
  BytePairs::Scratch pairs;
};

// Immutable; const members may be called from many threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::string name() const = 0;         // "gpt2", "bpe", "byte" or "char"
  virtual std::int64_t vocabulary() const = 0;  // ids are below it
  // Appends the ids of a text. Never the id of <|endoftext|>, which is plain text here. Throws
  // DataError when the text cannot be encoded, naming scratch.source and the byte.
  virtual void encode(std::string_view text, std::vector<std::int32_t>& ids,
                      EncodeScratch& scratch) const = 0;
  std::vector<std::int32_t> encode(std::string_view text) const;
  // The bytes of a token: not always whole characters. Throws DataError for an id that is not in
  // the vocabulary.
  virtual std::string_view bytes_of(std::int32_t id) const = 0;
  std::string decode(std::span<const std::int32_t> ids) const;
  // <|endoftext|>, which separates documents.
  virtual std::optional<std::int32_t> end_of_text() const { return {}; }
  // The content of tokenizer.json, in the format of Hugging Face's tokenizers.
  virtual std::string json() const = 0;
};

inline constexpr std::string_view end_of_text_name = "<|endoftext|>";

// Byte-level BPE with GPT-2's pieces. Any bytes can be encoded, valid UTF-8 or not, and
// decode(encode(text)) is text.
struct BytePairVocabulary {
  std::vector<std::string> tokens;  // bytes of each id
  std::vector<Merge> merges;        // in order, each of bytes or of the results of earlier ones
  // Tokens that no text is encoded to, and which files hold as they are: <|endoftext|> and others.
  std::vector<std::int32_t> special;
  std::optional<std::int32_t> end_of_text;

  std::vector<char> are_special() const;  // of each id
};
// Throws UsageError when a byte has no token.
std::unique_ptr<Tokenizer> make_byte_pair_tokenizer(BytePairVocabulary vocabulary);

// A vocabulary in GPT-2's order: 256 bytes, the results of the merges (pairs of ids),
// <|endoftext|>. UsageError for a merge of a token that none before it makes.
BytePairVocabulary byte_pair_vocabulary(std::span<const std::array<std::int32_t, 2>> merges);

// A file of merges such as GPT-2's vocab.bpe: lines of two tokens, with bytes written as GPT-2
// writes them, after an optional line "#version". Throws DataError naming the file and the line.
std::unique_ptr<Tokenizer> read_merges(const std::string& path);

std::unique_ptr<Tokenizer> make_byte_tokenizer();  // id = byte, vocabulary 256

// An id per character, in the order of `characters`, each once. Text that is not UTF-8 or has other
// characters cannot be encoded.
std::unique_ptr<Tokenizer> make_character_tokenizer(std::u32string_view characters);

// Writes tokenizer.json, atomically.
void save_tokenizer(const Tokenizer& tokenizer, const std::string& path);
// A whole file of a tokenizer that encodes otherwise than the supported ones.
struct UnsupportedTokenizer : DataError {
  using DataError::DataError;
};
// Reads what save_tokenizer() writes, and other files of that format with byte-level BPE and
// GPT-2's pieces (GPT-2's own among them). Throws DataError naming the file and what is wrong, of
// this class for what is not supported.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path);

// Bytes as GPT-2's files write them: a printable character for each.
std::string printable_bytes(std::string_view bytes);
// Nothing when a character is not one of these 256, or the text is not UTF-8.
std::optional<std::string> bytes_of_printable(std::string_view text);

}  // namespace warpstep::data
