// Files of merges, such as GPT-2's vocab.bpe: a tokenizer that gives every text back.
#include "tests/fuzz/tokenizer_promises.h"

namespace warpstep::fuzz::merges_target {
namespace {

void run(Input input) {
  const auto tokenizer = data::read_merges(file_of("input.bpe", input));
  promise_tokenizer_is_sound(*tokenizer);
  promise_text_comes_back(*tokenizer, {reinterpret_cast<const char*>(input.data()), input.size()});
}

std::vector<Bytes> seeds() {
  return {bytes_of_text("#version: 0.2\nt h\nh e\nth e\nĠ the\na a\naa aa\n"),
          bytes_of_text("a b\r\nab c\r\nĠ Ġ\r\nĊ Ċ\r\n"), bytes_of_text("Ã ©\n! \"\n\\ \\\n")};
}

const Registered target_{"merges", run, seeds};

}  // namespace
}  // namespace warpstep::fuzz::merges_target
