// warpstep weights info: what is in a safetensors file, as a table or as JSON.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "data/file.h"
#include "engine/safetensors_values.h"
#include "tools/warpstep/progress.h"
#include "tools/warpstep/weights.h"

namespace warpstep::tools {
namespace {

using Json = nlohmann::ordered_json;

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
  Json::object_t metadata;  // whose [] would look through all keys before
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
  return grouped(static_cast<std::int64_t>(number));
}

void print_tensor(const Json& tensor, std::size_t width, bool odd) {
  const auto number = [&](const char* key) {
    return tensor[key].is_null() ? "-" : fmt::format("{:.4g}", tensor[key].get<double>());
  };
  const auto shape = tensor["shape"].get<std::vector<std::uint64_t>>();
  fmt::print("{:<{}}  {:<5} {:<16} {:>13} {:>14} {:>11} {:>11} {:>11} {:>11}",
             data::printable(tensor["name"].get<std::string>()), width,
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
      ++checksums;
      continue;
    }
    const auto text = value.get<std::string>();
    fmt::print("  {} = {}{}\n", data::printable(key), data::printable(text.substr(0, longest)),
               text.size() > longest ? fmt::format("... ({} bytes)", text.size()) : "");
  }
  if (checksums > 0) fmt::print("  and the checksums of {} tensors\n", checksums);
}

// The columns of NaN and infinity come only where there is one.
void print(const Json& file) {
  std::size_t width = 4;
  for (const Json& tensor : file["tensors"])
    width = std::max(width, data::printable(tensor["name"].get<std::string>()).size());
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
             counted(static_cast<std::int64_t>(file["tensors"].size()), "tensor"),
             fmt::join(types, ", "), count(totals.elements), count(totals.bytes), count(totals.nan),
             count(totals.infinite));
  if (file["metadata"].empty()) return;
  fmt::print("metadata:\n");
  print_metadata(file["metadata"]);
}

int info(const std::string& path, bool json) {
  const Json file = describe(SafetensorsFile(path));
  if (json)
    fmt::print("{}\n", file.dump(2));
  else
    print(file);
  return done;
}

}  // namespace

Run declare_weights_info(CLI::App& app) {
  struct Options {
    std::string file;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  app.add_option("FILE", options->file, "a safetensors file")->required();
  app.add_flag("--json", options->json, "print one JSON object");
  app.footer("Example:\n  warpstep weights info resnet18.safetensors");
  return [options] { return info(options->file, options->json); };
}

}  // namespace warpstep::tools
