// The page's tree of modules: model, block, layer, call, folded below the first level.
#include "profiler/analysis/modules.h"

#include <fmt/format.h>

#include "profiler/analysis/tables.h"
#include "profiler/export/html.h"
#include "profiler/export/quantity.h"

namespace warpstep::profiler::html {
namespace {

constexpr std::size_t most_in_module = 60;  // of one module; the table of calls has the others
constexpr std::size_t most_in_tree = 4000;  // about 2 MB

std::string figure(std::string_view name, const std::string& value) {
  return fmt::format("<span class=\"n {0}\" data-l=\"{0}\">{1}</span>", name, value);
}

std::string time_or_none(double ns) {
  return ns > 0 ? quantity(ns, Unit::ns) : std::string("-");
}

std::string figures_of(const ModuleRow& row) {
  const auto known_one = [](double value, Unit unit) {
    return value > 0 ? quantity(value, unit) : std::string("-");
  };
  return fmt::format("<span class=\"name code\" title=\"{} {}\">{}</span>",
                     escaped(row.path.empty() ? row.label : row.path), escaped(row.phase),
                     escaped(row.label)) +
         figure("time", time_or_none(row.ns)) +
         figure("share", fmt::format("{}<svg class=\"bar\" aria-hidden=\"true\"><rect width=\"{}\" "
                                     "height=\"100%\"/></svg>",
                                     escaped(quantity(row.share, Unit::share)),
                                     percent(std::min(row.share, 1.0)))) +
         figure("forward", time_or_none(row.forward_ns)) +
         figure("backward", time_or_none(row.backward_ns)) +
         figure("update", time_or_none(row.update_ns)) +
         figure("calls", fmt::format("{:.4g}", row.calls)) +
         figure("FLOPs", known_one(row.flops, Unit::flops)) +
         figure("bytes", known_one(row.bytes, Unit::bytes)) +
         fmt::format("<span class=\"source code\">{}</span>", escaped(row.source));
}

// Writes the rows of a sorted tree as nested details.
class TreePage {
 public:
  explicit TreePage(const std::vector<ModuleRow>& rows) : rows_(rows) {}

  std::string body() {
    level(0);
    return std::move(html_);
  }

 private:
  // The rows right below `parent`; they follow it.
  void level(std::size_t parent) {
    std::size_t count = 0, left_out = 0;
    html_ += "<div class=\"level\">\n";
    for (std::size_t i = parent + 1; i < rows_.size() && rows_[i].depth > rows_[parent].depth;
         ++i) {
      if (rows_[i].parent != static_cast<int>(parent)) continue;
      if (++count > most_in_module || ++shown_ > most_in_tree)
        ++left_out;
      else
        node(i);
    }
    if (left_out > 0)
      html_ += fmt::format("<p class=\"note\">{} more; the table of calls has the longest.</p>\n",
                           left_out);
    html_ += "</div>\n";
  }

  void node(std::size_t at) {
    const ModuleRow& row = rows_[at];
    const std::string place = fmt::format("data-at=\"{}\" data-ns=\"{:.0f}\"", row.order, row.ns);
    if (row.is_leaf) {
      html_ += fmt::format("<div class=\"leaf node\" {}>{}</div>\n", place, figures_of(row));
      return;
    }
    html_ += fmt::format("<details class=\"branch\" {}><summary class=\"node\">{}</summary>\n",
                         place, figures_of(row));
    level(at);
    html_ += "</details>\n";
  }

  const std::vector<ModuleRow>& rows_;
  std::string html_;
  std::size_t shown_ = 0;
};

}  // namespace

std::string modules_tree(const Work& work) {
  const std::vector<ModuleRow> rows = by_time(find_modules(work));
  if (rows.size() < 2) return "";
  std::string names = "<span class=\"name\">module</span>";
  for (const char* name :
       {"time", "share", "forward", "backward", "update", "calls", "FLOPs", "bytes"})
    names += fmt::format("<span class=\"n {0}\">{0}</span>", name);
  return fmt::format(
      "<div class=\"tree\" id=\"modules\">\n<div class=\"head\"><h3>Model</h3><p>Means per step, "
      "longest first. Open a row to see what it consists of; the last column is the line of the "
      "model that made it.{}</p></div>\n<div class=\"node names\">{}<span "
      "class=\"source\">line of the model</span></div>\n{}</div>\n",
      overlaps_text(work), names, TreePage(rows).body());
}

}  // namespace warpstep::profiler::html
