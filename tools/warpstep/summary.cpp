#include "tools/warpstep/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/core/file.h"
#include "engine/core/json_text.h"
#include "engine/core/phase.h"
#include "engine/core/text.h"
#include "engine/core/version.h"
#include "profiler/analysis/table.h"
#include "tools/warpstep/command.h"
#include "tools/warpstep/host.h"
#include "tools/warpstep/progress.h"
#include "tools/warpstep/resume.h"
#include "tools/warpstep/run_directory.h"
#include "tools/warpstep/say.h"

namespace warpstep::tools {
namespace {

constexpr std::array speed_keys{
    "images_per_second", "tokens_per_second", "step_ms", "step_time_share",
    "compute",           "roofline",          "machine", "time_to_first_step_s"};
constexpr std::array step_parts{"data", "copies", "kernels", "cpu", "other"};

double share(std::uint64_t part, const StepTimes& times) {
  return times.total_ns() ? static_cast<double>(part) / static_cast<double>(times.total_ns()) : 0;
}

Json speed_json(const Totals& totals) {
  const StepTimes& times = totals.times;
  return {{fmt::format("{}_per_second", name(totals.items)), per_second(totals.count, times)},
          {"step_ms", 1e3 * totals.step_seconds()},
          {"step_time_share",
           {{"data", share(times.data_ns, times)},
            {"copies", share(times.copies_ns, times)},
            {"kernels", share(times.kernels_ns, times)},
            {"cpu", share(times.cpu_ns, times)},
            {"other", share(times.other_ns, times)}}}};
}

Json stages_json(const std::vector<data::StageTime>& stages) {
  Json json = Json::object();
  for (const data::StageTime& stage : stages) json[stage.name + "_ns"] = stage.ns;
  return json;
}

}  // namespace

Json config_json(const RunOptions& options, const Device& device, const Json& data,
                 const Source& training, const Source& test) {
  const Host machine = host();
  Json json{{"options", options}};
  json["device"] = {{"backend", device.backend->name()}, {"text", device.backend->describe()}};
  if (device.threads > 0) json["device"]["threads"] = device.threads;
  if (options.communicator) json["ranks"] = options.world().size;
  json["pinned"] = device.pinning;
  json["data"] = data;
  json["loader"] = {{"workers", training.loader->workers()},
                    {"memory_bound_bytes", training.loader->memory().total()},
                    {"steps_per_epoch", training.loader->steps_per_epoch()}};
  if (!training.is_text())
    json["loader"].update({{"tier", data::name(training.tier.tier)},
                           {"tier_because", training.tier.why},
                           {"transforms", training.recipe.text()},
                           {"eval_transforms", test.recipe.text()}});
  json["program"] = {{"version", version()}, {"commit", commit()}, {"compiler", compiler()}};
  json["host"] = {{"cpu", machine.cpu}, {"cores", machine.cores}, {"system", machine.system}};
  return json;
}

Json earlier_summary(const std::filesystem::path& run) try {
  Json summary = parse_json<Json>(read_file(run / "summary.json"));
  const auto is_whole = [](const Json& value) { return value.is_number_unsigned(); };
  const auto is_number = [](const Json& value) { return value.is_number(); };
  const auto is_share = [&](const Json& value) {
    return value.is_object() && std::ranges::all_of(step_parts, [&](const char* part) {
             return value.contains(part) && value.at(part).is_number();
           });
  };
  const auto has = [&summary](const char* key, const auto& is_right) {
    return summary.contains(key) && is_right(summary.at(key));
  };
  if (!summary.is_object() || !has("steps", is_whole) ||
      !has("outcome", [](const Json& value) { return value.is_string(); }))
    return Json::object();
  if (!(has("images_per_second", is_number) || has("tokens_per_second", is_number)) ||
      !has("step_ms", is_number) || !has("step_time_share", is_share))
    for (const char* key : speed_keys) summary.erase(key);
  for (const char* key : {"compute", "roofline", "machine"})
    if (!has(key, [](const Json& value) { return value.is_object(); })) summary.erase(key);
  if (!has("loading", [](const Json& value) { return value.is_object(); }))
    summary.erase("loading");
  if (!has("bad_rows", is_whole)) summary.erase("bad_rows");
  return summary;
} catch (const DataError&) {
  return Json::object();
}

Json own_summary(const std::filesystem::path& run) {
  namespace fs = std::filesystem;
  if (const std::string started = started_in(run / "config.json"); !started.empty())
    return started == started_in(run / "summary.json") ? earlier_summary(run) : Json::object();
  std::error_code error;
  const auto began = fs::last_write_time(run / "config.json", error);
  if (!error && fs::last_write_time(run / "summary.json", error) < began) return Json::object();
  return earlier_summary(run);
}

Json early_json(const Watch& watch, double min_delta) {
  return {{"monitor", watch.loss ? "loss" : "accuracy"},
          {"best", watch.best},
          {"step", watch.best_step},
          {"evaluations", watch.worse},
          {"min_delta", min_delta}};
}

Json machine_json(const Json& record) {
  Json json = Json::object();
  for (const char* key : {"cpu", "affinity", "cgroup", "kernel", "load_average", "gpus"})
    if (record.contains(key)) json[key] = record.at(key);
  return json;
}

Json summary_json(const Totals& totals, const Throughput& throughput, const Progress& progress,
                  Outcome outcome, const Json& last_epoch, const std::filesystem::path& checkpoint,
                  const std::filesystem::path& run) {
  Json json{{"outcome", outcome == Outcome::finished        ? "finished"
                        : outcome == Outcome::stopped_early ? "stopped early"
                                                            : "interrupted"},
            {"epochs", progress.next.epoch},
            {"steps", progress.step}};
  if (progress.evaluation) {
    const Score& score = progress.evaluation->score;
    json["test"] = {{"accuracy", score.accuracy()},
                    {"loss", score.loss()},
                    {std::string(name(totals.items)), score.count}};
    if (totals.items == Items::tokens) json["test"]["perplexity"] = std::exp(score.loss());
  }
  if (!last_epoch.is_null())
    json["training"] = {{"accuracy", last_epoch.at("accuracy")}, {"loss", last_epoch.at("loss")}};
  if (totals.steps > 0) {
    json.update(speed_json(totals));
    json["time_to_first_step_s"] =
        static_cast<double>(totals.first_step_end_ns - record::process_start_ns()) * 1e-9;
    if (const Json compute = to_compute_json(throughput, totals.step_seconds()); !compute.empty())
      json["compute"] = compute;
  } else {
    const Json earlier = earlier_summary(run);
    for (const char* key : speed_keys)
      if (earlier.contains(key)) json[key] = earlier[key];
  }
  json["checkpoint"] = checkpoint.filename().string();
  return json;
}

namespace {

// Fields of an earlier process's summary may be missing.
double number_in(const Json& summary, const char* object, const char* key) {
  const auto found = summary.find(object);
  if (found == summary.end() || !found->is_object()) return 0;
  const auto value = found->find(key);
  return value == found->end() || !value->is_number() ? 0 : value->get<double>();
}

void print_compute(const Json& summary) {
  const double tflops = number_in(summary, "compute", "model_tflops_per_second");
  if (tflops <= 0) return;
  const auto rate = [](double of_tflops) {
    return profiler::quantity(1e12 * of_tflops, profiler::Unit::per_second_flops);
  };
  std::string text = fmt::format("{} of the model", rate(tflops));
  if (const double mfu = number_in(summary, "compute", "mfu"); mfu > 0) {
    const std::string_view reason = above_peak_reason(mfu);
    text += fmt::format(", {} of the peak of {} (MFU{}{})", percent(mfu),
                        rate(number_in(summary, "compute", "peak_tflops_per_second")),
                        reason.empty() ? "" : "; ", reason);
  }
  if (const double floor = number_in(summary, "roofline", "floor_ms"); floor > 0)
    text += fmt::format("; the roofline's floor, {:.2f} ms, is {} of a step", floor,
                        percent(number_in(summary, "roofline", "share")));
  print_result("  compute    {}\n", text);
}

void print_speed(const Json& summary) {
  const auto number = [&](const std::string& key) { return summary.at(key).get<double>(); };
  const Items items = summary.contains("tokens_per_second") ? Items::tokens : Items::images;
  const double speed = number(fmt::format("{}_per_second", name(items)));
  print_result("  speed      {} {}/s, {:.2f} ms/step\n", grouped(static_cast<std::int64_t>(speed)),
               name(items), number("step_ms"));
  print_compute(summary);
  if (const auto first = summary.find("time_to_first_step_s");
      first != summary.end() && first->is_number())
    print_result("  start      the first step was done after {:.2f} s\n", first->get<double>());
  const Json& shares = summary.at("step_time_share");
  const auto part = [&](const char* key) { return percent(shares[key].get<double>()); };
  print_result("  step time  {} waiting for data, {} for copies, {} kernels, {} CPU, {} other\n",
               part("data"), part("copies"), part("kernels"), part("cpu"), part("other"));
}

}  // namespace

void print_summary(const Json& summary, const RunOptions& options,
                   const std::filesystem::path& run) {
  print_result("\n{} on {}: {}, {}, {} ({})\n", options.model, options.data,
               counted(summary.at("epochs").get<std::int64_t>(), "epoch"),
               counted(summary.at("steps").get<std::int64_t>(), "step"),
               summary.at("outcome").get<std::string>(), update_text(options));
  if (summary.contains("test") && summary["test"].contains("tokens"))
    print_result("  loss       {} on {} validation tokens (perplexity {:.4g})\n",
                 loss_text(summary["test"]["loss"].get<double>()),
                 grouped(summary["test"]["tokens"].get<std::int64_t>()),
                 summary["test"]["perplexity"].get<double>());
  else if (summary.contains("test"))
    print_result("  accuracy   {} of {} test images (loss {})\n",
                 percent(summary["test"]["accuracy"].get<double>()),
                 grouped(summary["test"]["images"].get<std::int64_t>()),
                 loss_text(summary["test"]["loss"].get<double>()));
  if (const auto early = summary.find("stopped_early"); early != summary.end()) {
    const bool loss = early->at("monitor") == "loss";
    const auto best = early->at("best").get<double>();
    print_result("  stopped    early: {} without a better {} than {} after step {}\n",
                 counted(early->at("evaluations").get<std::int64_t>(), "evaluation"),
                 loss ? "loss" : "accuracy", loss ? loss_text(best) : percent(best),
                 grouped(early->at("step").get<std::int64_t>()));
  }
  // The last weights are the best ones as a rule.
  if (const auto best = summary.find("best");
      best != summary.end() && best->at("step") != summary.at("steps"))
    print_result("  best       {} after step {}: {}/{}\n",
                 summary.contains("test") && summary["test"].contains("tokens")
                     ? fmt::format("loss {}", loss_text(best->at("loss").get<double>()))
                     : percent(best->at("accuracy").get<double>()),
                 grouped(best->at("step").get<std::int64_t>()), run.string(),
                 best->at("checkpoint").get<std::string>());
  if (summary.contains("step_time_share")) print_speed(summary);
  if (const auto rows = summary.value("bad_rows", std::uint64_t{0}); rows > 0)
    print_result("  broken     {} of batches could not be decoded: {}/bad_samples.jsonl\n",
                 counted(rows, "row"), run.string());
  print_result("  wrote      {0}/summary.json  {0}/curves.png  {0}/metrics.jsonl  {0}/{1}\n",
               run.string(), summary.at("checkpoint").get<std::string>());
}

Json loading_json(const Source& training) {
  const data::LoaderStats stats = training.loader->stats();
  Json workers = Json::array();
  for (const data::WorkerStats& worker : stats.workers) {
    Json json = stages_json(worker.stages);
    json["samples"] = worker.samples;
    json["bytes"] = worker.bytes;
    workers.push_back(std::move(json));
  }
  Json json{{"batches", stats.batches},
            {"samples", stats.samples},
            {"bytes_read", stats.bytes},
            {"active_workers", stats.active},
            {"trainer_wait_ns", stats.trainer_wait_ns},
            {"cpu_ns", stats.cpu_ns},
            {"mean_batches_ready", stats.mean_ready},
            {"stages", stages_json(stats.stages)},
            {"workers", std::move(workers)}};
  json["slowest_samples"] = Json::array();
  for (const data::SlowSample& sample : stats.slowest)
    json["slowest_samples"].push_back(
        {{"name", sample.name}, {"class", sample.class_name}, {"ns", sample.ns}});
  if (training.feeder) {
    const FeedStats feed = training.feeder->stats();
    json["to_device"] = {{"batches", feed.batches},
                         {"bytes", feed.bytes},
                         {"copy_ns", feed.copy_ns},
                         {"device_wait_ns", feed.device_wait_ns}};
  }
  json["diagnosis"] = diagnosis(training);
  return json;
}

}  // namespace warpstep::tools
