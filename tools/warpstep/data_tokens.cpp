#include "tools/warpstep/data_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <vector>

#include "data/formats/tokens.h"
#include "data/io/file.h"
#include "data/write/tokenize.h"
#include "engine/core/clock.h"
#include "engine/core/error.h"
#include "engine/core/json_text.h"
#include "tools/warpstep/json.h"
#include "tools/warpstep/progress.h"
#include "tools/warpstep/say.h"

namespace warpstep::tools {
namespace {

// `largest`: id, if it is known.
Json describe_tokens(const data::TokenSet& set, std::optional<std::uint32_t> largest) {
  return {{"kind", "tokens"},
          {"path", set.path()},
          {"files", set.paths().size()},
          {"format", name(set.format())},
          {"tokens", set.size()},
          {"type", name(set.type())},
          {"largest", largest ? *largest : set.largest()},
          {"fingerprint", fmt::format("{:016x}", set.fingerprint())}};
}

void print_tokens(const std::string& split, const Json& set) {
  const auto files = set["files"].get<std::uint64_t>();
  fmt::print("{}: {} tokens of {}, {}{}, ids up to {}\n", split, set["tokens"].get<std::uint64_t>(),
             set["type"].get<std::string>(), set["format"].get<std::string>(),
             files > 1 ? fmt::format(" in {} files", files) : "",
             set["largest"].get<std::uint64_t>());
  fmt::print("  fingerprint {}\n", set["fingerprint"].get<std::string>());
}

data::TokenFormat format_named(const std::string& name) {
  return name == "npy"       ? data::TokenFormat::npy
         : name == "llmc"    ? data::TokenFormat::llmc
         : name == "nanogpt" ? data::TokenFormat::headless
                             : data::TokenFormat::safetensors;
}

void print_summary(const std::string& out, const data::TokenizeSummary& summary, double seconds) {
  fmt::print("{}: tokenizer {}, vocabulary {}\n", out, summary.tokenizer, summary.vocabulary);
  const auto line = [](const char* split, const data::TokenizeSummary::Part& part) {
    if (part.bytes == 0) return;
    fmt::print("  {}: {} tokens, {:.3f} per byte of {} bytes\n", split, part.tokens,
               static_cast<double>(part.tokens) / static_cast<double>(part.bytes), part.bytes);
  };
  line("train", summary.train);
  line("val", summary.val);
  const double bytes = static_cast<double>(summary.train.bytes + summary.val.bytes);
  fmt::print("  {:.2f} s, {:.1f} MB/s\n", seconds, bytes / 1e6 / std::max(seconds, 1e-9));
}

void say_note(const std::string& note) {
  say("{}\n", note);
}

}  // namespace

int token_info(const std::string& spec, double val_split, bool json) {
  const data::TokenData data =
      data::open_tokens(spec, {.val_split = val_split, .needs_train = false, .note = say_note});
  for (const std::string& warning : data.warnings) say("{}\n", warning);
  Json all = Json::object();
  if (data.train.size() > 0) all["train"] = describe_tokens(data.train, data.largest_of_train);
  if (data.val.size() > 0) all["val"] = describe_tokens(data.val, data.largest_of_val);
  all["vocabulary"] = data.vocabulary;
  all["vocabulary_from"] = data.vocabulary_from;
  if (data.tokenizer) all["tokenizer"] = data.tokenizer_name;
  for (const char* split : {"train", "val"})
    if (all.contains(split) && all[split]["largest"] >= data.vocabulary)
      say("{}: has ids that are not in the vocabulary; `warpstep data verify` names the first\n",
          all[split]["path"].get<std::string>());
  if (json) {
    fmt::print("{}\n", printed(all, 2));
    return done;
  }
  for (const char* split : {"train", "val"})
    if (all.contains(split)) print_tokens(split, all[split]);
  fmt::print("vocabulary: {} (by {})\n", data.vocabulary, data::shown(data.vocabulary_from));
  if (data.tokenizer) fmt::print("tokenizer: {}\n", data.tokenizer_name);
  return done;
}

int verify_tokens(const std::string& spec) {
  const data::TokenData data =
      data::open_tokens(spec, {.val_split = 0, .needs_train = false, .note = say_note});
  for (const std::string& warning : data.warnings) say("{}\n", warning);
  std::vector<std::int32_t> ids(std::size_t{1} << 20);
  try {
    for (const data::TokenSet* set : {&data.train, &data.val})
      for (std::uint64_t at = 0; at < set->size(); at += ids.size())
        set->read(at, std::span(ids).first(std::min<std::uint64_t>(ids.size(), set->size() - at)));
  } catch (const DataError& error) {
    fmt::print("{}\n", error.what());
    return failed;
  }
  fmt::print("{}: {} tokens, all ids are below {}\n", spec, data.train.size() + data.val.size(),
             data.vocabulary);
  return done;
}

Run declare_data_tokenize(Parser parser) {
  struct Options : data::TokenizeOptions {
    std::vector<std::string> paths;
    std::string stored_as = "safetensors";
  };
  auto options = std::make_shared<Options>();
  parser.add({.name = "TEXT",
              .variable = &options->paths,
              .help = "files of text, then OUT, the folder to create",
              .type = "FILE",
              .required = true,
              .least = 2,
              .most = 1 << 29});
  parser.add({.name = "--tokenizer",
              .variable = &options->tokenizer,
              .help = "gpt2 (needs --merges), bpe (trained on the text, or given by --merges), "
                      "char, byte, or a tokenizer.json",
              .type = "NAME"});
  parser.add({.name = "--merges",
              .variable = &options->merges,
              .help = "merges of gpt2 or bpe: GPT-2's vocab.bpe, or a file like it",
              .type = "FILE"});
  parser.add({.name = "--vocab-size",
              .variable = &options->vocabulary,
              .help = "size of a trained bpe's vocabulary, including 256 bytes and <|endoftext|>",
              .check = in_range(257, 1 << 20)});
  parser.add({.name = "--val-fraction",
              .variable = &options->val_fraction,
              .help = "share of the characters, taken from the end, for validation",
              .check = number_up_to(1, false)});
  parser.add({.name = "--format",
              .variable = &options->stored_as,
              .help = "format of the tokens",
              .check = one_of({"safetensors", "npy", "llmc", "nanogpt"})});
  parser.add({.name = "--end-of-text",
              .variable = &options->end_of_text,
              .help = "put <|endoftext|> between texts, and read it as one token in them"});
  parser.add({.name = "--workers",
              .variable = &options->workers,
              .help = "threads; 0: one per core",
              .check = in_range(0, 1024)});
  parser.footer(
      "Examples:\n  warpstep data tokenize input.txt shakespeare --tokenizer char\n"
      "  warpstep data tokenize input.txt shakespeare-gpt2 --merges vocab.bpe\n"
      "  warpstep data tokenize books/*.txt books-bpe --tokenizer bpe --vocab-size 8192 "
      "--end-of-text");
  return [parser, options] {
    if (parser.given("--vocab-size") && (options->tokenizer != "bpe" || !options->merges.empty()))
      say("note: --vocab-size has no effect: it is for a bpe that is trained here, --tokenizer bpe "
          "without --merges\n");
    std::vector<std::string> texts = options->paths;
    const std::string out = texts.back();
    texts.pop_back();
    options->format = format_named(options->stored_as);
    options->progress = CountLine{"MiB"};
    const std::uint64_t begin_ns = now_ns();
    const data::TokenizeSummary summary = data::tokenize(texts, out, *options);
    const double seconds = static_cast<double>(now_ns() - begin_ns) / 1e9;
    print_summary(out, summary, seconds);
    const bool is_trained = options->tokenizer == "bpe" && options->merges.empty();
    if (is_trained && summary.vocabulary < options->vocabulary)
      say("note: the vocabulary has {} tokens, fewer than --vocab-size {}: in the text that merges "
          "are trained on, no other pair of tokens within a word occurs twice\n",
          summary.vocabulary, options->vocabulary);
    return done;
  };
}

}  // namespace warpstep::tools
