// warpstep train: trains a model on a data set and writes a run directory.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <typeinfo>

#include "data/formats/formats.h"
#include "data/io/file.h"
#include "engine/core/caught.h"
#include "engine/core/error.h"
#include "engine/core/file.h"
#include "engine/core/json_text.h"
#include "engine/core/phase.h"
#include "engine/core/text.h"
#include "engine/core/thread.h"
#include "engine/files/checkpoint.h"
#include "engine/run/runner.h"
#include "tools/warpstep/checkpoint_files.h"
#include "tools/warpstep/command.h"
#include "tools/warpstep/host.h"
#include "tools/warpstep/huggingface.h"
#include "tools/warpstep/job.h"
#include "tools/warpstep/line_file.h"
#include "tools/warpstep/options.h"
#include "tools/warpstep/profiling.h"
#include "tools/warpstep/progress.h"
#include "tools/warpstep/ranks_of_job.h"
#include "tools/warpstep/repeat.h"
#include "tools/warpstep/resume.h"
#include "tools/warpstep/run_directory.h"
#include "tools/warpstep/say.h"
#include "tools/warpstep/session.h"
#include "tools/warpstep/summary.h"
#include "tools/warpstep/tensorboard.h"

namespace warpstep::tools {
namespace {

namespace fs = std::filesystem;

// The phases of a run before it trains, besides those of prepare().
const record::Name start_name{"start"}, set_up_name{"set-up"};

struct TrainRequest {
  RunOptions options;
  std::string resume;
  StartWeights weights;
  bool overwrite = false;
  bool allow_changed_data = false;
  bool check_numerics = false;
  std::uint64_t repeat = 1;
  JobOptions job;
};

// The options of a run: as typed, or for --resume those of the run, replaced by typed ones.
RunOptions resolve_options(const Parser& parser, const TrainRequest& request,
                           const std::optional<Resumed>& resumed) {
  RunOptions options = request.options;
  if (resumed) {
    if (request.overwrite)
      fail<UsageError>("--overwrite does not go with --resume: the run continues in {}",
                       resumed->run.string());
    options = merged(parser, request.options, resumed->latest,
                     {"--resume", "--allow-changed-data", "--weights", "--allow-missing",
                      "--check-numerics", "--repeat", "--dist", "--dist-timeout"});
    locate_data(*resumed->latest_config, resumed->checkpoint.string(), parser, options);
    options.out = resumed->run;
    require_same_run(*resumed, options);
    require_channels_of_run(parser, resumed->latest, options,
                            {data::Split::train, data::Split::test});
  } else if (request.allow_changed_data) {
    fail<UsageError>("--allow-changed-data goes with --resume");
  }
  settle_length(parser, resumed.has_value(), options);
  if (resumed) settle_final_rate(parser, options);
  if (parser.given("--batch")) {
    if (parser.given("--global-batch") && request.options.global_batch > 0)
      fail<UsageError>(
          "--batch is per rank and --global-batch for all ranks together: give one of them");
    options.global_batch = 0;
  }
  if (!options.plugin.empty())  // a run continues from any folder
    options.plugin = std::filesystem::absolute(options.plugin).lexically_normal().string();
  if (options.model.empty())
    fail<UsageError>("which model? For example: warpstep train cifar10cnn --data DIR");
  if (options.data.empty())
    fail<UsageError>(
        "which data? Give a folder with --data; `warpstep data make DIR` creates a small one");
  if (options.epochs == 0 && options.steps == 0)
    fail<UsageError>("the run has no end: give --epochs N or --steps N");
  if (request.check_numerics && (options.profile == "spans" || options.profile == "deep"))
    fail<UsageError>(
        "--profile {} does not go with --check-numerics, which changes the times of steps; use "
        "--profile steps",
        options.profile);
  if (request.check_numerics && options.shard_optimizer == "on")
    fail<UsageError>(
        "--check-numerics does not go with --shard-optimizer on: it reads the moments of all "
        "weights");
  options.check_numerics = request.check_numerics;
  std::error_code error;
  if (fs::equivalent(options.out, options.data, error))
    fail<UsageError>("--out {} is the folder of the data; choose another", options.out);
  return options;
}

bool leads(const RunOptions& options) {  // and so has the run's files
  return options.world().rank == 0;
}

// Null without --tensorboard.
std::unique_ptr<TensorBoard> open_tensorboard(const Job& job, RunDirectory& run,
                                              const Progress& progress) {
  if (!job.options.tensorboard) return nullptr;
  auto board = std::make_unique<TensorBoard>(TensorBoardOptions{.run = run.path(),
                                                                .steps_done = progress.step,
                                                                .gpus = gpu_of(*job.device.backend),
                                                                .leads = leads(job.options)});
  if (!leads(job.options)) return board;
  run.set_log([to = board.get()](const Json& record) { to->add(record); });
  say("curves: tensorboard --logdir {}\n", shell_word((run.path() / "tensorboard").string()));
  return board;
}

// The observers of a run and its files.
struct Observers {
  RunDirectory& run;
  BestCheckpoint& best;
  Totals& totals;
  BadSampleLog& bad;
  Profiling& profiling;
  StepExchanges& exchanges;
};

std::unique_ptr<Runner> runner_of(const RunOptions& options, bool check_numerics,
                                  Program& program) {
  if (check_numerics) return numerics_runner(program);
  return options.no_graph ? eager_runner(program) : graph_runner(program);
}

// Where a run continues whose data turned out to be broken.
std::string after_data_error(const fs::path& run) {
  const std::vector<fs::path> saved = checkpoints(run);
  if (saved.empty()) return "; no checkpoint was saved before";
  return fmt::format("; the last checkpoint saved is {}; continue with: warpstep train --resume {}",
                     saved.back().string(), shell_word(run.string()));
}

// The last checkpoint of a diverged run, and how to find the cause.
std::string after_divergence(const fs::path& run, bool check_numerics) {
  const std::vector<fs::path> saved = checkpoints(run);
  std::string last = saved.empty()
                         ? "; no checkpoint was saved before"
                         : fmt::format("; the last checkpoint saved is {}", saved.back().string());
  if (check_numerics) return last;
  return last + (saved.empty()
                     ? ". The first call whose result is not finite is named by the same command "
                       "with --overwrite --check-numerics"
                     : fmt::format(". The first call whose result is not finite is named by: "
                                   "warpstep train --resume {} --check-numerics",
                                   shell_word(run.string())));
}

// So that `warpstep runs` tells a run that diverged, or whose data is broken, from one that was
// killed. By the rank that knows of it; `of_job` is rank 0's directory, where it can be reached.
void note_failure(RunDirectory& run, const fs::path& of_job, const char* outcome,
                  const Progress& progress, const char* message) try {
  const Json summary{{"outcome", outcome},
                     {"epochs", progress.next.epoch},
                     {"steps", progress.step},
                     {"error", utf8(message)}};
  run.write_summary(summary);
  std::error_code none;
  if (of_job != run.path() && fs::exists(of_job / "config.json", none)) {
    Json marked = summary;
    if (std::string started = started_in(of_job / "config.json"); !started.empty())
      marked[started_key] = std::move(started);
    write_atomically(of_job / "summary.json", printed(marked, 2) + "\n");
  }
} catch (const Error&) {  // the failure is what the user must hear of
}

std::string after_rank_error(const fs::path& run) {
  const std::vector<fs::path> saved = checkpoints(run);
  if (saved.empty()) return "; no checkpoint was saved before";
  return fmt::format("; the last checkpoint saved is {}; start the job again with --resume {}",
                     saved.back().string(), shell_word(run.string()));
}

// Trains to the end or until a signal, saving on the way; returns the last checkpoint.
fs::path run_job(Job& job, bool check_numerics, const Observers& observers, const Json& config,
                 const std::atomic<bool>& stop, Progress& progress, Outcome& outcome) {
  const Optimizer::Kind optimizer = optimizer_of(job.options).kind;
  ProgressLine line(job.options.epochs, job.run_steps, job.items(), job.throughput);
  const bool loaded = config.contains("weights");
  if (loaded) line.begins_with_loaded_weights();
  if (job.options.loss == "nll") line.expects_log_probabilities_of(job.options.model);
  RunDirectory& run = observers.run;
  const fs::path saved_in = run_of_job(run.path(), job.options.world());
  fs::path last_checkpoint;
  const auto save = [&](const Progress& at) {
    last_checkpoint = checkpoint_path(run.path(), at.step);
    Communicator* const ranks = job.options.communicator.get();
    if (!leads(job.options)) {  // rank 0 writes it, and the wait for that is none of a step's
      meet(*ranks);
      return last_checkpoint;
    }
    {
      static const record::Name name{"fsync"};
      const record::PhasePart time(name);
      run.sync_metrics();
      observers.bad.sync();
    }
    save_checkpoint(last_checkpoint, job.step->store(), optimizer, at,
                    {job.options.model, printed(config)});
    if (job.options.keep_best) observers.best.offer(last_checkpoint, at);
    {
      static const record::Name name{"remove"};
      const record::PhasePart time(name);
      run.prune_checkpoints(job.options.keep_checkpoints, observers.best.waiting());
    }
    if (ranks) meet(*ranks);
    return last_checkpoint;
  };
  const auto runner = runner_of(job.options, check_numerics, *job.step);
  const auto evaluation_runner = check_numerics ? numerics_runner(*job.evaluation) : nullptr;
  Trainer trainer(
      {*job.step,
       job.training.batches(),
       job.evaluation.get(),
       &job.test.batches(),
       runner.get(),
       {&observers.totals, &run, &line, &observers.bad, &observers.profiling, &observers.exchanges},
       save,
       evaluation_runner.get(),
       job.options.communicator.get()},
      {.epochs = job.options.epochs,
       .max_steps = job.options.steps,
       .limit_batches = job.options.limit_batches,
       .evaluate_every_steps = job.options.eval_every,
       .evaluate_first =
           job.options.eval_first == "on" || (job.options.eval_first == "auto" && loaded),
       .save_every_steps = job.options.checkpoint_every,
       .measure_every_steps = job.options.stats_every,
       .patience = job.options.patience,
       .min_delta = job.options.min_delta,
       .watch_loss = watches_loss(job.options, job.training.is_text()),
       .steps_per_launch = job.options.steps_per_launch});
  try {
    outcome = trainer.run(progress, stop);
  } catch (const NumericError& error) {
    note_failure(run, saved_in, "diverged", progress, error.what());
    fail<NumericError>("{}{}", error.what(), after_divergence(saved_in, check_numerics));
  } catch (const BrokenData& error) {
    note_failure(run, saved_in, "broken data", progress, error.what());
    fail<DataError>("{}{}", error.what(), after_data_error(saved_in));
  } catch (const DataError& error) {
    fail<DataError>("{}{}", error.what(), after_data_error(saved_in));
  } catch (const PeerError& error) {
    fail<PeerError>("{}{}", error.what(), after_rank_error(saved_in));
  } catch (const RankError& error) {
    fail<RankError>("{}{}", error.what(), after_rank_error(saved_in));
  } catch (const Error& error) {  // of a user's own op
    if (typeid(error) != typeid(Error)) throw;
    fail<Error>("{}{}", error.what(), after_data_error(saved_in));
  }
  return last_checkpoint;
}

// Saves everything before printing any of it.
void conclude(const Job& job, Profiling& profiling, RunDirectory& run, BadSampleLog& bad,
              const Totals& totals, Json& summary) {
  bad.close();
  run.write_summary(summary);
  const Json roofline = roofline_json(*job.step, profiling.end_windows(job.device.backend),
                                      job.options.precision, totals.step_seconds());
  if (!roofline.empty()) {
    summary["roofline"] = roofline;
    run.write_summary(summary);
  }
  if (leads(job.options)) run.write_curves(job.options.model, job.options.data);
  print_summary(summary, job.options, run.path());
  print_result("  {}\n", diagnosis(job.training));
  profiling.finish(job.training, job.test, job.device.backend, summary["loading"]);
}

// What this process begins with.
struct Start {
  RunLock lock;  // of the run: at first only of one that it continues
  std::optional<Resumed> resumed;
  RunOptions options;
};

// Refuses before doing anything. `ranks`: of a data-parallel job; null outside of one.
Start begin(const Parser& parser, const TrainRequest& request,
            const std::shared_ptr<Communicator>& ranks) {
  Start start;
  const bool first = !ranks || ranks->world().rank == 0;
  if (!request.resume.empty()) {
    if (first && fs::is_directory(run_of(request.resume)))
      start.lock = RunLock(run_of(request.resume));  // the files read next must not change
    start.resumed = find_resumed(request.resume, parser, request.options);
    if (first) require_run_directory(*start.resumed);
  }
  start.options = resolve_options(parser, request, start.resumed);
  check_start_weights(request.weights, start.resumed.has_value());
  adopt_config_beside(request.weights, start.options);
  check_profile_options(start.options);
  if (ranks) take_place(ranks, start.options);
  share_batch(start.options);
  if (start.resumed)
    continue_in_world(*start.resumed->config, start.options, start.resumed->options);
  if (request.repeat > 1 && ranks)
    fail<UsageError>("--repeat {} does not go with several ranks", request.repeat);
  if (request.repeat > 1 && start.resumed)
    fail<UsageError>("--repeat {} does not go with --resume, which continues one run",
                     request.repeat);
  return start;
}

// The files that a run writes.
struct RunFiles {
  RunDirectory run;
  BestCheckpoint best;
};

// Of a run that continues from `resumed`; null: of a new one. Rank 0 makes the run directory, in
// which the other ranks have theirs.
RunFiles open_files(Job& job, const Progress* resumed, bool overwrite, RunLock& lock) {
  Communicator* const ranks = job.options.communicator.get();
  std::string& out = job.options.out;
  if (!leads(job.options)) {
    meet(*ranks);  // rank 0 has made the directory
    out = directory_of(out, ranks->world());
    return {resumed && fs::is_directory(out) ? RunDirectory::reopen(out, *resumed)
                                             : RunDirectory::create(out, true),
            BestCheckpoint(out, job.items())};
  }
  if (!resumed) lock = lock_new_run(out);
  RunFiles files{
      resumed ? RunDirectory::reopen(out, *resumed) : RunDirectory::create(out, overwrite),
      BestCheckpoint(out, job.items())};
  if (ranks) meet(*ranks);
  if (!resumed) return files;
  files.best = BestCheckpoint::reopen(out, resumed->step, job.options.keep_best, job.items());
  files.run.prune_checkpoints(job.options.keep_checkpoints, files.best.waiting());
  return files;
}

// `weights`: those that the run began with.
Json write_config(const Job& job, const Json& weights, const std::string& tokenizer,
                  const RunDirectory& run) {
  Json config = config_json(job.options, job.device, job.data, job.training, job.test);
  if (job.measured) config["measured"] = {"mean", "std"};
  if (!weights.is_null()) config["weights"] = weights;
  run.write_config(config);
  if (!tokenizer.empty()) run.write_tokenizer(tokenizer);
  return config;
}

// A run directory among the images would be taken for a class, or for files that are no images.
void require_outside(const RunOptions& options, const std::string& images) {
  const std::string out = options.out.empty() ? DefaultOut::parent : options.out;
  if (data::is_inside(out, images))
    fail<UsageError>("--out {}: is inside {}, whose files are the data; choose another folder", out,
                     images);
}

void require_outside_of_data(const Job& job) {
  if (job.training.is_text()) return;
  for (const data::Dataset* set : {job.training.dataset.get(), job.test.dataset.get()})
    if (set != nullptr && fs::is_directory(set->path())) require_outside(job.options, set->path());
}

// Without --out, all ranks get one that rank 0 makes: once the data are known, which it could
// change, and once a signal no longer ends the process.
std::unique_ptr<DefaultOut> make_default_out(RunOptions& options) {
  if (!options.out.empty()) return nullptr;
  std::unique_ptr<DefaultOut> made;
  if (leads(options)) {
    made = std::make_unique<DefaultOut>(options.model);
    options.out = made->path();
  }
  if (options.communicator) options.out = options.communicator->gather(options.out).front();
  return made;
}

// What became of a run.
struct Ending {
  Outcome outcome = Outcome::finished;
  fs::path checkpoint;  // the last
  Progress progress;
};

Json summary_of(const Job& job, const Ending& ending, const Totals& totals, const BadSampleLog& bad,
                const Json& machine, const RunFiles& files) {
  const fs::path& run = files.run.path();
  Json summary = summary_json(totals, job.throughput, ending.progress, ending.outcome,
                              files.run.last_epoch(), ending.checkpoint, run);
  if (job.options.keep_best && files.best.best()) summary["best"] = files.best.json();
  if (totals.steps > 0) {
    summary["machine"] = machine_json(machine);
    summary["machine"]["pinned"] = job.device.pinning;
  }
  summary["bad_rows"] = bad.rows();
  summary["loading"] = loading_json(job.training);
  if (totals.steps == 0)  // keep the measurements of an earlier process
    if (const Json earlier = earlier_summary(run); earlier.contains("loading"))
      summary["loading"] = earlier.at("loading");
  if (ending.outcome == Outcome::stopped_early)
    summary["stopped_early"] = early_json(*ending.progress.watch, job.options.min_delta);
  return summary;
}

int train_here(const Parser& parser, const TrainRequest& request, SignalThread& signals,
               std::atomic<bool>& stop_requested, const std::shared_ptr<Communicator>& ranks) {
  record::Phase starting(start_name, 0, record::process_start_ns());
  Start start = begin(parser, request, ranks);
  if (request.repeat > 1) {
    signals.stop_with(stop_requested);
    if (data::has_unsplit_images(start.options.data))
      require_outside(start.options, start.options.data);
    const std::unique_ptr<DefaultOut> default_out = make_default_out(start.options);
    return train_repeatedly(request.repeat, start.options.out, stop_requested);
  }
  Profiling profiling(start.options);
  starting.end();
  const std::optional<Resumed>& resumed = start.resumed;
  Job job = prepare(std::move(start.options), resumed, request.allow_changed_data);
  if (!resumed) require_outside_of_data(job);
  record::Phase setting_up(set_up_name);
  Json weights = load_start_weights(request.weights, job.options.model, job.step->store());
  Ending ending;
  Progress& progress = ending.progress;
  std::string why_done;
  if (resumed) {
    weights = resumed->config->value("weights", Json());
    progress =
        load_resumed(*resumed, job.options, job.training, job.epoch_steps, job.step->store());
    StepState state = job.step->store().step_state();
    state.seed = job.options.seed;  // at the end of an epoch it may be another than the file's
    job.step->store().set_step_state(state);
    why_done = nothing_left(*resumed, job.options, progress);
  }
  // Rank 0's, which alone has all files; also by ranks that do not resume, which require_alike()
  // names.
  if (ranks) why_done = ranks->gather(why_done).front();
  if (!why_done.empty()) {
    say("{}\n", why_done);
    return done;
  }
  if (resumed) require_end_ahead(*resumed, job.options, progress);
  if (resumed) say("{}\n", continuation_text(*resumed, job.options, progress));
  signals.stop_with(stop_requested);
  const std::unique_ptr<DefaultOut> default_out = make_default_out(job.options);
  if (ranks) require_alike(*ranks, job, progress);  // and all have read the checkpoint
  std::string tokenizer;  // read first: with --overwrite the data may be where a run was
  if (job.training.is_text() && job.training.text->tokenizer)
    tokenizer = read_file(*job.training.text->tokenizer);
  RunFiles files = open_files(job, resumed ? &progress : nullptr, request.overwrite, start.lock);
  RunDirectory& run = files.run;
  run.set_items(job.items());
  run.set_log_every(job.options.log_every);
  const Json config = write_config(job, weights, tokenizer, run);
  announce(job, useless_options(parser, job.options, job.training.is_text(),
                                job.device.backend->name(), progress.step));
  if (request.check_numerics) say("{}\n", slow_check);
  const Json machine = machine_record(job.device.allowed, gpu_of(*job.device.backend));
  job.throughput = throughput_of(job);
  job.training.loader->seek(progress.next);
  start_feeder(job.training, *job.step, job.options.steps_per_launch);
  start_feeder(job.test, *job.evaluation);
  if (progress.step < job.run_steps) {
    profiling.start(run.path(), config, machine, *job.step, progress, job.epoch_steps);
    profiling.describe(job.training, job.test);
  }
  const auto tensorboard = open_tensorboard(job, run, progress);
  Totals totals(job.items());
  BadSampleLog bad(run.path() / "bad_samples.jsonl", job.training, job.test);
  StepExchanges exchanges(ranks.get());
  setting_up.end();
  ending.checkpoint =
      run_job(job, request.check_numerics, {run, files.best, totals, bad, profiling, exchanges},
              config, stop_requested, progress, ending.outcome);
  profiling.trained();
  if (ending.checkpoint.empty() && resumed) ending.checkpoint = resumed->checkpoint;
  Json summary = summary_of(job, ending, totals, bad, machine, files);
  conclude(job, profiling, run, bad, totals, summary);
  if (ranks) {
    const std::uint64_t bad_rows = report_ranks(
        *ranks, job.options.out,
        {.step_seconds = totals.step_seconds(),
         .exchange_seconds = exchanges.seconds() / std::max(1.0, static_cast<double>(totals.steps)),
         .on_device = job.device.backend->steps_in_flight() > 0,
         .has_spans = profiling.has_windows(),
         .bad_rows = bad.rows()});
    if (ranks->world().rank == 0 && totals.steps > 0 && bad_rows > bad.rows()) {
      summary["bad_rows"] = bad_rows;
      run.write_summary(summary);
    }
  }
  if (ending.outcome != Outcome::interrupted) return done;
  say("interrupted; continue with: warpstep train --resume {}\n", shell_word(job.options.out));
  return interrupted;
}

int train(const Parser& parser, const TrainRequest& request) {
  static std::atomic<bool> stop_requested{false};  // outlives the thread that sets it
  // Before any other thread, and to the end of the process: a signal after everything is saved must
  // not change the exit code to that of a killed run.
  static SignalThread& signals = *new SignalThread;
  const std::shared_ptr<Communicator> ranks = join_job(request.job, stop_requested);
  if (!ranks) return train_here(parser, request, signals, stop_requested, ranks);
  try {
    get_acquainted(*ranks);
    return train_here(parser, request, signals, stop_requested, ranks);
  } catch (const PeerError& error) {
    end_job(*ranks, error.what(), failed, true);
  } catch (const UsageError& error) {
    end_job(*ranks, error.what(), usage);
  } catch (const std::bad_alloc&) {
    end_job(*ranks, "out of memory; a smaller --batch needs less", failed);
  } catch (...) {
    end_job(*ranks, caught_text(), failed);
  }
}

Run declare_train(Parser parser) {
  auto request = std::make_shared<TrainRequest>();
  declare_run_options(parser, request->options, train_only);
  const char* const group = "Run";
  parser.add({.name = "--overwrite",
              .variable = &request->overwrite,
              .help = "replace an earlier run in --out",
              .group = group});
  parser.add({.name = "--resume",
              .variable = &request->resume,
              .help = "continue the run in this directory, or from one of its checkpoints; options "
                      "given with it replace those of the run",
              .type = "RUN",
              .group = group});
  parser.add({.name = "--allow-changed-data",
              .variable = &request->allow_changed_data,
              .help = "with --resume: continue even if the data have changed since the run began",
              .group = group});
  declare_start_weights(parser, request->weights, group);
  parser.add({.name = "--repeat",
              .variable = &request->repeat,
              .help = "train this many times with the same seed, into OUT/1, OUT/2, ..., for "
                      "warpstep compare",
              .check = whole_number(1, 1000),
              .group = group});
  parser.add(
      {.name = "--dist",
       .variable = &request->job.dist,
       .help =
           "ranks of a data-parallel job, each with batches of its own: auto (those that mpirun, "
           "srun or torchrun started), mpi, env (by RANK, WORLD_SIZE and MASTER_ADDR), none; "
           "docs/distributed.md",
       .check = one_of({"auto", "mpi", "env", "none"}),
       .group = group});
  parser.add({.name = "--dist-timeout",
              .variable = &request->job.timeout_seconds,
              .help = "seconds that a rank waits for another before the job ends",
              .check = whole_number(1, 86'400),
              .group = group});
  parser.add({.name = "--check-numerics",
              .variable = &request->check_numerics,
              .help = check_numerics_help,
              .group = group});
  parser.footer(transforms_help() +
                "\nExample:\n  warpstep train cifar10cnn --data cifar10 --epochs 8 --lr 1e-4 "
                "--out runs/first");
  return [parser, request] { return train(parser, *request); };
}

const Command train_command("train", "train a model", declare_train);

}  // namespace
}  // namespace warpstep::tools
