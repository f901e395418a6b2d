#include "engine/core/json_text.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

namespace warpstep {

JsonShape json_shape(std::string_view text, std::size_t max_depth) {
  JsonShape shape;
  std::vector<std::size_t> keys{0};  // of the open objects and lists, and 0 outside of all
  bool quoted = false;
  for (std::size_t at = 0; at < text.size() && shape.depth <= max_depth; ++at) {
    const char c = text[at];
    if (quoted) {
      if (c == '\\') ++at;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[') {
      shape.depth = std::max(shape.depth, keys.size());
      keys.push_back(0);
    } else if ((c == '}' || c == ']') && keys.size() > 1) {
      keys.pop_back();
    } else if (c == ':') {
      ++shape.keys;
      shape.compared += keys.back()++;
      shape.most_keys = std::max(shape.most_keys, keys.back());
    }
  }
  return shape;
}

template <class Json>
Json parse_json(std::string_view text) {
  constexpr std::size_t max_depth = 64, max_keys = 10'000;
  if (zero_byte(text) != std::string_view::npos) return Json(Json::value_t::discarded);
  const JsonShape shape = json_shape(text, max_depth);
  if (shape.depth > max_depth || shape.keys > max_keys) return Json(Json::value_t::discarded);
  return Json::parse(text.begin(), text.end(), nullptr, false);
}

template <class Json>
Json parse_json(std::string_view text, const typename Json::parser_callback_t& keep) {
  return Json::parse(text.begin(), text.end(), keep);
}

template <class Json>
std::string brief(const Json& json) {
  constexpr std::size_t max_characters = 60;
  if (json.is_array()) return json.empty() ? "an empty list" : "a list";
  if (json.is_object()) return "an object";
  const std::string text = json.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() > max_characters ? text.substr(0, max_characters) + "..." : text;
}

template <class Json>
std::string printed(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string strictly_quoted(std::string_view text) {
  return nlohmann::json(text).dump();
}

std::string utf8(std::string_view text) {
  return parse_json<nlohmann::json>(printed(nlohmann::json(text)), {}).get<std::string>();
}

namespace fields {

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

std::uint64_t count(const Json& object, std::string_view key) {
  const Json* const found = member(object, key);
  if (found != nullptr && found->is_number_unsigned()) return found->get<std::uint64_t>();
  const double value = number(object, key);
  return value >= 1 && value < 1e18 ? static_cast<std::uint64_t>(value) : 0;
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

}  // namespace fields

template nlohmann::json parse_json(std::string_view text);
template nlohmann::ordered_json parse_json(std::string_view text);
template nlohmann::json parse_json(std::string_view text,
                                   const nlohmann::json::parser_callback_t& keep);
template nlohmann::ordered_json parse_json(std::string_view text,
                                           const nlohmann::ordered_json::parser_callback_t& keep);
template std::string brief(const nlohmann::json& json);
template std::string brief(const nlohmann::ordered_json& json);
template std::string printed(const nlohmann::json& json, int indent);
template std::string printed(const nlohmann::ordered_json& json, int indent);

}  // namespace warpstep
