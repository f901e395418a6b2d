#include "data/text/tokenizer_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "data/io/file.h"
#include "data/text/unicode.h"
#include "engine/core/error.h"
#include "engine/core/file.h"
#include "engine/core/json_text.h"

namespace warpstep::data {
namespace {

constexpr std::uint64_t most_bytes = std::uint64_t{512} << 20;  // a million long tokens have 150 MB
constexpr int most_levels = 16;
constexpr std::size_t most_vocabulary = std::size_t{1} << 21;

using PlainJson = nlohmann::json;

std::string all_of_file(const std::string& added, const std::string& pre_tokenizer,
                        const std::string& decoder, const std::string& vocabulary,
                        const std::string& merges) {
  const auto list = [](const std::string& items, char open, char close) {
    return items.empty() ? fmt::format("{}{}", open, close)
                         : fmt::format("{}\n{}\n{}", open, items, close);
  };
  return fmt::format(
      "{{\"version\": \"1.0\", \"truncation\": null, \"padding\": null,\n"
      "\"added_tokens\": {},\n"
      "\"normalizer\": null,\n"
      "\"pre_tokenizer\": {},\n"
      "\"post_processor\": null,\n"
      "\"decoder\": {},\n"
      "\"model\": {{\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
      "\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": false, "
      "\"byte_fallback\": false, \"ignore_merges\": false,\n"
      "\"vocab\": {},\n\"merges\": {}}}}}\n",
      list(added, '[', ']'), pre_tokenizer, decoder, list(vocabulary, '{', '}'),
      list(merges, '[', ']'));
}

void append_item(std::string& items, const std::string& item) {
  if (!items.empty()) items += ",\n";
  items += item;
}

constexpr const char* byte_level =
    R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true})";

// How deep lists and objects of JSON text are nested.
int levels_of(std::string_view text) {
  int level = 0, most = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      most = std::max(most, ++level);
    } else if (c == ']' || c == '}') {
      --level;
    }
  }
  return most;
}

// What is read of a file, in the words of the format.
class TokenizerReader {
 public:
  TokenizerReader(const std::string& path, const std::string& text) : path_(path) { parse(text); }

  std::unique_ptr<Tokenizer> read() {
    if (!file_.is_object()) refuse("is not a JSON object");
    require_absent(file_, "normalizer");
    check_post_processor(optional_member(file_, "post_processor"));
    const PlainJson& model = member(file_, "model");
    if (!model.is_object() || (model.contains("type") && text_of(model, "type") != "BPE"))
      unsupported("model.type is not BPE, the only one supported");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix", "dropout",
                            "byte_fallback", "ignore_merges"})
      require_absent(model, key);
    read_tokens(member(model, "vocab"));
    read_added();
    check_ids();
    const PlainJson& pre_tokenizer = optional_member(file_, "pre_tokenizer");
    if (pre_tokenizer.is_null()) return characters(member(model, "merges"));
    check_byte_level(pre_tokenizer);
    return byte_pairs(member(model, "merges"));
  }

 private:
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail<DataError>("{}: {}", path_, fmt::format(format, std::forward<Args>(args)...));
  }

  template <class... Args>
  [[noreturn]] void unsupported(fmt::format_string<Args...> format, Args&&... args) const {
    fail<UnsupportedTokenizer>("{}: {}", path_, fmt::format(format, std::forward<Args>(args)...));
  }

  void parse(const std::string& text) {
    if (const std::size_t zero = zero_byte(text); zero != std::string::npos)
      refuse("byte {}: is not JSON; copy it again", zero + 1);
    // Not by a callback of the parser, which looks at all of a list after each object in it.
    if (levels_of(text) > most_levels) refuse("is nested more than {} levels deep", most_levels);
    try {
      file_ = parse_json<PlainJson>(text, {});
    } catch (const PlainJson::parse_error& error) {
      refuse("byte {}: is not JSON; copy it again", error.byte);
    } catch (const PlainJson::exception&) {  // a number out of range
      refuse("is not JSON; copy it again");
    }
  }

  const PlainJson& optional_member(const PlainJson& object, const char* key) const {
    static const PlainJson null;
    const auto found = object.find(key);
    return found == object.end() ? null : *found;
  }
  const PlainJson& member(const PlainJson& object, const char* key) const {
    const auto found = object.find(key);
    if (found == object.end()) refuse("has no '{}'", key);
    return *found;
  }
  std::string text_of(const PlainJson& object, const char* key) const {
    const PlainJson& value = optional_member(object, key);
    return value.is_string() ? value.get<std::string>() : std::string();
  }
  // Absent, null, false, 0 or empty: nothing that changes how text is encoded.
  void require_absent(const PlainJson& object, const char* key) const {
    const PlainJson& value = optional_member(object, key);
    if (value.is_null() || value == false || value == 0) return;
    if (value.is_string() && text_of(object, key).empty()) return;
    unsupported("has a '{}', which is not supported", key);
  }
  void check_byte_level(const PlainJson& pre_tokenizer) const {
    if (!pre_tokenizer.is_object() || text_of(pre_tokenizer, "type") != "ByteLevel")
      unsupported(
          "its pre_tokenizer is not ByteLevel, with GPT-2's pattern, the only one supported");
    require_absent(pre_tokenizer, "add_prefix_space");
    if (const PlainJson& regex = optional_member(pre_tokenizer, "use_regex");
        !regex.is_null() && regex != true)
      unsupported(
          "its pre_tokenizer does not split by GPT-2's pattern (use_regex), the only one "
          "supported");
  }

  // ByteLevel's moves offsets; the others surround texts with tokens.
  void check_post_processor(const PlainJson& processor) const {
    if (processor.is_null()) return;
    const std::string type = processor.is_object() ? text_of(processor, "type") : std::string();
    if (type == "ByteLevel") return;
    const PlainJson& several =
        type == "Sequence" ? optional_member(processor, "processors") : processor;
    if (!several.is_array())
      unsupported("its post_processor '{}' adds tokens to texts, which is not supported",
                  shown(type));
    for (const PlainJson& one : several) check_post_processor(one);
  }

  std::int64_t id_of(const PlainJson& value, const std::string& token) const {
    if (!value.is_number_integer() || value < 0 || value >= most_vocabulary)
      refuse("the id of '{}' is not a number from 0 to {}", shown(token), most_vocabulary - 1);
    return value.get<std::int64_t>();
  }

  void read_tokens(const PlainJson& vocabulary) {
    if (!vocabulary.is_object())
      refuse("model.vocab is of type {}; it must be an object of tokens and their ids",
             vocabulary.type_name());
    if (vocabulary.empty()) refuse("model.vocab has no tokens");
    if (vocabulary.size() > most_vocabulary)
      unsupported("model.vocab has {} tokens; at most {} are supported", vocabulary.size(),
                  most_vocabulary);
    ids_.reserve(vocabulary.size());
    for (const auto& [token, id] : vocabulary.items())
      ids_.emplace(token, static_cast<std::int32_t>(id_of(id, token)));
  }

  // Tokens that stand for their content: no bytes in printable characters.
  void read_added() {
    const PlainJson& added = optional_member(file_, "added_tokens");
    if (added.is_null()) return;
    if (!added.is_array()) refuse("added_tokens is not a list");
    for (const PlainJson& token : added) {
      if (!token.is_object()) refuse("added_tokens has an item that is not an object");
      const std::string content = text_of(token, "content");
      const auto id = static_cast<std::int32_t>(id_of(optional_member(token, "id"), content));
      if (content.empty()) refuse("the added token {} has no content", id);
      if (optional_member(token, "special") == false)
        unsupported(
            "the added token '{}' is not special: it is matched in text, which is not supported",
            shown(content));
      const auto [found, is_new] = ids_.emplace(content, id);
      if (found->second != id)
        refuse("the token '{}' has the ids {} and {}", shown(content), found->second, id);
      added_.insert(content);
    }
  }

  void check_ids() {
    texts_.assign(ids_.size(), nullptr);
    for (const auto& [token, id] : ids_) {
      if (static_cast<std::size_t>(id) >= texts_.size())
        unsupported("the token '{}' has the id {}, but there are {} tokens", shown(token), id,
                    texts_.size());
      const std::string*& text = texts_[static_cast<std::size_t>(id)];
      if (text != nullptr)
        refuse("the tokens '{}' and '{}' have the same id {}", shown(std::min(*text, token)),
               shown(std::max(*text, token)), id);
      text = &token;
    }
  }

  std::unique_ptr<Tokenizer> characters(const PlainJson& merges) const {
    if (!merges.is_array() || !merges.empty() || !added_.empty())
      unsupported(
          "has no pre_tokenizer; only a vocabulary of characters, without merges, may lack it");
    std::u32string all;
    for (const std::string* text : texts_) {
      const Character first = text->empty() ? Character{0, 0, false} : first_character(*text);
      if (!first.valid || first.bytes != text->size())
        refuse("the token '{}' is not one character", shown(*text));
      all += first.code;
    }
    return make_character_tokenizer(all);
  }

  std::string bytes_of_token(const std::string& token) const {
    if (added_.contains(token)) return token;
    std::optional<std::string> bytes = bytes_of_printable(token);
    if (!bytes || bytes->empty())
      refuse("the token '{}' has characters that stand for no byte", shown(token));
    return *std::move(bytes);
  }

  std::unique_ptr<Tokenizer> byte_pairs(const PlainJson& merges) const {
    BytePairVocabulary vocabulary;
    std::array<bool, 256> bytes{};
    for (std::size_t id = 0; id < texts_.size(); ++id) {
      vocabulary.tokens.push_back(bytes_of_token(*texts_[id]));
      const std::string& token = vocabulary.tokens.back();
      if (added_.contains(*texts_[id]))
        vocabulary.special.push_back(static_cast<std::int32_t>(id));
      else if (token.size() == 1)
        bytes[static_cast<unsigned char>(token[0])] = true;
    }
    for (std::size_t byte = 0; byte < bytes.size(); ++byte)
      if (!bytes[byte]) unsupported("has no token for the byte 0x{:02x}", byte);
    if (added_.contains(std::string(end_of_text_name)))
      vocabulary.end_of_text = ids_.at(std::string(end_of_text_name));
    if (!merges.is_array()) refuse("model.merges is not a list");
    vocabulary.merges = merges_of(merges, vocabulary.tokens);
    return make_byte_pair_tokenizer(std::move(vocabulary));
  }

  std::array<std::string, 2> parts_of(const PlainJson& merge, std::size_t number) const {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
      return {merge[0].get<std::string>(), merge[1].get<std::string>()};
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      const std::size_t space = text.find(' ');
      if (space != std::string::npos) return {text.substr(0, space), text.substr(space + 1)};
    }
    refuse("merge {} is not a pair of tokens", number);
  }

  std::vector<Merge> merges_of(const PlainJson& list, std::span<const std::string> tokens) const {
    std::vector<Merge> merges;
    merges.reserve(list.size());
    std::vector<char> made(tokens.size());  // bytes and results of earlier merges
    for (std::size_t id = 0; id < tokens.size(); ++id) made[id] = tokens[id].size() == 1;
    std::unordered_set<std::uint64_t> pairs;
    for (const PlainJson& item : list) {
      const std::size_t number = merges.size();
      const auto [left, right] = parts_of(item, number);
      const auto id = [&](const std::string& token) {
        const auto found = ids_.find(token);
        if (found == ids_.end() || added_.contains(token))
          refuse("merge {}: the token '{}' is not in model.vocab", number, shown(token));
        return found->second;
      };
      const Merge merge{id(left), id(right), id(left + right)};
      for (const std::int32_t part : {merge.left, merge.right})
        if (!made[static_cast<std::size_t>(part)])
          refuse("merge {}: the token '{}' is made by a later merge or by none", number,
                 shown(*texts_[static_cast<std::size_t>(part)]));
      const auto key = std::uint64_t{static_cast<std::uint32_t>(merge.left)} << 32 |
                       static_cast<std::uint32_t>(merge.right);
      if (!pairs.insert(key).second)
        refuse("merge {}: '{} {}' occurs twice", number, shown(left), shown(right));
      made[static_cast<std::size_t>(merge.merged)] = 1;
      merges.push_back(merge);
    }
    return merges;
  }

  const std::string& path_;
  PlainJson file_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::unordered_set<std::string> added_;
  std::vector<const std::string*> texts_;  // of each id
};

}  // namespace

std::string json_of(const BytePairVocabulary& vocabulary) {
  std::string added;
  std::string tokens;
  std::string merges;
  for (const std::int32_t id : vocabulary.special)
    append_item(added,
                fmt::format(R"({{"id": {}, "content": {}, "single_word": false, "lstrip": false, )"
                            R"("rstrip": false, "normalized": false, "special": true}})",
                            id, strictly_quoted(vocabulary.tokens[static_cast<std::size_t>(id)])));
  std::vector<std::string> texts;
  const std::vector<char> special = vocabulary.are_special();
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    texts.push_back(special[id] ? vocabulary.tokens[id] : printable_bytes(vocabulary.tokens[id]));
    append_item(tokens, fmt::format("{}: {}", strictly_quoted(texts[id]), id));
  }
  for (const Merge& merge : vocabulary.merges)
    append_item(merges, strictly_quoted(texts[static_cast<std::size_t>(merge.left)] + " " +
                                        texts[static_cast<std::size_t>(merge.right)]));
  return all_of_file(added, byte_level, byte_level, tokens, merges);
}

std::string json_of(std::span<const std::string> characters) {
  std::string tokens;
  for (std::size_t id = 0; id < characters.size(); ++id)
    append_item(tokens, fmt::format("{}: {}", strictly_quoted(characters[id]), id));
  return all_of_file("", "null", R"({"type": "Fuse"})", tokens, "");
}

void save_tokenizer(const Tokenizer& tokenizer, const std::string& path) {
  write_atomically(path, tokenizer.json());
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path) {
  return TokenizerReader(path, read_file(path, most_bytes)).read();
}

}  // namespace warpstep::data
