#include "tools/warpstep/data_tokens.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "data/formats/tokens.h"
#include "data/io/file.h"
#include "tools/warpstep/say.h"

namespace warpstep::tools {
namespace {

using TokenJson = nlohmann::ordered_json;

TokenJson describe_tokens(const data::TokenSet& set) {
  return {{"kind", "tokens"},
          {"path", set.path()},
          {"files", set.paths().size()},
          {"format", name(set.format())},
          {"tokens", set.size()},
          {"type", name(set.type())},
          {"largest", set.largest()},
          {"fingerprint", fmt::format("{:016x}", set.fingerprint())}};
}

void print_tokens(const std::string& split, const TokenJson& set) {
  const auto files = set["files"].get<std::uint64_t>();
  fmt::print("{}: {} tokens of {}, {}{}, ids up to {}\n", split, set["tokens"].get<std::uint64_t>(),
             set["type"].get<std::string>(), set["format"].get<std::string>(),
             files > 1 ? fmt::format(" in {} files", files) : "",
             set["largest"].get<std::uint64_t>());
  fmt::print("  fingerprint {}\n", set["fingerprint"].get<std::string>());
}

}  // namespace

int token_info(const std::string& spec, double val_split, bool json) {
  const data::TokenData data = data::open_tokens(spec, {.val_split = val_split});
  for (const std::string& warning : data.warnings) say("{}\n", warning);
  TokenJson all{{"train", describe_tokens(data.train)}};
  if (data.val.size() > 0) all["val"] = describe_tokens(data.val);
  all["vocabulary"] = data.vocabulary;
  all["vocabulary_from"] = data.vocabulary_from;
  if (data.tokenizer) all["tokenizer"] = data.tokenizer_name;
  if (json) {
    fmt::print("{}\n", all.dump(2, ' ', false, TokenJson::error_handler_t::replace));
    return done;
  }
  for (const char* split : {"train", "val"})
    if (all.contains(split)) print_tokens(split, all[split]);
  fmt::print("vocabulary: {} (by {})\n", data.vocabulary, data::printable(data.vocabulary_from));
  if (data.tokenizer) fmt::print("tokenizer: {}\n", data.tokenizer_name);
  return done;
}

}  // namespace warpstep::tools
