// warpstep data: make, describe and check data sets.
#include "data/dataset.h"

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "data/file.h"
#include "data/parallel.h"
#include "data/statistics.h"
#include "data/synthetic.h"
#include "engine/core/error.h"
#include "tools/warpstep/command.h"

namespace warpstep::tools {
namespace {

using Json = nlohmann::ordered_json;
using data::Dataset;
using data::Split;

// A line that overwrites itself, on a terminal only.
void show_progress(std::uint64_t done, std::uint64_t all) {
  static const bool terminal = ::isatty(STDERR_FILENO) == 1;
  if (!terminal || (done % 500 != 0 && done != all)) return;
  fmt::print(stderr, "\r{} of {} files{}", done, all, done == all ? "\n" : "");
  std::fflush(stderr);
}

// The splits that `spec` has, at least one. A split that is there but broken throws.
std::vector<std::pair<Split, std::unique_ptr<Dataset>>> open_splits(const std::string& spec) {
  std::vector<std::pair<Split, std::unique_ptr<Dataset>>> splits;
  for (const Split split : {Split::train, Split::test}) {
    if (data::has_split(spec, split)) splits.emplace_back(split, data::open(spec, split));
  }
  return splits;
}

Json describe(const Dataset& set) {
  std::vector<std::uint64_t> counts(set.classes().size());
  for (std::uint64_t i = 0; i < set.size(); ++i) {
    ++counts[static_cast<std::size_t>(set.label(i))];
  }
  Json classes = Json::object();
  for (std::size_t i = 0; i < counts.size(); ++i) classes[set.classes()[i]] = counts[i];
  const data::ChannelStatistics statistics = data::channel_statistics(set);
  return {{"kind", set.kind()},
          {"path", set.path()},
          {"samples", set.size()},
          {"image_shape", set.image_shape().extents()},
          {"classes", std::move(classes)},
          {"mean", statistics.mean},
          {"std", statistics.std},
          {"statistics_samples", statistics.samples},
          {"fingerprint", fmt::format("{:016x}", set.fingerprint())}};
}

std::string numbers(const Json& values) {
  std::string text;
  for (const Json& value : values) text += fmt::format(" {:.4f}", value.get<double>());
  return text;
}

void print(const std::string& split, const Json& set) {
  const auto& shape = set["image_shape"];
  fmt::print("{}: {}, {} images of {} x {} x {}, {} classes\n", split,
             set["kind"].get<std::string>(), set["samples"].get<std::uint64_t>(),
             shape[0].get<int>(), shape[1].get<int>(), shape[2].get<int>(), set["classes"].size());
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
  for (const auto& [split, set] : open_splits(spec)) {
    all[std::string(data::name(split))] = describe(*set);
  }
  if (json) {
    fmt::print("{}\n", all.dump(2));
  } else {
    for (const auto& [split, set] : all.items()) print(split, set);
  }
  return done;
}

// Decodes every sample and lists what cannot be decoded, in the set's order.
std::uint64_t verify_split(const Dataset& set) {
  struct Reader {
    data::Scratch scratch;
    std::vector<std::uint8_t> pixels;
  };
  const int workers = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  std::vector<Reader> readers(static_cast<std::size_t>(workers));
  std::mutex mutex;
  std::vector<std::pair<std::uint64_t, std::string>> bad;
  data::parallel_for(set.size(), workers, [&](int thread, std::uint64_t index) {
    Reader& reader = readers[static_cast<std::size_t>(thread)];
    reader.pixels.resize(static_cast<std::size_t>(set.image_shape().count()));
    try {
      set.read(index, reader.scratch, reader.pixels);
    } catch (const DataError& error) {
      const std::lock_guard lock(mutex);
      bad.emplace_back(index, error.what());
    }
  });
  std::sort(bad.begin(), bad.end());
  for (const auto& [index, message] : bad) fmt::print("{}\n", message);
  return bad.size();
}

int verify(const std::string& spec) {
  std::uint64_t bad = 0;
  std::uint64_t all = 0;
  for (const auto& [split, set] : open_splits(spec)) {
    bad += verify_split(*set);
    all += set->size();
  }
  fmt::print("{}: {} of {} samples are good\n", spec, all - bad, all);
  return bad == 0 ? done : failed;
}

Run declare_make(CLI::App& app) {
  struct Options : data::SyntheticOptions {
    std::string out;
  };
  auto options = std::make_shared<Options>();
  app.add_option("OUT", options->out, "the folder to make")->required();
  app.add_option("--train", options->train, "images to train with")
      ->check(CLI::Range(1, 10'000'000))
      ->capture_default_str();
  app.add_option("--test", options->test, "images to test with")
      ->check(CLI::Range(1, 10'000'000))
      ->capture_default_str();
  app.add_option("--seed", options->seed, "the same seed gives the same images")
      ->capture_default_str();
  app.footer("Example:\n  warpstep data make shapes --train 10000 --test 2000");
  return [options] {
    const bool made = data::make_png_dataset(options->out, *options, show_progress);
    fmt::print("{}: {} train and {} test images{}\n", options->out, options->train, options->test,
               made ? "" : " (already there)");
    return done;
  };
}

Run declare_info(CLI::App& app) {
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

Run declare_verify(CLI::App& app) {
  auto spec = std::make_shared<std::string>();
  app.add_option("SPEC", *spec, "the folder of the data set")->required();
  app.footer("Example:\n  warpstep data verify shapes");
  return [spec] { return verify(*spec); };
}

Run declare(CLI::App& app) {
  return declare_group(
      app, {{"make", "draw a small set of labelled PNG files to train on", declare_make},
            {"info", "print kind, sizes, classes, mean and standard deviation", declare_info},
            {"verify", "decode every sample and list the broken ones", declare_verify}});
}

const Command command("data", "make, describe and check data sets", declare);

}  // namespace
}  // namespace warpstep::tools
