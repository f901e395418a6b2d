// Runs for comparisons: calls of a planned length with noise, and what is planned to differ.
#pragma once

#include <cmath>
#include <string>

#include "engine/core/random.h"
#include "profiler/session/testing_builder.h"

namespace warpstep::profiler::testing {

struct Planned {
  int calls = 10, steps = 60, windows = 1;
  double call_us = 500, noise = 0.015;  // lognormal
  double small_us = 0;                  // of the third call; 0: like the others
  double slower = 1;                    // of the third call
  double speed = 1;                     // all times by this
  double disturbed = 0, stretched = 1;  // a share of the steps, by other work on the machine
  double wait_us = 0;
  int wait_every = 1;  // the steps of these multiples wait
  int accumulate = 1;
  double update_us = 0;  // of the call "update_all", in the last step of an update
  bool gpu = false;
};

inline double normal(std::uint32_t seed, std::uint64_t index) {
  const auto words = draw(seed, Purpose::synthetic, 3, index);
  const double u = (words[0] + 0.5) / 4294967296.0, v = words[1] / 4294967296.0;
  return std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v);
}

inline std::string layer(int call) {
  return "layer" + std::to_string(call) + "/conv";
}

inline Json stamped(const std::string& model, int batch) {
  return {{"options", {{"model", model}, {"batch", batch}, {"precision", "fp32"}}},
          {"cpu", {{"model", "one CPU"}, {"cores", 2}}}};
}

inline Session planned(const Planned& plan, std::uint32_t seed) {
  SessionBuilder builder;
  if (plan.gpu) builder.gpu();
  double now = 0;
  std::uint64_t index = 0;
  const int per_window = plan.steps / plan.windows;
  double window_begin = 0;
  for (int s = 0; s < plan.steps; ++s) {
    const double begin = now;
    double kernels = 0;
    const double wait_us = (s + 1) % plan.wait_every == 0 ? plan.wait_us : 0;
    now += wait_us;
    const bool is_disturbed = draw(seed, Purpose::synthetic, 4, static_cast<std::uint64_t>(s))[0] <
                              plan.disturbed * 4294967296.0;
    const double speed = plan.speed * (is_disturbed ? plan.stretched : 1);
    for (int c = 0; c < plan.calls; ++c) {
      const double us = speed * (c == 2 && plan.small_us > 0 ? plan.small_us : plan.call_us) *
                        (c == 2 ? plan.slower : 1) * std::exp(plan.noise * normal(seed, index++));
      const auto call = static_cast<std::uint32_t>(c);
      if (plan.gpu) {
        builder.launch(begin + 1, begin + 2, What::kernel, "k", now, now + us, 7, call + 1);
      } else {
        builder.span(Kind::call, layer(c), now, now + us, 0, call);
      }
      kernels += us;
      now += us;
    }
    if (plan.update_us > 0 && (s + 1) % plan.accumulate == 0) {
      const double us = plan.update_us * std::exp(plan.noise * normal(seed, index++));
      builder.span(Kind::call, "update_all", now, now + us, 0,
                   static_cast<std::uint64_t>(plan.calls));
      kernels += us;
      now += us;
    }
    now += 50 * std::exp(0.1 * normal(seed, index++));
    builder.step(static_cast<std::uint64_t>(s + 1), begin, now, kernels, wait_us, 20);
    if ((s + 1) % per_window == 0) {
      const auto last = static_cast<std::uint64_t>(s + 1);
      builder.window(last - static_cast<std::uint64_t>(per_window) + 1, last, window_begin, now);
      window_begin = now;
    }
  }
  Session& session = builder.raw();
  for (int c = 0; c < plan.calls; ++c)
    session.program["calls"].push_back({{"title", layer(c)}, {"phase", "forward"}});
  if (plan.update_us > 0)
    session.program["calls"].push_back({{"title", "update_all"}, {"phase", "update"}});
  session.stamp = stamped("cnn", 128);
  if (plan.accumulate > 1) session.stamp["options"]["accumulate"] = plan.accumulate;
  return builder.build();
}

}  // namespace warpstep::profiler::testing
