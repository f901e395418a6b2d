#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "profiler/analysis/device.h"
#include "profiler/export/html.h"
#include "profiler/export/launches.h"
#include "profiler/export/quantity.h"

namespace warpstep::profiler::html {
namespace {

// In pixels; the script knows them by the same names.
constexpr int label_height = 17, row_height = 16, lane_gap = 7, queue_height = 34, axis_height = 20;

std::string axis(const LaneStep& step, int height) {
  std::string html;
  const double length = static_cast<double>(step.length_ns);
  for (const double at : ticks(length)) {
    html += vertical("grid", at / length, 0, height - axis_height);
    html += text(at / length, height - 5, tick_text(at, Unit::ns), "tick");
  }
  return html;
}

std::string queue_lane(const Lanes& lanes, const LaneStep& step, int top) {
  const double base = top + queue_height;
  const double scale =
      (queue_height - 2) / static_cast<double>(std::max<std::uint64_t>(lanes.most_ready, 1));
  std::vector<Point> points;
  for (const auto& [at, ready] : step.queue) {
    const double x = static_cast<double>(at) / static_cast<double>(step.length_ns);
    if (!points.empty()) points.push_back({x, points.back().y});
    points.push_back({x, base - static_cast<double>(ready) * scale});
  }
  if (!points.empty()) points.push_back({1, points.back().y});
  return area("queue", points, base, base);
}

Table totals(const Lanes& lanes, const LaneStep& step) {
  Table table{.key = "lanes",
              .title = fmt::format("Step {} by lane", step.step),
              .note =
                  "The sum of each name's bars; nested ones count in what is around them too. "
                  "Bars that the chart merges count one by one.",
              .columns = {{"lane", "lane"},
                          {"what", "what"},
                          {"count", "bars", Unit::count},
                          {"time_ns", "time", Unit::ns}}};
  for (std::size_t lane = 0; lane < lanes.lanes.size(); ++lane) {
    for (const LaneTotal& total : step.totals[lane])
      table.rows.push_back({lanes.lanes[lane], lanes.names[total.name],
                            static_cast<std::int64_t>(total.bars),
                            static_cast<std::int64_t>(total.ns)});
  }
  return table;
}

std::string legend(const Lanes& lanes) {
  std::set<std::uint32_t> used;
  for (const LaneStep& step : lanes.steps)
    for (const auto& of_lane : step.bars)
      for (const LaneBar& bar : of_lane) used.insert(bar.css);
  std::string html;
  for (const std::uint32_t css : used) html += legend_item(lanes.classes[css], lanes.kinds[css]);
  return html;
}

constexpr std::uint32_t unmerged = ~0U;  // LaneBar::mix
constexpr std::uint32_t others = ~0U;    // the name of the rest of a mix

// The script has the same rules.
std::string title_of(const Lanes& lanes, const LaneBar& bar) {
  const auto time = [](std::uint64_t ns) { return quantity(static_cast<double>(ns), Unit::ns); };
  if (bar.mix == unmerged)
    return fmt::format("{}, {}", lanes.names[bar.name], time(bar.end_ns - bar.begin_ns));
  const LaneMix& mix = lanes.mixes[bar.mix];
  std::uint64_t bars = 0;
  std::string names;
  for (const auto& [name, count] : mix) {
    bars += count;
    names += fmt::format("{}{} {}", names.empty() ? ": " : ", ", count,
                         name == others ? "more" : lanes.names[name]);
  }
  if (mix.size() == 1)
    names = mix[0].first == others ? "" : fmt::format(" of {}", lanes.names[mix[0].first]);
  return fmt::format("{} bars{}, {} in all", bars, names, time(bar.sum_ns));
}

std::string bars_of(const Lanes& lanes, const LaneStep& step, std::size_t lane, int top) {
  std::string html;
  const double length = static_cast<double>(step.length_ns);
  for (const LaneBar& bar : step.bars[lane]) {
    const double ns = static_cast<double>(bar.end_ns - bar.begin_ns);
    // A seam between bars, where it leaves something of them.
    const std::string css = lanes.classes[bar.css] + (ns > 0.006 * length ? " w" : "");
    html += html::bar(css, static_cast<double>(bar.begin_ns) / length,
                      top + static_cast<int>(bar.row) * row_height, std::max(ns / length, 0.0008),
                      row_height - 1, title_of(lanes, bar));
  }
  return html;
}

}  // namespace

std::string lanes_chart(const Lanes& lanes, std::size_t index) {
  const LaneStep& step = lanes.steps[index];
  std::string body;
  int top = 0;
  for (std::size_t lane = 0; lane < lanes.lanes.size(); ++lane) {
    body += text(0, top + 13, lanes.lanes[lane], "lane", "start");
    body += fmt::format("<g class=\"bars\" data-top=\"{}\">{}</g>\n", top + label_height,
                        bars_of(lanes, step, lane, top + label_height));
    top += label_height + static_cast<int>(lanes.rows[lane]) * row_height + lane_gap;
  }
  if (lanes.most_ready > 0) {
    body += text(0, top + 13, fmt::format("batches ready (at most {})", lanes.most_ready), "lane",
                 "start");
    body += fmt::format("<g class=\"depth\" data-top=\"{}\">{}</g>\n", top + label_height,
                        queue_lane(lanes, step, top + label_height));
    top += label_height + queue_height + lane_gap;
  }
  const int height = top + axis_height;
  Chart result{.id = "lanes",
               .title = fmt::format("Lanes of step {}, {}", step.step,
                                    quantity(static_cast<double>(step.length_ns), Unit::ns)),
               .summary = "What each thread and stream did in the step, from its begin to its end.",
               .height = height,
               .body = "<g class=\"axis\">" + axis(step, height) + "</g>\n" + body,
               .legend = legend(lanes),
               .table = table(totals(lanes, step)),
               .is_interactive = true};
  return chart(result);
}

namespace {

constexpr std::uint32_t deepest_row = 1;

struct Style {
  const char* css;
  const char* kind;
};
// One for each class; `stage` names come after them.
enum : std::uint32_t { call, wait, sync, api, copy, set, range, kernel, several, stage };
constexpr Style styles[] = {{"c-kernel", "call"},
                            {"c-data", "loader wait"},
                            {"c-sync", "device sync"},
                            {"c-runtime", "runtime, driver"},
                            {"c-copy", "copy"},
                            {"c-memset", "memset"},
                            {"c-cpu", "other host work"},
                            {"c-kernel", "kernel"},
                            {"c-other", "several short ones"}};
constexpr std::uint32_t stage_colours = 6;

struct Item {  // a bar before it is cut into steps
  std::uint64_t begin = 0, end = 0;
  std::uint32_t name = 0, css = 0, row = 0;
};

class Collector {
 public:
  Collector(const Session& session, const LoaderView& loader,
            const std::set<std::uint64_t>& preferred)
      : session_(session) {
    for (const Style& style : styles) {
      lanes_.classes.emplace_back(style.css);
      lanes_.kinds.emplace_back(style.kind);
    }
    for (std::size_t i = 0; i < loader.stages.size(); ++i) {
      lanes_.classes.push_back(fmt::format("s{}", i % stage_colours));
      lanes_.kinds.push_back(loader.stages[i]);
    }
    order_threads(loader);
    collect_spans(loader);
    collect_activities();
    for (std::vector<Item>& items : items_) std::ranges::stable_sort(items, {}, &Item::begin);
    cut_into_steps(loader, preferred);
    drop_empty_lanes();
  }

  Lanes take() { return std::move(lanes_); }

 private:
  std::uint32_t name_of(const std::string& text) {
    const auto [found, is_new] =
        names_.emplace(text, static_cast<std::uint32_t>(lanes_.names.size()));
    if (is_new) lanes_.names.push_back(text);
    return found->second;
  }

  std::size_t lane_of(const std::string& text) {
    const auto found = std::ranges::find(lanes_.lanes, text);
    if (found != lanes_.lanes.end()) return static_cast<std::size_t>(found - lanes_.lanes.begin());
    lanes_.lanes.push_back(text);
    lanes_.rows.push_back(1);
    items_.emplace_back();
    return lanes_.lanes.size() - 1;
  }

  // Threads may share a name, but not a lane.
  std::size_t lane_of_thread(std::uint32_t thread) {
    const auto found = thread_lanes_.find(thread);
    if (found != thread_lanes_.end()) return found->second;
    const Thread& info = session_.threads[thread];
    const bool is_taken = std::ranges::count(lanes_.lanes, info.name) > 0;
    const std::size_t lane =
        lane_of(is_taken ? fmt::format("{} ({})", info.name, info.system) : info.name);
    thread_lanes_.emplace(thread, lane);
    return lane;
  }

  std::uint32_t stage_class(const LoaderView& loader, const std::string& name) {
    const auto found = std::ranges::find(loader.stages, name);
    return found == loader.stages.end()
               ? std::uint32_t{range}
               : stage + static_cast<std::uint32_t>(found - loader.stages.begin());
  }

  // The class of a span; none for those that only frame others or say that nothing happens.
  bool classify(const LoaderView& loader, const Span& span, std::uint32_t& css) {
    switch (session_.kind(span)) {
      case Kind::call: css = call; return true;
      case Kind::wait: css = wait; return true;
      case Kind::sync: css = sync; return true;
      case Kind::host_api: css = api; return true;
      case Kind::copy: css = copy; return true;
      // The trainer's own frame around each step says nothing that the lane does not.
      case Kind::range: css = range; return session_.name(span.name) != "step";
      case Kind::stage: css = stage_class(loader, session_.name(span.name)); return true;
      default: return false;
    }
  }

  // Whichever began first: "main", then "loader 2" before "loader 10" and "test loader 0".
  void order_threads(const LoaderView& loader) {
    std::uint32_t css = 0;
    std::set<std::uint32_t> used;
    for (const Span& span : session_.spans)
      if (!used.contains(span.thread) && classify(loader, span, css)) used.insert(span.thread);
    std::vector<std::uint32_t> threads(used.begin(), used.end());
    std::ranges::stable_sort(threads, {}, [&](std::uint32_t thread) {
      const std::string& name = session_.threads[thread].name;
      return std::pair(name.size(), name);
    });
    for (const std::uint32_t thread : threads) lane_of_thread(thread);
  }

  void collect_spans(const LoaderView& loader) {
    std::vector<std::uint64_t> open;  // ends of the spans around this one
    std::uint32_t thread = ~0U;
    for (const Span& span : session_.spans) {
      std::uint32_t css = 0;
      if (!classify(loader, span, css)) continue;
      if (span.thread != thread) open.clear();
      thread = span.thread;
      while (!open.empty() && open.back() <= span.begin_ns) open.pop_back();
      const std::size_t lane = lane_of_thread(thread);
      const std::uint32_t row = std::min(static_cast<std::uint32_t>(open.size()), deepest_row);
      open.push_back(span.end_ns);
      lanes_.rows[lane] = std::max(lanes_.rows[lane], row + 1);
      items_[lane].push_back(
          {span.begin_ns, span.end_ns, name_of(session_.name(span.name)), css, row});
    }
  }

  // What a host thread asked of the device is below what it did meanwhile.
  void collect_api(const Activity& activity) {
    const auto thread = std::ranges::find(session_.threads, activity.stream, &Thread::system);
    if (thread == session_.threads.end()) return;
    const std::size_t lane =
        lane_of_thread(static_cast<std::uint32_t>(thread - session_.threads.begin()));
    lanes_.rows[lane] = std::max(lanes_.rows[lane], deepest_row + 1);
    items_[lane].push_back({activity.start_ns, activity.end_ns,
                            name_of(session_.name(activity.name)),
                            activity.what == What::sync ? sync : api, deepest_row});
  }

  void collect_activities() {
    for (const Activity& activity : session_.activities) {
      if (activity.start_ns == 0 || activity.end_ns < activity.start_ns) continue;
      if (activity.what == What::api || activity.what == What::sync) collect_api(activity);
      if (!is_on_device(activity) || activity.what == What::graph) continue;
      std::string lane = fmt::format("stream {}", activity.stream);
      if (session_.devices.size() > 1) lane = fmt::format("GPU {} {}", activity.device, lane);
      const std::uint32_t css = activity.what == What::copy  ? std::uint32_t{copy}
                                : activity.what == What::set ? std::uint32_t{set}
                                                             : std::uint32_t{kernel};
      items_[lane_of(lane)].push_back({activity.start_ns, activity.end_ns,
                                       name_of(short_kernel_name(session_.name(activity.name))),
                                       css, 0});
    }
  }

  static std::vector<LaneTotal> totals_of(const std::vector<LaneBar>& bars) {
    std::map<std::uint32_t, LaneTotal> sums;
    for (const LaneBar& bar : bars) {
      LaneTotal& sum = sums[bar.name];
      sum.name = bar.name;
      ++sum.bars;
      sum.ns += bar.end_ns - bar.begin_ns;
    }
    std::vector<LaneTotal> result;
    for (const auto& [name, sum] : sums) result.push_back(sum);
    return result;
  }

  // The number of a mix of two bars or more. A page with many of them keeps names of the first.
  std::uint32_t mix_of(LaneMix mix) {
    std::ranges::sort(mix, [](const auto& a, const auto& b) {
      return std::tie(b.second, a.first) < std::tie(a.second, b.first);
    });
    const bool is_full = mix.size() > 1 && lanes_.mixes.size() >= mixes_per_page;
    const std::size_t named = is_full ? 0 : names_per_mix;
    if (mix.size() > named) {
      std::uint64_t rest = 0;
      for (std::size_t i = named; i < mix.size(); ++i) rest += mix[i].second;
      mix.resize(named);
      mix.emplace_back(others, rest);
    }
    const auto [found, is_new] =
        mixes_.emplace(mix, static_cast<std::uint32_t>(lanes_.mixes.size()));
    if (is_new) lanes_.mixes.push_back(std::move(mix));
    return found->second;
  }

  // Neighbours in a row become one bar when they are too short to be seen apart.
  std::vector<LaneBar> thinned(const std::vector<LaneBar>& bars, std::uint64_t length) {
    if (bars.size() <= bars_per_lane) return bars;
    const std::uint64_t least = std::max<std::uint64_t>(length / (bars_per_lane / 2), 1);
    std::vector<LaneBar> result;
    std::vector<LaneMix> mixes;                 // of each of the result
    std::map<std::uint32_t, std::size_t> last;  // by row
    for (const LaneBar& bar : bars) {
      const auto found = last.find(bar.row);
      if (found != last.end() && bar.end_ns - result[found->second].begin_ns < least) {
        LaneBar& into = result[found->second];
        into.end_ns = std::max(into.end_ns, bar.end_ns);
        into.sum_ns += bar.end_ns - bar.begin_ns;
        if (into.css != bar.css) into.css = several;
        LaneMix& mix = mixes[found->second];
        const auto same = std::ranges::find(mix, bar.name, &LaneMix::value_type::first);
        if (same == mix.end())
          mix.emplace_back(bar.name, 1);
        else
          ++same->second;
        continue;
      }
      last[bar.row] = result.size();
      result.push_back(bar);
      result.back().sum_ns = bar.end_ns - bar.begin_ns;
      mixes.push_back({{bar.name, 1}});
    }
    for (std::size_t i = 0; i < result.size(); ++i)
      if (mixes[i].size() > 1 || mixes[i][0].second > 1) result[i].mix = mix_of(mixes[i]);
    return result;
  }

  // Where one reading of the steps in order is.
  struct Place {
    std::vector<std::size_t> next;               // by lane: the first item that has not begun
    std::vector<std::vector<const Item*>> open;  // by lane, in order: what may last into a step
    std::size_t queue = 0;                       // into LoaderView::queue
    std::uint64_t ready = 0;                     // batches, before that
  };

  LaneStep cut(const Step& step, Place& at) {
    LaneStep result{.step = step.step, .length_ns = step.end_ns - step.begin_ns};
    for (std::size_t lane = 0; lane < items_.size(); ++lane) {
      std::vector<LaneBar> bars;
      const std::vector<Item>& items = items_[lane];
      std::vector<const Item*>& open = at.open[lane];
      const auto is_over = [&](const Item* item) { return item->end <= step.begin_ns; };
      std::erase_if(open, is_over);
      for (std::size_t& i = at.next[lane]; i < items.size() && items[i].begin < step.end_ns; ++i)
        if (!is_over(&items[i])) open.push_back(&items[i]);
      for (const Item* item : open)
        bars.push_back({std::max(item->begin, step.begin_ns) - step.begin_ns,
                        std::min(item->end, step.end_ns) - step.begin_ns, item->name, item->css,
                        item->row});
      result.totals.push_back(totals_of(bars));
      result.bars.push_back(thinned(bars, result.length_ns));
    }
    return result;
  }

  static void add_queue(const LoaderView& loader, const Step& step, Place& place, LaneStep& into) {
    for (; place.queue < loader.queue.size(); ++place.queue) {
      const auto& [at, depth] = loader.queue[place.queue];
      if (at >= step.end_ns) break;
      if (at > step.begin_ns) {
        if (into.queue.empty()) into.queue.emplace_back(0, place.ready);
        into.queue.emplace_back(at - step.begin_ns, depth);
      }
      place.ready = depth;
    }
    if (into.queue.empty() && !loader.queue.empty()) into.queue.emplace_back(0, place.ready);
  }

  // Once the page has its bars, steps are only counted.
  void cut_some(const LoaderView& loader, const std::vector<const Step*>& steps) {
    Place at{.next = std::vector<std::size_t>(items_.size()),
             .open = std::vector<std::vector<const Item*>>(items_.size())};
    for (const Step* step : steps) {
      if (lanes_.left_out == 0) {
        LaneStep lanes = cut(*step, at);
        add_queue(loader, *step, at, lanes);
        for (const auto& of_lane : lanes.bars) bars_ += of_lane.size();
        bars_ += lanes.queue.size();
        if (bars_ <= bars_per_page || lanes_.steps.empty()) {
          lanes_.steps.push_back(std::move(lanes));
          continue;
        }
      }
      ++lanes_.left_out;
    }
  }

  void cut_into_steps(const LoaderView& loader, const std::set<std::uint64_t>& preferred) {
    std::vector<const Step*> first, others;
    const IntervalSet recorded = step_numbers(complete_windows(session_));
    for (const Step& step : session_.steps)
      if (recorded.has(step.step) && step.end_ns > step.begin_ns)
        (preferred.contains(step.step) ? first : others).push_back(&step);
    cut_some(loader, first);
    cut_some(loader, others);
    std::ranges::sort(lanes_.steps, {}, &LaneStep::step);
    for (const LaneStep& step : lanes_.steps)
      for (const auto& [at, depth] : step.queue)
        lanes_.most_ready = std::max(lanes_.most_ready, depth);
  }

  // Streams of evaluations, and threads that began later, have nothing in the steps.
  void drop_empty_lanes() {
    for (std::size_t lane = lanes_.lanes.size(); lane-- > 0 && !lanes_.steps.empty();) {
      const auto is_empty = [&](const LaneStep& step) { return step.bars[lane].empty(); };
      if (!std::ranges::all_of(lanes_.steps, is_empty)) continue;
      const auto drop = [&](auto& of_lanes) {
        of_lanes.erase(of_lanes.begin() + static_cast<std::ptrdiff_t>(lane));
      };
      drop(lanes_.lanes);
      drop(lanes_.rows);
      for (LaneStep& step : lanes_.steps) {
        drop(step.bars);
        drop(step.totals);
      }
    }
  }

  const Session& session_;
  Lanes lanes_;
  std::map<std::string, std::uint32_t> names_;
  std::map<LaneMix, std::uint32_t> mixes_;  // their numbers
  std::map<std::uint32_t, std::size_t> thread_lanes_;
  std::vector<std::vector<Item>> items_;  // by lane
  std::size_t bars_ = 0;                  // of all steps, queues included
};

}  // namespace

Lanes find_lanes(const Session& session, const LoaderView& loader,
                 const std::set<std::uint64_t>& preferred) {
  return Collector(session, loader, preferred).take();
}

namespace {

std::uint64_t tenths(std::uint64_t ns) {
  return (ns + 50) / 100;
}

Json bars_json(const std::vector<LaneBar>& bars) {
  Json flat = Json::array();
  std::uint64_t before = 0;  // the end of the last one
  for (const LaneBar& bar : bars) {
    const std::uint64_t begin = tenths(bar.begin_ns), length = tenths(bar.end_ns) - begin;
    flat.push_back(bar.row);
    flat.push_back(bar.css);
    if (bar.mix == unmerged)
      flat.push_back(bar.name);
    else
      flat.push_back(-1 - std::int64_t{bar.mix});
    flat.push_back(static_cast<std::int64_t>(begin - before));
    flat.push_back(length);
    if (bar.mix != unmerged) flat.push_back(static_cast<std::int64_t>(length - tenths(bar.sum_ns)));
    before = begin + length;
  }
  return flat;
}

Json totals_json(const std::vector<LaneTotal>& totals, const std::vector<LaneBar>& bars) {
  std::set<std::uint32_t> shown;
  for (const LaneBar& bar : bars)
    if (bar.mix == unmerged) shown.insert(bar.name);
  Json flat = Json::array();
  for (const LaneTotal& total : totals) {
    if (total.bars == 1 && shown.contains(total.name)) continue;
    flat.push_back(total.name);
    flat.push_back(total.bars);
    flat.push_back(total.ns);
  }
  return flat;
}

Json mix_json(const LaneMix& mix) {
  Json flat = Json::array();
  for (const auto& [name, count] : mix) {
    flat.push_back(name == others ? -1 : std::int64_t{name});
    flat.push_back(count);
  }
  return flat;
}

}  // namespace

Json to_json(const Lanes& lanes) {
  Json steps = Json::array(), mixes = Json::array();
  for (const LaneMix& mix : lanes.mixes) mixes.push_back(mix_json(mix));
  for (const LaneStep& step : lanes.steps) {
    Json bars = Json::array(), totals = Json::array();
    for (std::size_t lane = 0; lane < step.bars.size(); ++lane) {
      bars.push_back(bars_json(step.bars[lane]));
      totals.push_back(totals_json(step.totals[lane], step.bars[lane]));
    }
    Json queue = Json::array();
    for (const auto& [at, ready] : step.queue) {
      queue.push_back(tenths(at));
      queue.push_back(ready);
    }
    steps.push_back({{"step", step.step},
                     {"length", tenths(step.length_ns)},
                     {"bars", std::move(bars)},
                     {"totals", std::move(totals)},
                     {"queue", std::move(queue)}});
  }
  return {{"lanes", lanes.lanes},      {"rows", lanes.rows},       {"names", lanes.names},
          {"mixes", std::move(mixes)}, {"classes", lanes.classes}, {"most", lanes.most_ready},
          {"steps", std::move(steps)}};
}

}  // namespace warpstep::profiler::html
