// The exception types of Warpstep. A message says who (scope/op or command), what (with the
// numbers), where (model file:line, or data file and byte) and what to do about it.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace warpstep {

// Base of all exceptions that Warpstep throws on purpose. Programs end with exit code 1, or 2 for
// UsageError.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct UsageError : Error {  // an invalid option, model name or API call
  using Error::Error;
};
struct ShapeError : Error {  // shapes of a model that do not match
  using Error::Error;
};
struct DataError : Error {  // a file or data set that is missing, broken or not as expected
  using Error::Error;
};
struct DeviceError : Error {  // a backend cannot be loaded, a library failed, too little memory
  using Error::Error;
};
// The device itself has failed, or its memory is lost to this process: nothing runs there any more.
struct DeviceLost : DeviceError {
  using DeviceError::DeviceError;
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
