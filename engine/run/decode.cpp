#include "engine/run/decode.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/core/error.h"

namespace warpstep {

NextToken::~NextToken() = default;

namespace {

// The inputs of a step, in memory of its backend; zero until uploaded. So stays the order of
// tokens, which only an adjoint reads.
class TokenSlots {
 public:
  explicit TokenSlots(Program& program) : program_(program) {
    std::vector<const void*> addresses;
    for (const int id : program.graph().inputs) {
      const std::size_t bytes = program.graph().value(id).type.bytes();
      memory_.push_back(program.backend().allocate(bytes));
      addresses.push_back(memory_.back().get());
    }
    program_.set_inputs(addresses);
  }
  // Nothing where the step has no such input.
  void upload(std::string_view name, std::span<const std::int32_t> numbers) {
    const Graph& graph = program_.graph();
    for (std::size_t i = 0; i < memory_.size(); ++i)
      if (graph.value(graph.inputs[i]).name == name)
        program_.backend().upload(program_.stream(), memory_[i].get(), numbers.data(),
                                  numbers.size_bytes());
    program_.wait();  // the numbers may be gone soon
  }
  std::int64_t tokens() const {
    const Graph& graph = program_.graph();
    for (const int id : graph.inputs)
      if (graph.value(id).name == "tokens") return graph.value(id).type.shape.count();
    fail<Error>("a step without an input 'tokens' cannot continue a sequence of them");
  }
  // Of the tables of all embeddings of the step.
  std::int64_t vocabulary() const {
    const Graph& graph = program_.graph();
    std::int64_t least = std::numeric_limits<std::int32_t>::max();
    for (const Node& node : graph.nodes)
      if (std::holds_alternative<Embed>(node.op) || std::holds_alternative<EmbedAt>(node.op))
        least = std::min(least, graph.value(node.in[2]).type.shape[0]);
    return least;
  }

 private:
  Program& program_;
  std::vector<std::shared_ptr<std::byte>> memory_;
};

// A step with its inputs: T tokens at once.
class TokenStep {
 public:
  explicit TokenStep(Program& program)
      : program_(program),
        slots_(program),
        vocabulary_(slots_.vocabulary()),
        runner_(graph_runner(program)) {}

  std::int64_t length() const { return slots_.tokens(); }

  // Up to T tokens; what follows them in the slot has no influence on their logits.
  void run(std::span<const std::int32_t> tokens, std::int32_t position) {
    for (const std::int32_t token : tokens)
      if (token < 0 || token >= vocabulary_)
        fail<DataError>("token {}, but the model has {} tokens", token, vocabulary_);
    std::vector<std::int32_t> padded(tokens.begin(), tokens.end());
    padded.resize(idx(length()), 0);
    slots_.upload("tokens", padded);
    slots_.upload("position", {&position, 1});
    runner_->step();
  }
  void wait() const { program_.wait(); }
  // Of row `row` of the last run.
  std::span<const float> logits(std::size_t row) {
    logits_ = program_.read(program_.graph().logits);
    const std::size_t width = logits_.size() / idx(length());
    return std::span(logits_).subspan(row * width, width);
  }

 private:
  Program& program_;
  TokenSlots slots_;
  std::int64_t vocabulary_;
  std::unique_ptr<Runner> runner_;
  std::vector<float> logits_;
};

void require_tokens(std::span<const std::int32_t> tokens, std::int64_t context) {
  if (tokens.empty() || static_cast<std::int64_t>(tokens.size()) > context)
    fail<Error>("only a sequence of 1 to {} tokens can be continued, not one of {}", context,
                tokens.size());
}

class WholeSequence final : public NextToken {
 public:
  explicit WholeSequence(Program& program) : step_(program) {}

  std::int64_t context() const override { return step_.length(); }
  std::span<const float> logits_after(std::span<const std::int32_t> tokens) override {
    require_tokens(tokens, context());
    step_.run(tokens, 0);
    return step_.logits(tokens.size() - 1);
  }

 private:
  TokenStep step_;
};

std::int64_t context_of(const Graph& graph) {
  for (const Node& node : graph.nodes)
    if (std::holds_alternative<CachedAttention>(node.op))
      return graph.value(node.in[1]).type.shape[1];
  for (const Node& node : graph.nodes)
    if (std::holds_alternative<EmbedAt>(node.op)) return graph.value(node.in[3]).type.shape[0];
  fail<Error>("a step that embeds no tokens at a position cannot continue a sequence of them");
}

class CachedSequence final : public NextToken {
 public:
  CachedSequence(Program& step, Program* several) : context_(context_of(step.graph())), one_(step) {
    if (several) several_ = std::make_unique<TokenStep>(*several);
    if (one_.length() != 1)
      fail<Error>("a cached sequence is continued by 1 token at a time, not by {}", one_.length());
    if (several_ && context_ % several_->length() != 0)
      fail<Error>("{} tokens at a time do not divide a context of {}", several_->length(),
                  context_);
  }

  std::int64_t context() const override { return context_; }

  std::span<const float> logits_after(std::span<const std::int32_t> tokens) override {
    require_tokens(tokens, context());
    // The last token is always computed: its logits are the result.
    const auto known = std::mismatch(tokens.begin(), tokens.end() - 1, seen_.begin(), seen_.end());
    std::size_t at = static_cast<std::size_t>(known.first - tokens.begin());
    seen_.clear();  // if a step throws
    std::span<const float> logits;
    while (at < tokens.size()) {
      TokenStep& step = step_at(at, tokens.size() - at);
      if (last_ != &step) last_->wait();  // for its keys and values: each step has its own streams
      last_ = &step;
      const std::size_t count = std::min(tokens.size() - at, idx(step.length()));
      step.run(tokens.subspan(at, count), static_cast<std::int32_t>(at));
      at += count;
      if (at == tokens.size()) logits = step.logits(count - 1);
    }
    seen_.assign(tokens.begin(), tokens.end());
    return logits;
  }

 private:
  // Several at once cost about as much as three alone: both read the weights once. Their slots end
  // inside of the context if they begin at a multiple of their number.
  TokenStep& step_at(std::size_t position, std::size_t left) {
    constexpr std::size_t worth = 4;
    const bool several = several_ && left >= worth && position % idx(several_->length()) == 0;
    return several ? *several_ : one_;
  }

  std::int64_t context_;
  TokenStep one_;
  std::unique_ptr<TokenStep> several_;
  TokenStep* last_ = &one_;         // which may still run
  std::vector<std::int32_t> seen_;  // whose keys and values are in the caches
};

}  // namespace

std::unique_ptr<NextToken> whole_sequence(Program& whole) {
  return std::make_unique<WholeSequence>(whole);
}

std::unique_ptr<NextToken> cached_sequence(Program& step, Program* several) {
  return std::make_unique<CachedSequence>(step, several);
}

ContextWindow::ContextWindow(std::vector<std::int32_t> tokens, std::int64_t context,
                             std::int64_t forgotten)
    : tokens_(std::move(tokens)),
      context_(idx(context)),
      kept_(std::max<std::size_t>(
          1,
          idx(forgotten > 0 ? std::max<std::int64_t>(0, context + 1 - forgotten) : context / 2))) {
  if (tokens_.size() > context_)
    tokens_.erase(tokens_.begin(), tokens_.end() - static_cast<std::ptrdiff_t>(context_));
}

bool ContextWindow::append(std::int32_t token) {
  tokens_.push_back(token);
  if (tokens_.size() <= context_) return false;
  tokens_.erase(tokens_.begin(), tokens_.end() - static_cast<std::ptrdiff_t>(kept_));
  return true;
}

namespace {

struct Candidate {
  double weight;  // its probability, times a constant
  std::int32_t token;
};

// The most probable first.
void sort_candidates(std::vector<Candidate>& candidates, std::size_t first) {
  const auto before = [](const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
  };
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(first),
                    candidates.end(), before);
}

double sum_of_weights(std::span<const Candidate> candidates) {
  return std::accumulate(candidates.begin(), candidates.end(), 0.0,
                         [](double sum, const Candidate& c) { return sum + c.weight; });
}

void keep_top_p(std::vector<Candidate>& candidates, double top_p) {
  sort_candidates(candidates, candidates.size());
  const double enough = top_p * sum_of_weights(candidates);
  double sum = 0;
  std::size_t kept = 0;
  while (kept < candidates.size() && (kept == 0 || sum < enough)) sum += candidates[kept++].weight;
  candidates.resize(kept);
}

}  // namespace

std::int32_t choose_token(std::span<const float> logits, const Sampling& sampling, double uniform) {
  if (sampling.vocabulary > 0)
    logits = logits.first(std::min(logits.size(), idx(sampling.vocabulary)));
  const auto is_bad = [](float logit) { return std::isnan(logit) || logit == INFINITY; };
  const auto largest = std::max_element(logits.begin(), logits.end());
  if (std::any_of(logits.begin(), logits.end(), is_bad) || largest == logits.end() ||
      *largest == -INFINITY)
    fail<NumericError>(
        "the logits of the next token are not finite numbers: the model's weights have diverged; "
        "use an earlier checkpoint");
  if (sampling.temperature == 0) return static_cast<std::int32_t>(largest - logits.begin());
  std::vector<Candidate> candidates(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i)
    candidates[i] = {std::exp((static_cast<double>(logits[i]) - static_cast<double>(*largest)) /
                              sampling.temperature),
                     static_cast<std::int32_t>(i)};
  if (sampling.top_k > 0 && idx(sampling.top_k) < candidates.size()) {
    sort_candidates(candidates, idx(sampling.top_k));
    candidates.resize(idx(sampling.top_k));
  }
  if (sampling.top_p < 1) keep_top_p(candidates, sampling.top_p);
  double left = uniform * sum_of_weights(candidates);
  std::int32_t chosen = 0;  // by rounding, some 1e-13 of the weights may be left after the last one
  for (const Candidate& candidate : candidates) {
    if (candidate.weight == 0) continue;
    chosen = candidate.token;
    left -= candidate.weight;
    if (left < 0) break;
  }
  return chosen;
}

}  // namespace warpstep
