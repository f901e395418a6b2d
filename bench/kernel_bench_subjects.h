// Everything that the kernel benchmarks can time: every node of every case, in every dtype that a
// backend computes in here. Derived from graphs only: no program is built and nothing runs.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/passes/precision.h"
#include "engine/run/backend.h"
#include "kernels/cases.h"

namespace warpstep::bench {

// A backend, once for each precision of its products.
struct Device {
  std::string name;  // "cpu", "cuda"
  std::shared_ptr<Backend> backend;
  std::shared_ptr<Backend> tf32;  // null: a backend without it

  bool queues() const { return backend->steps_in_flight() > 0; }  // else enqueue() computes at once
  std::shared_ptr<Backend> of(Precision precision) const {
    return precision == Precision::tf32 ? tf32 : backend;
  }
  std::vector<Precision> precisions() const;
};

// `name` is the name of a backend or the path of a module. Throws as open_backend() does.
Device open_device(const std::string& name, BackendOptions options);

std::string_view dtype_name(Precision precision);  // "f32", "tf32", "f16", "bf16"

struct Subject {
  std::string name;                      // OP/DIRECTION/DTYPE/CASE/BACKEND, unique
  std::shared_ptr<const cases::Case> c;  // in the dtype, with its adjoints
  std::size_t node = 0;                  // of the case's graph
  Precision precision = Precision::fp32;
};

// The product sizes, or all cases.
std::vector<Subject> subjects(const Device& device, bool all_cases);

}  // namespace warpstep::bench
