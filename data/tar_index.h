// The index beside a shard, as DALI's wds2idx writes it: a line `v1.2 SAMPLES`, then one a sample
// of `EXTENSION OFFSET BYTES NAME` for each of its members, all divided by single spaces. Offsets
// are those of the members' data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "data/tar.h"

namespace warpstep::data {

// Builds the text of an index from a shard's members, in their order.
class TarIndexText {
 public:
  void add(const TarMember& member);
  // Empty when there can be no index: no samples, or a name with white space in it.
  std::string text() const;

 private:
  std::string lines_;
  std::string key_;
  std::uint64_t samples_ = 0;
  bool fits_ = true;
};

// Throws DataError naming `path` and the line unless the index `found` says the same as `expected`,
// the text of what is in the shard. An index of v1.1, which has no names, is fine too.
void check_tar_index(std::string_view found, const std::string& path, std::string_view expected);

}  // namespace warpstep::data
