// Builds sessions for tests: SessionBuilder().step(1, 0, 900).window(1, 1, 0, 900).build()
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "profiler/session/session.h"

namespace warpstep::profiler::testing {

// Arguments are in us; times in the session are in ns and start at 1 s, so that 0 means "no time".
class SessionBuilder {
 public:
  static constexpr std::uint64_t origin_ns = 1'000'000'000;
  static constexpr std::uint64_t at(double us) {
    return origin_ns + static_cast<std::uint64_t>(us * 1000);
  }

  SessionBuilder() { session_.threads.push_back({4242, "main"}); }

  // A GPU like an H200: 132 multiprocessors, compute capability 9.0.
  SessionBuilder& gpu();
  SessionBuilder& thread(std::uint32_t system, std::string name);
  // A step with the given parts in us; the rest is `other`.
  SessionBuilder& step(std::uint64_t number, double begin, double end, double kernels = 0,
                       double data = 0, double cpu = 0, double copies = 0);
  SessionBuilder& window(std::uint64_t first_step, std::uint64_t last_step, double begin,
                         double end, bool deep = false);
  SessionBuilder& span(Kind kind, std::string_view name, double begin, double end,
                       std::uint32_t thread = 0, std::uint64_t arg = 0);
  // A launch on the main thread and the work that it launched, with the same new correlation.
  SessionBuilder& launch(double api_begin, double api_end, What what, std::string_view name,
                         double begin, double end, std::uint32_t stream = 7,
                         std::uint32_t external = 0);
  SessionBuilder& activity(Activity activity, Kind kind, std::string_view name);
  SessionBuilder& sample(std::string_view name, double at_us, double value);

  Activity& last_activity() { return session_.activities.back(); }
  Session& raw() { return session_; }
  Session build();  // finish_session()

  std::uint32_t name(Kind kind, std::string_view text);

 private:
  Session session_;
  std::uint32_t next_correlation_ = 1000;
};

}  // namespace warpstep::profiler::testing
