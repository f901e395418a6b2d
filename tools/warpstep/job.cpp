#include "tools/warpstep/job.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/phase.h"
#include "engine/core/text.h"
#include "tools/warpstep/fitting.h"
#include "tools/warpstep/say.h"
#include "tools/warpstep/summary.h"

namespace warpstep::tools {
namespace {

// The phases of a run before it trains; those of training are the Trainer's.
const record::Name device_name{"device"}, indexing_name{"data indexing"},
    statistics_name{"statistics"}, loader_name{"loader start"}, program_name{"program"};

// Of a run that continues with what it has measured.
bool is_measured(const Resumed& resumed, const RunOptions& options) {
  return resumed.config->contains("measured") && options.mean == resumed.options.mean &&
         options.std == resumed.options.std;
}

// A tokenizer.json that was put beside the tokens, or taken away, changes no token.
void keep_vocabulary(const Resumed& resumed, const RunOptions& options, Job& job) {
  const auto before = job.training.text;
  bool changed = false;
  for (Source* source : {&job.training, &job.test})
    changed |=
        use_vocabulary_of_run(*resumed.config, resumed.checkpoint.string(), options, *source);
  if (changed) {
    say("note: {}: the vocabulary has {} tokens now (by {}); the run continues with its own {}\n",
        job.training.path(), before->vocabulary, data::shown(before->vocabulary_from),
        job.training.text->vocabulary);
    job.data = data_json(options, job.training, job.test);
  }
  // One that was taken away may come back as another.
  const Json& then = resumed.config->at("data");
  constexpr const char* checksum = "tokenizer_checksum";
  if (!job.data.contains(checksum) && then.contains(checksum)) job.data[checksum] = then[checksum];
}

}  // namespace

Job prepare(RunOptions options, const std::optional<Resumed>& resumed, bool allow_changed_data) {
  Job job;
  const models::Model& model = models::find(options.model);
  if (options.lr < 0) options.lr = model.learning_rate;
  const auto timed = [](const record::Name& name, const auto& work) {
    const record::Phase phase(name);
    work();
  };
  timed(device_name, [&] { job.device = open_device(options); });
  const std::uint64_t free = free_bytes(*job.device.backend, options.world().local_size);
  timed(indexing_name, [&] {
    refuse_second_split(options, model);
    job.training = open_source(options, model, data::Split::train, data::Split::train);
    job.test = open_source(options, model, data::Split::test, data::Split::test, &job.training);
    job.data = data_json(options, job.training, job.test);
    if (resumed && !allow_changed_data)
      require_same_data(*resumed, job.data, job.training, job.test);
    if (resumed && job.training.is_text()) keep_vocabulary(*resumed, options, job);
  });
  job.measured = options.mean.empty() || (resumed && is_measured(*resumed, options));
  timed(statistics_name, [&] { resolve_normalization(options, job.training, job.test); });
  job.measured = job.measured && !options.mean.empty();  // the recipe may need none
  timed(loader_name, [&] {
    require_usable_recipe(options, job.training, data::Split::train);
    require_usable_recipe(options, job.test, data::Split::test);
    start_loader(job.training, options, data::Split::train, job.device.backend, options.epochs,
                 least_memory(job.test, options, data::Split::test, *job.device.backend));
    start_loader(job.test, options, data::Split::test, job.device.backend, 0,
                 job.training.loader->memory().total());
  });
  require_memory(options, job.training, job.test);
  job.epoch_steps = steps_of_epoch(options, job.training.loader->steps_per_epoch());
  const Progress at = resumed ? resumed->progress : Progress();
  job.run_steps = total_steps(options, job.epoch_steps, at);
  const Schedule schedule = schedule_of(options, static_cast<std::int64_t>(job.run_steps),
                                        static_cast<std::int64_t>(job.epoch_steps), at);
  timed(program_name, [&] {
    Programs programs =
        fitting_programs(options, job.training, job.test, job.device.backend, schedule, free);
    job.step = std::move(programs.step);
    job.evaluation = std::move(programs.evaluation);
  });
  pin_launching_thread(job.device);
  job.options = std::move(options);
  return job;
}

Throughput throughput_of(const Job& job) {
  const RunOptions& options = job.options;
  const double flops =
      options.recompute.empty()
          ? model_flops(job.step->graph())
          : model_flops(graph_without_recompute(options, job.training, *job.device.backend));
  return {flops, arithmetic_peak(job.device, options.precision)};
}

namespace {

// " of 32x32x3", or what a recipe makes of images of another size.
std::string size_text(const RunOptions& options, const Source& training) {
  const Shape image = training.dataset->image_shape(), row = training.row_shape();
  return image == row ? fmt::format(" of {}", image.text())
                      : fmt::format(", made {} by {}", row.text(),
                                    options.transforms == "auto" ? "the model's own transforms"
                                                                 : "--transforms");
}

// The model's own transforms expect images of about its size: of larger ones they take a window.
void note_small_windows(const RunOptions& options, const Source& training) {
  if (training.is_text() || options.transforms != "auto" || training.recipe.resizes()) return;
  const Shape image = training.dataset->image_shape(), row = training.row_shape();
  constexpr std::int64_t least = 10;  // a tenth of an image
  if (least * row[0] * row[1] >= image[0] * image[1]) return;
  say("{} uses {:.2g} % of an image of {} x {} pixels: its transforms, {}, crop and do not scale; "
      "to use whole images, give --transforms resize={},{}\n",
      options.model,
      100 * static_cast<double>(row[0] * row[1]) / static_cast<double>(image[0] * image[1]),
      image[1], image[0], training_transforms(options), row[0], training_transforms(options));
}

// What a model learns of one class.
void note_single_class(const Source& training) {
  if (training.is_text() || training.dataset->classes().size() > 1) return;
  say("the data have one class, {}: there is nothing to classify, and every accuracy is 100 %; "
      "classes are the folders of DIR/train, or the labels in a file (docs/data.md)\n",
      data::shown(training.dataset->classes().front()));
}

}  // namespace

void announce(const Job& job, const std::vector<std::string>& useless) {
  const Source &training = job.training, &test = job.test;
  say("{}: {} parameters, {} training and {} {}\n", job.options.model,
      grouped(job.step->store().parameter_count()), grouped(training.size()), grouped(test.size()),
      training.is_text() ? std::string("validation tokens")
                         : "test images" + size_text(job.options, training));
  note_single_class(training);
  note_small_windows(job.options, training);
  if (training.is_text())
    for (const std::string& warning : training.text->warnings) say("{}\n", warning);
  const std::string defaults =
      defaults_text(job.options, models::find(job.options.model).learning_rate);
  const int ranks = job.options.world().size;
  const std::string batch =
      ranks > 1 ? fmt::format("{} ({} per rank)", job.options.batch * ranks, job.options.batch)
                : fmt::format("{}", job.options.batch);
  say("optimiser: {}, batch {}{}\n", update_text(job.options), batch,
      defaults.empty() ? "" : "; at their defaults: " + defaults);
  for (const std::string& option : useless) say("note: {}\n", option);
  if (!training.is_text() && training.encoding == data::Encoding::pixels &&
      job.options.alpha != "drop")
    say("note: --alpha {} has no effect: {} stores pixels, which have no alpha\n",
        job.options.alpha, job.options.data);
  if (const auto rest = job.run_steps % job.options.accumulate; rest > 0)
    say("note: the last {} of the run {} no weights, because --accumulate takes {}\n",
        counted(static_cast<std::int64_t>(rest), "step"), rest == 1 ? "updates" : "update",
        job.options.accumulate);
  const auto updates = job.run_steps / job.options.accumulate;
  if (const double d = job.options.ema; d > 0 && static_cast<double>(updates) * (1 - d) < 1)
    say("note: --ema {} averages the weights of about {} updates, but the run has {}: the average "
        "that validation uses will still contain much of the initial weights\n",
        d, grouped(static_cast<std::uint64_t>(std::lround(1 / (1 - d)))), grouped(updates));
  if (job.options.patience > 0)
    say("ends early after {} without a better {}\n", counted(job.options.patience, "evaluation"),
        watches_loss(job.options, training.is_text()) ? "loss" : "accuracy");
  say("device: {}, {}{}\n", job.device.backend->name(), job.device.backend->describe(),
      job.device.why.empty() ? "" : fmt::format("; not CUDA: {}", job.device.why));
  if (const std::string note = attention_note(*job.step); !note.empty()) say("{}\n", note);
  if (const std::string pinned = job.device.pinning.text(); !pinned.empty())
    say("pinned: {}\n", pinned);
  say("data: {}\n", describe(job.training));
  if (const std::string others = passed_over_text(training); !others.empty()) say("{}\n", others);
  if (!job.options.recompute.empty())
    say("{}\n", recompute_line(job.options, job.training, *job.step));
}

}  // namespace warpstep::tools
