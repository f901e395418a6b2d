#include "kernels/cases.h"

namespace warpstep::cases::attention_cases {
namespace {

void add_attention(List list) {
  struct Size {
    const char* label;
    std::int64_t sequences, length, heads, features;  // N / T, T, heads, D
    bool causal = true;
    double dropout = 0;
    Fill fill = {Fill::Kind::centered, 2};  // scores with a deviation of 4 / 3
    bool heavy = false;
  };
  const auto heavy = [](Size size) {
    size.heavy = true;
    return size;
  };
  for (const Size& size : {
           Size{"4 heads of 32", 2, 64, 4, 32},
           Size{"one position", 3, 1, 2, 8},
           Size{"one position that sees all", 1, 1, 1, 64, false},
           Size{"37 positions, heads of 40", 2, 37, 3, 40},
           Size{"37 positions that see all", 2, 37, 3, 40, false},
           Size{"heads of 65", 1, 70, 2, 65},
           Size{"heads of 65 that see all", 1, 33, 2, 65, false},
           Size{"heads of 8", 2, 17, 5, 8},
           Size{"heads of 1", 1, 9, 3, 1},
           Size{"12 heads of 64", 1, 20, 12, 64},
           Size{"heads of 128", 1, 66, 1, 128},
           Size{"several blocks of keys", 1, 270, 1, 8},
           Size{"several blocks that see all", 1, 262, 1, 8, false},
           Size{"dropout", 2, 64, 2, 32, true, 0.2},
           Size{"dropout of rows of 37", 2, 37, 3, 8, true, 0.2},
           Size{"dropout where all are seen", 1, 262, 1, 8, false, 0.5},
           Size{"dropout of one position", 5, 1, 3, 16, true, 0.2},
           // exp(scores) overflows in f32. The scores are multiples of 9, exact in all dtypes.
           Size{"scores above 89", 1, 69, 2, 64, true, 0, {Fill::Kind::extreme, 6}},
           Size{"equal keys", 2, 37, 2, 24, true, 0, {Fill::Kind::constant, 1}},
           heavy({"gpt2 b8", 8, 1024, 12, 64}),
           heavy({"gpt2 b1", 1, 1024, 12, 64}),
           heavy({"6 heads of 64 t256 b8", 8, 256, 6, 64}),
           heavy({"4 heads of 32 t64 b12", 12, 64, 4, 32}),
       })
    list.add(size.label, [&](Case& c) {
      const std::int64_t rows = size.sequences * size.length;
      const Type type{DType::f32, {rows, 3 * size.heads * size.features}};
      std::vector<Tensor> in{input(c, "qkv", type, size.fill)};
      if (size.dropout > 0) in.push_back(c.graph.step_state());
      record(c,
             Attention{.heads = size.heads,
                       .sequence = size.length,
                       .causal = size.causal,
                       .dropout = size.dropout,
                       .layer = 3},
             in);
      c.heavy = size.heavy;
    });
}

const Folder attention_cases("attention", add_attention);

}  // namespace
}  // namespace warpstep::cases::attention_cases
