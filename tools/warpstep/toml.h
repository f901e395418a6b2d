// Options in TOML, as --config FILE has them: the subset in which options can be written.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace warpstep::tools {

struct TomlOption {
  std::string key;
  std::vector<std::string> values;  // as somebody would type them; one where it is no list
  int line = 0;
};

// Lines such as batch = 64 with strings ("basic" with escapes, 'literal'), numbers, booleans and
// lists of these. A word without quotes is a string if nothing in it could mean something else.
// UsageError names `file`, the line and what to write: also for sections and keys with dots, keys
// that come twice, empty lists, what is not UTF-8, and the rest of TOML.
std::vector<TomlOption> read_toml(std::string_view text, const std::string& file);

}  // namespace warpstep::tools
