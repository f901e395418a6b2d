// Runs a subcommand of this build's program and returns its output, for tests of one command.
#pragma once

#include <fmt/format.h>
#include <sys/wait.h>

#include <cstdio>
#include <string>

#include "tests/build_tree.h"

namespace warpstep {

struct Result {
  int code = -1;
  std::string text;
};

// stdout, or with `messages` stderr instead.
inline Result run_command(const std::string& command, const std::string& arguments, bool messages) {
  const std::string line =
      fmt::format("{}/bin/warpstep {} {} {}", testing_support::binary_dir(), command, arguments,
                  messages ? "2>&1 >/dev/null" : "2>/dev/null");
  FILE* pipe = popen(line.c_str(), "r");
  if (!pipe) return {};
  Result result;
  char part[4096];
  for (std::size_t n = 0; (n = std::fread(part, 1, sizeof part, pipe)) > 0;)
    result.text.append(part, n);
  result.code = WEXITSTATUS(pclose(pipe));
  return result;
}

}  // namespace warpstep
