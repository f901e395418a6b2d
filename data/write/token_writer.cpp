#include "data/write/token_writer.h"

#include <array>
#include <cstring>
#include <utility>

#include "data/formats/npy.h"
#include "engine/core/error.h"

namespace warpstep::data {
namespace {

constexpr std::uint64_t most_written_tokens = std::uint64_t{1}
                                              << 40;  // reserves its digits in headers

StoredType type_of(const std::string& path, const TokenFileOptions& options) {
  const StoredType type = token_type(options.vocabulary);
  if (options.format == TokenFormat::headless && type != StoredType::u16)
    fail<UsageError>(
        "{}: nanoGPT's format has 2 bytes per token, too few for a vocabulary of {}; use another "
        "format",
        path, options.vocabulary);
  return type;
}

}  // namespace

StoredType token_type(std::int64_t vocabulary) {
  return vocabulary <= 65536 ? StoredType::u16 : StoredType::u32;
}

std::string token_file_name(std::string_view split, TokenFormat format) {
  return fmt::format("{}.{}", split,
                     format == TokenFormat::safetensors ? "safetensors"
                     : format == TokenFormat::npy       ? "npy"
                                                        : "bin");
}

TokenWriter::TokenWriter(std::string path, TokenFileOptions options)
    : path_(std::move(path)),
      options_(std::move(options)),
      type_(type_of(path_, options_)),
      beginning_bytes_(beginning(most_written_tokens).size()),
      file_(path_, beginning_bytes_) {}

std::string TokenWriter::beginning(std::uint64_t tokens) const {
  switch (options_.format) {
    case TokenFormat::safetensors: {
      const std::array tensors{
          StoredTensor{"token", type_, {tokens}, 0, tokens * size_bytes(type_)}};
      return safetensors_beginning(
          path_, tensors,
          {{"tokenizer", options_.tokenizer}, {"vocabulary", std::to_string(options_.vocabulary)}},
          tokens == most_written_tokens ? 0 : beginning_bytes_);
    }
    case TokenFormat::npy: return npy_beginning(type_, std::array{tokens});
    case TokenFormat::llmc: {
      const LlmcKind& kind = type_ == StoredType::u16 ? llmc_gpt2 : llmc_llama3;
      const std::array header{kind.magic, kind.version, static_cast<std::int32_t>(tokens)};
      std::string text(llmc_header_bytes, '\0');
      std::memcpy(text.data(), header.data(), sizeof header);
      return text;
    }
    case TokenFormat::headless: return {};
  }
  return {};
}

void TokenWriter::append(std::span<const std::int32_t> ids) {
  if (options_.format == TokenFormat::llmc && ids.size() > llmc_most_tokens - tokens())
    fail<DataError>(
        "{}: has more than {} tokens, which llm.c's format cannot count; write another format, or "
        "fewer texts at a time",
        path_, llmc_most_tokens);
  for (const std::int32_t id : ids)
    if (id < 0 || id >= options_.vocabulary)
      fail<UsageError>("{}: token {} of a vocabulary of {}", path_, id, options_.vocabulary);
  const std::size_t width = size_bytes(type_);
  buffer_.resize(ids.size() * width);
  for (std::size_t i = 0; i < ids.size(); ++i)
    std::memcpy(buffer_.data() + i * width, &ids[i], width);  // little-endian
  file_.append(buffer_);
}

void TokenWriter::finish() {
  const std::string head = beginning(tokens());
  if (head.size() != beginning_bytes_)
    fail<UsageError>("{}: a beginning of {} bytes, but {} are reserved", path_, head.size(),
                     beginning_bytes_);
  file_.put(0, std::as_bytes(std::span(head)));
  file_.finish();
}

}  // namespace warpstep::data
