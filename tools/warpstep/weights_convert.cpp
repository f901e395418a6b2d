// warpstep weights convert: a safetensors file with other names or in another precision.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <filesystem>

#include "engine/core/error.h"
#include "engine/safetensors_convert.h"
#include "tools/warpstep/progress.h"
#include "tools/warpstep/say.h"
#include "tools/warpstep/weights.h"

namespace warpstep::tools {
namespace {

struct Request {
  std::string in, out, type, strip_prefix;
  std::vector<std::string> renames;
  bool drop_optimizer = false;
};

std::pair<std::string, std::string> parse_rename(const std::string& text) {
  const std::size_t at = text.find('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size())
    fail<UsageError>("--rename {}: is not OLD=NEW, for example fc=head", text);
  return {text.substr(0, at), text.substr(at + 1)};
}

int convert(const Request& request) {
  ConvertOptions options{.drop_optimizer = request.drop_optimizer,
                         .strip_prefix = request.strip_prefix};
  if (request.type == "f32") options.type = StoredType::f32;
  if (request.type == "f16") options.type = StoredType::f16;
  if (request.type == "bf16") options.type = StoredType::bf16;
  for (const std::string& text : request.renames) options.renames.push_back(parse_rename(text));
  const ConvertReport report = convert_safetensors(request.in, request.out, options);
  std::vector<std::string> parts{counted(static_cast<std::int64_t>(report.tensors), "tensor"),
                                 grouped(static_cast<std::int64_t>(report.bytes)) + " bytes"};
  const auto add = [&](std::size_t count, const std::string& what) {
    if (count > 0) parts.push_back(fmt::format("{} {}", count, what));
  };
  add(report.converted, "converted to " + request.type);
  add(report.stripped, "stripped of " + request.strip_prefix);
  add(report.renamed, "renamed");
  add(report.dropped, "of the optimiser left out");
  fmt::print("{}: {}\n", request.out, fmt::join(parts, ", "));
  if (report.infinite > 0)
    say("warning: {} are beyond the range of {} and became infinite; bf16 has the range of "
        "f32\n",
        counted(static_cast<std::int64_t>(report.infinite), "value"), request.type);
  return done;
}

}  // namespace

Run declare_weights_convert(CLI::App& app) {
  auto request = std::make_shared<Request>();
  app.add_option("IN", request->in, "a safetensors file, for example a checkpoint")->required();
  app.add_option("OUT", request->out, "the file to write, whole or not at all")->required();
  app.add_option("--dtype", request->type,
                 "of the floating-point tensors: f32, f16 or bf16; as they are when not given")
      ->check(CLI::IsMember({"f32", "f16", "bf16"}));
  app.add_option("--strip-prefix", request->strip_prefix,
                 "take this away from the names that begin with it, for example backbone.");
  app.add_option("--rename", request->renames,
                 "OLD=NEW, of a name or of its beginning up to a dot; may be repeated");
  app.add_flag("--drop-optimizer", request->drop_optimizer,
               "leave out a checkpoint's optimizer.* tensors: what is left is a state_dict");
  app.footer(
      "Examples:\n"
      "  warpstep weights convert runs/first/checkpoint-00000624.safetensors mine.safetensors "
      "--drop-optimizer\n"
      "  warpstep weights convert theirs.safetensors mine.safetensors --strip-prefix backbone. "
      "--rename head=fc");
  return [request] { return convert(*request); };
}

}  // namespace warpstep::tools
