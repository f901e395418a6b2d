// warpstep weights: describes safetensors files and converts them; export is in huggingface.cpp.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "data/io/file.h"
#include "engine/core/error.h"
#include "engine/core/json_text.h"
#include "engine/core/text.h"
#include "engine/files/safetensors_values.h"
#include "tools/warpstep/checkpoint_files.h"
#include "tools/warpstep/command.h"
#include "tools/warpstep/huggingface.h"
#include "tools/warpstep/json.h"
#include "tools/warpstep/progress.h"
#include "tools/warpstep/say.h"

namespace warpstep::tools {
namespace {

// warpstep weights convert: changes the names or the precision of a safetensors file.

struct Request {
  std::string in, out, type, strip_prefix;
  std::vector<std::string> renames;
  bool drop_optimizer = false;
  bool raw_weights = false;
};

std::pair<std::string, std::string> parse_rename(const std::string& text) {
  const std::size_t at = text.find('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size())
    fail<UsageError>("--rename {}: is not OLD=NEW, for example fc=head", text);
  return {text.substr(0, at), text.substr(at + 1)};
}

int convert(const Request& request) {
  if (request.raw_weights && !request.drop_optimizer)
    fail<UsageError>("--no-ema goes with --drop-optimizer: without it every tensor is written");
  ConvertOptions options{.drop_optimizer = request.drop_optimizer,
                         .use_average = request.drop_optimizer && !request.raw_weights,
                         .strip_prefix = request.strip_prefix};
  if (request.type == "f32") options.type = StoredType::f32;
  if (request.type == "f16") options.type = StoredType::f16;
  if (request.type == "bf16") options.type = StoredType::bf16;
  for (const std::string& text : request.renames) options.renames.push_back(parse_rename(text));
  require_no_checkpoint(request.out);
  const ConvertReport report = convert_safetensors(request.in, request.out, options);
  std::vector<std::string> parts{counted(report.tensors, "tensor"),
                                 grouped(report.bytes) + " bytes"};
  const auto add = [&](std::size_t count, const std::string& what) {
    if (count > 0) parts.push_back(fmt::format("{} {}", count, what));
  };
  add(report.converted, "converted to " + request.type);
  add(report.stripped, "stripped of " + request.strip_prefix);
  add(report.renamed, "renamed");
  add(report.dropped, "of the optimiser left out");
  if (report.averaged > 0)
    parts.emplace_back("of the average of the weights");
  else if (request.drop_optimizer && report.averages > 0)
    parts.emplace_back("of the weights without their average");
  fmt::print("{}: {}\n", request.out, fmt::join(parts, ", "));
  if (report.infinite > 0) say("{}\n", infinite_warning(report.infinite, request.type));
  return done;
}

Run declare_weights_convert(Parser parser) {
  auto request = std::make_shared<Request>();
  parser.add({.name = "IN",
              .variable = &request->in,
              .help = "a safetensors file, for example a checkpoint",
              .required = true});
  parser.add({.name = "OUT",
              .variable = &request->out,
              .help = "the file to write, completely or not at all",
              .required = true});
  parser.add({.name = "--dtype",
              .variable = &request->type,
              .help = "store floating-point tensors as this type; otherwise unchanged",
              .check = one_of({"f32", "f16", "bf16"})});
  parser.add({.name = "--strip-prefix",
              .variable = &request->strip_prefix,
              .help = "remove this from names that begin with it, for example backbone."});
  parser.add({.name = "--rename",
              .variable = &request->renames,
              .help = "rename a tensor, or the beginning of names up to a dot; may be repeated",
              .type = "OLD=NEW",
              .repeats = true});
  parser.add({.name = "--drop-optimizer",
              .variable = &request->drop_optimizer,
              .help = "leave out a checkpoint's optimizer.* tensors; the rest is a state_dict, of "
                      "the average of the weights if the run kept one (--ema)"});
  parser.add({.name = "--no-ema",
              .variable = &request->raw_weights,
              .help = "with --drop-optimizer: the weights themselves even if the checkpoint has "
                      "their average"});
  parser.footer(
      "Examples:\n"
      "  warpstep weights convert runs/first/checkpoint-00000624.safetensors mine.safetensors \\\n"
      "      --drop-optimizer\n"
      "  warpstep weights convert theirs.safetensors mine.safetensors \\\n"
      "      --strip-prefix backbone. --rename head=fc");
  return [request] { return convert(*request); };
}

// warpstep weights info: lists the tensors of a safetensors file, as a table or as JSON.

std::uint64_t elements_of(const StoredTensor& tensor) {
  return tensor.bytes / size_bytes(tensor.type);
}

Json describe(const SafetensorsFile& file, const StoredTensor& tensor) {
  const TensorStatistics found = statistics(file, tensor);
  Json json{{"name", tensor.name},
            {"dtype", name(tensor.type)},
            {"shape", tensor.shape},
            {"elements", elements_of(tensor)},
            {"bytes", tensor.bytes}};
  const auto number = [&](double value) { return found.finite > 0 ? Json(value) : Json(); };
  json["min"] = number(found.min);
  json["max"] = number(found.max);
  json["mean"] = number(found.mean);
  json["std"] = number(found.std);
  json["nan"] = found.nan;
  json["inf"] = found.infinite;
  return json;
}

struct Totals {
  std::uint64_t elements = 0, bytes = 0, nan = 0, infinite = 0;
  std::map<std::string, std::uint64_t> types;
};

Totals totals_of(const Json& tensors) {
  Totals totals;
  for (const Json& tensor : tensors) {
    totals.elements += tensor["elements"].get<std::uint64_t>();
    totals.bytes += tensor["bytes"].get<std::uint64_t>();
    totals.nan += tensor["nan"].get<std::uint64_t>();
    totals.infinite += tensor["inf"].get<std::uint64_t>();
    ++totals.types[tensor["dtype"].get<std::string>()];
  }
  return totals;
}

Json describe(const SafetensorsFile& file) {
  Json tensors = Json::array();
  for (const StoredTensor& tensor : file.tensors()) tensors.push_back(describe(file, tensor));
  const Totals totals = totals_of(tensors);
  Json::object_t metadata;  // its [] would search all earlier keys
  metadata.reserve(file.metadata().size());
  for (const auto& [key, value] : file.metadata()) metadata.emplace_back(key, value);
  return {{"file", file.path().string()},
          {"tensors", std::move(tensors)},
          {"elements", totals.elements},
          {"bytes", totals.bytes},
          {"nan", totals.nan},
          {"inf", totals.infinite},
          {"metadata", std::move(metadata)}};
}

std::string count(std::uint64_t number) {
  return grouped(number);
}

void print_tensor(const Json& tensor, std::size_t width, bool odd) {
  const auto number = [&](const char* key) {
    return tensor[key].is_null() ? "-" : fmt::format("{:.4g}", tensor[key].get<double>());
  };
  const auto shape = tensor["shape"].get<std::vector<std::uint64_t>>();
  fmt::print("{:<{}}  {:<5} {:<16} {:>13} {:>14} {:>11} {:>11} {:>11} {:>11}",
             data::shown(tensor["name"].get<std::string>()), width,
             tensor["dtype"].get<std::string>(), fmt::format("[{}]", fmt::join(shape, ",")),
             count(tensor["elements"].get<std::uint64_t>()),
             count(tensor["bytes"].get<std::uint64_t>()), number("min"), number("max"),
             number("mean"), number("std"));
  if (odd)
    fmt::print(" {:>9} {:>9}", count(tensor["nan"].get<std::uint64_t>()),
               count(tensor["inf"].get<std::uint64_t>()));
  fmt::print("\n");
}

void print_metadata(const Json& metadata) {
  constexpr std::size_t longest = 100;
  std::size_t checksums = 0;
  for (const auto& [key, value] : metadata.items()) {
    if (key.starts_with(checksum_prefix)) {
      checksums += key == metadata_checksum_key ? 0 : 1;
      continue;
    }
    const auto text = value.get<std::string>();
    fmt::print("  {} = {}{}\n", data::shown(key), data::shown(text.substr(0, longest)),
               text.size() > longest ? fmt::format("... ({} bytes)", text.size()) : "");
  }
  if (checksums > 0) fmt::print("  and the checksums of {} tensors\n", checksums);
}

// The columns of NaN and infinity appear only if there is one.
void print(const Json& file) {
  std::size_t width = 4;
  for (const Json& tensor : file["tensors"])
    width = std::max(width, data::shown(tensor["name"].get<std::string>()).size());
  const Totals totals = totals_of(file["tensors"]);
  const bool odd = totals.nan + totals.infinite > 0;
  fmt::print("{:<{}}  {:<5} {:<16} {:>13} {:>14} {:>11} {:>11} {:>11} {:>11}{}\n", "name", width,
             "dtype", "shape", "elements", "bytes", "min", "max", "mean", "std",
             odd ? fmt::format(" {:>9} {:>9}", "NaN", "inf") : "");
  for (const Json& tensor : file["tensors"]) print_tensor(tensor, width, odd);
  std::vector<std::string> types;
  for (const auto& [type, number] : totals.types)
    types.push_back(fmt::format("{} {}", number, type));
  fmt::print("{} ({}), {} elements, {} bytes; {} NaN, {} infinite\n",
             counted(file["tensors"].size(), "tensor"), fmt::join(types, ", "),
             count(totals.elements), count(totals.bytes), count(totals.nan),
             count(totals.infinite));
  if (file["metadata"].empty()) return;
  fmt::print("metadata:\n");
  print_metadata(file["metadata"]);
}

// Of a run directory its best checkpoint, or the newest one without it; else the path.
std::string file_of(const std::string& path) {
  if (!std::filesystem::is_directory(path)) return path;
  const std::filesystem::path best = std::filesystem::path(path) / best_name;
  return std::filesystem::exists(best) ? best : newest_checkpoint(path);
}

int info(const std::string& path, bool json) {
  const Json file = describe(SafetensorsFile(file_of(path)));
  if (json)
    fmt::print("{}\n", printed(file, 2));
  else
    print(file);
  return done;
}

Run declare_weights_info(Parser parser) {
  struct Options {
    std::string file;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  parser.add({.name = "FILE",
              .variable = &options->file,
              .help = "a safetensors file, or a run directory",
              .required = true});
  parser.add({.name = "--json", .variable = &options->json, .help = "print one JSON object"});
  parser.footer("Example:\n  warpstep weights info resnet18.safetensors");
  return [options] { return info(options->file, options->json); };
}

Run declare_weights(Parser parser) {
  return declare_group(parser, {{"info", "print names, shapes and statistics of a file's tensors",
                                 declare_weights_info},
                                {"convert", "change names or precision, or leave the optimiser out",
                                 declare_weights_convert},
                                {"export", "write a language model for Hugging Face's transformers",
                                 declare_weights_export}});
}

const Command weights_command("weights", "inspect safetensors files and convert them",
                              declare_weights);

}  // namespace
}  // namespace warpstep::tools
