// Runs the program as a user does: with arguments, returning its exit code and both outputs.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/build_tree.h"

namespace warpstep::system_test {

struct Ended {
  int exit_code = -1;      // -1: a signal ended it
  int signal = 0;          // that one
  bool timed_out = false;  // it was killed after the time limit
  double seconds = 0;
  std::string out, err;
};

inline const double enough_seconds = testing_support::sanitized() ? 480 : 120;

// The target of a standard stream of the program: the test's own, closed, on a full disk, or a pipe
// whose reader has closed it.
enum class Standard { kept, closed, full, gone };

struct Setting {
  std::string program;               // its path; empty: this build's warpstep
  std::string folder;                // its current folder; empty: the test's own
  double seconds = enough_seconds;   // then it is killed
  std::uint64_t max_file_bytes = 0;  // a write beyond fails as on a full disk; 0: no limit
  Standard in = Standard::kept, out = Standard::kept, err = Standard::kept;
  std::uint64_t max_stack_bytes = 0;    // 0: as here
  std::uint64_t max_address_bytes = 0;  // 0: as here
};

// A started program. Its environment hides GPUs and makes OpenMP threads wait without spinning.
class Program {
 public:
  explicit Program(const std::vector<std::string>& arguments, const Setting& setting = {});
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program();  // kills it

  pid_t id() const { return process_; }
  void signal(int number) const;
  // Checks every few milliseconds; false if the program ended or the time ran out before.
  bool wait_until(const std::function<bool()>& condition);
  bool wait_for_err(const std::string& text);  // on standard error
  Ended wait();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  using File = std::unique_ptr<std::FILE, Close>;

  double age() const;
  bool reaped();

  File out_, err_;
  pid_t process_ = -1;
  double begin_ = 0;
  double limit_ = 0;
  bool ended_ = false;
  int status_ = 0;
};

// A library of the build: "libwarpstep_ref".
std::string module_path(const std::string& name);
Ended run(const std::vector<std::string>& arguments, const Setting& setting = {});

}  // namespace warpstep::system_test
