// The texts of pickle protocol 0, and the names of opcodes for messages.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace warpstep::data {

// The argument of STRING: a quoted str as Python's repr() writes it. Nothing when it is not that.
std::optional<std::string> parse_pickle_string(std::string_view quoted);

// The argument of UNICODE: Latin-1 with \uXXXX and \UXXXXXXXX; UTF-8 comes out.
std::optional<std::string> parse_pickle_unicode(std::string_view raw);

// Of an opcode that the reader refuses: "REDUCE (0x52)", "0xff (unknown)".
std::string pickle_opcode_name(std::uint8_t opcode);

}  // namespace warpstep::data
