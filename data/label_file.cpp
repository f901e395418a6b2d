#include "data/label_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "data/file.h"
#include "data/pickle.h"
#include "engine/core/error.h"

namespace warpstep::data {
namespace {

std::optional<std::int64_t> as_integer(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Spaces around a field and one pair of quotes do not count.
std::string_view field(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  text = text.substr(first, text.find_last_not_of(" \t") - first + 1);
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') {
    text = text.substr(1, text.size() - 2);
  }
  return text;
}

bool is_header(std::string_view first_field) {
  std::string lower(first_field);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  static constexpr std::array names{"name", "file", "filename", "file_name", "image", "path", "id"};
  return std::find(names.begin(), names.end(), lower) != names.end();
}

}  // namespace

std::string LabelRows::name(const LabelRow& row) const {
  return row.is_number ? std::to_string(row.name) : texts[static_cast<std::size_t>(row.name)];
}

const std::string& LabelRows::class_name(const LabelRow& row) const {
  return texts[static_cast<std::size_t>(row.label)];
}

LabelRows read_label_pickle(std::span<const std::uint8_t> file, const std::string& path) {
  PickleDict dict = read_pickle(file, path);
  LabelRows result{std::move(dict.texts), {}, !dict.items.empty() && dict.items[0].second.is_text};
  result.rows.reserve(dict.items.size());
  for (const auto& [key, value] : dict.items) {
    result.rows.push_back({!key.is_text, key.value, value.value});
    if (value.is_text != result.named)
      fail<DataError>("{}: '{}' has a {} as label and '{}' a {}; use one kind for all", path,
                      printable(result.name(result.rows[0])), result.named ? "name" : "number",
                      printable(result.name(result.rows.back())),
                      value.is_text ? "name" : "number");
  }
  return result;
}

namespace {

// Labels that are all integers are class numbers.
void number_labels(LabelRows& labels) {
  for (const LabelRow& row : labels.rows)
    if (!as_integer(labels.class_name(row))) return;
  for (LabelRow& row : labels.rows) row.label = *as_integer(labels.class_name(row));
  labels.named = false;
}

}  // namespace

LabelRows read_label_csv(std::span<const std::uint8_t> file, const std::string& path) {
  std::string_view rest(reinterpret_cast<const char*>(file.data()), file.size());
  if (rest.starts_with("\xEF\xBB\xBF")) rest.remove_prefix(3);  // the mark of Windows editors
  LabelRows result{{}, {}, true};
  std::unordered_map<std::string_view, std::int64_t> places;  // of labels
  const auto add = [&](std::string_view text) {
    result.texts.emplace_back(text);
    return static_cast<std::int64_t>(result.texts.size()) - 1;
  };
  for (int line_number = 1; !rest.empty(); ++line_number) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    const std::size_t comma = line.find(',');
    const std::string_view name = field(line.substr(0, comma));
    const std::string_view label =
        comma == std::string_view::npos ? std::string_view() : field(line.substr(comma + 1));
    if (name.empty() || label.empty() || label.find(',') != std::string_view::npos) {
      fail<DataError>("{}: line {}: '{}' is not 'file name,label'", path, line_number,
                      printable(line));
    }
    if (line_number == 1 && is_header(name)) continue;
    const auto [place, is_new] = places.emplace(label, 0);
    if (is_new) place->second = add(label);
    result.rows.push_back({false, add(name), place->second});
  }
  number_labels(result);
  return result;
}

}  // namespace warpstep::data
