#include "tools/warpstep/source.h"

#include <algorithm>

#include "data/formats/cached.h"
#include "data/formats/part.h"
#include "data/io/file.h"
#include "data/load/image_batches.h"
#include "data/load/loader.h"
#include "data/transforms/statistics.h"
#include "engine/core/cpus.h"
#include "engine/core/error.h"
#include "engine/core/text.h"
#include "tools/warpstep/options.h"
#include "tools/warpstep/progress.h"
#include "tools/warpstep/say.h"

namespace warpstep::tools {
namespace {

PixelPlan pixels_of(const Source& source, const RunOptions& options) {
  return source.recipe.pixels(static_cast<int>(source.dataset->image_shape()[2]), options.mean,
                              options.std);
}

// Slots that the device reads in place, without another copy.
class BackendSlots final : public data::SlotMemory {
 public:
  explicit BackendSlots(std::shared_ptr<Backend> backend) : backend_(std::move(backend)) {}
  std::byte* allocate(std::size_t bytes) override {
    memory_ = backend_->allocate_host(bytes);
    return memory_.get();
  }
  void release(std::byte*, std::size_t) noexcept override { memory_.reset(); }

 private:
  std::shared_ptr<Backend> backend_;
  std::shared_ptr<std::byte> memory_;
};

bool has_own_memory(const Backend& backend) {
  return backend.steps_in_flight() > 0;
}

data::Recipe recipe_of(const RunOptions& options, const models::Model& model, data::Split split) {
  const auto parse = [](const std::string& text) {
    return text == "none" ? data::Recipe() : data::Recipe(text);
  };
  data::Recipe training =
      parse(options.transforms == "auto" ? std::string(model.transforms) : options.transforms);
  if (split == data::Split::train) return training;
  return options.eval_transforms == "auto" ? training.for_evaluation()
                                           : parse(options.eval_transforms);
}

// `rest`: bytes that loading uses beside the decoded set.
data::TierFacts facts_of(const Source& source, const RunOptions& options, const Backend& backend,
                         std::uint64_t passes, std::uint64_t rest) {
  const std::uint64_t limit = parse_bytes(options.memory);
  std::uint64_t budget = data::host_budget_bytes(options.world().local_size);
  const std::uint64_t allowed = limit - std::min(limit, rest);
  const bool is_limited =
      limit > 0 && source.encoding != data::Encoding::pixels && allowed < budget;
  if (is_limited) budget = allowed;
  const Shape image = source.dataset->image_shape();
  const ImageExtent extent = source.recipe.extent(image);
  const bool device = has_own_memory(backend);
  return {.samples = source.dataset->size(),
          .decoded_bytes = source.dataset->size() * static_cast<std::uint64_t>(image.count()),
          .is_decoded = source.encoding == data::Encoding::pixels,
          .sets_extent = extent.height != image[0] || extent.width != image[1],
          .is_gathered = source.recipe.is_gathered(),
          .not_gathered = source.recipe.not_gathered(),
          .normalizes_on_device = options.normalize == "device",
          .has_device = device,
          .device_budget_bytes = backend.free_bytes() / 4,
          .host_budget_bytes = budget,
          .host_budget_option = is_limited ? "--memory " + options.memory : "",
          .loading_bytes = is_limited ? rest : 0,
          .many_epochs = passes != 1};
}

// Puts the whole set where the step's kernels can read it.
void make_resident(Source& source, const Backend& backend) {
  std::span<const std::uint8_t> pixels = source.dataset->all_pixels();
  std::shared_ptr<data::CachedDataset> decoded;
  if (pixels.empty()) {
    decoded = std::make_shared<data::CachedDataset>(source.dataset);
    decoded->decode_all();
    pixels = decoded->all_pixels();
  }
  if (!has_own_memory(backend)) {
    if (decoded) source.read = decoded;
    return;
  }
  source.resident = backend.allocate(pixels.size());
  const auto stream = backend.make_stream(Precedence::first);
  backend.upload(*stream, source.resident.get(), pixels.data(), pixels.size());
  stream->wait();
}

std::span<const std::uint8_t> resident_pixels(const Source& source) {
  if (source.tier.tier != data::Tier::resident) return {};
  if (!source.resident) return source.read->all_pixels();
  return {reinterpret_cast<const std::uint8_t*>(source.resident.get()),
          source.dataset->size() * idx(source.dataset->image_shape().count())};
}

// A model may know more tokens than its data have, to which --class-weights gives no weight.
void pad_class_weights(std::vector<float>& weights, const RunOptions& options) {
  const std::int64_t own =
      models::resolve_settings(models::find(options.model), options.model_option)
          .whole_or("vocabulary", 0);
  if (!weights.empty() && idx(own) > weights.size()) weights.resize(idx(own), 1.0F);
}

// Without a device loader threads compete with the kernels for cores: one is enough for models of
// small images, and more start if it is not.
int first_workers(bool device) {
  const int cores = allowed_cores();
  return device ? std::clamp(cores - 1, 1, 4) : 1;
}

}  // namespace

Shape Source::row_shape() const {
  return data::row_shape(*dataset, recipe);
}

bool Source::can_store_pixels() const {
  if (is_text() || blends_alpha) return false;
  if (!recipe.sets_extent()) return true;  // images of other sizes would fill no batch
  constexpr std::uint64_t most = 16;
  const Shape first = dataset->image_shape();
  const std::uint64_t count = std::min(dataset->size(), most);
  data::Scratch scratch;
  for (std::uint64_t i = 0; i < count; ++i) try {
      const Shape image = dataset->shape_of(i * dataset->size() / count, scratch);
      if (image[0] != first[0] || image[1] != first[1]) return false;
    } catch (const Error&) {  // it is broken, or gone by now
    }
  return true;
}

std::string Source::kind() const {
  return is_text() ? fmt::format("tokens ({})", data::name(tokens.format())) : dataset->kind();
}

std::int64_t sequence_of(const RunOptions& options, const models::Model& model) {
  const models::Settings settings = models::resolve_settings(model, options.model_option);
  const std::int64_t sequence =
      options.sequence > 0 ? options.sequence : settings.whole_or("context", 0);
  if (sequence == 0)
    fail<UsageError>("{}: give --sequence N: the model has no context of its own", model.name);
  return sequence;
}

bool use_vocabulary_of_run(const Json& config, const std::string& from, const RunOptions& options,
                           Source& source) {
  constexpr std::uint64_t most = std::uint64_t{1} << 31;
  const std::uint64_t stored = fields::count(fields::child(config, "data"), "vocabulary");
  const auto own = static_cast<std::int64_t>(stored <= most ? stored : 0);
  const std::int64_t of_data = source.text->vocabulary;
  if (own == 0 || own == of_data) return false;  // 0: the configuration does not say
  const std::int64_t known =
      std::max(own, models::resolve_settings(models::find(options.model), options.model_option)
                        .whole_or("vocabulary", 0));
  if (of_data > known && source.tokens.largest() >= known)
    fail<DataError>(
        "{}: the data have a vocabulary of {} ({}), and the run knows {} tokens; use tokens that "
        "the tokenizer of the run has made",
        source.path(), of_data, source.text->vocabulary_from, known);
  auto text = std::make_shared<data::TokenData>(*source.text);
  text->vocabulary = own;
  text->vocabulary_from = from;
  source.text = std::move(text);
  source.tokens = source.tokens.below(std::min(source.tokens.vocabulary(), known));
  return true;
}

namespace {

Source open_text(const RunOptions& options, const models::Model& model, data::Split split,
                 data::Split as, const Source* other) {
  if (!data::exists(options.data))
    fail<DataError>("--data {}: there is no such folder or file", options.data);
  if (!data::has_tokens(options.data))
    fail<UsageError>(
        "--data {}: {} is a model of text, but there are no tokens; `warpstep data tokenize` makes "
        "them from text files",
        options.data, model.name);
  data::TokenOptions open;
  open.io = options.data_io == "pread" ? data::Io::pread : data::Io::mmap;
  if (options.val_split >= 0) open.val_split = options.val_split;
  open.needs_train = split == data::Split::train;
  open.needs_val = split == data::Split::test;
  Source source;
  open.note = [](const std::string& note) { say("{}\n", note); };
  const bool is_open = other && other->text && other->text->val.size() > 0;
  source.text = is_open ? other->text
                        : std::make_shared<data::TokenData>(data::open_tokens(options.data, open));
  source.tokens = split == data::Split::train ? source.text->train : source.text->val;
  if (source.tokens.size() == 0)
    fail<UsageError>(
        "{}: --val-split {} leaves no tokens for validation; give a share above 0, for example 0.1",
        options.data, options.val_split);
  source.windows.sequence = sequence_of(options, model);
  source.windows.windows =
      as == data::Split::train ? parse_windows(options.windows) : data::Windows::sequential;
  return source;
}

// What a model of images would ignore.
void refuse_text_options(const RunOptions& options, const models::Model& model) {
  models::resolve_settings(model, options.model_option);
  if (options.sequence > 0)
    fail<UsageError>("--sequence is for models of text, and {} is one of images", model.name);
}

std::shared_ptr<const data::Dataset> open_images(const RunOptions& options, data::Split split) {
  if (split == data::Split::test && has_unread_val(options.data))
    say("note: {} has test/ and val/: evaluations read test/, val/ is left out\n", options.data);
  const data::OpenOptions open{.io = options.data_io == "pread" ? data::Io::pread : data::Io::mmap,
                               .memory_bytes = parse_bytes(options.memory)};
  if (options.val_split < 0 || data::has_split(options.data, data::Split::test))
    return data::open(options.data, split, open);
  return data::open_part(data::open(options.data, data::Split::train, open), split,
                         {.share = options.val_split, .seed = options.val_seed});
}

}  // namespace

bool has_unread_val(const std::string& folder) {
  return data::is_folder(folder + "/test") && data::is_folder(folder + "/val");
}

void refuse_second_split(const RunOptions& options, const models::Model& model) {
  if (model.is_text() || options.val_split < 0 || !data::has_split(options.data, data::Split::test))
    return;
  fail<UsageError>("--val-split: {} has a test part of its own; leave the option out",
                   options.data);
}

Source open_source(const RunOptions& options, const models::Model& model, data::Split split,
                   data::Split as, const Source* other) {
  if (model.is_text()) return open_text(options, model, split, as, other);
  refuse_text_options(options, model);
  return source_of(options, model, open_images(options, split), as);
}

Source source_of(const RunOptions& options, const models::Model& model,
                 std::shared_ptr<const data::Dataset> images, data::Split as) {
  Source source;
  source.recipe = recipe_of(options, model, as);
  source.dataset = data::with_alpha(std::move(images), parse_alpha(options.alpha));
  source.blends_alpha = options.alpha == "white" || options.alpha == "black";
  source.read = source.dataset;
  source.encoding = data::first_readable(*source.dataset).encoding;
  return source;
}

void require_channels_of_run(const Parser& parser, const RunOptions& run, const RunOptions& now,
                             std::initializer_list<data::Split> splits) {
  const models::Model& model = models::find(now.model);
  if (model.is_text() || now.mean.empty() || (parser.given("--mean") && parser.given("--std")))
    return;
  for (const data::Split split : splits)
    data::require_channels_of(recipe_of(run, model, split), recipe_of(now, model, split));
}

void resolve_normalization(RunOptions& options, const Source& training, const Source& test) {
  if (training.is_text()) return;
  if (options.mean.empty() != options.std.empty())
    fail<UsageError>("{} without {}: --mean and --std are given together or not at all",
                     options.std.empty() ? "--mean" : "--std",
                     options.std.empty() ? "--std" : "--mean");
  if (!training.recipe.normalizes() && !test.recipe.normalizes()) {
    if (!options.mean.empty())
      say("note: --mean and --std have no effect: the transforms scale and do not normalize\n");
    return;
  }
  const auto channels = idx(training.dataset->image_shape()[2]);
  if (options.mean.empty() && (training.recipe.has("yuv") || test.recipe.has("yuv")))
    data::refuse_statistics_of_yuv();
  if (options.mean.empty()) {
    const data::ChannelStatistics measured = data::channel_statistics(
        *training.dataset,
        {.any_size = training.recipe.sets_extent(),
         .forgiven = parse_data_errors(options.data_errors) != data::DataErrors::fail});
    options.mean = measured.mean;
    options.std = measured.std;
    for (double& std : options.std)
      if (std == 0) std = 1;  // a constant channel
    if (measured.with_alpha > 0 && options.alpha == "drop")
      say("{} of {} training images have an alpha channel or transparent colour, which is dropped; "
          "--alpha white blends them\n",
          grouped(measured.with_alpha), grouped(measured.samples));
    if (measured.with_orientation > 0)
      say("{} of {} training images are JPEG files with an EXIF orientation other than normal, "
          "which is ignored; mogrify -auto-orient turns their pixels\n",
          grouped(measured.with_orientation), grouped(measured.samples));
  }
  if (options.mean.size() != channels || options.std.size() != channels)
    fail<UsageError>(
        "the images have {}, but --mean has {} and --std {} values; give one for each channel",
        counted(channels, "channel"), options.mean.size(), options.std.size());
}

namespace {

// A set that is decoded on its way to the device needs host memory for a while.
void require_room(const Source& source, const RunOptions& options) {
  const std::uint64_t limit = parse_bytes(options.memory);
  const std::uint64_t bytes =
      source.dataset->size() * static_cast<std::uint64_t>(source.dataset->image_shape().count());
  if (limit == 0 || bytes <= limit || !source.dataset->all_pixels().empty()) return;
  fail<UsageError>(
      "a resident set takes {:.1f} MiB of memory while it is decoded, more than --memory "
      "{}; use --tier decoded",
      static_cast<double>(bytes) / (1 << 20), options.memory);
}

// Chooses the tier and prepares it.
void choose_tier(Source& source, const RunOptions& options, const Backend& backend,
                 std::uint64_t passes, std::uint64_t rest) {
  const data::Tier wanted = data::parse_tier(options.tier);
  data::TierFacts facts = facts_of(source, options, backend, passes, rest);
  source.tier = data::choose_tier(wanted, facts);
  if (source.tier.tier == data::Tier::resident) {
    require_room(source, options);
    try {
      make_resident(source, backend);
    } catch (const DataError& error) {
      if (wanted == data::Tier::resident && options.data_errors == "fail") throw;
      if (wanted == data::Tier::resident)
        fail<DataError>(
            "{}; or use --tier decoded: a resident set is decoded as a whole before the run, where "
            "--data-errors {} cannot leave an image out",
            error.what(), options.data_errors);
      // A broken or odd image is handled when its turn comes.
      facts.is_gathered = false;
      source.tier = data::choose_tier(wanted, facts);
      source.tier.why += "; some images are broken or unlike the others, so it is not resident";
    }
  }
  if (source.tier.tier == data::Tier::mapped && source.encoding != data::Encoding::pixels)
    source.read = std::make_shared<data::CachedDataset>(source.dataset);
}

// Without the slots and a resident set.
data::LoaderOptions loader_options(const Source& source, const RunOptions& options, data::Split as,
                                   bool device) {
  const bool training = as == data::Split::train;
  const ShuffleChoice shuffle = parse_shuffle(options.shuffle);
  data::LoaderOptions with;
  with.batch = options.batch;
  with.world = static_cast<std::uint32_t>(options.world().size);
  with.rank = static_cast<std::uint32_t>(options.world().rank);
  with.workers = options.loader_threads();
  with.start_workers = first_workers(device);
  with.prefetch = options.prefetch;
  with.seed = options.seed;
  with.shuffle = training ? shuffle.shuffle : data::Shuffle::none;
  with.shuffle_window = shuffle.window;
  with.tail = training ? data::Tail::drop : data::Tail::pad;
  with.evaluates = !training;
  with.recipe = source.recipe;
  if (options.normalize == "cpu") with.pixels = pixels_of(source, options);
  with.errors = parse_data_errors(options.data_errors);
  with.max_bad = options.max_bad;
  with.memory_limit_bytes = parse_bytes(options.memory);
  if (!source.is_text())
    with.class_weights = loss_options(options, std::ssize(source.dataset->classes())).class_weights;
  else if (training)  // evaluations of text do not weight
    with.class_weights = loss_options(options, source.text->vocabulary).class_weights;
  if (source.is_text()) pad_class_weights(with.class_weights, options);
  if (!training) with.thread_name = "test loader";
  return with;
}

}  // namespace

std::uint64_t least_memory(const Source& source, const RunOptions& options, data::Split as,
                           const Backend& backend) {
  if (source.is_text() || parse_bytes(options.memory) == 0) return 0;
  const data::LoaderOptions with = loader_options(source, options, as, has_own_memory(backend));
  return data::memory_bound(data::ImageBatches(source.dataset, with), with).total();
}

void start_loader(Source& source, const RunOptions& options, data::Split as,
                  const std::shared_ptr<Backend>& backend, std::uint64_t passes,
                  std::uint64_t others) {
  const bool device = has_own_memory(*backend);
  data::LoaderOptions with = loader_options(source, options, as, device);
  if (device) source.slots = std::make_unique<BackendSlots>(backend);
  with.memory = source.slots.get();
  if (source.is_text()) {
    source.loader = std::make_unique<data::Loader>(
        std::make_unique<data::TokenBatches>(source.tokens, source.windows, with), with);
    return;
  }
  source.pixels = pixels_of(source, options);
  choose_tier(source, options, *backend, passes,
              others + least_memory(source, options, as, *backend));
  with.resident = resident_pixels(source);
  source.loader = std::make_unique<data::Loader>(source.read, with);
}

void require_usable_recipe(const RunOptions& options, const Source& source, data::Split as) {
  if (source.is_text() || parse_data_errors(options.data_errors) != data::DataErrors::fail) return;
  try {
    source.recipe.geometry(source.dataset->image_shape(), data::Draw(options.seed, 0, 0));
  } catch (const DataError& error) {
    fail<DataError>("{}: {}", source.dataset->name(0), error.what());
  }
  // Of the training images, the first epoch finds those that do not fit.
  if (as == data::Split::test) data::require_rows(*source.dataset, source.recipe);
}

void start_feeder(Source& source, const Program& program, std::uint64_t steps_per_launch) {
  if (!has_own_memory(program.backend())) return;
  source.feeder = std::make_unique<Feeder>(*source.loader, program.backend(), program.stream(),
                                           steps_per_launch);
}

void require_memory(const RunOptions& options, const Source& training, const Source& test) {
  const std::uint64_t limit = parse_bytes(options.memory);
  const std::uint64_t together = training.loader->memory().total() + test.loader->memory().total();
  if (limit == 0 || together <= limit) return;
  fail<UsageError>(
      "loading may take {:.1f} MiB for training and test data, more than --memory {}; "
      "use a smaller --batch, --prefetch or --workers, or --tier decoded",
      static_cast<double>(together) / (1 << 20), options.memory);
}

models::BuildOptions build_options(const RunOptions& options, const Source& source,
                                   const Backend& backend) {
  if (source.is_text()) {
    models::BuildOptions build{.batch = options.batch};
    build.loss = loss_options(options, source.text->vocabulary);
    pad_class_weights(build.loss.class_weights, options);
    build.uploaded = has_own_memory(backend);
    build.settings = models::resolve_settings(models::find(options.model), options.model_option);
    build.sequence = source.windows.sequence;
    build.vocabulary = source.text->vocabulary;
    return build;
  }
  models::BuildOptions build{.batch = options.batch,
                             .image = source.row_shape(),
                             .classes = static_cast<std::int64_t>(source.dataset->classes().size()),
                             .mean = {options.mean.begin(), options.mean.end()},
                             .std = {options.std.begin(), options.std.end()}};
  build.loss = loss_options(options, build.classes);
  build.uploaded = has_own_memory(backend);
  if (options.normalize == "cpu") {
    if (backend.name() == "ref")
      fail<UsageError>(
          "--normalize cpu makes floats, and --device ref computes in double: use --normalize "
          "device");
    build.images = models::Images::floats;
    return build;
  }
  const bool resident = source.tier.tier == data::Tier::resident;
  if (!resident && source.recipe.is_plain()) return build;
  build.images = resident ? models::Images::set : models::Images::window;
  build.pixels = source.pixels;
  if (resident) {
    build.stored = source.dataset->image_shape();
    build.samples = static_cast<std::int64_t>(source.dataset->size());
  }
  return build;
}

std::string describe(const Source& source) {
  if (source.is_text())
    return fmt::format("{}, vocabulary of {} ({}), sequences of {} tokens, at most {}",
                       source.kind(), source.text->vocabulary, source.text->vocabulary_from,
                       source.windows.sequence, source.loader->memory().text());
  const std::string recipe = source.recipe.text();
  return fmt::format("{}, {} ({}){}, at most {}", source.dataset->kind(),
                     data::name(source.tier.tier), source.tier.why,
                     recipe.empty() ? "" : ", " + recipe, source.loader->memory().text());
}

std::string passed_over_text(const Source& source) {
  if (source.is_text()) return {};
  const std::vector<std::string> names = source.dataset->passed_over();
  if (names.empty()) return {};
  return fmt::format("{} of the training data skipped: {}", counted(names.size(), "file"),
                     data::first_few(names));
}

std::string diagnosis(const Source& source) {
  data::LoaderStats stats = source.loader->stats();
  // With a device the feeder reads batches from the loader.
  if (source.feeder) stats.trainer_wait_ns = source.feeder->stats().trainer_wait_ns;
  const auto most = allowed_cores();
  if (source.is_text()) return data::diagnose(stats, "tokens", most);
  if (source.tier.tier == data::Tier::resident) return data::diagnose(stats, "resident", most);
  const data::Encoding read =
      source.tier.tier == data::Tier::decoded ? source.encoding : data::Encoding::pixels;
  const bool loose = source.dataset->kind().ends_with("folder");
  if (read != data::Encoding::jpeg && source.encoding != data::Encoding::pixels &&
      !source.can_store_pixels())
    return data::diagnose(stats, "encoded", most);
  return data::diagnose(stats,
                        read == data::Encoding::jpeg  ? loose ? "jpeg" : "packed jpeg"
                        : read == data::Encoding::png ? "png"
                                                      : "pixels",
                        most);
}

}  // namespace warpstep::tools
