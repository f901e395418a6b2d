// warpstep sample: text from the weights of a language model.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "data/text/text_stream.h"
#include "data/text/tokenizer.h"
#include "engine/core/clock.h"
#include "engine/core/error.h"
#include "engine/core/json_text.h"
#include "engine/core/random.h"
#include "engine/files/checkpoint.h"
#include "engine/passes/decode.h"
#include "engine/run/decode.h"
#include "models/build.h"
#include "tools/warpstep/command.h"
#include "tools/warpstep/options.h"
#include "tools/warpstep/progress.h"
#include "tools/warpstep/run_directory.h"
#include "tools/warpstep/say.h"
#include "tools/warpstep/session.h"

namespace warpstep::tools {
namespace {

namespace fs = std::filesystem;

struct SampleRequest {
  RunOptions options;
  std::string run;
  std::string checkpoint = "last";
  StartWeights weights;
  bool raw_weights = false;
  std::string tokenizer;
  std::string prompt;
  std::string prompt_ids;
  bool ids = false;
  std::uint64_t tokens = 200;
  std::uint64_t samples = 1;
  Sampling sampling{.temperature = 0.8, .top_k = 200};
  std::uint64_t seed = 0;
  std::string stop_at = "end-of-text";
  bool no_cache = false;
};

// The weights of a language model, and what is known of its text.
struct TextModel {
  fs::path checkpoint;  // empty: weights of no run
  RunOptions options;
  std::int64_t context = 0;
  std::int64_t vocabulary = 0;  // of the data; 0: unknown
  fs::path tokenizer;           // empty: there is none
};

const models::Model& text_model(const std::string& name) {
  const models::Model& model = models::find(name);
  if (!model.is_text())
    fail<UsageError>("{} is a model of images; sample continues texts, with a model such as gpt2",
                     name);
  return model;
}

// Next to the weights, where there is one.
fs::path tokenizer_beside(const fs::path& weights) {
  const fs::path file = weights.parent_path() / "tokenizer.json";
  return fs::exists(file) ? file : fs::path();
}

TextModel named_model(const SampleRequest& request) {
  const models::Model& model = text_model(request.run);
  if (request.weights.file.empty())
    fail<UsageError>("{} is a model, not a run; give its weights: --weights FILE", request.run);
  TextModel named{.options = request.options};
  named.options.model = model.name;
  named.context = models::resolve_settings(model, request.options.model_option).whole("context");
  named.tokenizer = tokenizer_beside(request.weights.file);
  return named;
}

// What config.json says about the run's data.
void read_data(const Json& config, const std::string& file, TextModel& model) {
  const auto data = config.find("data");
  if (data == config.end() || !data->is_object())
    fail<DataError>("{}: its configuration is broken: it has no object 'data'", file);
  const auto whole = [&](const char* key) {
    const auto found = data->find(key);
    if (found == data->end() || !found->is_number_unsigned() ||
        found->get<std::uint64_t>() > std::uint64_t{1} << 31)
      fail<DataError>("{}: its configuration is broken: its data have no '{}'", file, key);
    return found->get<std::int64_t>();
  };
  const auto text = [&](const char* key) {
    const auto found = data->find(key);
    return found != data->end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  model.context = whole("sequence");
  model.vocabulary = whole("vocabulary");
  if (!model.tokenizer.empty() || text("tokenizer").empty()) return;
  const fs::path folder = text("folder");
  model.tokenizer = (fs::is_directory(folder) ? folder : folder.parent_path()) / "tokenizer.json";
}

TextModel model_of(const Parser& parser, const SampleRequest& request) {
  if (!fs::exists(request.run)) {
    for (const models::Model& model : models::zoo())
      if (model.name == request.run) return named_model(request);
    fail<DataError>("{}: there is no such run directory, nor a checkpoint of that name",
                    request.run);
  }
  TextModel model;
  const bool is_file = fs::is_regular_file(request.run) && !parser.given("--checkpoint");
  model.checkpoint =
      is_file ? fs::path(request.run) : chosen_checkpoint(request.run, request.checkpoint);
  const std::string file = model.checkpoint.string();
  const auto config = parse_json<Json>(read_checkpoint_info(model.checkpoint).config_json);
  model.options =
      merged(parser, request.options, stored_options(config, file, parser, request.options),
             {"run", "--checkpoint", "--weights", "--allow-missing", "--no-ema", "--tokenizer",
              "--prompt", "--prompt-ids", "--ids", "--tokens", "--samples", "--temperature",
              "--top-k", "--top-p", "--stop-at", "--no-cache"});
  text_model(model.options.model);
  model.tokenizer = tokenizer_beside(model.checkpoint);
  read_data(config, file, model);
  return model;
}

std::unique_ptr<data::Tokenizer> tokenizer_of(const SampleRequest& request, TextModel& model) {
  if (!request.tokenizer.empty()) model.tokenizer = request.tokenizer;
  if (model.tokenizer.empty()) return nullptr;
  const bool needed = !request.ids || request.prompt_ids.empty() || !request.tokenizer.empty();
  if (!fs::exists(model.tokenizer) && !needed) return nullptr;
  if (!fs::exists(model.tokenizer))
    fail<DataError>("{}: there is no such tokenizer; name its place: --tokenizer FILE",
                    model.tokenizer.string());
  auto tokenizer = data::load_tokenizer(model.tokenizer.string());
  if (model.vocabulary == 0) model.vocabulary = tokenizer->vocabulary();
  if (tokenizer->vocabulary() != model.vocabulary)
    fail<UsageError>("{}: has {} tokens, and the model's data {}: it belongs to other data",
                     model.tokenizer.string(), tokenizer->vocabulary(), model.vocabulary);
  return tokenizer;
}

// A loaded model, with the programs that it uses.
class LanguageModel {
 public:
  LanguageModel(const SampleRequest& request, const TextModel& model,
                std::shared_ptr<Backend> backend)
      : model_(model), backend_(std::move(backend)) {
    if (request.no_cache) {
      first_ = program(without_loss(graph(model.context)), nullptr);
      next_ = whole_sequence(*first_);
    } else {
      first_ = program(for_decoding(graph(1), model.context), nullptr);
      if (const std::int64_t at_once = std::gcd(model.context, most_at_once); at_once >= 8)
        several_ = program(for_decoding(graph(at_once), model.context), first_->shared_store());
      next_ = cached_sequence(*first_, several_.get());
    }
    if (request.weights.file.empty())
      load_parameters(model.checkpoint, first_->store(), !request.raw_weights);
    else
      load_start_weights(request.weights, first_->store());
  }

  NextToken& next() { return *next_; }
  std::int64_t vocabulary() const {
    return first_->graph().value(first_->graph().logits).type.shape.back();
  }

 private:
  // Tokens of a prompt, or of the half that a full context begins again with.
  static constexpr std::int64_t most_at_once = 64;

  Graph graph(std::int64_t sequence) const {
    const models::Model& model = models::find(model_.options.model);
    models::BuildOptions build{.batch = 1};
    build.loss.raw = model_.options.loss == "nll";
    build.uploaded = true;
    build.settings = models::resolve_settings(model, model_.options.model_option);
    build.sequence = sequence;
    build.vocabulary = model_.vocabulary;
    return models::build(model, build);
  }
  std::unique_ptr<Program> program(Graph graph, std::shared_ptr<Store> store) const {
    StepOptions step{.training = false, .precision = parse_precision(model_.options.precision)};
    step.no_fuse.insert(model_.options.no_fuse.begin(), model_.options.no_fuse.end());
    return std::make_unique<Program>(compile_step(std::move(graph), options_for(*backend_, step)),
                                     backend_, std::move(store));
  }

  const TextModel& model_;
  std::shared_ptr<Backend> backend_;
  std::unique_ptr<Program> first_, several_;
  std::unique_ptr<NextToken> next_;
};

std::vector<std::int32_t> parse_ids(const std::string& text) {
  std::vector<std::int32_t> ids;
  for (const char *at = text.data(), *end = at + text.size(); at != end;) {
    std::int32_t id = 0;
    const auto [rest, error] = std::from_chars(at, end, id);
    if (error != std::errc() || id < 0 || (rest != end && (*rest != ',' || rest + 1 == end)))
      fail<UsageError>("--prompt-ids {}: give token ids from 0 on, separated by commas: 1,2,3",
                       text);
    ids.push_back(id);
    at = rest == end ? rest : rest + 1;
  }
  return ids;
}

// What texts without a prompt begin with; it is not printed.
std::int32_t start_of_text(const data::Tokenizer* tokenizer) {
  if (!tokenizer)
    fail<UsageError>("no tokenizer is known: give the tokens to begin with: --prompt-ids 1,2,3");
  if (tokenizer->end_of_text()) return *tokenizer->end_of_text();
  try {
    const std::vector<std::int32_t> line_end = tokenizer->encode("\n");
    if (!line_end.empty()) return line_end.back();
  } catch (const DataError&) {  // no such character
  }
  fail<UsageError>(
      "the tokenizer has neither an end of text nor a line end to begin with; give a --prompt");
}

std::vector<std::int32_t> prompt_of(const SampleRequest& request,
                                    const data::Tokenizer* tokenizer) {
  if (!request.prompt_ids.empty() && !request.prompt.empty())
    fail<UsageError>("--prompt and --prompt-ids do not go together");
  if (!request.prompt_ids.empty()) return parse_ids(request.prompt_ids);
  if (request.prompt.empty()) return {};
  if (!tokenizer)
    fail<UsageError>(
        "--prompt: no tokenizer is known for this model; name one, --tokenizer FILE, or give token "
        "ids: --prompt-ids 1,2,3");
  data::EncodeScratch scratch{.source = "--prompt"};
  std::vector<std::int32_t> ids;
  tokenizer->encode(request.prompt, ids, scratch);
  return ids;
}

void require_vocabulary(std::span<const std::int32_t> ids, std::int64_t vocabulary,
                        const std::string& option) {
  for (const std::int32_t id : ids)
    if (id >= vocabulary)
      fail<UsageError>("{}: there is no token {}, the vocabulary has {}", option, id, vocabulary);
}

// The token that ends a text.
std::optional<std::int32_t> end_of(const SampleRequest& request, bool given,
                                   const data::Tokenizer* tokenizer) {
  if (request.stop_at == "none") return {};
  if (request.stop_at != "end-of-text") return parse_ids(request.stop_at)[0];
  if (tokenizer && tokenizer->end_of_text()) return tokenizer->end_of_text();
  if (given)
    fail<UsageError>(
        "--stop-at end-of-text: the tokenizer has no such token; give its id, or none");
  return {};
}

std::string stop_problem(const std::string& text) {
  const bool is_id = !text.empty() && text.size() < 10 &&
                     text.find_first_not_of("0123456789") == std::string::npos;
  if (text == "none" || text == "end-of-text" || is_id) return {};
  return "must be end-of-text, none or a token's id";
}

// Uniform in [0, 1), with 53 bits.
double uniform_number(std::uint64_t seed, std::uint64_t sample, std::uint64_t index) {
  const auto words = draw(seed, Purpose::sampling, static_cast<std::uint32_t>(sample), index);
  return (static_cast<double>(words[0] >> 5) * 0x1p26 + static_cast<double>(words[1] >> 6)) *
         0x1p-53;
}

// Prints tokens as they come, as text or as ids.
class TokenPrinter {
 public:
  explicit TokenPrinter(const data::Tokenizer* tokenizer) {
    if (tokenizer) stream_.emplace(*tokenizer);
  }
  void add(std::int32_t token) {
    if (stream_)
      print_result("{}", stream_->add(token));
    else
      print_result("{}{}", std::exchange(first_, false) ? "" : ",", token);
    std::fflush(stdout);
  }
  void end() {
    if (stream_) print_result("{}", stream_->rest());
    print_result("\n");
  }
  // Whether anyone reads.
  static bool is_read() { return output::stdout_error == 0 && std::ferror(stdout) == 0; }

 private:
  std::optional<data::TextStream> stream_;
  bool first_ = true;
};

// What the steps took: those of the prompts, with each text's first token, and those after them.
struct Spent {
  std::uint64_t prompt_tokens = 0, prompt_ns = 0, tokens = 0, ns = 0;

  void report() const {
    const auto seconds = [](std::uint64_t time_ns) { return static_cast<double>(time_ns) * 1e-9; };
    say("prompt: {} in {:.2f} s; then {} in {:.2f} s{}\n",
        counted(static_cast<std::int64_t>(prompt_tokens), "token"), seconds(prompt_ns),
        counted(static_cast<std::int64_t>(tokens), "token"), seconds(ns),
        ns > 0 ? fmt::format(", {:.1f} tokens/s", static_cast<double>(tokens) / seconds(ns)) : "");
  }
};

// What each text begins and ends with.
struct Ends {
  std::vector<std::int32_t> begin;
  bool is_prompt = true;  // else `begin` is not printed
  std::optional<std::int32_t> end;
};

void write_text(const SampleRequest& request, const Ends& ends, std::uint64_t sample,
                NextToken& next, TokenPrinter& printer, Spent& spent) {
  if (ends.is_prompt)
    for (const std::int32_t token : ends.begin) printer.add(token);
  spent.prompt_tokens += ends.begin.size();
  ContextWindow window(ends.begin, next.context());
  for (std::uint64_t i = 0; i < request.tokens && TokenPrinter::is_read(); ++i) {
    const std::uint64_t before = now_ns();
    const std::int32_t token = choose_token(next.logits_after(window.tokens()), request.sampling,
                                            uniform_number(request.seed, sample, i));
    (i == 0 ? spent.prompt_ns : spent.ns) += now_ns() - before;
    if (i > 0) ++spent.tokens;
    if (token == ends.end) break;
    printer.add(token);
    window.append(token);
  }
  printer.end();
}

int sample_texts(const Parser& parser, SampleRequest request) {
  check_start_weights(request.weights, false);
  TextModel model = model_of(parser, request);
  const auto tokenizer = tokenizer_of(request, model);
  Ends ends{.begin = prompt_of(request, tokenizer.get())};
  ends.is_prompt = !ends.begin.empty();
  if (!ends.is_prompt) ends.begin = {start_of_text(tokenizer.get())};
  ends.end = end_of(request, parser.given("--stop-at"), tokenizer.get());
  LanguageModel language(request, model, open_device(model.options).backend);
  request.sampling.vocabulary = model.vocabulary > 0 ? model.vocabulary : language.vocabulary();
  require_vocabulary(ends.begin, request.sampling.vocabulary,
                     request.prompt_ids.empty() ? "--prompt" : "--prompt-ids");
  Spent spent;
  for (std::uint64_t sample = 0; sample < request.samples && TokenPrinter::is_read(); ++sample) {
    if (sample > 0 && !request.ids) print_result("---------------\n");
    TokenPrinter printer(request.ids ? nullptr : tokenizer.get());
    write_text(request, ends, sample, language.next(), printer, spent);
  }
  spent.report();
  return done;
}

void declare_text(const Parser& parser, SampleRequest& request) {
  const char* group = "Text";
  parser.add({.name = "--prompt",
              .variable = &request.prompt,
              .help = "what the text begins with; without one it begins after an end of text, or "
                      "after a line end where the tokenizer has none",
              .group = group});
  parser.add({.name = "--prompt-ids",
              .variable = &request.prompt_ids,
              .help = "the same as token ids: 464,3290",
              .type = "N,N",
              .group = group});
  parser.add({.name = "--ids",
              .variable = &request.ids,
              .help = "print token ids, not text",
              .group = group});
  parser.add({.name = "--tokenizer",
              .variable = &request.tokenizer,
              .help = "tokenizer.json of the model; if not given, the one next to the weights, "
                      "else the one next to the run's data",
              .type = "FILE",
              .group = group});
  parser.add({.name = "--tokens",
              .variable = &request.tokens,
              .help = "most tokens of a text, after the prompt",
              .check = whole_number(),
              .group = group});
  parser.add({.name = "--samples",
              .variable = &request.samples,
              .help = "number of texts",
              .check = whole_number(1, 1'000'000'000),
              .group = group});
  parser.add({.name = "--stop-at",
              .variable = &request.stop_at,
              .help = "token that ends a text: end-of-text, none or an id",
              .check = {.problem = stop_problem},
              .type = "end-of-text|none|N",
              .group = group});
}

void declare_choice(const Parser& parser, SampleRequest& request) {
  const char* group = "Choice of tokens";
  parser.add({.name = "--temperature",
              .variable = &request.sampling.temperature,
              .help = "divides the logits: below 1 probable tokens become more probable; 0: always "
                      "the most probable token",
              .check = number_from_zero(),
              .group = group});
  parser.add({.name = "--top-k",
              .variable = &request.sampling.top_k,
              .help = "choose among the N most probable tokens; 0: all",
              .check = in_range(0, std::int64_t{1} << 31),
              .group = group});
  parser.add({.name = "--top-p",
              .variable = &request.sampling.top_p,
              .help = "choose among the fewest tokens whose probabilities sum to X",
              .check = number_in_range(0, 1),
              .group = group});
  parser.add({.name = "--seed",
              .variable = &request.seed,
              .help = "random seed: equal seeds give equal texts",
              .check = whole_number(0, UINT64_MAX),
              .group = group});
}

Run declare_sample(Parser parser) {
  auto request = std::make_shared<SampleRequest>();
  parser.add({.name = "run",
              .variable = &request->run,
              .help = "run directory of a language model, or a checkpoint of one; with --weights a "
                      "model's name",
              .required = true});
  parser.add({.name = "--checkpoint",
              .variable = &request->checkpoint,
              .help = "checkpoint of the run directory: last, best or a file"});
  declare_start_weights(parser, request->weights);
  parser.add({.name = "--no-ema",
              .variable = &request->raw_weights,
              .help = "use the weights themselves even if the checkpoint has their average"});
  parser.add({.name = "--no-cache",
              .variable = &request->no_cache,
              .help = "compute the whole sequence for each token: slower, to check the cache of "
                      "keys and values"});
  declare_text(parser, *request);
  declare_choice(parser, *request);
  declare_run_options(parser, request->options, sample_only);
  parser.footer(
      "Options that are not given are those of the run; docs/sampling.md.\n"
      "Examples:\n  warpstep sample runs/shakespeare --prompt \"ROMEO:\" --tokens 300\n"
      "  warpstep sample gpt2 --weights model.safetensors --tokenizer tokenizer.json \\\n"
      "    --prompt \"Once upon a time\" --temperature 0");
  return [parser, request] { return sample_texts(parser, *request); };
}

const Command sample_command("sample", "text from a trained language model", declare_sample);

}  // namespace
}  // namespace warpstep::tools
