// Learns the merges of byte-level BPE from text.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "data/text/tokenizer.h"

namespace warpstep::data {

class MergeTrainer {
 public:
  // Pieces longer than this are no words; they are not counted, which bounds the time per merge.
  static constexpr std::size_t longest_piece = 1024;

  // Counts the pieces of a text. Memory grows with the number of different pieces.
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
  std::unordered_map<std::string, std::int64_t, PieceHash, std::equal_to<>> counts_;
};

}  // namespace warpstep::data
