// Memory that processes of one machine share, which ends with the last of them: nothing is left
// behind by a killed job.
#pragma once

#include <cstddef>
#include <string>

namespace warpstep {

class SharedMemory {
 public:
  explicit SharedMemory(std::size_t bytes);  // zeros; throws std::bad_alloc
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // One process offers its memory, as a text for the others, which take it in place of their own.
  // take() is false where it cannot be reached: the other is on another machine, or in a container
  // of its own.
  std::string offer() const;
  bool take(const std::string& offered);

  std::byte* data() const { return data_; }

 private:
  std::size_t bytes_;
  int file_ = -1;
  std::string name_;
  std::byte* data_ = nullptr;
};

}  // namespace warpstep
