#include "profiler/export/testing_analysis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "profiler/session/testing_builder.h"

namespace warpstep::profiler::testing {
namespace {

std::size_t index(Category category) {
  return static_cast<std::size_t>(category);
}

bool in_window(const Session& session, std::uint64_t step) {
  return std::ranges::any_of(session.windows, [&](const Window& window) {
    return step >= window.first_step && step <= window.last_step;
  });
}

Breakdown breakdown(const Session& session) {
  Breakdown result;
  result.from_spans = !session.windows.empty();
  for (const Step& step : session.steps) {
    StepParts parts{step.step, {step.begin_ns, step.end_ns}, {}, in_window(session, step.step)};
    parts.parts[index(Category::kernel)] = step.kernels_ns;
    parts.parts[index(Category::data)] = step.data_ns;
    parts.parts[index(Category::cpu)] = step.cpu_ns;
    parts.parts[index(Category::copy)] = step.copies_ns;
    std::uint64_t other = step.other_ns;
    if (!session.computes_on_host() && parts.from_spans) {  // from what is left, for the colours
      parts.parts[index(Category::runtime)] = other / 2;
      parts.parts[index(Category::sync)] = other / 4;
      other -= other / 2 + other / 4;
    }
    parts.parts[index(Category::other)] = other;
    result.steps.push_back(parts);
    if (result.from_spans && !parts.from_spans) continue;
    ++result.counted;
    for (std::size_t i = 0; i < categories; ++i)
      result.mean[i] += static_cast<double>(parts.parts[i]);
  }
  for (double& mean : result.mean) {
    mean /= static_cast<double>(std::max<std::size_t>(result.counted, 1));
    result.step_ns += mean;
  }
  return result;
}

Work work(const Session& session, const std::vector<ExampleCall>& calls, double step_ns) {
  const bool on_gpu = !session.computes_on_host();
  Work work{.peaks = {on_gpu ? 4.2e14 : 1.9e12, on_gpu ? 4.3e12 : 9.1e10}, .attributed = 0.993};
  const double speed = on_gpu ? 60 : 1;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const ExampleCall& call = calls[i];
    const double ns = 270e3 * call.weight, flops = call.flops * speed, bytes = call.bytes * speed;
    const double allowed =
        std::min(work.peaks.flops_per_second, flops / bytes * work.peaks.bytes_per_second);
    work.calls.push_back(
        {.call = static_cast<int>(i),
         .title = call.title,
         .layer = call.layer,
         .op = call.op,
         .phase = call.phase,
         .implementation = on_gpu ? "cudnn engine 47" : "winograd 4x4, AVX-512",
         .source = call.op == "softmax" ? "" : fmt::format("models/cifar10cnn.cpp:{}", 20 + i % 3),
         .inputs = "f32 128x32x32x64, f32 64x3x3x64",
         .count = 20,
         .total_ns = static_cast<std::uint64_t>(20 * ns),
         .ns = ns,
         .median_ns = ns,
         .p95_ns = ns * 1.08,
         .host_ns = 20 * 8000,
         .flops = flops,
         .bytes = bytes,
         .share = ns / step_ns,
         .flops_per_second = flops / (ns * 1e-9),
         .bytes_per_second = bytes / (ns * 1e-9),
         .of_peak = std::min(flops / (ns * 1e-9) / allowed, 0.97),
         .bound = flops / bytes > 30 ? "compute" : "memory",
         .tensor_cores = !on_gpu             ? ""
                         : call.op == "conv" ? "yes"
                                             : "no"});
    auto layer = std::ranges::find(work.layers, call.layer, &LayerRow::layer);
    if (layer == work.layers.end()) layer = work.layers.insert(layer, {.layer = call.layer});
    ++layer->calls;
    (call.phase == "forward"       ? layer->forward_ns
     : call.phase == "data_grad"   ? layer->data_grad_ns
     : call.phase == "weight_grad" ? layer->weight_grad_ns
                                   : layer->update_ns) += ns;
    layer->ns += ns;
    layer->flops += flops;
    layer->share = layer->ns / step_ns;
    layer->flops_per_second = layer->flops / (layer->ns * 1e-9);
    layer->of_peak = std::min(layer->flops_per_second / work.peaks.flops_per_second, 1.0);
    auto op = std::ranges::find(work.ops, call.op, &OpRow::op);
    if (op == work.ops.end()) op = work.ops.insert(op, {.op = call.op, .phase = call.phase});
    op->count += 20;
    op->ns += ns;
    op->share = op->ns / step_ns;
    if (on_gpu)
      work.kernels.push_back({.kernel = call.title + "_sm90_xmma_fprop_implicit_gemm_f16f16_f32",
                              .launch = "grid 66x1x1 block 256x1x1, 64 registers, 0 B",
                              .count = 20,
                              .total_ns = static_cast<std::uint64_t>(20 * ns),
                              .min_ns = static_cast<std::uint64_t>(0.9 * ns),
                              .max_ns = static_cast<std::uint64_t>(1.2 * ns),
                              .mean_ns = ns,
                              .share = ns / step_ns,
                              .blocks_per_multiprocessor = 3.5,
                              .occupancy = 0.48,
                              .tensor_cores = call.op == "conv"});
  }
  work.host = {{"wait for a batch", "wait", 20, 246'000'000, 246'000'000, 15'000'000, 0.3},
               {"observers", "range", 20, 16'000'000, 14'000'000, 900'000, 0.02}};
  work.steps = 20;
  return work;
}

MemoryTimeline memory(const std::vector<ExampleCall>& calls) {
  MemoryTimeline memory{.kinds = {"parameter", "gradient", "moment", "activation", "workspace"}};
  const auto count = calls.size();
  memory.by_kind.assign(5, std::vector<std::uint64_t>(count, 0));
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t half = count / 2;
    const std::uint64_t alive = i < half ? i : count - i;
    memory.by_kind[0][i] = 6 << 20;
    memory.by_kind[1][i] = 6 << 20;
    memory.by_kind[2][i] = 12 << 20;
    memory.by_kind[3][i] = alive * (3 << 20);
    memory.by_kind[4][i] = calls[i].op == "conv" ? 16 << 20 : 0;
  }
  memory.arena_bytes = 130 << 20;
  memory.persistent_bytes = 24 << 20;
  memory.peak_bytes = 118 << 20;
  memory.peak_call = static_cast<int>(count / 2);
  memory.by_kind[4][count / 2] = 16 << 20;
  memory.fragmentation = 0.09;
  for (std::size_t i = 0; i < 6; ++i)
    memory.at_peak.push_back({calls[i].layer, i == 0 ? "workspace" : "activation",
                              calls[i].title + ".out", (30 - 4 * i) << 20});
  memory.persistent = {{"block1", "parameter", "block1/conv.weight", 3 << 20}};
  return memory;
}

LoaderView loader(const Session& session) {
  LoaderView view{.has_spans = !session.windows.empty(),
                  .workers = 4,
                  .prefetch = 2,
                  .cores = 8,
                  .batch = 128,
                  .stages = {"read", "decode", "transform"},
                  .stage_ns = {20e6, 116.4e6, 27.6e6},
                  .work_ns = 164e6,
                  .step_ns = 28.7e6,
                  .wait_ns = 12.3e6,
                  .queue_depth = 0.4,
                  .cpu_share = 0.97};
  for (std::size_t i = 1; i < session.threads.size(); ++i)
    view.by_worker.push_back({session.threads[i].name,
                              640,
                              {100'000'000, 582'000'000 + i * 9'000'000, 138'000'000},
                              12'000'000 + i * 40'000'000,
                              0.97});
  std::uint64_t at = session.steps.front().begin_ns;
  for (const Step& step : session.steps) {
    if (!in_window(session, step.step)) continue;
    view.queue.emplace_back(step.begin_ns + step.data_ns, 0);
    view.queue.emplace_back(step.begin_ns + step.data_ns + 9'000'000, 1);
    view.queue.emplace_back(step.begin_ns + step.data_ns + 15'000'000 + at % 7, 2);
  }
  for (const Step& step : session.steps) view.waits_ns.push_back(step.data_ns);
  for (std::uint64_t i = 0; i < 2560; ++i) {
    const std::uint64_t random = i * 2654435761U % 1009;
    view.service_ns.push_back(900'000 + random * random + (i % 97 == 0 ? 3'000'000 : 0));
  }
  return view;
}

Stall stall(const Session& session) {
  if (session.windows.empty()) return {};
  return {.is_stalled = true,
          .first_step = 8,
          .last_step = 27,
          .wait_ns = 12.3e6,
          .step_ns = 41e6,
          .predicted_wait_ns = 12.1e6,
          .stage = "decode",
          .stage_share = 0.71,
          .bound = Bound::cpu,
          .workers_needed = 6,
          .step_with_them_ns = 28.7e6,
          .speedup = 1.43,
          .stage_speedup_needed = 1.73,
          .wait_by_workers_ns = {135e6, 53e6, 26e6, 12.3e6, 4.1e6, 0.2e6, 0, 0},
          .wait_by_prefetch_ns = {{1, 14e6}, {2, 12.3e6}, {3, 12.1e6}, {4, 12e6}, {8, 12e6}},
          .text =
              "steps 8-27: waited 12.3 of 41.0 ms (30%) for the loader; decode is 71% of 164 ms "
              "worker time per batch, CPU-bound; 6 workers hide it (step 28.7 ms, 1.43x); "
              "staying at 4 workers, decode must get 1.73x faster."};
}

CriticalPath path(const Session& session, double step_ns) {
  if (session.windows.empty()) return {};
  const Step& step = session.steps[15];
  CriticalPath path{.step = step.step};
  const std::uint64_t wait_end = step.begin_ns + step.data_ns;
  path.edges.push_back({step.begin_ns, wait_end, "data", "wait for a batch"});
  for (std::uint64_t i = 0; i < 8; ++i) {
    const std::uint64_t part = (step.end_ns - wait_end) / 8;
    path.edges.push_back({wait_end + i * part, wait_end + (i + 1) * part, i == 7 ? "cpu" : "kernel",
                          i == 7 ? "observers" : "block1/conv"});
  }
  path.shares = {{"kernel", 0.66 * step_ns, 0.66},
                 {"data", 0.3 * step_ns, 0.3},
                 {"cpu", 0.04 * step_ns, 0.04}};
  return path;
}

std::vector<Finding> findings(bool on_gpu) {
  std::vector<Finding> findings{
      {"data-wait", "Steps wait for the loader.",
       "12.3 of 41.0 ms per step (30 %); decode is 71 % of 164 ms worker time per batch, "
       "CPU-bound.",
       "Use 6 workers: 8 cores are there.", "--workers 6", 12.3e6},
      {"memory-bound", "Normalisation is bound by memory and not fused.",
       "21 calls move 546 MB per step at 62 % of the measured bandwidth.",
       "Let the fusion of norm and relu be on.", "--no-fuse=", 1.1e6},
      {"small-batch", "The last layers are too small for the cores.",
       "block7 reaches 11 % of its peak.", "Use a larger batch if the accuracy allows it.",
       "--batch 256", 0}};
  if (on_gpu)
    findings.push_back({"no-tensor-cores", "One convolution does not run on tensor cores.",
                        "block1/conv takes 4 % of the kernels' time.",
                        "Make its 3 channels a multiple of 8.", "", 0.4e6});
  return findings;
}

}  // namespace

void fill_analysis(const Session& session, const std::vector<ExampleCall>& calls,
                   Analysis& analysis) {
  analysis.breakdown = breakdown(session);
  const double step_ns = analysis.breakdown.step_ns;
  analysis.work = work(session, calls, step_ns);
  analysis.memory = memory(calls);
  analysis.loader = loader(session);
  analysis.stall = stall(session);
  analysis.path = path(session, step_ns);
  analysis.findings = findings(!session.computes_on_host());
  analysis.trust = {.overhead_ns = 21e3,
                    .overhead_share = 21e3 / step_ns,
                    .clock_error_ns = session.computes_on_host() ? 0U : 1200U,
                    .notes = {"The CPU's frequency cannot be read: cpufreq is not there."}};
  if (session.computes_on_host()) return;
  DeviceMetrics device{.name = "NVIDIA H200",
                       .utilization = 0.652,
                       .sm_efficiency = 0.41,
                       .occupancy = 0.374,
                       .tensor_core_share = 0.58,
                       .copy_share = 0.02,
                       .bucket_ns = 10'000'000};
  for (std::uint64_t i = 0; i < 82; ++i)
    device.timeline.push_back(i % 4 == 0 ? 0.2 : 0.7 + 0.003 * static_cast<double>(i));
  analysis.devices.push_back(device);
}

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
