// A process of this program that another one starts, watches and stops: `train --repeat`, `try`.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace warpstep::tools {

struct ChildOptions {
  std::filesystem::path program = "/proc/self/exe";
  std::vector<std::string> environment;  // NAME=VALUE, in place of this process's variables
  std::filesystem::path output;          // replaced by its stdout and stderr; empty: this process's
  // In a process group of its own, which a terminal's signals do not reach. It ends at once when
  // this process ends; otherwise with SIGTERM.
  bool is_apart = false;
};

class Child {
 public:
  // `arguments` begin with the program's name. Error if no process can be started; a program that
  // cannot be executed ends with 127.
  explicit Child(const std::vector<std::string>& arguments, const ChildOptions& options = {});
  ~Child();  // kills it if it runs
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;

  // Its exit code once it has ended; as a shell, 128 and the signal that ended it.
  std::optional<int> exit_code();

  void end() const;  // SIGTERM: a training saves and ends
  // Stops all its threads where they are, and lets them go on. False if it has ended.
  bool pause();
  void resume() const;

 private:
  pid_t process_ = -1;
  std::optional<int> code_;
};

}  // namespace warpstep::tools
