#include "engine/weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "engine/core/error.h"
#include "engine/safetensors_values.h"

namespace warpstep {
namespace {

constexpr std::string_view batch_count = "num_batches_tracked";

// What wrappers put before every name of a state_dict.
constexpr std::array<std::string_view, 2> wrappers{"module.", "_orig_mod."};

struct Found {
  const StateTensor* wanted = nullptr;
  const StoredTensor* tensor = nullptr;
};

// Whether `name` is `last`, or ends in it after a dot.
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

// A model whose own names begin like a wrapper's keeps them.
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

// Which tensor goes where, and what goes nowhere.
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

}  // namespace warpstep
