#include "data/load/image_batches.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>

#include "data/io/parallel.h"
#include "engine/core/caught.h"
#include "engine/core/clock.h"
#include "engine/core/cpus.h"
#include "engine/core/error.h"

namespace warpstep::data {
namespace {

constexpr std::size_t alignment = 64;  // bytes, a cache line
constexpr std::int64_t max_batch = 1 << 20;

std::size_t aligned(std::size_t bytes) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// Each counter has one writer, so load and store may be separate; readers see a recent value.
void add(std::atomic<std::uint64_t>& counter, std::uint64_t value) {
  counter.store(counter.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
}

// What one fill() took: end() adds it to the worker's times, stage by stage, the rest as "copy".
class FillTimes {
 public:
  explicit FillTimes(MakerState& state) : state_(state), before_(sums()) {
    std::fill(state.transforms_ns.begin(), state.transforms_ns.end(), std::uint64_t{0});
  }

  void end(std::int64_t samples) {
    const Sums now = sums();
    WorkerTimes& times = state_.times;
    add(times.read_ns, now.read - before_.read);
    add(times.decode_ns, now.decode - before_.decode);
    add(times.resize_ns, now.resize - before_.resize);
    std::uint64_t staged = now.read - before_.read + now.decode - before_.decode + now.resize -
                           before_.resize + now.pixels - before_.pixels;
    for (std::size_t i = 0; i < state_.transforms_ns.size(); ++i) {
      add(times.transforms_ns[i], state_.transforms_ns[i]);
      staged += state_.transforms_ns[i];
    }
    add(times.copy_ns, now.clock - before_.clock - staged);
    add(times.bytes, now.bytes - before_.bytes);
    add(times.samples, static_cast<std::uint64_t>(samples));
  }

 private:
  struct Sums {
    std::uint64_t read, decode, resize, pixels, bytes, clock;
  };

  Sums sums() const {
    const Scratch& scratch = state_.developer.scratch;
    return {scratch.read_ns,
            scratch.decode_ns,
            state_.developer.resize_ns,
            state_.times.pixels_ns.load(std::memory_order_relaxed),
            scratch.bytes_read,
            now_ns()};
  }

  MakerState& state_;
  Sums before_;
};

void check(const LoaderOptions& options, const Dataset& dataset, const Shape& shape) {
  if (dataset.size() == 0) fail<DataError>("{}: has no images", dataset.path());
  check_labels_of(dataset);  // of a user's own set, which no open() has seen
  if (options.batch < 1 || options.batch > max_batch)
    fail<UsageError>("batch {}: must be from 1 to {}", options.batch, max_batch);
  if (options.world < 1 || options.rank >= options.world)
    fail<UsageError>("rank {} of a world of {}: ranks count from 0", options.rank, options.world);
  const std::uint64_t global = static_cast<std::uint64_t>(options.batch) * options.world;
  if (options.tail == Tail::drop && global > dataset.size())
    fail<UsageError>(
        "{}: {} not fill one batch of {}; use a smaller batch or more data", dataset.path(),
        dataset.size() == 1 ? "1 sample does" : fmt::format("{} samples do", dataset.size()),
        global);
  if (const std::size_t weights = options.class_weights.size();
      weights > 0 && weights < dataset.classes().size())
    fail<UsageError>("class weights: there are {}, but {} has {} classes; give one per class",
                     weights, dataset.path(), dataset.classes().size());
  if (!(options.max_bad >= 0 && options.max_bad <= 1))
    fail<UsageError>("--max-bad {}: must be a share from 0 to 1", options.max_bad);
  if (options.pixels && options.recipe.mixes())
    fail<UsageError>("mixup and cutmix need both rows on the device: use --normalize device");
  if (options.recipe.mixes() && options.world > 1 && options.batch % 2 != 0)
    fail<UsageError>(
        "batch {} per rank: must be even, because mixup and cutmix pair neighbouring rows",
        options.batch);
  if (options.pixels && !options.resident.empty())
    fail<UsageError>("a resident set is normalised on the device: use --normalize device");
  if (!options.resident.empty() && !options.recipe.is_gathered())
    fail<UsageError>(
        "a resident set supports only flips and crops, of which the first may pad, not '{}'; use "
        "--tier mapped",
        options.recipe.text());
  const auto set_bytes = dataset.size() * static_cast<std::uint64_t>(dataset.image_shape().count());
  if (!options.resident.empty() && options.resident.size() != set_bytes)
    fail<UsageError>("a resident set of {} bytes, but {} images of {} have {}",
                     options.resident.size(), dataset.size(), dataset.image_shape().text(),
                     set_bytes);
  if (options.pixels && options.pixels->channels != shape[2])
    fail<UsageError>("normalises {} channels, but the images have {}", options.pixels->channels,
                     shape[2]);
}

// Per worker, in addition to its images: the stack pages it touches, the tables of inflate and of
// the JPEG decoder, and malloc's per-thread cache.
constexpr std::uint64_t thread_bytes = 1 << 20;

Encoding encoding_of(const Dataset& dataset) {
  try {
    return first_readable(dataset).encoding;
  } catch (...) {
    return Encoding::png;  // needs the most memory; reading the sample reports its error later
  }
}

// By what the loss divides a batch (kernels/loss/targets.h): a mixed row has two labels.
double loss_weight(std::span<const std::int32_t> labels, std::span<const RowPlan> plans,
                   std::span<const float> class_weights) {
  double sum = 0;
  for (std::size_t row = 0; row < labels.size(); ++row) {
    if (labels[row] < 0) continue;
    const RowPlan& plan = plans[row];
    const float own = plan.pair_label >= 0 && plan.weight < 1 ? plan.weight : 1;
    float weight = own * class_weights[idx(labels[row])];
    if (own < 1) weight += (1 - own) * class_weights[idx(plan.pair_label)];
    sum += static_cast<double>(weight);
  }
  return sum;
}

std::size_t row_bytes(const LoaderOptions& options, const Shape& shape) {
  if (!options.resident.empty()) return 0;
  return idx(shape.count()) * (options.pixels ? sizeof(float) : 1);
}

// Of a user's own transform: with larger numbers their sums and products would overflow.
bool is_possible(const Geometry& geometry) {
  constexpr std::int64_t most = std::int64_t{1} << 30;
  const auto within = [](const Window& window) {
    return std::min(window.y, window.x) >= -most && std::max(window.y, window.x) <= most &&
           std::min(window.height, window.width) >= 0 &&
           std::max(window.height, window.width) <= most;
  };
  return within(geometry.source) && std::min(geometry.height, geometry.width) >= 1 &&
         std::max(geometry.height, geometry.width) <= most && within(geometry.out) &&
         (!geometry.kept || within(*geometry.kept));
}

std::shared_ptr<const Dataset> batched(std::shared_ptr<const Dataset> dataset) {
  if (!dataset) fail<UsageError>("batches of no data set: the pointer is null");
  return dataset;
}

}  // namespace

std::vector<SlowestSamples::Sample> SlowestSamples::list() const {
  const std::lock_guard lock(mutex_);
  return samples_;
}

void SlowestSamples::insert(const Sample& sample) {
  const std::lock_guard lock(mutex_);
  const auto at =
      std::ranges::upper_bound(samples_, sample.ns, std::ranges::greater{}, &Sample::ns);
  samples_.insert(at, sample);
  if (samples_.size() > most) samples_.pop_back();
  if (samples_.size() == most) least_ns_ = samples_.back().ns;
}

SlotLayout::SlotLayout(std::size_t image_row_bytes, std::int64_t batch)
    : row_bytes(image_row_bytes),
      labels(aligned(image_row_bytes * idx(std::max<std::int64_t>(batch, 0)))),
      rows(labels + aligned(idx(std::max<std::int64_t>(batch, 0)) * sizeof(std::int32_t))),
      bytes(rows + aligned(idx(std::max<std::int64_t>(batch, 0)) * sizeof(RowPlan))) {}

Shape row_shape(const Dataset& dataset, const Recipe& recipe) {
  check_image_shape(dataset.image_shape(), dataset.path());  // no open() has seen a user's own set
  const ImageExtent extent = recipe.extent(dataset.image_shape());
  return {extent.height, extent.width, dataset.image_shape()[2]};
}

Geometry row_geometry(const Dataset& dataset, std::uint64_t index, const Shape& image,
                      const Recipe& recipe, const Draw& draw, const Shape& row, bool evaluates) {
  Geometry geometry;
  try {
    geometry = recipe.geometry(image, draw);
  } catch (const DataError& error) {
    fail<DataError>("{}: {}", dataset.name(index), error.what());
  }
  const ImageExtent out{geometry.out.height, geometry.out.width};
  if (!is_possible(geometry))
    fail<DataError>(
        "{}: the transforms resize it to {} x {} pixels, or take a window that is far outside "
        "(Transform::plan); sides and distances are at most 2^30 pixels",
        dataset.name(index), geometry.width, geometry.height);
  if (const ImageExtent announced = recipe.extent(image); out != announced)
    fail<DataError>(
        "{}: the transforms make {} x {} pixels of it, but announce {} x {} (Transform::extent)",
        dataset.name(index), out.width, out.height, announced.width, announced.height);
  if (out.height != row[0] || out.width != row[1])
    fail<DataError>(
        "{}: is {} x {} pixels, but the images of a batch have {} x {}; {}", dataset.name(index),
        image[1], image[0], row[1], row[0],
        evaluates
            ? fmt::format("scale images with --eval-transforms resize={}x{}", row[0], row[1])
            : "bring all to one size, for example with " + cropping_options(dataset.image_shape()));
  return geometry;
}

void require_rows(const Dataset& dataset, const Recipe& recipe, std::uint64_t most) {
  if (!dataset.all_pixels().empty()) return;  // all are as the first
  const Shape row = row_shape(dataset, recipe);
  const std::uint64_t count = std::min(dataset.size(), most);
  std::vector<Scratch> scratch(idx(allowed_cores()));
  std::mutex mutex;
  std::uint64_t first = UINT64_MAX;
  std::string problem;
  parallel_for(count, allowed_cores(), [&](int thread, std::uint64_t i) {
    const std::uint64_t index = i * dataset.size() / count;
    try {
      const Shape image = dataset.shape_of(index, scratch[idx(thread)]);
      row_geometry(dataset, index, image, recipe, Draw(0, 0, index), row, true);
    } catch (const DataError& error) {
      const std::lock_guard lock(mutex);
      if (index > first) return;
      first = index;
      problem = error.what();
    }
  });
  if (!problem.empty()) fail<DataError>("{}", problem);
}

ImageBatches::ImageBatches(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options)
    : dataset_(batched(std::move(dataset))),
      options_(options),
      shape_(row_shape(*dataset_, options.recipe)),
      layout_(row_bytes(options, shape_), std::min(options.batch, max_batch)),
      global_batch_(static_cast<std::uint64_t>(options.batch) * options.world),
      is_resident_(!options.resident.empty()),
      plans_rows_(is_resident_ || options.recipe.uses_rows()),
      order_({options.seed, dataset_->size(), options.shuffle, options.shuffle_window}) {
  check(options_, *dataset_, shape_);
  steps_ = options_.tail == Tail::drop ? dataset_->size() / global_batch_
                                       : (dataset_->size() + global_batch_ - 1) / global_batch_;
}

std::int64_t ImageBatches::claim() const {
  return is_resident_ ? options_.batch
                      : std::clamp<std::int64_t>(dataset_->claim(), 1, options_.batch);
}

std::uint64_t ImageBatches::worker_bytes() const {
  if (is_resident_) return 0;
  const Encoding encoding = encoding_of(*dataset_);
  const auto image = static_cast<std::uint64_t>(dataset_->image_shape().count());
  const auto row = static_cast<std::uint64_t>(shape_.count());
  // A PNG is decoded whole, and its inflated rows are in memory at the same time; of a JPEG only
  // the window is. A resized image exists three times: before, between the two passes and after.
  const std::uint64_t decoded = encoding == Encoding::png ? 2 * image : row;
  const std::uint64_t sized = options_.recipe.resizes() ? 2 * image : 0;
  return dataset_->max_fetched_bytes() + decoded + sized + 2 * row + thread_bytes;
}

void ImageBatches::describe(std::span<const std::byte> slot, Batch& batch) const {
  const SlotParts<const std::byte> parts(slot, layout_, options_.batch);
  batch.add("images", is_resident_ ? options_.resident : parts.images);
  batch.add("labels", parts.labels);
  batch.add("rows", parts.plans);
  batch.count = std::ranges::count_if(parts.labels, [](std::int32_t label) { return label >= 0; });
  batch.weight.reset();
  if (!options_.class_weights.empty())
    batch.weight = loss_weight(parts.labels, parts.plans, options_.class_weights);
}

std::uint64_t ImageBatches::place_of(Position position, std::int64_t row) const {
  return position.step * global_batch_ +
         static_cast<std::uint64_t>(options_.rank) * static_cast<std::uint64_t>(options_.batch) +
         static_cast<std::uint64_t>(row);
}

std::int64_t ImageBatches::rows_of(Position position) const {
  const std::uint64_t first = place_of(position, 0);
  if (first >= dataset_->size()) return 0;
  return static_cast<std::int64_t>(
      std::min(static_cast<std::uint64_t>(options_.batch), dataset_->size() - first));
}

void ImageBatches::prepare_next(Position position) {
  if (position.step == steps_ / 2) order_.epoch(position.epoch + 1);
}

BadSample ImageBatches::bad_sample(std::uint64_t index, Position position, std::int64_t row,
                                   const std::string& what) const {
  const std::string when = options_.evaluates ? ""
                                              : fmt::format(", epoch {}, step {}",
                                                            position.epoch + 1, position.step + 1);
  return {index, position, row,
          fmt::format("{} (sample {} of {}{})", what, index, dataset_->path(), when), false};
}

void ImageBatches::fill(Position position, std::int64_t begin, std::int64_t end,
                        std::span<std::byte> memory, MakerState& state, std::vector<BadSample>& bad,
                        const std::function<bool()>& stop) {
  const SlotView slot(memory, layout_, options_.batch);
  FillTimes measured(state);
  const std::int64_t samples = rows_of(position);
  std::int64_t row = begin;
  std::uint64_t index = 0;
  try {
    if (state.epoch != position.epoch) {
      dataset_->check_unchanged();
      state.epoch = position.epoch;
    }
    // Local: a parked worker must not keep an old permutation in memory.
    const EpochOrder order = order_.epoch(position.epoch);
    for (; row < end && !stop(); ++row) {
      if (row >= samples) {
        pad_row(row, slot);
        continue;
      }
      index = order.at(place_of(position, row));
      hint(position, row, order);
      try {
        const std::uint64_t from = now_ns();
        make_row(index, position, row, slot, state);
        state.slowest.add(now_ns() - from, index);
      } catch (const DataError& error) {
        bad.push_back(bad_sample(index, position, row, error.what()));
        if (options_.errors == DataErrors::fail) break;
      }
    }
  } catch (...) {
    bad.push_back(bad_sample(index, position, row, caught_text()));
    bad.back().fatal = true;
  }
  measured.end(std::max<std::int64_t>(0, std::min(row, samples) - begin));
}

// Asks the system to read ahead a sample that this rank needs later. Rows of one claim are
// neighbours in the batch, and the distance is longer than a claim.
void ImageBatches::hint(Position position, std::int64_t row, const EpochOrder& order) const {
  if (is_resident_) return;
  const auto batch = static_cast<std::uint64_t>(options_.batch);
  const std::uint64_t ahead =
      position.step * batch + static_cast<std::uint64_t>(row) + hint_distance;
  const std::uint64_t place =
      place_of({position.epoch, ahead / batch}, static_cast<std::int64_t>(ahead % batch));
  if (ahead / batch < steps_ && place < dataset_->size()) dataset_->will_need(order.at(place));
}

void ImageBatches::pad_row(std::int64_t row, const SlotView& slot) const {
  const auto image = image_of(slot, row);
  std::fill(image.begin(), image.end(), std::uint8_t{0});
  slot.labels[idx(row)] = -1;
  slot.plans[idx(row)] = {.source = static_cast<std::uint32_t>(is_resident_ ? 0 : row)};
  if (!options_.pixels) return;
  // As the step makes it of black bytes: the statistics of batch norms have this row, too.
  const std::vector<std::uint8_t> black(idx(shape_.count()));
  RowPlan of_bytes = slot.plans[idx(row)];
  of_bytes.source = 0;
  const ImageExtent extent{shape_[0], shape_[1]};
  apply_pixels(*options_.pixels, std::span(&of_bytes, 1), 0, black.data(), extent, extent,
               reinterpret_cast<float*>(image.data()));
}

void ImageBatches::make_row(std::uint64_t index, Position position, std::int64_t row,
                            const SlotView& slot, MakerState& state) const {
  const record::Span span(spans::sample, ticket(position, row));
  const Draw draw(options_.seed, position.epoch, index);
  RowPlan& plan = slot.plans[idx(row)];
  plan = {};
  plan.source = static_cast<std::uint32_t>(is_resident_ ? index : static_cast<std::uint64_t>(row));
  if (plans_rows_) options_.recipe.row(plan, draw, {shape_[0], shape_[1]});
  slot.labels[idx(row)] = dataset_->label(index);
  if (is_resident_)
    gather_row(draw, plan);
  else
    decode_row(index, draw, plan, image_of(slot, row), state);
}

// The window of the resident image that the step gathers.
void ImageBatches::gather_row(const Draw& draw, RowPlan& plan) const {
  const Geometry geometry = options_.recipe.geometry(dataset_->image_shape(), draw);
  const std::int64_t y = geometry.source.y + geometry.out.y, x = geometry.source.x + geometry.out.x;
  constexpr std::int64_t most = std::numeric_limits<std::int16_t>::max();
  if (geometry.resizes() || geometry.kept || geometry.out.height != shape_[0] ||
      geometry.out.width != shape_[1] || std::abs(y) > most || std::abs(x) > most)
    fail<UsageError>("transforms '{}' cannot be gathered from a resident set; use --tier mapped",
                     options_.recipe.text());
  plan.y = static_cast<std::int16_t>(y);
  plan.x = static_cast<std::int16_t>(x);
  plan.mirrored = geometry.mirrored ? 1 : 0;
}

void ImageBatches::decode_row(std::uint64_t index, const Draw& draw, const RowPlan& plan,
                              std::span<std::uint8_t> image, MakerState& state) const {
  const Sample sample = dataset_->fetch(index, state.developer.scratch);
  const std::string name =
      sample.encoding == Encoding::pixels ? std::string() : dataset_->name(index);
  const Shape shape = decoded_shape(sample, name);
  const Geometry geometry =
      row_geometry(*dataset_, index, shape, options_.recipe, draw, shape_, options_.evaluates);
  std::span<std::uint8_t> bytes = image;
  if (options_.pixels) {
    state.bytes.resize(idx(shape_.count()));
    bytes = state.bytes;
  }
  develop(sample, name, shape, geometry, shape_[2], state.developer, bytes);
  options_.recipe.apply({bytes, shape_[0], shape_[1], shape_[2]}, draw, state.transforms_ns);
  if (!options_.pixels) return;
  const std::uint64_t begin = now_ns();
  RowPlan from_bytes = plan;
  from_bytes.source = 0;
  const ImageExtent extent{shape_[0], shape_[1]};
  apply_pixels(*options_.pixels, std::span(&from_bytes, 1), 0, bytes.data(), extent, extent,
               reinterpret_cast<float*>(image.data()));
  add(state.times.pixels_ns, record::note_since(spans::pixels, begin));
}

void ImageBatches::finish(Position position, std::span<std::byte> memory, MakerState&,
                          std::vector<BadSample>& bad) const {
  const SlotView slot(memory, layout_, options_.batch);
  std::sort(bad.begin(), bad.end(),
            [](const BadSample& a, const BadSample& b) { return a.row < b.row; });
  const bool fails = std::any_of(bad.begin(), bad.end(), [](const auto& b) { return b.fatal; });
  if (fails || (!bad.empty() && options_.errors == DataErrors::fail)) return;
  if (!bad.empty()) replace_bad(slot, rows_of(position), bad);
  if (options_.recipe.mixes()) pair_neighbours(slot);
}

void ImageBatches::replace_bad(const SlotView& slot, std::int64_t samples,
                               std::vector<BadSample>& bad) const {
  std::vector<char> is_bad(idx(samples));
  for (const BadSample& sample : bad) is_bad[idx(sample.row)] = 1;
  for (BadSample& sample : bad) {
    const std::int64_t row = sample.row;
    // An evaluation would count the copied row twice.
    const bool copied = options_.errors == DataErrors::skip && !options_.evaluates &&
                        copy_good_row(slot, row, is_bad);
    if (!copied &&
        (options_.errors == DataErrors::mask || options_.evaluates || options_.tail == Tail::pad)) {
      pad_row(row, slot);
    } else if (!copied) {
      sample.message +=
          "; every sample of this batch is broken: nothing to substitute; use --data-errors mask";
      sample.fatal = true;
      return;
    }
    if (!is_resident_) slot.plans[idx(row)].source = static_cast<std::uint32_t>(row);
  }
}

// Overwrites `row` with the next good row, counted round the batch; false when there is none.
bool ImageBatches::copy_good_row(const SlotView& slot, std::int64_t row,
                                 const std::vector<char>& is_bad) const {
  const auto samples = static_cast<std::int64_t>(is_bad.size());
  for (std::int64_t distance = 1; distance < samples; ++distance) {
    const std::int64_t good = (row + distance) % samples;
    if (is_bad[idx(good)]) continue;
    std::memcpy(image_of(slot, row).data(), image_of(slot, good).data(), layout_.row_bytes);
    slot.labels[idx(row)] = slot.labels[idx(good)];
    slot.plans[idx(row)] = slot.plans[idx(good)];
    return true;
  }
  return false;
}

// Rows 2i and 2i + 1 mix with each other. Rows are in random order, so any fixed pairs do; ranks
// hold whole pairs of even batches, so both rows of a pair are in the same batch of every world
// size.
void ImageBatches::pair_neighbours(const SlotView& slot) {
  const std::size_t rows = slot.labels.size();
  for (std::size_t row = 0; row < rows; ++row) {
    RowPlan& plan = slot.plans[row];
    const std::size_t neighbour = row % 2 == 0 ? row + 1 : row - 1;
    const bool mixes = neighbour < rows && slot.labels[row] >= 0 && slot.labels[neighbour] >= 0;
    const std::size_t pair = mixes ? neighbour : row;
    if (!mixes) plan.weight = 1;
    plan.pair = static_cast<std::uint32_t>(pair);
    plan.pair_label = slot.labels[pair];
  }
}

}  // namespace warpstep::data
