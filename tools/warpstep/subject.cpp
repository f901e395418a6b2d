#include "tools/warpstep/subject.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/core/json_text.h"
#include "engine/files/checkpoint.h"
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
    return;
  }
  checkpoint_ = chosen();
  of_checkpoint_that_stays([&] {
    config_ = std::make_shared<const nlohmann::ordered_json>(
        parse_json<nlohmann::ordered_json>(read_checkpoint_info(checkpoint_).config_json));
  });
  const std::string file = checkpoint_.string();
  options = merged(parser, typed, stored_options(*config_, file, parser, typed), handled);
  adopt_config_beside(request.weights, options);
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

}  // namespace warpstep::tools
