// warpstep data: make, pack, describe and check data sets. data_tokens.cpp has the part of text.

#include <fmt/format.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <mutex>
#include <nlohmann/json.hpp>

#include "data/decode/jpeg.h"
#include "data/formats/tokens.h"
#include "data/io/file.h"
#include "data/io/parallel.h"
#include "data/transforms/statistics.h"
#include "data/write/pack.h"
#include "data/write/synthetic.h"
#include "engine/core/checksum.h"
#include "engine/core/cpus.h"
#include "engine/core/error.h"
#include "engine/core/json_text.h"
#include "engine/core/text.h"
#include "tools/warpstep/command.h"
#include "tools/warpstep/data_tokens.h"
#include "tools/warpstep/json.h"
#include "tools/warpstep/options.h"
#include "tools/warpstep/progress.h"
#include "tools/warpstep/say.h"

namespace warpstep::tools {
namespace {

// warpstep data info: describes a data set, as text or as JSON.

using data::Dataset;
using data::Split;

using Splits = std::vector<std::pair<Split, std::unique_ptr<Dataset>>>;

// The splits of `spec`, at least one. A split that exists but is broken throws.
Splits open_splits(const std::string& spec) {
  Splits splits;
  for (const data::Split split : {data::Split::train, data::Split::test}) {
    if (data::has_split(spec, split)) splits.emplace_back(split, data::open(spec, split));
  }
  return splits;
}

// The smallest and largest sides of the first samples; only their headers are read.
struct Sizes {
  std::int64_t least_height, most_height, least_width, most_width;
  bool differ() const { return least_height != most_height || least_width != most_width; }
};

constexpr std::uint64_t most_sizes = 1000;

Sizes sizes_of(const Dataset& set) {
  const Shape first = set.image_shape();
  Sizes sizes{first[0], first[0], first[1], first[1]};
  data::Scratch scratch;
  for (std::uint64_t i = 1; i < std::min(set.size(), most_sizes); ++i) {
    const data::Sample sample = set.checked_fetch(i, scratch);
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
  // Each large photo takes milliseconds, and their mean converges quickly.
  const data::ChannelStatistics statistics =
      data::channel_statistics(set, {.most = set.image_shape().count() > 65536 ? 500U : 5000U});
  result["classes"] = std::move(classes);
  result["mean"] = statistics.mean;
  result["std"] = statistics.std;
  result["statistics_samples"] = statistics.samples;
  if (statistics.with_alpha > 0) result["with_alpha"] = statistics.with_alpha;
  if (statistics.with_orientation > 0) result["with_orientation"] = statistics.with_orientation;
  if (const auto others = set.passed_over(); !others.empty()) result["passed_over"] = others;
  result["fingerprint"] = fmt::format("{:016x}", set.fingerprint());
  return result;
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
    return fmt::format(
        "{} x {} x {}{}", range(set["heights"]), range(set["widths"]), channels,
        set["samples"].get<std::uint64_t>() > most_sizes ? " (the first 1,000)" : "");
  return fmt::format("{} x {} x {}", shape[0].get<std::int64_t>(), shape[1].get<std::int64_t>(),
                     channels);
}

// Files of a folder that are no samples.
void print_passed_over(const std::vector<std::string>& names) {
  if (!names.empty()) fmt::print("  skipped: {}\n", printable(data::first_few(names)));
}

void print(const std::string& split, const Json& set) {
  const auto images = set["samples"].get<std::int64_t>();
  const auto classes = static_cast<std::int64_t>(set["classes"].size());
  fmt::print("{}: {}, {} {} of {}, {} {}\n", split, set["kind"].get<std::string>(), images,
             images == 1 ? "image" : "images", size_text(set), classes,
             classes == 1 ? "class" : "classes");
  constexpr std::size_t most = 20;
  std::size_t shown = 0;
  for (const auto& [name, count] : set["classes"].items()) {
    if (shown++ == most) break;
    fmt::print("  {:<16} {:>8}\n", data::shown(name), count.get<std::uint64_t>());
  }
  if (set["classes"].size() > most) {
    fmt::print("  and {} more classes (--json has all)\n", set["classes"].size() - most);
  }
  fmt::print("  mean{}, std{} (of {} images, values / 255)\n", numbers(set["mean"]),
             numbers(set["std"]), set["statistics_samples"].get<std::uint64_t>());
  if (set.contains("with_alpha"))
    fmt::print(
        "  {} of these have an alpha channel or transparent colour; train --alpha chooses how to "
        "treat it\n",
        set["with_alpha"].get<std::uint64_t>());
  if (set.contains("with_orientation"))
    fmt::print(
        "  {} of these are JPEG files with an EXIF orientation other than normal: pixels are read "
        "as they are stored; mogrify -auto-orient turns them\n",
        set["with_orientation"].get<std::uint64_t>());
  if (set.contains("passed_over"))
    print_passed_over(set["passed_over"].get<std::vector<std::string>>());
  fmt::print("  fingerprint {}\n", set["fingerprint"].get<std::string>());
}

int info(const std::string& spec, double val_split, bool json) {
  if (data::has_tokens(spec)) return token_info(spec, val_split, json);
  if (val_split > 0)
    say("note: --val-split has no effect on images here; `warpstep train` has it\n");
  Json all = Json::object();
  for (const auto& [split, set] : open_splits(spec))
    all[std::string(data::name(split))] = describe(*set);
  if (json) {
    fmt::print("{}\n", printed(all, 2));
  } else {
    for (const auto& [split, set] : all.items()) print(split, set);
  }
  return done;
}

void add_plugin_option(const Parser& parser, std::string& plugin) {
  parser.add({.name = "--plugin",
              .variable = &plugin,
              .help = "library with formats of your own, see docs/plugins.md",
              .check = loaded_plugin(),
              .type = "FILE"});
}

Run declare_data_info(Parser parser) {
  struct Options {
    std::string spec, plugin;
    double val_split = 0;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  parser.add({.name = "SPEC",
              .variable = &options->spec,
              .help = "folder of the data set, or a file of tokens",
              .required = true});
  parser.add({.name = "--json", .variable = &options->json, .help = "print one JSON object"});
  add_plugin_option(parser, options->plugin);
  parser.add({.name = "--val-split",
              .variable = &options->val_split,
              .help = "for a single file of tokens: the share at its end to validate on",
              .check = number_up_to(1, false)});
  parser.footer("Example:\n  warpstep data info shapes --json");
  return [options] { return info(options->spec, options->val_split, options->json); };
}

// warpstep data pack: packs a data set into a few large files.

struct DataPackOptions {
  std::string from, out, plugin;
  std::string to;  // empty: by the kind of the source
  bool decode = false;
  bool seekable = true;
  std::uint64_t shard_mib = 256;
  int workers = 0;
};

int pack(const Parser& parser, const DataPackOptions& options) {
  if (options.decode && options.to == "tar")
    fail<UsageError>("--decode --to tar: shards hold encoded samples; leave one of the two out");
  data::PackOptions pack_options;
  pack_options.to = options.decode                ? data::PackTo::decoded
                    : options.to == "safetensors" ? data::PackTo::encoded
                                                  : data::PackTo::tar;
  if (parser.given("--shard-mib") && pack_options.to != data::PackTo::tar)
    say("note: --shard-mib has no effect without --to tar\n");
  pack_options.seekable = options.seekable;
  pack_options.shard_bytes = options.shard_mib << 20;
  pack_options.workers = options.workers;
  pack_options.progress = CountLine{"samples"};
  const data::PackSummary summary = data::pack(options.from, options.out, pack_options);
  fmt::print("{}: {} samples, {} bytes in {} files; the samples were {} bytes\n", options.out,
             summary.samples, summary.bytes, summary.files, summary.from_bytes);
  if (summary.seekable + summary.kept > 0)
    fmt::print("  {} JPEG files can be read in part, {} progressive ones are unchanged\n",
               summary.seekable, summary.kept);
  print_passed_over(summary.passed_over);
  return done;
}

Run declare_data_pack(Parser parser) {
  auto options = std::make_shared<DataPackOptions>();
  parser.add({.name = "SRC",
              .variable = &options->from,
              .help = "folder of the data set",
              .required = true});
  parser.add(
      {.name = "OUT", .variable = &options->out, .help = "folder to create", .required = true});
  parser.add({.name = "--to",
              .variable = &options->to,
              .help = "format of the packed files; tar unless --decode is given",
              .check = one_of({"tar", "safetensors"})});
  parser.add({.name = "--decode",
              .variable = &options->decode,
              .help = "store pixels; all images must have the same size"});
  parser.add({.name = "--seekable,!--no-seekable",
              .variable = &options->seekable,
              .help = "make parts of JPEG files readable, losslessly (default: on)"});
  parser.add({.name = "--shard-mib",
              .variable = &options->shard_mib,
              .help = "largest size of a tar shard, in MiB",
              .check = in_range(1, 1 << 20)});
  parser.add({.name = "--workers",
              .variable = &options->workers,
              .help = "threads; 0: one per core",
              .check = in_range(0, 1024)});
  add_plugin_option(parser, options->plugin);
  parser.footer("Example:\n  warpstep data pack photos photos-packed");
  return [parser, options] { return pack(parser, *options); };
}

// warpstep data verify: reads every sample and lists the broken ones.

struct Reader {
  data::Scratch scratch;
  data::JpegDecoder jpeg;
  std::vector<std::uint8_t> pixels;
};

// Throws DataError for a sample that changed since it was packed or cannot be decoded completely.
void verify_sample(const Dataset& set, const data::Checksums* checksums, std::uint64_t index,
                   Reader& reader) {
  const data::Sample sample = set.checked_fetch(index, reader.scratch);
  if (checksums != nullptr) {
    const std::optional<std::uint32_t> stored = checksums->stored_crc32c(index);
    const std::uint32_t found = stored ? crc32c(sample.bytes) : 0;
    if (stored && *stored != found)
      fail<DataError>("{}: has the CRC32C {:08x}, but was packed with {:08x}; pack the set again",
                      set.name(index), found, *stored);
  }
  if (sample.encoding != data::Encoding::jpeg) {
    data::read_whole(set, index, reader.scratch, reader.pixels);
    return;
  }
  // Decode every byte; training may skip parts.
  const std::string name = set.name(index);
  const Shape shape = data::decoded_shape(sample, name);
  const std::int64_t channels = set.image_shape()[2];
  reader.pixels.resize(static_cast<std::size_t>(shape[0] * shape[1] * channels));
  reader.jpeg.decode(sample.bytes, name, {0, 0, shape[0], shape[1]}, channels, reader.pixels,
                     data::JpegRoute::full);
}

// Lists the broken samples in the set's order and returns their number.
std::uint64_t verify_split(const Dataset& set) {
  const auto* checksums = dynamic_cast<const data::Checksums*>(&set);
  const int workers = allowed_cores();
  std::vector<Reader> readers(static_cast<std::size_t>(workers));
  std::mutex mutex;
  std::vector<std::pair<std::uint64_t, std::string>> bad;
  data::parallel_for(set.size(), workers, [&](int thread, std::uint64_t index) {
    try {
      verify_sample(set, checksums, index, readers[static_cast<std::size_t>(thread)]);
    } catch (const DataError& error) {
      const std::lock_guard lock(mutex);
      bad.emplace_back(index, error.what());
    }
  });
  std::sort(bad.begin(), bad.end());
  for (const auto& [index, message] : bad) fmt::print("{}\n", printable(message));
  return bad.size();
}

int verify(const std::string& spec) {
  if (data::has_tokens(spec)) return verify_tokens(spec);
  std::uint64_t bad = 0;
  std::uint64_t all = 0;
  std::vector<std::string> passed_over;
  for (const auto& [split, set] : open_splits(spec)) {
    bad += verify_split(*set);
    all += set->size();
    const std::vector<std::string> others = set->passed_over();
    passed_over.insert(passed_over.end(), others.begin(), others.end());
  }
  fmt::print("{}: {} of {} samples are good\n", printable(spec), all - bad, all);
  print_passed_over(passed_over);
  return bad == 0 ? done : failed;
}

Run declare_data_verify(Parser parser) {
  struct Options {
    std::string spec, plugin;
  };
  auto options = std::make_shared<Options>();
  parser.add({.name = "SPEC",
              .variable = &options->spec,
              .help = "folder of the data set, or a file of tokens",
              .required = true});
  add_plugin_option(parser, options->plugin);
  parser.footer("Example:\n  warpstep data verify shapes");
  return [options] { return verify(options->spec); };
}

Run declare_data_make(Parser parser) {
  struct Options : data::SyntheticOptions {
    std::string out, size = "32x32", format = "png";
  };
  auto options = std::make_shared<Options>();
  parser.add(
      {.name = "OUT", .variable = &options->out, .help = "folder to create", .required = true});
  parser.add({.name = "--train",
              .variable = &options->train,
              .help = "number of training images",
              .check = in_range(1, 10'000'000)});
  parser.add({.name = "--test",
              .variable = &options->test,
              .help = "number of test images",
              .check = in_range(1, 10'000'000)});
  parser.add({.name = "--seed",
              .variable = &options->seed,
              .help = "random seed; the same seed draws the same images",
              .check = whole_number(0, UINT64_MAX)});
  parser.add({.name = "--size",
              .variable = &options->size,
              .help = "size of the images in pixels",
              .type = "HEIGHTxWIDTH"});
  parser.add({.name = "--format",
              .variable = &options->format,
              .help = "file format of the images",
              .check = one_of({"png", "jpeg"})});
  parser.add({.name = "--overwrite",
              .variable = &options->overwrite,
              .help = "replace a generated set of other options in OUT"});
  parser.footer(
      "Examples:\n  warpstep data make shapes --train 10000 --test 2000\n"
      "  warpstep data make photos --size 533x800 --format jpeg --train 512 --test 64");
  return [options] {
    char end = 0;
    if (std::sscanf(options->size.c_str(), "%" SCNd64 "x%" SCNd64 "%c", &options->height,
                    &options->width, &end) != 2)
      fail<UsageError>("--size {}: is not HEIGHTxWIDTH, for example 533x800", options->size);
    options->jpeg = options->format == "jpeg";
    const data::Made made = data::make_dataset(options->out, *options, CountLine{"files"});
    fmt::print("{}: {} train and {} test images{}\n", options->out, options->train, options->test,
               made == data::Made::already_there ? " (already there)"
               : made == data::Made::replaced    ? "; they replace another set made by this command"
                                                 : "");
    return done;
  };
}

Run declare_data(Parser parser) {
  return declare_group(
      parser,
      {{"make", "draw a small set of labelled PNG files to train on", declare_data_make},
       {"pack", "copy a set into few large files that are fast to read", declare_data_pack},
       {"tokenize", "turn text into tokens for language models", declare_data_tokenize},
       {"info", "print kind, sizes, classes, mean and standard deviation", declare_data_info},
       {"verify", "read every sample and list the broken ones", declare_data_verify}});
}

const Command data_command("data", "make, pack, describe and check data sets", declare_data);

}  // namespace

}  // namespace warpstep::tools
