// Fields of the objects that a session holds: any of them may be missing or of another type.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace warpstep::profiler::fields {

using Json = nlohmann::ordered_json;

// What stands under `key`; nullptr where there is nothing, or `object` is no object.
const Json* member(const Json& object, std::string_view key);
// The object or array under `key`; an empty object when there is none.
const Json& child(const Json& object, std::string_view key);
double number(const Json& object, std::string_view key, double otherwise = 0);
std::int64_t whole(const Json& object, std::string_view key, std::int64_t otherwise = 0);
std::string text(const Json& object, std::string_view key, std::string_view otherwise = "");
bool flag(const Json& object, std::string_view key, bool otherwise = false);

}  // namespace warpstep::profiler::fields
