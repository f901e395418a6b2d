// The path of a run's data to its step: set, recipe, tier, loader, and the copy to the device.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>

#include "data/formats/cached.h"
#include "data/formats/dataset.h"
#include "data/load/loader.h"
#include "data/load/token_batches.h"
#include "engine/run/feeder.h"
#include "engine/run/program.h"
#include "models/build.h"
#include "models/zoo.h"
#include "tools/warpstep/json.h"
#include "tools/warpstep/options.h"

namespace warpstep::tools {

// A split on its way to the step; members in the order in which they must be created. Of text only
// `text`, `tokens`, `windows` and what feeds the step.
struct Source {
  std::shared_ptr<const data::TokenData> text;
  data::TokenSet tokens;  // the split's
  data::WindowOptions windows;
  std::shared_ptr<const data::Dataset> dataset;  // images as they are stored
  data::Recipe recipe;
  data::TierChoice tier;
  data::Encoding encoding = data::Encoding::pixels;  // of the samples as stored
  bool blends_alpha = false;                         // of images, with --alpha white or black
  std::shared_ptr<const data::Dataset> read;         // read by the loader: with decoded images kept
  std::shared_ptr<std::byte> resident;               // the set in the device's memory
  PixelPlan pixels;
  std::unique_ptr<data::SlotMemory> slots;  // of a device
  std::unique_ptr<data::Loader> loader;
  std::unique_ptr<Feeder> feeder;  // for a device with its own memory

  BatchSource& batches() { return feeder ? static_cast<BatchSource&>(*feeder) : *loader; }
  bool is_text() const { return text != nullptr; }
  std::string path() const { return is_text() ? tokens.path() : dataset->path(); }
  std::string kind() const;  // "PNG folder", "tokens (llm.c)"
  Shape row_shape() const;   // of an image as the model sees it
  // Whether pack --decode accepts the images, as some of them show, and keeps what the run reads:
  // it drops their alpha.
  bool can_store_pixels() const;
  std::uint64_t size() const { return is_text() ? tokens.size() : dataset->size(); }
};

// Whether a folder of images has both test/ and val/, of which only test/ is read.
bool has_unread_val(const std::string& folder);

// UsageError for --val-split of images that have a test part: of two, one would be ignored in
// silence.
void refuse_second_split(const RunOptions& options, const models::Model& model);

// Opens a split; of images without a test part, --val-split takes one from the training images. The
// recipe is the options' or `model`'s: that of the split `as`, which for test is
// without chance. `other`: the opened training part of the same options; of text, whose splits are
// opened together, its files are not read again. May be null.
Source open_source(const RunOptions& options, const models::Model& model, data::Split split,
                   data::Split as, const Source* other = nullptr);

// The same of images that are no split of the run's data.
Source source_of(const RunOptions& options, const models::Model& model,
                 std::shared_ptr<const data::Dataset> images, data::Split as);

// Of text: the vocabulary becomes that of the run with this `config`, because its model has as many
// tokens; data without a tokenizer.json count fewer. `from`: the run's checkpoint, for messages.
// Returns whether it was another one. DataError if the tokens have ids that the run does not know.
bool use_vocabulary_of_run(const Json& config, const std::string& from, const RunOptions& options,
                           Source& source);

// Tokens in a sequence of text: --sequence, or the model's context. UsageError if there is neither.
std::int64_t sequence_of(const RunOptions& options, const models::Model& model);

// The mean and std of a run are of the channels that its own transforms make. UsageError where
// those of `splits` that `now` normalises with them have yuv and the run's have not, or the
// reverse.
void require_channels_of_run(const Parser& parser, const RunOptions& run, const RunOptions& now,
                             std::initializer_list<data::Split> splits);

// Mean and std of the channels: --mean and --std, or measured, unless neither recipe needs them.
void resolve_normalization(RunOptions& options, const Source& training, const Source& test);

// Chooses the tier and starts the loader. As a training split it is shuffled and the tail dropped;
// as a test split it is not shuffled and the tail is padded. `passes` over the set will follow; 0:
// many. Of --memory, `others` bytes are for other loaders.
void start_loader(Source& source, const RunOptions& options, data::Split as,
                  const std::shared_ptr<Backend>& backend, std::uint64_t passes,
                  std::uint64_t others = 0);

// The most bytes that a loader of these images uses if it keeps none of them; 0 for text, and
// without --memory.
std::uint64_t least_memory(const Source& source, const RunOptions& options, data::Split as,
                           const Backend& backend);

// Before anything is written: DataError if the transforms cannot make a row of the set's first
// image, of a test split of any whose header is looked at.
void require_usable_recipe(const RunOptions& options, const Source& source, data::Split as);

// Starts copying batches for the steps of `program` if its device has its own memory.
void start_feeder(Source& source, const Program& program, std::uint64_t steps_per_launch = 1);

// Throws UsageError if both together may need more than --memory.
void require_memory(const RunOptions& options, const Source& training, const Source& test);

models::BuildOptions build_options(const RunOptions& options, const Source& source,
                                   const Backend& backend);

// One line: where the images are, and the most memory for loading.
std::string describe(const Source& source);
// "2 files of the training data skipped: README.txt, Thumbs.db"; empty if none were.
std::string passed_over_text(const Source& source);
// One line on how loading went.
std::string diagnosis(const Source& source);

}  // namespace warpstep::tools
