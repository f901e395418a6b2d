#include "tools/warpstep/profiling.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <thread>

#include "data/decode/jpeg.h"
#include "data/formats/cached.h"
#include "engine/core/cpus.h"
#include "engine/core/error.h"
#include "engine/core/file.h"
#include "engine/core/record.h"
#include "engine/core/text.h"
#include "engine/explain/explain.h"
#include "engine/run/step_memory.h"
#include "profiler/analysis/analysis.h"
#include "profiler/export/export.h"
#include "tools/warpstep/fitting.h"
#include "tools/warpstep/host.h"
#include "tools/warpstep/peaks.h"
#include "tools/warpstep/pinning.h"
#include "tools/warpstep/run_directory.h"
#include "tools/warpstep/say.h"
#include "tools/warpstep/session.h"
#include "tools/warpstep/throughput.h"
#include "tools/warpstep/try.h"

namespace warpstep::tools {

std::filesystem::path ProfiledRun::directory() const {
  return file.has_parent_path() ? file.parent_path() : ".";
}

ProfiledRun open_profiled_run(const std::string& run) {
  const std::filesystem::path path(run);
  std::error_code none;
  if (!std::filesystem::exists(path, none))
    fail<DataError>("{}: there is no such run directory or session file", run);
  const bool is_directory = std::filesystem::is_directory(path, none);
  const std::filesystem::path file = is_directory ? path / "session.prof" : path;
  if (is_directory && !std::filesystem::exists(file, none) &&
      !std::filesystem::exists(path / "config.json", none))
    fail<DataError>("{}: is not a run directory: it has no session.prof and no config.json", run);
  if (!std::filesystem::is_regular_file(file, none))
    fail<DataError>("{}: this run was not profiled; train with --profile spans to record it",
                    file.string());
  return {file, profiler::read_session(file)};
}

void check_output(const std::filesystem::path& output, const ProfiledRun& run) {
  std::error_code none;
  if (std::filesystem::equivalent(output, run.file, none))
    fail<UsageError>("{}: is the profile that is read; write to another file", output.string());
}

namespace {

namespace fs = std::filesystem;

// The cost of a span on this machine, in ns.
double calibrated_span_ns() {
  constexpr int spans = 4000;
  const record::Name name{"calibration"};
  double ns = 0;
  std::thread([&] {
    record::keep_entries(true);
    const std::uint64_t begin = now_ns();
    for (int i = 0; i < spans; ++i) const record::Span span(name);
    ns = static_cast<double>(now_ns() - begin) / spans;
    record::keep_entries(false);
  }).join();
  record::drain([](std::uint32_t, std::span<const record::Entry>) {});
  return ns;
}

// The session of an earlier part of a resumed run gets another name, and its exports the folder
// that they would be written to now.
void keep_earlier_session(const fs::path& path, std::uint64_t step) {
  if (!fs::exists(path)) return;
  fs::path earlier = path;
  earlier.replace_filename(fmt::format("session-until-{:08}.prof", step));
  for (int again = 2; fs::exists(earlier); ++again)  // resumed from there before
    earlier.replace_filename(fmt::format("session-until-{:08}-{}.prof", step, again));
  fs::rename(path, earlier);
  // Readers take a folder of exports as one run's: those of two sessions in it would mix.
  const fs::path exports = path.parent_path() / "trace";
  if (fs::is_symlink(exports)) return;  // not the run's own
  for (const std::string_view format : export_folder::all) {
    if (!fs::exists(exports / format)) continue;
    fs::create_directories(exports / earlier.stem());
    fs::rename(exports / format, exports / earlier.stem() / format);
  }
}

// A job knows this process's rank itself.
std::optional<profiler::RankAddress> rank_of(const RunOptions& options) {
  if (options.profile_rank.empty()) return std::nullopt;
  profiler::RankAddress address = profiler::parse_rank(options.profile_rank);
  if (options.communicator) address.rank = static_cast<std::uint32_t>(options.world().rank);
  return address;
}

// Of all that this process may use, the one that the backend computes on.
std::vector<profiler::Device> device_of(const Accelerator& accelerator) {
  std::vector<profiler::Device> devices = profiler::query_devices();
  std::erase_if(devices, [&](const profiler::Device& device) {
    return device.id != static_cast<std::uint32_t>(accelerator.ordinal);
  });
  return devices;
}

std::string without_counters(std::string_view device) {
  return fmt::format("--profile-counters samples a GPU's counters; {} has none", device);
}

// Of some of the set's JPEG files: pack makes baseline ones seekable and keeps progressive ones.
double baseline_share(const data::Dataset& set) {
  constexpr std::uint64_t most = 16;
  const std::uint64_t count = std::min(set.size(), most);
  std::uint64_t jpeg = 0, baseline = 0;
  data::Scratch scratch;
  for (std::uint64_t i = 0; i < count; ++i) try {
      const std::uint64_t index = i * set.size() / count;
      const data::Sample sample = set.fetch(index, scratch);
      if (sample.encoding != data::Encoding::jpeg) continue;
      ++jpeg;
      baseline += data::jpeg_traits(sample.bytes, set.name(index)).baseline ? 1 : 0;
    } catch (const Error&) {  // it is broken, or gone by now
    }
  return jpeg > 0 ? static_cast<double>(baseline) / static_cast<double>(jpeg) : 1;
}

// What a copy of the set's pixels takes: of whole images, though a step's rows may be crops.
std::uint64_t decoded_bytes(const Source& source) {
  if (source.is_text()) return source.size() * size_bytes(source.tokens.type());
  return source.size() * static_cast<std::uint64_t>(source.dataset->image_shape().count());
}

int cores_now() {
  const AvailableCpus available = available_cpus();
  return available.allowed.empty() ? allowed_cores()
                                   : cores_within(available.allowed.size(), available.quota);
}

// `team`: the threads of the backend's kernels, which --pin-cpus or OMP_NUM_THREADS may have set;
// 0: it has none.
// Before it has worked, `loading` is empty.
Json loader_json(const Source& source, const Source& test, const RunOptions& options,
                 const Json& loading, int cores, int team) {
  const std::string kind = source.kind();
  const bool encoded = source.encoding != data::Encoding::pixels;
  Json json{{"workers", source.loader->workers()},
            {"prefetch", options.prefetch},
            {"batch", options.batch},
            {"tier", source.is_text() ? "mapped" : std::string(data::name(source.tier.tier))},
            {"encoding", source.is_text()                          ? "tokens"
                         : source.encoding == data::Encoding::png  ? "png"
                         : source.encoding == data::Encoding::jpeg ? "jpeg"
                                                                   : "pixels"},
            {"format", kind},
            {"normalize", options.normalize},
            {"transforms", source.recipe.text()},
            {"steps_per_epoch", steps_of_epoch(options, source.loader->steps_per_epoch())},
            {"cores", cores},
            {"kernel_threads", team > 0                       ? team
                               : options.kernel_threads() > 0 ? options.kernel_threads()
                                                              : cores},
            {"can_pack", encoded && kind.ends_with("folder")},
            {"samples", source.loader->samples()},
            {"decoded_bytes", decoded_bytes(source)},
            {"fits_mapped", source.tier.fits_mapped && test.tier.fits_mapped}};
  if (!source.is_text() && encoded) json["can_store_pixels"] = source.can_store_pixels();
  if (loading.empty()) return json;
  json["active"] = loading.value("active_workers", 0);
  if (!source.is_text() && source.encoding == data::Encoding::jpeg)
    json["baseline_share"] = baseline_share(*source.dataset);
  json["batches"] = loading.value("batches", std::uint64_t{0});
  json["trainer_wait_ns"] = loading.value("trainer_wait_ns", std::uint64_t{0});
  Json stages = Json::object();
  if (const auto found = loading.find("stages"); found != loading.end())
    for (const auto& [key, value] : found->items()) stages[key.substr(0, key.rfind("_ns"))] = value;
  json["stages_ns"] = std::move(stages);
  json["cpu_ns"] = loading.value("cpu_ns", std::uint64_t{0});
  json["mean_ready"] = loading.value("mean_batches_ready", 0.0);
  json["bytes_read"] = loading.value("bytes_read", std::uint64_t{0});
  if (loading.contains("slowest_samples")) json["slowest_samples"] = loading["slowest_samples"];
  if (loading.contains("to_device")) json["to_device"] = loading["to_device"];
  return json;
}

// Ranks may have been given one path, in a folder that they share.
std::string raw_file(const RunOptions& options) {
  const World world = options.world();
  if (options.profile_raw.empty() || world.size == 1) return options.profile_raw;
  return fmt::format("{}.rank{}", options.profile_raw, world.rank);
}

// What a step without --recompute would take: its arena, and the share of the FLOPs that it saves.
// Empty where that cannot be planned.
Json without_recompute(const RunOptions& options, const Source& source, const Backend& backend,
                       double flops) try {
  Graph graph = graph_without_recompute(options, source, backend);
  const double less = model_flops(graph);
  return {{"arena_bytes", plan_step(std::move(graph), backend).plan.arena_bytes},
          {"flops_saved", flops > 0 ? std::max(0.0, 1 - less / flops) : 0.0}};
} catch (const Error&) {
  return Json::object();
}

// Why a schedule recorded nothing.
std::string why_no_window(const std::string& text, std::uint64_t steps_per_epoch) {
  const profiler::ProfileSchedule schedule = profiler::parse_schedule(text);
  const std::uint64_t before = schedule.skip_first + schedule.wait + schedule.warmup;
  if (schedule.per_epoch && steps_per_epoch <= before)
    return fmt::format(
        "nothing was recorded: each epoch has {} steps, and --profile-schedule {} begins its "
        "window after {} of them (skip_first={} + wait={} + warmup={}); use smaller numbers, or "
        "per=run",
        steps_per_epoch, text, before, schedule.skip_first, schedule.wait, schedule.warmup);
  return fmt::format("the run ended before the first window of --profile-schedule {}", text);
}

}  // namespace

void check_profile_options(const RunOptions& options) {
  profiler::parse_schedule(options.profile_schedule);
  if (!options.profile_raw.empty() &&
      profiler::parse_level(options.profile) != profiler::Level::deep)
    fail<UsageError>(
        "--profile-raw keeps CUPTI's raw buffers, which only --profile deep records, not {}",
        options.profile);
  if (options.profile_counters && profiler::parse_level(options.profile) < profiler::Level::spans)
    fail<UsageError>(
        "--profile-counters samples the GPU in windows, which only --profile spans and deep "
        "record, "
        "not {}",
        options.profile);
  if (options.steps_per_launch > 1 &&
      profiler::parse_level(options.profile) >= profiler::Level::spans)
    fail<UsageError>(
        "--profile {} finds a step's calls by its launch: record them with --steps-per-launch 1, "
        "or use --profile steps",
        options.profile);
  if (options.profile_rank.empty()) return;
  profiler::parse_rank(options.profile_rank);
  if (profiler::parse_level(options.profile) == profiler::Level::off)
    fail<UsageError>("--profile-rank needs a profile; --profile off records none");
}

Profiling::Profiling(const RunOptions& options)
    : options_(options), level_(profiler::parse_level(options.profile)), cores_(cores_now()) {
  const bool on_host = options.device == "cpu" || options.device == "ref";
  if (level_ == profiler::Level::deep && on_host)
    trace_.why = "--profile deep traces GPUs; on " + options.device +
                 " the spans of the calls have the same information";
  else if (level_ == profiler::Level::deep)
    trace_ = profiler::open_device_trace({.dump = raw_file(options)});
  if (options.profile_counters && on_host) counters_.why = without_counters(options.device);
}

Profiling::~Profiling() {
  ending_.reset();  // before the recorder ends its file
  if (!recorder_ || finished_) return;
  recorder_->note("the run ended by an error");
  recorder_->finish();
  if (!has_steps_) return;  // an empty profile explains nothing
  say_below_error("profile: a partial profile was saved; view it with: warpstep report {}\n",
                  shell_word(run_.string()));
}

void Profiling::start(const fs::path& run, const Json& config, const Json& machine,
                      const Program& step, const Progress& progress,
                      std::uint64_t steps_per_epoch) {
  run_ = run;
  if (level_ == profiler::Level::off) return;
  try {
    Json stamp = config;
    stamp.update(machine);
    if (options_.check_numerics) stamp["options"]["check_numerics"] = true;
    if (options_.communicator) stamp["rank"] = options_.world().rank;
    begin(std::move(stamp), step, progress, steps_per_epoch);
  } catch (const std::exception& error) {  // a failing profile must not end the run
    recorder_.reset();
    say("profile: nothing is recorded: {}\n", error.what());
  }
}

void Profiling::begin(Json stamp, const Program& step, const Progress& progress,
                      std::uint64_t steps_per_epoch) {
  const bool windows = level_ >= profiler::Level::spans;
  steps_per_epoch_ = steps_per_epoch;
  if (const auto device = stamp.find("device"); device != stamp.end())
    team_ = device->value("threads", 0);
  step_flops_ = model_flops(step.graph());
  keep_earlier_session(run_ / "session.prof", progress.step);
  const double span_ns = calibrated_span_ns();  // before the recorder reads the rings
  // Unlike the trace, which must see modules being loaded, counters are opened once the step's
  // device has a context.
  const std::optional<Accelerator> accelerator = step.backend().accelerator();
  if (options_.profile_counters && counters_.why.empty()) {
    if (accelerator)
      counters_ = profiler::open_pm_sampling(accelerator->ordinal);
    else
      counters_.why = without_counters(step.backend().name());
  }
  const std::string counters = counters_.sampling ? counters_.sampling->what() : "";
  recorder_ = std::make_unique<profiler::Recorder>(profiler::RecorderOptions{
      .level = level_,
      .schedule = profiler::parse_schedule(options_.profile_schedule),
      .path = run_ / "session.prof",
      .accumulate = static_cast<std::uint64_t>(std::max<std::int64_t>(1, options_.accumulate)),
      .steps_in_flight = static_cast<std::uint64_t>(step.backend().steps_in_flight()),
      .steps_share_launches = options_.steps_per_launch > 1 && step.backend().steps_in_flight() > 0,
      .trace = std::move(trace_),
      .counters = std::move(counters_),
      .span_ns = span_ns,
      .gpus = gpu_of(step.backend()),
      .siblings = options_.siblings,
      .rank = rank_of(options_)});
  if (const auto rank = rank_of(options_)) stamp["rank"] = rank->rank;
  stamp["host"]["name"] = host().name;
  stamp["profiler"] = {{"level", profiler::name(level_)},
                       {"schedule", windows ? options_.profile_schedule : "every step's parts"},
                       {"pid", ::getpid()},
                       {"span_ns", span_ns}};
  if (!counters.empty()) stamp["profiler"]["counters"] = counters;  // and the clocks are locked
  recorder_->set_stamp(stamp);
  recorder_->set_program(explain_json(step));
  if (accelerator) recorder_->set_devices(device_of(*accelerator));
  recorder_->begin(progress.step + 1, {progress.next.step, steps_per_epoch});
}

void Profiling::describe(const Source& training, const Source& test) {
  if (recorder_)
    recorder_->set_loader(loader_json(training, test, options_, Json::object(), cores_, team_));
}

void Profiling::trained() {
  static const record::Name name{"end"};
  ending_.emplace(name);
}

void Profiling::on_step(const StepRecord& record) {
  has_steps_ = true;
  if (recorder_) recorder_->on_step(to_profiler_step(record), place_after(record));
}

Json Profiling::end_windows(const std::shared_ptr<Backend>& backend) {
  if (!recorder_ || ended_) return Json::object();
  ended_ = true;
  recorder_->end_windows();  // everything after this belongs to no step
  has_windows_ = recorder_->windows() > 0;
  if (!has_windows_) return Json::object();
  static const record::Name name{"measuring peaks"};
  const record::PhasePart time(name);
  const Json peaks = with_best_peaks(measure_peaks(backend, options_.precision),
                                     fmt::format("{}, {}", host().cpu, backend->describe()),
                                     cache_folder(options_));
  if (!peaks.contains("bytes_per_second"))
    recorder_->note(
        "the peak of this machine was not measured: too little memory is free, so calls have no "
        "share of it");
  recorder_->set_peaks(peaks);
  return peaks;
}

void Profiling::finish(const Source& training, const Source& test,
                       const std::shared_ptr<Backend>& backend, const Json& loading) {
  if (!recorder_) return;
  finished_ = true;
  end_windows(backend);
  Json loader = loader_json(training, test, options_, loading, cores_, team_);
  if (!options_.recompute.empty())
    loader["without_recompute"] = without_recompute(options_, training, *backend, step_flops_);
  recorder_->set_loader(loader);
  if (!has_windows_ && level_ >= profiler::Level::spans)
    recorder_->note(why_no_window(options_.profile_schedule, steps_per_epoch_));
  static const record::Name name{"report"};
  ending_.emplace(name);
  recorder_->finish();
  for (const std::string& note : recorder_->notes()) say("profile: {}\n", note);
  try {
    print();
  } catch (const std::exception& error) {  // the run itself is done and saved
    say("profile: no report: {}\n", error.what());
  }
}

void Profiling::print() const {
  const std::filesystem::path file = run_ / "session.prof";
  // A run that has trained for days must not end by what reports it.
  if (const auto bytes = std::filesystem::file_size(file);
      !report_fits(bytes, data::host_budget_bytes(options_.world().local_size))) {
    say("profile: {} has {}: its report may not fit into memory here; make it with: warpstep "
        "report {}\n",
        file.string(), quantity(static_cast<double>(bytes), Unit::bytes),
        shell_word(run_.string()));
    return;
  }
  const profiler::Session session = profiler::read_session(file);
  const profiler::Analysis analysis = profiler::analyse(session);
  if (!has_windows_) {
    constexpr std::size_t most = 3;
    for (std::size_t i = 0; i < std::min(most, analysis.findings.size()); ++i)
      print_result("  finding    {} {}: {}\n", analysis.findings[i].text,
                   analysis.findings[i].evidence, analysis.findings[i].advice);
    print_result("{}", line_that_tries(analysis, run_));
    return;
  }
  write_atomically(run_ / "report.html", profiler::html_report(session, analysis));
  print_result("\n{}{}", profiler::terminal_report(session, analysis),
               line_that_tries(analysis, run_));
  print_result("  wrote      {}/report.html\n", run_.string());
}

}  // namespace warpstep::tools
