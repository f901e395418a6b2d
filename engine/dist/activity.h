// What each rank of a job does at the moment: for the error of a rank that waits for others in
// vain. The ranks of one machine publish it in memory that they share, so that it can be read of a
// rank that hangs or is stopped.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "engine/dist/shared_memory.h"

namespace warpstep {

struct Activity {
  enum class Kind : std::uint8_t { start, loading, step, results, evaluation, checkpoint, end };
  Kind kind = Kind::start;
  std::uint64_t step = 0;

  std::string place() const;  // "in step 7"
  // Whether all ranks come to it together, once they have agreed on it.
  bool is_agreed() const { return kind == Kind::checkpoint || kind == Kind::end; }
};

// Any thread may read; the one that trains sets what its own rank does.
class Activities {
 public:
  Activities(int size, int rank);

  // To see each other, one rank of a machine offers its memory, as a text for the others, which
  // take it. take() is false where the memory cannot be reached: a rank then knows of itself only.
  std::string offer() const { return memory_.offer(); }
  bool take(const std::string& offered);

  void set(Activity activity);
  Activity own() const;
  void set_waiting(bool waiting);  // for other ranks, as part of that
  // By itself, not because of another rank; what its process will exit with, not 0.
  void set_failed(int code);
  // The code of the first of the ranks below this one that failed by itself; 0: none did.
  int failure_below(int rank) const;
  bool another_ended() const;  // its process, of those that are known
  bool knows(int rank) const;
  bool knows_all() const;

  // "rank 0 waits for other ranks in step 7 for 3.0 s; rank 1 loads the batch of step 7 for 31.0 s,
  // and its process is stopped", of the ranks that are known.
  std::string describe() const;

 private:
  struct Entry;

  std::span<Entry> entries() const;
  Entry& own_entry() const;
  void begin(Activity activity);

  std::size_t rank_, size_;
  SharedMemory memory_;
};

}  // namespace warpstep
