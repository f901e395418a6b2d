// How a run's data reach its step: set, recipe, tier, loader, and the copy to the device.
#pragma once

#include <memory>
#include <string>

#include "data/formats/cached.h"
#include "data/formats/dataset.h"
#include "data/load/loader.h"
#include "engine/run/feeder.h"
#include "engine/run/program.h"
#include "models/zoo.h"
#include "tools/warpstep/options.h"

namespace warpstep::tools {

// A data set's split on its way; members in the order in which they must be made.
struct Source {
  std::shared_ptr<const data::Dataset> dataset;  // as it is stored
  data::Recipe recipe;
  data::TierChoice tier;
  data::Encoding encoding = data::Encoding::pixels;  // of the samples as stored
  std::shared_ptr<const data::Dataset> read;  // what the loader reads: with its decoded images kept
  std::shared_ptr<std::byte> resident;        // the set in the device's memory
  PixelPlan pixels;
  std::unique_ptr<data::SlotMemory> slots;  // of a device
  std::unique_ptr<data::Loader> loader;
  std::unique_ptr<Feeder> feeder;  // beside a device with its own memory

  BatchSource& batches() { return feeder ? static_cast<BatchSource&>(*feeder) : *loader; }
  Shape row_shape() const;  // of what the model sees
};

// Opens a split. The recipe is the options' or `model`'s: that of the split `as`, which for test is
// without chance.
Source open_source(const RunOptions& options, const models::Model& model, data::Split split,
                   data::Split as);

// Mean and std of the channels: --mean and --std, or measured, unless neither recipe needs them.
void resolve_normalization(RunOptions& options, const Source& training, const Source& test);

// Chooses the tier and starts the loader. As training split it shuffles and drops the tail; as test
// split it does neither and pads it. `passes` over the set are to come; 0: many.
void start_loader(Source& source, const RunOptions& options, data::Split as,
                  const std::shared_ptr<Backend>& backend, std::uint64_t passes);

// Begins to copy batches for the steps of `program`, where its device has memory of its own.
void start_feeder(Source& source, const Program& program);

// Throws UsageError when both together may take more than --memory.
void require_memory(const RunOptions& options, const Source& training, const Source& test);

models::BuildOptions build_options(const RunOptions& options, const Source& source,
                                   const Backend& backend);

// One line on where the images are and what loading them may take.
std::string describe(const Source& source);
// One line on how loading went.
std::string diagnosis(const Source& source);

}  // namespace warpstep::tools
