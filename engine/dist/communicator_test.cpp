#include "engine/dist/communicator.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <thread>

namespace warpstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// The ranks of a job as threads of this process.
class Mailboxes {
 public:
  void send(int from, int to, std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    queues_[{from, to}].emplace_back(bytes.begin(), bytes.end());
  }
  bool take(int from, int to, std::span<std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    auto& queue = queues_[{from, to}];
    if (queue.empty()) return false;
    EXPECT_EQ(queue.front().size(), bytes.size());
    std::ranges::copy(queue.front(), bytes.begin());
    queue.pop_front();
    return true;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> queues_;
};

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(Mailboxes& mail, int size, int rank)
      : mail_(mail), world_{size, rank, size, rank} {}
  World world() const override { return world_; }
  std::string describe() const override { return "threads"; }
  void start(std::span<const Message> sends, std::span<const Message> receives) override {
    for (const Message& message : sends)
      if (!message.bytes.empty()) mail_.send(world_.rank, message.peer, message.bytes);
    awaited_.clear();
    for (const Message& message : receives)
      if (!message.bytes.empty()) awaited_.push_back(message);
  }
  bool done() override {
    std::erase_if(awaited_, [this](const Message& message) {
      return mail_.take(message.peer, world_.rank, message.bytes);
    });
    return awaited_.empty();
  }
  std::vector<int> silent_peers() const override {
    std::vector<int> peers;
    for (const Message& message : awaited_) peers.push_back(message.peer);
    return peers;
  }
  [[noreturn]] void abort(int code) override { std::_Exit(code); }

 private:
  Mailboxes& mail_;
  World world_;
  std::vector<Message> awaited_;
};

// Runs `work` as each rank; rethrows what the first of them threw.
template <class Work>
void as_ranks(int size, Work work, const CommunicatorOptions& options = {}) {
  Mailboxes mail;
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        Communicator communicator(std::make_unique<ThreadTransport>(mail, size, rank), options);
        work(communicator);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

std::vector<float> values_of(int rank, std::size_t count) {
  std::mt19937 generator(static_cast<unsigned>(7 + rank));
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

class CommunicatorSums : public testing::TestWithParam<std::tuple<int, std::size_t, bool>> {};

// The last size takes more than one piece, and its parts are uneven. By messages, and in memory
// that the ranks share.
INSTANTIATE_TEST_SUITE_P(Sizes, CommunicatorSums,
                         testing::Combine(testing::Values(1, 2, 3, 4),
                                          testing::Values(0, 1, 7, 1'100'003), testing::Bool()));

TEST_P(CommunicatorSums, HaveTheBitsOfTheRanksInOrder) {
  const auto [size, count, shared] = GetParam();
  const auto share = static_cast<float>(1.0 / size);
  std::vector<float> expected(count, 0.0F);
  for (int rank = 0; rank < size; ++rank) {
    const std::vector<float> values = values_of(rank, count);
    for (std::size_t i = 0; i < count; ++i) expected[i] += share * values[i];
  }
  as_ranks(size, [&](Communicator& communicator) {
    if (shared) communicator.share_memory();
    std::vector<float> values = values_of(communicator.world().rank, count);
    communicator.sum(std::span(values), share);
    if (count > 0) {
      EXPECT_EQ(std::memcmp(values.data(), expected.data(), count * sizeof(float)), 0);
    }
  });
}

// Uneven shares, one of them empty.
TEST_P(CommunicatorSums, OfSharesAreThoseOfAll) {
  const auto [size, count, shared] = GetParam();
  const auto share = static_cast<float>(1.0 / size);
  std::vector<std::size_t> ends, byte_ends;
  for (int rank = 0; rank < size; ++rank) ends.push_back(rank + 1 == size ? count : count / 3);
  for (const std::size_t end : ends) byte_ends.push_back(end * sizeof(float));
  as_ranks(size, [&](Communicator& communicator) {
    if (shared) communicator.share_memory();
    std::vector<float> values = values_of(communicator.world().rank, count), expected = values;
    communicator.sum(std::span(expected), share);
    communicator.sum_own(std::span(values), ends, share);
    communicator.all_gather(std::as_writable_bytes(std::span(values)), byte_ends);
    EXPECT_EQ(values, expected);
  });
}

TEST(Communicator, AddsZerosOfEitherSignToPlusZero) {
  as_ranks(2, [](Communicator& communicator) {
    std::vector<double> values{-0.0, -0.0};
    communicator.sum(std::span(values));
    EXPECT_FALSE(std::signbit(values[0]) || std::signbit(values[1]));
  });
}

TEST(Communicator, GathersTextsAndBroadcastsTheFirst) {
  as_ranks(3, [](Communicator& communicator) {
    const int rank = communicator.world().rank;
    EXPECT_THAT(communicator.gather(std::string(static_cast<std::size_t>(rank), 'x')),
                ElementsAre("", "x", "xx"));
    std::vector<float> values{static_cast<float>(rank), 2};
    communicator.broadcast(std::as_writable_bytes(std::span(values)));
    EXPECT_THAT(values, ElementsAre(0, 2));
    std::vector<double> all(6, rank);
    communicator.all_gather(std::as_writable_bytes(std::span(all)));
    EXPECT_THAT(all, ElementsAre(0, 0, 1, 1, 2, 2));
  });
}

std::string error_of_rank_0(const CommunicatorOptions& options) {
  try {
    as_ranks(
        3,
        [](Communicator& communicator) {
          communicator.set_activity({Activity::Kind::step, 7});
          if (communicator.world().rank == 1) return;  // has left
          std::vector<double> values(3, 1.0);
          communicator.sum(std::span(values));
        },
        options);
  } catch (const RankError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Communicator, NamesTheRankThatDoesNotAnswer) {
  EXPECT_THAT(
      error_of_rank_0({.timeout = std::chrono::milliseconds(50)}),
      AllOf(HasSubstr("in step 7 for rank 1, which did not answer"), Not(HasSubstr("is ending"))));
}

TEST(Communicator, WaitsForOtherWorkWithTheSameDeadline) {
  as_ranks(1,
           [](Communicator& communicator) {
             int polls = 0;
             communicator.wait_until([&] { return ++polls == 3; });
             EXPECT_EQ(polls, 3);
             communicator.set_activity({Activity::Kind::results, 9});
             try {
               communicator.wait_until([] { return false; });
               ADD_FAILURE() << "waited for ever";
             } catch (const RankError& error) {
               EXPECT_THAT(error.what(),
                           HasSubstr("in step 9 for an exchange between the GPUs of all ranks"));
             }
           },
           {.timeout = std::chrono::milliseconds(20)});
}

TEST(Communicator, SaysWhatEachRankDoes) {
  std::string said;
  std::atomic<bool> waits{true};
  as_ranks(3,
           [&](Communicator& communicator) {
             communicator.share_memory();
             if (communicator.world().rank == 1) {
               communicator.set_activity({Activity::Kind::loading, 7});
               while (waits) std::this_thread::yield();
               return;
             }
             communicator.set_activity({Activity::Kind::step, 7});
             std::vector<double> values(3, 1.0);
             try {
               communicator.sum(std::span(values));
             } catch (const PeerError& error) {
               if (communicator.world().rank > 0) return;
               said = error.what();
               waits = false;
             }
           },
           {.timeout = std::chrono::milliseconds(50)});
  EXPECT_THAT(said, AllOf(HasSubstr("rank 1, which did not answer: rank 0 waits for other ranks in "
                                    "step 7 for "),
                          HasSubstr("; rank 1 loads the batch of step 7 for "),
                          HasSubstr("; rank 2 waits for other ranks in step 7 for ")));
}

TEST(Communicator, KnowsThatAnotherRankFailed) {
  as_ranks(2, [&](Communicator& communicator) {
    communicator.share_memory();
    EXPECT_EQ(communicator.failure_below(2), 0);
    communicator.gather("");
    if (communicator.world().rank == 1) communicator.set_failed(3);
    communicator.gather("");
    EXPECT_EQ(communicator.failure_below(2), 3);
    EXPECT_EQ(communicator.failure_below(1), 0);
    communicator.gather("");
  });
}

// The ranks of another machine offer memory that this process cannot reach.
TEST(Activities, AreOfThisRankAloneWithoutSharedMemory) {
  Activities activities(2, 1);
  for (const char* offer : {"", "/proc/self/fd/0 warpstep-ranks-1", "/proc/0/fd/0 x", "/nowhere x"})
    EXPECT_FALSE(activities.take(offer)) << offer;
  activities.set({Activity::Kind::checkpoint, 20});
  EXPECT_THAT(activities.describe(), testing::StartsWith("rank 1 saves the checkpoint of step 20"));
}

// A process whose state cannot be read may well live: here without a descriptor for the file.
TEST(Activities, AnotherHasEndedOnlyWhereItsProcessIsGone) {
  const Activities mine(2, 0);
  Activities other(2, 1);
  ASSERT_TRUE(other.take(mine.offer()));
  EXPECT_FALSE(mine.another_ended());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const bool ended = mine.another_ended();
  const std::string said = mine.describe();
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_FALSE(ended);
  EXPECT_THAT(said, Not(HasSubstr("its process")));
}

// In place of rank 1: takes part in what share_memory() of rank 0 gathers, with a process of its
// own, which has ended afterwards.
void end_as_rank_1(Communicator& communicator) {
  communicator.gather("another machine");  // so that ranks exchange messages
  const std::string offer = communicator.gather("").front();
  const pid_t process = fork();
  if (process == 0) {
    Activities activities(2, 1);
    _exit(activities.take(offer) ? 0 : 1);
  }
  int status = 1;
  EXPECT_EQ(waitpid(process, &status, 0), process);
  EXPECT_EQ(status, 0);
}

TEST(Communicator, WaitsNoLongerForAProcessThatHasEndedWhenTheJobIsToEnd) {
  const std::atomic<bool> stop{true};
  std::string said;
  as_ranks(2,
           [&](Communicator& communicator) {
             if (communicator.world().rank == 1) return end_as_rank_1(communicator);
             communicator.share_memory();
             std::vector<double> values(3, 1.0);
             try {
               communicator.sum(std::span(values));
             } catch (const PeerError& error) {
               said = error.what();
             }
           },
           {.stop = &stop, .patience = std::chrono::milliseconds(20)});
  EXPECT_THAT(said, AllOf(HasSubstr("and the job is ending"), HasSubstr("its process has ended")));
}

// A device does not notice it: its kernel waits for the other's without end.
TEST(Communicator, WaitsNoLongerForADeviceWhereAProcessHasEnded) {
  std::string said;
  as_ranks(2,
           [&](Communicator& communicator) {
             if (communicator.world().rank == 1) return end_as_rank_1(communicator);
             communicator.share_memory();
             try {
               communicator.wait_until([] { return false; });
             } catch (const PeerError& error) {
               said = error.what();
             }
           },
           {.patience = std::chrono::milliseconds(20)});
  EXPECT_THAT(said, HasSubstr("its process has ended"));
}

// As when rank 1 writes the last checkpoint.
TEST(Communicator, WaitsForALivingRankWhenTheJobIsToEnd) {
  const std::atomic<bool> stop{true};
  for (const bool shared : {false, true})
    as_ranks(2,
             [&](Communicator& communicator) {
               if (shared) communicator.share_memory();
               if (communicator.world().rank == 1)
                 std::this_thread::sleep_for(std::chrono::milliseconds(150));
               std::vector<double> values(3, 1.0);
               communicator.sum(std::span(values));
               EXPECT_THAT(values, ElementsAre(2, 2, 2));
             },
             {.stop = &stop, .patience = std::chrono::milliseconds(20)});
}

// Of ranks on other machines nothing is known. In a step one may have died before it could agree to
// stop; at a checkpoint, or at the end, all have agreed, and rank 0 may write for minutes.
TEST(Communicator, WaitsForRanksThatAreNotKnownWhereAllHaveAgreedToStop) {
  using Kind = Activity::Kind;
  const std::atomic<bool> stop{true};
  const auto said_in = [&](Kind kind) {
    std::string said;
    as_ranks(2,
             [&](Communicator& communicator) {
               communicator.set_activity({kind, 7});
               if (communicator.world().rank == 0)
                 std::this_thread::sleep_for(std::chrono::milliseconds(300));
               try {
                 communicator.gather("");
               } catch (const PeerError& error) {
                 said = error.what();
               }
             },
             {.stop = &stop,
              .patience = std::chrono::milliseconds(10),
              .patience_with_unknown = std::chrono::milliseconds(30)});
    return said;
  };
  EXPECT_EQ(said_in(Kind::checkpoint), "");
  EXPECT_EQ(said_in(Kind::end), "");
  EXPECT_THAT(said_in(Kind::step), HasSubstr("for rank 0, which did not answer, and the job is"));
}

struct Start {
  const char* by;
  std::vector<std::pair<const char*, const char*>> variables;
  const char* expected;
  int tasks_without_pmi = 0;
};

TEST(Launcher, IsTheOneThatStartedThisVeryProcess) {
  const std::vector<Start> starts{
      {"a shell", {}, ""},
      {"mpirun", {{"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_RANK", "0"}}, "mpi"},
      {"mpirun -np 1", {{"OMPI_COMM_WORLD_SIZE", "1"}, {"PMIX_RANK", "0"}}, ""},
      {"srun --mpi=pmi2", {{"PMI_SIZE", "4"}}, "mpi"},
      {"srun --mpi=pmix", {{"PMIX_RANK", "1"}, {"SLURM_STEP_NUM_TASKS", "4"}}, "mpi"},
      {"an interactive shell of Slurm",
       {{"PMIX_RANK", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "1"}},
       ""},
      {"srun --mpi=none",
       {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "4"}},
       "",
       4},
      {"a batch script of Slurm", {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}, ""},
      {"mpirun in a task of srun",
       {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"OMPI_COMM_WORLD_SIZE", "2"}},
       "mpi"},
      {"torchrun",
       {{"TORCHELASTIC_RUN_ID", "x"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}},
       "env"},
      {"srun torchrun",
       {{"PMIX_RANK", "1"},
        {"PMI_SIZE", "2"},
        {"SLURM_STEP_NUM_TASKS", "2"},
        {"TORCHELASTIC_RUN_ID", "x"},
        {"RANK", "1"},
        {"WORLD_SIZE", "2"},
        {"MASTER_ADDR", "h"}},
       "env"},
      {"srun, with the variables of torchrun",
       {{"PMI_SIZE", "2"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}},
       "mpi"},
      {"bash, with them", {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}}, "env"},
  };
  for (const Start& start : starts) {
    for (const Start& other : starts)
      for (const auto& [name, value] : other.variables) unsetenv(name);
    for (const auto& [name, value] : start.variables) setenv(name, value, 1);
    EXPECT_EQ(launcher(), start.expected) << start.by;
    EXPECT_EQ(tasks_without_pmi(), start.tasks_without_pmi) << start.by;
  }
  for (const auto& [name, value] : starts.back().variables) unsetenv(name);
}

}  // namespace
}  // namespace warpstep
