#include "tests/system/program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <thread>

namespace warpstep::system_test {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string content(std::FILE* file) {
  std::string text;
  for (char part[4096];;) {
    const ssize_t got = ::pread(::fileno(file), part, sizeof part, static_cast<off_t>(text.size()));
    if (got <= 0) return text;
    text.append(part, static_cast<std::size_t>(got));
  }
}

void limit(int resource, std::uint64_t bytes) {
  if (bytes == 0) return;
  const rlimit both{bytes, bytes};
  ::setrlimit(static_cast<__rlimit_resource>(resource), &both);
}

bool set_stream(int number, int kept, Standard wanted) {
  int ends[2];
  if (wanted == Standard::closed) return ::close(number) == 0;
  if (wanted == Standard::full) kept = ::open("/dev/full", O_WRONLY);
  if (wanted == Standard::gone) {
    if (::pipe(ends) != 0) return false;
    ::close(ends[0]);
    kept = ends[1];
  }
  return ::dup2(kept, number) == number && (wanted == Standard::kept || ::close(kept) == 0);
}

// In the child: up to exec only calls that are allowed after a fork.
[[noreturn]] void become(char* const* arguments, int out, int err, const Setting& setting) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // no child outlives a killed test
  // A shell's background, where tests may run, ignores them.
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::signal(number, SIG_DFL);
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (!set_stream(0, nothing, setting.in) || !set_stream(1, out, setting.out) ||
      !set_stream(2, err, setting.err))
    ::_exit(126);
  limit(RLIMIT_FSIZE, setting.max_file_bytes);
  limit(RLIMIT_STACK, setting.max_stack_bytes);
  limit(RLIMIT_AS, setting.max_address_bytes);
  if (!setting.folder.empty() && ::chdir(setting.folder.c_str()) != 0) ::_exit(127);
  ::execv(arguments[0], arguments);
  ::_exit(127);
}

}  // namespace

Program::Program(const std::vector<std::string>& arguments, const Setting& setting)
    : out_(std::tmpfile()), err_(std::tmpfile()), begin_(now()), limit_(setting.seconds) {
  if (!out_ || !err_) throw std::runtime_error("no temporary file");
  ::setenv("OMP_WAIT_POLICY", "passive", 1);
  ::setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
  std::vector<std::string> words{
      setting.program.empty() ? testing_support::binary_dir() + "/bin/warpstep" : setting.program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  process_ = ::fork();
  if (process_ < 0) throw std::runtime_error("cannot fork");
  if (process_ == 0) become(pointers.data(), ::fileno(out_.get()), ::fileno(err_.get()), setting);
}

Program::~Program() {
  if (ended_) return;
  ::kill(process_, SIGKILL);
  ::waitpid(process_, &status_, 0);
}

double Program::age() const {
  return now() - begin_;
}

bool Program::reaped() {
  if (!ended_) ended_ = ::waitpid(process_, &status_, WNOHANG) == process_;
  return ended_;
}

void Program::signal(int number) const {
  if (!ended_) ::kill(process_, number);
}

bool Program::wait_until(const std::function<bool()>& condition) {
  while (!condition()) {
    if (reaped() || age() > limit_) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

bool Program::wait_for_err(const std::string& text) {
  return wait_until([&] { return content(err_.get()).find(text) != std::string::npos; });
}

Ended Program::wait() {
  Ended result;
  if (!wait_until([&] { return reaped(); })) {
    result.timed_out = true;
    ::kill(process_, SIGKILL);
    ended_ = ::waitpid(process_, &status_, 0) == process_;
  }
  result.seconds = age();
  if (WIFEXITED(status_)) result.exit_code = WEXITSTATUS(status_);
  if (WIFSIGNALED(status_)) result.signal = WTERMSIG(status_);
  result.out = content(out_.get());
  result.err = content(err_.get());
  return result;
}

std::string module_path(const std::string& name) {
  return testing_support::binary_dir() + "/lib/" + name + ".so";
}

Ended run(const std::vector<std::string>& arguments, const Setting& setting) {
  return Program(arguments, setting).wait();
}

}  // namespace warpstep::system_test
