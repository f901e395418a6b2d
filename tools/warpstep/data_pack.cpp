// warpstep data pack: a data set into few large files.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "data/pack.h"
#include "engine/core/error.h"
#include "tools/warpstep/data.h"
#include "tools/warpstep/progress.h"
#include "tools/warpstep/say.h"

namespace warpstep::tools {
namespace {

struct DataPackOptions {
  std::string from, out;
  std::string to;  // empty: by what the source is
  bool decode = false;
  bool seekable = true;
  std::uint64_t shard_mib = 256;
  int workers = 0;
};

int pack(const DataPackOptions& options) {
  if (options.decode && options.to == "tar")
    fail<UsageError>("--decode --to tar: shards hold encoded samples; leave one of the two out");
  data::PackOptions pack_options;
  pack_options.to = options.decode                ? data::PackTo::decoded
                    : options.to == "safetensors" ? data::PackTo::encoded
                                                  : data::PackTo::tar;
  pack_options.seekable = options.seekable;
  pack_options.shard_bytes = options.shard_mib << 20;
  pack_options.workers = options.workers;
  pack_options.progress = CountLine{"samples"};
  const data::PackSummary summary = data::pack(options.from, options.out, pack_options);
  fmt::print("{}: {} samples, {} bytes in {} files; the samples were {} bytes\n", options.out,
             summary.samples, summary.bytes, summary.files, summary.from_bytes);
  if (summary.seekable + summary.kept > 0)
    fmt::print("  {} JPEG files can be read in part, {} progressive ones are as they were\n",
               summary.seekable, summary.kept);
  return done;
}

}  // namespace

Run declare_data_pack(CLI::App& app) {
  auto options = std::make_shared<DataPackOptions>();
  app.add_option("SRC", options->from, "the folder of the data set")->required();
  app.add_option("OUT", options->out, "the folder to make")->required();
  app.add_option("--to", options->to, "tar shards or safetensors; tar unless --decode is given")
      ->check(CLI::IsMember({"tar", "safetensors"}));
  app.add_flag("--decode", options->decode, "store pixels; all images must have one size");
  app.add_flag("--seekable,!--no-seekable", options->seekable,
               "make JPEG files readable in part, losslessly")
      ->capture_default_str();
  app.add_option("--shard-mib", options->shard_mib, "the most that a tar shard holds")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--workers", options->workers, "threads; 0 is one a core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.footer("Example:\n  warpstep data pack photos photos-packed");
  return [options] { return pack(*options); };
}

}  // namespace warpstep::tools
