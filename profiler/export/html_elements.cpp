// The page's elements: escaping, tables, charts; and the roofline, each call's speed against the
// machine's limit at its intensity, on logarithmic axes.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ranges>
#include <set>

#include "engine/core/json_text.h"
#include "profiler/export/html.h"
#include "profiler/export/quantity.h"

namespace warpstep::profiler::html {
namespace {

unsigned hex_digit(char c) {
  return static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10);
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_bytes(text.substr(at));
    const char c = text[at];
    const bool is_control = static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\t';
    if (length == 0 || is_control || c == 0x7F)
      result += "\xEF\xBF\xBD";
    else if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (c == '&')
      result += "&amp;";
    else if (c == '"')
      result += "&quot;";
    else if (c == '\'')
      result += "&#39;";
    else
      result += text.substr(at, length);
    at += length == 0 ? 1 : length;
  }
  return result;
}

std::string prose(std::string_view text) {
  constexpr std::string_view units[] = {
      "%",    "ns",   "us",   "ms",      "s",   "B", "KiB", "MiB",   "GiB",     "TiB",
      "GB/s", "TB/s", "MB/s", "GFLOP/s", "MHz", "W", "MB",  "GFLOP", "TFLOP/s", "MFLOP/s"};
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t space = std::min(text.find(' ', at), text.size());
    result += escaped(text.substr(at, space - at));
    if (space == text.size()) break;
    const std::string_view rest = text.substr(space + 1);
    std::string_view word = rest.substr(0, rest.find(' '));
    while (!word.empty() && std::string_view(".,;:)").find(word.back()) != std::string_view::npos)
      word.remove_suffix(1);
    const bool follows_number = space > 0 && text[space - 1] >= '0' && text[space - 1] <= '9';
    const bool is_unit = std::ranges::find(units, word) != std::end(units);
    result += follows_number && is_unit ? "\u00a0" : " ";
    at = space + 1;
  }
  return result;
}

std::string script_json(const Json& json) {
  std::string result;
  for (const char c : printed(json)) {
    if (c == '<' || c == '>' || c == '&')
      result += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      result += c;
  }
  return result;
}

std::string policy_source(std::string_view sha256_hex) {
  constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string base64;
  // 3 hexadecimal digits are 2 of base 64; the 64 of a hash leave one, whose 4 bits get 2 zeros.
  for (std::size_t i = 0; i + 3 <= sha256_hex.size(); i += 3) {
    const unsigned bits = hex_digit(sha256_hex[i]) << 8 | hex_digit(sha256_hex[i + 1]) << 4 |
                          hex_digit(sha256_hex[i + 2]);
    base64 += {digits[bits >> 6], digits[bits & 63]};
  }
  if (sha256_hex.size() % 3 == 1) base64 += {digits[hex_digit(sha256_hex.back()) << 2], '='};
  return "'sha256-" + base64 + "'";
}

std::string section(std::string_view id, std::string_view title, const std::string& lead,
                    const std::string& body) {
  return fmt::format(
      "<section id=\"{0}\" aria-labelledby=\"{0}-title\">\n<details class=\"fold\" open>"
      "<summary><h2 id=\"{0}-title\">{1}</h2></summary>\n{2}{3}</details></section>\n",
      id, escaped(title), lead.empty() ? "" : fmt::format("<p class=\"lead\">{}</p>\n", lead),
      body);
}

namespace {

// In base units, with all digits, for sorting and CSV; nothing for what is not known.
std::string raw(const Cell& cell) {
  if (const auto* whole = std::get_if<std::int64_t>(&cell)) return fmt::format("{}", *whole);
  if (const auto* real = std::get_if<double>(&cell))
    return std::isfinite(*real) ? fmt::format("{}", *real) : "";
  return "";
}

bool is_number(const Cell& cell) {
  return std::holds_alternative<std::int64_t>(cell) || std::holds_alternative<double>(cell);
}

// A column is one of numbers when any of its cells is.
std::vector<bool> number_columns(const Table& data) {
  std::vector<bool> result(data.columns.size());
  for (const auto& row : data.rows)
    for (std::size_t i = 0; i < row.size() && i < result.size(); ++i)
      if (is_number(row[i])) result[i] = true;
  return result;
}

// Columns of long names, as kernels have, get more room, and break in lines.
bool has_long(const Table& data, int column) {
  constexpr std::size_t long_name = 24;
  if (column < 0) return false;
  for (const auto& row : data.rows) {
    const auto* text = std::get_if<std::string>(&row[static_cast<std::size_t>(column)]);
    if (text && text->size() > long_name) return true;
  }
  return false;
}

// A bar for a share, next to its number.
std::string share_bar(const Cell& cell) {
  const auto* share = std::get_if<double>(&cell);
  if (!share || !(*share > 0)) return "<svg class=\"bar\" aria-hidden=\"true\"></svg>";
  return fmt::format(
      "<svg class=\"bar\" aria-hidden=\"true\"><rect width=\"{}\" height=\"100%\"/></svg>",
      percent(std::min(*share, 1.0)));
}

std::string row_html(const Table& data, const std::vector<Cell>& row,
                     const std::vector<bool>& numbers, int code) {
  std::string html = "<tr>";
  for (std::size_t i = 0; i < data.columns.size() && i < row.size(); ++i) {
    const Unit unit = data.columns[i].unit;
    const std::string shown = escaped(profiler::shown(row[i], unit));
    const std::string css = code == static_cast<int>(i) ? " class=\"code\"" : "";
    // Else the script sorts and writes the "-" that is shown.
    const char* const none = std::holds_alternative<std::monostate>(row[i]) ? " data-v=\"\"" : "";
    if (i == 0 && !numbers[0])
      html += fmt::format("<th scope=\"row\"{}{}>{}</th>", css, none, shown);
    else if (!numbers[i])
      html += fmt::format("<td{}{}>{}</td>", css, none, shown);
    else
      html += fmt::format("<td class=\"n\" data-v=\"{}\">{}{}</td>", raw(row[i]), shown,
                          unit == Unit::share ? share_bar(row[i]) : "");
  }
  return html + "</tr>\n";
}

std::string head(const Table& data, const std::vector<bool>& numbers, std::string_view sorted) {
  std::string html = "<thead><tr>";
  for (std::size_t i = 0; i < data.columns.size(); ++i)
    html += fmt::format("<th scope=\"col\" data-k=\"{}\"{}{}>{}</th>", escaped(data.columns[i].key),
                        numbers[i] ? " class=\"n\"" : "",
                        data.columns[i].key == sorted ? " aria-sort=\"descending\"" : "",
                        escaped(data.columns[i].title));
  return html + "</tr></thead>\n";
}

// Whether `report --json`, or `compare --json`, has the table; others are of the page alone.
bool is_in_json(const std::string& key) {
  static const std::set<std::string> keys = [] {
    std::set<std::string> all{to_table(Comparison{}).key};
    for (const Table& table : tables({}, {})) all.insert(table.key);
    return all;
  }();
  return keys.contains(key);
}

}  // namespace

Table on_page(Table data, std::initializer_list<std::string_view> columns) {
  // Columns in which 0 means that there is none: no backward half, no work of this kind.
  constexpr std::array<std::string_view, 7> none_if_zero{
      "forward_ns", "data_grad_ns", "weight_grad_ns", "update_ns", "flops", "bytes", "host_ns"};
  for (std::size_t c = 0; c < data.columns.size(); ++c) {
    if (std::ranges::find(none_if_zero, data.columns[c].key) == none_if_zero.end()) continue;
    for (auto& row : data.rows) {
      const auto* whole = std::get_if<std::int64_t>(&row[c]);
      const auto* real = std::get_if<double>(&row[c]);
      if ((whole && *whole == 0) || (real && *real == 0)) row[c] = {};
    }
  }
  return with_columns(data, columns);
}

std::string table(const Table& data, const TableStyle& style) {
  const std::vector<bool> numbers = number_columns(data);
  std::string note = data.note;
  if (data.rows.size() > table_rows)
    note += fmt::format("{}The first {} of {} rows{}.", note.empty() ? "" : " ", table_rows,
                        data.rows.size(), is_in_json(data.key) ? "; --json has all" : "");
  const std::string title = escaped(data.title);
  std::string html = fmt::format("<div class=\"table\"{}>\n", style.filter ? " data-filter" : "");
  if (style.titled)
    html += fmt::format("<div class=\"head\"><h3>{}</h3><p>{}</p></div>\n", title, escaped(note));
  html += fmt::format(
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}, table\">\n<table "
      "data-key=\"{1}\"{5}><caption{2}><b>{0}</b>{3}</caption>\n{4}<tbody>\n",
      title, escaped(data.key), style.titled ? " class=\"hidden\"" : "",
      style.titled || note.empty() ? "" : fmt::format(" {}", escaped(note)),
      head(data, numbers, style.sorted), has_long(data, style.code) ? " class=\"long\"" : "");
  for (std::size_t i = 0; i < std::min(data.rows.size(), table_rows); ++i)
    html += row_html(data, data.rows[i], numbers, style.code);
  return html + "</tbody></table>\n</div>\n</div>\n";
}

namespace {

// Shorter than "12.30" where that is the same number.
std::string number(double value) {
  std::string text = fmt::format("{:.2f}", value);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

// Points of a path in a box of 1000 units that is stretched to the chart's width.
std::string through(std::span<const Point> points, char first) {
  std::string path;
  for (const Point& point : points) {
    path += path.empty() ? first : 'L';
    path += number(point.x * 1000) + " " + number(point.y);
  }
  return path;
}

std::string stretched(double height, std::string_view css, const std::string& path) {
  return fmt::format(
      "<svg aria-hidden=\"true\" viewBox=\"0 0 1000 {0}\" width=\"100%\" height=\"{0}\" "
      "preserveAspectRatio=\"none\"><path class=\"{1}\" d=\"{2}\"/></svg>",
      number(height), css, path);
}

}  // namespace

std::string percent(double share) {
  return number(share * 100) + "%";
}

std::string bar(std::string_view css, double x, double y, double width, double height,
                std::string_view title) {
  std::string html =
      fmt::format("<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"", css,
                  percent(x), number(y), percent(width), number(std::max(height, 0.0)));
  return title.empty() ? html + "/>"
                       : fmt::format("{}><title>{}</title></rect>", html, escaped(title));
}

std::string text(double x, double y, std::string_view content, std::string_view css,
                 std::string_view anchor) {
  if (anchor.empty()) anchor = x < 0.12 ? "start" : x > 0.88 ? "end" : "middle";
  return fmt::format("<text x=\"{}\" y=\"{}\"{}{}>{}</text>", percent(x), number(y),
                     css.empty() ? "" : fmt::format(" class=\"{}\"", css),
                     anchor == "start" ? "" : fmt::format(" text-anchor=\"{}\"", anchor),
                     escaped(content));
}

std::string grid_line(double y, std::string_view label) {
  return fmt::format("<line class=\"grid\" x1=\"0\" x2=\"100%\" y1=\"{0}\" y2=\"{0}\"/>",
                     number(y)) +
         (label.empty() ? ""
                        : fmt::format("<text class=\"tick\" x=\"0\" y=\"{}\" dx=\"-6\" "
                                      "text-anchor=\"end\">{}</text>",
                                      number(y + 4), escaped(label)));
}

std::string vertical(std::string_view css, double x, double top, double bottom) {
  return fmt::format("<line class=\"{0}\" x1=\"{1}\" x2=\"{1}\" y1=\"{2}\" y2=\"{3}\"/>", css,
                     percent(x), number(top), number(bottom));
}

std::string line(std::string_view css, std::span<const Point> points, double height) {
  return points.empty() ? "" : stretched(height, css, through(points, 'M'));
}

std::string area(std::string_view css, std::span<const Point> points, double base, double height) {
  if (points.empty()) return "";
  const Point ends[] = {{points.back().x, base}, {points.front().x, base}};
  return stretched(height, css, through(points, 'M') + through(ends, 'L') + "z");
}

std::string band(std::string_view css, std::span<const Point> top, std::span<const Point> bottom,
                 double height) {
  if (top.empty()) return "";
  std::vector<Point> back(bottom.rbegin(), bottom.rend());
  return stretched(height, css, through(top, 'M') + through(back, 'L') + "z");
}

std::string legend_item(std::string_view css, std::string_view label) {
  return fmt::format(
      "<span class=\"key\"><svg aria-hidden=\"true\"><rect class=\"{}\" width=\"100%\" "
      "height=\"100%\"/></svg>{}</span>\n",
      css, escaped(label));
}

std::string chart(const Chart& chart) {
  std::string html = fmt::format("<figure class=\"chart{}\" id=\"{}\">\n<figcaption><h3>{}</h3>",
                                 chart.has_gutter ? " gutter" : "", chart.id, escaped(chart.title));
  if (!chart.legend.empty()) html += "<div class=\"legend\">" + chart.legend + "</div>";
  html += fmt::format(
      "</figcaption>\n<svg class=\"plot\" role=\"{0}\" aria-labelledby=\"{1}-t {1}-d\" "
      "width=\"100%\" height=\"{2}\"><title id=\"{1}-t\">{3}</title><desc id=\"{1}-d\">{4}</desc>"
      "\n{5}</svg>\n",
      chart.is_interactive ? "group" : "img", chart.id, chart.height, escaped(chart.title),
      escaped(chart.summary), chart.body, chart.has_gutter ? " gutter" : "");
  return html + "<details class=\"data\"><summary>Numbers</summary>\n" + chart.table +
         "</details>\n</figure>\n";
}

std::vector<double> ticks(double high, int count) {
  if (!(high > 0)) return {0};
  const double power = std::pow(10, std::floor(std::log10(high / count)));
  const double ratio = high / count / power;
  const double step = (ratio < 2 ? 1 : ratio < 5 ? 2 : 5) * power;
  std::vector<double> result;
  for (int i = 0; i * step <= high * (1 + 1e-9); ++i) result.push_back(i * step);
  return result;
}

std::string tick_text(double value, Unit unit) {
  if (value == 0) return "0";
  std::string text = quantity(value, unit);
  const std::size_t space = std::min(text.find(' '), text.size());
  if (text.find('.') > space) return text;
  std::size_t end = space;
  while (text[end - 1] == '0') --end;
  if (text[end - 1] == '.') --end;
  return text.erase(end, space - end);
}

namespace {

struct Phase {
  const char* key;
  const char* title;
  const char* css;
  const char* mark;  // a path around 0, 0: the shape repeats what the colour says
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
  const auto decade = [](double value) { return std::clamp(std::log10(value), -30.0, 30.0); };
  Range range{std::floor(decade(smallest)), std::ceil(decade(largest))};
  if (range.high <= range.low) range.high = range.low + 1;
  return range;
}

std::vector<const CallRow*> placed(const Work& work) {
  std::vector<const CallRow*> calls;
  for (const CallRow& call : work.calls)
    if (call.flops > 0 && call.bytes > 0 && call.flops_per_second > 0 &&
        std::isfinite(call.flops_per_second) && std::isfinite(call.flops / call.bytes))
      calls.push_back(&call);
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
    return html + text(0.5, base + 29, "FLOP per byte", "tick", "middle");
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
    for (const CallRow* const call : calls_) {
      const Phase& phase = phase_of(*call);
      // Area by share, but never too small to be hit.
      const double size = 0.8 + 1.6 * std::sqrt(std::clamp(call->share, 0.0, 1.0));
      const double x = x_.place(call->flops / call->bytes), y = down(call->flops_per_second);
      html += fmt::format(
          "<svg x=\"{}\" y=\"{:.1f}\" width=\"1\" height=\"1\" class=\"mark\"><path class=\"{}\" "
          "transform=\"scale({:.2f})\" d=\"{}\"><title>{}</title></path></svg>\n",
          percent(x), y, phase.css, size, phase.mark,
          escaped(fmt::format(
              "{}, {}: {}, {}{}", call->title, phase.title, quantity(call->median_ns, Unit::ns),
              quantity(call->flops_per_second, Unit::per_second_flops),
              call->of_peak > 0 ? ", " + quantity(call->of_peak, Unit::share) + " of its peak"
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
                          {"intensity", "FLOP per byte"},
                          {"flops_per_second", "rate", Unit::per_second_flops},
                          {"of_peak", "of peak", Unit::share}}};
  for (const CallRow* const call : calls | std::views::reverse)
    table.rows.push_back({call->title, call->phase, call->flops / call->bytes,
                          call->flops_per_second,
                          call->of_peak > 0 ? Cell(call->of_peak) : Cell()});
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
  return chart(
      {.id = "roofline",
       .title = "Roofline: each call against the machine's limits",
       .summary =
           "Calls by their operations per byte and operations per second, with larger "
           "marks for larger shares of the step; a call above the line needs fewer operations "
           "than are counted (Winograd), or its data are in a cache.",
       .height = static_cast<int>(height),
       .body = Plot(work, calls).body(),
       .legend = legend,
       .table = table(points_table(calls)),
       .has_gutter = true});
}

}  // namespace warpstep::profiler::html
