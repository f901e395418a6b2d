#include "profiler/analysis/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "profiler/analysis/loading.h"
#include "profiler/analysis/scope.h"

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
      predicted_gain(model, {.prefetch = stall.prefetch_needed})};
}

std::optional<RemedyChoice> more_workers(const Facts& facts, const LoaderModel& model) {
  const Stall& stall = facts.analysis.stall;
  const int workers = stall.workers_needed > 0 ? stall.workers_needed : stall.best_workers;
  if (workers <= facts.analysis.loader.workers) return std::nullopt;
  const char* const why =
      stall.workers_needed > 0 ? "loading then overlaps with computing" : "they shorten the wait";
  return RemedyChoice{fmt::format("--workers {}", workers),
                      fmt::format("use --workers {}: {}", workers, why),
                      predicted_gain(model, {.workers = workers})};
}

std::optional<RemedyChoice> normalize_on_device(const Facts& facts, const LoaderModel& model) {
  const double pixels = stage_share(facts.analysis.loader, "pixels");
  if (setting(facts, "normalize", "device") != "cpu" || pixels <= 0) return std::nullopt;
  return RemedyChoice{
      "--normalize device", "use --normalize device: bytes become numbers in a kernel of the step",
      // Less work never takes longer: a negative gain is noise of the replay.
      std::max(0.0, predicted_gain(model, {.work_scale = 1 - pixels * (1 - bytes_pixels)}))};
}

std::optional<RemedyChoice> less_decoding(const Facts& facts, const LoaderModel& model) {
  const LoaderView& view = facts.analysis.loader;
  const std::string tier = setting(facts, "tier", "auto"), encoding = setting(facts, "encoding");
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
        *pack, advice,
        predicted_gain(model, {.work_scale = scale(left, is_loose(facts) ? packed_read : 1)})};
  }
  if (facts.option("tier") != "decoded") return std::nullopt;
  return RemedyChoice{"--tier mapped", "use --tier mapped: decoded images stay in memory",
                      predicted_gain(model, {.work_scale = scale(decoded_decode, 1)})};
}

}  // namespace

double stage_share(const LoaderView& view, const std::string& stage) {
  const auto at = std::find(view.stages.begin(), view.stages.end(), stage);
  if (at == view.stages.end() || view.work_ns <= 0) return 0;
  return std::min(1.0,
                  view.stage_ns[static_cast<std::size_t>(at - view.stages.begin())] / view.work_ns);
}

double predicted_gain(const LoaderModel& model, const Remedy& remedy) {
  return model.predict({}).step_ns - model.predict(remedy).step_ns;
}

bool is_loose(const Facts& facts) {
  const std::string encoding = setting(facts, "encoding"),
                    format = setting(facts, "format", "folder");
  return (encoding == "png" || encoding == "jpeg" || encoding == "mixed") &&
         format.ends_with("folder");
}

std::optional<std::string> pack_command(const Facts& facts) {
  const std::string encoding = setting(facts, "encoding");
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
  const bool is_slow_disk = waiting && facts.analysis.stall.bound == Bound::io;
  if (!is_slow_disk) add(less_decoding(facts, model));
  return choices;
}

Facts::Facts(const View& view_, const Analysis& analysis_)
    : view(view_),
      session(view_.session),
      analysis(analysis_),
      options(view_.options),
      step_ns(analysis_.breakdown.step_ns),
      steps(static_cast<double>(std::max<std::size_t>(1, analysis_.breakdown.counted))),
      on_host(view_.session.computes_on_host()),
      waits_for_data(analysis_.stall.is_stalled) {}

std::string Facts::larger_batch() const {
  return batch() > 0 ? fmt::format("--batch {}", 2 * batch()) : "--batch";
}

std::string Facts::smaller_batch() const {
  return batch() > 1 ? fmt::format("--batch {}", batch() / 2) : "";
}

std::string Facts::of_step(double ns) const {
  return fmt::format("{} of {} per step ({})", quantity(ns, Unit::ns), quantity(step_ns, Unit::ns),
                     quantity(ns / step_ns, Unit::share));
}

double Facts::range_ns(std::string_view name) const {
  double sum = 0;
  for (const Span& span : session.spans)
    if (session.kind(span) == Kind::range && session.name(span.name) == name &&
        view.in_windows(span.begin_ns))
      sum += static_cast<double>(span.end_ns - span.begin_ns);
  return sum / steps;
}

std::string Facts::of_run(double ns) const {
  return fmt::format("{} of {} ({} of the run)", quantity(ns, Unit::ns),
                     quantity(run_ns(), Unit::ns), quantity(ns / run_ns(), Unit::share));
}

double Facts::run_steps() const {
  return std::max(1.0, analysis.run.steps > 0 ? analysis.run.steps : steps);
}

double Facts::run_ns() const {
  return analysis.run.wall_ns > 0 ? analysis.run.wall_ns : run_steps() * step_ns;
}

double Facts::outside_ns(std::string_view name) const {
  if (const RunPart* part = analysis.run.part(name); part != nullptr) return part->ns;
  return range_ns(name) * run_steps();  // an older session: as in its windows
}

namespace {

// What is within steps saves at most all of each; what is outside of them at most the run.
void settle_gains(const Facts& facts, Finding& finding) {
  if (finding.outside_steps) {
    finding.run_gain_ns = std::clamp(finding.run_gain_ns, 0.0, facts.run_ns());
    finding.gain_ns = finding.run_gain_ns / facts.run_steps();
    return;
  }
  finding.gain_ns = std::clamp(finding.gain_ns, 0.0, facts.step_ns);
  finding.run_gain_ns = finding.gain_ns * facts.run_steps();
}

}  // namespace

std::vector<Finding> find_findings(const View& view, const Analysis& so_far) {
  // torch_tb_profiler's seven are among them: data-wait, communication, low-utilization,
  // tensor-cores, memory-high; its two of DataParallel have nothing to apply to.
  constexpr std::array rules{find_data_wait,         find_slow_disk,       find_slow_transform,
                             find_loader_contention, find_copies,          find_pageable_copies,
                             find_launch_bound,      find_sync_bound,      find_tiny_batch,
                             find_communication,     find_tensor_cores,    find_unaligned,
                             find_layout_transposes, find_small_kernels,   find_slow_observers,
                             find_slow_checkpoints,  find_long_evaluation, find_oversubscribed,
                             find_full_memory,       find_throttling,      find_low_utilization,
                             find_slow_layer,        find_many_calls};
  const Facts facts(view, so_far);
  std::vector<Finding> findings;
  if (facts.step_ns <= 0) return findings;
  for (const FindingRule rule : rules) rule(facts, findings);
  for (Finding& finding : findings) settle_gains(facts, finding);
  // Leave out findings whose gain is known to be small.
  constexpr double least_gain = 0.005;  // of a step, or of the run
  std::erase_if(findings, [&](const Finding& finding) {
    const double all = finding.outside_steps ? facts.run_ns() : facts.step_ns;
    const double gain = finding.outside_steps ? finding.run_gain_ns : finding.gain_ns;
    return gain > 0 && gain < least_gain * all;
  });
  std::stable_sort(findings.begin(), findings.end(), [](const Finding& a, const Finding& b) {
    return a.run_gain_ns > b.run_gain_ns;
  });
  return findings;
}

}  // namespace warpstep::profiler
