// A reader of Python pickles that hold one dict of names to labels, and a writer of such dicts. It
// understands only the opcodes of such a dict; nothing in a file is ever executed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace warpstep::data {

// A number, or the index of a text. Many labels share a text: a file with a few bytes per label
// must not need hundreds of bytes per label in memory.
struct PickleItem {
  bool is_text = false;
  std::int64_t value = 0;  // the number, or the index in PickleDict::texts
};
using PickleValue = std::variant<std::int64_t, std::string>;  // bytes are read as str

// A dict with its items in the order of the file; keys are unique.
struct PickleDict {
  std::vector<std::string> texts;
  std::vector<std::pair<PickleItem, PickleItem>> items;

  PickleValue value(const PickleItem& item) const;
};

// Reads protocols 0 to 5. Throws DataError naming `path`, the byte and the opcode for everything
// but a dict of str, bytes or int to str, bytes or int.
PickleDict read_pickle(std::span<const std::uint8_t> file, const std::string& path);

// A pickle of protocol 2 that Python's pickle.loads reads as this dict. Labels in [0, 2^31).
std::vector<std::uint8_t> write_pickle(
    std::span<const std::pair<std::string, std::int32_t>> labels);

// The argument of protocol 0's STRING: a quoted str as Python's repr() writes it. Empty for
// anything else.
std::optional<std::string> parse_pickle_string(std::string_view quoted);

// The argument of protocol 0's UNICODE, Latin-1 with \uXXXX and \UXXXXXXXX, as UTF-8.
std::optional<std::string> parse_pickle_unicode(std::string_view raw);

// The name of an opcode that the reader refuses: "REDUCE (0x52)", "0xff (unknown)".
std::string pickle_opcode_name(std::uint8_t opcode);

}  // namespace warpstep::data
