#include "tools/warpstep/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "engine/core/error.h"
#include "tools/warpstep/command.h"

namespace warpstep::tools {
namespace {

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// This process's variables but for those of the same names.
std::vector<std::string> environment_with(const std::vector<std::string>& more) {
  std::vector<std::string> all = more;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    const std::string name = text.substr(0, text.find('=') + 1);
    bool is_replaced = false;
    for (const std::string& other : more) is_replaced = is_replaced || other.starts_with(name);
    if (!is_replaced) all.push_back(text);
  }
  return all;
}

}  // namespace

// Between fork() and exec only system calls are allowed: other threads may have held any lock.
Child::Child(const std::vector<std::string>& arguments, const ChildOptions& options) {
  std::vector<std::string> words = arguments, variables = environment_with(options.environment);
  const std::vector<char*> argv = pointers_to(words), environment = pointers_to(variables);
  const char* const output = options.output.empty() ? nullptr : options.output.c_str();
  const pid_t parent = ::getpid();
  process_ = ::fork();
  if (process_ < 0) fail<Error>("cannot start a process: {}", std::strerror(errno));
  if (process_ > 0) return;
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (options.is_apart) ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, options.is_apart ? SIGKILL : SIGTERM);  // no run continues alone
  if (::getppid() != parent) ::_exit(failed);
  if (output != nullptr) {
    const int file = ::open(output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0 || ::dup2(file, STDOUT_FILENO) < 0 || ::dup2(file, STDERR_FILENO) < 0)
      ::_exit(failed);
  }
  ::execve(options.program.c_str(), argv.data(), environment.data());
  ::_exit(127);
}

Child::Child(Child&& other) noexcept
    : process_(std::exchange(other.process_, -1)), code_(other.code_) {}

Child::~Child() {
  if (process_ < 0 || exit_code()) return;
  ::kill(process_, SIGKILL);
  while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) continue;
}

std::optional<int> Child::exit_code() {
  if (code_) return code_;
  int status = 0;
  const pid_t ended = ::waitpid(process_, &status, WNOHANG);
  if (ended == process_) code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (ended < 0 && errno != EINTR) code_ = failed;
  return code_;
}

void Child::end() const {
  ::kill(process_, SIGTERM);
  resume();
}

bool Child::pause() {
  if (exit_code()) return false;
  ::kill(process_, SIGSTOP);
  int status = 0;
  while (::waitpid(process_, &status, WUNTRACED) < 0)
    if (errno != EINTR) return false;
  if (WIFSTOPPED(status)) return true;
  code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return false;
}

void Child::resume() const {
  ::kill(process_, SIGCONT);
}

}  // namespace warpstep::tools
