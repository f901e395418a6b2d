#include "python/src/loader.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "data/formats/cached.h"
#include "data/load/image_batches.h"
#include "data/transforms/statistics.h"
#include "engine/core/error.h"

namespace warpstep::python {

namespace nb = nanobind;

namespace {

constexpr std::chrono::milliseconds signals_every{20};

data::Shuffle shuffle_of(const std::string& text) {
  if (text == "none") return data::Shuffle::none;
  if (text == "full") return data::Shuffle::full;
  if (text == "window") return data::Shuffle::window;
  fail<UsageError>("shuffle '{}': use True, False or 'window'", text);
}

data::DataErrors errors_of(const std::string& text) {
  if (text == "fail") return data::DataErrors::fail;
  if (text == "skip") return data::DataErrors::skip;
  if (text == "mask") return data::DataErrors::mask;
  fail<UsageError>("errors '{}': use fail, skip or mask", text);
}

data::Split split_of(const std::string& text) {
  if (text == "train") return data::Split::train;
  if (text == "test") return data::Split::test;
  fail<UsageError>("split '{}': use train or test", text);
}

void replace(std::string& text, std::string_view from, std::string_view to) {
  if (const std::size_t at = text.find(from); at != std::string::npos)
    text.replace(at, from.size(), to);
}

// A fix in a message about data names the program's options: here it names a Loader's arguments.
std::string with_arguments(std::string text) {
  constexpr std::string_view training = "--transforms ", test = ",normalize --eval-transforms ";
  const std::size_t begin = text.find(training);
  const std::size_t end = text.find(test, begin);
  if (begin != std::string::npos && end != std::string::npos) {
    const std::size_t first = begin + training.size();
    const std::string recipe = text.substr(first, end - first);
    const std::size_t past = std::min(text.find_first_of(" )", end + test.size()), text.size());
    text.replace(begin, past - begin, fmt::format("transforms='{}'", recipe));
  }
  replace(text, "--data-errors mask", "errors='mask'");
  replace(text, "--max-bad", "max_bad");
  return text;
}

// Batches of bytes have no place for what is computed after the bytes; mixing needs both rows.
void require_possible(const data::Recipe& recipe, bool floats) {
  using enum data::TransformStage;
  for (const data::TransformPtr& transform : recipe.transforms()) {
    const data::TransformStage stage = transform->stage();
    if (stage == mix)
      fail<UsageError>(
          "transform '{}': mix the rows in your training step; the loader gives them "
          "unmixed",
          transform->text());
    if (!floats && (stage == jitter || stage == mask || stage == colour))
      fail<UsageError>("transform '{}' makes floating-point numbers: use dtype='float32'",
                       transform->text());
  }
}

// Refuses a mean and std that would be ignored, or make no numbers.
void require_usable(const LoaderRequest& request, const data::Recipe& recipe) {
  if (request.mean.empty() && request.std.empty()) return;
  if (!request.floats)
    fail<UsageError>("mean and std have no effect on bytes: use dtype='float32'");
  if (!recipe.normalizes())
    fail<UsageError>("mean and std have no effect with the transform scale alone: add normalize");
  for (const double std : request.std)
    if (!(std > 0 && std::isfinite(std)))
      fail<UsageError>("std {}: must be finite and above 0", std);
  for (const double mean : request.mean)
    if (!std::isfinite(mean)) fail<UsageError>("mean {}: must be finite", mean);
}

std::shared_ptr<const data::Dataset> open_set(const LoaderRequest& request) {
  std::shared_ptr<const data::Dataset> stored = data::open(request.path, split_of(request.split));
  if (!request.keep_decoded) return stored;
  return std::make_shared<data::CachedDataset>(std::move(stored));
}

}  // namespace

Batches::Batches(const LoaderRequest& request) try : request_(request), process_(::getpid()) {
  const nb::gil_scoped_release unlocked;
  const data::Recipe recipe =
      request_.transforms.empty() ? data::Recipe() : data::Recipe(request_.transforms);
  require_possible(recipe, request_.floats);
  require_usable(request_, recipe);
  dataset_ = open_set(request_);
  row_ = data::row_shape(*dataset_, recipe);
  pool_ = std::make_shared<BlockPool>();
  data::LoaderOptions with = options();
  with.recipe = recipe;
  if (request_.floats) {
    if (recipe.normalizes() && request_.mean.empty() && request_.std.empty()) {
      if (recipe.has("yuv"))
        fail<UsageError>(
            "mean and std are measured on the images, not on the channels of yuv: "
            "give both, or add the transform scale");
      const data::ChannelStatistics measured = data::channel_statistics(
          *dataset_,
          {.any_size = recipe.sets_extent(), .forgiven = with.errors != data::DataErrors::fail});
      request_.mean = measured.mean;
      request_.std = measured.std;
      std::ranges::replace(request_.std, 0.0, 1.0);  // of constant channels
    }
    with.pixels = recipe.pixels(static_cast<int>(row_[2]), request_.mean, request_.std);
  }
  loader_ = std::make_unique<data::Loader>(dataset_, with);
} catch (const DataError& error) {
  throw DataError(with_arguments(error.what()));
}

// A forked child has a copy of the loader without its threads: joining them would never end.
Batches::~Batches() {
  if (::getpid() != process_) static_cast<void>(loader_.release());
  if (loader_) close();
}

data::LoaderOptions Batches::options() {
  data::LoaderOptions with;
  with.batch = request_.batch;
  with.workers = request_.workers;
  with.prefetch = request_.prefetch;
  with.seed = request_.seed;
  with.shuffle = shuffle_of(request_.shuffle);
  with.shuffle_window = request_.shuffle_window;
  with.rank = request_.rank;
  with.world = request_.world;
  with.tail = request_.drop_last ? data::Tail::drop : data::Tail::pad;
  with.errors = errors_of(request_.errors);
  with.max_bad = request_.max_bad;
  with.start = {request_.epoch, request_.step};
  with.memory = pool_.get();
  return with;
}

data::Loader& Batches::open() const {
  if (::getpid() != process_)
    fail<UsageError>(
        "this loader belongs to process {}: its threads do not exist in a forked "
        "one; make a loader there",
        process_);
  if (!loader_) fail<UsageError>("this loader is closed");
  return *loader_;
}

void Batches::wait() {
  for (;;) {
    {
      const nb::gil_scoped_release unlocked;
      const std::lock_guard lock(mutex_);
      if (!loader_ || loader_->ready_within(signals_every)) return;
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

// Rows that are samples: without drop_last the last batch of an epoch may have fewer.
std::int64_t Batches::rows_of(Position position) const {
  if (request_.drop_last) return request_.batch;
  const auto batch = static_cast<std::uint64_t>(request_.batch);
  const std::uint64_t first = (position.step * request_.world + request_.rank) * batch;
  return static_cast<std::int64_t>(
      std::min(batch, dataset_->size() - std::min(first, dataset_->size())));
}

namespace {

// The block goes back where there is no batch for it.
const Batch& next_of(data::Loader& loader, BlockPool& pool, std::byte* block) {
  try {
    return loader.next();
  } catch (...) {
    pool.lend(block);
    throw;
  }
}

}  // namespace

nb::tuple Batches::next() try {
  open();
  wait();
  Tensor images, labels;
  {
    const nb::gil_scoped_release unlocked;
    const std::lock_guard lock(mutex_);
    // Memory first: where there is none, the batch stays the next one.
    const std::size_t bytes = open().batch_bytes();
    auto wide = std::make_shared<std::vector<std::int64_t>>();
    wide->reserve(static_cast<std::size_t>(request_.batch));
    std::byte* const block = pool_->take(bytes);
    const Batch& batch = next_of(*loader_, *pool_, block);
    const std::int64_t rows = rows_of(batch.position);
    const auto given = batch.get<std::int32_t>("labels");
    // PyTorch's losses take classes as int64.
    wide->assign(given.begin(), given.begin() + rows);
    auto* first = reinterpret_cast<std::byte*>(wide->data());
    labels = row_major({std::move(wide), first}, i64, {rows});
    const std::span<std::byte> slot = loader_->exchange({block, bytes});
    images = images_of(pool_->lend(slot.data()), rows);
  }
  return nb::make_tuple(std::move(images), std::move(labels));
} catch (const DataError& error) {
  throw DataError(with_arguments(error.what()));
}

Tensor Batches::images_of(std::shared_ptr<std::byte> memory, std::int64_t rows) const {
  Tensor images =
      row_major(std::move(memory), request_.floats ? f32 : u8, {rows, row_[0], row_[1], row_[2]});
  if (!request_.channels_first) return images;
  const auto to_first = [](std::vector<std::int64_t>& axes) {
    std::rotate(axes.begin() + 1, axes.end() - 1, axes.end());
  };
  to_first(images.shape);
  to_first(images.strides);
  return images;
}

// While another thread may close the loader. `work` makes no Python objects.
template <class Work>
auto Batches::locked(Work work) const {
  open();
  const nb::gil_scoped_release unlocked;
  const std::lock_guard lock(mutex_);
  return work(open());
}

void Batches::seek(std::uint64_t epoch, std::uint64_t step) {
  locked([&](data::Loader& loader) { loader.seek({epoch, step}); });
}

std::uint64_t Batches::steps_per_epoch() const {
  return locked([](data::Loader& loader) { return loader.steps_per_epoch(); });
}

nb::tuple Batches::position() const {
  const Position position = locked([](data::Loader& loader) { return loader.position(); });
  return nb::make_tuple(position.epoch, position.step);
}

void Batches::close() {
  if (::getpid() != process_) return;
  const nb::gil_scoped_release unlocked;
  const std::lock_guard lock(mutex_);
  loader_.reset();
}

std::vector<std::int64_t> Batches::row_shape() const {
  if (request_.channels_first) return {row_[2], row_[0], row_[1]};
  return {row_[0], row_[1], row_[2]};
}

nb::dict Batches::stats() const {
  const auto [stats, memory_bytes] = locked(
      [](data::Loader& loader) { return std::pair(loader.stats(), loader.memory().total()); });
  const auto seconds = [](std::uint64_t ns) { return static_cast<double>(ns) * 1e-9; };
  nb::dict stages, all;
  for (const data::StageTime& stage : stats.stages) stages[stage.name.c_str()] = seconds(stage.ns);
  all["batches"] = stats.batches;
  all["samples"] = stats.samples;
  all["bytes_read"] = stats.bytes;
  all["workers"] = stats.active;
  all["waited_s"] = seconds(stats.trainer_wait_ns);
  all["worker_stages_s"] = stages;
  all["bad_samples"] = stats.bad;
  all["most_memory_bytes"] = memory_bytes;
  return all;
}

namespace {

// As os.fsdecode() does: names of files are bytes, and those that are no UTF-8 become surrogates.
nb::object decoded(std::string_view name) {
  return nb::steal(
      PyUnicode_DecodeFSDefaultAndSize(name.data(), static_cast<Py_ssize_t>(name.size())));
}

}  // namespace

nb::list Batches::bad_samples() const {
  nb::list list;
  for (const data::BadSample& bad :
       locked([](data::Loader& loader) { return loader.bad_samples(); })) {
    nb::dict row;
    row["index"] = bad.index;
    row["epoch"] = bad.position.epoch;
    row["step"] = bad.position.step;
    row["row"] = bad.row;
    row["message"] = decoded(with_arguments(bad.message));
    list.append(row);
  }
  return list;
}

void declare_loader(nb::module_& module) {
  nb::class_<LoaderRequest> request(module, "LoaderRequest");
  request.def(nb::init<>())
      .def_prop_rw(
          "path", [](const LoaderRequest& r) { return decoded(r.path); },
          [](LoaderRequest& r, const nb::bytes& path) { r.path.assign(path.c_str(), path.size()); })
      .def_rw("split", &LoaderRequest::split)
      .def_rw("transforms", &LoaderRequest::transforms)
      .def_rw("batch", &LoaderRequest::batch)
      .def_rw("floats", &LoaderRequest::floats)
      .def_rw("channels_first", &LoaderRequest::channels_first)
      .def_rw("mean", &LoaderRequest::mean)
      .def_rw("std", &LoaderRequest::std)
      .def_rw("shuffle", &LoaderRequest::shuffle)
      .def_rw("shuffle_window", &LoaderRequest::shuffle_window)
      .def_rw("seed", &LoaderRequest::seed)
      .def_rw("drop_last", &LoaderRequest::drop_last)
      .def_rw("workers", &LoaderRequest::workers)
      .def_rw("prefetch", &LoaderRequest::prefetch)
      .def_rw("rank", &LoaderRequest::rank)
      .def_rw("world", &LoaderRequest::world)
      .def_rw("errors", &LoaderRequest::errors)
      .def_rw("max_bad", &LoaderRequest::max_bad)
      .def_rw("keep_decoded", &LoaderRequest::keep_decoded)
      .def_rw("epoch", &LoaderRequest::epoch)
      .def_rw("step", &LoaderRequest::step);
  nb::class_<Batches>(module, "Batches")
      .def(nb::init<const LoaderRequest&>())
      .def("next", &Batches::next)
      .def("seek", &Batches::seek)
      .def("position", &Batches::position)
      .def("stats", &Batches::stats)
      .def("bad_samples", &Batches::bad_samples)
      .def("close", &Batches::close)
      .def_prop_ro("steps_per_epoch", &Batches::steps_per_epoch)
      .def_prop_ro("row_shape", &Batches::row_shape)
      .def_prop_ro("samples", [](const Batches& b) { return b.dataset().size(); })
      .def_prop_ro("classes",
                   [](const Batches& b) {
                     nb::list names;
                     for (const std::string& name : b.dataset().classes())
                       names.append(decoded(name));
                     return names;
                   })
      .def_prop_ro("kind", [](const Batches& b) { return b.dataset().kind(); })
      .def_prop_ro("mean", &Batches::mean)
      .def_prop_ro("std", &Batches::std);
}

}  // namespace warpstep::python
