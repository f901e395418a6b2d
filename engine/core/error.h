// The few exception types of Warpstep. A message says who (scope/op or command), what (with the
// numbers), where (model file:line, or data file and byte) and what to do about it.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace warpstep {

// Base of everything Warpstep throws on purpose. Programs end with exit code 1, or 2 for
// UsageError.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct UsageError : Error {  // an option, a model name or an API call that cannot be meant
  using Error::Error;
};
struct ShapeError : Error {  // shapes of a model that do not fit each other
  using Error::Error;
};
struct DataError : Error {  // a file or data set that is missing, broken or not what was promised
  using Error::Error;
};
struct DeviceError
    : Error {  // a backend that cannot be loaded, a library status, memory that does not suffice
  using Error::Error;
};
struct NumericError : Error {  // a loss or gradient that is not finite
  using Error::Error;
};

// Throws E with a formatted message: fail<DataError>("{}: {} bytes missing", path, n).
template <class E, class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw E(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace warpstep
