#include "data/load/batch_maker.h"

#include <pthread.h>

#include <ctime>
#include <mutex>

#include "engine/core/clock.h"
#include "engine/core/record.h"

namespace warpstep::data {

namespace {

std::uint64_t read_ns(clockid_t clock) {  // 0.4 us: a system call
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(time.tv_nsec);
}

}  // namespace

CpuClock::Running::Running(CpuClock& clock) : clock_(clock) {
  const std::lock_guard lock(clock_.mutex_);
  clockid_t own{};
  if (::pthread_getcpuclockid(::pthread_self(), &own) == 0) clock_.running_ = own;
}

CpuClock::Running::~Running() {
  const std::lock_guard lock(clock_.mutex_);
  if (clock_.running_) clock_.ended_ns_ += read_ns(*clock_.running_);
  clock_.running_.reset();
}

std::uint64_t CpuClock::ns() const {
  const std::lock_guard lock(mutex_);  // the thread does not end meanwhile
  return ended_ns_ + (running_ ? read_ns(*running_) : 0);
}

}  // namespace warpstep::data

namespace warpstep::data::spans {
namespace {

constexpr std::uint64_t least_idle_ns = 2'000;
constexpr std::uint64_t long_off_ns = 50'000;  // a core: much more than a reading of delays takes

std::uint64_t thread_cpu_ns() {
  return read_ns(CLOCK_THREAD_CPUTIME_ID);
}

}  // namespace

std::string of_loader(const std::string& name, const std::string& thread_name) {
  return thread_name == "loader" ? name : name + ", " + thread_name;
}

void Idle::end(RunDelay& delay) const {
  if (since_ns_ == 0) return;
  const std::uint64_t now = now_ns();
  if (now - since_ns_ < least_idle_ns) return;
  record::note(idle, since_ns_, now);
  if (record::has_details()) delay.since_last();
}

CpuTime::CpuTime(RunDelay& delay) : delay_(delay) {
  if (!record::has_details()) return;
  begin_ns_ = now_ns();
  cpu_begin_ns_ = thread_cpu_ns();
}

CpuTime::~CpuTime() {
  if (begin_ns_ == 0) return;
  const std::uint64_t cpu = thread_cpu_ns() - cpu_begin_ns_;
  record::mark(worker_cpu, cpu);
  if (now_ns() - begin_ns_ < cpu + long_off_ns) return;
  if (const auto ns = delay_.since_last()) record::mark(worker_delay, *ns);
}

}  // namespace warpstep::data::spans
