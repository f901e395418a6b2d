#include "engine/files/weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <set>

#include "engine/core/error.h"
#include "engine/core/text.h"
#include "engine/files/safetensors_values.h"

namespace warpstep {
namespace {

constexpr std::string_view batch_count = "num_batches_tracked";
constexpr std::size_t most_listed = 10;        // names of one kind in a message
constexpr std::size_t longest_compared = 200;  // characters; a file may have names of megabytes

// Prefixes that wrappers add to every name of a state_dict.
constexpr std::array<std::string_view, 2> wrappers{"module.", "_orig_mod."};

struct Found {
  const StateTensor* wanted = nullptr;
  const StoredTensor* tensor = nullptr;
};

// Whether `name` is `last` or ends in it after a dot.
bool ends_in(std::string_view name, std::string_view last) {
  if (!name.ends_with(last)) return false;
  name.remove_suffix(last.size());
  return name.empty() || name.back() == '.';
}

bool is_ignored(std::string_view name) {
  return ends_in(name, batch_count) || name.starts_with(optimizer_prefix) ||
         name.starts_with(average_prefix);
}

bool all_begin_with(const SafetensorsFile& file, std::string_view prefix) {
  return !file.tensors().empty() &&
         std::ranges::all_of(file.tensors(), [&](const StoredTensor& tensor) {
           return tensor.name.starts_with(prefix);
         });
}

// A model whose own names begin with a wrapper's prefix keeps them.
std::string common_prefix(const SafetensorsFile& file, std::span<const StateTensor> state) {
  std::string prefix;
  for (bool longer = true; longer;) {
    longer = false;
    for (const std::string_view wrapper : wrappers) {
      const std::string tried = prefix + std::string(wrapper);
      const bool own = std::ranges::any_of(
          state, [&](const StateTensor& tensor) { return tensor.name.starts_with(tried); });
      if (own || !all_begin_with(file, tried)) continue;
      prefix = tried;
      longer = true;
    }
  }
  return prefix;
}

bool fits(const StoredTensor& tensor, const Shape& shape) {
  return is_float(tensor.type) &&
         std::ranges::equal(tensor.shape, shape.extents(), [](std::uint64_t a, std::int64_t b) {
           return a == static_cast<std::uint64_t>(b);
         });
}

// Assigns the file's tensors to the model's, and lists those without a partner.
std::vector<Found> match(const SafetensorsFile& file, std::span<const StateTensor> state,
                         LoadReport& report) {
  report.path = file.path().string();
  report.wanted = state.size();
  report.prefix = common_prefix(file, state);
  std::vector<Found> found;
  std::set<std::string_view> names;
  for (const StateTensor& wanted : state) {
    names.insert(wanted.name);
    const StoredTensor* tensor = file.find(report.prefix + wanted.name);
    if (!tensor)
      report.missing.push_back(wanted.name);
    else if (!fits(*tensor, wanted.shape))
      report.unfit.push_back({wanted.name, tensor->type, tensor->shape, wanted.shape});
    else
      found.push_back({&wanted, tensor});
  }
  for (const StoredTensor& tensor : file.tensors()) {
    const std::string_view name = std::string_view(tensor.name).substr(report.prefix.size());
    if (names.contains(name)) continue;
    if (is_ignored(name))
      ++report.ignored;
    else
      report.unexpected.emplace_back(name);
  }
  return found;
}

void load(const SafetensorsFile& file, const Found& found, Store& store, LoadReport& report) {
  const std::vector<float> values = read_values(file, *found.tensor);
  if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); }))
    report.not_finite.push_back(found.wanted->name);
  write(store, *found.wanted, values);
  ++report.loaded;
  report.elements += static_cast<std::int64_t>(values.size());
  if (found.tensor->type != StoredType::f32) ++report.converted[found.tensor->type];
}

// A tensor's name in a file can be any text.
std::string shown(const std::string& name) {
  const bool plain = !name.empty() && name.size() <= 80 &&
                     std::ranges::all_of(name, [](unsigned char c) { return std::isgraph(c); });
  return plain ? name : printable_name(name);
}

template <class Item, class Text>
std::string listed(const std::vector<Item>& items, Text text) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < std::min(items.size(), most_listed); ++i)
    parts.push_back(text(items[i]));
  const std::size_t more = items.size() - parts.size();
  return fmt::format("{}{}", fmt::join(parts, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

std::string listed(const std::vector<std::string>& names) {
  return listed(names, shown);
}

std::string text_of(const UnfitTensor& tensor) {
  return fmt::format("{} is {} [{}] in the file, [{}] in the model", shown(tensor.name),
                     name(tensor.type), fmt::join(tensor.shape, ","),
                     fmt::join(tensor.wanted.extents(), ","));
}

// The prefix of all missing names in the file, if only the prefix is wrong.
std::string foreign_prefix(const LoadReport& report) {
  if (report.missing.size() < 2) return {};  // one name that ends alike proves nothing
  const std::string& first = report.missing[0];
  const auto before = std::ranges::find_if(report.unexpected, [&](const std::string& name) {
    return name.size() <= longest_compared && name.ends_with("." + first);
  });
  if (before == report.unexpected.end()) return {};
  const std::string prefix = before->substr(0, before->size() - first.size());
  const std::set<std::string_view> names(report.unexpected.begin(), report.unexpected.end());
  const bool all = std::ranges::all_of(
      report.missing, [&](const std::string& name) { return names.contains(prefix + name); });
  return all ? prefix : std::string();
}

std::string with_suggestion(const std::string& name, const std::vector<std::string>& missing) {
  if (name.size() > longest_compared) return shown(name);
  const std::string near = nearest(name, missing);
  return near.empty() ? shown(name) : fmt::format("{} (instead of {}?)", shown(name), near);
}

}  // namespace

std::vector<StateTensor> state_of(const Store& store) {
  std::vector<StateTensor> state;
  for (std::size_t p = 0; p < store.parameters().size(); ++p)
    state.push_back({store.parameters()[p].name, store.torch_shape(p), false, p});
  for (std::size_t b = 0; b < store.buffers().size(); ++b)
    if (store.buffers()[b].saved)
      state.push_back({store.buffers()[b].name, store.buffer_shape(b), true, b});
  return state;
}

std::vector<float> read(const Store& store, const StateTensor& tensor) {
  return tensor.buffer ? store.read_buffer(tensor.index) : store.read(tensor.index);
}

void write(Store& store, const StateTensor& tensor, std::span<const float> values) {
  if (tensor.buffer)
    store.write_buffer(tensor.index, values);
  else
    store.write(tensor.index, values);
}

LoadReport load_weights(const std::filesystem::path& path, Store& store,
                        const LoadOptions& options) {
  const SafetensorsFile file(path);
  LoadReport report;
  const std::vector<StateTensor> state = state_of(store);
  const std::vector<Found> found = match(file, state, report);
  if (found.empty() || (!options.allow_missing && !report.is_whole()))
    fail<DataError>("{}: weights of another model: {} of its {} tensors fit; {}{}", report.path,
                    found.size(), report.wanted, report.problems(),
                    found.empty() || options.fix.empty() ? "" : "; " + options.fix);
  for (const Found& one : found) load(file, one, store, report);
  return report;
}

std::string batch_count_name(const std::string& parameter) {
  constexpr std::string_view mean = "running_mean";
  if (!ends_in(parameter, mean)) return {};
  std::string name = parameter;
  return name.replace(name.size() - mean.size(), mean.size(), batch_count);
}

std::string LoadReport::problems() const {
  std::vector<std::string> parts;
  const std::string foreign = foreign_prefix(*this);
  if (!missing.empty())
    parts.push_back(fmt::format("{} missing in the file: {}", missing.size(), listed(missing)));
  if (!unexpected.empty())
    parts.push_back(fmt::format("{} not in the model: {}", unexpected.size(),
                                listed(unexpected, [&](const std::string& name) {
                                  return foreign.empty() ? with_suggestion(name, missing)
                                                         : shown(name);
                                })));
  if (!unfit.empty())
    parts.push_back(
        fmt::format("{} of another shape or type: {}", unfit.size(), listed(unfit, text_of)));
  if (!foreign.empty())
    parts.push_back(
        fmt::format("the file's names begin with {0}: `warpstep weights convert {1} "
                    "OUT --strip-prefix {0}` removes that",
                    shown(prefix + foreign), path));
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::vector<std::string> LoadReport::lines() const {
  std::vector<std::string> lines{fmt::format("{}: {} of the model's {} tensors loaded ({} values)",
                                             path, loaded, wanted, elements)};
  if (!missing.empty())
    lines.push_back(fmt::format("  not in the file, left as initialised: {}", listed(missing)));
  if (!unfit.empty())
    lines.push_back(fmt::format("  left as initialised: {}", listed(unfit, text_of)));
  if (!unexpected.empty())
    lines.push_back(fmt::format("  only in the file: {}", listed(unexpected)));
  std::vector<std::string> notes;
  if (!prefix.empty()) notes.push_back(fmt::format("stripped {} from all names", prefix));
  for (const auto& [type, count] : converted)
    notes.push_back(fmt::format("converted {} tensors of {} to F32", count, name(type)));
  if (ignored > 0)
    notes.push_back(fmt::format("ignored {} tensors: num_batches_tracked, optimizer.*", ignored));
  if (!notes.empty()) lines.push_back(fmt::format("  {}", fmt::join(notes, "; ")));
  if (!not_finite.empty())
    lines.push_back(fmt::format("  WARNING: infinite values or NaN in {}", listed(not_finite)));
  return lines;
}

}  // namespace warpstep
