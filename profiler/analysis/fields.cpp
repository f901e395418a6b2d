#include "profiler/analysis/fields.h"

#include <cmath>

namespace warpstep::profiler::fields {

const Json* member(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto at = object.find(std::string(key));
  return at == object.end() ? nullptr : &*at;
}

const Json& child(const Json& object, std::string_view key) {
  static const Json none = Json::object();
  const Json* const found = member(object, key);
  return found != nullptr && found->is_structured() ? *found : none;
}

double number(const Json& object, std::string_view key, double otherwise) {
  const Json* const found = member(object, key);
  if (found == nullptr || !found->is_number()) return otherwise;
  const double value = found->get<double>();
  return std::isfinite(value) ? value : otherwise;
}

std::int64_t whole(const Json& object, std::string_view key, std::int64_t otherwise) {
  const double value = number(object, key, static_cast<double>(otherwise));
  return std::abs(value) < 9e15 ? static_cast<std::int64_t>(value) : otherwise;
}

std::string text(const Json& object, std::string_view key, std::string_view otherwise) {
  const Json* const found = member(object, key);
  return found != nullptr && found->is_string() ? found->get<std::string>()
                                                : std::string(otherwise);
}

bool flag(const Json& object, std::string_view key, bool otherwise) {
  const Json* const found = member(object, key);
  return found != nullptr && found->is_boolean() ? found->get<bool>() : otherwise;
}

}  // namespace warpstep::profiler::fields
