// Loads weights by name from any safetensors file: a state_dict from PyTorch, a file of
// `warpstep weights convert`, or a checkpoint.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/files/safetensors.h"
#include "engine/files/weight_rules.h"
#include "engine/run/store.h"

namespace warpstep {

// The tensors of a store in a state_dict, with PyTorch's names and order.
struct StateTensor {
  std::string name;
  Shape shape;
  bool buffer = false;    // else a parameter
  std::size_t index = 0;  // of the store's parameters or buffers
};
std::vector<StateTensor> state_of(const Store& store);
std::vector<float> read(const Store& store, const StateTensor& tensor);
// With memory that many calls can share.
void read(const Store& store, const StateTensor& tensor, std::span<float> values, Scratch& scratch);
void write(Store& store, const StateTensor& tensor, std::span<const float> values);

struct LoadOptions {
  // Loads the tensors that fit by name and shape and leaves the others unchanged; a file of which
  // none fits is an error anyway.
  bool allow_missing = false;
  std::string fix{};  // advice at the end of the error if the file does not fit
  // Of the model, besides those of every PyTorch module.
  WeightRules rules{};
};

// A tensor of the file whose type or shape differs from the model's tensor of that name.
struct UnfitTensor {
  std::string name;
  StoredType type = StoredType::f32;
  std::vector<std::uint64_t> shape;  // in the file
  Shape wanted;                      // by the model, in PyTorch's order
  bool is_first = false;             // of the model's weights
};

struct LoadReport {
  std::string path;
  std::size_t wanted = 0;               // of the model
  std::size_t loaded = 0;               // of them
  std::int64_t elements = 0;            // in those
  std::vector<std::string> missing;     // in the file; names of the model
  std::vector<std::string> unexpected;  // in the model; names of the file, without the prefix
  std::vector<UnfitTensor> unfit;       // neither loaded nor missing
  std::vector<std::string> untied;      // tied names of the file whose values differ
  std::vector<std::string> extents;     // assignments of options that fit the file: "vocabulary=8"
  std::map<StoredType, int> converted;  // tensors that were not F32
  std::string prefix;                   // of all names in the file, stripped
  std::size_t ignored = 0;              // tensors that are no weights, or an optimiser's
  std::set<std::string> ignored_kinds;  // of them: the rules' parts of names, "optimizer.*"
  std::vector<std::string> tied;        // names of the file: "lm_head.weight equals wte.weight"
  std::size_t transposed = 0;           // matrices that the file has the other way round
  std::vector<std::string> not_finite;  // loaded tensors with infinite values or NaN

  bool is_whole() const {
    return missing.empty() && unexpected.empty() && unfit.empty() && untied.empty();
  }
  // A summary: one line for the loaded tensors, and one line per kind of problem or conversion.
  std::vector<std::string> lines() const;
  // Everything that does not fit, in one line, at most ten names of each kind.
  std::string problems() const;
};

// Loads tensors of F32, F16, BF16 and F64, in any order; `module.` or `_orig_mod.` before all names
// (DistributedDataParallel, torch.compile) is stripped, and the rules of the model apply. Throws
// DataError naming everything that is missing, unexpected, of another shape or not tied, before
// anything is loaded; and for a tensor that fails its checksum.
LoadReport load_weights(const std::filesystem::path& path, Store& store,
                        const LoadOptions& options = {});

// The name of the batch count that belongs to this parameter; empty if it is no running mean.
// PyTorch's BatchNorm counts its batches in such a tensor. Warpstep has none: loading ignores it,
// and saving a checkpoint derives it from the steps.
std::string batch_count_name(const std::string& parameter);

}  // namespace warpstep
