// What can be done about a loader.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/core/text.h"
#include "profiler/analysis/findings.h"
#include "profiler/analysis/loader_model.h"
#include "profiler/analysis/stall.h"

namespace warpstep::profiler {
namespace {

std::string setting(const Facts& facts, const char* key, const char* otherwise = "") {
  return fields::text(facts.session.loader, key, facts.option(key, otherwise));
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

bool is_jpeg(const Facts& facts) {
  return has(setting(facts, "encoding"), "jpeg");
}

// JPEG photos that differ in size cannot be stored as pixels; a crop or resize says that they do.
bool stores_pixels(const Facts& facts) {
  const std::string transforms = setting(facts, "transforms");
  if (!fields::flag(facts.session.loader, "can_store_pixels", true)) return false;
  return !is_jpeg(facts) || (!has(transforms, "crop") && !has(transforms, "resize"));
}

// Of the files: JPEG that pack makes seekable. It keeps progressive ones as they are.
double seekable_share(const Facts& facts) {
  if (!is_jpeg(facts)) return 0;
  return std::clamp(fields::number(facts.session.loader, "baseline_share", 1), 0.0, 1.0);
}

std::optional<RemedyChoice> more_workers(const Facts& facts, const LoaderModel& model) {
  const Stall& stall = facts.analysis.stall;
  const int workers = stall.workers_needed > 0 ? stall.workers_needed : stall.best_workers;
  if (workers <= facts.analysis.loader.workers) return std::nullopt;
  const char* const why =
      stall.workers_needed > 0 ? "loading then overlaps with computing" : "they shorten the wait";
  return RemedyChoice{fmt::format("--workers {}", workers),
                      fmt::format("use --workers {}: {}", workers, why),
                      model.gain({.workers = workers})};
}

std::optional<RemedyChoice> normalize_on_device(const Facts& facts, const LoaderModel& model) {
  const double pixels = cpu_share_of(facts.analysis.loader, "pixels");
  if (setting(facts, "normalize", "device") != "cpu" || pixels <= 0) return std::nullopt;
  return RemedyChoice{"--normalize device",
                      "use --normalize device: bytes become numbers in a kernel of the step",
                      at_least_none(model.gain({.cpu = 1 - pixels * (1 - bytes_pixels)}))};
}

// Bytes of a sample as pixels, in those that are read now; 1 where either is not known.
double pixel_bytes(const Facts& facts) {
  const Json& loader = facts.session.loader;
  const double samples = fields::number(loader, "samples"),
               decoded = fields::number(loader, "decoded_bytes");
  double bytes = 0;
  for (const SampleTime& sample : facts.analysis.loader.samples) bytes += sample.bytes;
  if (samples <= 0 || decoded <= 0 || bytes <= 0) return 1;
  return decoded / samples * static_cast<double>(facts.analysis.loader.samples.size()) / bytes;
}

std::string progressive_text(const Facts& facts) {
  return fmt::format(
      " ({} of the files are progressive JPEG, which it keeps as they are: decoding them takes as "
      "long until `jpegtran -optimize` has made them baseline, without loss)",
      quantity(1 - seekable_share(facts), Unit::share));
}

// The work that is left when a set has been packed.
Remedy packed(const Facts& facts) {
  const LoaderView& view = facts.analysis.loader;
  const bool pixels = stores_pixels(facts);
  const double decode = pixels ? decoded_decode : 1 - seekable_share(facts) * (1 - seekable_decode),
               read = is_loose(facts.view) ? packed_read : 1;
  return {.cpu = 1 - cpu_share_of(view, "decode") * (1 - decode) -
                 cpu_share_of(view, "read") * (1 - read),
          .latency = read,
          .bytes = pixels ? pixel_bytes(facts) : 1};
}

}  // namespace

Gain at_least_none(Gain gain) {
  gain.ns = std::max(0.0, gain.ns);
  return gain;
}

std::optional<RemedyChoice> deeper_queue(const Facts& facts, const LoaderModel& model) {
  const Stall& stall = facts.analysis.stall;
  if (stall.prefetch_needed == 0) return std::nullopt;
  return RemedyChoice{
      fmt::format("--prefetch {}", stall.prefetch_needed),
      fmt::format("use --prefetch {}: the loader is fast enough on the whole, and a "
                  "deeper queue absorbs slow batches",
                  stall.prefetch_needed),
      model.gain({.prefetch = stall.prefetch_needed})};
}

std::optional<RemedyChoice> pack(const Facts& facts, const LoaderModel& model) {
  const std::string tier = setting(facts, "tier", "auto");
  if (tier == "mapped" || tier == "resident") return std::nullopt;
  const std::optional<std::string> command = pack_command(facts);
  if (!command) return std::nullopt;
  std::string advice = fmt::format("run `{}` once: ", *command);
  if (facts.analysis.stall.bound == Bound::io)
    advice += "a few large files can be read ahead";
  else if (stores_pixels(facts))
    advice += "it stores pixels, and reading is a copy";
  else if (seekable_share(facts) > 0)
    advice += "of a seekable JPEG only the crop is decoded";
  else
    advice += "a few large files are read faster";
  if (is_jpeg(facts) && !stores_pixels(facts) && seekable_share(facts) < 1)
    advice += progressive_text(facts);
  // How much of a read's latency was opening its file is not known: all of it goes, or none.
  Remedy without = packed(facts), with = packed(facts);
  if (is_loose(facts.view)) without.latency = 0, with.latency = 1;
  const Gain some = model.gain(with), all = model.gain(without);
  const Gain gain{.ns = (some.ns + all.ns) / 2,
                  .least_ns = std::min(some.least_ns, all.least_ns),
                  .most_ns = std::max(some.most_ns, all.most_ns)};
  return RemedyChoice{*command, advice, gain};
}

std::optional<RemedyChoice> keep_decoded(const Facts& facts, const LoaderModel& model) {
  if (!can_keep_decoded(facts) || reads_once(facts)) return std::nullopt;
  const LoaderView& view = facts.analysis.loader;
  return RemedyChoice{
      "--tier mapped", "use --tier mapped: from the second epoch on decoded images are in memory",
      at_least_none(model.gain({.cpu = 1 - cpu_share_of(view, "decode") * (1 - decoded_decode) -
                                       cpu_share_of(view, "read"),
                                .latency = 0,
                                .bytes = 0}))};
}

double packed_bytes(const Facts& facts) {
  return packed(facts).bytes;
}

bool can_keep_decoded(const Facts& facts) {
  if (setting(facts, "tier") != "decoded" || setting(facts, "encoding") == "pixels") return false;
  if (facts.option("tier") != "decoded" && !stores_pixels(facts)) return false;
  return fields::flag(facts.session.loader, "fits_mapped", true);
}

bool reads_once(const Facts& facts) {
  const double epoch = fields::number(facts.session.loader, "steps_per_epoch"),
               given = fields::number(facts.options, "steps"),
               planned = given > 0 ? given : epoch * fields::number(facts.options, "epochs");
  return planned > 0 && planned < 2 * epoch;
}

std::optional<std::string> pack_command(const Facts& facts) {
  const std::string encoding = setting(facts, "encoding");
  if (encoding.empty() || encoding == "pixels") return std::nullopt;
  if (!fields::flag(facts.session.loader, "can_pack", true)) return std::nullopt;
  // Packed already: only pixels are yet another thing.
  if (!is_loose(facts.view) && !stores_pixels(facts)) return std::nullopt;
  std::string source = facts.option("data");
  while (source.size() > 1 && source.ends_with('/')) source.pop_back();
  if (source.starts_with('-')) source.insert(0, "./");
  return fmt::format(
      "warpstep data pack {}{}",
      source.empty() ? "SRC OUT" : shell_word(source) + " " + shell_word(source + "-packed"),
      stores_pixels(facts) ? " --decode" : "");
}

std::vector<RemedyChoice> remedies(const Facts& facts, const LoaderModel& model, bool waiting) {
  std::vector<RemedyChoice> choices;
  const auto add = [&](std::optional<RemedyChoice> choice) {
    if (choice && choice->gain.ns >= 0) choices.push_back(std::move(*choice));
  };
  if (waiting) {
    add(deeper_queue(facts, model));
    add(more_workers(facts, model));
  }
  add(normalize_on_device(facts, model));
  // find_slow_reads() has these.
  if (waiting && facts.analysis.stall.bound == Bound::io) return choices;
  add(keep_decoded(facts, model));
  add(pack(facts, model));
  return choices;
}

}  // namespace warpstep::profiler
