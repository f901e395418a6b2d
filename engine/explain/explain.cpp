#include "engine/explain/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "engine/core/text.h"
#include "engine/core/types.h"
#include "engine/explain/facts.h"

namespace warpstep {
namespace {

constexpr int page_width = 140;            // characters per line
constexpr int least_cut = 12;              // characters of a cut cell, at least
constexpr std::size_t largest_shown = 10;  // buffers listed at the peak
constexpr int profile_width = 100;         // characters of the live-byte profile, at most

// Rows of cells under a heading; numbers are aligned right, words left. A word wider than its
// column's limit runs into the spare room of the next columns. Where there is too little, words are
// cut, those of the last column first: numbers stay.
class Table {
 public:
  struct Column {
    std::string title;
    bool number = false;
    int limit = page_width;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  void heading(std::string text) { rows_.push_back({std::move(text)}); }  // across the columns
  std::string text() const;

 private:
  std::string line(std::vector<std::string> cells, const std::vector<int>& widths) const;
  std::string aligned(const std::vector<std::string>& cells, const std::vector<int>& widths) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

std::string Table::text() const {
  std::vector<int> widths;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    int width = static_cast<int>(columns_[c].title.size());
    for (const auto& row : rows_)
      if (row.size() > 1) width = std::max(width, static_cast<int>(row[c].size()));
    widths.push_back(std::min(width, columns_[c].limit));
  }
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  std::string all = line(titles, widths);
  for (const auto& row : rows_) all += row.size() > 1 ? line(row, widths) : row[0] + "\n";
  return all;
}

int width_of(const std::string& text) {
  return static_cast<int>(characters(text));
}

void cut_to(int width, std::string& text) {
  std::size_t end = 0;  // of as many characters, which may have several bytes
  const auto goes_on = [&] { return end < text.size() && (text[end] & 0xC0) == 0x80; };
  for (int c = 0; c + 1 < width && end < text.size(); ++c)
    for (++end; goes_on();) ++end;
  text.replace(end, std::string::npos, "…");
}

std::string Table::aligned(const std::vector<std::string>& cells,
                           const std::vector<int>& widths) const {
  std::string text;
  int end = 0;  // of the columns so far
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    end += widths[c] + (c > 0 ? 2 : 0);
    if (c > 0) text += "  ";
    const int room = std::max(0, end - width_of(text));
    text += columns_[c].number ? fmt::format("{:>{}}", cells[c], room)
                               : fmt::format("{:<{}}", cells[c], room);
  }
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

std::string Table::line(std::vector<std::string> cells, const std::vector<int>& widths) const {
  const std::size_t last = columns_.size() - 1;
  int columns = static_cast<int>(2 * last);  // the width up to the last column
  for (std::size_t c = 0; c < last; ++c) columns += widths[c];
  const int page = std::max(page_width, columns + least_cut);
  for (std::size_t c = last + 1; c-- > 0;) {
    const int excess = width_of(aligned(cells, widths)) - page;
    if (excess <= 0) break;
    if (columns_[c].number || width_of(cells[c]) <= least_cut) continue;
    cut_to(std::max(least_cut, width_of(cells[c]) - excess), cells[c]);
  }
  return aligned(cells, widths) + "\n";
}

double mib(std::size_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

std::string decimals(double number, int digits) {
  return number == 0 ? "-" : fmt::format("{:.{}f}", number, digits);
}

// "128x32x32x3:u8@128x32x32x4": with the dtype if it differs from `shown`, the last floating-point
// one on this line, and with the layout if it is not plain.
std::string value_text(const Value& value, bool with_layout, DType& shown) {
  std::string text = value.type.shape.text();
  if (value.type.dtype != shown) text += fmt::format(":{}", name(value.type.dtype));
  if (is_float(value.type.dtype)) shown = value.type.dtype;
  if (with_layout && !value.layout.tag.empty()) text += fmt::format("@{}", value.layout.tag);
  return text;
}

// The layout of a value is shown at the call that makes it, that of a parameter at its reorder.
std::string operands_text(const Graph& graph, const Node& node) {
  if (node.phase == Phase::update) {
    ParameterElements updated;
    for (const int id : node.in)
      if (graph.value(id).role == Role::parameter) {
        ++updated.tensors;
        updated.count += graph.value(id).type.shape.count();
      }
    return updated.tensors == 0 ? "step state, in place"
                                : fmt::format("{} elements of {} parameters, in place",
                                              grouped(updated.count), updated.tensors);
  }
  const bool reorder = std::holds_alternative<Reorder>(node.op);
  std::string text;
  DType shown = DType::f32;
  for (const int id : node.in)
    text += fmt::format("{} ", value_text(graph.value(id), reorder, shown));
  text += "->";
  const Type* before = nullptr;
  for (const int id : node.out) {
    const Value& value = graph.value(id);
    text +=
        before && before->shape == value.type.shape
            ? fmt::format(" +{}", name(value.type.dtype))
            : fmt::format(" {}", value_text(value, reorder || !is_persistent(value.role), shown));
    before = &value.type;
  }
  return text;
}

// The address of the first output: its offset in the arena in MiB, after "=" if it took over the
// buffer of an input.
std::string place_text(const Program& program, const Node& node) {
  if (node.out.empty()) return "store";
  const MemoryPlan& plan = program.plan();
  const int buffer = plan.buffer_of_value[idx(node.out[0])];
  if (buffer < 0) return "store";
  const bool taken = std::any_of(node.in.begin(), node.in.end(),
                                 [&](int id) { return plan.buffer_of_value[idx(id)] == buffer; });
  return fmt::format("{}{:.2f}", taken ? "=" : "", mib(plan.buffers[idx(buffer)].offset));
}

// One bar per call; where there are many, one per group of neighbours, as high as the highest.
std::string profile(const std::vector<std::size_t>& live) {
  constexpr std::array bars{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const std::size_t highest = std::max<std::size_t>(1, *std::max_element(live.begin(), live.end()));
  const std::size_t stride = (live.size() + profile_width - 1) / profile_width;
  std::string text;
  for (std::size_t begin = 0; begin < live.size(); begin += stride) {
    const auto first = live.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last =
        live.begin() + static_cast<std::ptrdiff_t>(std::min(live.size(), begin + stride));
    const std::size_t level = *std::max_element(first, last) * (bars.size() - 1) / highest;
    text += bars[level];
  }
  return text;
}

std::string peak_text(const Program& program) {
  const MemoryPlan& plan = program.plan();
  const std::vector<int> alive = plan.alive_at(plan.peak_node);
  Table table({{"      bytes", true}, {"buffer"}, {"alive in calls", true}, {"at", true}});
  for (std::size_t i = 0; i < std::min(alive.size(), largest_shown); ++i) {
    const MemoryPlan::Buffer& buffer = plan.buffers[idx(alive[i])];
    table.add({size_text(static_cast<double>(buffer.lifetime.bytes)), buffer.name,
               fmt::format("{}-{}", call_number(program, buffer.lifetime.first),
                           call_number(program, buffer.lifetime.last)),
               size_text(static_cast<double>(buffer.offset))});
  }
  std::string text = fmt::format("  peak at call {}, {}: {} of {} buffers are alive\n",
                                 call_number(program, plan.peak_node),
                                 program.graph().nodes[idx(plan.peak_node)].title(), alive.size(),
                                 plan.buffers.size()) +
                     table.text();
  if (alive.size() > largest_shown)
    text += fmt::format("             and {} smaller\n", alive.size() - largest_shown);
  return text;
}

std::string inputs_text(const Graph& graph, Role role) {
  std::string text;
  for (const int id : graph.inputs)
    if (graph.value(id).role == role)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", graph.value(id).name,
                          graph.value(id).type.text());
  return text;
}

template <class... Op>
bool is_any_of(const AnyOp& op) {
  return (std::holds_alternative<Op>(op) || ...);
}

bool is_planned(const AnyOp& op) {
  return is_any_of<Conv, ConvDataGrad, ConvWeightGrad, Linear, LinearDataGrad, LinearWeightGrad,
                   NormConv, NormConvDataGrad, NormConvWeightGrad, Attention, AttentionGrad>(op);
}

// "f16 128x32x32x8": of the image or matrix that the call reads, as it is stored.
std::string input_text(const Value& value) {
  return fmt::format("{} {}", name(value.type.dtype),
                     value.layout.tag.empty() ? value.type.shape.text() : value.layout.tag);
}

std::string explain_memory(const Program& program) {
  const Graph& graph = program.graph();
  const MemoryPlan& plan = program.plan();
  const PersistentBytes persistent = persistent_bytes(program);
  const auto arena = static_cast<double>(plan.arena_bytes);
  std::string text = "memory\n";
  const auto line = [&](std::string_view title, std::size_t bytes, const std::string& note) {
    text +=
        fmt::format("  {:<10}  {:>12}  {}\n", title, size_text(static_cast<double>(bytes)), note);
    text.erase(text.find_last_not_of(" \n") + 1) += "\n";
  };
  line(
      "arena", plan.arena_bytes,
      plan.bound_bytes == 0
          ? ""
          : fmt::format("{:.1f} % above the {} that are alive at once; separate buffers would take "
                        "{}, {:.1f} times as much",
                        100 * (arena / static_cast<double>(plan.bound_bytes) - 1),
                        size_text(static_cast<double>(plan.bound_bytes)),
                        size_text(static_cast<double>(plan.separate_bytes)),
                        static_cast<double>(plan.separate_bytes) / arena));
  const ParameterElements elements = parameter_elements(graph);
  line("parameters", persistent.parameters,
       fmt::format("{} in {} tensors", grouped(elements.count), elements.tensors));
  if (persistent.copies > 0) line("copies", persistent.copies, "16 bits, what the step reads");
  if (persistent.gradients > 0) line("gradients", persistent.gradients, "");
  if (persistent.sums > 0) line("sums", persistent.sums, "of gradients");
  if (persistent.moments > 0)
    line("moments", persistent.moments,
         fmt::format("{} per parameter", program.store().moment_count()));
  if (persistent.averages > 0) line("averages", persistent.averages, "of the parameters");
  line("input slot", persistent.inputs, inputs_text(graph, Role::input));
  if (persistent.resident > 0)
    line("resident", persistent.resident, inputs_text(graph, Role::resident));
  line("all", plan.arena_bytes + persistent.bytes(), "");
  if (plan.buffers.empty()) return text;
  return text + "\n  alive from call to call  " + profile(live_bytes(program)) + "\n" +
         peak_text(program);
}

std::string explain_totals(const Program& program) {
  const CallTotals all = call_totals(program);
  Table table({{"totals"},
               {"calls", true},
               {"MFLOP", true},
               {"", true},
               {"bytes", true},
               {"", true},
               {"F/B", true}});
  const auto add = [&](std::string name, const CallTotals& t) {
    const auto share = [](double part_of, double whole) {
      return whole > 0 ? fmt::format("{:.0f} %", 100 * part_of / whole) : "";
    };
    table.add({std::move(name), fmt::format("{}", t.calls), decimals(t.flops / 1e6, 1),
               share(t.flops, all.flops), size_text(t.bytes), share(t.bytes, all.bytes),
               decimals(arithmetic_intensity(t.flops, t.bytes), 1)});
  };
  for (const std::string_view name : step_parts)
    if (const CallTotals t = call_totals(program, name); t.calls > 0)
      add(fmt::format("  {}", name), t);
  add("  step", all);
  return table.text();
}

}  // namespace

std::string explain(const Program& program) {
  return fmt::format(
      "{} calls on {}: {}\n\n{}\n"
      "MiB: inputs and outputs, each once; images of batch norms in training twice; of tables only "
      "the rows used.\n"
      "F/B: FLOP per byte. at: offset of the first output in the arena, in MiB; =: in an input's "
      "place; store: persists.{}\n\n{}\n{}",
      program.calls().size(), program.backend().name(), program.backend().describe(),
      explain_calls(program), program.lanes().used() ? " |: in a second stream, in parallel." : "",
      explain_memory(program), explain_totals(program));
}

std::string explain_calls(const Program& program) {
  Table table({{"#", true},
               {"call", false, 34},
               {"shapes", false, 50},
               {"MFLOP", true},
               {"MiB", true},
               {"F/B", true},
               {"at", true},
               {"kernel"}});
  std::string_view current;
  for (const Call& call : program.calls()) {
    const Node& node = program.graph().nodes[idx(call.node)];
    if (step_part(call.phase) != current) {
      current = step_part(call.phase);
      table.heading(fmt::format("── {}", current));
    }
    const std::string attributes = text(node.op);
    const bool second_lane = program.lanes().lane[idx(call.node)] != 0;
    table.add({fmt::format("{}{}", second_lane ? "|" : "", call_number(program, call.node)),
               call.title + (attributes.empty() ? "" : " " + attributes),
               operands_text(program.graph(), node), decimals(call.cost.flops / 1e6, 1),
               fmt::format("{:.2f}", call.cost.bytes / (1 << 20)),
               decimals(arithmetic_intensity(call.cost.flops, call.cost.bytes), 1),
               place_text(program, node), call.kernel->implementation()});
  }
  return table.text();
}

std::string explain_plans(const Program& program) {
  Table table(
      {{"#", true}, {"call", false, 34}, {"reads", false, 22}, {"workspace", true}, {"plan"}});
  std::size_t largest = 0;
  for (const Call& call : program.calls()) {
    const Node& node = program.graph().nodes[idx(call.node)];
    if (!is_planned(node.op)) continue;
    const std::size_t workspace = call.kernel->workspace_bytes();
    largest = std::max(largest, workspace);
    table.add({fmt::format("{}", call_number(program, call.node)),
               fmt::format("{} {}", call.title, text(node.op)),
               input_text(program.graph().value(node.in[0])),
               size_text(static_cast<double>(workspace)), call.kernel->implementation()});
  }
  return fmt::format("{}\nlargest workspace {}\n", table.text(),
                     size_text(static_cast<double>(largest)));
}

std::string explain_fusions(const Graph& model, const StepOptions& options) {
  const FusionGains all = fusion_gains(model, options);
  Table table({{"fusions"}, {"calls", true}, {"bytes", true}, {"", true}});
  const auto share = [&](double bytes) {
    return fmt::format("{:.1f} %", 100 * bytes / all.unfused.bytes);
  };
  const auto step = [&](const char* title, const StepCost& m) {
    table.add({title, fmt::format("{}", m.calls), size_text(m.bytes), share(m.bytes)});
  };
  step("  step without any", all.unfused);
  for (const FusionGain& gain : all.rows) {
    const double bytes = all.fused.bytes - gain.without.bytes;
    table.add({fmt::format("    {}", gain.row),
               fmt::format("{:+}", all.fused.calls - gain.without.calls),
               fmt::format("{}{}", bytes < 0 ? "-" : "+", size_text(std::abs(bytes))),
               fmt::format("{:+.1f} %", 100 * bytes / all.unfused.bytes)});
  }
  step("  step", all.fused);
  return table.text() +
         "  each row: change against the same step without that fusion; backend reorders not "
         "counted\n";
}

}  // namespace warpstep
