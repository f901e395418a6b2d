// Sessions that somebody has altered, with checksums that fit: they are refused, or what they
// export is as sound as any.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/file.h"
#include "profiler/export/export.h"
#include "profiler/export/testing_sessions.h"
#include "profiler/session/session_file.h"
#include "profiler/sources/testing_tree.h"

namespace warpstep::profiler {
namespace {

using ::testing::IsEmpty;
using namespace testing;

constexpr int mutations = 100;  // of each session and seed

std::string written(const Session& session) {
  const auto path = testing::own_folder() / "mutated_session_test.prof";
  SessionWriter(path).write(session);
  return read_file(path);
}

struct ChunkAt {
  std::size_t at = 0;
  ChunkHeader header;
};

std::vector<ChunkAt> record_chunks(const std::string& file) {
  std::vector<ChunkAt> chunks;
  ChunkAt chunk;
  for (; chunk.at < file.size(); chunk.at += sizeof chunk.header + chunk.header.bytes) {
    std::memcpy(&chunk.header, file.data() + chunk.at, sizeof chunk.header);
    const auto type = static_cast<Chunk>(chunk.header.type);
    const bool is_list = type == Chunk::names || type == Chunk::threads;  // JSON
    if (chunk.header.record_bytes > 1 && !is_list) chunks.push_back(chunk);
  }
  return chunks;
}

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  // One field of one record becomes something else, and the checksums are made again.
  std::string mutate(std::string file) {
    const auto chunks = record_chunks(file);
    ChunkAt chunk = chunks[below(chunks.size())];
    char* const payload = file.data() + chunk.at + sizeof chunk.header;
    const std::size_t record = below(chunk.header.count) * chunk.header.record_bytes;
    const std::size_t bytes = below(2) == 0 ? 8 : below(2) == 0 ? 4 : 1;
    const std::size_t field = below(chunk.header.record_bytes / bytes) * bytes;
    std::uint64_t value = 0;
    std::memcpy(&value, payload + record + field, bytes);
    value = changed(value);
    if (below(4) == 0)  // another record's
      std::memcpy(&value, payload + below(chunk.header.count) * chunk.header.record_bytes + field,
                  bytes);
    std::memcpy(payload + record + field, &value, bytes);
    chunk.header.payload_crc =
        checksum(std::as_bytes(std::span(payload, static_cast<std::size_t>(chunk.header.bytes))));
    chunk.header.header_crc = header_checksum(chunk.header);
    std::memcpy(file.data() + chunk.at, &chunk.header, sizeof chunk.header);
    return file;
  }

 private:
  std::size_t below(std::uint64_t count) { return static_cast<std::size_t>(random_() % count); }
  std::uint64_t changed(std::uint64_t value) {
    switch (below(8)) {
      case 0: return 0;
      case 1: return value + 1;
      case 2: return value - 1;
      case 3: return ~std::uint64_t{0};
      case 4: return std::uint64_t{1} << 63;
      case 5: return value ^ (std::uint64_t{1} << below(64));
      case 6: return value + below(2'000'000);
      default: return random_();
    }
  }
  std::mt19937_64 random_;
};

// But for too few steps: an altered session may have lost its windows, as a short run has none.
std::vector<std::string> findings(const Session& session) {
  std::vector<std::string> found = check_kineto(kineto_json(session));
  if (session.computes_on_host())
    std::ranges::copy(check_kineto(kineto_json(session, {.cpu_as_device = true})),
                      std::back_inserter(found));
  EXPECT_FALSE(xplane_space(session).empty());
  EXPECT_FALSE(memory_snapshot(session).empty());
  EXPECT_FALSE(tensorboard_machine_events(session).empty());
  std::erase_if(found, [](const std::string& text) {
    return text.starts_with("There is no step") || text.starts_with("There is one step");
  });
  return found;
}

class MutatedSession : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(MutatedSession, IsRefusedOrExportsWhatReadersTake) {
  Mutator mutator(GetParam());
  std::size_t read = 0, refused = 0;
  for (SessionBuilder builder : {device_session(3), host_session(3)}) {
    const std::string file = written(builder.build());
    ASSERT_THAT(findings(parse_session(file, "whole")), IsEmpty());
    for (int i = 0; i < mutations; ++i) {
      SCOPED_TRACE(i);
      Session session;
      try {
        session = parse_session(mutator.mutate(file), "mutated");
      } catch (const DataError&) {
        ++refused;
        continue;
      }
      ++read;
      EXPECT_THAT(findings(session), IsEmpty());
    }
  }
  EXPECT_GT(read, mutations / 4U);
  EXPECT_GT(refused, mutations / 4U);
}

INSTANTIATE_TEST_SUITE_P(Seeds, MutatedSession, ::testing::Values(1, 2));

}  // namespace
}  // namespace warpstep::profiler
