#include "kernels/cases.h"

namespace warpstep::cases::decode_cases {
namespace {

using Kind = Fill::Kind;

struct DecodeSize {
  const char* label;
  std::int64_t sequences, length, heads, features;  // N / T, T, heads, D
  std::int64_t positions, position;                 // P, and the first one of the step
  Fill fill = {Kind::centered, 2};                  // scores with a deviation of 4 / 3
  bool heavy = false;

  std::int64_t rows() const { return sequences * length; }
  std::int64_t width() const { return heads * features; }
};

Tensor position_input(Case& c, const DecodeSize& size) {
  c.heavy = size.heavy;
  return input(c, "position", {DType::i32, {1}},
               {Kind::constant, static_cast<double>(size.position)});
}

void add_decode(List list) {
  for (const DecodeSize& size : {
           DecodeSize{"the first token", 1, 1, 2, 8, 16, 0},
           DecodeSize{"one token at 9 of 16", 1, 1, 4, 32, 16, 9},
           DecodeSize{"the last of 37", 1, 1, 3, 40, 37, 36},
           DecodeSize{"3 sequences", 3, 1, 2, 24, 20, 11},
           DecodeSize{"heads of 1", 1, 1, 3, 1, 9, 5},
           DecodeSize{"heads of 65", 2, 1, 2, 65, 12, 7},
           DecodeSize{"heads of 300", 1, 1, 1, 300, 12, 7},
           DecodeSize{"12 heads of 64", 1, 1, 12, 64, 24, 20},
           DecodeSize{"several blocks of keys", 1, 1, 2, 16, 700, 650},
           DecodeSize{"the first 8 tokens", 1, 8, 2, 16, 32, 0},
           DecodeSize{"5 tokens at 6, of 3 sequences", 3, 5, 2, 12, 13, 6},
           DecodeSize{"the last 64", 1, 64, 2, 8, 128, 64},
           DecodeSize{"70 tokens at 490, several blocks of keys", 2, 70, 2, 20, 600, 490},
           // exp(scores) overflows in f32. The scores are multiples of 9, exact in all dtypes.
           DecodeSize{"scores above 89", 1, 3, 2, 64, 69, 40, {Kind::extreme, 6}},
           DecodeSize{"equal keys", 2, 1, 2, 24, 37, 30, {Kind::constant, 1}},
           DecodeSize{"gpt2", 1, 1, 12, 64, 1024, 1000, {}, true},
           DecodeSize{"gpt2, 64 at once", 1, 64, 12, 64, 1024, 960, {}, true},
       }) {
    list.add(size.label, [&](Case& c) {
      const Tensor qkv = input(c, "qkv", {DType::f32, {size.rows(), 3 * size.width()}}, size.fill);
      const Tensor cache =
          c.graph.buffer("cache", {size.sequences, size.positions, 2 * size.width()}, {0}, false);
      c.fills[cache.id] = size.fill;
      record(c, CachedAttention{.heads = size.heads, .sequence = size.length},
             {qkv, cache, position_input(c, size)});
    });
    list.add(std::string(size.label) + ", embedded", [&](Case& c) {
      const std::int64_t vocabulary = 50;
      const Tensor tokens = input(c, "tokens", {DType::i32, {size.rows()}},
                                  {Kind::labels, static_cast<double>(vocabulary)});
      record(
          c, EmbedAt{size.length},
          {tokens, position_input(c, size),
           parameter(c.graph, "wte.weight", {vocabulary, size.width()}, {Initial::Kind::normal, 1}),
           parameter(c.graph, "wpe.weight", {size.positions, size.width()},
                     {Initial::Kind::normal, 1})});
    });
  }
}

const Folder decode_cases("decode", add_decode);

}  // namespace
}  // namespace warpstep::cases::decode_cases
