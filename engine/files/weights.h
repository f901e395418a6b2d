// Weights by name, from any safetensors file: a state_dict of PyTorch's, a file of
// `warpstep weights convert`, or a checkpoint of our own.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "engine/files/safetensors.h"
#include "engine/run/store.h"

namespace warpstep {

// What a state_dict has of a store, in PyTorch's names and order.
struct StateTensor {
  std::string name;
  Shape shape;
  bool buffer = false;    // else a parameter
  std::size_t index = 0;  // of the store's parameters or buffers
};
std::vector<StateTensor> state_of(const Store& store);
std::vector<float> read(const Store& store, const StateTensor& tensor);
void write(Store& store, const StateTensor& tensor, std::span<const float> values);

struct LoadOptions {
  // Loads what fits by name and shape and leaves the others as they are; a file of which
  // nothing fits is an error all the same.
  bool allow_missing = false;
  std::string fix{};  // what to do about a file that does not fit: the end of the error's text
};

// A tensor of the file that the model's of that name cannot take.
struct UnfitTensor {
  std::string name;
  StoredType type = StoredType::f32;
  std::vector<std::uint64_t> shape;  // in the file
  Shape wanted;                      // by the model, in PyTorch's order
};

struct LoadReport {
  std::string path;
  std::size_t wanted = 0;               // of the model
  std::size_t loaded = 0;               // of them
  std::int64_t elements = 0;            // in those
  std::vector<std::string> missing;     // in the file; names of the model
  std::vector<std::string> unexpected;  // in the model; names of the file, without the prefix
  std::vector<UnfitTensor> unfit;       // neither loaded nor missing
  std::map<StoredType, int> converted;  // tensors that were not F32
  std::string prefix;                   // that all names of the file had, and that was stripped
  std::size_t ignored = 0;              // num_batches_tracked and tensors of an optimiser
  std::vector<std::string> not_finite;  // loaded tensors with infinite values or NaN

  bool is_whole() const { return missing.empty() && unexpected.empty() && unfit.empty(); }
  // For people: one line on what was loaded, and one each for what was not and what was done to it.
  std::vector<std::string> lines() const;
  // Everything that does not fit in one line, at most ten names of a kind.
  std::string problems() const;
};

// Tensors of F32, F16, BF16 and F64 are loaded; the file's order does not matter, and
// `module.` or `_orig_mod.` before all names (DistributedDataParallel, torch.compile) does not
// count. Throws DataError naming everything that is missing, unexpected or of another shape, before
// anything is loaded; and for a tensor that is damaged, which a checksum tells.
LoadReport load_weights(const std::filesystem::path& path, Store& store,
                        const LoadOptions& options = {});

// PyTorch's BatchNorm counts its batches in a tensor beside the running mean. We do not: the file's
// is ignored, and ours is made when a checkpoint is written. The name of the count that belongs to
// this parameter; empty for a parameter that is no running mean.
std::string batch_count_name(const std::string& parameter);

}  // namespace warpstep
