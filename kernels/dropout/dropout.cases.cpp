#include "kernels/cases.h"

namespace warpstep::cases::dropout_cases {
namespace {

void add_dropout(List list) {
  struct Size {
    const char* label;
    Shape shape;
    double rate = 0.5;
    std::uint32_t layer = 0;
    bool heavy = false;
  };
  for (const Size& size : {
           Size{"a linear layer's output", {8, 4096}},
           Size{"images", {3, 6, 5, 32}, 0.2, 1},
           Size{"17 channels", {3, 5, 7, 17}, 0.9, 7},
           Size{"12 channels", {19, 12}, 0.25, 1},
           Size{"rows of 11", {50, 11}, 0.1, 70000},
           Size{"fewer than a word's share", {3}, 0.5, 2},
           Size{"one element", {1}, 0.25},
           Size{"nothing dropped", {2, 33}, 0},
           Size{"nearly all dropped", {300, 7}, 0.99, 3},
           Size{"alexnet fc b128", {128, 4096}, 0.5, 0, true},
       })
    list.add(size.label, [&](Case& c) {
      record(c, Dropout{.rate = size.rate, .layer = size.layer},
             {input(c, "x", {DType::f32, size.shape}, {Fill::Kind::distinct, 1}),
              c.graph.step_state()});
      c.heavy = size.heavy;
    });
}

const Folder dropout_cases("dropout", add_dropout);

}  // namespace
}  // namespace warpstep::cases::dropout_cases
