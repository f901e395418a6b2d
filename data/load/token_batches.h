// Batches of tokens for language models: windows of a token set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/formats/tokens.h"
#include "data/load/batch_maker.h"
#include "data/load/order.h"

namespace warpstep::data {

// Which windows of `sequence` tokens an epoch has. Each window's labels are the tokens that follow
// its own.
enum class Windows : std::uint8_t {
  shuffled,   // windows one after the other from an offset drawn for each epoch, in random order:
              // every token but those at the ends is in one window per epoch
  random,     // each begins at a place of its own, drawn with replacement, as nanoGPT's do
  sequential  // from the first token to the last, in order; where the tail is padded, so is the
              // last one, with label -1, else it is left out
};

struct WindowOptions {
  std::int64_t sequence = 1024;
  Windows windows = Windows::shuffled;
};

// The first token of each window, a pure function of (seed, epoch, place).
class WindowStarts {
 public:
  // Throws UsageError for fewer than sequence + 1 tokens; sequential windows with a padded tail
  // need 2.
  WindowStarts(const TokenSet& tokens, const WindowOptions& options, std::uint64_t seed,
               Tail tail = Tail::drop);

  std::uint64_t count() const { return count_; }  // windows of an epoch
  std::uint64_t at(std::uint64_t epoch, std::uint64_t place) const;

 private:
  WindowOptions options_;
  std::uint64_t seed_ = 0, tokens_ = 0, count_ = 0;
};

// Inputs of a batch of B windows of T tokens: `tokens`, `labels` and `order`, each i32 [B T]; order
// is what Embed's adjoint reads.
class TokenBatches final : public BatchMaker {
 public:
  // Of the options those that are not about images. Throws UsageError for invalid ones.
  TokenBatches(TokenSet tokens, const WindowOptions& windows, const LoaderOptions& options);

  std::string path() const override { return tokens_.path(); }
  std::string name(std::uint64_t index) const override;
  std::string sample_text() const override;
  std::uint64_t samples() const override { return starts_.count(); }
  std::uint64_t steps_per_epoch() const override { return steps_; }
  std::int64_t batch() const override { return options_.batch; }
  std::size_t slot_bytes() const override { return 3 * part_bytes_; }
  std::int64_t claim() const override { return options_.batch; }
  std::vector<std::string> stages() const override { return {"sort"}; }
  bool is_light() const override { return true; }
  std::uint64_t worker_bytes() const override;
  std::uint64_t order_bytes() const override { return 0; }
  std::uint64_t data_bytes() const override { return 0; }

  void fill(Position position, std::int64_t begin, std::int64_t end, std::span<std::byte> slot,
            MakerState& state, std::vector<BadSample>& bad,
            const std::function<bool()>& stop) override;
  void finish(Position position, std::span<std::byte> slot, MakerState& state,
              std::vector<BadSample>& bad) const override;
  void prepare_next(Position) override {}
  void describe(std::span<const std::byte> slot, Batch& batch) const override;

 private:
  std::uint64_t place_of(Position position, std::int64_t row) const;
  void hint(Position position, std::int64_t row) const;
  void fill_row(std::uint64_t start, std::span<std::int32_t> tokens, std::span<std::int32_t> labels,
                MakerState& state) const;
  template <class Byte>
  auto part(std::span<Byte> slot, std::size_t number) const;

  TokenSet tokens_;
  LoaderOptions options_;
  std::int64_t sequence_ = 0;
  WindowStarts starts_;
  std::size_t part_bytes_ = 0;
  std::uint64_t global_batch_ = 0, steps_ = 0;
};

}  // namespace warpstep::data
