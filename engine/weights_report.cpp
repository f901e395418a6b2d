// What a user reads of weights that were loaded, or were not.
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "engine/core/text.h"
#include "engine/safetensors_header.h"
#include "engine/weights.h"

namespace warpstep {
namespace {

constexpr std::size_t most = 10;               // names of a kind
constexpr std::size_t longest_compared = 200;  // characters; a file may have names of megabytes

// Names of files can be anything.
std::string shown(const std::string& name) {
  const bool plain = !name.empty() && name.size() <= 80 &&
                     std::ranges::all_of(name, [](unsigned char c) { return std::isgraph(c); });
  return plain ? name : safetensors::printable(name);
}

template <class Item, class Text>
std::string listed(const std::vector<Item>& items, Text text) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < std::min(items.size(), most); ++i) parts.push_back(text(items[i]));
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

// What stands before all of the missing names in the file, if that is all that is wrong with them.
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
                    "OUT --strip-prefix {0}` takes that away",
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
    lines.push_back(fmt::format("  in the file alone: {}", listed(unexpected)));
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
