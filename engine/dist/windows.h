// Through which ranks of one machine exchange: a window of shared memory for each, which it fills
// and the others read.
//
// An exchange is one call of begin(), give() and all_given() by every rank. Windows have two sides,
// taken in turn: a rank that begins an exchange has seen that all had given in the last one, and so
// had read what was given in the one before, whose side it fills now.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/dist/shared_memory.h"

namespace warpstep {

class Windows {
 public:
  static constexpr std::size_t bytes = std::size_t{1} << 20;  // of a side: a cache holds it

  Windows(int size, int rank);

  std::string offer() const { return memory_.offer(); }
  bool take(const std::string& offered) { return memory_.take(offered); }

  void begin() { ++number_; }
  std::byte* own() const { return side_of(rank_); }
  void give() const;  // own() is filled
  bool all_given() const;
  std::vector<int> silent() const;  // the ranks that have not given
  const std::byte* of(int rank) const { return side_of(rank); }

 private:
  struct Given;

  Given& given(int rank) const;
  std::byte* side_of(int rank) const;

  int size_, rank_;
  std::uint64_t number_ = 0;  // of the exchange, from 1
  SharedMemory memory_;
};

}  // namespace warpstep
