#include "profiler/session/testing_builder.h"

namespace warpstep::profiler::testing {

std::uint32_t SessionBuilder::name(Kind kind, std::string_view text) {
  for (std::uint32_t i = 0; i < session_.names.size(); ++i)
    if (session_.names[i].kind == kind && session_.names[i].text == text) return i;
  session_.names.push_back({std::string(text), kind});
  return static_cast<std::uint32_t>(session_.names.size() - 1);
}

SessionBuilder& SessionBuilder::gpu() {
  Device device{.id = static_cast<std::uint32_t>(session_.devices.size()),
                .compute_major = 9,
                .multiprocessors = 132,
                .max_threads_per_block = 1024,
                .max_threads_per_multiprocessor = 2048,
                .max_blocks_per_multiprocessor = 32,
                .registers_per_block = 65536,
                .registers_per_multiprocessor = 65536,
                .warp_size = 32,
                .total_memory = 150'754'820'096,
                .shared_per_block = 49152,
                .shared_per_block_optin = 232448,
                .shared_per_multiprocessor = 233472,
                .reserved_shared_per_block = 1024};
  device.name = name(Kind::range, "NVIDIA H200");
  session_.devices.push_back(device);
  return *this;
}

SessionBuilder& SessionBuilder::thread(std::uint32_t system, std::string text) {
  session_.threads.push_back({system, std::move(text)});
  return *this;
}

SessionBuilder& SessionBuilder::step(std::uint64_t number, double begin, double end, double kernels,
                                     double data, double cpu, double copies) {
  const auto ns = [](double us) { return static_cast<std::uint64_t>(us * 1000); };
  Step step{.step = number,
            .epoch = 1,
            .begin_ns = at(begin),
            .end_ns = at(end),
            .data_ns = ns(data),
            .copies_ns = ns(copies),
            .kernels_ns = ns(kernels),
            .cpu_ns = ns(cpu),
            .samples = 128,
            .loss = 2.3,
            .learning_rate = 0.001,
            .correct = 13};
  step.other_ns =
      step.end_ns - step.begin_ns - step.data_ns - step.copies_ns - step.kernels_ns - step.cpu_ns;
  session_.steps.push_back(step);
  return *this;
}

SessionBuilder& SessionBuilder::window(std::uint64_t first_step, std::uint64_t last_step,
                                       double begin, double end, bool deep) {
  session_.windows.push_back({first_step, last_step, at(begin), at(end), deep ? 1U : 0U, 1});
  return *this;
}

SessionBuilder& SessionBuilder::span(Kind kind, std::string_view text, double begin, double end,
                                     std::uint32_t thread, std::uint64_t arg) {
  session_.spans.push_back({at(begin), at(end), arg, name(kind, text), thread});
  return *this;
}

SessionBuilder& SessionBuilder::activity(Activity activity, Kind kind, std::string_view text) {
  activity.name = name(kind, text);
  session_.activities.push_back(activity);
  return *this;
}

SessionBuilder& SessionBuilder::launch(double api_begin, double api_end, What what,
                                       std::string_view text, double begin, double end,
                                       std::uint32_t stream, std::uint32_t external) {
  const std::uint32_t correlation = next_correlation_++;
  activity({.start_ns = at(api_begin),
            .end_ns = at(api_end),
            .correlation = correlation,
            .external = external,
            .stream = 4242,
            .what = What::api},
           Kind::host_api,
           what == What::kernel ? "cudaLaunchKernel"
           : what == What::copy ? "cudaMemcpyAsync"
                                : "cudaMemsetAsync");
  return activity({.start_ns = at(begin),
                   .end_ns = at(end),
                   .correlation = correlation,
                   .external = external,
                   .stream = stream,
                   .context = 1,
                   .what = what},
                  Kind::kernel, text);
}

SessionBuilder& SessionBuilder::sample(std::string_view text, double at_us, double value) {
  session_.samples.push_back({at(at_us), name(Kind::metric, text), 0, value});
  return *this;
}

Session SessionBuilder::build() {
  Session session = session_;
  finish_session(session, "a test's session");
  return session;
}

}  // namespace warpstep::profiler::testing
