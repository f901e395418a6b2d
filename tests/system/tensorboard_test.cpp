// --tensorboard: the event files of a run, read back, also after a kill and a resume.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <optional>
#include <set>
#include <span>

#include "engine/core/checksum.h"
#include "engine/core/file.h"
#include "profiler/export/testing_proto.h"
#include "tests/system/program.h"
#include "tests/system/sets.h"

namespace warpstep::system_test {
namespace {

namespace fs = std::filesystem;
using profiler::testing::ProtoView;
using testing::HasSubstr;

struct Event {
  double wall_time = 0;
  std::uint64_t step = 0;
  std::string version;
  bool restarts = false;
  std::map<std::string, float> scalars;
};

std::uint64_t number_at(std::string_view file, std::size_t at, int bytes) {
  std::uint64_t value = 0;
  for (int i = bytes; i-- > 0;)
    value = value << 8 | static_cast<unsigned char>(file[at + static_cast<std::size_t>(i)]);
  return value;
}

std::uint32_t masked(std::string_view bytes) {
  const std::uint32_t crc =
      crc32c(std::span(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()));
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

Event event_of(std::string_view message) {
  const ProtoView view(message);
  Event event{view.real(1), view.number(2), view.text(3), view.message(7).number(1) == 1, {}};
  for (const ProtoView& value : view.message(5).messages(1))
    event.scalars[value.text(1)] = value.real32(2);
  return event;
}

// All whole records; a checksum that is wrong fails the test. `rest` is what remains at the end.
std::vector<Event> events_of(std::string_view file, std::size_t* rest = nullptr) {
  std::vector<Event> events;
  while (file.size() >= 12) {
    EXPECT_EQ(number_at(file, 8, 4), masked(file.substr(0, 8)));
    const std::uint64_t bytes = number_at(file, 0, 8);
    if (file.size() < 16 + bytes) break;
    const std::string_view message = file.substr(12, bytes);
    EXPECT_EQ(number_at(file, 12 + bytes, 4), masked(message));
    events.push_back(event_of(message));
    file.remove_prefix(16 + bytes);
  }
  if (rest != nullptr) *rest = file.size();
  return events;
}

// In the order of their names.
std::vector<fs::path> event_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

// As TensorBoard reads a folder: a restart discards what was read from its step on.
std::vector<Event> events_in(const fs::path& folder) {
  std::vector<Event> all;
  for (const fs::path& path : event_files(folder))
    for (Event& event : events_of(read_file(path))) {
      if (event.restarts)
        std::erase_if(all, [&](const Event& earlier) { return earlier.step >= event.step; });
      else if (event.version.empty())
        all.push_back(std::move(event));
    }
  return all;
}

void expect_metrics(const std::string& run, const std::vector<Event>& events) {
  const std::vector<Json> lines = metrics(run);
  ASSERT_EQ(events.size(), lines.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Json& line = lines[i];
    const std::string kind = line["kind"];
    const std::string prefix = kind == "step"         ? "train/"
                               : kind == "evaluation" ? "validation/"
                                                      : "epoch/";
    std::map<std::string, float> expected;
    for (const auto& [key, value] : line.items())
      if (value.is_number() && key != "step" && key != "time")
        expected[prefix + key] = value.get<float>();
    EXPECT_EQ(events[i].step, line["step"]);
    EXPECT_EQ(events[i].wall_time, line["time"].get<double>());
    EXPECT_EQ(events[i].scalars, expected) << line;
  }
}

std::set<std::string> tags_of(const std::vector<Event>& events) {
  std::set<std::string> tags;
  for (const Event& event : events)
    for (const auto& [tag, value] : event.scalars) tags.insert(tag);
  return tags;
}

class TensorBoard : public testing::Test {
 protected:
  void SetUp() override { make_set(data_); }

  const TemporaryFolder folder_;
  const std::string data_ = folder_ / "data";
  const std::string out_ = folder_ / "run";
  const std::string board_ = out_ + "/tensorboard";
};

TEST_F(TensorBoard, HasAllMetricsAndTheMachine) {
  const Ended ended = run(with(short_run(data_, out_), "--tensorboard", "--clip-norm", "1"));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("curves: tensorboard --logdir " + board_));
  const std::vector<Event> events = events_in(board_);
  expect_metrics(out_, events);
  for (const char* tag :
       {"train/loss", "train/accuracy", "train/learning_rate", "train/gradient_norm",
        "train/images_per_second", "validation/loss", "validation/accuracy", "epoch/loss"})
    EXPECT_TRUE(tags_of(events).contains(tag)) << tag;
  const std::vector<Event> machine = events_in(board_ + "/system");
  EXPECT_GE(machine.size(), 2U) << "the first and the last sample";
  for (const char* tag :
       {"system/process_rss_MB", "system/process_cpu_percent", "system/cpu_percent"})
    EXPECT_TRUE(tags_of(machine).contains(tag)) << tag;
  for (std::size_t i = 1; i < machine.size(); ++i) EXPECT_GT(machine[i].step, machine[i - 1].step);

  // A file that ends at any byte has all whole records before it.
  const std::string file = read_file(event_files(board_).at(0));
  std::size_t whole = 0;
  for (std::size_t bytes = 0; bytes <= file.size(); bytes += bytes + 400 < file.size() ? 37 : 1) {
    std::size_t rest = 0;
    const std::size_t count = events_of(std::string_view(file).substr(0, bytes), &rest).size();
    EXPECT_GE(count, whole);
    whole = count;
  }
  EXPECT_EQ(whole, events.size() + 1) << "and the version";

  ASSERT_EQ(run(with(short_run(data_, out_), "--overwrite")).exit_code, 0);
  EXPECT_FALSE(fs::exists(board_)) << "the curves of the earlier run";
}

TEST_F(TensorBoard, AResumedRunReplacesStepsAfterItsCheckpoint) {
  Program killed(with(endless_run(data_, out_), "--tensorboard", "--checkpoint-every", "4",
                      "--keep-checkpoints", "0"));
  ASSERT_TRUE(killed.wait_until([&] { return checkpoints(out_).size() > 3; }));
  killed.signal(SIGKILL);
  killed.wait();
  std::size_t rest = 0;
  const fs::path first = event_files(board_).at(0);
  EXPECT_FALSE(events_of(read_file(first), &rest).empty());
  EXPECT_EQ(rest, 0U) << "records are written whole";
  std::ofstream(first, std::ios::app | std::ios::binary) << "part";  // as after a power cut

  const fs::path from = checkpoints(out_).at(1);
  const std::uint64_t step = std::stoull(from.stem().string().substr(11));
  const Ended ended =
      run({"train", "--resume", from, "--epochs", "0", "--steps", std::to_string(step + 8)});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const std::vector<fs::path> files = event_files(board_);
  ASSERT_EQ(files.size(), 2U) << "the option is the run's own";
  const std::vector<Event> second = events_of(read_file(files[1]));
  ASSERT_GE(second.size(), 3U);
  EXPECT_EQ(second[0].version, "brain.Event:2");
  EXPECT_TRUE(second[1].restarts);
  EXPECT_EQ(second[1].step, step + 1);
  expect_metrics(out_, events_in(board_));
}

}  // namespace
}  // namespace warpstep::system_test
