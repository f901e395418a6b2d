// What the programs of this folder have in common: a command line, exit codes, and the line
// protocol of bench/peers.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <optional>
#include <string>

#include "engine/core/error.h"

namespace warpstep::bench {

// Parses, calls work() and returns its exit code; 2 for wrong usage; 1 for any other error, and if
// stdout did not take what was printed. Errors appear on stderr, after the name of `app`.
template <class Work>
int run_program(CLI::App& app, int argc, char** argv, Work work) {
  const auto failed = [&](int code, const char* why) {
    fmt::print(stderr, "{}: {}\n", app.get_name(), why);
    return code;
  };
  try {
    app.parse(argc, argv);
    const int code = work();
    if (std::fflush(stdout) != 0 || std::ferror(stdout)) fail<Error>("cannot write to stdout");
    return code;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const UsageError& error) {
    return failed(2, error.what());
  } catch (const std::exception& error) {
    return failed(1, error.what());
  }
}

// The size of the next window that stdin wants; none at its end or at "quit". Throws UsageError.
inline std::optional<std::uint64_t> next_window() {
  std::string command;
  if (!(std::cin >> command) || command == "quit") return std::nullopt;
  if (command != "window")
    fail<UsageError>("unknown command '{}' on stdin; there are window N and quit", command);
  std::uint64_t size = 0;
  if (!(std::cin >> size)) fail<UsageError>("the command window on stdin needs a whole number");
  return size;
}

}  // namespace warpstep::bench
