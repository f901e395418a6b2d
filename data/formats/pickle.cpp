#include "data/formats/pickle.h"

#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "data/io/file.h"
#include "data/text/unicode.h"
#include "engine/core/error.h"

namespace warpstep::data {
namespace {

constexpr std::size_t max_text_bytes = 255;  // of a name: Linux's limit for a file name

// The part of Python's pickle machine that builds one dict. An item on the stack has 16 bytes and
// each text is stored once, so memory stays within a small multiple of the file's size.
class Reader {
 public:
  Reader(std::span<const std::uint8_t> file, const std::string& path) : file_(file), path_(path) {}

  PickleDict read() {
    while (step()) {
    }
    refuse_repeated_keys();
    return {std::move(texts_), std::move(items_)};
  }

 private:
  enum class Kind : std::uint8_t { mark, integer, text, dict };
  struct Item {
    Kind kind = Kind::mark;
    std::int64_t value = 0;  // the integer, or the index of the text
  };

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail<DataError>("{}: byte {}: {}", path_, opcode_at_,
                    fmt::format(format, std::forward<Args>(args)...));
  }

  std::span<const std::uint8_t> take(std::uint64_t bytes) {
    if (bytes > file_.size() - at_) {
      refuse("the pickle is truncated: {} more bytes expected, {} left; write it again", bytes,
             file_.size() - at_);
    }
    const auto taken = file_.subspan(at_, bytes);
    at_ += bytes;
    return taken;
  }
  std::uint64_t little_endian(int bytes) {
    std::uint64_t value = 0;
    const auto from = take(static_cast<std::uint64_t>(bytes));
    for (int i = 0; i < bytes; ++i) {
      value |= std::uint64_t{from[static_cast<std::size_t>(i)]} << (8 * i);
    }
    return value;
  }
  std::string_view line() {
    const auto* begin = reinterpret_cast<const char*>(file_.data()) + at_;
    const auto* end = static_cast<const char*>(std::memchr(begin, '\n', file_.size() - at_));
    if (end == nullptr) refuse("the pickle is truncated: a line without an end; write it again");
    const std::string_view text(begin, static_cast<std::size_t>(end - begin));
    at_ += text.size() + 1;
    return text;
  }
  std::int64_t number(std::string_view text) const {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || text.empty()) {
      refuse("'{}' is not an integer of 64 bits", shown(text));
    }
    return value;
  }

  void push_text(std::string text) {
    if (text.size() > max_text_bytes) {
      refuse("a name of {} bytes; at most {} are allowed", text.size(), max_text_bytes);
    }
    stack_.push_back({Kind::text, static_cast<std::int64_t>(texts_.size())});
    texts_.push_back(std::move(text));
  }
  void push_bytes(std::uint64_t bytes) {
    const auto from = take(bytes);
    if (bytes > max_text_bytes) {
      refuse("a name of {} bytes; at most {} are allowed", bytes, max_text_bytes);
    }
    push_text(std::string(from.begin(), from.end()));
  }
  void push_integer(std::int64_t value) { stack_.push_back({Kind::integer, value}); }
  void push_long(std::uint64_t bytes) {  // two's complement, little endian
    if (bytes > 8) refuse("an integer of {} bytes; at most 8 are allowed", bytes);
    std::uint64_t value = little_endian(static_cast<int>(bytes));
    if (bytes > 0 && bytes < 8 && (value >> (8 * bytes - 1)) != 0) {
      value |= ~std::uint64_t{0} << (8 * bytes);
    }
    push_integer(static_cast<std::int64_t>(value));
  }
  void push_int_line() {
    const std::string_view text = line();
    if (text == "00" || text == "01") refuse("a bool where a name or a label should be");
    push_integer(number(text));
  }
  void push_long_line() {
    std::string_view text = line();
    if (text.ends_with('L')) text.remove_suffix(1);
    push_integer(number(text));
  }
  void push_parsed(std::optional<std::string> text) {
    if (!text) refuse("a str that Python's repr() does not write; the pickle is broken");
    push_text(std::move(*text));
  }

  void push_dict() {
    if (have_dict_)
      refuse("a second dict, inside or next to the first; expected one dict of names to labels");
    have_dict_ = true;
    stack_.push_back({Kind::dict, 0});
  }
  const Item& top() const {
    if (stack_.empty()) refuse("nothing on the stack; the pickle is broken, write it again");
    return stack_.back();
  }
  void put(std::uint64_t index) {
    if (top().kind == Kind::mark) refuse("a mark cannot be stored; the pickle is broken");
    memo_[index] = top();
  }
  void get(std::uint64_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) refuse("refers to item {}, which was never stored", index);
    stack_.push_back(found->second);
  }

  void add(const Item& key, const Item& value) {
    for (const Item& item : {key, value}) {
      if (item.kind != Kind::integer && item.kind != Kind::text) {
        refuse("a key or value is neither a name nor an integer");
      }
    }
    const auto kept = [](const Item& item) {
      return PickleItem{item.kind == Kind::text, item.value};
    };
    items_.emplace_back(kept(key), kept(value));
  }
  void refuse_repeated_keys() const;
  void set_items();                // SETITEMS: everything above the mark
  void set_item();                 // SETITEM: the two topmost
  std::size_t above_mark() const;  // the first item above the topmost mark
  bool step();                     // one opcode; false after STOP
  bool step_push(std::uint8_t opcode);

  std::span<const std::uint8_t> file_;
  const std::string& path_;
  std::size_t at_ = 0;
  std::size_t opcode_at_ = 0;
  bool have_dict_ = false;
  std::vector<Item> stack_;
  std::vector<std::string> texts_;
  std::unordered_map<std::uint64_t, Item> memo_;
  std::vector<std::pair<PickleItem, PickleItem>> items_;
};

void Reader::refuse_repeated_keys() const {
  std::unordered_set<std::string_view> names;
  std::unordered_set<std::int64_t> numbers;
  for (const auto& [key, value] : items_) {
    const auto place = static_cast<std::size_t>(key.value);
    if (key.is_text ? names.insert(texts_[place]).second : numbers.insert(key.value).second)
      continue;
    refuse("the name '{}' occurs twice in the dict",
           key.is_text ? shown(texts_[place]) : std::to_string(key.value));
  }
}

std::size_t Reader::above_mark() const {
  for (std::size_t i = stack_.size(); i > 0; --i) {
    if (stack_[i - 1].kind == Kind::mark) return i;
  }
  refuse("no mark on the stack; the pickle is broken, write it again");
}

void Reader::set_items() {
  const std::size_t first = above_mark();
  if (first < 2 || stack_[first - 2].kind != Kind::dict)
    refuse("items for something that is not a dict");
  if ((stack_.size() - first) % 2 != 0) refuse("a name without a label; the pickle is broken");
  for (std::size_t i = first; i < stack_.size(); i += 2) add(stack_[i], stack_[i + 1]);
  stack_.resize(first - 1);
}

void Reader::set_item() {
  const std::size_t n = stack_.size();
  if (n < 3 || stack_[n - 3].kind != Kind::dict) refuse("an item for something that is not a dict");
  add(stack_[n - 2], stack_[n - 1]);
  stack_.resize(n - 2);
}

// Executes an opcode that pushes a name or a number; false for any other opcode.
bool Reader::step_push(std::uint8_t opcode) {
  switch (opcode) {
    case 'I': push_int_line(); break;
    case 'L': push_long_line(); break;
    case 'J': push_integer(static_cast<std::int32_t>(little_endian(4))); break;
    case 'K': push_integer(static_cast<std::int64_t>(little_endian(1))); break;
    case 'M': push_integer(static_cast<std::int64_t>(little_endian(2))); break;
    case 0x8a: push_long(little_endian(1)); break;
    case 0x8b: push_long(little_endian(4)); break;
    case 'S': push_parsed(parse_pickle_string(line())); break;
    case 'V': push_parsed(parse_pickle_unicode(line())); break;
    case 'U':
    case 'C':
    case 0x8c: push_bytes(little_endian(1)); break;
    case 'T':
    case 'B':
    case 'X': push_bytes(little_endian(4)); break;
    case 0x8d:
    case 0x8e: push_bytes(little_endian(8)); break;
    default: return false;
  }
  return true;
}

bool Reader::step() {
  opcode_at_ = at_;
  const std::uint8_t opcode = take(1)[0];
  if (step_push(opcode)) return true;
  switch (opcode) {
    case 0x80:
      if (const auto protocol = little_endian(1); protocol > 5) {
        refuse("pickle protocol {}; 0 to 5 are supported", protocol);
      }
      return true;
    case 0x95: little_endian(8); return true;  // a frame's length, which is not needed
    case '(': stack_.push_back({Kind::mark, 0}); return true;
    case '}': push_dict(); return true;
    case 'd': {  // DICT of the items above the mark
      const std::size_t first = above_mark();
      const std::vector<Item> above(stack_.begin() + static_cast<std::ptrdiff_t>(first),
                                    stack_.end());
      stack_.resize(first - 1);
      push_dict();
      stack_.push_back({Kind::mark, 0});
      stack_.insert(stack_.end(), above.begin(), above.end());
      set_items();
      return true;
    }
    case 's': set_item(); return true;
    case 'u': set_items(); return true;
    case 'p': put(static_cast<std::uint64_t>(number(line()))); return true;
    case 'q': put(little_endian(1)); return true;
    case 'r': put(little_endian(4)); return true;
    case 0x94: put(memo_.size()); return true;
    case 'g': get(static_cast<std::uint64_t>(number(line()))); return true;
    case 'h': get(little_endian(1)); return true;
    case 'j': get(little_endian(4)); return true;
    case '.':
      if (stack_.size() != 1 || top().kind != Kind::dict) {
        refuse("the pickle is not a dict of names to labels");
      }
      return false;
    default: break;
  }
  refuse(
      "opcode {} is refused: only a dict of str, bytes or int is read, and nothing was executed; "
      "write the file again with pickle.dump({{str(k): int(v) for k, v in labels.items()}}, f)",
      pickle_opcode_name(opcode));
}

}  // namespace

PickleValue PickleDict::value(const PickleItem& item) const {
  if (item.is_text) return texts[static_cast<std::size_t>(item.value)];
  return item.value;
}

PickleDict read_pickle(std::span<const std::uint8_t> file, const std::string& path) {
  return Reader(file, path).read();
}

std::vector<std::uint8_t> write_pickle(
    std::span<const std::pair<std::string, std::int32_t>> labels) {
  std::vector<std::uint8_t> file{0x80, 2, '}', '('};
  const auto put_word = [&](std::uint32_t word) {
    for (int i = 0; i < 4; ++i) file.push_back(static_cast<std::uint8_t>(word >> (8 * i)));
  };
  for (const auto& [name, label] : labels) {
    file.push_back('X');
    put_word(static_cast<std::uint32_t>(name.size()));
    file.insert(file.end(), name.begin(), name.end());
    file.push_back('J');
    put_word(static_cast<std::uint32_t>(label));
  }
  file.push_back('u');
  file.push_back('.');
  return file;
}

namespace {

std::optional<std::uint32_t> hex(std::string_view text, std::size_t digits) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && text.size() == digits ? std::optional(value) : std::nullopt;
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

// The opcodes of Python's pickletools that the reader refuses.
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
