// warpstep data info: what a data set is, in a page or as JSON.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "data/file.h"
#include "data/statistics.h"
#include "data/tokens.h"
#include "tools/warpstep/data.h"

namespace warpstep::tools {
namespace {

using Json = nlohmann::ordered_json;
using data::Dataset;
using data::Split;

// The smallest and largest side over the first samples; their headers alone are read.
struct Sizes {
  std::int64_t least_height, most_height, least_width, most_width;
  bool differ() const { return least_height != most_height || least_width != most_width; }
};

Sizes sizes_of(const Dataset& set) {
  const Shape first = set.image_shape();
  Sizes sizes{first[0], first[0], first[1], first[1]};
  data::Scratch scratch;
  constexpr std::uint64_t most = 1000;
  for (std::uint64_t i = 1; i < std::min(set.size(), most); ++i) {
    const data::Sample sample = set.fetch(i, scratch);
    if (sample.encoding == data::Encoding::pixels) break;
    const Shape shape = data::decoded_shape(sample, set.name(i));
    sizes.least_height = std::min(sizes.least_height, shape[0]);
    sizes.most_height = std::max(sizes.most_height, shape[0]);
    sizes.least_width = std::min(sizes.least_width, shape[1]);
    sizes.most_width = std::max(sizes.most_width, shape[1]);
  }
  return sizes;
}

Json describe(const Dataset& set) {
  std::vector<std::uint64_t> counts(set.classes().size());
  for (std::uint64_t i = 0; i < set.size(); ++i) {
    ++counts[static_cast<std::size_t>(set.label(i))];
  }
  Json classes = Json::object();
  for (std::size_t i = 0; i < counts.size(); ++i) classes[set.classes()[i]] = counts[i];
  Json result{{"kind", set.kind()},
              {"path", set.path()},
              {"samples", set.size()},
              {"image_shape", set.image_shape().extents()}};
  const Sizes sizes = sizes_of(set);
  if (sizes.differ()) {
    result["heights"] = {sizes.least_height, sizes.most_height};
    result["widths"] = {sizes.least_width, sizes.most_width};
  }
  // Each large photo takes milliseconds, and their mean settles soon.
  const data::ChannelStatistics statistics =
      data::channel_statistics(set, set.image_shape().count() > 65536 ? 500 : 5000);
  result["classes"] = std::move(classes);
  result["mean"] = statistics.mean;
  result["std"] = statistics.std;
  result["statistics_samples"] = statistics.samples;
  result["fingerprint"] = fmt::format("{:016x}", set.fingerprint());
  return result;
}

Json describe(const data::TokenSet& set) {
  return {{"kind", "tokens"},
          {"path", set.path()},
          {"tokens", set.size()},
          {"type", name(set.type())},
          {"fingerprint", fmt::format("{:016x}", set.fingerprint())}};
}

std::string numbers(const Json& values) {
  std::string text;
  for (const Json& value : values) text += fmt::format(" {:.4f}", value.get<double>());
  return text;
}

std::string size_text(const Json& set) {
  const auto range = [](const Json& ends) {
    const auto from = ends[0].get<std::int64_t>();
    const auto to = ends[1].get<std::int64_t>();
    return from == to ? fmt::format("{}", from) : fmt::format("{}-{}", from, to);
  };
  const Json& shape = set["image_shape"];
  const auto channels = shape[2].get<std::int64_t>();
  if (set.contains("heights"))
    return fmt::format("{} x {} x {} (the first 1000)", range(set["heights"]), range(set["widths"]),
                       channels);
  return fmt::format("{} x {} x {}", shape[0].get<std::int64_t>(), shape[1].get<std::int64_t>(),
                     channels);
}

void print(const std::string& split, const Json& set) {
  if (set.contains("tokens")) {
    fmt::print("{}: {} tokens of {}\n", split, set["tokens"].get<std::uint64_t>(),
               set["type"].get<std::string>());
    fmt::print("  fingerprint {}\n", set["fingerprint"].get<std::string>());
    return;
  }
  fmt::print("{}: {}, {} images of {}, {} classes\n", split, set["kind"].get<std::string>(),
             set["samples"].get<std::uint64_t>(), size_text(set), set["classes"].size());
  constexpr std::size_t most = 20;
  std::size_t shown = 0;
  for (const auto& [name, count] : set["classes"].items()) {
    if (shown++ == most) break;
    fmt::print("  {:<16} {:>8}\n", data::printable(name), count.get<std::uint64_t>());
  }
  if (set["classes"].size() > most) {
    fmt::print("  and {} more classes (--json has all)\n", set["classes"].size() - most);
  }
  fmt::print("  mean{}, std{} (of {} images, values / 255)\n", numbers(set["mean"]),
             numbers(set["std"]), set["statistics_samples"].get<std::uint64_t>());
  fmt::print("  fingerprint {}\n", set["fingerprint"].get<std::string>());
}

int info(const std::string& spec, bool json) {
  Json all = Json::object();
  for (const Split split : {Split::train, Split::test}) {
    if (data::has_tokens(spec, split))
      all[std::string(data::name(split))] = describe(data::open_tokens(spec, split));
  }
  if (all.empty()) {
    for (const auto& [split, set] : open_splits(spec))
      all[std::string(data::name(split))] = describe(*set);
  }
  if (json) {
    fmt::print("{}\n", all.dump(2));
  } else {
    for (const auto& [split, set] : all.items()) print(split, set);
  }
  return done;
}

}  // namespace

Run declare_data_info(CLI::App& app) {
  struct Options {
    std::string spec;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  app.add_option("SPEC", options->spec, "the folder of the data set")->required();
  app.add_flag("--json", options->json, "print one JSON object");
  app.footer("Example:\n  warpstep data info shapes --json");
  return [options] { return info(options->spec, options->json); };
}

}  // namespace warpstep::tools
