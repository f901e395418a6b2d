#include "profiler/recorder/recorder.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/file.h"
#include "engine/core/record.h"
#include "profiler/recorder/trigger.h"
#include "profiler/session/session_file.h"
#include "profiler/sources/testing_tree.h"

namespace warpstep::profiler {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const record::Name work{"work", Kind::call};

// A run with one span per step.
class RecordedRun {
 public:
  RecordedRun(const std::string& name, Level level, const std::string& schedule,
              std::uint64_t batches = 100, OpenedPmSampling counters = {},
              std::uint64_t most_bytes = RecorderOptions().most_bytes)
      : path_(testing::own_folder() / (name + ".prof")), batches_(batches) {
    recorder_ = std::make_unique<Recorder>(RecorderOptions{.level = level,
                                                           .schedule = parse_schedule(schedule),
                                                           .path = path_,
                                                           .counters = std::move(counters),
                                                           .listens = false,
                                                           .most_bytes = most_bytes,
                                                           .samples = false});
    recorder_->begin(1, {0, batches_});
    end_ns_ = now_ns();
  }

  void steps(int count) {
    for (int i = 0; i < count; ++i) {
      ++step_;
      Step step{.step = step_, .epoch = 1, .begin_ns = end_ns_};
      { const record::Span span(work, step_); }
      step.end_ns = end_ns_ = now_ns();
      step.other_ns = step.end_ns - step.begin_ns;
      recorder_->on_step(step, {step_ % batches_, batches_});
    }
  }

  // Of a length, without waiting for it.
  void timed_steps(int count, std::uint64_t ns) {
    for (int i = 0; i < count; ++i) {
      Step step{
          .step = ++step_, .epoch = 1, .begin_ns = end_ns_, .end_ns = end_ns_ + ns, .other_ns = ns};
      end_ns_ = step.end_ns;
      recorder_->on_step(step, {step_ % batches_, batches_});
    }
  }

  Session session() const { return read_session(path_); }
  Recorder& recorder() { return *recorder_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::uint64_t batches_;
  std::unique_ptr<Recorder> recorder_;
  std::uint64_t step_ = 0;
  std::uint64_t end_ns_ = 0;
};

// The steps whose spans a session has, by the times of the steps.
std::vector<std::uint64_t> spanned(const Session& session) {
  std::vector<std::uint64_t> steps;
  for (const Step& step : session.steps)
    for (const Span& span : session.spans)
      if (session.kind(span) == Kind::call && span.begin_ns >= step.begin_ns &&
          span.end_ns <= step.end_ns) {
        EXPECT_EQ(span.arg, step.step);
        steps.push_back(step.step);
      }
  return steps;
}

TEST(Recorder, KeepsEveryStepAndNoSpanAtLevelSteps) {
  RecordedRun run("steps", Level::steps, "skip_first=0,active=2");
  run.steps(10);
  run.recorder().finish();
  const Session session = run.session();
  EXPECT_EQ(session.steps.size(), 10U);
  EXPECT_THAT(session.spans, IsEmpty());
  EXPECT_THAT(session.windows, IsEmpty());
  EXPECT_FALSE(record::is_on());
}

TEST(Recorder, OpensNoMoreWindowsOfAScheduleWithoutEndWhenTheSessionIsLarge) {
  const auto windows = [](std::uint64_t most_bytes, const char* schedule) {
    RecordedRun run("large", Level::spans, schedule, 100, {}, most_bytes);
    run.steps(12);
    run.recorder().finish();
    const bool is_noted = std::ranges::any_of(run.recorder().notes(), [](const std::string& note) {
      return note.find("opens no more windows") != note.npos;
    });
    const std::size_t count = run.session().windows.size();
    EXPECT_EQ(is_noted, count == 0);
    return count;
  };
  EXPECT_EQ(windows(1, "skip_first=0,wait=1,warmup=1,active=2,repeat=0"), 0U);
  EXPECT_EQ(windows(1, "skip_first=0,wait=1,warmup=1,active=2,per=epoch"), 0U);
  EXPECT_EQ(windows(1, "skip_first=0,wait=1,warmup=1,active=2,repeat=2"), 2U);
  EXPECT_EQ(windows(1 << 30, "skip_first=0,wait=1,warmup=1,active=2,repeat=0"), 3U);
}

TEST(Recorder, KeepsTheSpansOfItsWindows) {
  RecordedRun run("windows", Level::spans, "skip_first=2,wait=1,warmup=1,active=3,repeat=2");
  run.steps(20);
  run.recorder().finish();
  const Session session = run.session();
  EXPECT_EQ(session.steps.size(), 20U);
  ASSERT_EQ(session.windows.size(), 2U);
  EXPECT_EQ(session.windows[0].first_step, 5U);
  EXPECT_EQ(session.windows[0].last_step, 7U);
  EXPECT_EQ(session.windows[0].complete, 1U);
  EXPECT_EQ(session.windows[1].first_step, 10U);
  EXPECT_THAT(spanned(session), ElementsAre(5, 6, 7, 10, 11, 12));
  EXPECT_EQ(run.recorder().windows(), 2U);
  EXPECT_FALSE(session.clocks.empty());
}

TEST(Recorder, KeepsWindowsThatFollowEachOther) {
  RecordedRun run("adjoining", Level::spans, "skip_first=1,wait=0,warmup=0,active=2,repeat=3");
  run.steps(10);
  run.recorder().finish();
  EXPECT_THAT(spanned(run.session()), ElementsAre(2, 3, 4, 5, 6, 7));
  EXPECT_EQ(run.session().windows.size(), 3U);
}

TEST(Recorder, FollowsComposersScheduleInEachEpoch) {
  RecordedRun run("epochs", Level::spans,
                  "skip_first=1,wait=0,warmup=1,active=2,repeat=1,per=epoch", 5);
  run.steps(10);
  run.recorder().finish();
  EXPECT_THAT(spanned(run.session()), ElementsAre(3, 4, 8, 9));
}

TEST(Recorder, KeepsTheCompleteStepsOfAnInterruptedWindow) {
  RecordedRun run("cut", Level::spans, "skip_first=1,warmup=0,active=10");
  run.steps(4);
  run.recorder().finish();
  const Session session = run.session();
  ASSERT_EQ(session.windows.size(), 1U);
  EXPECT_EQ(session.windows[0].complete, 1U);
  EXPECT_THAT(spanned(session), ElementsAre(2, 3, 4));
  EXPECT_THAT(session.notes, ElementsAre(HasSubstr("it has 3 steps")));
  EXPECT_EQ(session.windows[0].last_step, 4U);
  EXPECT_EQ(run.recorder().windows(), 1U);
}

// A killed run leaves the file as it is at any moment.
TEST(Recorder, LeavesAFileThatCanBeReadAtAnyMoment) {
  RecordedRun run("killed", Level::spans, "skip_first=0,warmup=0,active=1000,repeat=1");
  for (int i = 0; i < 20; ++i) {
    run.steps(20);
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    EXPECT_NO_THROW(run.session());
  }
  run.recorder().finish();
  EXPECT_EQ(run.session().steps.size(), 400U);
}

// Its window has the steps whose spans are written, and no other.
TEST(Recorder, LeavesTheWholeStepsOfAWindowThatIsOpen) {
  RecordedRun run("open", Level::spans, "skip_first=1,warmup=1,active=1000,repeat=1");
  std::uint64_t last_step = 0;
  const auto deadline = now_ns() + 10'000'000'000;
  for (std::uint64_t done = 0; last_step < 200 && now_ns() < deadline;) {
    if (done < 900) run.steps(10);
    done += 10;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    const Session session = run.session();
    if (session.windows.empty()) continue;
    ASSERT_EQ(session.windows.size(), 1U);
    const Window& window = session.windows[0];
    EXPECT_EQ(window.first_step, 3U);
    EXPECT_EQ(window.cut, 1U);
    EXPECT_EQ(window.complete, 1U);
    EXPECT_GE(window.last_step, last_step);
    last_step = window.last_step;
    const std::vector<std::uint64_t> steps = spanned(session);
    const auto of_window = std::ranges::count_if(
        steps, [&](std::uint64_t step) { return step >= 3 && step <= last_step; });
    EXPECT_EQ(static_cast<std::uint64_t>(of_window), last_step - 2);
  }
  EXPECT_GE(last_step, 200U);
  run.recorder().finish();
  const Session session = run.session();
  ASSERT_EQ(session.windows.size(), 1U);
  EXPECT_EQ(session.windows[0].cut, 0U);
}

// Wherever a kill ends the file, also between what is written when a window closes.
TEST(Recorder, HasTheSpansOfEachStepOfACutWindow) {
  RecordedRun run("closing", Level::spans, "skip_first=1,wait=0,warmup=0,active=3,repeat=4");
  run.steps(5);
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  run.steps(20);
  run.recorder().finish();
  const std::string file = read_file(run.path());
  std::size_t cut = 0;
  ChunkHeader header;
  for (std::size_t at = 0; at < file.size();) {
    std::memcpy(&header, file.data() + at, sizeof header);
    at += sizeof header + header.bytes;
    const Session session = parse_session(std::string_view(file).substr(0, at), "cut");
    const std::vector<std::uint64_t> steps = spanned(session);
    for (const Window& window : session.windows) {
      cut += window.cut;
      EXPECT_LE(window.last_step, window.first_step + 2);
      for (std::uint64_t step = window.first_step; step <= window.last_step; ++step)
        EXPECT_THAT(steps, Contains(step)) << "before byte " << at;
    }
  }
  EXPECT_GE(cut, 4U);
}

TEST(Recorder, LeavesNoWindowOfARunThatEndsBeforeItsFirstStep) {
  RecordedRun run("unused", Level::spans, "skip_first=1,warmup=1,active=10,repeat=1");
  run.steps(2);
  run.recorder().finish();
  EXPECT_THAT(run.session().windows, IsEmpty());
}

TEST(Recorder, ContinuesWithoutAFile) {
  Recorder recorder({.level = Level::spans,
                     .schedule = parse_schedule("skip_first=0,warmup=0,active=2"),
                     .path = "/dev/full",
                     .listens = false});
  recorder.begin(1, {0, 10});
  for (std::uint64_t i = 1; i < 5; ++i)
    recorder.on_step({.step = i, .begin_ns = i, .end_ns = i}, {i, 10});
  recorder.finish();
  ASSERT_EQ(recorder.notes().size(), 1U);
  EXPECT_THAT(recorder.notes()[0], HasSubstr("/dev/full"));
}

// A disk that is full in the middle of a run.
TEST(Recorder, KeepsEarlierDataWhenTheDiskIsFull) {
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_IGN);
  RecordedRun run("full", Level::spans, "skip_first=0,warmup=0,active=1000");
  run.steps(5);
  for (int i = 0; i < 1000 && std::filesystem::file_size(run.path()) < 200; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const rlimit small{8192, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  run.steps(900);
  for (int i = 0; i < 1000 && run.recorder().notes().empty(); ++i) {
    run.steps(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_FALSE(record::is_on());
  run.recorder().finish();
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_THAT(run.recorder().notes(), Contains(HasSubstr("full.prof: writing failed")));
  EXPECT_NO_THROW(run.session());
}

// At level steps, without a window: what happened before the request.
TEST(Recorder, KeepsThePastOnDemand) {
  const std::filesystem::path path = testing::own_folder() / "past.prof";
  Recorder recorder({.path = path, .samples = false});
  recorder.begin(1, {0, 100});
  std::uint64_t end = now_ns();
  for (std::uint64_t i = 1; i <= 8; ++i) {
    Step step{.step = i, .epoch = 1, .begin_ns = end};
    { const record::Span span(work, i); }
    step.end_ns = end = now_ns();
    step.other_ns = step.end_ns - step.begin_ns;
    recorder.on_step(step, {i, 100});
  }
  EXPECT_THAT(trigger(::getpid(), {.last_ms = 60'000}), HasSubstr("steps 1-8, 8 of them"));
  EXPECT_THAT(trigger(::getpid(), {.last_ms = 60'000}), HasSubstr("refused: nothing"));
  recorder.finish();
  const Session session = read_session(path);
  EXPECT_THAT(spanned(session), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  ASSERT_EQ(session.windows.size(), 1U);
  EXPECT_EQ(session.windows[0].past, 1U);
  ASSERT_EQ(session.kept.size(), 1U);
  EXPECT_EQ(session.kept[0].asked_ns, 60'000'000'000U);
  EXPECT_FALSE(record::is_on());
}

// It began before the time that was asked for, and fills it.
TEST(Recorder, KeepsALongSpanThatReachesIntoTheAskedTime) {
  const std::filesystem::path path = testing::own_folder() / "long.prof";
  Recorder recorder({.path = path, .samples = false});
  recorder.begin(1, {0, 100});
  const record::Name evaluation{"a long evaluation"};
  const std::uint64_t now = now_ns();
  record::note(evaluation, now - 5'000'000'000, now);
  Step step{.step = 1, .epoch = 1, .begin_ns = now};
  step.end_ns = now_ns();
  step.other_ns = step.end_ns - step.begin_ns;
  recorder.on_step(step, {1, 100});
  EXPECT_THAT(trigger(::getpid(), {.last_ms = 1000}), HasSubstr("steps 1-1"));
  recorder.finish();
  const Session session = read_session(path);
  // Rings of the process may still have that of an earlier run of this test.
  EXPECT_EQ(std::ranges::count_if(session.spans,
                                  [&](const Span& span) {
                                    return span.name == evaluation.id() && span.end_ns == now;
                                  }),
            1);
}

TEST(Recorder, RefusesWindowsWhereStepsShareLaunches) {
  Recorder recorder({.path = testing::own_folder() / "shared.prof",
                     .steps_share_launches = true,
                     .samples = false});
  recorder.begin(1, {0, 100});
  for (const TriggerRequest& request : {TriggerRequest{.steps = 2}, TriggerRequest{.last_ms = 9}})
    EXPECT_THAT(trigger(::getpid(), request), HasSubstr("start it with --steps-per-launch 1"));
  recorder.finish();
}

TEST(Recorder, RefusesRequestsInAWarmupAndAfterTheLastStep) {
  const std::filesystem::path path = testing::own_folder() / "refusing.prof";
  Recorder recorder({.level = Level::spans,
                     .schedule = parse_schedule("skip_first=1,warmup=3,active=2"),
                     .path = path,
                     .samples = false});
  recorder.begin(1, {0, 100});
  std::uint64_t end = now_ns();
  for (std::uint64_t i = 1; i <= 3; ++i) {
    const std::uint64_t begin = std::exchange(end, now_ns());
    recorder.on_step({.step = i, .begin_ns = begin, .end_ns = end, .other_ns = end - begin},
                     {i, 100});
  }
  for (const TriggerRequest& request : {TriggerRequest{.steps = 2}, TriggerRequest{.last_ms = 9}})
    EXPECT_THAT(
        trigger(::getpid(), request),
        HasSubstr("busy: the schedule's warm-up runs until step 4, and its window follows"));
  recorder.end_windows();
  EXPECT_THAT(trigger(::getpid(), {.last_ms = 1000}), HasSubstr("refused: the run has ended"));
  EXPECT_THAT(trigger(::getpid(), {.steps = 2}), HasSubstr("refused: the run has ended"));
  EXPECT_FALSE(record::is_on());
  recorder.finish();
}

TEST(Recorder, RecordsOnDemand) {
  const auto path = testing::own_folder() / "demand.prof";
  Recorder recorder({.level = Level::steps, .schedule = {}, .path = path, .samples = false});
  ASSERT_THAT(recorder.notes(), IsEmpty());
  recorder.begin(1, {0, 1000});
  std::uint64_t end = now_ns();
  const auto steps = [&](std::uint64_t from, std::uint64_t to) {
    for (std::uint64_t i = from; i <= to; ++i) {
      Step step{.step = i, .begin_ns = end};
      { const record::Span span(work, i); }
      step.end_ns = end = now_ns();
      step.other_ns = step.end_ns - step.begin_ns;
      recorder.on_step(step, {i, 1000});
    }
  };
  steps(1, 10);
  EXPECT_THAT(trigger(::getpid(), {.steps = 3}), HasSubstr("recording 3 steps from about step 13"));
  EXPECT_THAT(trigger(::getpid(), {.steps = 3}), HasSubstr("busy"));
  steps(11, 30);
  EXPECT_THAT(trigger(::getpid(), {.steps = 2, .deep = true}), HasSubstr("--profile deep"));
  steps(31, 40);
  recorder.finish();
  EXPECT_THAT(spanned(read_session(path)), ElementsAre(13, 14, 15, 33, 34));
}

// The length of windows by a time, in steps.
std::uint64_t timed_window(const std::string& name, std::uint64_t step_ns) {
  RecordedRun run(name, Level::spans, "skip_first=2,warmup=1,active=1s,repeat=2", 10'000);
  run.timed_steps(3000, step_ns);
  run.recorder().finish();
  const Session session = run.session();
  if (session.windows.size() != 2) return 0;
  const auto length = [&](std::size_t i) {
    return session.windows[i].last_step - session.windows[i].first_step + 1;
  };
  EXPECT_EQ(session.windows[0].first_step, 4U);
  EXPECT_EQ(length(0), length(1)) << "a later window is as long as the first";
  EXPECT_EQ(session.windows[1].first_step, session.windows[0].last_step + 2);
  return length(0);
}

TEST(Recorder, RecordsForATime) {
  EXPECT_EQ(timed_window("time", 10'000'000), 100U);
  EXPECT_EQ(timed_window("time-long", 200'000'000), 20U) << "at least";
  EXPECT_EQ(timed_window("time-short", 100'000), 1000U) << "at most";
}

// Simulated counters: one sample at the end of a window, and the calls.
class Counters final : public PmSampling {
 public:
  explicit Counters(std::vector<std::string>& calls) : calls_(calls) {}
  void begin() override { calls_.emplace_back("begin"); }
  Measured end(std::uint64_t from_ns, std::uint64_t to_ns) override {
    calls_.emplace_back(to_ns > from_ns ? "window" : "nothing");
    if (to_ns <= from_ns) return {};
    return {{{to_ns, record::Name("gpu 0 DRAM %", Kind::metric).id(), 0, 42}}, {"a note"}};
  }
  std::string what() const override { return "DRAM %"; }

 private:
  std::vector<std::string>& calls_;
};

TEST(Recorder, KeepsTheGpusCountersOfItsWindows) {
  std::vector<std::string> calls;
  RecordedRun run("counters", Level::spans, "skip_first=1,wait=1,warmup=1,active=2,repeat=2", 100,
                  {std::make_unique<Counters>(calls), "in part"});
  run.steps(20);
  run.recorder().finish();
  EXPECT_THAT(calls, ElementsAre("begin", "window", "begin", "window"));
  const Session session = run.session();
  ASSERT_EQ(session.samples.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(session.name(session.samples[i].name), "gpu 0 DRAM %");
    EXPECT_EQ(session.samples[i].at_ns, session.windows[i].end_ns);
    EXPECT_EQ(session.samples[i].value, 42);
  }
  EXPECT_THAT(session.notes, ElementsAre("in part", "a note", "a note"));
}

// A trace of kernels on two GPUs and of a launch.
class TwoGpus final : public DeviceTrace {
 public:
  void begin() override {}
  Traced end() override {
    const std::uint32_t kernel = record::Name("k", Kind::kernel).id();
    const std::uint64_t now = now_ns();
    Traced traced;
    for (const auto& [device, what] : {std::pair{0U, What::kernel}, std::pair{1U, What::kernel},
                                       std::pair{1U, What::copy}, std::pair{1U, What::api}})
      traced.activities.push_back(
          {.start_ns = now, .end_ns = now + 1, .name = kernel, .device = device, .what = what});
    return traced;
  }
};

TEST(Recorder, LeavesOutTheWorkOfGpusThatTheSessionDoesNotDescribe) {
  const std::filesystem::path path = testing::own_folder() / "foreign.prof";
  Recorder recorder({.level = Level::deep,
                     .schedule = parse_schedule("skip_first=0,warmup=0,active=1"),
                     .path = path,
                     .trace = {std::make_unique<TwoGpus>(), ""},
                     .listens = false,
                     .samples = false});
  recorder.set_devices({{.id = 0, .name = record::Name("a GPU").id()}});
  recorder.begin(1, {0, 100});
  const std::uint64_t begin = now_ns();
  recorder.on_step({.step = 1, .epoch = 1, .begin_ns = begin, .end_ns = begin + 5, .other_ns = 5},
                   {1, 100});
  recorder.finish();
  const Session session = read_session(path);  // unreadable with activities of other devices
  ASSERT_EQ(session.activities.size(), 2U);
  EXPECT_EQ(session.activities[0].device, 0U);
  EXPECT_EQ(session.activities[1].what, What::api);
  EXPECT_THAT(session.notes,
              ElementsAre("2 records of GPUs that the run does not compute on are left out"));
}

TEST(Recorder, StopsTheGpusCountersWhenTheRunEndsInAWarmup) {
  std::vector<std::string> calls;
  RecordedRun run("warmup", Level::spans, "skip_first=1,wait=0,warmup=5,active=2,repeat=1", 100,
                  {std::make_unique<Counters>(calls), ""});
  run.steps(3);
  run.recorder().finish();
  EXPECT_THAT(calls, ElementsAre("begin", "nothing"));
  EXPECT_THAT(run.session().samples, IsEmpty());
}

TEST(Level, IsOneOfFour) {
  EXPECT_EQ(parse_level("deep"), Level::deep);
  EXPECT_EQ(name(Level::spans), "spans");
  EXPECT_THROW(parse_level("all"), UsageError);
}

TEST(Recorder, KeepsReadingsOfRankZerosClock) {
  const RankClock zero({.address = parse_rank("0@127.0.0.1:0")});
  const std::filesystem::path path = testing::own_folder() / "rank1.prof";
  RecorderOptions options;
  options.path = path;
  options.listens = options.samples = false;
  options.rank = RankAddress{1, "127.0.0.1", std::to_string(zero.port())};
  Recorder recorder(std::move(options));
  recorder.finish();
  const Session session = read_session(path);
  ASSERT_FALSE(session.peer_clocks.empty());
  EXPECT_GT(session.peer_clocks.front().round_trip_ns, 0U);
  EXPECT_THAT(session.notes, IsEmpty());
}

// A file with such steps has no reader.
TEST(Recorder, LeavesOutStepsThatDoNotFollow) {
  const auto path = testing::own_folder() / "follow.prof";
  Recorder recorder({.level = Level::spans,
                     .schedule = parse_schedule("skip_first=0,warmup=0,active=100"),
                     .path = path,
                     .listens = false,
                     .samples = false});
  recorder.begin(1, {0, 100});
  const std::uint64_t begin = now_ns() + 1'000'000;
  const auto add = [&](std::uint64_t step, std::uint64_t from, std::uint64_t to) {
    recorder.on_step({.step = step,
                      .epoch = 1,
                      .begin_ns = begin + from,
                      .end_ns = begin + to,
                      .other_ns = to > from ? to - from : 0},
                     {step, 100});
  };
  add(0, 0, 100);
  add(0, 100, 200);  // the number does not rise
  add(2, 50, 200);   // overlaps
  add(3, 300, 200);  // ends before it begins
  add(4, 100, 200);
  recorder.finish();
  EXPECT_THAT(recorder.notes(),
              Contains(HasSubstr("was left out, and maybe others: numbers of steps rise")));
  const Session session = read_session(path);
  ASSERT_EQ(session.steps.size(), 2U);
  EXPECT_EQ(session.steps[1].step, 4U);
}

TEST(Recorder, SaysThatAnotherOneRan) {
  const auto make = [](const char* name) {
    return std::make_unique<Recorder>(
        RecorderOptions{.path = testing::own_folder() / name, .listens = false, .samples = false});
  };
  const auto warning = HasSubstr("another recorder of this process ran at the same time");
  const auto alone = make("alone.prof");
  alone->finish();
  const auto first = make("first.prof"), second = make("second.prof");
  second->finish();
  first->finish();
  EXPECT_THAT(alone->notes(), IsEmpty());
  EXPECT_THAT(first->notes(), Contains(warning));
  EXPECT_THAT(second->notes(), Contains(warning));
}

}  // namespace
}  // namespace warpstep::profiler
