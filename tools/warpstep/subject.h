// Whose weights eval and sample compute with: a checkpoint's or a file's, with the options of the
// run that made them.
#pragma once

#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tools/warpstep/json.h"
#include "tools/warpstep/options.h"
#include "tools/warpstep/session.h"
#include "tools/warpstep/source.h"

namespace warpstep::tools {

struct SubjectRequest {
  std::string run;  // run directory, checkpoint, or with --weights a model's name
  std::string checkpoint = "last";
  StartWeights weights;
  bool raw_weights = false;  // --no-ema
};

// Declares `run`, --checkpoint, --weights, --allow-missing and --no-ema.
void declare_subject(const Parser& parser, SubjectRequest& request);

class Subject {
 public:
  // Options given to `parser`, with their values in `typed`, replace those of the run; `handled`
  // are those that the subcommand applies itself. Throws DataError and UsageError that name what is
  // missing or does not go together.
  Subject(const Parser& parser, const SubjectRequest& request, const RunOptions& typed,
          std::initializer_list<std::string_view> handled);

  RunOptions options;

  bool is_run() const { return !checkpoint_.empty(); }  // else a model with weights from a file
  const std::filesystem::path& checkpoint() const { return checkpoint_; }
  const Json& config() const { return *config_; }       // of a run
  const RunOptions& stored() const { return stored_; }  // of a run
  // The file with the weights.
  std::filesystem::path file() const;
  // Loads the parameters, or the average that the checkpoint has of them.
  void load(Store& store);
  // Of the images that a run trained on, as they were stored and as its model saw them; nothing of
  // a model without a run, or where the run's configuration does not say.
  std::optional<Shape> trained_image() const;
  std::optional<Shape> trained_row() const;

 private:
  void of_checkpoint_that_stays(const std::function<void()>& read);
  std::filesystem::path chosen() const;

  SubjectRequest request_;
  bool checkpoint_given_;
  std::filesystem::path checkpoint_;
  std::shared_ptr<const Json> config_;
  RunOptions stored_;  // the run's own, which no given option has replaced
};

// [32,32,3] of "32x32x3", as a run's configuration has it; nothing if the text is no shape of an
// image.
std::optional<Shape> parse_image_shape(const std::string& text);

// Of a run with this configuration and these options: an image as its model sees it in training.
std::optional<Shape> trained_row_of(const Json& config, const RunOptions& stored);

// UsageError if the rows of `source` have another size than `trained`, for which the model has
// other weights. The message begins with `by`, what the rows are due to, and advises `option`, or
// to leave out the one that `by` begins with.
void require_trained_size(const RunOptions& options, const Source& source, const Shape& trained,
                          const std::string& by, std::string_view option, bool leave_out);

// Loads the weights for rows of `source`. If they do not fit, the message names what made the rows
// another size than the model's: given transforms (UsageError), or images of another size
// (DataError).
void load_weights_for(const Parser& parser, const Source& source, Subject& subject, Store& store);

}  // namespace warpstep::tools
