// Parsing and quoting of JSON from files that anybody may have edited, and printing JSON that has
// names of files. All templates exist for nlohmann::json and nlohmann::ordered_json, compiled once:
// the templates of json.hpp cost seconds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace warpstep {

// Where the first zero byte is; npos without one. No JSON has any: the parser takes it for the
// text's end and passes over what follows, so readers of files refuse it.
inline std::size_t zero_byte(std::string_view text) {
  return text.find('\0');
}

// What bounds the cost of a value, counted in its text. nlohmann's parser can count too, through a
// callback, but with one it looks through a whole list again after each object of that list.
struct JsonShape {
  std::size_t depth = 0;      // of objects and lists within each other
  std::size_t keys = 0;       // of all objects
  std::size_t most_keys = 0;  // of one object
  std::size_t compared = 0;   // keys before each key in its object: comparisons of an ordered one
};

// Of no meaning for a text that is not JSON, but at least that of the part before the error. Ends
// where the text is nested deeper than max_depth.
JsonShape json_shape(std::string_view text, std::size_t max_depth);

// The value. It is_discarded() if the text is not JSON, is nested more than 64 levels deep (copying
// and printing recurse), or has more than 10,000 keys (looking them up in an ordered object would
// take minutes).
template <class Json>
Json parse_json(std::string_view text);

// For readers with limits of their own: `keep` as for nlohmann's parse(), or none. Throws
// nlohmann's exceptions, of which a parse_error has the byte. A zero byte ends the text.
template <class Json>
Json parse_json(std::string_view text, const typename Json::parser_callback_t& keep);

// A value for a message, cut after 60 characters: "7", "\"x\"", "a list".
template <class Json>
std::string brief(const Json& json);

// The whole value, in one line or indented. Names of files may be no UTF-8, which JSON has to be:
// each such byte becomes U+FFFD.
template <class Json>
std::string printed(const Json& json, int indent = -1);

// A text as JSON has it, in quotes. Throws nlohmann's type_error if it is not UTF-8.
std::string strictly_quoted(std::string_view text);

// printed()'s replacement for a text that others than JSON take: pictures, metadata.
std::string utf8(std::string_view text);

// Fields of the objects in files: any of them may be missing or of another type.
namespace fields {

using Json = nlohmann::ordered_json;

// The value under `key`; nullptr where there is none, or `object` is no object.
const Json* member(const Json& object, std::string_view key);
// The object or array under `key`; an empty object when there is none.
const Json& child(const Json& object, std::string_view key);
double number(const Json& object, std::string_view key, double otherwise = 0);
std::int64_t whole(const Json& object, std::string_view key, std::int64_t otherwise = 0);
std::uint64_t count(const Json& object, std::string_view key);  // 0 also for negative ones
std::string text(const Json& object, std::string_view key, std::string_view otherwise = "");
bool flag(const Json& object, std::string_view key, bool otherwise = false);

}  // namespace fields

}  // namespace warpstep
