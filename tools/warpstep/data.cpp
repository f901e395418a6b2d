// warpstep data: make, pack, describe and check data sets.
#include "tools/warpstep/data.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cinttypes>
#include <cstdio>

#include "data/synthetic.h"
#include "engine/core/error.h"
#include "tools/warpstep/progress.h"

namespace warpstep::tools {
namespace {

Run declare_make(CLI::App& app) {
  struct Options : data::SyntheticOptions {
    std::string out, size = "32x32", format = "png";
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
  app.add_option("--size", options->size, "HEIGHTxWIDTH of an image, in pixels")
      ->capture_default_str();
  app.add_option("--format", options->format, "png or jpeg")
      ->check(CLI::IsMember({"png", "jpeg"}))
      ->capture_default_str();
  app.footer(
      "Examples:\n  warpstep data make shapes --train 10000 --test 2000\n"
      "  warpstep data make photos --size 533x800 --format jpeg --train 512 --test 64");
  return [options] {
    char end = 0;
    if (std::sscanf(options->size.c_str(), "%" SCNd64 "x%" SCNd64 "%c", &options->height,
                    &options->width, &end) != 2)
      fail<UsageError>("--size {}: is not HEIGHTxWIDTH, for example 533x800", options->size);
    options->jpeg = options->format == "jpeg";
    const bool made = data::make_dataset(options->out, *options, CountLine{"files"});
    fmt::print("{}: {} train and {} test images{}\n", options->out, options->train, options->test,
               made ? "" : " (already there)");
    return done;
  };
}

Run declare_data(CLI::App& app) {
  return declare_group(
      app, {{"make", "draw a small set of labelled PNG files to train on", declare_make},
            {"pack", "copy a set into few large files that are fast to read", declare_data_pack},
            {"info", "print kind, sizes, classes, mean and standard deviation", declare_data_info},
            {"verify", "decode every sample and list the broken ones", declare_data_verify}});
}

const Command data_command("data", "make, pack, describe and check data sets", declare_data);

}  // namespace

std::vector<std::pair<data::Split, std::unique_ptr<data::Dataset>>> open_splits(
    const std::string& spec) {
  std::vector<std::pair<data::Split, std::unique_ptr<data::Dataset>>> splits;
  for (const data::Split split : {data::Split::train, data::Split::test}) {
    if (data::has_split(spec, split)) splits.emplace_back(split, data::open(spec, split));
  }
  return splits;
}

}  // namespace warpstep::tools
