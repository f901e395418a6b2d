// `warpstep data tokenize`: text files to the tokens of a language model.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/formats/tokens.h"

namespace warpstep::data {

struct TokenizeOptions {
  // "gpt2" and "bpe" (with `merges`: that file's; "bpe" without: trained), "char", "byte", or the
  // path of a tokenizer.json.
  std::string tokenizer = "gpt2";
  std::string merges;              // path of a vocab.bpe
  std::int64_t vocabulary = 1024;  // of a trained "bpe"
  double val_fraction = 0.1;       // of the characters, from the end; in [0, 1)
  TokenFormat format = TokenFormat::safetensors;
  // Put <|endoftext|> between texts, and read it as a token where a text contains it.
  bool end_of_text = false;
  int workers = 0;                                                      // 0: all cores
  std::function<void(std::uint64_t done, std::uint64_t all)> progress;  // in pieces of a MiB
};

struct TokenizeSummary {
  struct Part {
    std::uint64_t bytes = 0;   // of text
    std::uint64_t tokens = 0;  // with <|endoftext|>
  };
  std::string tokenizer;  // its name
  std::int64_t vocabulary = 0;
  Part train, val;
};

// Writes OUT/train.*, OUT/val.* (unless val_fraction is 0) and OUT/tokenizer.json; `out` must not
// exist or be an empty folder, and appears when everything is complete and synced to disk. The
// texts follow each other; the last val_fraction of all characters is for validation. Merges are
// trained on at most 256 pieces of a MiB, evenly spaced, of the training part.
//
// Memory does not grow with the texts: a few MiB per worker, and when merges are trained their
// different words. A run of more than 1 MiB without a space may be cut where BPE would merge
// across. Equal texts and options give equal files for any number of workers. Throws DataError that
// names the text and the byte, UsageError for wrong options.
TokenizeSummary tokenize(const std::vector<std::string>& texts, const std::string& out,
                         const TokenizeOptions& options);

}  // namespace warpstep::data
