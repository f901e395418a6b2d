#include "profiler/export/testing_analysis.h"

#include <fmt/format.h>

#include <cmath>

#include "profiler/export/testing_analysis_parts.h"
#include "profiler/session/testing_builder.h"

namespace warpstep::profiler::testing {
namespace {

constexpr double call_us = 270, wait_us = 12'300, cpu_us = 900;

// The same on every machine: std::sin may not be in its last bits.
double wobble(std::uint64_t i) {
  return static_cast<double>(i * 2654435761U % 1000) / 1000;
}

std::vector<ExampleCall> example_calls(int blocks) {
  std::vector<ExampleCall> calls;
  for (const char* phase : {"forward", "data_grad", "weight_grad", "update"})
    for (int block = 1; block <= blocks; ++block) {
      const std::string layer = fmt::format("block{}", block);
      const double grad = phase[0] == 'd' ? 1.25 : phase[0] == 'w' ? 1.45 : 1;
      const double scale = (1 + 0.35 * (blocks - block)) * grad;
      calls.push_back(
          {layer + "/conv", layer, "conv", phase, scale * 1.6, 0.9e9 * scale / grad, 9e6});
      if (calls.back().phase == "update") {
        calls.back() = {layer + "/adam", layer, "adam", phase, 0.12, 2e5, 1.2e6};
        continue;
      }
      calls.push_back(
          {layer + "/norm", layer, "norm", phase, 0.3 * scale, 0.9e7 * scale / grad, 1.6e7});
      calls.push_back(
          {layer + "/relu", layer, "relu", phase, 0.1 * scale, 2e6 * scale / grad, 4.7e6});
    }
  calls.push_back({"head/softmax", "head", "softmax", "loss", 0.05, 5e4, 1e4});
  return calls;
}

// The trainer's thread: waits, computes call after call.
void add_step(SessionBuilder& builder, const std::vector<ExampleCall>& calls, bool on_gpu,
              double begin, std::uint64_t number, bool recorded) {
  const double wait = wait_us * (0.7 + 0.6 * wobble(number));
  double at = begin + wait;
  if (recorded) {
    builder.span(Kind::wait, "wait for a batch", begin, at, 0, number);
    if (on_gpu) {
      builder.launch(at, at + 20, What::copy, "HtoD", at + 30, at + 90, 13);
      builder.launch(at + 20, at + 60, What::set, "memset", at + 92, at + 96, 7);
    }
  }
  double kernels = 0;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const double length = call_us * calls[i].weight * (0.95 + 0.1 * wobble(number + i));
    if (recorded && on_gpu)
      builder.launch(at, at + 8, What::kernel, calls[i].title + "_sm90_xmma_kernel", at + 100,
                     at + 100 + length, 7, static_cast<std::uint32_t>(i + 1));
    else if (recorded)
      builder.span(Kind::call, calls[i].title, at, at + length, 0, i);
    at += length;
    kernels += length;
  }
  const double end = at + cpu_us + 110;
  if (recorded) builder.span(Kind::range, "observers", at + 100, at + cpu_us);
  builder.step(number, begin, end, kernels, wait, cpu_us);
}

double step_length(const std::vector<ExampleCall>& calls, std::uint64_t number) {
  double length = wait_us * (0.7 + 0.6 * wobble(number)) + cpu_us + 110;
  for (std::size_t i = 0; i < calls.size(); ++i)
    length += call_us * calls[i].weight * (0.95 + 0.1 * wobble(number + i));
  return length;
}

void add_workers(SessionBuilder& builder, const ExampleOptions& options, double begin, double end) {
  const double each = (end - begin) / static_cast<double>(options.batch) * options.workers;
  for (std::int64_t sample = 0; sample < options.batch; ++sample) {
    const auto worker = static_cast<std::uint32_t>(sample % options.workers);
    const double at = begin + static_cast<double>(sample / options.workers) * each;
    const double parts[] = {0.12, 0.66, 0.14};
    const char* names[] = {"read", "decode", "transform"};
    double from = at;
    for (int i = 0; i < 3; ++i) {
      const double to =
          from + each * parts[i] * (0.9 + 0.1 * wobble(static_cast<std::uint64_t>(sample)));
      builder.span(Kind::stage, names[i], from, to, worker + 1);
      from = to;
    }
  }
}

void add_samples(SessionBuilder& builder, bool on_gpu, double end) {
  for (std::uint64_t i = 0; i <= 40; ++i) {
    const double at = end * static_cast<double>(i) / 40;
    builder.sample("cpu %", at, 82 + 12 * wobble(i));
    builder.sample("cpu 0 %", at, 80 + 20 * wobble(i + 7));
    builder.sample("cpu 1 %", at, 75 + 20 * wobble(i + 9));
    builder.sample("process rss bytes", at, 5e8 + 2e6 * static_cast<double>(i));
    builder.sample("memory available bytes", at, 5.1e9 - 1e7 * wobble(i));
    builder.sample("disk read bytes/s", at, 4e7 * wobble(i + 3));
    if (!on_gpu) continue;
    builder.sample("gpu 0 utilisation %", at, 60 + 9 * wobble(i));
    builder.sample("gpu 0 memory used bytes", at, 1.1e10);
    builder.sample("gpu 0 power W", at, 310 + 60 * wobble(i + 1));
    builder.sample("gpu 0 temperature C", at, 51 + 3 * wobble(i + 2));
    builder.sample("gpu 0 sm clock MHz", at, 1980);
  }
}

Json stamp(bool on_gpu, const ExampleOptions& options) {
  Json stamp{{"version", "0.1.0"},
             {"commit", "76afc6b2c0de"},
             {"options",
              {{"model", "cifar10cnn"},
               {"batch", options.batch},
               {"precision", on_gpu ? "tf32" : "fp32"},
               {"workers", options.workers},
               {"prefetch", 2},
               {"seed", 7},
               {"profile_schedule", "skip_first=5,wait=0,warmup=2,active=20,repeat=1,per=run"}}},
             {"cpu", {{"model", "Xeon Platinum 8468"}, {"cores", 8}, {"governor", "performance"}}},
             {"affinity", "0-7"},
             {"cgroup", {{"cpu_quota_cores", 8}, {"memory_limit_bytes", 17179869184}}},
             {"load_average", {0.4, 0.3, 0.2}}};
  if (on_gpu)
    stamp["gpus"] =
        Json::array({{{"name", "NVIDIA H200"}, {"driver", "580.65"}, {"power_limit_w", 700}}});
  return stamp;
}

Session make_session(bool on_gpu, const std::vector<ExampleCall>& calls,
                     const ExampleOptions& options) {
  constexpr std::uint64_t first = 8;
  SessionBuilder builder;
  if (on_gpu) builder.gpu();
  for (int i = 0; i < options.workers; ++i)
    builder.thread(4300 + static_cast<std::uint32_t>(i), fmt::format("loader {}", i));
  double at = 0, window_begin = 0, window_end = 0;
  for (std::uint64_t step = 1; step <= options.steps; ++step) {
    const bool recorded = step >= first && step < first + options.recorded;
    const double end = at + step_length(calls, step);
    if (recorded && step == first) window_begin = at;
    if (recorded) window_end = end;
    add_step(builder, calls, on_gpu, at, step, recorded);
    if (recorded) add_workers(builder, options, at, end);
    at = end;
  }
  if (options.recorded > 0)
    builder.window(first, first + options.recorded - 1, window_begin, window_end, on_gpu);
  add_samples(builder, on_gpu, at);
  Session& session = builder.raw();
  session.stamp = stamp(on_gpu, options);
  session.loader = {{"workers", options.workers},
                    {"prefetch", 2},
                    {"batch", options.batch},
                    {"steps_per_epoch", 391}};
  session.peaks = {{"flops_per_second", {{"fp32", on_gpu ? 4.2e14 : 1.9e12}}},
                   {"bytes_per_second", on_gpu ? 4.3e12 : 9.1e10}};
  session.notes = {"The CPU's frequency cannot be read: cpufreq is not there."};
  return builder.build();
}

Example example(bool on_gpu, const ExampleOptions& options) {
  const std::vector<ExampleCall> calls = example_calls(options.blocks);
  Example example{make_session(on_gpu, calls, options), {}};
  fill_analysis(example.session, calls, example.analysis);
  return example;
}

}  // namespace

Example cpu_example(const ExampleOptions& options) {
  return example(false, options);
}

Example gpu_example(const ExampleOptions& options) {
  return example(true, options);
}

Comparison example_comparison() {
  return {.warnings = {"The runs used 4 and 6 workers."},
          .changes = {{"step", "", 41e6, 36.6e6, -4.9e6, -3.9e6, 0.0001, true},
                      {"data wait", "", 12.3e6, 7.1e6, -5.8e6, -4.7e6, 0.0001, true},
                      {"block1/conv", "forward", 2.4e6, 3.2e6, 0.6e6, 1.1e6, 0.002, true},
                      {"block2/conv", "forward", 2.2e6, 2.21e6, -0.02e6, 0.05e6, 0.4, false}},
          .waterfall = {{"data wait", -5.2e6}, {"block1/conv, forward", 0.8e6}, {"the rest", 0.0}},
          .verdict = "A step is 4.40 ms faster (36.6 for 41.0 ms): the loader waits less."};
}

}  // namespace warpstep::profiler::testing
