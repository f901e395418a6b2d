// What --resume names, and whether the run can go on from it.
#pragma once

#include <filesystem>
#include <string>

#include "data/formats/dataset.h"
#include "tools/warpstep/run_directory.h"
#include "tools/warpstep/run_options.h"

namespace warpstep::tools {

struct Resumed {
  std::filesystem::path run;         // directory
  std::filesystem::path checkpoint;  // in it
  Json config;                       // as saved with it
  RunOptions options;                // the run's own, checked
};

// The run directory that --resume names by itself or by a checkpoint in it.
std::filesystem::path run_of(const std::filesystem::path& spec);

// `spec` is a run directory, then its newest checkpoint counts, or one checkpoint of a run.
// DataError when there is none or it is broken; then it names an older one to go on from. `typed`
// is what `app` was given now, see stored_options().
Resumed find_resumed(const std::filesystem::path& spec, const CLI::App& app,
                     const RunOptions& typed);

// The fields of config.json by which a data set is told from another.
Json data_json(const RunOptions& options, const data::Dataset& training, const data::Dataset& test);

// A run goes on with the data, the model and the optimiser that it began with: DataError or
// UsageError otherwise. Files that were written to since, as far as a sample of the bytes shows
// without a change, are named on stderr.
void require_same_data(const Resumed& resumed, const Json& data, const data::Dataset& training,
                       const data::Dataset& test);
void require_same_run(const Resumed& resumed, const RunOptions& options);

// Fills the store. A run may go on in another precision, which is said on stderr: loss scaling
// starts afresh then. DataError when the file is broken, with an older one to go on from;
// UsageError when it stands in mid-epoch and the options would draw other batches for the rest of
// it.
Progress load_resumed(const Resumed& resumed, const RunOptions& options, Store& store);

}  // namespace warpstep::tools
