// What the programs of this folder have in common: a command line, and exit codes.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

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

}  // namespace warpstep::bench
