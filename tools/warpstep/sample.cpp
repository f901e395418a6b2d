// warpstep sample: text from the weights of a language model.

#include <fmt/format.h>
#include <cmath>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "data/formats/tokens.h"
#include "data/text/text_stream.h"
#include "data/text/tokenizer.h"
#include "engine/core/clock.h"
#include "engine/core/error.h"
#include "engine/core/file.h"
#include "engine/core/json_text.h"
#include "engine/core/random.h"
#include "engine/core/text.h"
#include "engine/passes/decode.h"
#include "engine/run/decode.h"
#include "models/build.h"
#include "tools/warpstep/command.h"
#include "tools/warpstep/options.h"
#include "tools/warpstep/progress.h"
#include "tools/warpstep/say.h"
#include "tools/warpstep/session.h"
#include "tools/warpstep/source.h"
#include "tools/warpstep/subject.h"

namespace warpstep::tools {
namespace {

namespace fs = std::filesystem;

struct SampleRequest {
  RunOptions options;
  SubjectRequest subject;
  std::string tokenizer;
  std::string prompt, prompt_file, prompt_ids;
  bool ids = false;
  std::uint64_t tokens = 200;
  std::uint64_t samples = 1;
  Sampling sampling{.temperature = 0.8, .top_k = 200};
  std::uint64_t seed = 0;
  std::string stop;
  bool ignore_end = false;
  bool no_cache = false;
  std::int64_t forget = 0;  // tokens; 0: half of the context
};

// A language model's text: what its weights were trained on.
struct Language {
  std::int64_t context = 0;     // tokens
  std::int64_t vocabulary = 0;  // tokens that the data has; 0: unknown
  bool counts_ids = false;  // it is the largest id of the data and 1: its tokenizer may know more
  bool has_end = true;      // <|endoftext|> occurs in the data, or it is not known
  fs::path file;            // of the tokenizer; empty: none
  fs::path unused;          // a tokenizer.json beside the data that was not supported; empty: none
  std::unique_ptr<data::Tokenizer> tokenizer;
};

// What config.json says about the data of a run.
void read_data(const Subject& subject, Language& language) {
  const std::string file = subject.checkpoint().string();
  const auto* const data = fields::member(subject.config(), "data");
  if (data == nullptr || !data->is_object())
    fail<DataError>("{}: its configuration is broken: it has no object 'data'", file);
  const auto whole = [&](const char* key) {
    const std::uint64_t count = fields::count(*data, key);
    if (count == 0 || count > std::uint64_t{1} << 31)
      fail<DataError>("{}: its configuration is broken: its data have no '{}'", file, key);
    return static_cast<std::int64_t>(count);
  };
  const auto text = [&](const char* key) { return fields::text(*data, key); };
  language.context = whole("sequence");
  language.vocabulary = whole("vocabulary");
  language.counts_ids = text("tokenizer").empty();
  if (const auto* const end = fields::member(*data, "end_of_text"))
    language.has_end = !end->is_boolean() || end->get<bool>();
  const fs::path beside = subject.file().parent_path() / "tokenizer.json";
  const fs::path folder = text("folder");
  const bool is_file = !fs::is_directory(folder) && data::is_token_file_name(folder.string());
  const fs::path of_data = (is_file ? folder.parent_path() : folder) / "tokenizer.json";
  if (fs::exists(beside))
    language.file = beside;
  else if (!text("tokenizer").empty())  // else another program made the tokens
    language.file = of_data;
  else if (!folder.empty() && fs::exists(of_data))
    language.unused = of_data;
}

// Why the tokenizer beside the data is of no use, in brackets; empty if there is none, or a new
// one.
std::string reason_of(const fs::path& unused) {
  if (unused.empty()) return {};
  try {
    data::load_tokenizer(unused.string());
  } catch (const DataError& error) {
    return fmt::format(" ({})", error.what());
  }
  return {};
}

// Null, where it is not needed, for one that is not supported.
std::unique_ptr<data::Tokenizer> loaded_tokenizer(const fs::path& file, bool needed) {
  try {
    return data::load_tokenizer(file.string());
  } catch (const data::UnsupportedTokenizer& error) {
    if (!needed) return nullptr;
    fail<data::UnsupportedTokenizer>(
        "{}; name another, --tokenizer FILE, or work with numbers of tokens: --ids --prompt-ids "
        "1,2,3",
        error.what());
  }
}

void load_tokenizer(const Parser& parser, const SampleRequest& request, Language& language) {
  const bool needed = !request.ids || parser.given("--prompt") || parser.given("--prompt-file") ||
                      !request.tokenizer.empty();
  if (!request.tokenizer.empty()) language.file = request.tokenizer;
  if (language.file.empty() && needed)
    fail<UsageError>(
        "no tokenizer is known for {}{}: name its tokenizer.json, --tokenizer FILE, or work with "
        "numbers of tokens: --ids --prompt-ids 1,2,3",
        request.subject.run, reason_of(language.unused));
  if (language.file.empty() || (!needed && !fs::exists(language.file))) return;
  if (!fs::exists(language.file))
    fail<DataError>("{}: there is no such tokenizer; name its place: --tokenizer FILE",
                    language.file.string());
  language.tokenizer = loaded_tokenizer(language.file, needed);
  if (!language.tokenizer) return;
  const std::int64_t size = language.tokenizer->vocabulary();
  if (language.vocabulary == 0) language.vocabulary = size;
  if (size == language.vocabulary || (language.counts_ids && size > language.vocabulary)) return;
  if (needed)
    fail<UsageError>(
        "{}: has {} tokens, and the data that {} was trained on {}: it belongs to other data; name "
        "the right one: --tokenizer FILE",
        language.file.string(), size, request.subject.run, language.vocabulary);
  language.tokenizer.reset();
}

Language language_of(const Parser& parser, const SampleRequest& request, const Subject& subject) {
  const models::Model& model = models::find(subject.options.model);
  if (!model.is_text())
    fail<UsageError>(
        "{}: {} is a model of images; sample continues texts, with a model such as "
        "gpt2",
        request.subject.run, model.name);
  Language language;
  if (subject.is_run()) read_data(subject, language);
  if (!subject.is_run() || parser.given("--sequence"))
    language.context = sequence_of(subject.options, model);
  if (!subject.is_run()) {
    const fs::path beside = subject.file().parent_path() / "tokenizer.json";
    if (fs::exists(beside)) language.file = beside;
  }
  load_tokenizer(parser, request, language);
  return language;
}

// The programs that compute the next token, on one set of weights.
class Network {
 public:
  Network(const RunOptions& options, const Language& language, std::shared_ptr<Backend> backend,
          bool cached)
      : options_(options), language_(language), backend_(std::move(backend)) {
    const std::int64_t context = language.context;
    Graph whole = without_loss(graph(context));
    if (cached && has_own_ops(whole)) {
      say("the model has ops of a plugin, which may read other tokens: computing without the "
          "cache\n");
      cached = false;
    }
    if (!cached) {
      first_ = program(std::move(whole), nullptr);
      next_ = whole_sequence(*first_);
      return;
    }
    first_ = program(for_decoding(graph(1), context), nullptr);
    if (const std::int64_t at_once = std::gcd(context, most_at_once); at_once >= 8)
      several_ = program(for_decoding(graph(at_once), context), first_->shared_store());
    next_ = cached_sequence(*first_, several_.get());
  }

  Store& store() { return first_->store(); }
  NextToken& next() { return *next_; }
  std::int64_t vocabulary() const {
    return first_->graph().value(first_->graph().logits).type.shape.back();
  }

 private:
  // Tokens of a prompt, or of the half that a full context begins again with.
  static constexpr std::int64_t most_at_once = 64;

  static bool has_own_ops(const Graph& graph) {
    return std::ranges::any_of(graph.nodes, [](const Node& node) {
      return std::holds_alternative<Custom>(node.op) || std::holds_alternative<Conv>(node.op);
    });
  }

  Graph graph(std::int64_t sequence) const {
    const models::Model& model = models::find(options_.model);
    models::BuildOptions build{.batch = 1};
    build.uploaded = true;
    build.settings = models::resolve_settings(model, options_.model_option);
    build.sequence = sequence;
    build.vocabulary = language_.vocabulary;
    return models::build(model, build);
  }
  std::unique_ptr<Program> program(Graph graph, std::shared_ptr<Store> store) const {
    StepOptions step{.training = false, .precision = parse_precision(options_.precision)};
    step.no_fuse.insert(options_.no_fuse.begin(), options_.no_fuse.end());
    return std::make_unique<Program>(compile_step(std::move(graph), options_for(*backend_, step)),
                                     backend_, std::move(store));
  }

  const RunOptions& options_;
  const Language& language_;
  std::shared_ptr<Backend> backend_;
  std::unique_ptr<Program> first_, several_;
  std::unique_ptr<NextToken> next_;
};

// What a text begins with.
struct Beginning {
  std::vector<std::int32_t> tokens;
  std::string text;    // printed before the model's
  bool shown = true;   // else neither it nor its tokens are printed
  std::string option;  // where it comes from, for messages
};

std::vector<std::int32_t> parse_ids(const std::string& text) {
  std::vector<std::int32_t> ids;
  for (const char *at = text.data(), *end = at + text.size(); at != end;) {
    std::int32_t id = 0;
    const auto [rest, error] = std::from_chars(at, end, id);
    if (error != std::errc() || id < 0 || (rest != end && (*rest != ',' || rest + 1 == end)))
      fail<UsageError>("--prompt-ids {}: give token ids of at least 0, separated by commas: 1,2,3",
                       text);
    ids.push_back(id);
    at = rest == end ? rest : rest + 1;
  }
  return ids;
}

// As nanoGPT and GPT-2's own program begin. After an end of text that the data do not have, the
// model would continue at random.
Beginning begin_without_prompt(const Language& language) {
  const data::Tokenizer* const tokenizer = language.tokenizer.get();
  if (!tokenizer)
    fail<UsageError>("no tokenizer is known: give the tokens to begin with: --prompt-ids 1,2,3");
  Beginning beginning{.shown = false, .option = "the beginning of a text"};
  if (tokenizer->end_of_text() && language.has_end) {
    beginning.tokens = {*tokenizer->end_of_text()};
    return beginning;
  }
  try {
    beginning.tokens = tokenizer->encode("\n");
  } catch (const DataError&) {  // no such character
    fail<UsageError>(
        "the tokenizer has neither an end of text nor a line end to begin with; give a --prompt");
  }
  return beginning;
}

Beginning begin_with(std::string text, std::string option, const data::Tokenizer& tokenizer) {
  if (text.empty())
    fail<UsageError>("{}: is empty; leave it out, and the text begins as those of the data do",
                     option);
  data::EncodeScratch scratch{.source = option};
  Beginning beginning{.text = std::move(text), .option = std::move(option)};
  try {
    tokenizer.encode(beginning.text, beginning.tokens, scratch);
  } catch (const DataError& error) {
    fail<UsageError>("{}; the model knows only what was in the data that it was trained on",
                     error.what());
  }
  return beginning;
}

std::string read_prompt(const std::string& file) {
  if (file == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
  if (!fs::exists(file)) fail<DataError>("--prompt-file {}: there is no such file", file);
  return read_file(file);
}

Beginning beginning_of(const Parser& parser, const SampleRequest& request,
                       const Language& language) {
  const data::Tokenizer* const tokenizer = language.tokenizer.get();
  const bool ids = parser.given("--prompt-ids"), file = parser.given("--prompt-file");
  const bool text = parser.given("--prompt");
  if (ids + file + text > 1)
    fail<UsageError>("give only one of --prompt, --prompt-file and --prompt-ids");
  if (text) return begin_with(request.prompt, "--prompt", *tokenizer);
  if (file)
    return begin_with(read_prompt(request.prompt_file), "--prompt-file " + request.prompt_file,
                      *tokenizer);
  if (!ids) return begin_without_prompt(language);
  Beginning beginning{.tokens = parse_ids(request.prompt_ids), .option = "--prompt-ids"};
  if (beginning.tokens.empty()) fail<UsageError>("--prompt-ids: is empty; give ids: 1,2,3");
  return beginning;
}

void require_vocabulary(const Beginning& beginning, std::int64_t vocabulary) {
  for (const std::int32_t id : beginning.tokens)
    if (id >= vocabulary)
      fail<UsageError>("{}: there is no token {}, the vocabulary has {}", beginning.option, id,
                       vocabulary);
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
  // Without a tokenizer ids.
  TokenPrinter(const data::Tokenizer* tokenizer, const std::string& stop) {
    if (tokenizer) stream_.emplace(*tokenizer, stop);
  }
  void begin(const Beginning& beginning) {
    if (!beginning.shown) return;
    if (stream_)
      print_result("{}", beginning.text);
    else
      for (const std::int32_t token : beginning.tokens) print(token);
    flush_results();
  }
  void add(std::int32_t token) {
    print(token);
    flush_results();
  }
  // No more is wanted: the text has its stop, or nobody reads.
  bool is_done() const {
    return (stream_ && stream_->stopped()) || output::stdout_error != 0 || std::ferror(stdout);
  }
  void end() {
    print_result("{}\n", stream_ ? stream_->rest() : "");
    flush_results();
  }

 private:
  void print(std::int32_t token) {
    if (stream_)
      print_result("{}", stream_->add(token));
    else
      print_result("{}{}", std::exchange(first_, false) ? "" : ",", token);
  }

  std::optional<data::TextStream> stream_;
  bool first_ = true;
};

// What the steps took: those of the prompts, each with its text's first token, and the others.
struct Spent {
  std::uint64_t prompt_tokens = 0, prompt_ns = 0, tokens = 0, ns = 0, forgotten = 0;

  void report(std::int64_t context, std::int64_t forget) const {
    constexpr double ms = 1e-6;
    const double time_ms = static_cast<double>(ns) * ms;
    const double count = static_cast<double>(tokens);
    say("prompt: {} in {:.1f} ms", counted(prompt_tokens, "token"),
        static_cast<double>(prompt_ns) * ms);
    if (tokens > 0)
      say("; then {} more in {:.1f} ms: {:.2f} ms/token, {} tokens/s", grouped(tokens), time_ms,
          time_ms / count, grouped(std::llround(1e3 * count / time_ms)));
    if (forgotten > 0)
      say("; the context of {} was full {}, and its {} forgotten", counted(context, "token"),
          counted(forgotten, "time"),
          forget == 0   ? "older half"
          : forget == 1 ? "oldest token"
                        : fmt::format("oldest {} tokens", forget));
    say("\n");
  }
};

void write_text(const SampleRequest& request, const Language& language, const Beginning& beginning,
                std::uint64_t sample, NextToken& next, Spent& spent) {
  TokenPrinter printer(request.ids ? nullptr : language.tokenizer.get(), request.stop);
  printer.begin(beginning);
  std::optional<std::int32_t> end;
  if (language.tokenizer && !request.ignore_end) end = language.tokenizer->end_of_text();
  ContextWindow window(beginning.tokens, next.context(), request.forget);
  spent.prompt_tokens = window.tokens().size();  // a second text does not read them again
  for (std::uint64_t i = 0; i < request.tokens && !printer.is_done(); ++i) {
    const std::uint64_t before = now_ns();
    const std::int32_t token = choose_token(next.logits_after(window.tokens()), request.sampling,
                                            uniform_number(request.seed, sample, i));
    (i == 0 ? spent.prompt_ns : spent.ns) += now_ns() - before;
    if (i > 0) ++spent.tokens;
    if (token == end) break;
    printer.add(token);
    if (window.append(token)) ++spent.forgotten;
  }
  printer.end();
}

void announce(const SampleRequest& request, const Subject& subject, const Language& language,
              const Beginning& beginning, const Device& device) {
  const bool averaged =
      subject.is_run() && request.subject.weights.file.empty() && subject.options.ema > 0;
  say("{}: {}{}, context of {}, {}\n", subject.options.model, subject.file().string(),
      !averaged                     ? ""
      : request.subject.raw_weights ? " (not averaged)"
                                    : " (averaged weights)",
      counted(language.context, "token"),
      language.tokenizer
          ? fmt::format("tokenizer {} of {} ({})", language.tokenizer->name(),
                        counted(language.vocabulary, "token"), language.file.string())
          : std::string("no tokenizer"));
  say("device: {}, {}{}\n", device.backend->name(), device.backend->describe(),
      device.why.empty() ? "" : "; " + device.why);
  if (const auto size = static_cast<std::int64_t>(beginning.tokens.size()); size > language.context)
    say("{}: has {} tokens; the model sees the last {}\n", beginning.option, grouped(size),
        grouped(language.context));
}

int sample_texts(const Parser& parser, SampleRequest request) {
  if (request.ids && !request.stop.empty())
    fail<UsageError>("--stop is searched in text; leave out --ids");
  Subject subject(parser, request.subject, request.options,
                  {"run",         "--checkpoint", "--weights",     "--allow-missing", "--no-ema",
                   "--tokenizer", "--prompt",     "--prompt-file", "--prompt-ids",    "--ids",
                   "--tokens",    "--samples",    "--seed",        "--temperature",   "--top-k",
                   "--top-p",     "--stop",       "--ignore-end",  "--no-cache",      "--forget"});
  const Language language = language_of(parser, request, subject);
  if (request.forget > language.context)
    fail<UsageError>("--forget {}: the context has {} tokens", request.forget, language.context);
  Beginning beginning = beginning_of(parser, request, language);
  subject.options.pin_cpus = "none";  // of the training
  const Device device = open_device(subject.options);
  Network network(subject.options, language, device.backend, !request.no_cache);
  request.sampling.vocabulary =
      language.vocabulary > 0 ? language.vocabulary : network.vocabulary();
  require_vocabulary(beginning, request.sampling.vocabulary);
  if (beginning.text.empty() && beginning.shown && !request.ids)
    beginning.text = language.tokenizer->decode(beginning.tokens);
  subject.load(network.store());
  announce(request, subject, language, beginning, device);
  Spent spent;
  for (std::uint64_t sample = 0; sample < request.samples && output::stdout_error == 0; ++sample) {
    if (sample > 0 && !request.ids) print_result("---------------\n");
    write_text(request, language, beginning, sample, network.next(), spent);
  }
  spent.report(language.context, request.forget);
  return done;
}

void declare_text(const Parser& parser, SampleRequest& request) {
  const char* group = "Text";
  parser.add({.name = "--prompt",
              .variable = &request.prompt,
              .help = "what the text begins with; without one it begins after an end of text, or "
                      "after a line end where the tokenizer has none",
              .group = group});
  parser.add({.name = "--prompt-file",
              .variable = &request.prompt_file,
              .help = "the same from a file, with all its bytes; -: from standard input",
              .type = "FILE",
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
              .help = "largest number of tokens per text, after the prompt",
              .check = whole_number(1),
              .group = group});
  parser.add({.name = "--samples",
              .variable = &request.samples,
              .help = "number of texts",
              .check = whole_number(1, 1'000'000'000),
              .group = group});
  parser.add({.name = "--stop",
              .variable = &request.stop,
              .help = "end a text before this; it also ends at the tokenizer's end of text",
              .group = group});
  parser.add({.name = "--ignore-end",
              .variable = &request.ignore_end,
              .help = "continue after the tokenizer's end of text",
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
  declare_subject(parser, request->subject);
  parser.add({.name = "--no-cache",
              .variable = &request->no_cache,
              .help = "compute the whole sequence for each token: slower, to check the cache of "
                      "keys and values"});
  parser.add({.name = "--forget",
              .variable = &request->forget,
              .help = "tokens that are forgotten when the context is full: 1 slides it by one "
                      "token at a time, and computes all of it each time; 0: half of it",
              .check = in_range(0, std::int64_t{1} << 31)});
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

const Command sample_command("sample", "sample text from a trained language model", declare_sample);

}  // namespace
}  // namespace warpstep::tools
