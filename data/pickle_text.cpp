#include "data/pickle_text.h"

#include <fmt/format.h>

#include <charconv>

namespace warpstep::data {
namespace {

std::optional<std::uint32_t> hex(std::string_view text, std::size_t digits) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && text.size() == digits ? std::optional(value) : std::nullopt;
}

void append_utf8(std::string& text, std::uint32_t code) {
  const auto tail = [&](int shift) { text += static_cast<char>(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0 | code >> 6);
    tail(0);
  } else if (code < 0x10000) {
    text += static_cast<char>(0xE0 | code >> 12);
    tail(6);
    tail(0);
  } else {
    text += static_cast<char>(0xF0 | (code >> 18 & 0x07));
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace

std::optional<std::string> parse_pickle_string(std::string_view quoted) {
  if (quoted.size() < 2 || quoted.front() != quoted.back() ||
      (quoted[0] != '\'' && quoted[0] != '"')) {
    return std::nullopt;
  }
  quoted = quoted.substr(1, quoted.size() - 2);
  std::string text;
  for (std::size_t i = 0; i < quoted.size(); ++i) {
    if (quoted[i] != '\\') {
      text += quoted[i];
      continue;
    }
    const char escaped = i + 1 < quoted.size() ? quoted[++i] : '\0';
    switch (escaped) {
      case 'n': text += '\n'; break;
      case 't': text += '\t'; break;
      case 'r': text += '\r'; break;
      case '\\':
      case '\'':
      case '"': text += escaped; break;
      case 'x': {
        const auto code = hex(quoted.substr(i + 1, 2), 2);
        if (!code) return std::nullopt;
        text += static_cast<char>(*code);
        i += 2;
        break;
      }
      default: return std::nullopt;
    }
  }
  return text;
}

std::optional<std::string> parse_pickle_unicode(std::string_view raw) {
  std::string text;
  for (std::size_t i = 0; i < raw.size(); ++i) {
    const char kind = raw[i] == '\\' && i + 1 < raw.size() ? raw[i + 1] : '\0';
    if (kind != 'u' && kind != 'U') {
      append_utf8(text, static_cast<unsigned char>(raw[i]));
      continue;
    }
    const std::size_t digits = kind == 'u' ? 4 : 8;
    const auto code = hex(raw.substr(i + 2, digits), digits);
    if (!code || *code > 0x10FFFF) return std::nullopt;
    append_utf8(text, *code);
    i += 1 + digits;
  }
  return text;
}

// The opcodes of Python's pickletools that the reader does not know.
std::string pickle_opcode_name(std::uint8_t opcode) {
  const char* name = nullptr;
  switch (opcode) {
    case 0x96: name = "BYTEARRAY8"; break;
    case 0x97: name = "NEXT_BUFFER"; break;
    case 0x98: name = "READONLY_BUFFER"; break;
    case 'N': name = "NONE"; break;
    case 0x88: name = "NEWTRUE"; break;
    case 0x89: name = "NEWFALSE"; break;
    case 'F': name = "FLOAT"; break;
    case 'G': name = "BINFLOAT"; break;
    case ']': name = "EMPTY_LIST"; break;
    case 'a': name = "APPEND"; break;
    case 'e': name = "APPENDS"; break;
    case 'l': name = "LIST"; break;
    case ')': name = "EMPTY_TUPLE"; break;
    case 't': name = "TUPLE"; break;
    case 0x85: name = "TUPLE1"; break;
    case 0x86: name = "TUPLE2"; break;
    case 0x87: name = "TUPLE3"; break;
    case 0x8f: name = "EMPTY_SET"; break;
    case 0x90: name = "ADDITEMS"; break;
    case 0x91: name = "FROZENSET"; break;
    case '0': name = "POP"; break;
    case '2': name = "DUP"; break;
    case '1': name = "POP_MARK"; break;
    case 0x82: name = "EXT1"; break;
    case 0x83: name = "EXT2"; break;
    case 0x84: name = "EXT4"; break;
    case 'c': name = "GLOBAL"; break;
    case 0x93: name = "STACK_GLOBAL"; break;
    case 'R': name = "REDUCE"; break;
    case 'b': name = "BUILD"; break;
    case 'i': name = "INST"; break;
    case 'o': name = "OBJ"; break;
    case 0x81: name = "NEWOBJ"; break;
    case 0x92: name = "NEWOBJ_EX"; break;
    case 'P': name = "PERSID"; break;
    case 'Q': name = "BINPERSID"; break;
    default: return fmt::format("0x{:02x} (unknown)", opcode);
  }
  return fmt::format("{} (0x{:02x})", name, opcode);
}

}  // namespace warpstep::data
