#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>

#include "profiler/export/export.h"
#include "profiler/export/testing_proto.h"
#include "profiler/export/testing_sessions.h"

namespace warpstep::profiler {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;
using namespace testing;

// Numbers of fields stand here again, from the published .proto files: what the writer has wrong,
// this must not have wrong with it.
struct Shown {
  std::string track, name;
  std::uint64_t begin_ns = 0, end_ns = 0;
  bool operator<(const Shown& other) const {
    return std::tie(track, begin_ns, name, end_ns) <
           std::tie(other.track, other.begin_ns, other.name, other.end_ns);
  }
  bool operator==(const Shown&) const = default;
};
void PrintTo(const Shown& shown, std::ostream* out) {
  *out << shown.track << ": " << shown.name << " " << shown.begin_ns << " " << shown.end_ns;
}

// What Perfetto would show, by its rules for tracks and interned names.
struct Decoded {
  std::shared_ptr<const std::string> bytes;  // that the packets are views of
  std::vector<Shown> slices, instants, stages;
  std::vector<std::tuple<std::string, std::uint64_t, double>> counters;
  std::map<std::uint64_t, std::string> names, notes, categories, specifications, kernels, args;
  std::map<std::uint64_t, std::string> tracks;
  std::map<std::uint64_t, std::uint64_t> flow_from, flow_to;  // times by flow
  std::map<std::string, std::map<std::string, std::string>> stage_extras;
  // By kernel; waves in thousandths.
  std::map<std::string, std::map<std::string, std::uint64_t>> launch_args;
  std::map<std::string, std::vector<std::uint64_t>> submitted;  // by slice's name
  std::vector<ProtoView> packets;
};

void intern(const ProtoView& data, std::uint32_t field, std::map<std::uint64_t, std::string>& to) {
  for (const ProtoView& entry : data.messages(field))
    EXPECT_TRUE(to.emplace(entry.number(1), entry.text(2)).second);
}

std::string track_name(const ProtoView& track) {
  if (track.has(3)) return "process " + track.message(3).text(6);
  if (track.has(4)) return track.message(4).text(5);
  return track.text(2);
}

class Decoder {
 public:
  Decoded run(const std::string& bytes) {
    for (const ProtoView& packet : ProtoView(bytes).messages(1)) {
      EXPECT_EQ(packet.number(10), 1U) << "each packet is of the sequence";
      if (packet.has(12)) intern_all(packet.message(12));
      if (packet.has(60)) describe(packet.message(60));
      if (packet.has(11)) event(packet.number(8), packet.message(11));
      if (packet.has(53)) stage(packet.number(8), packet.message(53));
      EXPECT_EQ(packet.number(58, 1), 1U) << "REALTIME";
      out_.packets.push_back(packet);
    }
    for (const auto& [track, open] : open_) EXPECT_THAT(open, SizeIs(0)) << out_.tracks[track];
    for (auto* list : {&out_.slices, &out_.instants, &out_.stages})
      std::sort(list->begin(), list->end());
    return out_;
  }

 private:
  void intern_all(const ProtoView& data) {
    intern(data, 1, out_.categories);
    intern(data, 2, out_.names);
    intern(data, 3, out_.notes);
    intern(data, 24, out_.specifications);
    intern(data, 1000, out_.kernels);
    intern(data, 1001, out_.args);
  }

  void describe(const ProtoView& track) {
    EXPECT_TRUE(out_.tracks.emplace(track.number(1), track_name(track)).second);
    EXPECT_TRUE(!track.has(5) || out_.tracks.contains(track.number(5))) << "parents come first";
  }

  void event(std::uint64_t at, const ProtoView& event) {
    const std::uint64_t track = event.number(11);
    ASSERT_TRUE(out_.tracks.contains(track));
    auto& open = open_[track];
    std::string name = event.has(23) ? event.text(23) : out_.names[event.number(10)];
    for (const std::uint64_t flow : event.numbers(47)) out_.flow_from[flow] = at;
    for (const std::uint64_t flow : event.numbers(48)) out_.flow_to[flow] = at;
    if (event.has(3000)) out_.submitted[name] = event.message(3000).numbers(1);
    const std::uint64_t type = event.number(9);
    if (type == 1) open.push_back({out_.tracks[track], name, at, 0});
    if (type == 2) {
      ASSERT_FALSE(open.empty());
      open.back().end_ns = at;
      EXPECT_LT(open.back().begin_ns, at);
      out_.slices.push_back(open.back());
      open.pop_back();
    }
    if (type == 3) out_.instants.push_back({out_.tracks[track], name, at, at});
    if (type == 4)
      out_.counters.emplace_back(
          out_.tracks[track], at,
          event.has(44) ? event.real(44) : static_cast<double>(event.number(30)));
  }

  void stage(std::uint64_t at, const ProtoView& stage) {
    const std::string name = out_.names[stage.number(20)];
    out_.stages.push_back({"gpu " + std::to_string(stage.number(11)) + " " +
                               out_.specifications[stage.number(13)] + " " +
                               out_.specifications[stage.number(14)],
                           name, at, at + stage.number(2)});
    for (const ProtoView& extra : stage.messages(6))
      out_.stage_extras[name][extra.text(1)] = extra.text(2);
    if (!stage.has(19)) return;
    EXPECT_EQ(out_.kernels[stage.number(19)], name);
    for (const ProtoView& arg : stage.message(21).messages(3)) {
      std::uint64_t& shown = out_.launch_args[name][out_.args[arg.number(1)]];
      shown = arg.has(5) ? static_cast<std::uint64_t>(1000 * arg.real(5)) : arg.number(4);
    }
    out_.launch_args[name]["grid x"] = stage.message(21).message(1).number(1);
    out_.launch_args[name]["block x"] = stage.message(21).message(2).number(1);
  }

  Decoded out_;
  std::map<std::uint64_t, std::vector<Shown>> open_;
};

Decoded decoded(const Session& session) {
  const auto bytes = std::make_shared<const std::string>(perfetto_trace(session));
  Decoded shown = Decoder().run(*bytes);
  shown.bytes = bytes;
  return shown;
}

std::uint64_t real(std::uint64_t monotonic_ns) {
  return monotonic_ns - SessionBuilder::origin_ns + trace_realtime_ns;
}
std::uint64_t real_us(double us) {
  return real(SessionBuilder::at(us));
}

// Brute force: every span, call and step of the session, in its place.
void expect_all_slices(const Session& session) {
  std::vector<Shown> slices, instants, stages;
  for (const Step& step : session.steps)
    slices.push_back(
        {"steps", "step " + std::to_string(step.step), real(step.begin_ns), real(step.end_ns)});
  for (const Span& span : session.spans) {
    if (session.kind(span) == Kind::counter) continue;
    auto& list = span.begin_ns == span.end_ns ? instants : slices;
    list.push_back({session.threads[span.thread].name, session.name(span.name), real(span.begin_ns),
                    real(span.end_ns)});
  }
  for (const Activity& activity : session.activities) {
    if (activity.what == What::api)
      slices.push_back(
          {"main", session.name(activity.name), real(activity.start_ns), real(activity.end_ns)});
    else
      stages.push_back({"gpu 0 stream " + std::to_string(activity.stream) +
                            (activity.what == What::copy ? " Memcpy" : " Kernel"),
                        activity.what == What::copy ? "Memcpy HtoD (Pinned -> Device)"
                                                    : session.name(activity.name),
                        real(activity.start_ns), real(activity.end_ns)});
  }
  for (auto* list : {&slices, &instants, &stages}) std::sort(list->begin(), list->end());
  const Decoded shown = decoded(session);
  EXPECT_EQ(shown.slices, slices);
  EXPECT_EQ(shown.instants, instants);
  EXPECT_EQ(shown.stages, stages);
}

TEST(Perfetto, ShowsEverySliceAtItsTime) {
  expect_all_slices(device_session().build());
  expect_all_slices(host_session().build());
}

TEST(Perfetto, ArrowsGoFromABatchThatIsReadyToItsWait) {
  SessionBuilder builder = device_session(1);
  builder.span(Kind::mark, "batch ready", 950, 950, 1, 77);  // nobody waits for it
  // A batch of the test set, with the number of one that is waited for.
  const Span* waited = nullptr;
  for (const Span& span : builder.raw().spans)
    if (builder.raw().kind(span) == Kind::wait) waited = &span;
  ASSERT_NE(waited, nullptr);
  const std::uint64_t number = waited->arg;
  builder.thread(4390, "test loader 0");
  const auto tester = static_cast<std::uint32_t>(builder.raw().threads.size() - 1);
  builder.span(Kind::mark, "batch ready", 960, 960, tester, number);
  const Decoded shown = decoded(builder.build());
  ASSERT_THAT(shown.flow_from, SizeIs(1));
  EXPECT_EQ(shown.flow_from.begin()->second, real_us(1182));
  EXPECT_EQ(shown.flow_to.at(shown.flow_from.begin()->first), real_us(1010));
}

TEST(Perfetto, HasCounters) {
  const Decoded shown =
      decoded(device_session(1).sample("gpu 0 tensor pipe %", 1501, 42.5).build());
  EXPECT_THAT(shown.counters,
              ElementsAre(std::tuple("batches ready", real_us(1182), 1.0),
                          std::tuple("cpu %", real_us(1500), 73.5),
                          std::tuple("process rss bytes", real_us(1500), 123456789.0),
                          std::tuple("gpu 0 tensor pipe %", real_us(1501), 42.5)));
}

TEST(Perfetto, KernelsTellTheirLaunch) {
  Decoded shown = decoded(device_session(1).build());
  EXPECT_EQ(shown.launch_args["sm90_xmma_gemm_f16f16"],
            (std::map<std::string, std::uint64_t>{{"grid x", 66},
                                                  {"block x", 256},
                                                  {"registers_per_thread", 64},
                                                  {"shared_mem_static", 0},
                                                  {"shared_mem_dynamic", 0},
                                                  {"thread_count", 66 * 256},
                                                  // 66 blocks of 132 * 4: 64 registers a thread
                                                  {"waves_per_multiprocessor", 125}}));
  EXPECT_EQ(shown.stage_extras["sm90_xmma_gemm_f16f16"]["call"], "conv1.forward");
  EXPECT_EQ(shown.stage_extras["sgd_kernel"]["call"], "update") << "by the graph's node";
  EXPECT_EQ(shown.stage_extras["Memcpy HtoD (Pinned -> Device)"]["bytes"], "1048576");
}

TEST(Perfetto, ALaunchPointsToAllItsWork) {
  const Session session = device_session(1).build();
  std::vector<std::uint64_t> of_graph;
  for (std::size_t i = 0; i < session.activities.size(); ++i)
    if (session.activities[i].graph_node != 0) of_graph.push_back(i + 1);
  ASSERT_THAT(of_graph, SizeIs(4));
  EXPECT_EQ(decoded(session).submitted.at("cudaLaunchKernel"), of_graph);  // the later of the two
}

TEST(Perfetto, WhatCrossesOnAThreadGetsALane) {
  SessionBuilder builder;
  builder.span(Kind::range, "a", 0, 10).span(Kind::range, "b", 5, 15);
  builder.raw().clocks.push_back({SessionBuilder::origin_ns, trace_realtime_ns, 0, 0});
  EXPECT_THAT(decoded(builder.build()).slices,
              ElementsAre(Shown{"lane 2", "b", real_us(5), real_us(15)},
                          Shown{"main", "a", real_us(0), real_us(10)}));
}

TEST(Perfetto, NamesDevicesAndClocks) {
  const Decoded shown = decoded(device_session(1).build());
  std::size_t gpus = 0, snapshots = 0, first = 0;
  for (const ProtoView& packet : shown.packets) {
    if (packet.has(128)) {
      ++gpus;
      EXPECT_EQ(packet.message(128).message(1).text(1), "NVIDIA H200");
      EXPECT_EQ(packet.message(128).message(1).text(4), "sm_90");
    }
    if (packet.has(6)) {
      ++snapshots;
      EXPECT_EQ(packet.message(6).number(2), 1U);
      EXPECT_EQ(packet.message(6).messages(1)[0].number(2), trace_realtime_ns);
      EXPECT_EQ(packet.message(6).messages(1)[1].number(1), 3U);
      EXPECT_EQ(packet.message(6).messages(1)[1].number(2), SessionBuilder::origin_ns);
    }
    if (packet.has(87)) ++first;
  }
  EXPECT_EQ(gpus, 1U);
  EXPECT_EQ(snapshots, 1U);
  EXPECT_EQ(first, 1U);
  EXPECT_EQ(shown.packets[0].number(13), 1U) << "the first packet clears what was interned";
}

// Names are demangled when they are recorded: those of a foreign file are not.
TEST(Perfetto, NamesKernelsAsTheSessionDoes) {
  SessionBuilder builder = device_session(1);
  builder.launch(1800, 1810, What::kernel, "_Z3fooi", 1820, 1830);
  const std::string trace = perfetto_trace(builder.build());
  EXPECT_NE(trace.find("_Z3fooi"), std::string::npos);
  EXPECT_EQ(trace.find("foo(int)"), std::string::npos);
}

TEST(Perfetto, TheSameSessionGivesTheSameBytes) {
  const Session session = device_session().build();
  EXPECT_EQ(perfetto_trace(session), perfetto_trace(session));
  EXPECT_FALSE(perfetto_trace(Session{}).empty());
}

}  // namespace
}  // namespace warpstep::profiler
