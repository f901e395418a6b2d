#include "tools/warpstep/toml.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "data/text/unicode.h"
#include "engine/core/error.h"
#include "engine/core/text.h"

namespace warpstep::tools {

namespace {

constexpr std::string_view digits = "0123456789";

bool is_one_of(char c, std::string_view all) {
  return all.find(c) != std::string_view::npos;
}

bool is_of_name(char c) {
  return is_one_of(c, digits) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         c == '-';
}

// A number as somebody would type it: 1_000 is 1000. Other words stay as they are.
std::string plain(std::string_view word) {
  if (word.find_first_not_of("0123456789_+-.eE") != std::string_view::npos)
    return std::string(word);
  std::string kept;
  for (std::size_t i = 0; i < word.size(); ++i)
    if (word[i] != '_')
      kept.push_back(word[i]);
    else if (i == 0 || i + 1 == word.size() || !is_one_of(word[i - 1], digits) ||
             !is_one_of(word[i + 1], digits))
      return std::string(word);
  return kept;
}

class TomlReader {
 public:
  TomlReader(std::string_view text, const std::string& file) : rest_(text), file_(file) {}

  std::vector<TomlOption> read() {
    check_characters();
    for (skip_empty_lines(); !rest_.empty(); skip_empty_lines()) read_option();
    return std::move(options_);
  }

 private:
  template <class... Arguments>
  [[noreturn]] void refuse(int line, fmt::format_string<Arguments...> format,
                           Arguments&&... arguments) const {
    fail<UsageError>("{}: line {}: {}", file_, line,
                     fmt::format(format, std::forward<Arguments>(arguments)...));
  }

  void check_characters() const {
    int line = 1;
    for (std::string_view text = rest_; !text.empty();) {
      const std::size_t bytes = utf8_bytes(text);
      if (bytes == 0) refuse(line, "it is not UTF-8; save the file in that encoding");
      const auto byte = static_cast<unsigned char>(text.front());
      const bool is_white = is_one_of(text.front(), "\t\n") || text.starts_with("\r\n");
      if (!is_white && (byte < 0x20 || byte == 0x7F))
        refuse(line, "it has the control character U+{:04X}; write it as an escape", byte);
      line += text.front() == '\n';
      text.remove_prefix(bytes);
    }
  }

  bool at(char c) const { return rest_.starts_with(c); }
  bool at_end_of_line() const { return rest_.empty() || at('\n') || at('\r') || at('#'); }

  char take() {
    const char c = rest_.front();
    rest_.remove_prefix(1);
    line_ += c == '\n';
    return c;
  }
  void skip_blanks() {
    while (at(' ') || at('\t')) take();
  }
  void skip_empty_lines() {
    for (skip_blanks(); !rest_.empty() && at_end_of_line(); skip_blanks()) {
      while (!rest_.empty() && !at('\n')) take();  // a comment
      if (!rest_.empty()) take();
    }
  }
  std::string line_here() const {
    std::string_view line = rest_.substr(0, rest_.find('\n'));
    line = line.substr(0, line.find_last_not_of(" \t\r") + 1);
    return printable(clipped(line, 60));
  }

  void read_option() {
    TomlOption option{.line = line_};
    const std::string whole = line_here();
    key_.clear();
    if (at('[')) refuse(line_, "section {}: write its keys at the top level", whole);
    if (at('"') || at('\''))
      option.key = read_string();
    else
      while (!rest_.empty() && is_of_name(rest_.front())) option.key.push_back(take());
    skip_blanks();
    if (at(':')) refuse(line_, "'{}' is YAML; files of options are TOML: batch = 64", whole);
    if (at('.'))
      refuse(line_, "section [{}]: write its keys at the top level", printable(option.key));
    if (!at('='))
      refuse(line_, "'{}' has no '='{}; write an option as batch = 64", whole,
             is_one_of('=', whole) ? " after one name" : "");
    if (option.key.empty()) refuse(line_, "'{}' has no name; write an option as batch = 64", whole);
    key_ = option.key;
    take();
    skip_blanks();
    if (at('['))
      option.values = read_list();
    else
      option.values.push_back(read_value());
    skip_blanks();
    if (!at_end_of_line())
      refuse(line_,
             "{} has '{}' after its value; write text in quotes and several values as a list: "
             "[1, 2]",
             shown_key(), line_here());
    if (const auto [other, is_new] = lines_.try_emplace(option.key, option.line); !is_new)
      refuse(option.line,
             "{} is given in line {} already; give it once, several values as a list: [1, 2]",
             shown_key(), other->second);
    options_.push_back(std::move(option));
  }

  std::string shown_key() const { return key_.empty() ? "a name" : printable(key_); }

  std::vector<std::string> read_list() {
    const int begin = line_;
    const auto skip = [&] {
      skip_empty_lines();
      if (rest_.empty()) refuse(begin, "the list of {} has no ']' at its end", shown_key());
    };
    std::vector<std::string> values;
    take();
    for (skip(); !at(']'); skip()) {
      values.push_back(read_value());
      skip();
      if (at(','))
        take();
      else if (!at(']'))
        refuse(line_, "the list of {}, which begins in line {}, has '{}' where ',' or ']' belongs",
               shown_key(), begin, line_here());
    }
    take();
    if (values.empty()) refuse(begin, "{} = [] gives no value; leave it out", shown_key());
    return values;
  }

  std::string read_value() {
    if (at('"') || at('\'')) return read_string();
    const std::string_view word = rest_.substr(0, rest_.find_first_of(" \t\r\n,#[]{}\"'\\"));
    if (word.empty())
      refuse(line_, "{} has {} where a value belongs: a number, true, false or text in quotes",
             shown_key(), at_end_of_line() ? "nothing" : fmt::format("'{}'", line_here()));
    rest_.remove_prefix(word.size());
    const bool is_text =
        !is_one_of(word.front(), "0123456789+-") && word != "true" && word != "false";
    if (is_text && at('#'))
      refuse(line_, "{} has '#' within a word; write text in quotes, or a blank before a comment",
             shown_key());
    return plain(word);
  }

  std::string read_string() {
    const int begin = line_;
    const char quote = take();
    if (rest_.size() > 1 && rest_[0] == quote && rest_[1] == quote)
      refuse(begin, "three quotes begin text of several lines, which no option has; write one");
    std::string value;
    while (!at(quote)) {
      if (rest_.empty() || at('\n') || at('\r'))
        refuse(begin, "{} has a quote {} that is not closed in its line", shown_key(), quote);
      const char c = take();
      if (c == '\\' && quote == '"')
        append_escaped(value);
      else
        value.push_back(c);
    }
    take();
    return value;
  }

  void append_escaped(std::string& value) {
    constexpr std::string_view names = "btnfr\"\\", means = "\b\t\n\f\r\"\\";
    if (rest_.starts_with('u') || rest_.starts_with('U')) {
      append_character(value, take() == 'u' ? 4 : 8);
    } else if (!rest_.empty() && is_one_of(rest_.front(), names)) {
      value.push_back(means[names.find(take())]);
    } else {
      refuse(line_, "{} has a '\\' that begins no escape; write \\\\, or text in single quotes",
             shown_key());
    }
  }

  void append_character(std::string& value, std::size_t length) {
    const std::string_view hex = rest_.substr(0, length);
    std::uint32_t code = 0;
    const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
    const bool is_surrogate = code >= 0xD800 && code < 0xE000;
    if (error != std::errc() || end != hex.data() + length || code == 0 || code > 0x10FFFF ||
        is_surrogate)
      refuse(line_,
             "{} has an escape that is no character; \\u has four hexadecimal digits, "
             "\\U eight",
             shown_key());
    rest_.remove_prefix(length);
    data::append_utf8(value, code);
  }

  std::string_view rest_;
  const std::string& file_;
  int line_ = 1;
  std::string key_;  // of the value that is read
  std::unordered_map<std::string, int> lines_;
  std::vector<TomlOption> options_;
};

}  // namespace

std::vector<TomlOption> read_toml(std::string_view text, const std::string& file) {
  return TomlReader(text, file).read();
}

}  // namespace warpstep::tools
