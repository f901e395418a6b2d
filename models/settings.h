// The settings of a model's shape that its user may change: `--model-option heads=12`.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace warpstep::models {

// A whole number, or where `words` has some one of these, separated by spaces; a share of 0 to
// below 1 where `most` is 0.
struct Setting {
  std::string_view name;
  std::string_view initial;
  std::string_view help;
  std::int64_t least = 1, most = 0;
  std::string_view words{};
};

// The values of a table of settings: initial ones, replaced by assignments "heads=12".
class Settings {
 public:
  Settings() = default;
  // Later assignments win. Throws UsageError naming the option, for one that is not in the table or
  // has a wrong value.
  Settings(std::string_view model, std::span<const Setting> table,
           std::span<const std::string> assignments);

  std::int64_t whole(std::string_view name) const;
  // `otherwise` if the table has no setting of this name.
  std::int64_t whole_or(std::string_view name, std::int64_t otherwise) const {
    for (const Setting& setting : table_)
      if (setting.name == name) return whole(name);
    return otherwise;
  }
  double share(std::string_view name) const;
  const std::string& word(std::string_view name) const;
  // "layers=12 heads=12 ...", all of them.
  std::string text() const;

 private:
  std::span<const Setting> table_;
  std::vector<std::string> values_;
};

// "layers=4,heads=4" -> {"layers=4", "heads=4"}.
std::vector<std::string> assignments(std::string_view text);

}  // namespace warpstep::models
