#include "data/worker_spans.h"

#include <ctime>

namespace warpstep::data::spans {
namespace {

constexpr std::uint64_t least_idle_ns = 2'000;

std::uint64_t thread_cpu_ns() {  // 0.4 us: a system call
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(time.tv_nsec);
}

}  // namespace

std::string of_loader(const std::string& name, const std::string& thread_name) {
  return thread_name == "loader" ? name : name + ", " + thread_name;
}

void Idle::end() const {
  if (since_ns_ == 0) return;
  const std::uint64_t now = now_ns();
  if (now - since_ns_ >= least_idle_ns) record::note(idle, since_ns_, now);
}

CpuTime::CpuTime() : begin_ns_(record::is_on() ? thread_cpu_ns() : 0) {}

CpuTime::~CpuTime() {
  if (begin_ns_ != 0) record::mark(worker_cpu, thread_cpu_ns() - begin_ns_);
}

}  // namespace warpstep::data::spans
