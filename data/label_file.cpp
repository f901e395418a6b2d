#include "data/label_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>

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

std::vector<LabelRow> read_label_pickle(std::span<const std::uint8_t> file,
                                        const std::string& path) {
  std::vector<LabelRow> rows;
  for (auto& [key, value] : read_pickle(file, path).items) {
    LabelRow row;
    row.is_number = std::holds_alternative<std::int64_t>(key);
    row.name = row.is_number ? std::to_string(std::get<std::int64_t>(key))
                             : std::move(std::get<std::string>(key));
    row.label = std::move(value);
    rows.push_back(std::move(row));
  }
  for (const LabelRow& row : rows) {
    if (row.label.index() != rows[0].label.index()) {
      fail<DataError>("{}: '{}' has a {} as label and '{}' a {}; use one kind for all", path,
                      printable(rows[0].name), rows[0].label.index() == 0 ? "number" : "name",
                      printable(row.name), row.label.index() == 0 ? "number" : "name");
    }
  }
  return rows;
}

std::vector<LabelRow> read_label_csv(std::span<const std::uint8_t> file, const std::string& path) {
  std::string_view rest(reinterpret_cast<const char*>(file.data()), file.size());
  if (rest.starts_with("\xEF\xBB\xBF")) rest.remove_prefix(3);  // the mark of Windows editors
  std::vector<LabelRow> rows;
  bool all_integers = true;
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
    all_integers = all_integers && as_integer(label).has_value();
    rows.push_back({std::string(name), false, std::string(label)});
  }
  if (!all_integers) return rows;
  for (LabelRow& row : rows) row.label = *as_integer(std::get<std::string>(row.label));
  return rows;
}

}  // namespace warpstep::data
