#include "data/text/tokenizer.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "data/io/file.h"
#include "data/text/pieces.h"
#include "data/text/tokenizer_json.h"
#include "data/text/unicode.h"
#include "engine/core/error.h"
#include "engine/core/file.h"

namespace warpstep::data {
namespace {

// The characters of GPT-2's files for bytes: printable ones of Latin-1 stand for themselves, the
// others for U+0100 and on. The order is that of their ids, too.
struct PrintableBytes {
  std::array<char32_t, 256> character{};
  std::array<std::uint8_t, 256> in_order{};
  std::array<std::int16_t, 512> byte{};  // of a character; -1: none
};

PrintableBytes make_printable_bytes() {
  PrintableBytes table;
  table.byte.fill(-1);
  std::size_t count = 0;
  const auto add = [&](unsigned byte, char32_t character) {
    table.character[byte] = character;
    table.in_order[count++] = static_cast<std::uint8_t>(byte);
    table.byte[character] = static_cast<std::int16_t>(byte);
  };
  const auto stands_for_itself = [](unsigned byte) {
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
  };
  for (unsigned byte = 0; byte < 256; ++byte)
    if (stands_for_itself(byte)) add(byte, byte);
  char32_t next = 256;
  for (unsigned byte = 0; byte < 256; ++byte)
    if (!stands_for_itself(byte)) add(byte, next++);
  return table;
}

const PrintableBytes& printable_table() {
  static const PrintableBytes table = make_printable_bytes();
  return table;
}

std::uint64_t hash_of_piece(std::string_view piece) {
  const auto load = [&]<class T>(std::size_t at, T value) {
    std::memcpy(&value, piece.data() + at, sizeof value);
    return std::uint64_t{value};
  };
  const std::size_t size = piece.size();
  std::uint64_t a = size;
  std::uint64_t b = 0;
  if (size >= 8) {
    a += load(0, std::uint64_t{}) * 0x9e3779b97f4a7c15;
    b = load(size - 8, std::uint64_t{});
    if (size > 16) b ^= load(8, std::uint64_t{}) * 0xc2b2ae3d27d4eb4f;
  } else if (size >= 4) {
    b = load(0, std::uint32_t{}) | load(size - 4, std::uint32_t{}) << 32;
  } else {
    b = load(0, std::uint8_t{}) | load(size / 2, std::uint8_t{}) << 8 |
        load(size - 1, std::uint8_t{}) << 16;
  }
  a = (a ^ b) * 0xd6e8feb86659fd93;
  return a ^ a >> 32;
}

constexpr std::size_t cache_slots = 65536;
constexpr std::size_t least_cached_text = 16384;  // shorter texts do not repay clearing the cache

// GPT-2's own merges, by which its tokenizer is recognised.
constexpr std::size_t gpt2_merges = 50000;
constexpr std::uint64_t gpt2_hash = 0x54334ea75fb1883d;

class BytePairTokenizer final : public Tokenizer {
 public:
  explicit BytePairTokenizer(BytePairVocabulary vocabulary)
      : vocabulary_(std::move(vocabulary)),
        bytes_(ids_of_bytes(vocabulary_)),
        pairs_(bytes_, vocabulary_.merges),
        serial_(next_serial()) {}

  std::string name() const override {
    if (vocabulary_.tokens.size() == 256) return "byte";
    if (vocabulary_.merges.size() != gpt2_merges) return "bpe";
    Hash hash;
    for (const std::string& token : vocabulary_.tokens) hash.add(std::string_view(token));
    for (const Merge& merge : vocabulary_.merges) {
      hash.add(static_cast<std::uint64_t>(merge.left));
      hash.add(static_cast<std::uint64_t>(merge.right));
    }
    return hash.value() == gpt2_hash ? "gpt2" : "bpe";
  }
  std::int64_t vocabulary() const override {
    return static_cast<std::int64_t>(vocabulary_.tokens.size());
  }
  std::string_view bytes_of(std::int32_t id) const override {
    if (id < 0 || id >= vocabulary())
      fail<DataError>("token {} is not in the vocabulary of {}", id, vocabulary());
    return vocabulary_.tokens[static_cast<std::size_t>(id)];
  }
  std::optional<std::int32_t> end_of_text() const override { return vocabulary_.end_of_text; }
  std::string json() const override { return json_of(vocabulary_); }

  void encode(std::string_view text, std::vector<std::int32_t>& ids,
              EncodeScratch& scratch) const override {
    if (vocabulary_.merges.empty()) {
      for (const char byte : text) ids.push_back(bytes_[static_cast<unsigned char>(byte)]);
      return;
    }
    if (scratch.owner != serial_ && text.size() >= least_cached_text) {
      scratch.cache.assign(cache_slots, {});
      scratch.owner = serial_;
    }
    while (!text.empty()) {
      const std::size_t bytes = first_piece(text);
      encode_piece(text.substr(0, bytes), ids, scratch);
      text.remove_prefix(bytes);
    }
  }

 private:
  static std::uint64_t next_serial() {
    static std::atomic<std::uint64_t> last{0};
    return ++last;
  }

  static std::array<std::int32_t, 256> ids_of_bytes(const BytePairVocabulary& vocabulary) {
    std::array<std::int32_t, 256> ids{};
    ids.fill(-1);
    const std::vector<char> special = vocabulary.are_special();
    for (std::size_t i = vocabulary.tokens.size(); i-- > 0;) {  // the first of equal tokens
      const auto id = static_cast<std::int32_t>(i);
      const std::string& token = vocabulary.tokens[i];
      if (token.size() == 1 && !special[i]) ids[static_cast<unsigned char>(token[0])] = id;
    }
    const auto* const missing = std::ranges::find(ids, -1);
    if (missing != ids.end())
      fail<UsageError>("the vocabulary has no token for the byte 0x{:02x}", missing - ids.begin());
    return ids;
  }

  void encode_piece(std::string_view piece, std::vector<std::int32_t>& ids,
                    EncodeScratch& scratch) const {
    if (piece.size() > EncodeScratch::longest_piece || scratch.owner != serial_)
      return pairs_.merge(piece, ids, scratch.pairs);
    EncodeScratch::Cached& slot = scratch.cache[hash_of_piece(piece) % cache_slots];
    if (slot.bytes == piece.size() &&
        std::memcmp(slot.piece.data(), piece.data(), piece.size()) == 0) {
      ids.insert(ids.end(), slot.ids.begin(), slot.ids.begin() + slot.count);
      return;
    }
    const std::size_t before = ids.size();
    pairs_.merge(piece, ids, scratch.pairs);
    const std::size_t count = ids.size() - before;
    if (count > slot.ids.size()) return;
    slot.bytes = static_cast<std::uint8_t>(piece.size());
    slot.count = static_cast<std::uint8_t>(count);
    std::copy(piece.begin(), piece.end(), slot.piece.begin());
    std::copy(ids.end() - static_cast<std::ptrdiff_t>(count), ids.end(), slot.ids.begin());
  }

  BytePairVocabulary vocabulary_;
  std::array<std::int32_t, 256> bytes_;
  BytePairs pairs_;
  std::uint64_t serial_;
};

class CharacterTokenizer final : public Tokenizer {
 public:
  explicit CharacterTokenizer(std::u32string_view characters) {
    ascii_.fill(-1);
    for (const char32_t character : characters) {
      const auto id = static_cast<std::int32_t>(texts_.size());
      texts_.emplace_back();
      append_utf8(texts_.back(), character);
      if (character < ascii_.size())
        ascii_[character] = id;
      else
        others_.emplace(character, id);
    }
  }

  std::string name() const override { return "char"; }
  std::int64_t vocabulary() const override { return static_cast<std::int64_t>(texts_.size()); }
  std::string_view bytes_of(std::int32_t id) const override {
    if (id < 0 || id >= vocabulary())
      fail<DataError>("token {} is not in the vocabulary of {} characters", id, vocabulary());
    return texts_[static_cast<std::size_t>(id)];
  }
  std::string json() const override { return json_of(std::span<const std::string>(texts_)); }

  void encode(std::string_view text, std::vector<std::int32_t>& ids,
              EncodeScratch& scratch) const override {
    for (std::size_t at = 0; at < text.size();) {
      const auto byte = static_cast<unsigned char>(text[at]);
      std::int32_t id = byte < ascii_.size() ? ascii_[byte] : -1;
      std::uint32_t bytes = 1;
      if (id < 0) {
        const Character character = first_character(text.substr(at));
        bytes = character.bytes;
        const auto found = others_.find(character.code);
        if (!character.valid || found == others_.end()) refuse(character, scratch, at);
        id = found->second;
      }
      ids.push_back(id);
      at += bytes;
    }
  }

 private:
  [[noreturn]] void refuse(const Character& character, const EncodeScratch& scratch,
                           std::size_t at) const {
    if (!character.valid)
      fail<DataError>("{}: byte {}: is not UTF-8 (0x{:02x}); encode it as bytes or with BPE",
                      scratch.source, scratch.source_offset + at,
                      static_cast<std::uint32_t>(character.code));
    fail<DataError>("{}: byte {}: the character U+{:04X} is not one of the {} of the tokenizer",
                    scratch.source, scratch.source_offset + at,
                    static_cast<std::uint32_t>(character.code), vocabulary());
  }

  std::vector<std::string> texts_;
  std::array<std::int32_t, 128> ascii_{};
  std::unordered_map<char32_t, std::int32_t> others_;
};

}  // namespace

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  EncodeScratch scratch;
  std::vector<std::int32_t> ids;
  encode(text, ids, scratch);
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string bytes;
  for (const std::int32_t id : ids) bytes += bytes_of(id);
  return bytes;
}

std::unique_ptr<Tokenizer> make_byte_pair_tokenizer(BytePairVocabulary vocabulary) {
  return std::make_unique<BytePairTokenizer>(std::move(vocabulary));
}

std::unique_ptr<Tokenizer> make_byte_tokenizer() {
  BytePairVocabulary vocabulary;
  for (int byte = 0; byte < 256; ++byte) vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
  return make_byte_pair_tokenizer(std::move(vocabulary));
}

std::unique_ptr<Tokenizer> make_character_tokenizer(std::u32string_view characters) {
  return std::make_unique<CharacterTokenizer>(characters);
}

BytePairVocabulary byte_pair_vocabulary(std::span<const std::array<std::int32_t, 2>> merges) {
  BytePairVocabulary vocabulary;
  for (const std::uint8_t byte : printable_table().in_order)
    vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
  for (const auto& [left, right] : merges) {
    const auto tokens = static_cast<std::int64_t>(vocabulary.tokens.size());
    if (std::min(left, right) < 0 || std::max(left, right) >= tokens)
      fail<UsageError>("merge {} is of tokens {} and {}, but {} are known before it",
                       vocabulary.merges.size(), left, right, tokens);
    vocabulary.merges.push_back({left, right, static_cast<std::int32_t>(vocabulary.tokens.size())});
    vocabulary.tokens.push_back(vocabulary.tokens[static_cast<std::size_t>(left)] +
                                vocabulary.tokens[static_cast<std::size_t>(right)]);
  }
  vocabulary.end_of_text = static_cast<std::int32_t>(vocabulary.tokens.size());
  vocabulary.special.push_back(*vocabulary.end_of_text);
  vocabulary.tokens.emplace_back(end_of_text_name);
  return vocabulary;
}

std::vector<char> BytePairVocabulary::are_special() const {
  std::vector<char> special_of(tokens.size());
  for (const std::int32_t id : special) special_of.at(static_cast<std::size_t>(id)) = 1;
  return special_of;
}

std::string printable_bytes(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes)
    append_utf8(text, printable_table().character[static_cast<std::uint8_t>(byte)]);
  return text;
}

std::optional<std::string> bytes_of_printable(std::string_view text) {
  const auto& table = printable_table().byte;
  std::string bytes;
  while (!text.empty()) {
    const Character character = first_character(text);
    if (!character.valid || character.code >= table.size() || table[character.code] < 0) return {};
    bytes += static_cast<char>(table[character.code]);
    text.remove_prefix(character.bytes);
  }
  return bytes;
}

}  // namespace warpstep::data
