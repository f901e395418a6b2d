// tokenizer.json: a tokenizer that gives every text back and can be written and read again.
#include "data/text/train_merges.h"
#include "tests/fuzz/tokenizer_promises.h"

namespace warpstep::fuzz::tokenizer_target {
namespace {

void run(Input input) {
  const auto tokenizer = data::load_tokenizer(file_of("input.json", input));
  promise_tokenizer_is_sound(*tokenizer);
}

// All bytes, as short as the format allows, and merges as pairs.
std::string least_file() {
  const data::BytePairVocabulary bytes = data::byte_pair_vocabulary({});
  std::string tokens;
  for (std::size_t id = 0; id < 256; ++id) {
    std::string text = data::printable_bytes(bytes.tokens[id]);
    if (text == "\"" || text == "\\") text.insert(0, 1, '\\');
    tokens += fmt::format("\"{}\":{},", text, id);
  }
  return "{\"added_tokens\":[{\"id\":258,\"content\":\"é!\"}],\"pre_tokenizer\":{\"type\":"
         "\"ByteLevel\"},\"model\":{\"vocab\":{" +
         tokens + R"("ab":256,"abc":257},"merges":[["a","b"],["ab","c"]]}})";
}

std::vector<Bytes> seeds() {
  data::MergeTrainer trainer;
  trainer.add("she sells sea shells by the sea shore");
  return {bytes_of_text(data::make_byte_pair_tokenizer(trainer.train(270))->json()),
          bytes_of_text(data::make_character_tokenizer(U"\n \"abé\U0001F600")->json()),
          bytes_of_text(least_file())};
}

const Registered target_{"tokenizer", run, seeds};

}  // namespace
}  // namespace warpstep::fuzz::tokenizer_target
