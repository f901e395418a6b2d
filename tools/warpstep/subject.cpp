#include "tools/warpstep/subject.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "data/transforms/recipe.h"
#include "engine/core/error.h"
#include "engine/core/json_text.h"
#include "engine/files/checkpoint.h"
#include "models/build.h"
#include "models/zoo.h"
#include "tools/warpstep/checkpoint_files.h"
#include "tools/warpstep/huggingface.h"

namespace warpstep::tools {

namespace fs = std::filesystem;

void declare_subject(const Parser& parser, SubjectRequest& request) {
  parser.add({.name = "run",
              .variable = &request.run,
              .help = "run directory, or a checkpoint of one; with --weights also a model's name",
              .required = true});
  parser.add({.name = "--checkpoint",
              .variable = &request.checkpoint,
              .help = "checkpoint of the run directory: last, best or a file"});
  declare_start_weights(parser, request.weights);
  parser.add({.name = "--no-ema",
              .variable = &request.raw_weights,
              .help = "use the weights themselves even if the checkpoint has their average"});
}

namespace {

// Other contexts are only for weights that are not trained yet.
void require_context(const RunOptions& options) {
  const models::Model& model = models::find(options.model);
  if (!model.is_text()) return;
  const std::int64_t context =
      models::resolve_settings(model, options.model_option).whole_or("context", 0);
  if (context > 0 && options.sequence > context)
    fail<UsageError>(
        "--sequence {}: the weights were trained with a context of {}; give at most {}",
        options.sequence, context, context);
}

}  // namespace

Subject::Subject(const Parser& parser, const SubjectRequest& request, const RunOptions& typed,
                 std::initializer_list<std::string_view> handled)
    : options(typed), request_(request), checkpoint_given_(parser.given("--checkpoint")) {
  check_start_weights(request.weights, false);
  const bool weights = !request.weights.file.empty();
  const bool is_model = std::ranges::any_of(
      models::zoo(), [&](const models::Model& model) { return model.name == request.run; });
  if (weights ? is_model || !fs::exists(request.run) : is_model && !fs::exists(request.run)) {
    options.model = models::find(request.run).name;
    if (!weights)
      fail<UsageError>("{} is a model, not a run; give its weights: --weights FILE", request.run);
    adopt_config_beside(request.weights, options);
    require_context(options);
    return;
  }
  checkpoint_ = chosen();
  of_checkpoint_that_stays([&] {
    config_ = std::make_shared<const Json>(
        parse_json<Json>(read_checkpoint_info(checkpoint_).config_json));
  });
  const std::string file = checkpoint_.string();
  stored_ = stored_options(*config_, file, parser, typed);
  options = merged(parser, typed, stored_, handled);
  // A config.json beside the weights counts more than the run's options, but not than typed ones.
  std::vector<std::string> of_run;
  if (weights && !parser.given("--model-option")) of_run = std::exchange(options.model_option, {});
  adopt_config_beside(request.weights, options);
  if (options.model_option.empty()) options.model_option = std::move(of_run);
  require_context(options);
  require_channels_of_run(parser, stored_, options, {data::Split::test});
}

fs::path Subject::file() const {
  return request_.weights.file.empty() ? checkpoint_ : fs::path(request_.weights.file);
}

void Subject::load(Store& store) {
  if (request_.weights.allow_missing)
    store.initialize(0);
  else
    store.initialize_buffers();  // some are in no file: the loss's class weights
  if (request_.weights.file.empty())
    of_checkpoint_that_stays([&] { load_parameters(checkpoint_, store, !request_.raw_weights); });
  else
    load_start_weights(request_.weights, options.model, store);
}

fs::path Subject::chosen() const {
  if (fs::is_regular_file(request_.run) && !checkpoint_given_) return request_.run;
  return chosen_checkpoint(request_.run, request_.checkpoint);
}

// A run in progress removes its older checkpoints: if the chosen one disappears meanwhile, the
// newest one is chosen again.
void Subject::of_checkpoint_that_stays(const std::function<void()>& read) {
  constexpr int most_tries = 20;
  for (int tries = 1;; ++tries) try {
      return read();
    } catch (const DataError&) {
      if (tries == most_tries || fs::exists(checkpoint_)) throw;
      checkpoint_ = chosen();
    }
}

std::optional<Shape> parse_image_shape(const std::string& text) {
  std::array<std::int64_t, 3> sides{};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (std::int64_t& side : sides) {
    const auto [next, error] = std::from_chars(at, end, side);
    if (error != std::errc() || side < 1 || side > data::max_image_side) return std::nullopt;
    at = next == end ? end : next + 1;
  }
  return Shape{sides[0], sides[1], sides[2]};
}

namespace {

std::optional<Shape> image_of(const Json& config) {
  return parse_image_shape(fields::text(fields::child(config, "data"), "image_shape"));
}

}  // namespace

std::optional<Shape> Subject::trained_image() const {
  return is_run() ? image_of(*config_) : std::nullopt;
}

std::optional<Shape> Subject::trained_row() const {
  return is_run() ? trained_row_of(*config_, stored_) : std::nullopt;
}

std::optional<Shape> trained_row_of(const Json& config, const RunOptions& stored) {
  const std::optional<Shape> image = image_of(config);
  if (!image) return std::nullopt;
  const ImageExtent row = data::Recipe(training_transforms(stored)).extent(*image);
  return Shape{row.height, row.width, (*image)[2]};
}

namespace {

std::vector<Shape> weight_shapes(const RunOptions& options, const Source& source, Shape row) {
  const Graph graph =
      models::build(models::find(options.model),
                    {.batch = options.batch,
                     .image = row,
                     .classes = static_cast<std::int64_t>(source.dataset->classes().size())});
  std::vector<Shape> shapes;
  for (const Parameter& parameter : graph.parameters)
    shapes.push_back(graph.value(parameter.value).type.shape);
  return shapes;
}

// "resize=48 makes images of 48x48x3", by the last transform that changes the size.
std::string maker_of_size(const Source& source) {
  const Shape image = source.dataset->image_shape(), row = source.row_shape();
  ImageExtent extent{image[0], image[1]};
  std::string maker;
  for (const data::TransformPtr& transform : source.recipe.transforms()) {
    const ImageExtent before = extent;
    extent = transform->extent(before);
    if (extent != before) maker = transform->text();
  }
  return maker.empty() ? fmt::format("images stay {}", row.text())
                       : fmt::format("{} makes images of {}", maker, row.text());
}

// "--eval-transforms resize=48", if the user gave the transforms of the rows; else "".
std::string given_transforms(const Parser& parser, const RunOptions& options) {
  if (parser.given("--eval-transforms") && options.eval_transforms != "auto")
    return "--eval-transforms " + options.eval_transforms;
  if (parser.given("--transforms") && options.eval_transforms == "auto")
    return "--transforms " + options.transforms;
  return {};
}

}  // namespace

void require_trained_size(const RunOptions& options, const Source& source, const Shape& trained,
                          const std::string& by, std::string_view option, bool leave_out) {
  const Shape row = source.row_shape();
  if ((row[0] == trained[0] && row[1] == trained[1]) ||
      weight_shapes(options, source, row) ==
          weight_shapes(options, source, {trained[0], trained[1], row[2]}))
    return;
  fail<UsageError>(
      "{}: {}, but the model was trained on images of {} and has other weights for other sizes; "
      "scale them to that size, {} resize={}x{}{}",
      by, maker_of_size(source), trained.text(), option, trained[0], trained[1],
      leave_out ? fmt::format(", or leave out {}", by.substr(0, by.find(' '))) : "");
}

// Weights that do not fit are often those for images of another size.
void load_weights_for(const Parser& parser, const Source& source, Subject& subject,
                      Store& store) try {
  subject.load(store);
} catch (const DataError& error) {
  if (source.is_text()) throw;
  const std::string given = given_transforms(parser, subject.options);
  const Shape row = source.row_shape(), image = source.dataset->image_shape();
  if (!subject.is_run())
    fail<DataError>(
        "{}; the model is made for the data: images of {}{} in {} classes. If the weights are for "
        "another size, scale the images with --eval-transforms resize=HEIGHTxWIDTH",
        error.what(), row.text(), given.empty() ? "" : fmt::format(" (by {})", given),
        source.dataset->classes().size());
  const std::optional<Shape> trained_image = subject.trained_image(),
                             trained = subject.trained_row();
  if (!trained) throw;
  if (!given.empty())
    require_trained_size(subject.options, source, *trained, given, "--eval-transforms",
                         image == *trained_image);
  if (image == *trained_image) throw;
  fail<DataError>(
      "the run was trained on images of {}, and those of {} have {}, for which the model has other "
      "weights: scale them with --eval-transforms resize={}x{} ({})",
      trained_image->text(), source.dataset->path(), image.text(), (*trained_image)[0],
      (*trained_image)[1], error.what());
}

}  // namespace warpstep::tools
