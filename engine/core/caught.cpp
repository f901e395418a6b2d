#include "engine/core/caught.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <cstdlib>
#include <exception>
#include <memory>
#include <typeinfo>

namespace warpstep {
namespace {

std::string caught_type() {
  const std::type_info* type = abi::__cxa_current_exception_type();
  if (!type) return "unknown";
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(type->name(), nullptr, nullptr, &status), &std::free);
  return name ? name.get() : type->name();
}

}  // namespace

std::string caught_text() {
  try {
    throw;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return text.empty() ? fmt::format("an exception of type {} without a text", caught_type())
                        : text;
  } catch (...) {
    return fmt::format("an exception of type {}, which is not a std::exception", caught_type());
  }
}

}  // namespace warpstep
