// Cases: every op at the shapes and values that matter. The op tests run them on every backend
// against the reference, and the kernel benchmarks time them. A case is a graph with the op's node
// and the values of its operands; it is independent of backends.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/graph/layers.h"
#include "engine/passes/fuse.h"

namespace warpstep::cases {

// How an operand is filled. All kinds are functions of (seed, value, element).
struct Fill {
  enum class Kind : std::uint8_t {
    centered,  // uniform in [-scale, scale)
    positive,  // uniform in [0, scale)
    distinct,  // elements at least scale / count from each other and from 0: no ties, no kinks
    coarse,    // -scale, 0 or scale: many ties
    constant,  // scale everywhere
    rising,    // from 0 on by scale
    extreme,   // -scale or scale
    pixels,    // 0 to 255
    labels,    // 0 to scale - 1
    padded,    // likewise, and -1 (padding) in every third row and in the last
    none,      // -1 everywhere
    around,    // uniform about scale with deviation 1: above 0 from a scale of 2 on
    plans,     // words of RowPlans: sources and pairs' labels up to scale - 1, windows near the
               // image, two rows of three mixed
    ends,      // 0 or scale - 1
    permuted,  // 0 to the number of elements - 1, each once
    order,     // likewise, sorted by the elements of value `of`, equal ones in ascending order
  };
  Kind kind = Kind::centered;
  double scale = 1;
  int of = -1;       // for order: an id
  bool nan = false;  // and NaN in every 41st element
};

struct Case {
  std::string name;           // "conv/cifar10cnn conv2": the folder and what the case tests
  Graph graph;                // inputs (Role::input), parameters and the op's nodes
  std::map<int, Fill> fills;  // of values; parameters without one are uniform in +-bound
  bool smooth = true;         // no kink or tie near the values: finite differences mean something
  std::string_view fusion{};  // the fusion that makes such nodes: only for backends that want it
  bool midway = false;        // starts after the first step of a gradient accumulation
  bool heavy = false;         // a realistic size, for benchmarks: too slow in plain loops
  double function_error = 0;  // of a library's exp or tanh, relative to the largest element, in f32
  std::map<int, int> gradients;  // value -> its gradient, filled by with_adjoint()
  int d_out = -1;  // the gradient that arrives; -1 where the loss itself is the output
};

// Every case, without its values, which makes this cheap. Defined in kernels/all_cases.cpp for
// Warpstep's own ops, and in its own cases file by a user's project.
std::vector<Case> all();

// Whether the case's last node has a gradient.
bool has_adjoint(const Case& c);

// The case with the adjoints of all its nodes appended. The gradient of the last node's first
// output is an input of the case, unless that output is a loss.
Case with_adjoint(Case c);

// The values of operand `id`, in rows of its shape.
std::vector<float> values(const Case& c, int id, std::uint64_t seed);

// For the folders' lists.
class List {
 public:
  explicit List(std::vector<Case>& cases, std::string folder)
      : cases_(cases), folder_(std::move(folder)) {}
  // Adds a case; `build` adds the nodes to its graph.
  Case& add(const std::string& label, const std::function<void(Case&)>& build);

 private:
  std::vector<Case>& cases_;
  std::string folder_;
};
Tensor input(Case& c, const std::string& name, Type type, Fill fill = {});
Tensor record(Case& c, AnyOp op, const std::vector<Tensor>& in);  // the first output
// Adds a parameter and the gradient that a step left for it.
void parameter(Case& c, const std::string& name, Shape shape);
// Fills the moments of all parameters as they are in the middle of a run.
void fill_moments(Case& c, const Optimizer& optimizer);

// The cases of a folder of Warpstep's own, registered by a static Folder in its X.cases.cpp, whose
// names are in a namespace X_cases. all() of kernels/all_cases.cpp calls `add`.
struct Folder {
  Folder(std::string_view name, void (*add)(List list));
};

}  // namespace warpstep::cases
