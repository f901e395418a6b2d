// Sessions that the tests of the exports share.
#pragma once

#include <cstdint>
#include <string>

#include "profiler/session/testing_builder.h"

namespace warpstep::profiler::testing {

inline constexpr std::uint64_t trace_realtime_ns = 1'700'000'000'000'000'000;

inline Json program_of(std::initializer_list<const char*> titles) {
  Json calls = Json::array();
  for (const char* title : titles)
    calls.push_back({{"title", title},
                     {"op", "conv2d"},
                     {"layer", "conv1"},
                     {"phase", "forward"},
                     {"flops", 1000},
                     {"in", {{{"name", "x"}, {"dtype", "f16"}, {"shape", {128, 224, 224, 3}}}}}});
  return {{"calls", calls}};
}

inline void set_launch(Activity& kernel, std::uint32_t grid, std::uint32_t block) {
  kernel.grid = {grid, 1, 1};
  kernel.block = {block, 1, 1};
  kernel.registers = 64;
}

// One step with everything that a reader of traces looks at: a wait, a sample being decoded, a
// call, its launch, its kernel.
inline SessionBuilder smallest_session() {
  SessionBuilder builder;
  builder.gpu()
      .thread(4301, "loader 0")
      .step(1, 1000, 1900, 200, 200, 100)
      .window(1, 1, 1000, 1900, true)
      .span(Kind::wait, "wait for data", 1010, 1210, 0, 17)
      .span(Kind::stage, "decode", 1020, 1170, 1)
      .span(Kind::call, "conv1.forward", 1260, 1360, 0, 0)
      .launch(1300, 1320, What::kernel, "sm90_xmma_gemm_f16f16", 1340, 1540);
  set_launch(builder.last_activity(), 66, 256);
  builder.span(Kind::sample, "sample", 1015, 1175, 1, 17 * 128 + 3);
  builder.raw().clocks.push_back({SessionBuilder::origin_ns, trace_realtime_ns, 0, 40});
  builder.raw().loader = {{"workers", 1}, {"batch", 128}};
  builder.raw().program = program_of({"conv1.forward"});
  return builder;
}

// Steps of 1000 us on a device: two loader workers, a copy on its own stream, two kernels that
// are launched one by one, and a graph of four nodes on two streams that overlap.
inline void add_device_step(SessionBuilder& builder, std::uint64_t number, double s) {
  builder.step(number, s, s + 1000, 400, 200, 300, 40)
      .span(Kind::wait, "wait for data", s + 10, s + 210, 0, number)
      .span(Kind::call, "upload", s + 220, s + 250, 0, 0)
      .launch(s + 225, s + 235, What::copy, "Memcpy HtoD (Pinned -> Device)", s + 240, s + 280, 13,
              1);
  Activity& copy = builder.last_activity();
  copy.bytes = 1 << 20;
  copy.copy_kind = 1;
  copy.source_memory = 2;
  copy.target_memory = 3;
  builder.span(Kind::call, "conv1.forward", s + 260, s + 360, 0, 1)
      .launch(s + 300, s + 320, What::kernel, "sm90_xmma_gemm_f16f16", s + 340, s + 540, 7, 2);
  set_launch(builder.last_activity(), 66, 256);
  builder.launch(s + 400, s + 440, What::kernel, "relu_kernel", s + 560, s + 660);
  Activity node = builder.last_activity();
  builder.last_activity().graph = 3;
  builder.last_activity().graph_node = 0x300000001;
  builder.last_activity().external = 3;
  set_launch(builder.last_activity(), 1024, 256);
  node.graph = 3;
  for (const std::uint32_t k : {2, 3, 4}) {
    node.graph_node = 0x300000000 + k;
    node.external = k == 2 ? 3 : k + 1;
    node.start_ns = SessionBuilder::at(s + 560 + 50 * static_cast<double>(k));
    node.end_ns = node.start_ns + 90'000;  // the next begins before
    set_launch(node, 264, 128);
    builder.activity(node, Kind::kernel, k == 4 ? "sgd_kernel" : "relu_kernel");
  }
  builder.span(Kind::range, "observers", s + 900, s + 950);
  for (const std::uint32_t worker : {1U, 2U}) {
    builder.span(Kind::sample, "sample", s + 20, s + 180, worker, number * 2 + worker - 1)
        .span(Kind::stage, "read", s + 20, s + 30, worker)
        .span(Kind::stage, "decode", s + 30, s + 180, worker)
        .span(Kind::idle, "queue is full", s + 200, s + 900, worker);
  }
  builder.span(Kind::mark, "batch ready", s + 182, s + 182, 2, number)
      .span(Kind::counter, "batches ready", s + 182, s + 182, 2, 1)
      .sample("cpu %", s + 500, 73.5)
      .sample("process rss bytes", s + 500, 123456789);
}

inline SessionBuilder device_session(std::uint64_t steps = 4) {
  SessionBuilder builder;
  builder.gpu().thread(4301, "loader 0").thread(4302, "loader 1");
  for (std::uint64_t i = 0; i < steps; ++i)
    add_device_step(builder, i + 1, 1000 + 1000 * static_cast<double>(i));
  const double end = 1000 + 1000 * static_cast<double>(steps);
  builder.window(1, steps, 1000, end, true);
  builder.raw().clocks.push_back({SessionBuilder::origin_ns, trace_realtime_ns, 0, 40});
  builder.raw().loader = {{"workers", 2}, {"batch", 2}};
  builder.raw().program =
      program_of({"upload", "conv1.forward", "relu1.forward", "relu2.forward", "update"});
  builder.raw().stamp = {{"host", "train-1"}, {"seed", 7}, {"options", {{"batch", 2}}}};
  return builder;
}

// The same trainer where the host computes: calls are the kernels.
inline SessionBuilder host_session(std::uint64_t steps = 4) {
  SessionBuilder builder;
  builder.thread(4301, "loader 0");
  for (std::uint64_t i = 0; i < steps; ++i) {
    const double s = 1000 + 1000 * static_cast<double>(i);
    builder.step(i + 1, s, s + 1000, 600, 200, 200)
        .span(Kind::wait, "wait for data", s, s + 200, 0, i)
        .span(Kind::range, "step", s + 200, s + 900)
        .span(Kind::call, "conv1.forward", s + 210, s + 510, 0, 0)
        .span(Kind::call, "update", s + 510, s + 810, 0, 1)
        .span(Kind::sample, "sample", s + 5, s + 180, 1, i * 2)
        .span(Kind::stage, "decode", s + 6, s + 170, 1);
  }
  builder.window(1, steps, 1000, 1000 + 1000 * static_cast<double>(steps));
  builder.raw().clocks.push_back({SessionBuilder::origin_ns, trace_realtime_ns, 0, 40});
  builder.raw().loader = {{"workers", 1}, {"batch", 2}};
  builder.raw().program = program_of({"conv1.forward", "update"});
  return builder;
}

}  // namespace warpstep::profiler::testing
