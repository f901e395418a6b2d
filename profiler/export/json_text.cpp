#include "profiler/export/json_text.h"

#include <fmt/format.h>

namespace warpstep::profiler {
namespace {

constexpr int deepest = 100;  // a file may nest without end, a stack does not

void append(std::string& out, const Json& json, int depth) {
  if (depth > deepest) {
    out += "null";
    return;
  }
  if (!json.is_structured()) {
    out += json.dump(-1, ' ', false, Json::error_handler_t::replace);
    return;
  }
  out += json.is_object() ? '{' : '[';
  bool first = true;
  for (const auto& item : json.items()) {
    if (!first) out += ", ";
    first = false;
    if (json.is_object()) out += json_quoted(item.key()) + ": ";
    append(out, item.value(), depth + 1);
  }
  out += json.is_object() ? '}' : ']';
}

}  // namespace

std::string json_quoted(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string spaced(const Json& json) {
  std::string out;
  append(out, json, 0);
  return out;
}

std::string thousandths(std::uint64_t n) {
  return fmt::format("{}.{:03}", n / 1000, n % 1000);
}

}  // namespace warpstep::profiler
