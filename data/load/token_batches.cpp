#include "data/load/token_batches.h"

#include <algorithm>
#include <numeric>
#include <type_traits>
#include <utility>

#include "engine/core/clock.h"
#include "engine/core/error.h"
#include "engine/core/random.h"

namespace warpstep::data {
namespace {

constexpr std::uint64_t worker_stack = 1 << 20;              // bytes that a worker's thread touches
constexpr std::int64_t most_tokens = std::int64_t{1} << 30;  // of a batch: places are i32
constexpr std::int64_t most_counted = 1 << 20;               // ids that finish() counts

void add_time(std::atomic<std::uint64_t>& counter, std::uint64_t ns) {  // one writer
  counter.store(counter.load(std::memory_order_relaxed) + ns, std::memory_order_relaxed);
}

// Uniform in [0, n), for any n, from a draw of its own for each (epoch, index).
std::uint64_t draw_below(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch,
                         std::uint64_t index) {
  const auto words = draw(seed, Purpose::windows, static_cast<std::uint32_t>(epoch), index);
  const std::uint64_t word = std::uint64_t{words[0]} << 32 | words[1];
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(word) * n >> 64);
}

constexpr std::uint64_t offset_index = ~std::uint64_t{0};  // of the draw of an epoch's offset

// In training a padded window would make the other rows of its rank count more.
bool pads(const WindowOptions& options, Tail tail) {
  return options.windows == Windows::sequential && tail == Tail::pad;
}

std::uint64_t windows_of(std::uint64_t tokens, const WindowOptions& options, Tail tail) {
  const auto sequence = static_cast<std::uint64_t>(options.sequence);
  const std::uint64_t labels = tokens == 0 ? 0 : tokens - 1;
  switch (options.windows) {
    case Windows::random: return labels / sequence;
    case Windows::sequential: return (labels + (pads(options, tail) ? sequence - 1 : 0)) / sequence;
    // One window fewer than fit, so that the offset can be any of a window's places.
    case Windows::shuffled: break;
  }
  return labels < sequence ? 0 : std::max<std::uint64_t>(1, (tokens - sequence) / sequence);
}

}  // namespace

WindowStarts::WindowStarts(const TokenSet& tokens, const WindowOptions& options, std::uint64_t seed,
                           Tail tail)
    : options_(options), seed_(seed), tokens_(tokens.size()) {
  if (options.sequence < 1 || options.sequence > most_tokens)
    fail<UsageError>("windows of {} tokens: must be from 1 to {}", options.sequence, most_tokens);
  count_ = windows_of(tokens_, options, tail);
  if (count_ == 0)
    fail<UsageError>(
        "{}: has {} tokens, but a window of {} and the token after it need {}; use a shorter "
        "--sequence or more text",
        tokens.path(), tokens_, options.sequence, pads(options, tail) ? 2 : options.sequence + 1);
}

std::uint64_t WindowStarts::at(std::uint64_t epoch, std::uint64_t place) const {
  const auto sequence = static_cast<std::uint64_t>(options_.sequence);
  switch (options_.windows) {
    case Windows::sequential: return place * sequence;
    case Windows::random: return draw_below(tokens_ - sequence, seed_, epoch, place);
    case Windows::shuffled: break;
  }
  const std::uint64_t slack = tokens_ - 1 - count_ * sequence;
  const std::uint64_t offset = draw_below(slack + 1, seed_, epoch, offset_index);
  return offset + Feistel(count_, seed_, epoch, 0).at(place) * sequence;
}

TokenBatches::TokenBatches(TokenSet tokens, const WindowOptions& windows,
                           const LoaderOptions& options)
    : tokens_(std::move(tokens)),
      options_(options),
      sequence_(windows.sequence),
      starts_(tokens_, windows, options.seed, options.tail) {
  if (options.batch < 1 || options.batch > most_tokens / sequence_)
    fail<UsageError>("batch {} of sequences of {}: must be from 1 to {}", options.batch, sequence_,
                     most_tokens / sequence_);
  if (options.world < 1 || options.rank >= options.world)
    fail<UsageError>("rank {} of a world of {}: ranks count from 0", options.rank, options.world);
  global_batch_ = static_cast<std::uint64_t>(options.batch) * options.world;
  if (options.tail == Tail::drop && global_batch_ > samples())
    fail<UsageError>(
        "{}: {} windows of {} tokens do not fill one batch of {}; use a smaller --batch, a shorter "
        "--sequence or more text",
        path(), samples(), sequence_, global_batch_);
  steps_ = options.tail == Tail::drop ? samples() / global_batch_
                                      : (samples() + global_batch_ - 1) / global_batch_;
  constexpr std::size_t alignment = 64;
  part_bytes_ = (idx(options.batch * sequence_) * sizeof(std::int32_t) + alignment - 1) /
                alignment * alignment;
}

std::string TokenBatches::sample_text() const {
  return fmt::format("sequences of {} tokens", sequence_);
}

std::uint64_t TokenBatches::worker_bytes() const {
  return worker_stack +
         (static_cast<std::uint64_t>(std::min(tokens_.vocabulary(), most_counted)) + 1) *
             sizeof(std::uint32_t) +
         static_cast<std::uint64_t>(sequence_ + 1) * 2 * sizeof(std::int32_t);
}

std::string TokenBatches::name(std::uint64_t index) const {
  return fmt::format("{}, window {}", path(), index);
}

std::uint64_t TokenBatches::place_of(Position position, std::int64_t row) const {
  return position.step * global_batch_ +
         static_cast<std::uint64_t>(options_.rank) * static_cast<std::uint64_t>(options_.batch) +
         static_cast<std::uint64_t>(row);
}

// Asks the system to read ahead a window that this rank needs later.
void TokenBatches::hint(Position position, std::int64_t row) const {
  const auto batch = static_cast<std::uint64_t>(options_.batch);
  const std::uint64_t ahead =
      position.step * batch + static_cast<std::uint64_t>(row) + hint_distance;
  const std::uint64_t place =
      place_of({position.epoch, ahead / batch}, static_cast<std::int64_t>(ahead % batch));
  if (ahead / batch < steps_ && place < samples())
    tokens_.will_need(starts_.at(position.epoch, place), static_cast<std::uint64_t>(sequence_) + 1);
}

// tokens, labels or order of a slot: i32 [batch * sequence].
template <class Byte>
auto TokenBatches::part(std::span<Byte> slot, std::size_t number) const {
  using Number = std::conditional_t<std::is_const_v<Byte>, const std::int32_t, std::int32_t>;
  return std::span(reinterpret_cast<Number*>(slot.data() + number * part_bytes_),
                   idx(options_.batch * sequence_));
}

void TokenBatches::fill(Position position, std::int64_t begin, std::int64_t end,
                        std::span<std::byte> slot, MakerState& state, std::vector<BadSample>& bad,
                        const std::function<bool()>& stop) {
  const std::uint64_t from = now_ns();
  const auto tokens = part(slot, 0), labels = part(slot, 1);
  std::uint64_t windows = 0;
  for (std::int64_t row = begin; row < end && !stop(); ++row) {
    const auto first = idx(row * sequence_), length = idx(sequence_);
    const auto row_tokens = tokens.subspan(first, length),
               row_labels = labels.subspan(first, length);
    const std::uint64_t place = place_of(position, row);
    const record::Span span(spans::sample, (position.epoch * steps_per_epoch() + position.step) *
                                                   static_cast<std::uint64_t>(options_.batch) +
                                               static_cast<std::uint64_t>(row));
    try {
      if (state.epoch != position.epoch) {
        tokens_.check_unchanged();
        state.epoch = position.epoch;
      }
      hint(position, row);
      if (place < samples()) {
        fill_row(starts_.at(position.epoch, place), row_tokens, row_labels, state);
        ++windows;
        continue;
      }
    } catch (const std::exception& error) {  // a file with a broken token is not what it says
      bad.push_back({place, position, row,
                     fmt::format("{} (epoch {}, step {})", error.what(), position.epoch + 1,
                                 position.step + 1),
                     true});
    }
    std::ranges::fill(row_tokens, 0);
    std::ranges::fill(row_labels, -1);
  }
  add_time(state.times.read_ns, now_ns() - from);
  add_time(state.times.samples, windows);
  add_time(state.times.bytes,
           windows * static_cast<std::uint64_t>(sequence_) * size_bytes(tokens_.type()));
}

void TokenBatches::fill_row(std::uint64_t start, std::span<std::int32_t> tokens,
                            std::span<std::int32_t> labels, MakerState& state) const {
  const std::size_t count = std::min<std::uint64_t>(tokens.size(), tokens_.size() - 1 - start);
  state.tokens.resize(count + 1);
  tokens_.read(start, state.tokens);
  std::copy_n(state.tokens.begin(), count, tokens.begin());
  std::copy_n(state.tokens.begin() + 1, count, labels.begin());
  std::fill(tokens.begin() + static_cast<std::ptrdiff_t>(count), tokens.end(), 0);
  std::fill(labels.begin() + static_cast<std::ptrdiff_t>(count), labels.end(), -1);
}

// Sorts the batch's places by their tokens: by counting, linear in tokens and vocabulary, unless an
// id is so large (of a broken file, perhaps) that the counts would need much memory.
void TokenBatches::finish(Position, std::span<std::byte> slot, MakerState& state,
                          std::vector<BadSample>& bad) const {
  if (!bad.empty()) return;
  const std::uint64_t from = now_ns();
  const auto tokens = part(slot, 0), order = part(slot, 2);
  const std::int32_t largest = *std::max_element(tokens.begin(), tokens.end());
  if (largest >= most_counted) {
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, {},
                      [&](std::int32_t place) { return std::pair(tokens[idx(place)], place); });
  } else {
    std::vector<std::uint32_t>& next = state.counts;
    next.assign(idx(largest) + 2, 0);
    for (const std::int32_t token : tokens) ++next[idx(token) + 1];
    std::partial_sum(next.begin(), next.end(), next.begin());
    for (std::size_t place = 0; place < tokens.size(); ++place)
      order[next[idx(tokens[place])]++] = static_cast<std::int32_t>(place);
  }
  add_time(state.times.transforms_ns[0], now_ns() - from);
}

void TokenBatches::describe(std::span<const std::byte> slot, Batch& batch) const {
  batch.add("tokens", part(slot, 0));
  batch.add("order", part(slot, 2));
  const auto labels = part(slot, 1);
  batch.add("labels", labels);
  batch.count = std::ranges::count_if(labels, [](std::int32_t label) { return label >= 0; });
  batch.weight.reset();
  const std::vector<float>& weights = options_.class_weights;
  if (weights.empty()) return;
  double sum = 0;
  for (const std::int32_t label : labels) {
    if (label < 0) continue;
    if (idx(label) >= weights.size())
      fail<UsageError>("class weights: there are {}, but {} has token {}; give one per token",
                       weights.size(), path(), label);
    sum += static_cast<double>(weights[idx(label)]);
  }
  batch.weight = sum;
}

}  // namespace warpstep::data
