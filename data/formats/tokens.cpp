#include "data/formats/tokens.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "engine/core/error.h"

namespace warpstep::data {
namespace {

// Copies the tokens and returns the largest.
template <class Token>
std::uint32_t convert(std::span<const std::uint8_t> bytes, std::span<std::int32_t> tokens) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    Token value = 0;
    std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);  // may be unaligned
    largest = std::max<std::uint32_t>(largest, value);
    tokens[i] = static_cast<std::int32_t>(value);
  }
  return largest;
}

template <class Token>
bool contains(std::span<const std::uint8_t> bytes, std::uint32_t id) {
  Token value = 0;
  for (std::size_t i = 0; i < bytes.size(); i += sizeof value) {
    std::memcpy(&value, bytes.data() + i, sizeof value);
    if (value == id) return true;
  }
  return false;
}

template <class Token>
std::uint32_t largest_of(std::span<const std::uint8_t> bytes) {
  Token largest = 0;
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(Token)) {
    Token value = 0;
    std::memcpy(&value, bytes.data() + i, sizeof value);
    largest = std::max(largest, value);
  }
  return largest;
}

}  // namespace

std::string_view name(TokenFormat format) {
  switch (format) {
    case TokenFormat::safetensors: return "safetensors";
    case TokenFormat::npy: return "npy";
    case TokenFormat::llmc: return "llm.c";
    case TokenFormat::headless: return "headless";
  }
  return "";
}

TokenSet::TokenSet(std::vector<Part> parts, TokenFormat format, StoredType type,
                   std::int64_t vocabulary, std::uint64_t budget_bytes)
    : parts_(std::move(parts)),
      format_(format),
      type_(type),
      vocabulary_(vocabulary),
      budget_bytes_(budget_bytes) {
  if ((type != StoredType::u16 && type != StoredType::u32) || vocabulary < 1 ||
      vocabulary > std::int64_t{1} << 31)
    fail<UsageError>(
        "tokens of {} and a vocabulary of {}; tokens must be U16 or U32, the vocabulary 1 to 2^31",
        warpstep::name(type), vocabulary);
  for (const Part& part : parts_) {
    begins_.push_back(size_);
    size_ += part.size;
  }
}

std::string TokenSet::path() const {
  return parts_.empty() ? std::string() : parts_.front().file->path();
}

std::vector<std::string> TokenSet::paths() const {
  std::vector<std::string> paths;
  for (const Part& part : parts_) paths.push_back(part.file->path());
  return paths;
}

TokenSet::Place TokenSet::place_of(std::uint64_t i) const {
  const auto after = std::upper_bound(begins_.begin(), begins_.end(), i);
  const auto part = static_cast<std::size_t>(after - begins_.begin()) - 1;
  return {part, i - begins_[part]};
}

template <class Visit>
void TokenSet::each_run(std::uint64_t begin, std::uint64_t count, const Visit& visit) const {
  if (begin > size_ || count > size_ - begin)
    fail<DataError>("{}: has {} tokens, too few for {} from number {} on", path(), size_, count,
                    begin);
  std::uint64_t done = 0;
  if (count == 0) return;
  for (Place place = place_of(begin); done < count; ++place.part, place.token = 0) {
    const Part& part = parts_[place.part];
    const std::uint64_t run = std::min(count - done, part.size - place.token);
    if (run > 0) visit(part, place.token, run, done);
    done += run;
  }
}

std::uint32_t TokenSet::token(std::uint64_t i) const {
  const Place place = place_of(i);
  const Part& part = parts_[place.part];
  std::vector<std::uint8_t> scratch;
  const std::uint64_t bytes = size_bytes(type_);
  std::uint32_t value = 0;
  std::memcpy(&value, part.file->view(part.offset + place.token * bytes, bytes, scratch).data(),
              bytes);
  return value;
}

TokenSet TokenSet::below(std::int64_t vocabulary) const {
  return {parts_, format_, type_, vocabulary, budget_bytes_};
}

TokenSet TokenSet::part(std::uint64_t begin, std::uint64_t size) const {
  if (begin > size_ || size > size_ - begin)
    fail<UsageError>("{}: has {} tokens, too few for {} from number {} on", path(), size_, size,
                     begin);
  std::vector<Part> parts;
  each_run(begin, size,
           [&](const Part& part, std::uint64_t first, std::uint64_t count, std::uint64_t) {
             parts.push_back({part.file, part.offset + first * size_bytes(type_), count});
           });
  return {std::move(parts), format_, type_, vocabulary_, budget_bytes_};
}

void TokenSet::read(std::uint64_t begin, std::span<std::int32_t> tokens) const {
  std::vector<std::uint8_t> scratch;
  const std::uint64_t bytes = size_bytes(type_);
  each_run(
      begin, tokens.size(),
      [&](const Part& part, std::uint64_t first, std::uint64_t count, std::uint64_t done) {
        const std::uint64_t offset = part.offset + first * bytes;
        const auto view = part.file->view(offset, count * bytes, scratch);
        const auto out = tokens.subspan(done, count);
        const std::uint32_t largest = type_ == StoredType::u16 ? convert<std::uint16_t>(view, out)
                                                               : convert<std::uint32_t>(view, out);
        if (largest < vocabulary_) return;
        const auto limit = static_cast<std::uint32_t>(vocabulary_);
        const auto found = std::ranges::find_if(
            out, [&](std::int32_t id) { return static_cast<std::uint32_t>(id) >= limit; });
        const auto at = static_cast<std::uint64_t>(found - out.begin());
        fail<DataError>(
            "{}: byte {}: token {} is {}, but ids must be below {}, the size of the vocabulary; "
            "these tokens belong to another tokenizer",
            part.file->path(), offset + at * bytes, begin + done + at,
            static_cast<std::uint32_t>(*found), vocabulary_);
      });
}

void TokenSet::will_need(std::uint64_t begin, std::uint64_t tokens) const {
  if (begin >= size_ || size_ * idx(size_bytes(type_)) <= budget_bytes_) return;
  each_run(begin, std::min(tokens, size_ - begin),
           [&](const Part& part, std::uint64_t first, std::uint64_t count, std::uint64_t) {
             part.file->read_pages_alone();
             part.file->will_need(part.offset + first * size_bytes(type_),
                                  count * size_bytes(type_));
           });
}

bool TokenSet::has(std::uint32_t id) const {
  constexpr std::uint64_t run = std::uint64_t{1} << 20, most_runs = 16;
  const std::uint64_t runs = (size_ + run - 1) / run, looked_at = std::min(runs, most_runs);
  const auto bytes = static_cast<std::uint64_t>(size_bytes(type_));
  std::vector<std::uint8_t> scratch;
  bool found = false;
  for (std::uint64_t i = 0; i < looked_at && !found; ++i) {
    const std::uint64_t begin = i * runs / looked_at * run;
    each_run(begin, std::min(run, size_ - begin),
             [&](const Part& part, std::uint64_t first, std::uint64_t count, std::uint64_t) {
               const auto view =
                   part.file->view(part.offset + first * bytes, count * bytes, scratch);
               found = found || (type_ == StoredType::u16 ? contains<std::uint16_t>(view, id)
                                                          : contains<std::uint32_t>(view, id));
             });
  }
  return found;
}

std::uint64_t TokenSet::fingerprint() const {
  // Tokens that are up to 16 KiB apart are read in pieces: a read that has to wait, as on a network
  // mount, costs more than the bytes between them.
  constexpr std::uint64_t piece = std::uint64_t{1} << 20, most_in_pieces = std::uint64_t{1} << 30;
  const std::uint64_t bytes = size_bytes(type_);
  const std::uint64_t run = size_ * bytes <= most_in_pieces ? piece / bytes : 1;
  const std::uint64_t hashed = std::min<std::uint64_t>(size_, 65536);
  const auto place = [&](std::uint64_t i) {  // i * size / hashed, which cannot overflow so
    return size_ / hashed * i + size_ % hashed * i / hashed;
  };
  Hash hash;
  hash.add(size_);
  std::vector<std::uint8_t> scratch;
  for (std::uint64_t i = 0; i < hashed;) {
    const std::uint64_t begin = place(i);
    each_run(begin, std::min(run, size_ - begin),
             [&](const Part& part, std::uint64_t first, std::uint64_t count, std::uint64_t done) {
               const auto view =
                   part.file->view(part.offset + first * bytes, count * bytes, scratch);
               for (; i < hashed && place(i) < begin + done + count; ++i) {
                 std::uint32_t value = 0;
                 std::memcpy(&value, &view[(place(i) - begin - done) * bytes], bytes);
                 hash.add(std::uint64_t{value});
               }
             });
  }
  return hash.value();
}

std::uint32_t TokenSet::largest() const {
  constexpr std::uint64_t piece = std::uint64_t{1} << 20;
  const std::uint64_t bytes = size_bytes(type_);
  std::vector<std::uint8_t> scratch;
  std::uint32_t largest = 0;
  each_run(
      0, size_, [&](const Part& part, std::uint64_t first, std::uint64_t count, std::uint64_t) {
        for (std::uint64_t at = 0; at < count; at += piece) {
          const auto view = part.file->view(part.offset + (first + at) * bytes,
                                            std::min(piece, count - at) * bytes, scratch);
          largest = std::max(largest, type_ == StoredType::u16 ? largest_of<std::uint16_t>(view)
                                                               : largest_of<std::uint32_t>(view));
        }
      });
  return largest;
}

void TokenSet::check_unchanged() const {
  for (const Part& part : parts_) part.file->check_unchanged();
}

}  // namespace warpstep::data
