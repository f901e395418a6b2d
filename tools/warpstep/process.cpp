#include "tools/warpstep/process.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>

#include "tools/warpstep/say.h"

namespace warpstep::tools {
namespace {

constexpr rlim_t usual_bytes = rlim_t{8} << 20;  // the usual stack limit
constexpr rlim_t least_bytes = rlim_t{1} << 20;

std::string kib(rlim_t bytes) {
  return fmt::format("{} KiB", bytes / 1024);
}

}  // namespace

void open_standard_descriptors() {
  // If stderr is closed too, as in a daemon, no reader expects results.
  const bool is_daemon = ::fcntl(STDERR_FILENO, F_GETFD) == -1;
  const std::array<int, 3> modes{O_RDONLY, is_daemon ? O_WRONLY : O_RDONLY, O_WRONLY};
  for (int number = 0; number < 3; ++number) {
    if (::fcntl(number, F_GETFD) != -1) continue;
    // open() uses the lowest free number: this one.
    if (::open("/dev/null", modes[static_cast<std::size_t>(number)]) < 0) ::open("/", O_RDONLY);
  }
}

bool settle_stacks() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_STACK, &limit) != 0) return true;
  if (limit.rlim_cur < usual_bytes) {
    limit.rlim_cur = std::min(usual_bytes, limit.rlim_max);
    ::setrlimit(RLIMIT_STACK, &limit);  // the main thread's stack can grow this far
  }
  if (limit.rlim_cur < least_bytes) {
    say("warpstep: the stack is limited to {}, and {} are needed: raise the limit (ulimit -s {})\n",
        kib(limit.rlim_cur), kib(least_bytes), usual_bytes / 1024);
    return false;
  }
  // The C library reads the stack size of threads from the limit at program start.
  pthread_attr_t attributes;
  std::size_t bytes = 0;
  if (pthread_getattr_default_np(&attributes) != 0) return true;
  pthread_attr_getstacksize(&attributes, &bytes);
  if (bytes < usual_bytes) {
    pthread_attr_setstacksize(&attributes, usual_bytes);
    pthread_setattr_default_np(&attributes);
  }
  pthread_attr_destroy(&attributes);
  return true;
}

}  // namespace warpstep::tools
