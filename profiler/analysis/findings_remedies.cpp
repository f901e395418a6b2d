#include "profiler/analysis/findings_remedies.h"

#include <fmt/format.h>

#include <algorithm>

#include "profiler/analysis/stall_text.h"

namespace warpstep::profiler::advice {
namespace {

std::string told(const Facts& facts, const char* key, const char* otherwise = "") {
  return fields::text(facts.session.loader, key, facts.option(key, otherwise));
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

bool is_jpeg(const Facts& facts) {
  return has(told(facts, "encoding"), "jpeg");
}

// JPEG photos that differ in size cannot be stored as pixels; a crop or resize says that they do.
bool stores_pixels(const Facts& facts) {
  const std::string transforms = told(facts, "transforms");
  return !is_jpeg(facts) || (!has(transforms, "crop") && !has(transforms, "resize"));
}

std::optional<RemedyChoice> deeper_queue(const Facts& facts, const LoaderModel& model) {
  const Stall& stall = facts.analysis.stall;
  if (stall.prefetch_needed == 0) return std::nullopt;
  return RemedyChoice{
      fmt::format("--prefetch {}", stall.prefetch_needed),
      fmt::format("use --prefetch {}: the loader is fast enough on the whole, and a "
                  "deeper queue rides out slow batches",
                  stall.prefetch_needed),
      gain(model, {.prefetch = stall.prefetch_needed})};
}

std::optional<RemedyChoice> more_workers(const Facts& facts, const LoaderModel& model) {
  const Stall& stall = facts.analysis.stall;
  const int workers = stall.workers_needed > 0 ? stall.workers_needed : stall.best_workers;
  if (workers <= facts.analysis.loader.workers) return std::nullopt;
  const char* const why =
      stall.workers_needed > 0 ? "they hide loading behind the step" : "they shorten the wait";
  return RemedyChoice{fmt::format("--workers {}", workers),
                      fmt::format("use --workers {}: {}", workers, why),
                      gain(model, {.workers = workers})};
}

std::optional<RemedyChoice> normalize_on_device(const Facts& facts, const LoaderModel& model) {
  const double pixels = stage_share(facts.analysis.loader, "pixels");
  if (told(facts, "normalize", "device") != "cpu" || pixels <= 0) return std::nullopt;
  return RemedyChoice{"--normalize device",
                      "use --normalize device: bytes become numbers in a kernel of the step",
                      // Less work never takes longer, whatever a replay's chances say.
                      std::max(0.0, gain(model, {.work_scale = 1 - pixels * (1 - bytes_pixels)}))};
}

std::optional<RemedyChoice> less_decoding(const Facts& facts, const LoaderModel& model) {
  const LoaderView& view = facts.analysis.loader;
  const std::string tier = told(facts, "tier", "auto"), encoding = told(facts, "encoding");
  if (tier == "mapped" || tier == "resident" || encoding == "pixels") return std::nullopt;
  const double decode = stage_share(view, "decode"), read = stage_share(view, "read");
  const auto scale = [&](double decode_left, double read_left) {
    return 1 - decode * (1 - decode_left) - read * (1 - read_left);
  };
  if (const std::optional<std::string> pack = pack_command(facts)) {
    const double left = stores_pixels(facts) ? decoded_decode : seekable_decode;
    std::string advice =
        stores_pixels(facts)
            ? fmt::format("run `{}` once: it stores pixels, and reading is a copy", *pack)
            : fmt::format("run `{}` once: of seekable JPEG only a crop is decoded", *pack);
    if (facts.option("tier") == "decoded" && stores_pixels(facts))
      advice += "; or --tier mapped, if decoded images fit into memory";
    return RemedyChoice{
        *pack, advice, gain(model, {.work_scale = scale(left, is_loose(facts) ? packed_read : 1)})};
  }
  if (facts.option("tier") != "decoded") return std::nullopt;
  return RemedyChoice{"--tier mapped", "use --tier mapped: decoded images stay in memory",
                      gain(model, {.work_scale = scale(decoded_decode, 1)})};
}

}  // namespace

double stage_share(const LoaderView& view, const std::string& stage) {
  const auto at = std::find(view.stages.begin(), view.stages.end(), stage);
  if (at == view.stages.end() || view.work_ns <= 0) return 0;
  return std::min(1.0,
                  view.stage_ns[static_cast<std::size_t>(at - view.stages.begin())] / view.work_ns);
}

double gain(const LoaderModel& model, const Remedy& remedy) {
  return model.predict({}).step_ns - model.predict(remedy).step_ns;
}

bool is_loose(const Facts& facts) {
  const std::string encoding = told(facts, "encoding"), format = told(facts, "format", "folder");
  return (encoding == "png" || encoding == "jpeg" || encoding == "mixed") &&
         format.ends_with("folder");
}

std::optional<std::string> pack_command(const Facts& facts) {
  const std::string encoding = told(facts, "encoding");
  if (encoding.empty() || encoding == "pixels") return std::nullopt;
  if (!fields::flag(facts.session.loader, "can_pack", true)) return std::nullopt;
  // Packed already: only pixels are yet another thing.
  if (!is_loose(facts) && !stores_pixels(facts)) return std::nullopt;
  std::string source = facts.option("data");
  while (source.size() > 1 && source.ends_with('/')) source.pop_back();
  const bool is_plain =
      !source.empty() && source.find_first_of(" \t'\"$&;|<>()*?") == std::string::npos;
  return fmt::format("warpstep data pack {}{}",
                     is_plain ? source + " " + source + "-packed" : "SRC OUT",
                     stores_pixels(facts) ? " --decode" : "");
}

std::vector<RemedyChoice> remedies(const Facts& facts, const LoaderModel& model, bool waiting) {
  std::vector<RemedyChoice> choices;
  const auto add = [&](std::optional<RemedyChoice> choice) {
    if (choice && choice->gain_ns >= 0) choices.push_back(std::move(*choice));
  };
  if (waiting) {
    add(deeper_queue(facts, model));
    add(more_workers(facts, model));
  }
  add(normalize_on_device(facts, model));
  const bool told_of_disk = waiting && facts.analysis.stall.bound == "io";
  if (!told_of_disk) add(less_decoding(facts, model));
  return choices;
}

}  // namespace warpstep::profiler::advice
