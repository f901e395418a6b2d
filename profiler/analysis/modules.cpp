#include "profiler/analysis/modules.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "profiler/analysis/scope.h"
#include "profiler/analysis/tables.h"

namespace warpstep::profiler {

std::vector<std::string_view> module_parts(std::string_view layer) {
  constexpr std::size_t most_parts = 16;  // bounds recursion, whatever a session's names are
  std::vector<std::string_view> parts;
  while (!layer.empty()) {
    const bool is_last = parts.size() + 1 == most_parts;
    const std::size_t end =
        is_last ? layer.size() : std::min(layer.find_first_of("./"), layer.size());
    if (end > 0) parts.push_back(layer.substr(0, end));
    layer.remove_prefix(std::min(end + 1, layer.size()));
  }
  return parts;
}

std::string module_path(std::string_view layer, std::size_t depth) {
  std::string path;
  for (const std::string_view part : module_parts(layer)) {
    if (depth-- == 0) break;
    path.append(path.empty() ? "" : ".").append(part);
  }
  return path;
}

std::vector<std::string> call_modules(const Session& session, std::size_t depth) {
  std::vector<std::string> modules;
  const Json& calls = fields::child(session.program, "calls");
  if (calls.is_array())
    for (const Json& call : calls)
      modules.push_back(module_path(fields::text(call, "layer"), depth));
  return modules;
}

namespace {

struct ModuleNode {
  std::string path;
  int parent = -1;
  int call = -1;
  std::vector<int> children;  // in the order of their first calls
};

// Nodes of the whole tree, before chains are left out; the first is the step.
class ModuleTree {
 public:
  explicit ModuleTree(const Work& work) : nodes_(1) {
    for (std::size_t i = 0; i < work.calls.size(); ++i) {
      const CallRow& call = work.calls[i];
      int at = 0;
      std::string path;
      for (const std::string_view part : module_parts(call.layer)) {
        path.append(path.empty() ? "" : ".").append(part);
        at = child(at, path);
      }
      add(at, path).call = static_cast<int>(i);
    }
  }
  const std::vector<ModuleNode>& nodes() const { return nodes_; }

 private:
  ModuleNode& add(int parent, const std::string& path) {
    nodes_[static_cast<std::size_t>(parent)].children.push_back(static_cast<int>(nodes_.size()));
    return nodes_.emplace_back(ModuleNode{.path = path, .parent = parent});
  }

  int child(int parent, const std::string& path) {
    const auto [found, is_new] = by_path_.try_emplace(path, static_cast<int>(nodes_.size()));
    if (is_new) add(parent, path);
    return found->second;
  }

  std::vector<ModuleNode> nodes_;
  std::map<std::string, int> by_path_;
};

// The lines of one file from the first to the last; of several files the first one's and "...".
class Sources {
 public:
  void add(const std::string& source) {
    const std::size_t colon = source.rfind(':');
    int line = 0;
    if (colon == source.npos ||
        std::from_chars(source.data() + colon + 1, source.data() + source.size(), line).ec !=
            std::errc())
      return;
    lines_[source.substr(0, colon)].insert(line);
    if (first_.empty()) first_ = source.substr(0, colon);
  }

  std::string text() const {
    if (lines_.empty()) return "";
    const std::set<int>& lines = lines_.at(first_);
    return fmt::format("{}:{}{}{}", first_, *lines.begin(),
                       lines.size() > 1 ? fmt::format("-{}", *lines.rbegin()) : "",
                       lines_.size() > 1 ? ", ..." : "");
  }

 private:
  std::string first_;
  std::map<std::string, std::set<int>> lines_;  // by file
};

void add_call(const CallRow& call, double steps, ModuleRow& row) {
  const double ns = static_cast<double>(call.total_ns) / steps;
  const double runs = static_cast<double>(call.count) / steps;
  row.ns += ns;
  if (call.phase == "forward" || call.phase == "loss") row.forward_ns += ns;
  if (call.phase == "data_grad" || call.phase == "weight_grad") row.backward_ns += ns;
  if (call.phase == "update") row.update_ns += ns;
  row.calls += runs;
  row.flops += call.flops * runs;
  row.bytes += call.bytes * runs;
  row.share += call.share;
}

// "conv.dgrad" of "conv1/conv.dgrad" in the layer conv1.
std::string call_label(const CallRow& call) {
  const bool is_named =
      call.title.size() > call.layer.size() + 1 && call.title.starts_with(call.layer);
  const bool is_inside = is_named && !call.layer.empty() && call.title[call.layer.size()] == '/';
  return is_inside ? call.title.substr(call.layer.size() + 1) : call.title;
}

// What `path` adds to the parent's; a number keeps the name before it: "layer1.0", "h.3".
std::string module_label(const std::string& path, const std::string& parent) {
  const std::size_t begin = parent.empty() ? 0 : parent.size() + 1;
  if (begin == 0 || begin >= path.size() || path[begin] < '0' || path[begin] > '9')
    return path.substr(std::min(begin, path.size()));
  const std::size_t dot = parent.rfind('.');
  return path.substr(dot == parent.npos ? 0 : dot + 1);
}

class ModuleRows {
 public:
  ModuleRows(const Work& work, const ModuleTree& tree) : work_(work), nodes_(tree.nodes()) {}

  std::vector<ModuleRow> take() {
    add(0, -1);
    return std::move(rows_);
  }

 private:
  const ModuleNode& node(int at) const { return nodes_[static_cast<std::size_t>(at)]; }

  // Down to the first that branches; the step itself stays.
  int end_of_chain(int at) const {
    while (at != 0 && node(at).children.size() == 1) at = node(at).children[0];
    return at;
  }

  void sum(int at, ModuleRow& row, Sources& sources) const {
    if (const int call = node(at).call; call >= 0) {
      const CallRow& of_call = work_.calls[static_cast<std::size_t>(call)];
      add_call(of_call, std::max(1.0, static_cast<double>(work_.steps)), row);
      sources.add(of_call.source);
    }
    for (const int child : node(at).children) sum(child, row, sources);
  }

  void add(int begin, int parent) {
    const int at = end_of_chain(begin);
    ModuleRow row{.path = node(at).path,
                  .depth = parent < 0 ? 0 : rows_[static_cast<std::size_t>(parent)].depth + 1,
                  .parent = parent,
                  .order = static_cast<int>(rows_.size()),
                  .call = node(at).call,
                  .is_leaf = node(at).children.empty()};
    const std::string above = parent < 0 ? "" : rows_[static_cast<std::size_t>(parent)].path;
    const bool is_call_of_parent = row.call >= 0 && begin == at;
    if (row.call >= 0) row.phase = work_.calls[static_cast<std::size_t>(row.call)].phase;
    row.label = parent < 0          ? "step"
                : is_call_of_parent ? call_label(work_.calls[static_cast<std::size_t>(row.call)])
                                    : module_label(row.path, above);
    Sources sources;
    sum(at, row, sources);
    row.source = sources.text();
    const int own = row.order;
    rows_.push_back(std::move(row));
    for (const int child : node(at).children) add(child, own);
  }

  const Work& work_;
  const std::vector<ModuleNode>& nodes_;
  std::vector<ModuleRow> rows_;
};

void add_sorted(const std::vector<ModuleRow>& modules,
                const std::vector<std::vector<std::size_t>>& children, std::size_t at, int parent,
                std::vector<ModuleRow>& sorted) {
  const int own = static_cast<int>(sorted.size());
  sorted.push_back(modules[at]);
  sorted.back().parent = parent;
  std::vector<std::size_t> order = children[at];
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [&](std::size_t child) { return modules[child].ns; });
  for (const std::size_t child : order) add_sorted(modules, children, child, own, sorted);
}

}  // namespace

std::vector<ModuleRow> find_modules(const Work& work) {
  if (std::ranges::none_of(work.calls, [](const CallRow& call) { return call.total_ns > 0; }))
    return {};
  return ModuleRows(work, ModuleTree(work)).take();
}

std::vector<ModuleRow> by_time(const std::vector<ModuleRow>& modules) {
  if (modules.empty()) return {};
  std::vector<std::vector<std::size_t>> children(modules.size());
  for (std::size_t i = 1; i < modules.size(); ++i)
    children[static_cast<std::size_t>(modules[i].parent)].push_back(i);
  std::vector<ModuleRow> sorted;
  add_sorted(modules, children, 0, -1, sorted);
  return sorted;
}

Table modules_table(const Work& work) {
  Table table{"modules",
              "Modules",
              "The model's blocks, layers and calls with the lines that made them, in the model's "
              "order; means per step. A row has the sum of those below it." +
                  overlaps_text(work),
              {{"path", "path"},
               {"depth", "depth"},
               {"label", "module"},
               {"call", "number of the call"},
               {"phase", "phase"},
               {"source", "line of the model"},
               {"calls", "calls"},
               {"ns", "time", Unit::ns},
               {"share", "share of the step", Unit::share},
               {"forward_ns", "forward", Unit::ns},
               {"backward_ns", "backward", Unit::ns},
               {"update_ns", "update", Unit::ns},
               {"flops", "FLOPs", Unit::flops},
               {"bytes", "bytes", Unit::bytes}},
              {}};
  for (const ModuleRow& row : find_modules(work))
    table.rows.push_back({row.path, std::int64_t{row.depth}, row.label,
                          row.call >= 0 ? Cell(std::int64_t{row.call} + 1) : Cell(),
                          known(row.phase), known(row.source), row.calls, row.ns, row.share,
                          row.forward_ns, row.backward_ns, row.update_ns, row.flops, row.bytes});
  return table;
}

}  // namespace warpstep::profiler
