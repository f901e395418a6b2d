// How the weights of a model are named and stored by other programs. The rules of a model stand
// beside it (models/zoo.h); those of every PyTorch module are in weights.cpp.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace warpstep {

struct WeightRules {
  // Before all names of a file but those of `tied`, each any number of times: "module.".
  std::vector<std::string> prefixes{};
  // Names, or their last parts, of tensors that are no weights: "num_batches_tracked".
  std::vector<std::string> ignored{};
  // Another name of one of the model's tensors: {"lm_head.weight", "wte.weight"}. A file may have
  // both if their values are equal.
  std::vector<std::pair<std::string, std::string>> tied{};
  // Last parts of the names of matrices that some files have with rows and columns exchanged: all
  // of them or none, which is decided by those that are not square.
  std::vector<std::string> transposed{};

  // An extent of a tensor that an option of the model sets: {"wte.weight", 0, "vocabulary"}.
  struct Extent {
    std::string tensor;
    std::size_t axis = 0;
    std::string option;
  };
  std::vector<Extent> extents{};
};

}  // namespace warpstep
