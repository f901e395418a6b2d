// --resume: finds the checkpoint, and checks that the run can continue from it.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "tools/warpstep/json.h"
#include "tools/warpstep/options.h"
#include "tools/warpstep/run_directory.h"
#include "tools/warpstep/source.h"

namespace warpstep::tools {

struct Resumed {
  std::filesystem::path run;           // directory
  std::filesystem::path checkpoint;    // in it
  std::shared_ptr<const Json> config;  // as saved with it
  RunOptions options;                  // of the run, checked
  Progress progress;                   // where it continues
  // config.json, if a process began with another configuration and ended before it saved; or null.
  std::shared_ptr<const Json> unsaved;
  // With which the run continues: those of `unsaved` where --resume names the run, so that what was
  // typed for that process is not lost; otherwise those above.
  std::shared_ptr<const Json> latest_config;
  RunOptions latest;
};

// The run directory that --resume names by itself or by a checkpoint in it.
std::filesystem::path run_of(const std::filesystem::path& spec);

// `spec` is one checkpoint of a run, or a run directory, which means its newest checkpoint.
// DataError if there is none or it is broken; the message then names an older one. `parser` and
// `typed` are those of stored_options().
Resumed find_resumed(const std::filesystem::path& spec, const Parser& parser,
                     const RunOptions& typed);

// UsageError for a checkpoint in another folder, where the run would rename and remove files.
void require_run_directory(const Resumed& resumed);

// The fields of config.json that identify a data set.
Json data_json(const RunOptions& options, const Source& training, const Source& test);

// A run continues with the data, the model and the optimiser that it began with; otherwise
// DataError or UsageError. Files that were written since, but whose sampled bytes are unchanged,
// are listed on stderr.
void require_same_data(const Resumed& resumed, const Json& data, const Source& training,
                       const Source& test);
void require_same_run(const Resumed& resumed, const RunOptions& options);

// Fills the store. A run may continue in another precision, which is reported on stderr; loss
// scaling then starts from its initial value. UsageError if rows of `training` have a size for
// which the model has other weights; DataError if the file is broken, with an older one to continue
// from; UsageError in the middle of an epoch if the options would draw other batches for the rest
// of it, and DataError if an epoch, of `epoch_steps` now, has no rest.
Progress load_resumed(const Resumed& resumed, const RunOptions& options, const Source& training,
                      std::uint64_t epoch_steps, Store& store);

// Where a run continues, and which of its options were changed: one line.
std::string continuation_text(const Resumed& resumed, const RunOptions& options,
                              const Progress& progress);

// For a checkpoint at the end of its run, evaluated and, if it is the newest, with its summary: a
// message with the option that ends the run and how to continue. Empty for all others.
std::string nothing_left(const Resumed& resumed, const RunOptions& options,
                         const Progress& progress);

// UsageError if the run is past the end that --steps or --epochs say: it would be evaluated, and
// called finished, in another place than the one asked for.
void require_end_ahead(const Resumed& resumed, const RunOptions& options, const Progress& progress);

}  // namespace warpstep::tools
