// Measures the cost of a loader without a model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/formats/cached.h"
#include "data/formats/dataset.h"
#include "data/load/image_batches.h"
#include "data/load/loader.h"

namespace warpstep::bench {

struct LoaderCase {
  std::string data;
  data::Split split = data::Split::train;
  std::string transforms = "none";
  data::Tier tier = data::Tier::decoded;
  bool normalizes_on_cpu = false;
  data::LoaderOptions loader;  // all but recipe, pixels and resident
};

// Memory of the process in bytes. Pages of mapped files count only in `peak`: they belong to the
// page cache, and the system reclaims them when it needs them.
struct ProcessMemory {
  std::uint64_t anonymous = 0, peak = 0;
  static ProcessMemory now();
  static void reset_peak();  // to the current size; without effect if the kernel refuses
};

struct Window {  // of the steady state
  double seconds = 0, cpu_seconds = 0;
  std::uint64_t images = 0;  // finished by workers in that time
};

// A data set, opened and, for the tiers that keep pixels, decoded: the state of a run before its
// first step. Resident pixels are in host memory and nothing gathers from them: such a loader only
// prepares the rows.
class LoaderSubject {
 public:
  // Throws UsageError, DataError as open() and choose_tier() do.
  explicit LoaderSubject(const LoaderCase& what);

  const data::Dataset& dataset() const { return *dataset_; }
  const data::Dataset& read() const { return *read_; }
  const data::Recipe& recipe() const { return options_.recipe; }
  data::Tier tier() const { return tier_; }
  const ProcessMemory& before() const { return before_; }  // the set was opened
  std::unique_ptr<data::Loader> loader(Position start = {}) const;

 private:
  ProcessMemory before_;
  std::shared_ptr<const data::Dataset> dataset_, read_;
  data::LoaderOptions options_;
  data::Tier tier_ = data::Tier::decoded;
};

// Reads `batches` batches and returns the workers' results of that time.
Window run_window(data::Loader& loader, std::uint64_t batches);

// FNV-1a of images, labels and, if the recipe has any, the numbers of the rows of `batches`
// batches. A resident set's rows are gathered first: all tiers give the same hash.
std::uint64_t hash_of(data::Loader& loader, const LoaderSubject& subject, std::uint64_t batches);

// Median seconds, of `repeats`, from the start of the constructor to the first batch.
double first_batch_s(const LoaderSubject& subject, Position start, int repeats);
// Median seconds from seek() to the batch at that position, for positions throughout three epochs.
double seek_s(data::Loader& loader, int repeats);

struct EpochGap {
  double first_s = 0, other_s = 0;  // medians of next(), for an epoch's first batch and all others
};
EpochGap epoch_gap(data::Loader& loader, std::uint64_t epochs);

}  // namespace warpstep::bench
