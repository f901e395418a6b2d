// What each row of the table of fusions saves in one model's step.
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "engine/explain.h"
#include "engine/explain_table.h"

namespace warpstep {
namespace {

struct Moved {
  std::ptrdiff_t calls = 0;
  double bytes = 0;
};

Moved moved(const Graph& graph) {
  Moved sum;
  for (const Node& node : graph.nodes) {
    if (is_view(node.op)) continue;
    ++sum.calls;
    sum.bytes += graph.cost(node).bytes;
  }
  return sum;
}

struct Gain {
  std::string_view row;
  Moved without;  // the step without this row alone
};

struct Gains {
  Moved unfused, fused;
  std::vector<Gain> rows;  // those that change something
};

Gains gains(const Graph& model, StepOptions options) {
  if (options.computes) {  // libraries are asked once for what all these steps have in common
    auto known = std::make_shared<std::map<std::string, bool>>();
    options.computes = [known, asks = options.computes](const AnyOp& op, const Types& in) {
      std::string key = fmt::format("{} {}", name(op), text(op));
      for (const Type& type : in) key += fmt::format(" {}", type.text());
      const auto [place, is_new] = known->try_emplace(std::move(key), false);
      if (is_new) place->second = asks(op, in);
      return place->second;
    };
  }
  const Moved fused = moved(compile_step(model, options));
  std::vector<Gain> rows;
  StepOptions none = options;
  for (const FusionRow& row : fusion_table()) {
    none.no_fuse.emplace(row.name);
    if (options.no_fuse.contains(row.name)) continue;
    StepOptions without = options;
    without.no_fuse.emplace(row.name);
    const Moved other = moved(compile_step(model, without));
    if (other.calls != fused.calls || other.bytes != fused.bytes) rows.push_back({row.name, other});
  }
  return {moved(compile_step(model, none)), fused, rows};
}

nlohmann::json moved_json(const Moved& m) {
  return {{"calls", m.calls}, {"bytes", m.bytes}};
}

}  // namespace

std::string explain_fusions(const Graph& model, const StepOptions& options) {
  const Gains all = gains(model, options);
  explained::Table table({{"fusions"}, {"calls", true}, {"bytes", true}, {"", true}});
  const auto share = [&](double bytes) {
    return fmt::format("{:.1f} %", 100 * bytes / all.unfused.bytes);
  };
  const auto step = [&](const char* title, const Moved& m) {
    table.add({title, fmt::format("{}", m.calls), size_text(m.bytes), share(m.bytes)});
  };
  step("  step without any", all.unfused);
  for (const Gain& gain : all.rows) {
    const double bytes = all.fused.bytes - gain.without.bytes;
    table.add({fmt::format("    {}", gain.row),
               fmt::format("{:+}", all.fused.calls - gain.without.calls),
               fmt::format("{}{}", bytes < 0 ? "-" : "+", size_text(std::abs(bytes))),
               fmt::format("{:+.1f} %", 100 * bytes / all.unfused.bytes)});
  }
  step("  step", all.fused);
  return table.text() +
         "  each beside the step that leaves out it alone; without reorders, which backends add\n";
}

nlohmann::json fusions_json(const Graph& model, const StepOptions& options) {
  const Gains all = gains(model, options);
  auto rows = nlohmann::json::array();
  for (const Gain& gain : all.rows)
    rows.push_back({{"name", gain.row}, {"without", moved_json(gain.without)}});
  return {{"unfused", moved_json(all.unfused)}, {"fused", moved_json(all.fused)}, {"rows", rows}};
}

}  // namespace warpstep
