// Sessions for tests, told in words: SessionBuilder().step(1, 0, 900).kernel("gemm", 340, 540) ...
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "profiler/session/session.h"

namespace warpstep::profiler::testing {

// Times are given in us and kept in ns, from 1 s on, so that 0 stays "no time".
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
  // A step whose parts are given in us; what is left is `other`.
  SessionBuilder& step(std::uint64_t number, double begin, double end, double kernels = 0,
                       double data = 0, double cpu = 0, double copies = 0);
  SessionBuilder& window(std::uint64_t first_step, std::uint64_t last_step, double begin,
                         double end, bool deep = false);
  SessionBuilder& span(Kind kind, std::string_view name, double begin, double end,
                       std::uint32_t thread = 0, std::uint64_t arg = 0);
  // A launch on the main thread and what it launched; both have one new correlation.
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
