#include "data/text/train_merges.h"

#include <algorithm>
#include <array>
#include <queue>
#include <utility>
#include <vector>

#include "data/text/pieces.h"
#include "engine/core/error.h"

namespace warpstep::data {
namespace {

using Pair = std::array<std::int32_t, 2>;

struct PairHash {
  std::size_t operator()(const Pair& pair) const {
    const auto key = std::uint64_t{static_cast<std::uint32_t>(pair[0])} << 32 |
                     static_cast<std::uint32_t>(pair[1]);
    return key * 0x9e3779b97f4a7c15 >> 16;
  }
};

struct CountedWord {
  std::vector<std::int32_t> tokens;
  std::int64_t count = 0;
};

struct PairUse {
  std::int64_t count = 0;            // in all words
  std::vector<std::uint32_t> words;  // that have it, each once; some may have it no longer
  bool is_changed = false;           // since the last merge
};

struct PairEntry {
  std::int64_t count = 0;
  Pair pair{};
  bool operator<(const PairEntry& other) const {  // the top of the queue is the largest
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

class PairMerger {
 public:
  explicit PairMerger(std::vector<CountedWord> words) : words_(std::move(words)) {
    for (std::uint32_t word = 0; word < words_.size(); ++word) {
      count(word, 1);
      list(word, [](const Pair&) { return true; });
    }
    for (auto& [pair, use] : uses_) {
      queue_.push({use.count, pair});
      use.is_changed = false;
    }
    changed_.clear();
  }

  // The next merge, which makes the token `merged`; its count is below 2 when there is none.
  PairEntry next(std::int32_t merged) {
    const PairEntry best = top();
    if (best.count < 2) return best;
    const std::vector<std::uint32_t> words = std::move(uses_[best.pair].words);
    for (const std::uint32_t word : words) {
      if (!has(words_[word].tokens, best.pair)) continue;
      count(word, -1);
      replace(words_[word].tokens, best.pair, merged);
      count(word, 1);
      list(word, [merged](const Pair& pair) { return pair[0] == merged || pair[1] == merged; });
    }
    for (const Pair& pair : changed_) {
      const auto found = uses_.find(pair);
      found->second.is_changed = false;
      if (found->second.count == 0)
        uses_.erase(found);
      else
        queue_.push({found->second.count, pair});
    }
    changed_.clear();
    return best;
  }

 private:
  PairEntry top() {
    while (!queue_.empty()) {
      const PairEntry best = queue_.top();
      queue_.pop();
      const auto found = uses_.find(best.pair);
      if (found != uses_.end() && found->second.count == best.count) return best;
    }
    return {};
  }

  static bool has(const std::vector<std::int32_t>& tokens, const Pair& pair) {
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i)
      if (tokens[i] == pair[0] && tokens[i + 1] == pair[1]) return true;
    return false;
  }

  static void replace(std::vector<std::int32_t>& tokens, const Pair& pair, std::int32_t merged) {
    std::size_t to = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i, ++to) {
      const bool both = i + 1 < tokens.size() && tokens[i] == pair[0] && tokens[i + 1] == pair[1];
      tokens[to] = both ? merged : tokens[i];
      if (both) ++i;
    }
    tokens.resize(to);
  }

  // Adds the pairs of a word to the counts, or takes them away.
  void count(std::uint32_t word, std::int64_t sign) {
    const std::vector<std::int32_t>& tokens = words_[word].tokens;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      const Pair pair{tokens[i], tokens[i + 1]};
      PairUse& use = uses_[pair];
      use.count += sign * words_[word].count;
      if (!use.is_changed) changed_.push_back(pair);
      use.is_changed = true;
    }
  }

  // Adds a word to the lists of its new pairs.
  template <class IsNew>
  void list(std::uint32_t word, const IsNew& is_new) {
    const std::vector<std::int32_t>& tokens = words_[word].tokens;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      const Pair pair{tokens[i], tokens[i + 1]};
      if (!is_new(pair)) continue;
      std::vector<std::uint32_t>& words = uses_[pair].words;
      if (words.empty() || words.back() != word) words.push_back(word);
    }
  }

  std::vector<CountedWord> words_;
  std::unordered_map<Pair, PairUse, PairHash> uses_;
  std::priority_queue<PairEntry> queue_;
  std::vector<Pair> changed_;  // since the last merge, each once
};

// Bytes of the first part of a long piece, which ends before a character if it is text.
std::size_t first_part(std::string_view piece) {
  constexpr std::size_t most = MergeTrainer::longest_word;
  if (piece.size() <= most) return piece.size();
  for (std::size_t end = most; end > most - 4; --end)
    if ((static_cast<unsigned char>(piece[end]) & 0xc0) != 0x80) return end;
  return most;
}

}  // namespace

void MergeTrainer::add(std::string_view text) {
  while (!text.empty()) {
    const std::size_t bytes = first_piece(text);
    const std::string_view piece = text.substr(0, bytes);
    text.remove_prefix(bytes);
    if (bytes > longest_word) {
      add_long(piece);
      continue;
    }
    const auto found = counts_.find(piece);
    if (found != counts_.end())
      ++found->second;
    else
      counts_.emplace(piece, 1);
  }
}

void MergeTrainer::add_long(std::string_view piece) {
  while (!piece.empty()) {
    const std::size_t bytes = first_part(piece);
    if (parts_seen_++ % parts_stride_ == 0) parts_.emplace_back(piece.substr(0, bytes));
    piece.remove_prefix(bytes);
    if (parts_.size() <= most_parts) continue;
    for (std::size_t i = 0; 2 * i < parts_.size(); ++i) parts_[i].swap(parts_[2 * i]);
    parts_.resize((parts_.size() + 1) / 2);
    parts_stride_ *= 2;
  }
}

BytePairVocabulary MergeTrainer::train(std::int64_t size) const {
  constexpr std::int64_t least = 257;
  if (size < least)
    fail<UsageError>("a vocabulary of {}; byte-level BPE needs at least {}: the bytes and {}", size,
                     least, end_of_text_name);
  const std::unique_ptr<Tokenizer> bytes = make_byte_pair_tokenizer(byte_pair_vocabulary({}));
  std::vector<CountedWord> words;
  words.reserve(counts_.size() + parts_.size());
  for (const auto& [piece, count] : counts_) words.push_back({bytes->encode(piece), count});
  for (const std::string& part : parts_) words.push_back({bytes->encode(part), parts_stride_});
  std::ranges::sort(words, {}, &CountedWord::tokens);  // the map's order is not portable
  PairMerger merger(std::move(words));
  std::vector<Pair> merges;
  while (static_cast<std::int64_t>(merges.size()) < size - least) {
    const PairEntry best = merger.next(static_cast<std::int32_t>(256 + merges.size()));
    if (best.count < 2) break;
    merges.push_back(best.pair);
  }
  return byte_pair_vocabulary(merges);
}

}  // namespace warpstep::data
