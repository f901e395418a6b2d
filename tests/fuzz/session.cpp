// Session files: every file that is read keeps the promises of session.h, and can be written and
// read again unchanged. Each input is also tried with its chunks' frames repaired, so that damage
// gets past the checksums.
#include "profiler/session/session.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <tuple>

#include "engine/core/error.h"
#include "engine/core/file.h"
#include "profiler/session/session_file.h"
#include "profiler/session/testing_builder.h"
#include "tests/fuzz/harness/target.h"

namespace warpstep::fuzz::session_target {
namespace {

using profiler::ChunkHeader;
using profiler::Session;

Bytes written(const Session& session) {
  const std::string path = file_of("written.prof", {});
  profiler::SessionWriter(path).write(session);
  const std::string text = read_file(path);
  return {text.begin(), text.end()};
}

std::optional<Session> parsed(Input file) {
  try {
    return profiler::parse_session({reinterpret_cast<const char*>(file.data()), file.size()},
                                   "input");
  } catch (const DataError&) {
    return std::nullopt;
  }
}

void check(const Session& session, std::size_t bytes) {
  promise(session.losses.cut_bytes < bytes, "not everything is cut off");
  promise(std::is_sorted(session.spans.begin(), session.spans.end(),
                         [](const auto& a, const auto& b) {
                           return std::tuple(a.thread, a.begin_ns, ~a.end_ns) <
                                  std::tuple(b.thread, b.begin_ns, ~b.end_ns);
                         }),
          "spans are in order");
  for (const auto& span : session.spans)
    promise(span.begin_ns <= span.end_ns && span.name < session.names.size() &&
                span.thread < session.threads.size(),
            "spans have a name, a thread and a time");
  for (const auto& activity : session.activities)
    promise((!has_times(activity) || activity.start_ns <= activity.end_ns) &&
                activity.name < session.names.size(),
            "activities have a name, and their times are in order");
  for (const auto& sample : session.samples)
    promise(sample.name < session.names.size() && std::isfinite(sample.value),
            "samples have a name and a value");
  for (const auto& phase : session.phases)
    promise(phase.begin_ns <= phase.end_ns && phase.ns <= phase.end_ns - phase.begin_ns,
            "phases last no longer than from begin to end");
  for (const auto& device : session.devices)
    promise(device.name < session.names.size(), "devices have a name");
  for (const auto& step : session.steps)
    promise(step.begin_ns <= step.end_ns &&
                step.data_ns + step.copies_ns + step.kernels_ns + step.cpu_ns + step.other_ns ==
                    step.end_ns - step.begin_ns,
            "a step's parts are the step");
}

void check(Input file) {
  std::optional<Session> session = parsed(file);
  if (!session) return;
  check(*session, file.size());
  profiler::Losses& losses = session->losses;  // of this file, not of the next
  losses.cut_bytes = losses.damaged_chunks = losses.damaged_bytes = losses.damaged_records = 0;
  const Bytes once = written(*session);
  const std::optional<Session> again = parsed(once);
  promise(again.has_value(), "what was read is written as a sound file");
  promise(written(*again) == once, "a session is the same after a file");
}

// Cuts the file at each chunk's magic and gives each part a frame that fits it.
Bytes reframed(Input input) {
  Bytes file(input.begin(), input.end());
  const ChunkHeader good;
  const auto* magic = reinterpret_cast<const std::uint8_t*>(&good.magic);
  const auto next = [&](std::size_t from) {
    return static_cast<std::size_t>(
        std::search(file.begin() + static_cast<std::ptrdiff_t>(std::min(from, file.size())),
                    file.end(), magic, magic + sizeof good.magic) -
        file.begin());
  };
  std::uint32_t id = 0;
  for (std::size_t at = next(0); at + sizeof good <= file.size();) {
    const std::size_t end = next(at + sizeof good);
    ChunkHeader header;
    std::memcpy(&header, file.data() + at, sizeof header);
    header.id = id++;
    header.bytes = end - at - sizeof header;
    if (header.record_bytes != 0 && header.bytes % header.record_bytes == 0)
      header.count = header.bytes / header.record_bytes;
    header.payload_crc = profiler::checksum(
        std::as_bytes(std::span(file).subspan(at + sizeof header, header.bytes)));
    header.header_crc = profiler::header_checksum(header);
    std::memcpy(file.data() + at, &header, sizeof header);
    at = end;
  }
  return file;
}

void run(Input input) {
  check(input);
  check(reframed(input));
}

Session small_session(bool gpu) {
  profiler::testing::SessionBuilder builder;
  if (gpu) builder.gpu();
  builder.thread(4301, "loader 0")
      .step(1, 0, 900, 300, 200, 70)
      .step(2, 1000, 1900, 300, 200, 70)
      .window(1, 2, 0, 1900, gpu)
      .span(profiler::Kind::call, "conv1", 260, 360, 0, 3)
      .span(profiler::Kind::stage, "decode", 20, 170, 1)
      .sample("cpu %", 500, 73.5);
  if (gpu) builder.launch(300, 320, profiler::What::kernel, "sm90_gemm", 340, 540);
  Session& session = builder.raw();
  session.stamp = {{"seed", 7}, {"host", {{"cores", 2}, {"load", {0.5, 1}}}}};
  session.loader = {{"workers", 2}};
  session.notes = {"one note", ""};
  session.clocks.push_back({1, 2, 3, 4});
  session.losses.entries = 3;
  return builder.build();
}

std::vector<Bytes> seeds() {
  return {written(small_session(true)), written(small_session(false)), written(Session())};
}

const Registered target_{"session", run, seeds};

}  // namespace
}  // namespace warpstep::fuzz::session_target
