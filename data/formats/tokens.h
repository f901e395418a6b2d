// Token sequences for language models: each split is one long list of numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "data/formats/dataset.h"
#include "data/io/mapped_file.h"
#include "engine/files/safetensors.h"

namespace warpstep::data {

// Immutable; const members may be called from many threads at once.
class TokenSet {
 public:
  TokenSet(std::unique_ptr<MappedFile> file, StoredType type, std::uint64_t offset,
           std::uint64_t size);

  const std::string& path() const { return file_->path(); }
  StoredType type() const { return type_; }     // u16 or u32
  std::uint64_t size() const { return size_; }  // tokens, at least 1
  std::uint32_t token(std::uint64_t i) const;   // i below size()
  std::uint64_t fingerprint() const;            // of the size and 64 Ki tokens, evenly spaced
  void check_unchanged() const { file_->check_unchanged(); }

  // Tokens [begin, begin + tokens.size()). Throws DataError when there are fewer, or when one is
  // above 2^31 - 1.
  void read(std::uint64_t begin, std::span<std::int32_t> tokens) const;

 private:
  std::unique_ptr<MappedFile> file_;
  StoredType type_;
  std::uint64_t offset_ = 0;
  std::uint64_t size_ = 0;
};

// Whether `spec` has this split as tokens: spec/train.safetensors with a tensor `token`, U16 or U32
// [n], or spec/train-tokens.npy of <u2 or <u4.
bool has_tokens(const std::string& spec, Split split);
// Throws DataError naming the file.
TokenSet open_tokens(const std::string& spec, Split split, const OpenOptions& options = {});

}  // namespace warpstep::data
