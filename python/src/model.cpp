#include "python/src/model.h"

#include <fmt/ranges.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/load/image_batches.h"
#include "data/load/loader.h"
#include "data/load/plugin.h"
#include "engine/core/error.h"
#include "engine/files/checkpoint.h"
#include "engine/files/safetensors_values.h"
#include "engine/files/weights.h"
#include "engine/passes/compile.h"
#include "engine/run/evaluate.h"
#include "engine/run/feeder.h"
#include "models/build.h"
#include "models/plugin.h"
#include "python/src/tensor.h"

namespace warpstep::python {

namespace nb = nanobind;

namespace {

using Image = nb::ndarray<const std::uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

Shape shape_of(const Image& image) {
  return {static_cast<std::int64_t>(image.shape(0)), static_cast<std::int64_t>(image.shape(1)),
          static_cast<std::int64_t>(image.shape(2))};
}

// Images of the caller, which it keeps alive.
class GivenImages final : public data::Dataset {
 public:
  struct Entry {
    std::span<const std::uint8_t> pixels;
    Shape shape;
  };

  explicit GivenImages(std::vector<Entry> entries) : entries_(std::move(entries)) {}

  std::string kind() const override { return "images in memory"; }
  std::string path() const override { return "predict"; }
  Shape image_shape() const override { return entries_.front().shape; }
  std::uint64_t size() const override { return entries_.size(); }
  std::int32_t label(std::uint64_t) const override { return 0; }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::string name(std::uint64_t index) const override { return fmt::format("image {}", index); }
  std::uint64_t fingerprint() const override { return 0; }
  data::Sample fetch(std::uint64_t index, data::Scratch&) const override {
    return {entries_[index].pixels, data::Encoding::pixels, entries_[index].shape};
  }

 private:
  std::vector<Entry> entries_;
  std::vector<std::string> classes_{"none"};
};

struct ModelRequest {
  std::string model, plugin;
  std::vector<std::int64_t> image;  // [H, W, C] of the images in the data set; empty: the model's
  std::int64_t classes = 10;
  std::string transforms;         // without chance; empty: none; "auto": the model's
  std::string of_statistics;      // the same of the images that mean and std are of
  std::vector<double> mean, std;  // of x / 255
  std::string precision = "fp32", device = "auto";
  std::string weights;         // file
  bool is_checkpoint = false;  // the file is one of a run; with its average, if there is one
  bool allow_missing = false;
  std::int64_t batch = 32;
  int threads = 0;
};

std::shared_ptr<Backend> open_device(const ModelRequest& request) {
  const BackendOptions options{.threads = request.threads};
  if (request.device != "auto") return open_backend(request.device, options);
  try {
    return open_backend("cuda", options);
  } catch (const DeviceError&) {
    return open_backend("cpu", options);
  }
}

// The forward half of a model with its weights.
class Model {
 public:
  explicit Model(const ModelRequest& request);

  // Probabilities [images, classes], f32. NumericError for logits that are not finite.
  Tensor predict(const std::vector<Image>& images);
  // The report of loading where not all is as it should be; else empty.
  nb::bytes load_warning() const;

 private:
  void build(const models::Model& model, std::int64_t channels);
  void require_readable(std::size_t number, const Shape& shape) const;
  std::vector<float> logits_of(std::shared_ptr<const data::Dataset> images);

  ModelRequest request_;
  data::Recipe recipe_;
  PixelPlan pixels_;
  Shape row_;
  std::shared_ptr<Backend> backend_;
  // Of the program, for which Python's lock is given up; and the process that has it. A thread that
  // held it at a fork does not exist in the forked process.
  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();
  pid_t process_ = ::getpid();
  std::unique_ptr<Program> program_;
  std::unique_ptr<Runner> runner_;
  LoadReport report_;  // of other weights than a run's
};

Model::Model(const ModelRequest& request) : request_(request) {
  const nb::gil_scoped_release unlocked;
  if (!request_.plugin.empty())
    load_plugin(request_.plugin, {models::add_plugin, data::add_plugin});
  const models::Model& model = models::find(request_.model);
  if (model.is_text())
    fail<UsageError>("{} is a model of text, and predict() is for images: use `warpstep sample`",
                     request_.model);
  const auto recipe_of = [&](const std::string& text) {
    const std::string own = text == "auto" ? std::string(model.transforms) : text;
    return (own.empty() ? data::Recipe() : data::Recipe(own)).for_evaluation();
  };
  recipe_ = recipe_of(request_.transforms);
  Shape stored = model.image;
  if (request_.image.size() == 3)
    stored = {request_.image[0], request_.image[1], request_.image[2]};
  const ImageExtent extent = recipe_.extent(stored);
  row_ = {extent.height, extent.width, stored[2]};
  if (recipe_.normalizes() && (request_.mean.empty() || request_.std.empty()))
    fail<UsageError>(
        "give the mean and std that these weights were trained with; torchvision's "
        "are (0.485, 0.456, 0.406) and (0.229, 0.224, 0.225)");
  data::require_channels_of(recipe_of(request_.of_statistics), recipe_);
  pixels_ = recipe_.pixels(static_cast<int>(row_[2]), request_.mean, request_.std);
  build(model, row_[2]);
}

void Model::build(const models::Model& model, std::int64_t channels) {
  backend_ = open_device(request_);
  models::BuildOptions options{.batch = request_.batch,
                               .image = row_,
                               .classes = request_.classes,
                               .mean = {request_.mean.begin(), request_.mean.end()},
                               .std = {request_.std.begin(), request_.std.end()}};
  options.uploaded = backend_->steps_in_flight() > 0;
  if (options.mean.empty()) options.mean.assign(idx(channels), 0.5F);
  if (options.std.empty()) options.std.assign(idx(channels), 0.25F);
  if (!recipe_.is_plain()) {
    options.images = models::Images::window;
    options.pixels = pixels_;
  }
  StepOptions step{.training = false, .precision = parse_precision(request_.precision)};
  program_ = std::make_unique<Program>(
      compile_step(models::build(model, options), options_for(*backend_, step)), backend_);
  Store& store = program_->store();
  if (request_.allow_missing)
    store.initialize(0);
  else
    store.initialize_buffers();
  if (request_.is_checkpoint)
    load_parameters(request_.weights, store, true);
  else
    report_ = load_weights(
        request_.weights, store,
        {.allow_missing = request_.allow_missing, .rules = models::weight_rules_of(model)});
  runner_ = eager_runner(*program_);
}

nb::bytes Model::load_warning() const {
  const bool left_average = report_.ignored_kinds.contains(fmt::format("{}*", average_prefix));
  if (report_.is_whole() && report_.not_finite.empty() && !left_average) return nb::bytes("", 0);
  const std::string text = fmt::format("{}", fmt::join(report_.lines(), "\n"));
  return nb::bytes(text.data(), text.size());
}

std::vector<float> Model::logits_of(std::shared_ptr<const data::Dataset> images) {
  const auto count = static_cast<std::int64_t>(images->size());
  data::LoaderOptions with;
  with.batch = request_.batch;
  with.workers = 1;
  with.prefetch = 2;
  with.shuffle = data::Shuffle::none;
  with.tail = data::Tail::pad;
  with.evaluates = true;
  with.recipe = recipe_;
  data::Loader loader(std::move(images), with);
  std::optional<Feeder> feeder;
  if (backend_->steps_in_flight() > 0) feeder.emplace(loader, *backend_, program_->stream());
  BatchSource& batches = feeder ? static_cast<BatchSource&>(*feeder) : loader;
  std::vector<float> logits;
  for (std::int64_t first = 0; first < count; first += request_.batch) {
    {
      const std::lock_guard lock(*mutex_);
      give_batch(*program_, batches.next());
      runner_->step();
      const std::vector<float> rows = program_->read(program_->graph().logits);
      const std::int64_t used = std::min(request_.batch, count - first) * request_.classes;
      logits.insert(logits.end(), rows.begin(), rows.begin() + used);
    }
    const nb::gil_scoped_acquire locked;  // without the mutex: a signal's handler may predict
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
  return logits;
}

void softmax(std::span<float> row) {
  const float largest = std::ranges::max(row);
  double sum = 0;
  for (float& value : row) sum += value = std::exp(value - largest);
  for (float& value : row) value = static_cast<float>(value / sum);
}

// What makes images of so many channels, for an error.
std::string_view conversion_to(std::int64_t channels) {
  switch (channels) {
    case 1: return "; convert it with Pillow's image.convert('L')";
    case 3: return "; convert it with Pillow's image.convert('RGB')";
    case 4: return "; convert it with Pillow's image.convert('RGBA')";
    default: return "";
  }
}

// The channels apart from the size: no transform that resizes changes them.
void Model::require_readable(std::size_t number, const Shape& shape) const {
  if (shape.count() == 0)
    fail<ShapeError>("image {} is {} (height x width x channels): it has no pixels", number,
                     shape.text());
  const std::int64_t channels = row_[2];
  if (shape[2] != channels)
    fail<ShapeError>(
        "image {} has {} channel{} ({}: height x width x channels), but the model reads {}{}",
        number, shape[2], shape[2] == 1 ? "" : "s", shape.text(), channels,
        shape[2] > 4 && shape[0] == channels ? "; put the channels last: image.transpose(1, 2, 0)"
                                             : conversion_to(channels));
  const ImageExtent rows = recipe_.extent(shape);
  if (rows.height != row_[0] || rows.width != row_[1])
    fail<ShapeError>("image {} is {} (height x width x channels), but the model reads {}{}", number,
                     shape.text(), row_.text(),
                     recipe_.sets_extent() ? " after " + recipe_.text()
                                           : "; give transforms that resize, such as "
                                             "'resize=256,centre-crop=224'");
}

Tensor Model::predict(const std::vector<Image>& images) {
  const auto classes = request_.classes;
  const auto count = static_cast<std::int64_t>(images.size());
  auto probabilities = std::make_shared<std::vector<float>>();
  std::vector<GivenImages::Entry> entries;
  for (const Image& image : images) {
    entries.push_back({std::span(image.data(), image.size()), shape_of(image)});
    require_readable(entries.size() - 1, entries.back().shape);
  }
  if (std::exchange(process_, ::getpid()) != ::getpid()) {
    static_cast<void>(mutex_.release());
    mutex_ = std::make_unique<std::mutex>();
  }
  if (count > 0) {
    const nb::gil_scoped_release unlocked;
    *probabilities = logits_of(std::make_shared<GivenImages>(std::move(entries)));
    for (std::int64_t row = 0; row < count; ++row) {
      const auto logits = std::span(*probabilities).subspan(idx(row * classes), idx(classes));
      if (!std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); }))
        fail<NumericError>(
            "image {}: the model's output has infinite values or NaN; its weights may have some, "
            "or need another precision",
            row);
      softmax(logits);
    }
  }
  auto* first = reinterpret_cast<std::byte*>(probabilities->data());
  return row_major({std::move(probabilities), first}, f32, {count, classes});
}

}  // namespace

void declare_model(nb::module_& module) {
  nb::class_<ModelRequest>(module, "ModelRequest")
      .def(nb::init<>())
      .def_rw("model", &ModelRequest::model)
      .def_rw("plugin", &ModelRequest::plugin)
      .def_rw("image", &ModelRequest::image)
      .def_rw("classes", &ModelRequest::classes)
      .def_rw("transforms", &ModelRequest::transforms)
      .def_rw("of_statistics", &ModelRequest::of_statistics)
      .def_rw("mean", &ModelRequest::mean)
      .def_rw("std", &ModelRequest::std)
      .def_rw("precision", &ModelRequest::precision)
      .def_rw("device", &ModelRequest::device)
      .def_prop_rw(
          "weights",
          [](const ModelRequest& r) { return nb::bytes(r.weights.data(), r.weights.size()); },
          [](ModelRequest& r, const nb::bytes& file) {
            r.weights.assign(file.c_str(), file.size());
          })
      .def_rw("is_checkpoint", &ModelRequest::is_checkpoint)
      .def_rw("allow_missing", &ModelRequest::allow_missing)
      .def_rw("batch", &ModelRequest::batch)
      .def_rw("threads", &ModelRequest::threads);
  nb::class_<Model>(module, "Model")
      .def(nb::init<const ModelRequest&>())
      .def("predict", &Model::predict)
      .def_prop_ro("load_warning", &Model::load_warning);
  module.def("model_names", [] {
    std::vector<std::string> names;
    for (const models::Model& model : models::zoo()) names.emplace_back(model.name);
    return names;
  });
  module.def("model_transforms",
             [](const std::string& model) { return std::string(models::find(model).transforms); });
}

}  // namespace warpstep::python
