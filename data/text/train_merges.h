// Learns the merges of byte-level BPE from text.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/text/tokenizer.h"

namespace warpstep::data {

class MergeTrainer {
 public:
  // Bytes. Longer pieces (a line of DNA, base64) are cut into parts, between characters, and
  // counted by at most so many of the parts, evenly spaced: that bounds the time per merge.
  static constexpr std::size_t longest_word = 1024;
  static constexpr std::size_t most_parts = 4096;

  // Counts the pieces of a text, which ends where a piece ends (text/pieces.h). Memory grows with
  // the number of different pieces.
  void add(std::string_view text);
  // Merges the most frequent pair of neighbouring tokens, of equally frequent ones that with the
  // lowest ids, until the vocabulary (with <|endoftext|>) has `size` tokens or no pair occurs
  // twice. Throws UsageError for a size below 257.
  BytePairVocabulary train(std::int64_t size) const;

 private:
  struct PieceHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>()(text);
    }
  };
  void add_long(std::string_view piece);

  std::unordered_map<std::string, std::int64_t, PieceHash, std::equal_to<>> counts_;
  std::vector<std::string> parts_;  // of long pieces: every `parts_stride_`th
  std::int64_t parts_seen_ = 0, parts_stride_ = 1;
};

}  // namespace warpstep::data
