// The page's section on the loader: the workers' time, and the effect of more workers or a longer
// queue.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "profiler/analysis/tables.h"
#include "profiler/export/html.h"
#include "profiler/export/quantity.h"

namespace warpstep::profiler::html {
namespace {

constexpr std::size_t histogram_bins = 32;
constexpr std::size_t queue_points = 600;

// Rows are workers, columns stages, idling, waiting for a core, and what is in none of them; darker
// is more of the worker's time.
std::string heat_map(const Analysis& analysis) {
  const LoaderView& view = analysis.loader;
  if (view.by_worker.empty()) return "";
  constexpr int row_height = 30, first = 22;
  std::vector<std::string> titles = view.stages;
  for (const char* const rest : {"idle", "no core", "other"}) titles.emplace_back(rest);
  const double columns = static_cast<double>(titles.size() + 1);
  std::string body;
  for (std::size_t i = 0; i < titles.size(); ++i)
    body += text((static_cast<double>(i) + 1.5) / columns, 14, titles[i], "tick", "middle");
  for (std::size_t row = 0; row < view.by_worker.size(); ++row) {
    const WorkerRow& worker = view.by_worker[row];
    const double y = first + static_cast<double>(row) * row_height;
    std::vector<std::uint64_t> stages = worker.stage_ns;
    stages.resize(view.stages.size());
    const WorkerParts parts =
        worker_parts(worker.thread, stages, worker.idle_ns, analysis.contention);
    std::vector<double> ns = parts.stage_ns;
    ns.insert(ns.end(), {parts.idle_ns, parts.core_wait_ns, parts.other_ns});
    double sum = 0;
    for (const double part : ns) sum += part;
    body += text(0, y + 19, worker.thread, "lane", "start");
    for (std::size_t i = 0; i < ns.size() && sum > 0; ++i) {
      const double share = ns[i] / sum;
      const int level = static_cast<int>(std::min(share * 5, 4.0));
      const double x = (static_cast<double>(i) + 1) / columns;
      body += bar(fmt::format("heat h{}", level), x, y, 1 / columns, row_height,
                  fmt::format("{}, {}: {}", worker.thread, titles[i], quantity(ns[i], Unit::ns)));
      body += text(x + 0.5 / columns, y + 19, fmt::format("{:.0f} %", share * 100),
                   fmt::format("heat-text h{}", level), "middle");
    }
  }
  return chart({.id = "workers",
                .title = "What each worker's time goes to",
                .summary = "A row per worker, a column per stage; the share of the worker's time. "
                           "\"No core\": it was ready to run and waited for one, by the kernel's "
                           "count; of one stage that is an average.",
                .height = first + row_height * static_cast<int>(view.by_worker.size()),
                .body = body,
                .table = table(loader_table(analysis))});
}

std::string service_histogram(const std::vector<std::uint64_t>& service) {
  if (service.size() < 2) return "";
  std::vector<std::uint64_t> sorted = service;
  std::ranges::sort(sorted);
  const auto at = [&](double share) {
    return static_cast<double>(
        sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))]);
  };
  const double high =
      std::max(std::min(at(0.99) * 1.05, at(0.95) * 2), 1.0);  // the last bin has all above
  std::vector<std::int64_t> bins(histogram_bins, 0);
  for (const std::uint64_t ns : sorted) {
    const auto bin = static_cast<std::size_t>(static_cast<double>(ns) / high * histogram_bins);
    ++bins[std::min(bin, histogram_bins - 1)];
  }
  constexpr double base = 110, top = 18;
  const double most = static_cast<double>(std::ranges::max(bins));
  std::string body;
  Table data{.key = "service",
             .title = "Service times",
             .columns = {{"from_ns", "from", Unit::ns}, {"samples", "samples", Unit::count}}};
  for (std::size_t i = 0; i < bins.size(); ++i) {
    const double x = static_cast<double>(i) / histogram_bins;
    const double tall = static_cast<double>(bins[i]) / most * (base - top);
    const double from = x * high;
    body += bar("service", x + 0.001, base - tall, 1.0 / histogram_bins - 0.002, tall,
                fmt::format("from {}: {} samples", quantity(from, Unit::ns), bins[i]));
    data.rows.push_back({from, bins[i]});
  }
  for (const double tick : ticks(high))
    body += text(tick / high, base + 16, tick_text(tick, Unit::ns), "tick");
  body += vertical("l-mark", at(0.5) / high, top, base) +
          vertical("l-mark", at(0.95) / high, top, base);
  const std::string median = quantity(at(0.5), Unit::ns), p95 = quantity(at(0.95), Unit::ns);
  body += text(at(0.5) / high, 13, "median " + median, "tick");
  const double p95_at = at(0.95) / high;
  body += text(p95_at < 0.7 ? p95_at + 0.01 : p95_at - 0.01, 28, "p95 " + p95, "tick",
               p95_at < 0.7 ? "start" : "end");
  return chart({.id = "service",
                .title = "How long a sample takes to make",
                .summary = fmt::format("Histogram over {} samples: median {}, 95th percentile {}; "
                                       "the last bar has all that took longer.",
                                       service.size(), median, p95),
                .height = static_cast<int>(base) + 20,
                .body = body,
                .legend = fmt::format("<span>{} samples</span>",
                                      quantity(static_cast<double>(service.size()), Unit::count)),
                .table = table(data)});
}

struct Curve {
  std::string id, title, what;
  std::vector<std::pair<int, double>> points;
  int now = 0;
  Table table;  // the same points
};

std::string wait_curve(const Curve& curve) {
  // No curve for invisibly short waits.
  constexpr double least_wait = 1000;
  if (curve.points.size() < 2 ||
      std::ranges::all_of(curve.points, [](const auto& at) { return at.second < least_wait; }))
    return "";
  constexpr double base = 120, top = 18;
  double high = 1;
  for (const auto& [setting, wait] : curve.points) high = std::max(high, wait);
  const int first = curve.points.front().first, last = curve.points.back().first;
  const auto place = [&](int setting) {  // doublings are what matters in a long range
    return last > 8 * first ? std::log2(setting) : static_cast<double>(setting);
  };
  const auto across = [&](int setting) {
    return 0.04 +
           0.92 * (place(setting) - place(first)) / std::max(place(last) - place(first), 1.0);
  };
  std::string body, marks;
  for (const double tick : ticks(high, 2))
    body += grid_line(base - tick / high * (base - top), tick_text(tick, Unit::ns));
  std::vector<Point> points;
  const std::size_t every = (curve.points.size() + 7) / 8;
  for (std::size_t i = 0; i < curve.points.size(); ++i) {
    const auto& [setting, wait] = curve.points[i];
    points.push_back({across(setting), base - wait / high * (base - top)});
    const bool is_now = setting == curve.now;
    marks += fmt::format(
        "<circle class=\"{}\" cx=\"{}\" cy=\"{:.1f}\" r=\"{}\"><title>{}</title></circle>",
        is_now ? "dot now" : "dot", percent(points.back().x), points.back().y, is_now ? 6 : 4,
        escaped(fmt::format("{}: {}, {} per step", curve.what, setting, quantity(wait, Unit::ns))));
    if (is_now) marks += text(points.back().x, points.back().y - 10, "now", "strong");
    if (i % every == 0)
      marks += text(across(setting), base + 17, fmt::format("{}", setting), "tick", "middle");
  }
  Table data = curve.table;
  data.key = curve.id;
  data.title = curve.title;
  data.note.clear();  // the diagnosis, which the page shows once
  return chart({.id = curve.id,
                .title = curve.title,
                .summary = "Replayed with the recorded times of samples and steps.",
                .height = static_cast<int>(base) + 22,
                .body = body + line("l-main", points, base) + marks,
                .table = table(data),
                .has_gutter = true});
}

std::string queue_chart(const LoaderView& view) {
  if (view.queue.size() < 2) return "";
  constexpr double base = 70, top = 18;
  const double first = static_cast<double>(view.queue.front().first);
  const double range = std::max(static_cast<double>(view.queue.back().first) - first, 1.0);
  std::uint64_t most = 1;
  for (const auto& [at, ready] : view.queue) most = std::max(most, ready);
  const std::size_t every = (view.queue.size() + queue_points - 1) / queue_points;
  std::vector<Point> points;
  Table data{.key = "queue",
             .title = "Batches ready",
             .columns = {{"at_ns", "after", Unit::ns}, {"ready", "ready", Unit::count}}};
  for (std::size_t i = 0; i < view.queue.size(); i += every) {
    const auto& [at, ready] = view.queue[i];
    const double x = (static_cast<double>(at) - first) / range;
    if (!points.empty()) points.push_back({x, points.back().y});
    points.push_back(
        {x, base - static_cast<double>(ready) / static_cast<double>(most) * (base - top)});
    data.rows.push_back({static_cast<double>(at) - first, static_cast<std::int64_t>(ready)});
  }
  return chart(
      {.id = "queue",
       .title = "Batches ready in the queue",
       .summary = fmt::format("Over the recorded time; {:.1f} on average when one was taken.",
                              view.queue_depth),
       .height = static_cast<int>(base) + 20,
       .body = grid_line(top, fmt::format("{} ready", most)) + grid_line(base, "0") +
               area("queue", points, base, base) + text(0, base + 16, "0", "tick") +
               text(1, base + 16, quantity(range, Unit::ns), "tick"),
       .table = table(data),
       .has_gutter = true});
}

}  // namespace

std::string loader_part(const Analysis& analysis) {
  const LoaderView& view = analysis.loader;
  const Stall& stall = analysis.stall;
  if (!view.has_spans && view.waits_ns.empty()) return "";
  std::string body;
  if (!stall.text.empty()) body += "<p class=\"diagnosis\">" + prose(stall.text) + "</p>\n";
  body += heat_map(analysis);
  const Table stalls = stalls_table(analysis);
  Curve workers{"workers-curve",
                "Wait by number of workers",
                "workers",
                {},
                view.workers,
                with_columns(rows_of(stalls, "setting", "other workers"), {"workers", "wait_ns"})};
  for (std::size_t i = 0; i < stall.wait_by_workers_ns.size(); ++i)
    workers.points.emplace_back(static_cast<int>(i) + 1, stall.wait_by_workers_ns[i]);
  const Curve prefetch{
      "prefetch-curve",
      "Wait by batches made ahead",
      "batches ahead",
      stall.wait_by_prefetch_ns,
      view.prefetch,
      with_columns(rows_of(stalls, "setting", "other prefetch"), {"prefetch", "wait_ns"})};
  body += "<div class=\"pair\">\n" + wait_curve(workers) + wait_curve(prefetch) +
          service_histogram(view.service_ns) + queue_chart(view) + "</div>\n";
  std::string lead;
  if (view.workers > 0)
    lead = escaped(
        fmt::format("Workers: {}, on {} cores, {} batches ahead; a batch is {} of worker "
                    "time, a step without waiting {}, and it waits {}.",
                    view.workers, view.cores, view.prefetch, quantity(view.work_ns, Unit::ns),
                    quantity(view.step_ns, Unit::ns), quantity(view.wait_ns, Unit::ns)));
  return section("loader", "Loader", lead, body);
}

}  // namespace warpstep::profiler::html
