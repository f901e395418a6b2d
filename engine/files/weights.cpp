#include "engine/files/weights.h"

#include <fmt/ranges.h>

#include <algorithm>
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

// What every PyTorch module may have: prefixes of wrappers, and the counts of batch norms.
const WeightRules& common_rules() {
  static const WeightRules rules{.prefixes = {"module.", "_orig_mod."},
                                 .ignored = {std::string(batch_count)}};
  return rules;
}

// Whether `name` is `last` or ends in it after a dot.
bool ends_in(std::string_view name, std::string_view last) {
  if (!name.ends_with(last)) return false;
  name.remove_suffix(last.size());
  return name.empty() || name.back() == '.';
}

bool ends_in_one(std::string_view name, const std::vector<std::string>& parts) {
  return std::ranges::any_of(parts, [&](const std::string& part) { return ends_in(name, part); });
}

// What makes it no weight; empty if nothing does.
std::string ignored_kind(std::string_view name, const WeightRules& rules) {
  for (const WeightRules* each : {&common_rules(), &rules})
    for (const std::string& part : each->ignored)
      if (ends_in(name, part)) return part;
  for (const std::string_view prefix : {optimizer_prefix, average_prefix})
    if (name.starts_with(prefix)) return fmt::format("{}*", prefix);
  return {};
}

// The name of the model's tensor that this is another name of; empty if it is none.
std::string tied_to(std::string_view name, const WeightRules& rules) {
  const auto found =
      std::ranges::find(rules.tied, name, &std::pair<std::string, std::string>::first);
  return found == rules.tied.end() ? std::string() : found->second;
}

// A tensor of the file under the model's name.
struct Named {
  std::string_view name;
  const StoredTensor* tensor = nullptr;
};

bool all_begin_with(const std::vector<Named>& tensors, std::string_view prefix,
                    const WeightRules& rules) {
  bool some = false;
  for (const Named& named : tensors) {
    const bool begins = named.name.starts_with(prefix);
    if (!begins && tied_to(named.name, rules).empty()) return false;
    some |= begins;
  }
  return some;
}

// Strips the prefixes. A model whose own names begin with one keeps them.
std::vector<Named> named_tensors(const SafetensorsFile& file, std::span<const StateTensor> state,
                                 const WeightRules& rules, std::string& stripped) {
  std::vector<Named> tensors;
  for (const StoredTensor& tensor : file.tensors()) tensors.push_back({tensor.name, &tensor});
  std::vector<std::string> prefixes = common_rules().prefixes;
  prefixes.insert(prefixes.end(), rules.prefixes.begin(), rules.prefixes.end());
  for (bool longer = true; longer;) {
    longer = false;
    for (const std::string& prefix : prefixes) {
      const bool own = std::ranges::any_of(state, [&](const StateTensor& tensor) {
        return tensor.name.starts_with(stripped + prefix);
      });
      if (own || !all_begin_with(tensors, prefix, rules)) continue;
      for (Named& named : tensors)
        if (named.name.starts_with(prefix)) named.name.remove_prefix(prefix.size());
      stripped += prefix;
      longer = true;
    }
  }
  return tensors;
}

std::vector<std::uint64_t> extents_of(const Shape& shape, bool transposed) {
  std::vector<std::uint64_t> extents{shape.extents().begin(), shape.extents().end()};
  if (transposed) std::ranges::reverse(extents);
  return extents;
}

struct Found {
  const StateTensor* wanted = nullptr;
  const StoredTensor* tensor = nullptr;
  bool transposed = false;
};

bool fits(const StoredTensor& tensor, const Shape& shape, bool transposed) {
  return is_float(tensor.type) && tensor.shape == extents_of(shape, transposed);
}

// Assigns the tensors of a file to those of a model, and lists the ones without a partner.
class Match {
 public:
  Match(const SafetensorsFile& file, std::span<const StateTensor> state, const WeightRules& rules,
        LoadReport& report)
      : file_(file), state_(state), rules_(rules), report_(report) {
    report.path = file.path().string();
    report.wanted = state.size();
    tensors_ = named_tensors(file, state, rules, report.prefix);
    for (const Named& named : tensors_) by_name_.emplace(named.name, named.tensor);
  }

  std::vector<Found> run() {
    const bool transposed = is_transposed();
    std::set<std::string_view> names;
    for (const StateTensor& wanted : state_) {
      names.insert(wanted.name);
      add(wanted, transposed && ends_in_one(wanted.name, rules_.transposed));
    }
    for (const Named& named : tensors_)
      if (!names.contains(named.name)) add_other(named);
    return std::move(found_);
  }

 private:
  const StoredTensor* find(std::string_view name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : found->second;
  }

  bool is_transposed() const {
    std::size_t plain = 0, reversed = 0;
    for (const StateTensor& wanted : state_) {
      const StoredTensor* tensor = find(wanted.name);
      if (!tensor || wanted.shape.rank() != 2 || wanted.shape[0] == wanted.shape[1] ||
          !ends_in_one(wanted.name, rules_.transposed))
        continue;
      plain += fits(*tensor, wanted.shape, false) ? 1 : 0;
      reversed += fits(*tensor, wanted.shape, true) ? 1 : 0;
    }
    return plain == 0 && reversed > 0;
  }

  void add(const StateTensor& wanted, bool transposed) {
    const StoredTensor* tensor = find(wanted.name);
    if (!tensor)
      report_.missing.push_back(wanted.name);
    else if (fits(*tensor, wanted.shape, transposed))
      found_.push_back({&wanted, tensor, transposed});
    else
      add_unfit(wanted, *tensor);
  }

  void add_unfit(const StateTensor& wanted, const StoredTensor& tensor) {
    report_.unfit.push_back(
        {wanted.name, tensor.type, tensor.shape, wanted.shape, wanted.name == state_.front().name});
    for (const WeightRules::Extent& extent : rules_.extents)
      if (extent.tensor == wanted.name && tensor.shape.size() == idx(wanted.shape.rank()) &&
          tensor.shape[extent.axis] != extents_of(wanted.shape, false)[extent.axis])
        report_.extents.push_back(fmt::format("{}={}", extent.option, tensor.shape[extent.axis]));
  }

  void add_other(const Named& named) {
    const std::string partner = tied_to(named.name, rules_);
    if (const StoredTensor* tensor = partner.empty() ? nullptr : find(partner)) {
      auto& list = same_values(*named.tensor, *tensor) ? report_.tied : report_.untied;
      list.push_back(fmt::format("{} {} {}", named.name,
                                 &list == &report_.tied ? "equals" : "differs from", partner));
    } else if (const std::string kind = ignored_kind(named.name, rules_); !kind.empty()) {
      ++report_.ignored;
      report_.ignored_kinds.insert(kind);
    } else {
      report_.unexpected.emplace_back(named.name);
    }
  }

  // NaN equals itself here: the values are compared as they are stored.
  bool same_values(const StoredTensor& a, const StoredTensor& b) const {
    if (a.shape != b.shape) return false;
    const std::vector<float> left = read_values(file_, a), right = read_values(file_, b);
    return std::ranges::equal(std::as_bytes(std::span(left)), std::as_bytes(std::span(right)));
  }

  const SafetensorsFile& file_;
  std::span<const StateTensor> state_;
  const WeightRules& rules_;
  LoadReport& report_;
  std::vector<Named> tensors_;
  std::map<std::string_view, const StoredTensor*> by_name_;
  std::vector<Found> found_;
};

std::vector<float> transpose(const std::vector<float>& values, std::size_t rows) {
  const std::size_t columns = rows == 0 ? 0 : values.size() / rows;
  std::vector<float> result(values.size());
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t column = 0; column < columns; ++column)
      result[column * rows + row] = values[row * columns + column];
  return result;
}

void load(const SafetensorsFile& file, const Found& found, Store& store, LoadReport& report) {
  std::vector<float> values = read_values(file, *found.tensor);
  if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); }))
    report.not_finite.push_back(found.wanted->name);
  if (found.transposed) {
    values = transpose(values, found.tensor->shape[0]);
    ++report.transposed;
  }
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

std::string unfit_text(const UnfitTensor& tensor) {
  return fmt::format("{} is {} [{}] in the file, [{}] in the model", shown(tensor.name),
                     name(tensor.type), fmt::join(tensor.shape, ","),
                     fmt::join(tensor.wanted.extents(), ","));
}

// What the file's images must have been if only the channels of the first layer differ: gray and
// RGB images are easily mixed up.
std::string channels_note(const LoadReport& report) {
  if (report.unfit.size() != 1 || !report.missing.empty()) return {};
  const UnfitTensor& first = report.unfit[0];
  if (!first.is_first) return {};
  const std::vector<std::uint64_t> now = extents_of(first.wanted, false);
  if (first.shape.size() != now.size() || now.size() < 2) return {};
  std::vector<std::uint64_t> as_now = first.shape;
  as_now[1] = now[1];
  const bool from_rgb = first.shape[1] == 3 * now[1] && (now.size() == 2 || now[1] == 1);
  const bool to_rgb = now[1] == 3 * first.shape[1] && (now.size() == 2 || now[1] == 3);
  if (as_now != now || (!from_rgb && !to_rgb)) return {};
  return fmt::format(
      "the file is of a model for {} images, and the images here are {}; convert them, for example "
      "with: mogrify {} *.png",
      from_rgb ? "RGB" : "gray", from_rgb ? "gray" : "RGB",
      from_rgb ? "-define png:color-type=2" : "-colorspace Gray");
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

void read(const Store& store, const StateTensor& tensor, std::span<float> values,
          Scratch& scratch) {
  if (tensor.buffer)
    std::ranges::copy(store.read_buffer(tensor.index), values.begin());
  else
    store.read(tensor.index, Store::Section::parameter, values, scratch);
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
  const std::vector<Found> found = Match(file, state, options.rules, report).run();
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
        fmt::format("{} of another shape or type: {}", unfit.size(), listed(unfit, unfit_text)));
  if (const std::string note = channels_note(*this); !note.empty()) parts.push_back(note);
  for (const std::string& text : untied)
    parts.push_back(fmt::format("{}, but they are one tensor in the model", text));
  if (!extents.empty())
    parts.push_back(
        fmt::format("the file has --model-option {}", fmt::join(extents, " --model-option ")));
  if (!foreign.empty())
    parts.push_back(
        fmt::format("the file's names begin with {}: `warpstep weights convert {} OUT "
                    "--strip-prefix {}` removes that",
                    shown(prefix + foreign), shell_word(path), shell_word(prefix + foreign)));
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::vector<std::string> LoadReport::lines() const {
  std::vector<std::string> lines{fmt::format("{}: {} of the model's {} tensors loaded ({} values)",
                                             path, loaded, wanted, grouped(elements))};
  if (!missing.empty())
    lines.push_back(fmt::format("  not in the file, left as initialised: {}", listed(missing)));
  if (!unfit.empty())
    lines.push_back(fmt::format("  left as initialised: {}", listed(unfit, unfit_text)));
  if (!unexpected.empty())
    lines.push_back(fmt::format("  only in the file: {}", listed(unexpected)));
  if (!untied.empty()) lines.push_back(fmt::format("  not loaded: {}", fmt::join(untied, ", ")));
  std::vector<std::string> notes;
  if (!prefix.empty()) notes.push_back(fmt::format("stripped {} from all names", prefix));
  for (const auto& [type, count] : converted)
    notes.push_back(fmt::format("converted {} tensors of {} to F32", count, name(type)));
  if (ignored > 0)
    notes.push_back(fmt::format("ignored {} tensors: {}", ignored, fmt::join(ignored_kinds, ", ")));
  if (ignored_kinds.contains(fmt::format("{}*", average_prefix)))
    notes.push_back(fmt::format(
        "these are the weights themselves, not their average; `warpstep weights convert "
        "{} OUT --drop-optimizer` writes that",
        shell_word(path)));
  if (transposed > 0)
    notes.push_back(fmt::format("transposed {} matrices that the file has [out,in]", transposed));
  notes.insert(notes.end(), tied.begin(), tied.end());
  if (!notes.empty()) lines.push_back(fmt::format("  {}", fmt::join(notes, "; ")));
  if (!not_finite.empty())
    lines.push_back(fmt::format("  WARNING: infinite values or NaN in {}", listed(not_finite)));
  return lines;
}

}  // namespace warpstep
