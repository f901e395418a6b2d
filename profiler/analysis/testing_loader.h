// Sessions of a loader for tests: workers that share samples, a trainer that takes batches.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "profiler/session/testing_builder.h"

namespace warpstep::profiler::testing {

struct LoaderCase {
  int workers = 4, prefetch = 3, cores = 16, kernel_threads = 0, batch = 8, steps = 24;
  bool gpu = true;
  double step_us = 28'700;  // without waiting
  std::vector<std::pair<std::string, double>> stages{{"read", 2'050}, {"decode", 14'555}};  // us
  std::string encoding = "png", normalize = "device", tier = "decoded";
  bool can_pack = true;
  bool has_cpu = false;     // the CPU time of each sample is recorded: all stages but "read"
  std::string asleep{};     // and but this one
  std::uint64_t bytes = 0;  // of each read
  // Of batch b's samples, all stages.
  std::function<double(int batch)> scale = [](int) { return 1.0; };
};

// Two workers on the two cores of the kernels, which a step does not wait for.
inline LoaderCase hidden_loader(double step_us, double pixels_us = 1'000) {
  return {.workers = 2,
          .cores = 2,
          .kernel_threads = 2,
          .batch = 8,
          .steps = 60,
          .gpu = false,
          .step_us = step_us,
          .stages = {{"decode", 100}, {"pixels", pixels_us}},
          .encoding = "pixels",
          .normalize = "cpu"};
}

inline void record_options(const LoaderCase& c, Session& session) {
  session.stamp["options"] = {
      {"model", "m"},    {"data", "shapes"},           {"workers", c.workers}, {"batch", c.batch},
      {"tier", c.tier},  {"normalize", c.normalize},   {"precision", "fp32"},  {"no_graph", false},
      {"log_every", 10}, {"threads", c.kernel_threads}};
  session.loader = {{"workers", c.workers},     {"active", c.workers},
                    {"prefetch", c.prefetch},   {"batch", c.batch},
                    {"tier", c.tier},           {"encoding", c.encoding},
                    {"normalize", c.normalize}, {"cores", c.cores},
                    {"can_pack", c.can_pack},   {"kernel_threads", c.kernel_threads}};
}

// A window over all steps; batch b is made when batch b - (prefetch - 1) was taken at the earliest.
inline SessionBuilder loader_session(const LoaderCase& c) {
  SessionBuilder builder;
  if (c.gpu) builder.gpu();
  std::vector<double> free(static_cast<std::size_t>(c.workers), 0.0), taken;
  for (int w = 0; w < c.workers; ++w)
    builder.thread(static_cast<std::uint32_t>(5000 + w), "loader " + std::to_string(w));
  double now = 0;
  for (int b = 0; b < c.steps; ++b) {
    const int before = b - (c.prefetch - 1);
    const double gate = before >= 0 ? taken[static_cast<std::size_t>(before)] : 0;
    double ready = 0;
    for (int row = 0; row < c.batch; ++row) {
      const auto first = std::min_element(free.begin(), free.end());
      const auto thread = static_cast<std::uint32_t>(first - free.begin()) + 1;
      if (gate > *first) builder.span(Kind::idle, "idle", *first, gate, thread);
      const double begin = std::max(*first, gate);
      double at = begin;
      double cpu_us = 0;
      for (const auto& [name, us] : c.stages) {
        builder.span(Kind::stage, name, at, at + us * c.scale(b), thread, c.bytes);
        at += us * c.scale(b);
        if (name != "read" && name != c.asleep) cpu_us += us * c.scale(b);
      }
      builder.span(Kind::sample, "sample", begin, at, thread,
                   static_cast<std::uint64_t>(b * c.batch + row));
      if (c.has_cpu)
        builder.span(Kind::counter, "worker cpu ns", at, at, thread,
                     static_cast<std::uint64_t>(1000 * cpu_us));
      *first = at;
      ready = std::max(ready, at);
    }
    const double begin = now, wait = std::max(0.0, ready - now);
    builder.span(Kind::wait, "wait for data", begin, begin + wait, 0,
                 static_cast<std::uint64_t>(b));
    builder.span(Kind::counter, "batches ready", begin, begin, 0, wait > 0 ? 0 : 1);
    now += wait;
    taken.push_back(now);
    now += c.step_us;
    builder.step(static_cast<std::uint64_t>(b + 1), begin, now, 0.9 * c.step_us, wait);
  }
  builder.window(1, static_cast<std::uint64_t>(c.steps), 0, now);
  record_options(c, builder.raw());
  return builder;
}

// Workers that are blocked in reads for 2 ms of each sample, decode it in 0.1 ms and never wait for
// a core.
inline SessionBuilder blocked_readers(int workers, int cores = 4) {
  SessionBuilder builder = loader_session({.workers = workers,
                                           .cores = cores,
                                           .batch = 8,
                                           .steps = 60,
                                           .step_us = 2'000,
                                           .stages = {{"read", 2'000}, {"decode", 100}},
                                           .has_cpu = true,
                                           .bytes = 5'000});
  for (int worker = 0; worker < workers; ++worker)
    builder.sample("loader " + std::to_string(worker) + " run delay %", 1000, 0);
  return builder;
}

}  // namespace warpstep::profiler::testing
