// What holds for every tokenizer that could be read from a file.
#pragma once

#include <string>

#include "data/io/file.h"
#include "data/text/tokenizer.h"
#include "tests/fuzz/harness/target.h"

namespace warpstep::fuzz {

// A text that a tokenizer of characters may refuse.
inline void promise_text_comes_back(const data::Tokenizer& tokenizer, std::string_view text) {
  const std::vector<std::int32_t> ids = tokenizer.encode(text);
  for (const std::int32_t id : ids)
    promise(id >= 0 && id < tokenizer.vocabulary(), "ids are in the vocabulary");
  promise(tokenizer.decode(ids) == text, "text comes back from its ids");
}

// Encodes the bytes of all tokens, and reads the tokenizer again from its own file.
inline void promise_tokenizer_is_sound(const data::Tokenizer& tokenizer) {
  std::string all;
  for (std::int32_t id = 0; id < tokenizer.vocabulary(); ++id) all += tokenizer.bytes_of(id);
  promise_text_comes_back(tokenizer, all);
  const std::string json = tokenizer.json();
  const std::string path =
      file_of("again.json", {reinterpret_cast<const std::uint8_t*>(json.data()), json.size()});
  const auto again = data::load_tokenizer(path);
  promise(again->json() == json, "a written tokenizer is read again");
  promise(again->name() == tokenizer.name() && again->vocabulary() == tokenizer.vocabulary() &&
              again->end_of_text() == tokenizer.end_of_text() &&
              again->encode(all) == tokenizer.encode(all),
          "and encodes as before");
}

inline Bytes bytes_of_text(std::string_view text) {
  return {text.begin(), text.end()};
}

}  // namespace warpstep::fuzz
