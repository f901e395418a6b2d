// What code that is not the engine's throws: a user's op, model, data set or transform may throw
// anything.
#pragma once

#include <fmt/format.h>

#include <new>
#include <string>
#include <string_view>

#include "engine/core/error.h"

namespace warpstep {

// What the exception that is being handled says; its type where it says nothing.
std::string caught_text();

// What `code` returns. An exception of it that is neither an Error nor bad_alloc becomes an Error
// that names `who`, and `what` of it was called.
template <class Code>
decltype(auto) naming(std::string_view who, std::string_view what, Code&& code) {
  try {
    return code();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (...) {
    fail<Error>("{}: its {} threw: {}", who, what, caught_text());
  }
}

}  // namespace warpstep
