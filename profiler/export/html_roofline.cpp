// Each call's speed against what the machine allows at its intensity, on logarithmic axes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "profiler/export/html.h"
#include "profiler/export/html_parts.h"
#include "profiler/export/quantity.h"

namespace warpstep::profiler::html {
namespace {

struct Phase {
  const char* key;
  const char* title;
  const char* css;
  const char* mark;  // a path around 0, 0: shape tells what colour tells
};
constexpr Phase phases[] = {
    {"forward", "forward", "p-forward", "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z"},
    {"data_grad", "data gradient", "p-data", "M0-6L6 5H-6z"},
    {"weight_grad", "weight gradient", "p-weight", "M-4.5-4.5h9v9h-9z"},
    {"update", "update", "p-update", "M0-6.5L6.5 0L0 6.5L-6.5 0z"},
    {"", "loss, other", "p-other", "M-5-2h3v-3h4v3h3v4h-3v3h-4v-3h-3z"}};

const Phase& phase_of(const CallRow& call) {
  for (const Phase& phase : phases)
    if (call.phase == phase.key) return phase;
  return phases[std::size(phases) - 1];
}

struct Range {  // of decades
  double low = 0, high = 1;
  double place(double value) const { return (std::log10(value) - low) / (high - low); }
};

Range decades(double smallest, double largest) {
  Range range{std::floor(std::log10(smallest)), std::ceil(std::log10(largest))};
  if (range.high <= range.low) range.high = range.low + 1;
  return range;
}

std::vector<const CallRow*> placed(const Work& work) {
  std::vector<const CallRow*> calls;
  for (const CallRow& call : work.calls)
    if (call.flops > 0 && call.bytes > 0 && call.flops_per_second > 0) calls.push_back(&call);
  // The longest is drawn last, and so is on top.
  std::ranges::stable_sort(calls, {}, [](const CallRow* call) { return call->ns; });
  return calls;
}

constexpr double height = 320, base = 290, top = 26;

class Plot {
 public:
  Plot(const Work& work, const std::vector<const CallRow*>& calls) : work_(work), calls_(calls) {
    double low = 1e300, high = 0, slow = 1e300, fast = work.peaks.flops_per_second;
    for (const CallRow* call : calls) {
      low = std::min(low, call->flops / call->bytes);
      high = std::max(high, call->flops / call->bytes);
      slow = std::min(slow, call->flops_per_second);
      fast = std::max(fast, call->flops_per_second);
    }
    if (ridge() > 0) high = std::max(high, 2 * ridge());
    x_ = decades(low, high);
    y_ = decades(slow, fast * 1.05);
  }

  std::string body() const { return axes() + ceilings() + points(); }

 private:
  double ridge() const {
    return work_.peaks.bytes_per_second > 0 && work_.peaks.flops_per_second > 0
               ? work_.peaks.flops_per_second / work_.peaks.bytes_per_second
               : 0;
  }
  double down(double rate) const { return base - y_.place(rate) * (base - top); }

  std::string axes() const {
    std::string html;
    for (double power = y_.low; power <= y_.high; ++power)
      html += grid_line(down(std::pow(10, power)),
                        tick_text(std::pow(10, power), Unit::per_second_flops));
    for (double power = x_.low; power <= x_.high; ++power) {
      const double x = x_.place(std::pow(10, power));
      html += vertical("grid", x, top, base);
      html += text(x, base + 16, fmt::format("{:g}", std::pow(10, power)), "tick");
    }
    return html + text(0.5, base + 29, "FLOP a byte", "tick", "middle");
  }

  std::string ceilings() const {
    if (ridge() <= 0) return "";
    const double bandwidth = work_.peaks.bytes_per_second, peak = work_.peaks.flops_per_second;
    const double left = std::max(std::pow(10, x_.low), std::pow(10, y_.low) / bandwidth);
    const Point roof[] = {
        {x_.place(left), down(left * bandwidth)}, {x_.place(ridge()), down(peak)}, {1, down(peak)}};
    const double middle = std::pow(left, 0.4) * std::pow(ridge(), 0.6);
    return line("l-roof", roof, height) +
           text(1, down(peak) - 13, quantity(peak, Unit::per_second_flops), "tick", "end") +
           text(x_.place(middle) - 0.015, down(middle * bandwidth) - 4,
                quantity(bandwidth, Unit::per_second_bytes), "tick", "end");
  }

  std::string points() const {
    std::string html;
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      const CallRow& call = *calls_[i];
      const Phase& phase = phase_of(call);
      // Area by share, but never too small to be hit.
      const double size = 0.8 + 1.6 * std::sqrt(std::clamp(call.share, 0.0, 1.0));
      const double x = x_.place(call.flops / call.bytes), y = down(call.flops_per_second);
      html += fmt::format(
          "<svg x=\"{}\" y=\"{:.1f}\" width=\"1\" height=\"1\" class=\"mark\"><path class=\"{}\" "
          "transform=\"scale({:.2f})\" d=\"{}\"><title>{}</title></path></svg>\n",
          percent(x), y, phase.css, size, phase.mark,
          escaped(fmt::format(
              "{}, {}: {}, {}{}", call.title, phase.title, quantity(call.ns, Unit::ns),
              quantity(call.flops_per_second, Unit::per_second_flops),
              call.of_peak > 0 ? ", " + quantity(call.of_peak, Unit::share) + " of its peak"
                               : "")));
    }
    return html;
  }

  const Work& work_;
  const std::vector<const CallRow*>& calls_;
  Range x_, y_;
};

Table points_table(const std::vector<const CallRow*>& calls) {
  Table table{.key = "roofline",
              .title = "Roofline",
              .columns = {{"call", "call"},
                          {"phase", "phase"},
                          {"intensity", "FLOP a byte"},
                          {"flops_per_second", "rate", Unit::per_second_flops},
                          {"of_peak", "of peak", Unit::share}}};
  for (auto call = calls.rbegin(); call != calls.rend(); ++call)
    table.rows.push_back({(*call)->title, (*call)->phase, (*call)->flops / (*call)->bytes,
                          (*call)->flops_per_second,
                          (*call)->of_peak > 0 ? Cell((*call)->of_peak) : Cell()});
  return table;
}

}  // namespace

std::string roofline(const Work& work) {
  const std::vector<const CallRow*> calls = placed(work);
  if (calls.empty()) return "";
  std::string legend;
  for (const Phase& phase : phases)
    if (std::ranges::any_of(calls, [&](const CallRow* call) { return &phase_of(*call) == &phase; }))
      legend += fmt::format(
          "<span class=\"key\"><svg aria-hidden=\"true\" viewBox=\"-8 -8 16 16\"><path "
          "class=\"{}\" d=\"{}\"/></svg>{}</span>\n",
          phase.css, phase.mark, phase.title);
  return chart({.id = "roofline",
                .title = "Roofline: how near each call is to what the machine allows",
                .summary = "Calls by their operations a byte and operations a second, with larger "
                           "marks for larger shares of the step; above the line nothing can be.",
                .height = static_cast<int>(height),
                .body = Plot(work, calls).body(),
                .legend = legend,
                .table = table(points_table(calls))});
}

}  // namespace warpstep::profiler::html
