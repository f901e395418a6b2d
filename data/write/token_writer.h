// Writes one split of tokens in one of the formats that open_tokens() reads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/formats/tokens.h"
#include "data/write/writers.h"

namespace warpstep::data {

struct TokenFileOptions {
  TokenFormat format = TokenFormat::safetensors;
  std::int64_t vocabulary = 0;  // at most 2^31; decides the type: u16 up to 65,536, else u32
  std::string tokenizer;        // its name, in the metadata of safetensors
};

StoredType token_type(std::int64_t vocabulary);

// "train.safetensors", "train.npy" or "train.bin"
std::string token_file_name(std::string_view split, TokenFormat format);

// Complete only after finish(): write it in a NewFolder. Throws DataError with the path.
class TokenWriter {
 public:
  // Throws UsageError for a headless file of more than 65,536 ids, which has no type for them.
  TokenWriter(std::string path, TokenFileOptions options);

  // Throws UsageError for an id that is not below the vocabulary, DataError for more tokens than
  // the format can count (2^31 - 1 in llm.c's).
  void append(std::span<const std::int32_t> ids);
  std::uint64_t tokens() const { return file_.appended() / size_bytes(type_); }
  void finish();

 private:
  std::string beginning(std::uint64_t tokens) const;

  std::string path_;
  TokenFileOptions options_;
  StoredType type_;
  std::size_t beginning_bytes_;
  StreamedFile file_;
  std::vector<std::uint8_t> buffer_;
};

}  // namespace warpstep::data
