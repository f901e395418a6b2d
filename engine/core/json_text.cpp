#include "engine/core/json_text.h"

#include <cstddef>
#include <nlohmann/json.hpp>

namespace warpstep {

template <class Json>
Json parse_json(std::string_view text) {
  constexpr int max_depth = 64;
  constexpr std::size_t max_keys = 10'000;
  bool refused = false;
  std::size_t keys = 0;
  Json json = Json::parse(
      text.begin(), text.end(),
      [&](int depth, typename Json::parse_event_t event, Json&) {
        if (event == Json::parse_event_t::key) ++keys;
        refused = refused || depth > max_depth || keys > max_keys;
        return !refused;
      },
      false);
  return refused ? Json(Json::value_t::discarded) : json;
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

std::string utf8(std::string_view text) {
  return nlohmann::json::parse(printed(nlohmann::json(text))).get<std::string>();
}

template nlohmann::json parse_json(std::string_view text);
template nlohmann::ordered_json parse_json(std::string_view text);
template std::string brief(const nlohmann::json& json);
template std::string brief(const nlohmann::ordered_json& json);
template std::string printed(const nlohmann::json& json, int indent);
template std::string printed(const nlohmann::ordered_json& json, int indent);

}  // namespace warpstep
