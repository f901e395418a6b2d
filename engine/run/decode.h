// Text from a language model, token by token: the logits of the next token, and a choice by them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/run/program.h"
#include "engine/run/runner.h"

namespace warpstep {

// Computes the logits of the token that follows some tokens.
class NextToken {
 public:
  virtual ~NextToken();
  virtual std::int64_t context() const = 0;  // most tokens
  // After `tokens`; valid until the next call. Throws Error for 0 or more than context() tokens,
  // DataError for one that is not in the model's vocabulary.
  virtual std::span<const float> logits_after(std::span<const std::int32_t> tokens) = 0;
};

// By `whole`, the step of a graph of without_loss() for one sequence: computes it all each time.
std::unique_ptr<NextToken> whole_sequence(Program& whole);

// By `step`, of a graph of for_decoding() for one token of one sequence: computes the tokens after
// those that it has in common with the call before. `several` is null, or the same for T tokens, a
// divisor of the context, with the same store: it computes long pieces T tokens at a time.
std::unique_ptr<NextToken> cached_sequence(Program& step, Program* several);

// The last tokens of a text that may be longer than the context. When it is full, the oldest
// `forgotten` tokens (0: half of the context) leave it, and the next logits are those after the
// others, now from position 0: with the half, a token costs a cached sequence two steps on average;
// with one, each token costs it the whole context.
class ContextWindow {
 public:
  ContextWindow(std::vector<std::int32_t> tokens, std::int64_t context, std::int64_t forgotten = 0);
  bool append(std::int32_t token);  // whether older tokens were forgotten
  std::span<const std::int32_t> tokens() const { return tokens_; }

 private:
  std::vector<std::int32_t> tokens_;
  std::size_t context_, kept_;
};

// How a token is chosen.
struct Sampling {
  double temperature = 1;       // 0: the most probable one
  std::int64_t top_k = 0;       // of the k most probable ones; 0: of all
  double top_p = 1;             // of the fewest whose probabilities sum to at least p
  std::int64_t vocabulary = 0;  // tokens below it; 0: all
};

// A token with the probability softmax(logits / temperature) among those that `sampling` leaves;
// of equally probable ones top_k and top_p keep the first. `uniform` is in [0, 1). In double, by
// the logits alone. Throws NumericError for logits of which none is finite or one is NaN or
// +infinite.
std::int32_t choose_token(std::span<const float> logits, const Sampling& sampling, double uniform);

}  // namespace warpstep
