#include "engine/core/record.h"

#include <gmock/gmock.h>

#include <map>
#include <thread>

namespace warpstep::record {
namespace {

using Entries = std::map<std::uint32_t, std::vector<Entry>>;

Entries drained() {
  Entries entries;
  drain([&](std::uint32_t thread, std::span<const Entry> some) {
    entries[thread].insert(entries[thread].end(), some.begin(), some.end());
  });
  return entries;
}

std::size_t count(const Entries& entries) {
  std::size_t sum = 0;
  for (const auto& [thread, some] : entries) sum += some.size();
  return sum;
}

class Record : public ::testing::Test {
 protected:
  Record() { keep_entries(true); }
  ~Record() override {
    keep_entries(false);
    drained();
  }
};

TEST_F(Record, KeepsSpansWithNamesAndTimes) {
  const Name outer{"outer"}, inner{"inner", Kind::call};
  const std::uint64_t before = now_ns();
  {
    const Span a(outer, 7);
    const Span b(inner, 3);
  }
  const Entries entries = drained();
  ASSERT_EQ(entries.size(), 1U);
  const std::vector<Entry>& mine = entries.begin()->second;
  ASSERT_EQ(mine.size(), 2U);
  EXPECT_EQ(names()[mine[0].name].text, "inner");
  EXPECT_EQ(mine[0].kind, Kind::call);
  EXPECT_EQ(mine[0].arg, 3U);
  EXPECT_EQ(names()[mine[1].name].text, "outer");
  EXPECT_EQ(mine[1].arg, 7U);
  EXPECT_LE(before, mine[1].begin_ns);
  EXPECT_LE(mine[1].begin_ns, mine[0].begin_ns);
  EXPECT_LE(mine[0].end_ns, mine[1].end_ns);
}

TEST_F(Record, InternsTextAndKindOnce) {
  EXPECT_EQ(Name("same").id(), Name("same").id());
  EXPECT_NE(Name("same").id(), Name("same", Kind::call).id());
}

TEST_F(Record, KeepsNothingWhenOff) {
  keep_entries(false);
  const Name name{"off"};
  { const Span span(name); }
  mark(name, 1);
  note(name, 1, 2);
  EXPECT_EQ(count(drained()), 0U);
}

// A span that began while recording was off has no begin time.
TEST_F(Record, KeepsASpanOnlyIfItWasOnFromItsBegin) {
  const Name name{"half"};
  keep_entries(false);
  {
    const Span span(name);
    keep_entries(true);
  }
  EXPECT_EQ(count(drained()), 0U);
}

TEST_F(Record, CountsWhatAFullRingLost) {
  const std::uint64_t before = dropped();
  const Name name{"flood"};
  constexpr std::size_t extra = 100;
  for (std::size_t i = 0; i < ring_entries + extra; ++i) mark(name, i);
  const Entries entries = drained();
  EXPECT_EQ(dropped() - before, extra);
  ASSERT_EQ(count(entries), ring_entries);
  // The oldest are lost.
  EXPECT_EQ(entries.begin()->second.front().arg, extra);
  EXPECT_EQ(entries.begin()->second.back().arg, ring_entries + extra - 1);
  mark(name, 5);
  EXPECT_EQ(count(drained()), 1U);
}

Entries copied(std::uint64_t since_ns, std::uint64_t* complete_ns = nullptr) {
  Entries entries;
  const std::uint64_t from = copy(since_ns, [&](std::uint32_t thread, std::span<const Entry> some) {
    entries[thread].insert(entries[thread].end(), some.begin(), some.end());
  });
  if (complete_ns != nullptr) *complete_ns = from;
  return entries;
}

TEST_F(Record, CopiesTheNewestAndLeavesThem) {
  const Name name{"copied"};
  const std::uint64_t begin = now_ns();
  for (std::size_t i = 0; i < 1000; ++i) mark(name, i);
  const std::uint64_t middle = now_ns();
  for (std::size_t i = 0; i < 700; ++i) mark(name, i);
  std::uint64_t complete = 0;
  EXPECT_EQ(count(copied(middle, &complete)), 700U);
  EXPECT_EQ(complete, middle);
  EXPECT_EQ(count(copied(begin)), 1700U);
  EXPECT_EQ(count(drained()), 1700U);
  EXPECT_EQ(count(copied(begin)), 1700U);
  for (std::size_t i = 0; i < ring_entries; ++i) mark(name, i);
  EXPECT_EQ(count(copied(begin, &complete)), ring_entries);
  EXPECT_GT(complete, middle);  // what came before was overwritten
}

TEST_F(Record, KeepsDetailsOnlyWhereAskedButLongOnesAlways) {
  keep(Keep::coarse);
  const std::uint64_t begin = now_ns();
  const Name call{"a call", Kind::call}, stage{"a stage", Kind::stage}, wait{"a wait", Kind::wait};
  { const Span span(call); }
  { const Span span(wait); }
  note(stage, begin, begin + long_detail_ns - 1);
  note(stage, begin, begin + long_detail_ns);
  EXPECT_EQ(count(copied(begin)), 2U);
  keep(Keep::detailed);
  { const Span span(call); }
  EXPECT_EQ(count(copied(begin)), 3U);
  const std::uint64_t lost = dropped();
  for (std::size_t i = 0; i < 2 * ring_entries; ++i) mark(wait, i);
  keep(Keep::all);  // from here on
  mark(wait, 7);
  EXPECT_EQ(count(drained()), 1U);
  EXPECT_EQ(dropped(), lost);
}

TEST_F(Record, CountsANameAsADetailThatSaysSo) {
  keep(Keep::coarse);
  const std::uint64_t begin = now_ns();
  const Name many{"a call of an evaluation", Kind::range, true};
  { const Span span(many); }
  EXPECT_EQ(count(copied(begin)), 0U);
  keep(Keep::detailed);
  { const Span span(many); }
  EXPECT_EQ(count(copied(begin)), 1U);
}

TEST_F(Record, TakesTimesThatTheCallerHasRead) {
  const Name name{"timed"};
  {
    Span span(name, 7, 1000);
    span.end(2500);
    span.end(9999);  // it has ended
  }
  const Entries entries = drained();
  ASSERT_EQ(count(entries), 1U);
  const Entry& entry = entries.begin()->second.front();
  EXPECT_EQ(entry.begin_ns, 1000U);
  EXPECT_EQ(entry.end_ns, 2500U);
  EXPECT_EQ(entry.arg, 7U);
}

TEST_F(Record, CopiesNoTornEntriesWhileThreadsWrite) {
  keep(Keep::detailed);
  const Name name{"busy"};
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] {
      for (std::uint64_t k = 1; !stop; ++k) note(name, k, 2 * k, 3 * k);
    });
  std::uint64_t seen = 0;
  const std::uint64_t before = recorded();
  while (recorded() < before + 100'000) std::this_thread::yield();
  for (int round = 0; round < 200 && (round < 20 || seen == 0); ++round)
    copy(0, [&](std::uint32_t, std::span<const Entry> some) {
      for (const Entry& entry : some) {
        if (entry.name != name.id()) continue;
        ++seen;
        ASSERT_EQ(entry.end_ns, 2 * entry.begin_ns);
        ASSERT_EQ(entry.arg, 3 * entry.begin_ns);
      }
    });
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(seen, 0U);
}

TEST_F(Record, ReadsEveryEntryOfManyThreadsWhileTheyWrite) {
  constexpr int writers = 4;
  constexpr std::uint64_t each = 100'000;
  const Name name{"from a thread"};
  const std::uint64_t lost_before = dropped();
  std::vector<std::thread> threads;
  std::atomic<int> running{writers};
  for (int i = 0; i < writers; ++i)
    threads.emplace_back([&, i] {
      name_thread("writer " + std::to_string(i));
      for (std::uint64_t k = 0; k < each; ++k) mark(name, k);
      --running;
    });
  std::map<std::uint32_t, std::uint64_t> next;
  std::uint64_t seen = 0;
  const auto take = [&](std::uint32_t thread, std::span<const Entry> some) {
    for (const Entry& entry : some) {
      ASSERT_GE(entry.arg, next[thread]);  // in order; a gap is what was lost
      next[thread] = entry.arg + 1;
      ++seen;
    }
  };
  while (running > 0) drain(take);
  for (std::thread& thread : threads) thread.join();
  drain(take);
  EXPECT_EQ(seen + dropped() - lost_before, writers * each);
}

// Rings of ended threads are given to new ones while others are read.
TEST_F(Record, ReadsEveryEntryOfThreadsThatBeginAndEnd) {
  constexpr std::uint64_t short_lived = 300, each = 5;
  const Name name{"brief"};
  const std::uint64_t lost_before = dropped();
  std::atomic<bool> running{true};
  std::thread starter([&] {
    for (std::uint64_t i = 0; i < short_lived; ++i)
      std::thread([&] {
        for (std::uint64_t k = 0; k < each; ++k) mark(name, k);
      }).join();
    running = false;
  });
  std::uint64_t seen = 0;
  const auto take = [&](std::uint32_t, std::span<const Entry> some) {
    for (const Entry& entry : some) seen += entry.name == name.id() ? 1 : 0;
  };
  while (running) drain(take);
  starter.join();
  drain(take);
  EXPECT_EQ(seen, short_lived * each);
  EXPECT_EQ(dropped(), lost_before);
}

TEST_F(Record, ReusesTheRingsOfThreadsThatEnded) {
  const Name name{"short"};
  for (int i = 0; i < 100; ++i) {
    std::thread([&] { mark(name, 1); }).join();
    ASSERT_EQ(count(drained()), 1U);
  }
  EXPECT_GE(threads().size(), 100U);
}

TEST_F(Record, ReusesTheLaneOfAnEndedThreadWithTheSameName) {
  const Name name{"worked"};
  const auto worker = [&] {
    name_thread("worker 7");
    mark(name, 1);
  };
  std::thread(worker).join();
  const std::size_t before = threads().size();
  std::thread(worker).join();
  EXPECT_EQ(threads().size(), before);
  const Entries entries = drained();
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(entries.begin()->second.size(), 2U);
}

TEST_F(Record, KnowsThreadsByTheirNames) {
  std::thread([] {
    name_thread("a thread with a long name");
    mark(Name("named"), 0);
  }).join();
  EXPECT_EQ(threads().back().name, "a thread with a long name");
}

int depth = 0;
std::vector<std::uint64_t> heard;

TEST_F(Record, NotifiesListenersOfBeginsAndEnds) {
  static const Listener listener{[](std::uint32_t, Kind, std::uint64_t arg) noexcept {
                                   ++depth;
                                   heard.push_back(arg);
                                 },
                                 [](Kind) noexcept { --depth; }};
  keep_entries(false);  // listeners are called even when entries are not kept
  const Name name{"heard"};
  ASSERT_TRUE(add_listener(listener));
  {
    const Span a(name, 1);
    const Span b(name, 2);
    EXPECT_EQ(depth, 2);
  }
  EXPECT_EQ(depth, 0);
  EXPECT_THAT(heard, ::testing::ElementsAre(1, 2));
  remove_listener(listener);
  { const Span span(name, 3); }
  EXPECT_EQ(heard.size(), 2U);
  EXPECT_EQ(count(drained()), 0U);
}

TEST_F(Record, AcceptsFourListenersAtMost) {
  static const Listener listeners[5] = {
      {[](std::uint32_t, Kind, std::uint64_t) noexcept {}, [](Kind) noexcept {}}, {}, {}, {}, {}};
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(add_listener(listeners[i]));
  EXPECT_FALSE(add_listener(listeners[4]));
  for (int i = 0; i < 4; ++i) remove_listener(listeners[i]);
}

}  // namespace
}  // namespace warpstep::record
