#include "tools/warpstep/option_table.h"

#include <fmt/ranges.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "data/load/plugin.h"
#include "engine/core/error.h"
#include "engine/run/trainer.h"
#include "models/plugin.h"
#include "profiler/recorder/rank_clock.h"
#include "profiler/recorder/recorder.h"
#include "tools/warpstep/pinning.h"

namespace warpstep::tools {
namespace {

// Epochs times steps per epoch fits into 64 bits.
constexpr std::uint64_t most_epochs = 1'000'000'000;

// `try` has what a step can depend on, not what a run does between its steps.
constexpr unsigned of_run = train_only;
constexpr unsigned in_train = of_run | try_only;
constexpr unsigned with_data = in_train | eval_only;
constexpr unsigned with_step = in_train | explain_only;
constexpr unsigned in_all = in_train | eval_only | explain_only;
constexpr unsigned and_sample = in_all | sample_only;

std::string shuffle_meaning(const RunOptions& options) {
  const ShuffleChoice choice = parse_shuffle(options.shuffle);
  return choice.shuffle == data::Shuffle::window ? fmt::format("window:{}", choice.window)
                                                 : options.shuffle;
}

std::string model_option_meaning(const RunOptions& options) try {
  return models::resolve_settings(models::find(options.model), options.model_option).text();
} catch (const UsageError&) {  // of another model; refused elsewhere
  return fmt::format("{}", fmt::join(options.model_option, " "));
}

// Means and deviations of 0 to 255 are the commonest mistake.
Check of_pixels(Check check) {
  const auto problem = check.problem;
  check.problem = [problem](const std::string& text) {
    if (const std::string wrong = problem(text); !wrong.empty()) return wrong;
    const double value = std::strtod(text.c_str(), nullptr);
    return value <= 1
               ? std::string()
               : fmt::format("'{}' is above 1; give that of x/255: {:.3g}", text, value / 255);
  };
  return check;
}

// A row is {{name, help, check, ...}, field, subcommands, rule for --resume, meaning}. A flag also
// has the name that takes it back: --no-NAME.

OptionGroup data_group() {
  using O = RunOptions;
  return {
      "Data",
      {{{.name = "--plugin",
         .help = "library with models, formats and transforms of your own, see docs/plugins.md",
         .check = loaded_plugin(),
         .type = "FILE"},
        &O::plugin,
        and_sample},
       {{.name = "model",
         .help = "name of a model: cifar10cnn, resnet50, ...",
         .check = parsed_by([](const std::string& text) { models::find(text); })},
        &O::model,
        of_run,
        Resume::never},
       {{.name = "--data",
         .help = "folder of the images (docs/data.md), or folder or file of the tokens "
                 "(docs/tokens.md)"},
        &O::data,
        with_data},
       {{.name = "--limit-batches",
         .help = "end each epoch and evaluation after N batches; 0: use all",
         .check = whole_number()},
        &O::limit_batches,
        with_data},
       {{.name = "--transforms",
         .help = "transforms of training images in order, separated by commas; none; or auto: the "
                 "model's; listed below",
         .check = parsed_by(check_transforms)},
        &O::transforms,
        with_data,
        Resume::at_epoch_end,
        training_transforms},
       {{.name = "--eval-transforms",
         .help = "transforms of test images; auto: those of training without random ones",
         .check = parsed_by(check_transforms)},
        &O::eval_transforms,
        with_data},
       {{.name = "--mean",
         .help = "mean of x/255 per channel; if not given, train measures it and eval uses the "
                 "run's",
         .check = of_pixels(finite_number()),
         .type = "X ...",
         .least = 1,
         .most = 4},
        &O::mean,
        with_data},
       {{.name = "--std",
         .help = "standard deviation of x/255 per channel; see --mean",
         .check = of_pixels(number_above_zero()),
         .type = "X ...",
         .least = 1,
         .most = 4},
        &O::std,
        with_data},
       {{.name = "--shuffle",
         .help = "order of training samples: full, none, or window[:SAMPLES], which reads "
                 "neighbours together, for sets larger than memory",
         .check = parsed_by(parse_shuffle)},
        &O::shuffle,
        in_train,
        Resume::at_epoch_end,
        shuffle_meaning},
       {{.name = "--sequence",
         .help = "text: tokens in a sequence; 0: the model's context",
         .check = in_range(0, 1 << 20)},
        &O::sequence,
        and_sample,
        Resume::at_epoch_end},
       {{.name = "--windows",
         .help = "text: where the sequences of an epoch begin: shuffled (one after the other from "
                 "an offset, in random order), random (anywhere) or sequential",
         .check = parsed_by(parse_windows)},
        &O::windows,
        in_train,
        Resume::at_epoch_end},
       {{.name = "--val-split",
         .help =
             "share of the training data to validate on where the data have no validation part: "
             "for text the end of the tokens, for images some of each class, chosen by --val-seed",
         .check = number_up_to(1, false)},
        &O::val_split,
        with_data,
        Resume::never},  // what was trained on would be validated on
       {{.name = "--val-seed",
         .help = "seed that chooses the images of --val-split; --seed does not change them",
         .check = whole_number(0, UINT64_MAX)},
        &O::val_seed,
        with_data,
        Resume::never},
       {{.name = "--alpha",
         .help = "transparent pixels of PNG files: drop (keep the stored colour), white or black "
                 "(blend with it), or refuse",
         .check = one_of({"drop", "white", "black", "refuse"})},
        &O::alpha,
        with_data,
        Resume::at_epoch_end},
       {{.name = "--data-errors",
         .help = "for a sample that cannot be decoded: fail, skip (use the next good one of its "
                 "batch) or mask (exclude it)",
         .check = one_of({"fail", "skip", "mask"})},
        &O::data_errors,
        with_data},
       {{.name = "--max-bad",
         .help = "largest share of broken samples with skip and mask",
         .check = number_in_range(0, 1)},
        &O::max_bad,
        with_data}}};
}

OptionGroup loader_group() {
  using O = RunOptions;
  return {"Loader",
          {{{.name = "--workers",
             .help = "loader threads; auto: as many as keep the step from waiting",
             .check = in_range(0, 256),
             .type = "N|auto",
             .zero = "auto",
             .initial = "auto"},
            &O::workers,
            with_data},
           {{.name = "--prefetch",
             .help = "batches that the loader keeps ready",
             .check = in_range(2, 64)},
            &O::prefetch,
            with_data},
           {{.name = "--tier",
             .help = "where decoded images are kept: resident (on the device), mapped (in memory), "
                     "decoded (no cache: decode every epoch); the batches are the same",
             .check = one_of({"auto", "resident", "mapped", "decoded"})},
            &O::tier,
            with_data},
           {{.name = "--normalize",
             .help = "where bytes become floats: device (a kernel of the step) or cpu (the loader)",
             .check = one_of({"device", "cpu"})},
            &O::normalize,
            with_data},
           {{.name = "--memory",
             .help = "memory limit for loading, for example 2GiB; none: no limit",
             .check = parsed_by(parse_bytes)},
            &O::memory,
            with_data},
           {{.name = "--data-io",
             .help = "how to read packed files; pread for network mounts",
             .check = one_of({"mmap", "pread"})},
            &O::data_io,
            with_data}}};
}

OptionGroup model_group() {
  using O = RunOptions;
  return {
      "Step",
      {{{.name = "--model-option",
         .help = "a setting of the model, such as heads=12; may be repeated; `warpstep explain "
                 "gpt2` lists them",
         .type = "NAME=VALUE",
         .repeats = true},
        &O::model_option,
        and_sample,
        Resume::never,
        model_option_meaning},
       {{.name = "--batch", .help = "images or sequences per step", .check = in_range(1, 1 << 20)},
        &O::batch,
        in_all,
        Resume::at_epoch_end},
       {{.name = "--global-batch",
         .help =
             "images or sequences per step of all ranks together, in equal shares; 0: --batch of "
             "each rank; docs/distributed.md",
         .check = in_range(0, 1 << 20)},
        &O::global_batch,
        in_train,
        Resume::at_epoch_end},
       {{.name = "--precision",
         .help = "fp32, tf32, bf16 or fp16",
         .check = parsed_by([](const std::string& text) { parse_precision(text); })},
        &O::precision,
        and_sample},
       {{.name = "--no-fuse",
         .help = "disable the fusion of this name; may be repeated",
         .repeats = true},
        &O::no_fuse,
        and_sample},
       {{.name = "--recompute",
         .help = "do not keep the activations of the layers in this scope (layer1, layer1.0) "
                 "for the backward half, compute them again: less memory, more work; may be "
                 "repeated",
         .repeats = true},
        &O::recompute,
        with_step}}};
}

OptionGroup device_group() {
  using O = RunOptions;
  return {
      "Device",
      {{{.name = "--device",
         .help = "where to compute: auto, cpu, cuda, cuda:N, or ref (slow, double precision)",
         .check = parsed_by(check_device)},
        &O::device,
        and_sample},
       {{.name = "--threads",
         .help = "CPU threads of the kernels; 0: all cores that affinity and quota allow",
         .check = in_range(0, BackendOptions::most_threads)},
        &O::threads,
        and_sample},
       {{.name = "--pin-cpus",
         .help = "CPUs to pin threads to: auto (the compute threads one per core, the loader's on "
                 "the rest), none, or a list like taskset's: 0-3,6",
         .check = parsed_by(check_pin_cpus)},
        &O::pin_cpus,
        with_data},
       {{.name = "--exact-math",
         .help = "no algorithm that trades accuracy for speed (Winograd) or "
                 "spreads infinities (groups joined by zeros)"},
        &O::exact_math,
        and_sample},
       {{.name = "--deterministic",
         .help = "only algorithms that give the same bits every time; on the CPU all do, with "
                 "the same --threads"},
        &O::deterministic,
        and_sample},
       {{.name = "--autotune",
         .help = "CUDA: measure the libraries' algorithms and our own kernels instead of using "
                 "heuristics; the choices are kept in the plan cache"},
        &O::autotune,
        and_sample},
       {{.name = "--workspace-mib",
         .help = "CUDA: largest workspace of one call, in MiB",
         .check = in_range(0, 1 << 16)},
        &O::workspace_mib,
        and_sample},
       {{.name = "--plan-cache",
         .help = "folder for compiled CUDA plans, measured choices and measured peaks; auto: "
                 "$XDG_CACHE_HOME/warpstep or ~/.cache/warpstep; off: no cache"},
        &O::plan_cache,
        and_sample},
       {{.name = "--no-graph",
         .help = "CUDA: enqueue the calls of a step one by one, each in an nsys range, not as "
                 "one graph"},
        &O::no_graph,
        in_train},
       {{.name = "--steps-per-launch",
         .help = "CUDA: short steps in one launch; signals and log lines wait until all are done",
         .check = whole_number(1, most_per_launch)},
        &O::steps_per_launch,
        in_train}}};
}

OptionGroup optimizer_group() {
  using O = RunOptions;
  return {
      "Loss and optimiser",
      {{{.name = "--loss",
         .help = "training loss; nll: the model's outputs are log-probabilities",
         .check = one_of({"cross_entropy", "nll"})},
        &O::loss,
        with_step},
       {{.name = "--label-smoothing",
         .help = "share of each label that is spread over all classes",
         .check = number_up_to(1, true)},
        &O::label_smoothing,
        with_step},
       {{.name = "--class-weights",
         .help = "weight of each class in the loss, in the order of the classes: 1,2.5,...",
         .check = class_weight(),
         .type = "X,X",
         .by_comma = true},
        &O::class_weights,
        with_step},
       {{.name = "--optimizer",
         .help = "update rule",
         .check = one_of({"sgd", "adam", "adamw", "lars", "rmsprop"})},
        &O::optimizer,
        with_step,
        Resume::never},
       {{.name = "--momentum",
         .help = "momentum of sgd, lars and rmsprop; above 0 each parameter has a buffer",
         .check = number_in_range(0, 1)},
        &O::momentum,
        with_step},
       {{.name = "--nesterov", .help = "Nesterov momentum, with sgd and lars"},
        &O::nesterov,
        with_step},
       {{.name = "--weight-decay",
         .help = "weight decay, added to the gradient; decoupled with adamw",
         .check = number_from_zero()},
        &O::weight_decay,
        with_step},
       {{.name = "--decay",
         .help = "parameters that --weight-decay applies to: all, or matrices (not biases and "
                 "norms)",
         .check = one_of({"all", "matrices"})},
        &O::decay,
        with_step},
       {{.name = "--betas",
         .help = "decay of the moments of adam and adamw",
         .check = number_in_range(0, 1),
         .least = 2,
         .most = 2},
        &O::betas,
        in_train},
       {{.name = "--epsilon",
         .help = "epsilon of adam, adamw and rmsprop; 0 in float32 would make weights without a "
                 "gradient NaN",
         .check = number_in_range(1e-30, 1)},
        &O::epsilon,
        in_train},
       {{.name = "--rms-alpha",
         .help = "rmsprop: decay of the mean square (PyTorch's alpha)",
         .check = number_in_range(0, 1)},
        &O::rms_alpha,
        in_train},
       {{.name = "--moments",
         .help = "how the optimiser's moments are kept: fp32, or bf16, rounded at random, which "
                 "moves 20 instead of 28 bytes per weight of adam in a 16-bit precision",
         .check = one_of({"fp32", "bf16"})},
        &O::moments,
        with_step},
       {{.name = "--trust", .help = "trust coefficient of lars", .check = number_from_zero()},
        &O::trust,
        in_train},
       {{.name = "--clip-norm",
         .help = "largest norm of all gradients together; larger ones are scaled; 0: no limit",
         .check = number_from_zero()},
        &O::clip_norm,
        with_step},
       {{.name = "--accumulate",
         .help = "batches whose mean gradient makes one update",
         .check = whole_number(1, 1'000'000'000)},
        &O::accumulate,
        with_step,
        Resume::never},  // the schedule counts updates
       {{.name = "--ema",
         .help = "decay of a running average of the weights, used by evaluations; 0: no average",
         .check = number_up_to(1, false)},
        &O::ema,
        with_step},
       {{.name = "--sync-bn",
         .help = "several ranks: batch norms use the statistics of all ranks' batches together, "
                 "not of each rank's own batch; docs/distributed.md"},
        &O::sync_bn,
        train_only | explain_only},
       {{.name = "--shard-optimizer",
         .help = "several ranks: each keeps the optimiser's moments of a share of the weights "
                 "and updates only them (ZeRO-1): on, off, or auto (on CPUs, where it is faster); "
                 "docs/distributed.md",
         .check = one_of({"auto", "on", "off"})},
        &O::shard_optimizer,
        train_only | explain_only}}};
}

OptionGroup schedule_group() {
  using O = RunOptions;
  return {"Schedule",
          {{{.name = "--epochs",
             .help = "passes over the training data; 0: until --steps",
             .check = whole_number(0, most_epochs)},
            &O::epochs,
            of_run},
           {{.name = "--steps", .help = "end after N steps; 0: no limit", .check = whole_number()},
            &O::steps,
            of_run},
           {{.name = "--lr",
             .help = "learning rate; if not given, the model's default",
             .check = number_from_zero()},
            &O::lr,
            in_train},
           {{.name = "--lr-schedule",
             .help = "how the learning rate changes",
             .check = one_of({"constant", "step", "cosine", "one-cycle"})},
            &O::lr_schedule,
            in_train},
           {{.name = "--warmup-steps",
             .help = "updates in which the rate rises linearly to --lr",
             .check = whole_number()},
            &O::warmup_steps,
            in_train},
           {{.name = "--lr-step-epochs",
             .help = "step schedule: epochs between two cuts, from the run's start",
             .check = whole_number(1, most_epochs)},
            &O::lr_step_epochs,
            in_train},
           {{.name = "--lr-gamma",
             .help = "step schedule: factor of a cut",
             .check = number_from_zero()},
            &O::lr_gamma,
            in_train},
           {{.name = "--lr-final",
             .help = "cosine schedule: the rate at the end",
             .check = number_from_zero()},
            &O::lr_final,
            in_train},
           {{.name = "--eval-every",
             .help = "steps between evaluations, in addition to those of epochs; 0: only those",
             .check = whole_number()},
            &O::eval_every,
            of_run},
           {{.name = "--eval-first",
             .help = "evaluate before the first step: on, off, or auto (on with --weights)",
             .check = one_of({"auto", "on", "off"})},
            &O::eval_first,
            of_run},
           {{.name = "--patience",
             .help = "end early after N evaluations in a row that are not better than the best; 0: "
                     "never",
             .check = whole_number()},
            &O::patience,
            of_run},
           {{.name = "--min-delta",
             .help = "with --patience: by how much an evaluation must be better to count",
             .check = number_from_zero()},
            &O::min_delta,
            of_run},
           {{.name = "--monitor",
             .help = "with --patience: the figure that must improve; auto: accuracy, for text loss",
             .check = one_of({"auto", "accuracy", "loss"})},
            &O::monitor,
            of_run},
           {{.name = "--seed",
             .help = "random seed for weights, shuffling, augmentation and dropout",
             .check = whole_number(0, UINT64_MAX)},
            &O::seed,
            in_train,
            Resume::at_epoch_end}}};
}

OptionGroup profile_group() {
  using O = RunOptions;
  return {
      "Profile",
      {{{.name = "--profile",
         .help = "what to record into RUN/session.prof: off, steps (the parts of each step), spans "
                 "(every call, loader stage and host function, in windows), deep (also a GPU's "
                 "kernels)",
         .check = one_of({"off", "steps", "spans", "deep"})},
        &O::profile,
        of_run},
       {{.name = "--profile-schedule",
         .help = "steps that spans and deep record: torch.profiler's schedule over the steps of "
                 "this process, or with per=epoch over each epoch; omitted parts keep their "
                 "defaults",
         .check = parsed_by([](const std::string& text) { profiler::parse_schedule(text); })},
        &O::profile_schedule,
        of_run},
       {{.name = "--profile-raw",
         .help = "with deep: file for CUPTI's raw buffers, for warpstep replay",
         .type = "FILE"},
        &O::profile_raw,
        of_run},
       {{.name = "--profile-rank",
         .help = "in a job of several processes: this process's rank, and rank 0's address, so "
                 "that their profiles can share one clock (warpstep ranks)",
         .check = parsed_by([](const std::string& text) { profiler::parse_rank(text); }),
         .type = "RANK@HOST:PORT"},
        &O::profile_rank,
        of_run},
       {{.name = "--profile-counters",
         .help = "with spans or deep: sample the GPU's counters in windows (multiprocessors, "
                 "tensor pipe, DRAM); locks the GPU's clocks"},
        &O::profile_counters,
        of_run}}};
}

OptionGroup run_group() {
  using O = RunOptions;
  return {
      "Run",
      {{{.name = "--out",
         .help = "run directory; if not given, runs/MODEL-DATE-TIME",
         .type = "DIR"},
        &O::out,
        of_run,
        Resume::refused},
       {{.name = "--log-every",
         .help = "steps per line of metrics.jsonl",
         .check = whole_number(1)},
        &O::log_every,
        in_train},
       {{.name = "--stats-every",
         .help = "steps between measurements of every block of the model: norms of gradient, "
                 "parameters and update, and moments of its output; 0: none",
         .check = whole_number()},
        &O::stats_every,
        with_step},
       {{.name = "--checkpoint-every",
         .help = "steps between checkpoints, in addition to those of epochs and evaluations; 0: "
                 "only those",
         .check = whole_number()},
        &O::checkpoint_every,
        of_run},
       {{.name = "--keep-checkpoints",
         .help = "number of newest checkpoints to keep; 0: all",
         .check = whole_number()},
        &O::keep_checkpoints,
        of_run},
       {{.name = "--keep-best",
         .help = "also keep the checkpoint with the best evaluation as best.safetensors (default: "
                 "keep)"},
        &O::keep_best,
        of_run},
       {{.name = "--tensorboard",
         .help = "also write RUN/tensorboard, which TensorBoard shows while the run trains: the "
                 "metrics, and the machine every 5 s"},
        &O::tensorboard,
        in_train}}};
}

}  // namespace

Check loaded_plugin() {
  return parsed_by([](const std::string& text) {
    load_plugin(text, {models::add_plugin, data::add_plugin});
  });
}

const std::vector<OptionGroup>& option_table() {
  static const std::vector<OptionGroup> groups{data_group(),      loader_group(),   model_group(),
                                               optimizer_group(), schedule_group(), device_group(),
                                               profile_group(),   run_group()};
  return groups;
}

}  // namespace warpstep::tools
