// Any bytes as text: they come back from their ids, byte-pair encoding agrees with its definition,
// and a cut between pieces changes nothing.
#include <algorithm>
#include <map>

#include "data/text/pieces.h"
#include "data/text/train_merges.h"
#include "data/text/unicode.h"
#include "tests/fuzz/tokenizer_promises.h"

namespace warpstep::fuzz::encode_target {
namespace {

using Ids = std::vector<std::int32_t>;

struct Trained {
  data::BytePairVocabulary vocabulary;
  std::unique_ptr<data::Tokenizer> tokenizer;
};

const Trained& trained() {
  static const Trained made = [] {
    data::MergeTrainer trainer;
    trainer.add(
        "In the beginning the tokens were bytes, and the bytes weren't words; it's 2026, é é 東京 "
        "東京 "
        "aaaaaaaa aaaaaaaa \n\n\n\n the \xff\xff \xff\xff beginning");
    Trained result{trainer.train(400), nullptr};
    result.tokenizer = data::make_byte_pair_tokenizer(result.vocabulary);
    return result;
  }();
  return made;
}

// The definition: of all pairs the one whose merge comes first, everywhere, until there is none.
Ids by_definition(std::string_view piece) {
  const auto& [vocabulary, tokenizer] = trained();
  Ids ids;
  for (const char byte : piece) ids.push_back(tokenizer->encode(std::string(1, byte)).front());
  for (;;) {
    const data::Merge* first = nullptr;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i)
      for (const data::Merge& merge : vocabulary.merges)
        if (merge.left == ids[i] && merge.right == ids[i + 1] &&
            (first == nullptr || &merge < first))
          first = &merge;
    if (first == nullptr) return ids;
    Ids merged;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const bool both = i + 1 < ids.size() && ids[i] == first->left && ids[i + 1] == first->right;
      merged.push_back(both ? first->merged : ids[i]);
      if (both) ++i;
    }
    ids = std::move(merged);
  }
}

void run(Input input) {
  const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
  const data::Tokenizer& tokenizer = *trained().tokenizer;
  promise_text_comes_back(tokenizer, text);
  const Ids ids = tokenizer.encode(text);
  Ids expected;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t bytes = data::first_piece(rest);
    promise(bytes >= 1 && bytes <= rest.size(), "a piece has bytes of the text");
    const Ids piece = bytes <= 300 ? by_definition(rest.substr(0, bytes))
                                   : tokenizer.encode(rest.substr(0, bytes));
    expected.insert(expected.end(), piece.begin(), piece.end());
    rest.remove_prefix(bytes);
  }
  promise(ids == expected, "tokens are those of the definition");
  for (std::size_t i = 1; i < std::min<std::size_t>(text.size(), 200); ++i) {
    if (!data::is_piece_cut(text, i)) continue;
    Ids parts = tokenizer.encode(text.substr(0, i));
    const Ids second = tokenizer.encode(text.substr(i));
    parts.insert(parts.end(), second.begin(), second.end());
    promise(parts == ids, "a cut between pieces changes no token");
  }
  std::string again;
  for (std::string_view rest = text; !rest.empty();) {
    const data::Character character = data::first_character(rest);
    if (character.valid)
      data::append_utf8(again, character.code);
    else
      again += static_cast<char>(character.code);
    rest.remove_prefix(character.bytes);
  }
  promise(again == text, "characters are written as they are read");
}

std::vector<Bytes> seeds() {
  return {bytes_of_text("It's the beginning, isn't it?  We'll\n\n see 2026 \t aaaaaaaaaaaaaaaaa"),
          bytes_of_text("東京 é\u00a0\u3000x \xf0\x9f\x98\x80 \xff\xfe\x80 \xed\xa0\x80"),
          Bytes(100, 'a'), Bytes(70, ' ')};
}

const Registered target_{"encode", run, seeds};

}  // namespace
}  // namespace warpstep::fuzz::encode_target
