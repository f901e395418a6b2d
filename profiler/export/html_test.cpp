#include "profiler/export/html.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "profiler/export/export.h"
#include "profiler/export/testing_analysis.h"
#include "profiler/export/testing_sessions.h"
#include "profiler/session/session_file.h"
#include "profiler/sources/testing_tree.h"

namespace warpstep::profiler {
namespace {

using ::testing::AllOf;
using testing::cpu_example;
using testing::Example;
using testing::gpu_example;
using ::testing::HasSubstr;
using ::testing::Not;

std::size_t count(std::string_view text, std::string_view what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, at + 1))
    ++found;
  return found;
}

// Every tag is closed in order, and every '<' starts one; what is wrong, or "".
std::string unbalanced(std::string_view page) {
  const std::set<std::string> empty{"!DOCTYPE", "meta", "input", "br"};
  std::vector<std::string> open;
  std::size_t at = 0;
  while ((at = page.find('<', at)) != std::string_view::npos) {
    const std::size_t end = page.find('>', at);
    if (end == std::string_view::npos) return "a tag without an end";
    std::string tag(page.substr(at + 1, end - at - 1));
    at = end + 1;
    const bool closes = tag[0] == '/', is_whole = tag.back() == '/';
    const std::string name = tag.substr(closes, tag.find_first_of(" \n/", closes) - closes);
    if (count(tag, "\"") % 2 != 0 || tag.find('<') != std::string::npos) return "in <" + tag;
    if (empty.contains(name) || is_whole) continue;
    if (closes && (open.empty() || open.back() != name)) return "</" + name + "> too early";
    if (closes) {
      open.pop_back();
      continue;
    }
    open.push_back(name);
    if (name == "script" || name == "style") {  // text up to its end, whatever it looks like
      at = page.find("</" + name, at);
      if (at == std::string_view::npos) return "<" + name + "> without an end";
    }
  }
  return open.empty() ? "" : "<" + open.back() + "> is not closed";
}

std::vector<std::string> pages() {
  const Comparison comparison = testing::example_comparison();
  const Example cpu = cpu_example(), gpu = gpu_example();
  const Example bare = cpu_example({.steps = 3, .recorded = 0});
  return {html_report(cpu.session, cpu.analysis), html_report(bare.session, bare.analysis),
          html_report(gpu.session, gpu.analysis, &comparison), html_report(Session{}, Analysis{})};
}

// The keys of the columns of the page's table `key`; empty: the page has no such table.
std::vector<std::string> columns_on(const std::string& page, const std::string& key) {
  std::vector<std::string> columns;
  const std::size_t begin = page.find("data-key=\"" + key + '"');
  if (begin == std::string::npos) return columns;
  const std::string head = page.substr(begin, page.find("</thead>", begin) - begin);
  for (std::size_t at = head.find("data-k=\""); at != std::string::npos;
       at = head.find("data-k=\"", at + 1))
    columns.push_back(head.substr(at + 8, head.find('"', at + 8) - at - 8));
  return columns;
}

TEST(HtmlReport, IsWellFormed) {
  for (const std::string& page : pages()) EXPECT_EQ(unbalanced(page), "");
  EXPECT_EQ(unbalanced("<p><b></p></b>"), "</p> too early");
  EXPECT_EQ(unbalanced("<p>"), "<p> is not closed");
  EXPECT_EQ(unbalanced("<p title=\"a\"b\">"), "in <p title=\"a\"b\"");
}

TEST(HtmlReport, HasEverySection) {
  const std::vector<std::string> all = pages();
  for (const char* id : {"verdict", "steps", "findings", "figures", "layers", "ops", "loader",
                         "memory", "machine", "path", "stamp"})
    EXPECT_THAT(all[0], HasSubstr(std::string("<section id=\"") + id + '"'));
  for (const char* id : {"kernels", "comparison"}) {
    EXPECT_THAT(all[2], HasSubstr(std::string("<section id=\"") + id + '"'));
    EXPECT_THAT(all[0], Not(HasSubstr(std::string("href=\"#") + id + '"')));
  }
  for (const char* figure : {"GPU utilisation", "SM efficiency", "Occupancy", "Tensor cores"}) {
    EXPECT_THAT(all[2], HasSubstr(figure));
    EXPECT_THAT(all[0], Not(HasSubstr(std::string("<span class=\"what\">") + figure)));
  }
  EXPECT_THAT(all[0], HasSubstr("This run computed on the host"));
  EXPECT_THAT(all[1], HasSubstr("No lanes: no step was recorded with spans"));
  EXPECT_THAT(all[3], HasSubstr("No step was recorded"));
}

TEST(HtmlReport, OpensWithTheComparison) {
  const std::string page = pages()[2];
  EXPECT_THAT(page, HasSubstr("<title>Before and after: "));
  EXPECT_THAT(page, HasSubstr("<h1>Before and after: "));
  EXPECT_LT(page.find("<section id=\"comparison\""), page.find("<section id=\"run-after\""));
  EXPECT_LT(page.find("<section id=\"run-after\""), page.find("<section id=\"verdict\""));
  EXPECT_THAT(pages()[0], Not(HasSubstr("Before and after")));
}

TEST(HtmlReport, ShowsTheGpusCountersWhereTheyWereSampled) {
  const auto card = [](const char* title) {
    return HasSubstr("<span class=\"what\">" + std::string(title) + "</span>");
  };
  Example gpu = gpu_example();
  for (const char* title : {"SM active", "Tensor pipe", "DRAM"})
    EXPECT_THAT(html_report(gpu.session, gpu.analysis), Not(card(title)));
  gpu.analysis.devices[0].measured = {.sm_active = 0.81, .dram = 0.375};
  std::string page = html_report(gpu.session, gpu.analysis);
  EXPECT_THAT(page, card("SM active"));
  EXPECT_THAT(page, HasSubstr("DRAM</span><b>37.5 %</b>"));
  EXPECT_THAT(page, Not(card("Tensor pipe")));
  EXPECT_THAT(page, card("Tensor cores"));
  EXPECT_EQ(unbalanced(page), "");
  gpu.session.activities.clear();  // --profile spans: only the counters know the GPU
  page = html_report(gpu.session, gpu.analysis);
  EXPECT_THAT(page, card("DRAM"));
  EXPECT_THAT(page, Not(card("GPU utilisation")));
  EXPECT_THAT(page, HasSubstr("No window with device activities is complete"));
}

TEST(HtmlReport, HasTheTreeOfModulesLongestFirst) {
  const Example example = cpu_example();
  const std::string page = html_report(example.session, example.analysis);
  const std::size_t tree = page.find("<div class=\"tree\" id=\"modules\">");
  ASSERT_NE(tree, std::string::npos);
  const std::size_t first = page.find("<summary class=\"node\">", tree);
  EXPECT_THAT(page.substr(first, 120), HasSubstr(">block1</span>"));
  EXPECT_THAT(page.substr(tree), HasSubstr("models/cifar10cnn.cpp:20-22</span></summary>"));
  // Seven blocks with their calls; the loss is the only call of its layer.
  EXPECT_EQ(count(page, "<details class=\"branch\""), 7U);
  EXPECT_EQ(count(page, "class=\"leaf node\""), 71U);
  EXPECT_THAT(html::modules_tree(Work{}), "");
}

TEST(HtmlReport, PrintsNoTimesThatWereNotRecorded) {
  Example bare = cpu_example({.steps = 3, .recorded = 0});
  for (CallRow& call : bare.analysis.work.calls)
    call.count = call.total_ns = 0, call.ns = call.median_ns = call.p95_ns = call.share = 0;
  const std::string page = html_report(bare.session, bare.analysis);
  EXPECT_THAT(page, HasSubstr("The times of layers and calls were not recorded: train with "
                              "<code>--profile spans</code>."));
  for (const char* key : {"calls", "layers", "ops"})
    EXPECT_TRUE(columns_on(page, key).empty()) << key;
}

TEST(HtmlReport, MarksWhatARunDidAndLeavesOutZeros) {
  Example example = cpu_example();
  Session& session = example.session;
  const auto add_name = [&](const char* text, Kind kind) {
    session.names.push_back({text, kind});
    return static_cast<std::uint32_t>(session.names.size() - 1);
  };
  const std::uint64_t begin = session.steps.front().begin_ns, end = session.steps.back().end_ns;
  const std::uint32_t swap = add_name("swap used bytes", Kind::metric),
                      power = add_name("cpu power W", Kind::metric),
                      process = add_name("process cpu %", Kind::metric);
  for (const std::uint64_t at : {begin, end}) {
    session.samples.push_back({.at_ns = at, .name = swap, .value = 0});
    session.samples.push_back({.at_ns = at, .name = power, .value = 50});
    session.samples.push_back({.at_ns = at, .name = process, .value = 150});
  }
  session.spans.push_back(
      {.begin_ns = end - 900, .end_ns = end, .name = add_name("evaluation", Kind::range)});
  const std::string page = html_report(session, example.analysis);
  EXPECT_THAT(page, HasSubstr("<rect class=\"evaluation\""));
  EXPECT_THAT(page, Not(HasSubstr("<rect class=\"checkpoint\"")));
  EXPECT_THAT(page, HasSubstr("0 during the whole run, without a chart: swap used."));
  EXPECT_THAT(page, HasSubstr("Cores used</span><b>1.50 of 8</b>"));
  EXPECT_THAT(page, HasSubstr("Energy per step</span><b>2.12 J</b>"));  // 42.4 ms of 50 W
  EXPECT_EQ(unbalanced(page), "");
}

TEST(HtmlReport, LinksLeadToWhatIsThere) {
  for (const std::string& page : pages()) {
    std::set<std::string> ids;
    for (std::size_t at = page.find(" id=\""); at != std::string::npos;
         at = page.find(" id=\"", at + 1)) {
      const std::string id = page.substr(at + 5, page.find('"', at + 5) - at - 5);
      EXPECT_TRUE(ids.insert(id).second) << id << " is there twice";
    }
    for (std::size_t at = page.find("href=\""); at != std::string::npos;
         at = page.find("href=\"", at + 1)) {
      const std::string target = page.substr(at + 6, page.find('"', at + 6) - at - 6);
      EXPECT_TRUE(target[0] == '#' && ids.contains(target.substr(1))) << target;
    }
  }
}

TEST(HtmlReport, ChartsHaveTitlesAndTables) {
  const std::string page = pages()[2];
  std::size_t charts = 0, at = 0;
  while ((at = page.find("<svg class=\"plot\"", at)) != std::string::npos) {
    ++charts;
    const std::size_t end = page.find("</figure>", at);
    const std::string chart = page.substr(at, end - at);
    EXPECT_THAT(chart, HasSubstr("<title id=\""));
    EXPECT_THAT(chart, HasSubstr("<desc id=\""));
    EXPECT_THAT(chart, HasSubstr("</svg>\n<details class=\"data\">"));
    EXPECT_THAT(chart, HasSubstr("<tbody>\n<tr>"));
    at = end;
  }
  EXPECT_GE(charts, 20U);
  // All other images are for the eye alone, or are marks within a chart.
  EXPECT_EQ(count(page, "<svg "),
            charts + count(page, "aria-hidden=\"true\"") + count(page, "class=\"mark\""));
  EXPECT_EQ(count(page, "<table "), count(page, "<caption"));
  EXPECT_EQ(count(page, "<th>"), 0U) << "each has a scope";
}

TEST(HtmlReport, TablesAreTheSharedOnes) {
  const Example example = gpu_example();
  const std::string page = html_report(example.session, example.analysis);
  std::set<std::string> found;
  for (const Table& table : tables(example.session, example.analysis)) {
    std::set<std::string> shared;
    for (const Column& column : table.columns) shared.insert(column.key);
    for (const std::string& column : columns_on(page, table.key)) {
      EXPECT_TRUE(shared.contains(column)) << table.key << " has no " << column;
      found.insert(table.key);
    }
  }
  EXPECT_THAT(found,
              ::testing::ElementsAre("breakdown", "calls", "critical_path", "host", "kernels",
                                     "layers", "loader", "memory", "ops", "steps"));
}

TEST(HtmlReport, IsTheSameEachTime) {
  const Example first = gpu_example(), second = gpu_example();
  EXPECT_EQ(html_report(first.session, first.analysis),
            html_report(second.session, second.analysis));
}

// As a run that is killed inside its window leaves its session.
Session cut_in_its_window(Session whole) {
  const std::filesystem::path path = testing::own_folder() / "cut.prof";
  Window window = whole.windows.at(0);
  window.last_step = window.first_step;
  window.end_ns = window.begin_ns;
  window.complete = 0;
  whole.windows.clear();
  const std::vector<Span> spans = std::exchange(whole.spans, {});
  SessionWriter writer(path);
  writer.write(whole);
  writer.write(Chunk::opened, std::vector{window});
  writer.write(Chunk::spans, spans);
  writer.flush();
  return read_session(path);
}

TEST(HtmlReport, HasTheStepsOfAWindowInWhichTheRunWasKilled) {
  const Session whole = testing::host_session().build(), cut = cut_in_its_window(whole);
  const Analysis analysis = analyse(cut), expected = analyse(whole);
  EXPECT_EQ(analysis.breakdown.counted, 4U);
  EXPECT_TRUE(analysis.breakdown.from_spans);
  EXPECT_EQ(analysis.breakdown.mean, expected.breakdown.mean);
  ASSERT_EQ(analysis.work.calls.size(), expected.work.calls.size());
  EXPECT_EQ(analysis.work.calls[0].count, 4U);
  EXPECT_EQ(html::find_lanes(cut, analysis.loader).steps.size(), 4U);
  const std::string page = html_report(cut, analysis);
  EXPECT_THAT(page, HasSubstr("Means over 4 steps recorded with spans: 1 to 4."));
  EXPECT_THAT(page, HasSubstr("session ends inside the window of steps 1-4"));
  EXPECT_THAT(page, HasSubstr("<td>cut off"));
}

TEST(HtmlReport, ShowsNoWorkOfAGpuThatWasNotWritten) {
  Session session = testing::device_session().build();
  session.activities.clear();
  const Session cut = cut_in_its_window(session);
  const Analysis analysis = analyse(cut);
  EXPECT_FALSE(analysis.breakdown.from_spans);
  const std::string page = html_report(cut, analysis);
  EXPECT_THAT(page, HasSubstr("the GPU&#39;s work is written when a window ends"));
  EXPECT_THAT(page, HasSubstr("the GPU&#39;s work in the window was not yet written"));
}

TEST(HtmlReport, FetchesNothing) {
  for (const std::string& page : pages()) {
    EXPECT_THAT(page, HasSubstr("content=\"default-src 'none'; style-src 'sha256-"));
    EXPECT_THAT(page, HasSubstr(html::policy_source(html::page::script_sha256)));
    EXPECT_THAT(page, HasSubstr("<style>" + std::string(html::page::style) + "</style>"));
    EXPECT_THAT(page, HasSubstr("<script>" + std::string(html::page::script) + "</script>"));
    for (const char* way : {"src=", "@import", "url(h", "url('", "url(\"", "<link", " style=\"",
                            " onclick", "fetch(", "XMLHttpRequest"})
      EXPECT_THAT(page, Not(HasSubstr(way)));
  }
}

TEST(HtmlReport, IsBelow3MBForADefaultWindow) {
  const Example example = gpu_example({.steps = 500, .blocks = 20});
  EXPECT_LT(html_report(example.session, example.analysis).size(), 3'000'000U);
}

TEST(HtmlReport, IsBelow5MBForALongWindow) {
  const Example example = gpu_example({.steps = 410, .recorded = 400, .batch = 512, .workers = 8});
  const std::string page = html_report(example.session, example.analysis);
  EXPECT_LT(page.size(), 5'000'000U);
  EXPECT_THAT(page, HasSubstr("more recorded steps have no lanes here"));
}

TEST(HtmlReport, NamesFromASessionStayText) {
  const std::string evil = "</script><img src=x onerror=alert(1)>\"'&\xff<!--";
  Example example = gpu_example();
  for (Name& name : example.session.names) name.text += evil;
  for (Thread& thread : example.session.threads) thread.name += evil;
  example.session.stamp["options"]["model"] = evil;
  example.session.stamp[evil] = {evil, {{evil, evil}}};
  example.session.notes.push_back(evil);
  Analysis& analysis = example.analysis;
  for (CallRow& row : analysis.work.calls) row.title = row.phase = row.inputs = evil;
  for (LayerRow& row : analysis.work.layers) row.layer = evil;
  for (KernelRow& row : analysis.work.kernels) row.kernel = row.launch = evil;
  for (Finding& row : analysis.findings)
    row.key = row.text = row.evidence = row.advice = row.flag = evil;
  for (MemoryOwner& row : analysis.memory.at_peak) row.name = row.layer = row.kind = evil;
  for (std::string& kind : analysis.memory.kinds) kind = evil;
  for (std::string& stage : analysis.loader.stages) stage = evil;
  for (WorkerRow& row : analysis.loader.by_worker) row.thread = evil;
  for (PathEdge& edge : analysis.path.edges) edge.what = edge.bound = evil;
  for (PathShare& share : analysis.path.shares) share.bound = evil;
  analysis.stall.text = evil;
  analysis.trust.notes.push_back(evil);
  analysis.devices.front().name = evil;
  Comparison comparison = testing::example_comparison();
  comparison.verdict = comparison.warnings.front() = comparison.changes.front().what = evil;
  comparison.waterfall.front().first = evil;
  const std::string page = html_report(example.session, analysis, &comparison);
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, Not(HasSubstr("<!--")));
  EXPECT_THAT(page, Not(HasSubstr("\xff")));
  EXPECT_EQ(count(page, "</script>"), 2U);
  EXPECT_EQ(unbalanced(page), "");
}

TEST(Html, Escapes) {
  EXPECT_EQ(html::escaped("<a href=\"x\">'&'</a>"),
            "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/a&gt;");
  EXPECT_EQ(html::escaped("\u00e4\u20ac\U0001F600"), "\u00e4\u20ac\U0001F600");
  // Cut short, overlong, a surrogate, beyond Unicode, a control character.
  for (const char* wrong :
       {"\xe2\x82", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x01"})
    EXPECT_THAT(html::escaped(wrong), ::testing::StartsWith("\xEF\xBF\xBD")) << wrong;
  EXPECT_EQ(html::prose("takes 12 ms, 3 % of <x> 4 steps"),
            "takes 12\u00a0ms, 3\u00a0% of &lt;x&gt; 4 steps");
  EXPECT_EQ(html::script_json({{"a", "</script>&"}}), "{\"a\":\"\\u003c/script\\u003e\\u0026\"}");
}

TEST(Html, PolicyNamesAHashInBase64) {
  EXPECT_EQ(html::policy_source("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='");  // of no bytes
}

TEST(Html, TicksAreRound) {
  EXPECT_EQ(html::ticks(45, 2), (std::vector<double>{0, 20, 40}));
  EXPECT_EQ(html::ticks(0), std::vector<double>{0});
  EXPECT_EQ(html::tick_text(10e6, Unit::ns), "10 ms");
  EXPECT_EQ(html::tick_text(1.5e6, Unit::ns), "1.5 ms");
  EXPECT_EQ(html::tick_text(200e6, Unit::ns), "200 ms");
}

TEST(Lanes, CoverTheRecordedSteps) {
  const Example example = cpu_example();
  const html::Lanes lanes = html::find_lanes(example.session, example.analysis.loader);
  ASSERT_EQ(lanes.steps.size(), 20U);
  ASSERT_EQ(lanes.lanes,
            (std::vector<std::string>{"main", "loader 0", "loader 1", "loader 2", "loader 3"}));
  for (const html::LaneStep& step : lanes.steps)
    for (std::size_t lane = 0; lane < lanes.lanes.size(); ++lane) {
      EXPECT_LE(step.bars[lane].size(), html::bars_per_lane);
      EXPECT_GE(step.bars[lane].size(), lane == 0 ? 70U : 90U);
      for (const html::LaneBar& bar : step.bars[lane]) {
        EXPECT_LE(bar.begin_ns, bar.end_ns);
        EXPECT_LE(bar.end_ns, step.length_ns);
      }
    }
}

TEST(Lanes, AreThoseWithSomethingInTheSteps) {
  Example example = gpu_example();
  const std::vector<std::string> lanes =
      html::find_lanes(example.session, example.analysis.loader).lanes;
  const std::uint64_t after = example.session.steps.back().end_ns + 1000;
  Activity evaluation =
      *std::ranges::find(example.session.activities, What::kernel, &Activity::what);
  evaluation.stream = 99;
  evaluation.start_ns = after;
  evaluation.end_ns = after + 50;
  example.session.activities.push_back(evaluation);
  const html::Lanes found = html::find_lanes(example.session, example.analysis.loader);
  EXPECT_EQ(found.lanes, lanes);
  EXPECT_EQ(found.rows.size(), lanes.size());
  for (const html::LaneStep& step : found.steps) {
    EXPECT_EQ(step.bars.size(), lanes.size());
    EXPECT_EQ(step.totals.size(), lanes.size());
  }
}

TEST(Lanes, TellThreadsOfOneNameApartAndShowWhatTheyAskedOfTheDevice) {
  Example example = gpu_example();
  for (Thread& thread : example.session.threads) thread.name = "loader";
  const html::Lanes lanes = html::find_lanes(example.session, example.analysis.loader);
  EXPECT_EQ(lanes.lanes,
            (std::vector<std::string>{"loader", "loader (4300)", "loader (4301)", "loader (4302)",
                                      "loader (4303)", "stream 13", "stream 7"}));
  EXPECT_EQ(lanes.rows, (std::vector<std::uint32_t>{2, 1, 1, 1, 1, 1, 1}));
  // 71 kernels, a copy and a memset were launched, under a wait and the observers.
  EXPECT_EQ(lanes.steps.front().bars[0].size(), 75U);
  EXPECT_EQ(lanes.steps.front().bars[6].size(), 72U);
}

TEST(Lanes, MergeWhatIsTooShortToBeSeen) {
  const Example example = cpu_example({.batch = 4096, .workers = 1});
  const html::Lanes lanes = html::find_lanes(example.session, example.analysis.loader);
  EXPECT_GT(lanes.steps.front().bars[1].size(), 100U);
  EXPECT_LE(lanes.steps.front().bars[1].size(), html::bars_per_lane);
}

// Names of a lane and what they add up to in a step, from the spans themselves.
using Sums = std::map<std::string, std::pair<std::uint64_t, std::uint64_t>>;

Sums sums_of(const Session& session, const std::string& lane, const Step& step) {
  Sums sums;
  for (const Span& span : session.spans) {
    if (session.threads[span.thread].name != lane) continue;
    if (span.end_ns <= step.begin_ns || span.begin_ns >= step.end_ns) continue;
    auto& [bars, ns] = sums[session.name(span.name)];
    ++bars;
    ns += std::min(span.end_ns, step.end_ns) - std::max(span.begin_ns, step.begin_ns);
  }
  return sums;
}

TEST(Lanes, CountWhatIsMerged) {
  const Example example = cpu_example({.batch = 4096, .workers = 1});
  const Session& session = example.session;
  const html::Lanes lanes = html::find_lanes(session, example.analysis.loader);
  for (const html::LaneStep& lane_step : lanes.steps) {
    const auto step = std::ranges::find(session.steps, lane_step.step, &Step::step);
    ASSERT_NE(step, session.steps.end());
    const Sums expected = sums_of(session, "loader 0", *step);
    EXPECT_GE(expected.at("decode").first, 4096U);
    Sums found;
    std::uint64_t bars = 0, ns = 0;
    for (const html::LaneTotal& total : lane_step.totals[1]) {
      found[lanes.names[total.name]] = {total.bars, total.ns};
      bars += total.bars;
      ns += total.ns;
    }
    EXPECT_EQ(found, expected);
    // Merged bars stand for all of it, too, without the gaps.
    for (const html::LaneBar& bar : lane_step.bars[1]) {
      EXPECT_LE(bar.sum_ns, bar.end_ns - bar.begin_ns);
      ns -= bar.sum_ns;
      const html::LaneMix alone{{bar.name, 1}};
      const html::LaneMix& mix = bar.mix == ~0U ? alone : lanes.mixes[bar.mix];
      for (const auto& [name, count] : mix) bars -= count;
    }
    EXPECT_EQ(bars, 0U);
    EXPECT_EQ(ns, 0U);
  }
}

// A session of one step of 1 ms on one thread: the names in turn, each span of `length_ns`.
Session spans_of(const std::vector<std::string>& names, std::uint64_t spans, std::uint64_t every_ns,
                 std::uint64_t length_ns) {
  Session session;
  session.threads.push_back({.name = "loader 0"});
  session.windows.push_back({.first_step = 1, .last_step = 1, .complete = 1});
  session.steps.push_back({.step = 1, .begin_ns = 1000, .end_ns = 1'001'000});
  for (const std::string& name : names) session.names.push_back({name, Kind::range});
  for (std::uint64_t i = 0; i < spans; ++i)
    session.spans.push_back({.begin_ns = 1000 + i * every_ns,
                             .end_ns = 1000 + i * every_ns + length_ns,
                             .name = static_cast<std::uint32_t>(i % names.size())});
  return session;
}

TEST(Lanes, SayWhatAMergedBarStandsFor) {
  // Bars are merged up to 4 us: two of these, and the last one stays alone.
  html::Lanes lanes = html::find_lanes(spans_of({"decode"}, 667, 1500, 1000), {});
  std::string chart = html::lanes_chart(lanes, 0);
  EXPECT_THAT(chart, HasSubstr("<title>2 bars of decode, 2.00 us in all</title>"));
  EXPECT_THAT(chart, HasSubstr("<td>decode</td><td class=\"n\" data-v=\"667\">667</td>"
                               "<td class=\"n\" data-v=\"667000\">667 us</td>"));
  lanes = html::find_lanes(spans_of({"decode", "read"}, 667, 1500, 1000), {});
  chart = html::lanes_chart(lanes, 0);
  EXPECT_THAT(chart, HasSubstr("<title>2 bars: 1 decode, 1 read, 2.00 us in all</title>"));
  EXPECT_THAT(chart, Not(HasSubstr("several</td>")));
  lanes = html::find_lanes(spans_of({"a", "b", "c", "d", "e", "f", "f"}, 7000, 100, 100), {});
  EXPECT_THAT(html::lanes_chart(lanes, 0),
              HasSubstr("<title>39 bars: 10 f, 6 a, 6 b, 6 c, 11 more, 3.90 us in all</title>"));
}

TEST(Lanes, ReachTheScriptWithTheirSums) {
  const auto json = [](const Session& session) {
    return html::to_json(html::find_lanes(session, {}));
  };
  const Json merged = json(spans_of({"decode"}, 667, 1500, 1000));
  EXPECT_EQ(merged["steps"][0]["totals"].dump(), "[[0,667,667000]]");
  EXPECT_EQ(merged["mixes"].dump(), "[[0,2]]");
  // Each has 500 ns of gaps.
  EXPECT_THAT(merged["steps"][0]["bars"].dump(),
              ::testing::StartsWith("[[0,6,-1,0,25,5,0,6,-1,5,25,5,"));
  // One bar gives its own total.
  const Json whole = json(spans_of({"decode", "read", "decode"}, 3, 1500, 1000));
  EXPECT_EQ(whole["steps"][0]["totals"].dump(), "[[0,2,2000]]");
  EXPECT_EQ(whole["mixes"].dump(), "[]");
  EXPECT_EQ(whole["steps"][0]["bars"].dump(), "[[0,6,0,0,10,0,6,1,5,10,0,6,0,5,10]]");
}

TEST(Lanes, BoundWhatMergedBarsAreNamedBy) {
  std::vector<std::string> names;  // so that no two merged bars are alike
  for (int i = 0; i < 400; ++i) names.push_back(std::string("name ") + std::to_string(i));
  Session session = spans_of(names, 667, 1500, 1000);
  const Session one = session;
  for (std::uint64_t step = 2; step <= 20; ++step) {
    const std::uint64_t later = (step - 1) * 1'000'000;
    session.steps.push_back({.step = step, .begin_ns = 1000 + later, .end_ns = 1'001'000 + later});
    for (Span span : one.spans) {
      span.begin_ns += later;
      span.end_ns += later;
      span.name = static_cast<std::uint32_t>((span.name * step) % names.size());
      session.spans.push_back(span);
    }
  }
  session.windows[0].last_step = 20;
  const html::Lanes lanes = html::find_lanes(session, {});
  EXPECT_GE(lanes.mixes.size(), html::mixes_per_page);
  EXPECT_LE(lanes.mixes.size(), html::mixes_per_page + names.size());
  EXPECT_THAT(html::lanes_chart(lanes, 19), HasSubstr("<title>2 bars, 2.00 us in all</title>"));
}

// Of all phases that a run can have, each with its own colour, and numbers where there is room.
TEST(Html, DistinguishesThePhasesOfTheRun) {
  Analysis analysis;
  analysis.run = {.wall_ns = 200e9, .has_phases = true};
  for (const char* const name :
       {"start", "device", "data indexing", "statistics", "loader start", "program", "set-up",
        "first batch", "steps", "evaluation", "checkpoint", "end", "report", "other"})
    analysis.run.parts.push_back({name, analysis.run.parts.size() < 2 ? 4e9 : 16e9, 1, {}});
  const std::string html = html::run_part(analysis);
  const std::string legend = html.substr(
      html.find("class=\"legend\""), html.find("</figcaption>") - html.find("class=\"legend\""));
  std::set<std::string> classes;
  for (std::size_t at = 0; (at = legend.find("rect class=\"", at)) != std::string::npos; ++at)
    classes.insert(legend.substr(at + 12, legend.find('"', at + 12) - at - 12));
  EXPECT_EQ(count(legend, "rect class="), 14U);
  EXPECT_EQ(classes.size(), 14U);
  for (const std::string& css : classes)
    EXPECT_THAT(std::string(html::page::style), HasSubstr("." + css + " {"));
  EXPECT_THAT(legend, HasSubstr("9 steps 8.0 %"));
  EXPECT_THAT(html, HasSubstr(">9</text>"));
  EXPECT_THAT(html, Not(HasSubstr(">2</text>"))) << "no room in 2 %";
}

TEST(Html, SaysThatThePathsChartIncludesWaitsForACore) {
  Analysis analysis;
  analysis.path = {.edges = {{0, 1000, "kernel", "conv1"}},
                   .step = 7,
                   .core_wait_ns = 400,
                   .shares = {{"kernel", 600, 0.6}, {"core wait", 400, 0.4}}};
  const std::string part = html::path_part(analysis);
  EXPECT_THAT(part, AllOf(HasSubstr("400 ns without a core"), HasSubstr("known, but not when"),
                          Not(HasSubstr("shortening anything else"))));
  analysis.path.shares.pop_back();
  EXPECT_THAT(html::path_part(analysis), HasSubstr("shortening anything else does not help"));
}

// Without this a name in a narrow table is a column of single letters.
TEST(Html, BreaksNoWordsInNarrowTables) {
  const std::string style(html::page::style);
  const std::string narrow = style.substr(style.find("@media (max-width: 46rem)"));
  const std::string names = narrow.substr(narrow.find("th[scope=\"row\"]"));
  EXPECT_THAT(names.substr(0, names.find('}')),
              AllOf(HasSubstr("width: max-content"), HasSubstr("overflow-wrap: break-word"),
                    Not(HasSubstr("anywhere"))));
}

}  // namespace
}  // namespace warpstep::profiler
