// The shapes and values that the tests check and the benchmark times.
#include "cosine_embedding.h"
#include "kernels/cases.h"

namespace warpstep::cases {
namespace {

struct Size {
  const char* label;
  std::int64_t rows, columns;
  double margin = 0;
  Fill x1{}, x2{};
  bool smooth = true, heavy = false;
};

void add(List& list, const Size& size) {
  list.add(size.label, [&](Case& c) {
    c.smooth = size.smooth;
    c.heavy = size.heavy;
    const Shape shape{size.rows, size.columns};
    const Tensor x1 = input(c, "x1", {DType::f32, shape}, size.x1);
    const Tensor x2 = input(c, "x2", {DType::f32, shape}, size.x2);
    const Tensor y = input(c, "y", {DType::i32, {size.rows}}, {Fill::Kind::extreme, 1});
    record(c, Custom{std::make_shared<CosineEmbedding>(size.margin)}, {x1, x2, y});
  });
}

}  // namespace

std::vector<Case> all() {
  using Kind = Fill::Kind;
  std::vector<Case> cases;
  List list(cases, "cosine_embedding");
  for (const Size& size : {
           Size{"of 32x64", 32, 64},
           Size{"of 9x5 with margin", 9, 5, 0.2},
           Size{"of 1x3", 1, 3},
           Size{"of 3x1000 nearly alike", 3, 1000, 0.5, {Kind::around, 4}, {Kind::around, 4}},
           Size{"of zeros, as long as 1e-6",
                4,
                8,
                0.1,
                {Kind::constant, 0},
                {Kind::centered, 1},
                false},
           Size{"of 1e3", 8, 24, 0, {Kind::centered, 1e3}, {Kind::centered, 1e3}},
           Size{"of 4096x512", 4096, 512, 0, {}, {}, true, true},
       })
    add(list, size);
  return cases;
}

}  // namespace warpstep::cases
