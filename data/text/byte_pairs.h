// Byte-pair encoding of one piece of text: neighbouring tokens are merged, always the pair that
// comes first in a list of merges (Sennrich et al. 2016, arXiv:1508.07909).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace warpstep::data {

// Of ids; a token is made of one merge or of several.
struct Merge {
  std::int32_t left = 0, right = 0, merged = 0;
};

// Immutable; merge() may be called from many threads at once, each with its own scratch.
class BytePairs {
 public:
  // Memory that merge() uses again.
  struct Scratch {
    struct Link {
      std::int32_t id;  // -1: merged into its left neighbour
      std::int32_t before, after;
    };
    struct Candidate {
      std::uint32_t rank;
      std::int32_t at;  // of the left token
      std::int32_t left, right;
    };
    std::vector<Link> links;
    std::vector<Candidate> heap;
  };

  // `bytes` has the ids of single bytes. Every part of a merge must be one of them or the result of
  // an earlier merge, and no pair may occur twice (the caller has checked).
  BytePairs(const std::array<std::int32_t, 256>& bytes, std::span<const Merge> merges);

  // Appends the tokens of a piece. O(n log n) in its bytes, and O(n^2) with small constants for
  // pieces of at most 48; at most 2^31 - 1 bytes.
  void merge(std::string_view piece, std::vector<std::int32_t>& ids, Scratch& scratch) const;

 private:
  struct Slot {
    std::uint64_t pair = no_pair;
    std::uint32_t rank = no_rank;
    std::int32_t merged = 0;
  };
  static constexpr std::uint64_t no_pair = ~std::uint64_t{0};
  static constexpr std::uint32_t no_rank = ~std::uint32_t{0};

  const Slot& find(std::int32_t left, std::int32_t right) const;
  void merge_short(std::string_view piece, std::vector<std::int32_t>& ids) const;
  void merge_long(std::string_view piece, std::vector<std::int32_t>& ids, Scratch& scratch) const;

  std::array<std::int32_t, 256> bytes_;
  std::vector<Slot> slots_;  // a hash table with open addresses, at most half full
  std::uint64_t mask_ = 0;
  Slot absent_;
};

}  // namespace warpstep::data
