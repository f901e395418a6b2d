#include "data/formats/labels.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "data/decode/image.h"
#include "data/formats/pickle.h"
#include "data/io/file.h"
#include "engine/core/error.h"

namespace warpstep::data {
namespace {

constexpr std::int64_t max_classes = 65536;
constexpr std::uint64_t max_label_bytes = std::uint64_t{1} << 29;  // ten million names of 50 bytes

void check_image_name(const std::string& path) {
  if (has_png_name(path) || has_jpeg_name(path)) return;
  fail<DataError>(
      "{}: is not a .png, .jpg or .jpeg file; convert images with: mogrify -format png, and move "
      "other files out of the folder",
      path);
}

// Left in folders by systems and people; list_folder() leaves out names that begin with a dot.
bool is_extra(const Entry& entry) {
  if (entry.folder) return entry.name == "__MACOSX";
  if (const std::string path(entry.name); has_png_name(path) || has_jpeg_name(path))
    return false;  // license_plate_1.png
  std::string name(entry.name);
  std::ranges::transform(name, name.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name == "thumbs.db" || name == "desktop.ini" || name.starts_with("readme") ||
         name.starts_with("license") || name.ends_with(".txt") || name.ends_with(".md");
}

bool is_label_file(const Entry& entry) {
  return entry.name == "labels.pkl" || entry.name == "labels.csv";
}

// Numbered classes: 0 to the highest label. Named classes: sorted.
Classes find_classes(const LabelRows& labels, const std::string& path) {
  Classes classes;
  classes.numbered = !labels.named;
  if (!classes.numbered) {
    std::set<std::string_view> names;
    for (const LabelRow& row : labels.rows) names.insert(labels.class_name(row));
    classes.names.assign(names.begin(), names.end());
    if (classes.names.size() > static_cast<std::size_t>(max_classes)) {
      fail<DataError>("{}: has {} classes; at most {} are allowed", path, classes.names.size(),
                      max_classes);
    }
    return classes;
  }
  std::int64_t highest = 0;
  for (const LabelRow& row : labels.rows) {
    if (row.label < 0 || row.label >= max_classes) {
      fail<DataError>("{}: '{}' has label {}; labels must be from 0 to {}", path,
                      shown(labels.name(row)), row.label, max_classes - 1);
    }
    highest = std::max(highest, row.label);
  }
  for (std::int64_t i = 0; i <= highest; ++i) classes.names.push_back(std::to_string(i));
  return classes;
}

std::int32_t class_of(const LabelRows& labels, const LabelRow& row, const Classes& classes,
                      const std::string& path) {
  if (classes.numbered == labels.named) {
    fail<DataError>("{}: '{}' has a {} as label, but the training split has {}", path,
                    shown(labels.name(row)), classes.numbered ? "name" : "number",
                    classes.numbered ? "numbers" : "names");
  }
  if (classes.numbered) {
    if (row.label < 0 || row.label >= static_cast<std::int64_t>(classes.names.size())) {
      fail<DataError>("{}: '{}' has label {}, but the data set has {} classes: 0 to {}", path,
                      shown(labels.name(row)), row.label, classes.names.size(),
                      classes.names.size() - 1);
    }
    return static_cast<std::int32_t>(row.label);
  }
  const std::string& name = labels.class_name(row);
  const auto found = std::lower_bound(classes.names.begin(), classes.names.end(), name);
  if (found == classes.names.end() || *found != name) {
    fail<DataError>("{}: '{}' is of class '{}', which the training split does not have", path,
                    shown(labels.name(row)), shown(name));
  }
  return static_cast<std::int32_t>(found - classes.names.begin());
}

LabelRows read_label_file(const std::string& path) {
  std::vector<std::uint8_t> file;
  read_into(file, path, max_label_bytes);
  LabelRows labels =
      path.ends_with(".pkl") ? read_label_pickle(file, path) : read_label_csv(file, path);
  if (labels.rows.empty()) fail<DataError>("{}: holds no labels", path);
  return labels;
}

// The row of every file, by the file's name or, for int keys, by its name without the ending.
struct Rows {
  std::unordered_map<std::string, const LabelRow*> by_name;
  bool by_number = false;  // of any row

  // Removes and returns the row of a file; null when there is none.
  const LabelRow* take(const std::string& file_name) {
    auto found = by_name.find(file_name);
    if (found == by_name.end() && by_number)
      found = by_name.find(number_key(file_name.substr(0, file_name.rfind('.'))));
    if (found == by_name.end()) return nullptr;
    const LabelRow* row = found->second;
    by_name.erase(found);
    return row;
  }
  static std::string number_key(const std::string& number) {
    return number + "/";  // no file has such a name
  }
};

Rows rows_by_name(const LabelRows& labels, const std::string& path) {
  Rows result;
  result.by_name.reserve(labels.rows.size());
  for (const LabelRow& row : labels.rows) {
    const std::string name = labels.name(row);
    result.by_number |= row.is_number;
    if (!result.by_name.emplace(row.is_number ? Rows::number_key(name) : name, &row).second)
      fail<DataError>("{}: the name '{}' occurs twice", path, shown(name));
  }
  return result;
}

LabelledFolder from_label_file(const std::string& folder, const std::vector<Entry>& entries,
                               const std::string& label_name, const std::optional<Classes>& known) {
  const std::string path = folder + "/" + label_name;
  const LabelRows labels = read_label_file(path);
  LabelledFolder result;
  result.classes = known ? *known : find_classes(labels, path);
  Rows left = rows_by_name(labels, path);
  std::vector<std::string> unlabelled;
  for (const Entry& entry : entries) {
    if (entry.name == label_name) continue;
    if (is_extra(entry)) {
      result.passed_over.push_back(entry.name);
      continue;
    }
    if (entry.folder) {
      fail<DataError>("{}/{}: is a folder next to {}; give labels by file or by folder, not both",
                      folder, entry.name, label_name);
    }
    check_image_name(folder + "/" + entry.name);
    if (const LabelRow* row = left.take(entry.name)) {
      result.files.push_back({entry.name, entry.bytes, entry.modified_ns,
                              class_of(labels, *row, result.classes, path)});
    } else {
      unlabelled.push_back(entry.name);
    }
  }
  if (!unlabelled.empty()) {
    fail<DataError>(
        "{}: {} files of the folder have no label: {}; add labels or move the files away", path,
        unlabelled.size(), first_few(unlabelled));
  }
  if (!left.by_name.empty()) {
    std::vector<std::string> missing;
    for (const auto& [name, row] : left.by_name) missing.push_back(labels.name(*row));
    std::sort(missing.begin(), missing.end());
    fail<DataError>(
        "{}: {} no file: {}; copy the files again or remove the labels", path,
        missing.size() == 1 ? "1 label has" : fmt::format("{} labels have", missing.size()),
        first_few(missing));
  }
  return result;
}

LabelledFolder from_class_folders(const std::string& folder, const std::vector<Entry>& entries,
                                  const std::optional<Classes>& known) {
  LabelledFolder result;
  for (const Entry& entry : entries) {
    if (is_extra(entry)) {
      result.passed_over.push_back(entry.name);
      continue;
    }
    if (!entry.folder && entry.name == "made.json")
      fail<DataError>(
          "{}: is an unfinished set of `warpstep data make`; run that again with the same options, "
          "or delete the folder",
          folder);
    if (!entry.folder && (entry.name.ends_with(".csv") || entry.name.ends_with(".json")))
      fail<DataError>(
          "{}/{}: is a file next to class folders; if it has the labels, write them as lines "
          "name,label to labels.csv next to the images (docs/data.md), else move it elsewhere",
          folder, entry.name);
    if (!entry.folder) {
      fail<DataError>(
          "{}/{}: is a file next to class folders, and there is no labels.pkl or labels.csv; move "
          "it into its class's folder",
          folder, entry.name);
    }
    const auto label = static_cast<std::int32_t>(result.classes.names.size());
    result.classes.names.push_back(entry.name);
    const std::size_t before = result.files.size();
    for (const Entry& file : list_folder(folder + "/" + entry.name)) {
      const std::string name = entry.name + "/" + file.name;
      if (is_extra(file)) {
        result.passed_over.push_back(name);
        continue;
      }
      if (file.folder) {
        fail<DataError>("{}/{}: is a folder inside a class folder; move its files one level up",
                        folder, name);
      }
      check_image_name(folder + "/" + name);
      result.files.push_back({name, file.bytes, file.modified_ns, label});
    }
    if (result.files.size() == before)
      fail<DataError>("{}/{}: the class has no files", folder, entry.name);
  }
  if (known && (known->numbered || known->names != result.classes.names)) {
    fail<DataError>("{}: {}", folder, other_classes(result.classes.names, known->names));
  }
  return result;
}

}  // namespace

std::string other_classes(const std::vector<std::string>& classes,
                          const std::vector<std::string>& of_training) {
  const auto lacking = [](const std::vector<std::string>& names,
                          const std::vector<std::string>& in) {
    const std::set<std::string_view> known(in.begin(), in.end());
    std::vector<std::string> found;
    for (const std::string& name : names)
      if (!known.contains(name)) found.push_back(name);
    return found;
  };
  const std::vector<std::string> more = lacking(classes, of_training);
  const std::vector<std::string> fewer = lacking(of_training, classes);
  if (more.empty() && fewer.empty())
    return fmt::format("has the classes {}, but the training split has them in another order",
                       first_few(classes));
  std::vector<std::string> parts;
  if (!more.empty())
    parts.push_back(fmt::format("has classes that the training split lacks: {}", first_few(more)));
  if (!fewer.empty())
    parts.push_back(fmt::format("lacks classes of the training split: {}", first_few(fewer)));
  return fmt::format("{}; give both splits the same classes", fmt::join(parts, ", and "));
}

LabelledFolder read_labelled_folder(const std::string& folder,
                                    const std::optional<Classes>& known) {
  if (!is_folder(folder)) fail<DataError>("{}: there is no such folder", folder);
  const std::vector<Entry> entries = list_folder(folder);
  if (std::ranges::all_of(entries, is_extra)) {
    fail<DataError>(
        "{}: {}; expected PNG or JPEG files with labels.pkl or labels.csv, or one folder per class",
        folder, entries.empty() ? "is empty" : "has no images");
  }
  std::vector<std::string> label_names;
  for (const Entry& entry : entries) {
    if (is_label_file(entry)) label_names.push_back(entry.name);
  }
  if (label_names.size() > 1) {
    fail<DataError>("{}: has both labels.csv and labels.pkl; remove one", folder);
  }
  if (label_names.size() == 1) {
    return from_label_file(folder, entries, label_names[0], known);
  }
  if (std::none_of(entries.begin(), entries.end(), [](const Entry& e) { return e.folder; })) {
    fail<DataError>(
        "{}: has {} files but neither labels.pkl nor labels.csv, nor one folder per class; put "
        "each class's images into a folder of its name, or name their labels in labels.csv",
        folder, entries.size());
  }
  return from_class_folders(folder, entries, known);
}

bool has_labelled_images(const std::string& folder) {
  const auto is_image = [](const Entry& entry) {
    return !entry.folder && (has_png_name(entry.name) || has_jpeg_name(entry.name));
  };
  int folders = 0;
  constexpr int most = 3;  // listing a class of ImageNet takes 2 ms
  for (const Entry& entry : list_folder(folder)) {
    if (is_label_file(entry)) return true;
    if (!entry.folder || is_extra(entry) || folders++ >= most) continue;
    if (std::ranges::any_of(list_folder(folder + "/" + entry.name), is_image)) return true;
  }
  return false;
}

namespace {

std::optional<std::int64_t> as_integer(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

void skip_blanks(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
}

// Takes a field off the line, up to its comma: the text without spaces around it, or what is within
// its quotes, where "" is one quote. `fault`: what is wrong with them.
std::string take_field(std::string_view& line, std::string_view& fault) {
  skip_blanks(line);
  if (!line.starts_with('"')) {
    std::string text(line.substr(0, line.find(',')));
    line.remove_prefix(text.size());
    text.erase(text.find_last_not_of(" \t") + 1);
    return text;
  }
  std::string text;
  std::size_t at = 1;
  for (; at < line.size(); ++at) {
    if (line[at] == '"' && !line.substr(at + 1).starts_with('"')) break;
    if (line[at] == '"') ++at;
    text += line[at];
  }
  if (at == line.size()) fault = "a quote that is not closed";
  line.remove_prefix(std::min(at + 1, line.size()));
  skip_blanks(line);
  if (!line.empty() && line.front() != ',') fault = "text after a closing quote";
  return text;
}

bool is_header(std::string_view first_field) {
  std::string lower(first_field);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  static constexpr std::array names{"name", "file", "filename", "file_name", "image", "path", "id"};
  return std::find(names.begin(), names.end(), lower) != names.end();
}

// If all labels are integers, they are class numbers.
void number_labels(LabelRows& labels) {
  for (const LabelRow& row : labels.rows)
    if (!as_integer(labels.class_name(row))) return;
  for (LabelRow& row : labels.rows) row.label = *as_integer(labels.class_name(row));
  labels.named = false;
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
                      shown(result.name(result.rows[0])), result.named ? "name" : "number",
                      shown(result.name(result.rows.back())), value.is_text ? "name" : "number");
  }
  return result;
}

LabelRows read_label_csv(std::span<const std::uint8_t> file, const std::string& path) {
  std::string_view rest(reinterpret_cast<const char*>(file.data()), file.size());
  if (rest.starts_with("\xEF\xBB\xBF"))
    rest.remove_prefix(3);  // byte order mark of Windows editors
  LabelRows result{{}, {}, true};
  std::unordered_map<std::string, std::int64_t> places;  // in texts, by label
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
    std::string_view left = line, fault;
    const std::string name = take_field(left, fault);
    left.remove_prefix(left.starts_with(',') ? 1 : 0);
    const std::string label = take_field(left, fault);
    if (!fault.empty())
      fail<DataError>("{}: line {}: '{}' has {}", path, line_number, shown(line), fault);
    if (name.empty() || label.empty() || !left.empty()) {
      fail<DataError>("{}: line {}: '{}' is not 'file name,label'", path, line_number, shown(line));
    }
    if (line_number == 1 && is_header(name)) continue;
    const auto [place, is_new] = places.try_emplace(label, 0);
    if (is_new) place->second = add(label);
    result.rows.push_back({false, add(name), place->second});
  }
  number_labels(result);
  return result;
}

}  // namespace warpstep::data
