// Messages: printing them never ends a run.
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <utility>

namespace warpstep::tools {

namespace output {
// The errno of the first failed print_result() or flush_results(); 0: none.
inline int stdout_error = 0;

// Ranks but the first of a data-parallel job say nothing but errors.
inline bool is_quiet = false;

// What say_below_error() holds back until the error is printed.
inline std::string below_error;

// Whether all of it was written. fmt::print() would throw.
template <class... Args>
bool put(std::FILE* file, fmt::format_string<Args...> format, Args&&... args) noexcept {
  try {
    const std::string text = fmt::format(format, std::forward<Args>(args)...);
    return std::fwrite(text.data(), 1, text.size(), file) == text.size();
  } catch (...) {  // no memory for the text
    errno = ENOMEM;
    return false;
  }
}
}  // namespace output

// Progress, notes and errors, on stderr. If stderr is closed, its disk is full or its reader went
// away, only the text is lost.
template <class... Args>
void say(fmt::format_string<Args...> format, Args&&... args) noexcept {
  if (!output::is_quiet) output::put(stderr, format, std::forward<Args>(args)...);
}

// As say(), but below the error that ends the command.
template <class... Args>
void say_below_error(fmt::format_string<Args...> format, Args&&... args) noexcept {
  try {
    output::below_error += fmt::format(format, std::forward<Args>(args)...);
  } catch (...) {  // no memory for the text
  }
}

// Results on stdout that the command has also saved: it continues without a reader. The program
// reports the failure at its end, see command.cpp.
template <class... Args>
void print_result(fmt::format_string<Args...> format, Args&&... args) noexcept {
  if (output::is_quiet) return;
  errno = 0;
  if (!output::put(stdout, format, std::forward<Args>(args)...) && output::stdout_error == 0)
    output::stdout_error = errno;
}

// What print_result() has buffered; a failure counts as one of print_result(), and the C library
// does not report it again at the end.
inline void flush_results() noexcept {
  if (std::fflush(stdout) != 0 && output::stdout_error == 0) output::stdout_error = errno;
}

}  // namespace warpstep::tools
