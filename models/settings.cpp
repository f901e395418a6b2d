#include "models/settings.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "engine/core/error.h"
#include "engine/core/text.h"

namespace warpstep::models {
namespace {

bool parse(const std::string& text, auto& value) {
  const char* end = text.data() + text.size();
  return std::from_chars(text.data(), end, value) == std::from_chars_result{end, {}};
}

bool has_word(std::string_view words, std::string_view word) {
  return !word.empty() && word.find(' ') == std::string_view::npos &&
         fmt::format(" {} ", words).find(fmt::format(" {} ", word)) != std::string::npos;
}

// What a value must be; empty if `value` is that.
std::string problem(const Setting& setting, const std::string& value) {
  if (!setting.words.empty())
    return has_word(setting.words, value) ? "" : fmt::format("one of: {}", setting.words);
  if (setting.most == 0) {
    double share = 0;
    return parse(value, share) && share >= 0 && share < 1 ? "" : "at least 0 and below 1";
  }
  std::int64_t number = 0;
  return parse(value, number) && number >= setting.least && number <= setting.most
             ? ""
             : fmt::format("a whole number from {} to {}", setting.least, setting.most);
}

std::string unknown(std::string_view model, std::span<const Setting> table,
                    const std::string& name) {
  std::vector<std::string> names;
  for (const Setting& setting : table) names.emplace_back(setting.name);
  if (names.empty()) return fmt::format("{} has no options", model);
  return fmt::format("{} has no option '{}'{}; it has {}", model, name, suggestion(name, names),
                     fmt::join(names, ", "));
}

}  // namespace

Settings::Settings(std::string_view model, std::span<const Setting> table,
                   std::span<const std::string> assigned)
    : table_(table) {
  for (const Setting& setting : table) values_.emplace_back(setting.initial);
  for (const std::string& assignment : assigned) {
    const std::size_t equals = assignment.find('=');
    const std::string name = assignment.substr(0, equals);
    const auto found = std::ranges::find(table, name, &Setting::name);
    if (equals == std::string::npos || found == table.end())
      fail<UsageError>(
          "--model-option {}: {}", assignment,
          found == table.end() ? unknown(model, table, name) : fmt::format("write {}=VALUE", name));
    const std::string value = assignment.substr(equals + 1);
    if (const std::string wanted = problem(*found, value); !wanted.empty())
      fail<UsageError>("--model-option {}: {} must be {}", assignment, name, wanted);
    values_[static_cast<std::size_t>(found - table.begin())] = value;
  }
}

const std::string& Settings::word(std::string_view name) const {
  const auto found = std::ranges::find(table_, name, &Setting::name);
  if (found == table_.end()) fail<Error>("no setting is called '{}'", name);
  return values_[static_cast<std::size_t>(found - table_.begin())];
}

std::int64_t Settings::whole(std::string_view name) const {
  return std::stoll(word(name));  // checked when it was set
}

double Settings::share(std::string_view name) const {
  double value = 0;  // checked when it was set
  return parse(word(name), value) ? value : 0;
}

std::string Settings::text() const {
  std::string text;
  for (std::size_t i = 0; i < values_.size(); ++i)
    text += fmt::format("{}{}={}", i == 0 ? "" : " ", table_[i].name, values_[i]);
  return text;
}

std::vector<std::string> assignments(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    parts.emplace_back(text.substr(0, comma));
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
  }
  return parts;
}

}  // namespace warpstep::models
