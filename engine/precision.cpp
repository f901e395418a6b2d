#include "engine/precision.h"

#include "engine/core/error.h"

namespace warpstep {

std::string_view name(Precision precision) {
  switch (precision) {
    case Precision::fp32: return "fp32";
    case Precision::tf32: return "tf32";
    case Precision::bf16: return "bf16";
    case Precision::fp16: return "fp16";
  }
  return "?";
}

Precision parse_precision(std::string_view text) {
  for (const Precision p : {Precision::fp32, Precision::tf32, Precision::bf16, Precision::fp16})
    if (name(p) == text) return p;
  fail<UsageError>("no precision is called '{}'; there are fp32, tf32, bf16 and fp16", text);
}

DType storage_dtype(Precision precision) {
  switch (precision) {
    case Precision::bf16: return DType::bf16;
    case Precision::fp16: return DType::f16;
    default: return DType::f32;
  }
}

Graph apply_precision(Graph graph, Precision precision) {
  const DType storage = storage_dtype(precision);
  for (Value& value : graph.values)
    if (value.role == Role::activation && value.type.dtype == DType::f32)
      value.type.dtype = storage;
  return graph;
}

}  // namespace warpstep
