// A restricted reader of Python pickles: a dict of names to labels, and nothing that runs.
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

// A number, or a text by its place: many labels share one, and a file of a few bytes a label must
// not become one of a few hundred in memory.
struct PickleItem {
  bool is_text = false;
  std::int64_t value = 0;  // the number, or the place in PickleDict::texts
};
using PickleValue = std::variant<std::int64_t, std::string>;  // bytes are read as str

// A pickled dict in the order of its items; keys are unique.
struct PickleDict {
  std::vector<std::string> texts;
  std::vector<std::pair<PickleItem, PickleItem>> items;

  PickleValue value(const PickleItem& item) const;
};

// Reads protocols 0 to 5. Throws DataError naming `path`, the byte and the opcode for everything
// that is not a dict of str, bytes or int to str, bytes or int. Nothing is ever executed.
PickleDict read_pickle(std::span<const std::uint8_t> file, const std::string& path);

// The same dict as Python's pickle.dumps(dict, protocol=2) understands it. Labels in [0, 2^31).
std::vector<std::uint8_t> write_pickle(
    std::span<const std::pair<std::string, std::int32_t>> labels);

// The texts of pickle protocol 0, and the names of opcodes for messages.

// The argument of STRING: a quoted str as Python's repr() writes it. Nothing when it is not that.
std::optional<std::string> parse_pickle_string(std::string_view quoted);

// The argument of UNICODE: Latin-1 with \uXXXX and \UXXXXXXXX; UTF-8 comes out.
std::optional<std::string> parse_pickle_unicode(std::string_view raw);

// Of an opcode that the reader refuses: "REDUCE (0x52)", "0xff (unknown)".
std::string pickle_opcode_name(std::uint8_t opcode);

}  // namespace warpstep::data
