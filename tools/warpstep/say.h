// What the program prints besides results that a user waits for: it never ends a run.
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <utility>

namespace warpstep::tools {

namespace output {
// Why stdout could not be written, of tell(); 0: it could.
inline int stdout_error = 0;

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

// Progress, notes and errors, on stderr. Where that is closed, its disk is full or its reader went
// away, the text is lost and nothing else.
template <class... Args>
void say(fmt::format_string<Args...> format, Args&&... args) noexcept {
  output::put(stderr, format, std::forward<Args>(args)...);
}

// Results, on stdout, of a command that has saved them besides: it goes on without a reader. The
// program's end reports the failure, see command.cpp.
template <class... Args>
void tell(fmt::format_string<Args...> format, Args&&... args) noexcept {
  errno = 0;
  if (!output::put(stdout, format, std::forward<Args>(args)...) && output::stdout_error == 0)
    output::stdout_error = errno;
}

}  // namespace warpstep::tools
