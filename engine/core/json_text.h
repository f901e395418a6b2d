// JSON out of a file that anybody may have edited.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace warpstep {

// The value, or one that is_discarded(): of a text that is no JSON, is nested deeper than what is
// ever written here (copying and printing recurse), or has so many keys that looking them up in an
// ordered object takes minutes.
template <class Json>
Json parse_json(std::string_view text) {
  constexpr int deepest = 64;
  constexpr std::size_t most_keys = 10'000;
  bool refused = false;
  std::size_t keys = 0;
  Json json = Json::parse(
      text.begin(), text.end(),
      [&](int depth, typename Json::parse_event_t event, Json&) {
        if (event == Json::parse_event_t::key) ++keys;
        refused = refused || depth > deepest || keys > most_keys;
        return !refused;
      },
      false);
  return refused ? Json(Json::value_t::discarded) : json;
}

// "7", "\"x\"", "a list": a value for a message, cut where it is long.
template <class Json>
std::string brief(const Json& json) {
  constexpr std::size_t longest = 60;
  if (json.is_array()) return json.empty() ? "an empty list" : "a list";
  if (json.is_object()) return "an object";
  const std::string text = json.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() > longest ? text.substr(0, longest) + "..." : text;
}

}  // namespace warpstep
