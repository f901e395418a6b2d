// The options of a run: as typed, as kept in config.json, and as passed to the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/passes/compile.h"
#include "engine/run/backend.h"

namespace CLI {
class App;
}

namespace warpstep::tools {

// Field names are the options' long names with _ for -.
struct RunOptions {
  std::string model;
  std::string data;
  std::string device = "auto";
  std::string precision = "fp32";
  std::int64_t batch = 128;
  std::uint64_t epochs = 1;
  std::uint64_t steps = 0;
  std::uint64_t limit_batches = 0;
  std::string optimizer = "adam";
  double lr = -1;  // below 0: the model's own
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;
  std::vector<double> betas{0.9, 0.999};
  double epsilon = 1e-8;
  double trust = 0.001;
  std::string loss = "cross_entropy";
  double label_smoothing = 0;
  std::vector<double> class_weights;
  double clip_norm = 0;
  std::int64_t accumulate = 1;
  double ema = 0;
  std::string lr_schedule = "constant";
  std::int64_t warmup_steps = 0;
  std::int64_t lr_step_epochs = 30;
  double lr_gamma = 0.1;
  int workers = 0;
  int prefetch = 3;
  std::string tier = "auto";
  std::string transforms = "auto";       // auto: the model's own
  std::string eval_transforms = "auto";  // auto: those of training without chance
  std::string normalize = "device";
  std::string shuffle = "full";
  std::string data_errors = "fail";
  double max_bad = 0.001;
  std::string memory = "none";
  std::string data_io = "mmap";
  int threads = 0;
  std::uint64_t seed = 0;
  bool exact_math = false;
  bool deterministic = false;
  bool autotune = false;
  bool no_graph = false;
  std::int64_t workspace_mib = 256;
  std::string plan_cache = "auto";
  std::vector<std::string> no_fuse;
  std::vector<std::string> recompute;
  std::vector<double> mean, std;  // empty: measured on the training images
  std::string profile = "steps";
  std::string profile_schedule = "skip_first=5,wait=0,warmup=2,active=20,repeat=1,per=run";
  std::string profile_raw;
  std::string profile_rank;
  bool profile_counters = false;
  std::uint64_t log_every = 10;
  std::uint64_t checkpoint_every = 0;
  std::uint64_t keep_checkpoints = 2;
  bool keep_best = true;
  std::string out;
};
void to_json(nlohmann::ordered_json& json, const RunOptions& options);

// Checks of an option's text. The usual bound of a count leaves room for arithmetic.
using TextCheck = std::function<std::string(const std::string&)>;  // what is wrong with it
TextCheck whole_number(std::uint64_t least = 0, std::uint64_t most = 1'000'000'000'000);
TextCheck finite_number();
TextCheck number_from_zero();  // finite

// What the options say of the backend; cuda:N is left in the device's name.
BackendOptions backend_options(const RunOptions& options);

// Declares options on a subcommand's parser: all that config.json has, or a part of them.
void declare_run_options(CLI::App& app, RunOptions& options);
void declare_model_options(CLI::App& app,
                           RunOptions& options);  // model, device, precision, batch, fusions
void declare_training_options(CLI::App& app,
                              RunOptions& options);             // optimiser, schedule, output
void declare_data_options(CLI::App& app, RunOptions& options);  // loader, transforms, failures

// `total_steps` and `steps_per_epoch` as the data give them; the schedule counts updates.
Schedule schedule_of(const RunOptions& options, std::int64_t total_steps,
                     std::int64_t steps_per_epoch);

}  // namespace warpstep::tools
