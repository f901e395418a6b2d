#include "profiler/recorder/recorder.h"

#include <gmock/gmock.h>

#include <functional>
#include <vector>

#include "engine/core/error.h"

namespace warpstep::profiler {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

char letter(Action action) {
  return "NWRS"[static_cast<int>(action)];
}

std::string torch_table(const ProfileSchedule& schedule, std::uint64_t steps) {
  std::string table;
  for (std::uint64_t step = 0; step < steps; ++step) table += letter(torch_action(schedule, step));
  return table;
}

std::string composer_table(const ProfileSchedule& schedule, std::uint64_t batches,
                           std::uint64_t resumed_at = 0) {
  std::string table;
  for (std::uint64_t batch = 0; batch < batches; ++batch)
    table += letter(composer_action(schedule, batch, batches, resumed_at));
  return table;
}

constexpr ProfileSchedule base{
    .skip_first = 1, .wait = 1, .warmup = 1, .active = 2, .repeat = 2, .skip_first_wait = 0};

TEST(Schedule, IsTorchsOverARun) {
  ProfileSchedule schedule = base;
  EXPECT_EQ(torch_table(schedule, 11), "NNWRSNWRSNN");
  schedule.repeat = 0;
  EXPECT_EQ(torch_table(schedule, 17), "NNWRSNWRSNWRSNWRS");
  schedule.repeat = 2;
  schedule.skip_first_wait = 1;
  EXPECT_EQ(torch_table(schedule, 11), "NWRSNWRSNNN");
}

TEST(Schedule, IsComposersOverAnEpoch) {
  ProfileSchedule schedule = base;
  schedule.repeat = 1;
  EXPECT_EQ(composer_table(schedule, 10), "NNWRSNNNNN");
  schedule.repeat = 0;
  EXPECT_EQ(composer_table(schedule, 10), "NNWRSNWRSN");
  EXPECT_EQ(composer_table(schedule, 8), "NNWRSNWS") << "an active last batch saves early";
  EXPECT_EQ(composer_table(schedule, 7), "NNWRSNW") << "one that warms up does not";
  EXPECT_EQ(composer_table(schedule, 10, 3), "NNNNNWRSNW") << "a resumed epoch skips more";
}

TEST(Schedule, NeverRecordsWithoutActiveSteps) {
  ProfileSchedule schedule = base;
  schedule.active = schedule.wait = schedule.warmup = 0;
  EXPECT_EQ(torch_table(schedule, 5), "NNNNN");
  EXPECT_EQ(composer_table(schedule, 5), "NNNNN");
}

// The two schedules written differently: window by window instead of by remainders.
std::string written_out(const ProfileSchedule& schedule, std::uint64_t skipped, std::uint64_t steps,
                        bool first_waits, bool saves_at_end) {
  std::string table(skipped, 'N');
  for (std::uint64_t window = 0; table.size() < steps; ++window) {
    if (schedule.repeat != 0 && window == schedule.repeat) {
      table.append(steps - table.size(), 'N');
      break;
    }
    if (window != 0 || first_waits) table.append(schedule.wait, 'N');
    table.append(schedule.warmup, 'W');
    table.append(schedule.active - 1, 'R');
    table += 'S';
  }
  table.resize(steps);
  if (saves_at_end && !table.empty() && table.back() == 'R') table.back() = 'S';
  return table;
}

void for_all_small(const std::function<void(const ProfileSchedule&)>& check) {
  ProfileSchedule schedule;
  for (schedule.skip_first = 0; schedule.skip_first < 4; ++schedule.skip_first)
    for (schedule.wait = 0; schedule.wait < 4; ++schedule.wait)
      for (schedule.warmup = 0; schedule.warmup < 3; ++schedule.warmup)
        for (schedule.active = 1; schedule.active < 4; ++schedule.active)
          for (schedule.repeat = 0; schedule.repeat < 4; ++schedule.repeat)
            for (schedule.skip_first_wait = 0; schedule.skip_first_wait < 2;
                 ++schedule.skip_first_wait)
              check(schedule);
}

TEST(Schedule, AgreesWithTorchsWindowsWrittenOut) {
  for_all_small([](const ProfileSchedule& schedule) {
    EXPECT_EQ(torch_table(schedule, 40),
              written_out(schedule, schedule.skip_first, 40, schedule.skip_first_wait == 0, false))
        << to_text(schedule);
  });
}

TEST(Schedule, AgreesWithComposersWindowsWrittenOut) {
  for_all_small([](const ProfileSchedule& schedule) {
    for (std::uint64_t batches = 0; batches < 14; ++batches)
      for (const std::uint64_t resumed_at : {0, 2})
        EXPECT_EQ(composer_table(schedule, batches, resumed_at),
                  written_out(schedule, schedule.skip_first + resumed_at, batches, true, true))
            << to_text(schedule) << " of " << batches << " from " << resumed_at;
  });
}

bool same(const ProfileSchedule& a, const ProfileSchedule& b) {
  return a.skip_first == b.skip_first && a.wait == b.wait && a.warmup == b.warmup &&
         a.active == b.active && a.active_ns == b.active_ns && a.repeat == b.repeat &&
         a.skip_first_wait == b.skip_first_wait && a.per_epoch == b.per_epoch;
}

TEST(ScheduleText, IsReadBack) {
  EXPECT_EQ(to_text(ProfileSchedule{}), "skip_first=5,wait=0,warmup=2,active=20,repeat=1,per=run");
  for_all_small([](ProfileSchedule schedule) {
    EXPECT_TRUE(same(parse_schedule(to_text(schedule)), schedule)) << to_text(schedule);
    schedule.skip_first_wait = 0;
    schedule.per_epoch = true;
    EXPECT_TRUE(same(parse_schedule(to_text(schedule)), schedule)) << to_text(schedule);
  });
}

TEST(ScheduleText, KeepsDefaultsOfMissingKeys) {
  ProfileSchedule expected;
  expected.active = most_timed_steps;
  expected.active_ns = 3'000'000'000;
  EXPECT_TRUE(same(parse_schedule(""), expected));
  EXPECT_EQ(to_text(expected), "skip_first=5,wait=0,warmup=2,active=3s,repeat=1,per=run");
  EXPECT_TRUE(same(parse_schedule(to_text(expected)), expected));
  EXPECT_EQ(parse_schedule("active=5s").active_ns, 5'000'000'000U);
  expected.active_ns = 0;
  expected.active = 3;
  expected.per_epoch = true;
  EXPECT_TRUE(same(parse_schedule("per=epoch,active=3"), expected));
}

std::string refusal(const std::string& text) {
  try {
    parse_schedule(text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "taken";
}

TEST(ScheduleText, IsRefusedWithThePartAndTheKnownKeys) {
  EXPECT_THAT(
      refusal("wait=1,warmpu=2"),
      AllOf(HasSubstr("'warmpu=2'"), HasSubstr("did you mean warmup?"),
            HasSubstr("skip_first, wait, warmup, active, repeat"), HasSubstr("per=run|epoch")));
  EXPECT_THAT(refusal("wait"), AllOf(HasSubstr("'wait'"), HasSubstr("per=run|epoch")));
  for (const char* text : {"wait=1,", ",", ",wait=1", "wait=1,,active=2", "=", "=1"})
    EXPECT_THAT(refusal(text), HasSubstr("per=run|epoch")) << text;
  for (const char* part : {"wait=", "wait=-1", "wait=1.5", "wait=x", "wait= 1", "wait=1 ",
                           "wait=1000000000001", "wait=99999999999999999999"})
    EXPECT_THAT(refusal(part),
                AllOf(HasSubstr(std::string("'") + part + "'"), HasSubstr("whole number")));
  for (const char* part : {"active=s", "active=0s", "active=1.5s", "active=99999999s"})
    EXPECT_THAT(refusal(part),
                AllOf(HasSubstr(std::string("'") + part + "'"), HasSubstr("whole seconds")));
  EXPECT_THAT(refusal("active=5x"), AllOf(HasSubstr("'active=5x'"), HasSubstr("active=5s")));
  EXPECT_THAT(refusal("active=60sec"), HasSubstr("active=60s"));
  for (const char* part : {"active=", "active=x", "active=0x", "active=-3", "active=99999999x"})
    EXPECT_THAT(refusal(part), HasSubstr("whole seconds, such as active=5s")) << part;
  EXPECT_THAT(refusal("per=step"), AllOf(HasSubstr("'per=step'"), HasSubstr("per=epoch")));
  EXPECT_THAT(refusal("active=0"), HasSubstr("record nothing"));
  EXPECT_THAT(refusal("wait=1,wait=2"), HasSubstr("'wait' is given twice"));
  EXPECT_THAT(refusal("skip_first_wait=1,per=epoch"), HasSubstr("works only with per=run"));
}

}  // namespace
}  // namespace warpstep::profiler
