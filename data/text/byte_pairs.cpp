#include "data/text/byte_pairs.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "engine/core/error.h"

namespace warpstep::data {
namespace {

constexpr std::size_t short_bytes = 48;

constexpr std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

constexpr std::uint64_t spread(std::uint64_t key) {
  key *= 0x9e3779b97f4a7c15;
  return key ^ key >> 32;
}

// The pair with the lowest rank comes first, of equal ones the leftmost.
bool later(const BytePairs::Scratch::Candidate& a, const BytePairs::Scratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
}

}  // namespace

BytePairs::BytePairs(const std::array<std::int32_t, 256>& bytes, std::span<const Merge> merges)
    : bytes_(bytes),
      slots_(std::bit_ceil(2 * merges.size() + 2)),
      mask_(static_cast<std::uint64_t>(slots_.size()) - 1) {
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const std::uint64_t key = pair_key(merges[rank].left, merges[rank].right);
    std::uint64_t at = spread(key) & mask_;
    while (slots_[at].pair != no_pair) at = (at + 1) & mask_;
    slots_[at] = {key, static_cast<std::uint32_t>(rank), merges[rank].merged};
  }
}

const BytePairs::Slot& BytePairs::find(std::int32_t left, std::int32_t right) const {
  const std::uint64_t key = pair_key(left, right);
  for (std::uint64_t at = spread(key) & mask_;; at = (at + 1) & mask_) {
    const Slot& slot = slots_[at];
    if (slot.pair == key) return slot;
    if (slot.pair == no_pair) return absent_;
  }
}

void BytePairs::merge(std::string_view piece, std::vector<std::int32_t>& ids,
                      Scratch& scratch) const {
  if (piece.size() <= short_bytes) return merge_short(piece, ids);
  if (piece.size() > std::numeric_limits<std::int32_t>::max())
    fail<UsageError>("a piece of text of {} bytes; at most 2^31 - 1 are possible", piece.size());
  merge_long(piece, ids, scratch);
}

void BytePairs::merge_short(std::string_view piece, std::vector<std::int32_t>& ids) const {
  std::array<std::int32_t, short_bytes> tokens{};
  std::array<const Slot*, short_bytes> pairs{};  // of token i and i + 1
  std::size_t count = piece.size();
  for (std::size_t i = 0; i < count; ++i) tokens[i] = bytes_[static_cast<unsigned char>(piece[i])];
  for (std::size_t i = 0; i + 1 < count; ++i) pairs[i] = &find(tokens[i], tokens[i + 1]);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i)
      if (pairs[i]->rank < pairs[best]->rank) best = i;
    if (pairs[best]->rank == no_rank) break;
    tokens[best] = pairs[best]->merged;
    --count;
    for (std::size_t i = best + 1; i < count; ++i) {
      tokens[i] = tokens[i + 1];
      pairs[i] = pairs[i + 1];
    }
    if (best + 1 < count) pairs[best] = &find(tokens[best], tokens[best + 1]);
    if (best > 0) pairs[best - 1] = &find(tokens[best - 1], tokens[best]);
  }
  ids.insert(ids.end(), tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count));
}

void BytePairs::merge_long(std::string_view piece, std::vector<std::int32_t>& ids,
                           Scratch& scratch) const {
  auto& links = scratch.links;
  auto& heap = scratch.heap;
  const auto count = static_cast<std::int32_t>(piece.size());
  links.clear();
  heap.clear();
  for (std::int32_t i = 0; i < count; ++i)
    links.push_back(
        {bytes_[static_cast<unsigned char>(piece[static_cast<std::size_t>(i)])], i - 1, i + 1});
  const auto link = [&](std::int32_t i) -> Scratch::Link& {
    return links[static_cast<std::size_t>(i)];
  };
  const auto candidate = [&](std::int32_t at, bool in_order) {
    const std::int32_t next = link(at).after;
    if (next == count) return;
    const Slot& slot = find(link(at).id, link(next).id);
    if (slot.rank == no_rank) return;
    heap.push_back({slot.rank, at, link(at).id, link(next).id});
    if (in_order) std::push_heap(heap.begin(), heap.end(), later);
  };
  for (std::int32_t i = 0; i + 1 < count; ++i) candidate(i, false);
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Scratch::Candidate best = heap.back();
    heap.pop_back();
    Scratch::Link& left = link(best.at);
    // Tokens that were merged since, with a neighbour or each other, have another id or none.
    if (left.id != best.left || left.after == count || link(left.after).id != best.right) continue;
    Scratch::Link& right = link(left.after);
    left.id = find(best.left, best.right).merged;
    right.id = -1;
    left.after = right.after;
    if (left.after != count) link(left.after).before = best.at;
    candidate(best.at, true);
    if (left.before >= 0) candidate(left.before, true);
  }
  for (std::int32_t i = 0; i != count; i = link(i).after) ids.push_back(link(i).id);
}

}  // namespace warpstep::data
