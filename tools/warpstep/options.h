// The options of a run. option_table.cpp has a row per option: the command line, TOML
// files, config.json, --resume and help all follow from it. options_values.cpp converts the values
// to types of the engine and the loader.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/load/token_batches.h"
#include "engine/core/cpus.h"
#include "engine/dist/communicator.h"
#include "engine/graph/layers.h"
#include "engine/passes/compile.h"
#include "engine/passes/update.h"
#include "engine/run/backend.h"
#include "engine/run/trainer.h"
#include "profiler/sources/sampler_proc.h"
#include "tools/warpstep/command.h"
#include "tools/warpstep/json.h"

namespace warpstep::tools {

// Of --plugin FILE: loads the library, so that the values after it may name what it adds.
Check loaded_plugin();

// Field names are the options' names with _ for -.
struct RunOptions {
  std::string plugin;
  std::string model;
  std::string data;
  std::string device = "auto";
  std::string precision = "fp32";
  std::vector<std::string> model_option;
  std::int64_t batch = 128;
  std::int64_t global_batch = 0;  // above 0: of all ranks, and `batch` is a rank's share
  std::uint64_t epochs = 1;
  std::uint64_t steps = 0;
  std::uint64_t limit_batches = 0;
  std::string optimizer = "adam";
  double lr = -1;  // below 0: the model's default
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;
  std::string decay = "all";
  std::vector<double> betas{0.9, 0.999};
  double epsilon = 1e-8;
  double rms_alpha = 0.99;
  double trust = 0.001;
  std::string moments = "fp32";
  std::string loss = "cross_entropy";
  double label_smoothing = 0;
  std::vector<double> class_weights;
  double clip_norm = 0;
  std::int64_t accumulate = 1;
  double ema = 0;
  bool sync_bn = false;
  std::string shard_optimizer = "auto";
  std::string lr_schedule = "constant";
  std::int64_t warmup_steps = 0;
  std::int64_t lr_step_epochs = 30;
  double lr_gamma = 0.1;
  double lr_final = 0;
  std::uint64_t eval_every = 0;
  std::string eval_first = "auto";
  std::uint64_t patience = 0;
  double min_delta = 0;
  std::string monitor = "auto";
  int workers = 0;  // 0: auto
  int prefetch = 3;
  std::string tier = "auto";
  std::string transforms = "auto";       // auto: the model's
  std::string eval_transforms = "auto";  // auto: those of training without random ones
  std::string normalize = "device";
  std::string shuffle = "full";
  std::int64_t sequence = 0;  // 0: the model's context
  std::string windows = "shuffled";
  double val_split = -1;  // below 0: the data have a validation part of their own
  std::uint64_t val_seed = 0;
  std::string alpha = "drop";
  std::string data_errors = "fail";
  double max_bad = 0.001;
  std::string memory = "none";
  std::string data_io = "mmap";
  int threads = 0;
  std::string pin_cpus = "none";
  std::uint64_t seed = 0;
  bool exact_math = false;
  bool deterministic = false;
  bool autotune = false;
  bool no_graph = false;
  std::uint64_t steps_per_launch = 1;
  std::int64_t workspace_mib = 256;
  std::string plan_cache = "auto";
  std::vector<std::string> no_fuse;
  std::vector<std::string> recompute;
  std::vector<double> mean, std;  // empty: measured on the training images
  std::string profile = "steps";
  std::string profile_schedule = "skip_first=5,wait=0,warmup=2,active=3s,repeat=1,per=run";
  std::string profile_raw;
  std::string profile_rank;
  bool profile_counters = false;
  std::uint64_t log_every = 10;
  std::uint64_t stats_every = 0;
  std::uint64_t checkpoint_every = 0;
  std::uint64_t keep_checkpoints = 2;
  bool keep_best = true;
  bool tensorboard = false;
  std::string out;

  bool check_numerics = false;  // of train, for its profile; no option of the table
  // Not an option: the ranks of a data-parallel job (ranks_of_job.h); null outside of one.
  std::shared_ptr<Communicator> communicator;
  World world() const { return communicator ? communicator->world() : World{}; }
  std::vector<profiler::Sibling> siblings;  // of them, those on CPUs of this one
  // Not an option either: this rank's part of the cores that ranks share; 0: it shares none.
  int cores = 0;
  CpuShare pinned_part;  // of CPUs to which ranks would pin the same threads
  int kernel_threads() const { return threads > 0 ? threads : cores; }  // 0: all cores
  int loader_threads() const;                                           // 0: auto
};

// Subcommands that have options of the table.
enum Commands : unsigned {
  train_only = 1,
  eval_only = 2,
  explain_only = 4,
  sample_only = 8,
  try_only = 16
};

// Declares the options of the table that a subcommand has.
void declare_run_options(const Parser& parser, RunOptions& options, Commands command);
// For the footer of help: the transforms that --transforms accepts.
std::string transforms_help();

// When --resume may change an option: always; only at the end of an epoch, because the rest of a
// begun epoch would draw other batches; never; or it may not even be given.
enum class Resume { always, at_epoch_end, never, refused };

// An option whose value differs between two sets of options.
struct OptionChange {
  std::string option;  // "--batch 16", or "model mlp"
  std::string before;  // "32"
  std::string name;    // "--batch"
  Resume resume;
};
std::vector<OptionChange> changes(const RunOptions& before, const RunOptions& now);

// A row of the table, for tests of the documentation.
struct OptionName {
  std::string name;  // "--batch", or "model"
  std::string key;   // in config.json: "batch"
};
std::vector<OptionName> option_names();

// The options that were given to `parser`, as arguments: {"--workers", "2", "--no-nesterov"}.
std::vector<std::string> as_typed(const Parser& parser, const RunOptions& typed);

// config.json keeps all options, by their keys.
void to_json(Json& json, const RunOptions& options);

// The options in `config`, the configuration of a checkpoint, checked like typed ones. An option
// given to `parser`, with its value in `typed`, replaces a stored one that is invalid. DataError
// names `file`, the key and the fix.
RunOptions stored_options(const Json& config, const std::string& file, const Parser& parser,
                          const RunOptions& typed);

// The --model-options of a run, but for those of the same name that are typed.
std::vector<std::string> merged_settings(std::vector<std::string> stored,
                                         const std::vector<std::string>& typed);

// `stored`, replaced by each option that was given to `parser`; of --model-option only the settings
// that were. UsageError for an option that is neither in the table nor in `handled`, those that
// the caller itself applies.
RunOptions merged(const Parser& parser, const RunOptions& typed, RunOptions stored,
                  std::initializer_list<std::string_view> handled);

// The learning rate of a run without --lr; below 0: no model is called that, as one of a plugin
// that is not loaded.
double default_lr(std::string_view model);

// Sets the folder of the data: as in the run, or --data. A relative path is resolved as the run
// did. DataError asks for --data.
void locate_data(const Json& config, const std::string& file, const Parser& parser,
                 RunOptions& options);
std::string data_folder(const RunOptions& options);  // the absolute path of --data

// --steps without --epochs ends the run at that step in any epoch. With --resume, giving one of the
// two replaces both of the run's; --steps 0 removes only that limit.
void settle_length(const Parser& parser, bool resumed, RunOptions& options);
// With --resume: the run's own --lr-final goes with its cosine alone, and is dropped if the
// schedule that is given has none. UsageError if it is above the --lr that is given.
void settle_final_rate(const Parser& parser, RunOptions& options);
// Of an epoch of data of so many batches: --limit-batches may end it earlier.
std::uint64_t steps_of_epoch(const RunOptions& options, std::uint64_t batches);
// The step at which a run ends that continues from `at` with epochs of so many steps; those before
// may have had another number, with another --batch or --limit-batches.
std::uint64_t total_steps(const RunOptions& options, std::uint64_t steps_of_epoch,
                          const Progress& at = {});

// Whether --patience watches the validation loss; else the accuracy.
bool watches_loss(const RunOptions& options, bool is_text);

// Given options that these others, or the steps that the run has done, make useless, one sentence
// each: "--rms-alpha has no effect without --optimizer rmsprop".
std::vector<std::string> useless_options(const Parser& parser, const RunOptions& options,
                                         bool is_text, std::string_view backend,
                                         std::uint64_t steps_done);

// Values of the engine; all throw UsageError for options that do not go together.
// Of this user, for what a machine is measured for once: by --plan-cache; empty: none.
std::filesystem::path cache_folder(const RunOptions& options);
BackendOptions backend_options(const RunOptions& options);  // but cuda:N, which open_backend reads
Optimizer optimizer_of(const RunOptions& options);
// "sgd, lr 0.1 (one-cycle), momentum 0.9 (nesterov), weight decay 0.0005, moments in bf16".
std::string update_text(const RunOptions& options);
// Those of --optimizer, --lr, --lr-schedule and --batch that are at their defaults, of which
// `model_lr` is one: "--optimizer, --lr".
std::string defaults_text(const RunOptions& options, double model_lr);
UpdateOptions update_options(const RunOptions& options);
// Whether ranks share out the optimiser's moments, on a backend of this name and in a job of
// `ranks`.
bool shards_optimizer(const RunOptions& options, std::string_view backend, std::int64_t ranks);
LossOptions loss_options(const RunOptions& options, std::int64_t classes);
// Of evaluations of text: the mean cross-entropy, whose exponential is the perplexity.
LossOptions plain_loss(LossOptions of_training);
// `total_steps` and `steps_of_epoch` count batches; the schedule counts updates. `at`: as for
// total_steps(); a step schedule counts its epochs as they were.
Schedule schedule_of(const RunOptions& options, std::int64_t total_steps,
                     std::int64_t steps_of_epoch, const Progress& at = {});

// Values of the loader. UsageError lists the valid ones.
struct ShuffleChoice {
  data::Shuffle shuffle = data::Shuffle::full;
  std::uint64_t window = 8192;  // samples
  bool operator==(const ShuffleChoice&) const = default;
};
ShuffleChoice parse_shuffle(const std::string& text);         // full, none, window, window:4096
data::Windows parse_windows(const std::string& text);         // shuffled, random, sequential
data::DataErrors parse_data_errors(const std::string& text);  // fail, skip, mask
data::Alpha parse_alpha(const std::string& text);             // drop, white, black, refuse
std::uint64_t parse_bytes(const std::string& text);           // none (0), 1000000, 512MiB, 2GiB
void check_device(const std::string& text);                   // auto, cpu, ref, cuda, cuda:1
void check_transforms(const std::string& text);               // auto, none or a recipe
std::string training_transforms(const RunOptions& options);   // the recipe, with auto resolved

}  // namespace warpstep::tools
