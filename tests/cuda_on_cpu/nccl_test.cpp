// Exchanges between two devices, as the backend makes them, through the library that stands in for
// NCCL: the ranks are processes that the test forks.
#include "kernels/cuda/nccl.h"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/dist/tcp.h"
#include "kernels/cuda/runtime.h"
#include "tests/build_tree.h"
#include "tests/free_port.h"

namespace warpstep::cuda {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int ranks = 2;

// A rank with its device, a stream and some floats there.
class Rank {
 public:
  explicit Rank(Communicator& communicator)
      : nccl_(
            (set_device(communicator), std::shared_ptr<Communicator>(&communicator, [](auto*) {})),
            Settings{.ordinal = communicator.world().rank}) {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  ~Rank() {
    for (void* memory : memory_) cudaFree(memory);
    cudaStreamDestroy(stream_);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  Nccl& nccl() { return nccl_; }
  cudaStream_t stream() const { return stream_; }
  Nccl::Piece piece(const std::vector<float>& values, int owner = 0) {
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, values.size() * sizeof(float)), cudaSuccess);
    memory_.push_back(memory);
    EXPECT_EQ(
        cudaMemcpy(memory, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice),
        cudaSuccess);
    return {memory, static_cast<std::int64_t>(values.size()), DType::f32, owner};
  }
  // Waits for the exchange as the trainer does, while the others may fail.
  void wait() {
    nccl_.wait_until([&] { return cudaStreamQuery(stream_) == cudaSuccess; });
  }
  static std::vector<float> read(const Nccl::Piece& piece) {
    std::vector<float> values(static_cast<std::size_t>(piece.elements));
    EXPECT_EQ(cudaMemcpy(values.data(), piece.data, values.size() * sizeof(float),
                         cudaMemcpyDeviceToHost),
              cudaSuccess);
    return values;
  }

 private:
  static void set_device(const Communicator& communicator) {
    EXPECT_EQ(cudaSetDevice(communicator.world().rank), cudaSuccess);
  }

  Nccl nccl_;
  cudaStream_t stream_ = nullptr;
  std::vector<void*> memory_;
};

template <class Work>
std::string error_of(Work work, int rank, std::uint16_t port) {
  try {
    Communicator communicator(
        open_tcp({.world = {ranks, rank, ranks, rank}, .host = "localhost", .port = port}));
    communicator.share_memory();
    work(communicator);
  } catch (const PeerError& other) {
    return std::string("another: ") + other.what();
  } catch (const std::exception& own) {
    return std::string("own: ") + own.what();
  }
  return {};
}

// What each rank says of `work`: its error, or nothing. Only the ranks start threads, as a process
// with threads does not fork under ThreadSanitizer.
template <class Work>
std::array<std::string, ranks> errors_of(Work work) {
  const std::uint16_t port = free_port();
  std::array<int, ranks> reports{};
  std::array<pid_t, ranks> processes{};
  for (int rank = 0; rank < ranks; ++rank) {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe(ends.data()), 0);
    reports[static_cast<std::size_t>(rank)] = ends[0];
    const pid_t process = fork();
    processes[static_cast<std::size_t>(rank)] = process;
    if (process == 0) {
      const std::string error = error_of(work, rank, port);
      const bool sound = write(ends[1], error.data(), error.size()) >= 0;
      std::_Exit(sound && !testing::Test::HasFailure() ? 0 : 1);
    }
    close(ends[1]);
  }
  std::array<std::string, ranks> errors;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::array<char, 4096> text{};
    while (true) {
      const ssize_t length = read(reports[rank], text.data(), text.size());
      if (length <= 0) break;
      errors[rank].append(text.data(), static_cast<std::size_t>(length));
    }
    close(reports[rank]);
    int status = 0;
    EXPECT_EQ(waitpid(processes[rank], &status, 0), processes[rank]);
    EXPECT_EQ(status, 0) << "rank " << rank;
  }
  return errors;
}

// With a fault, which makes every rank fail.
std::array<std::string, ranks> errors_with(const char* variable, const char* fault) {
  setenv(variable, fault, 1);
  const auto errors = errors_of([](Communicator& communicator) {
    Rank rank(communicator);
    const std::array pieces{rank.piece({1, 2, 3})};
    for (int step = 0; step < 3; ++step) {
      rank.nccl().mean(pieces, false, rank.stream());
      rank.wait();
    }
  });
  unsetenv(variable);
  return errors;
}

class NcclRanks : public testing::Test {
 protected:
  static void SetUpTestSuite() {  // before the first call of CUDA and NCCL
    setenv("WARPSTEP_FAKE_DEVICES", "2", 1);
    setenv("WARPSTEP_NCCL", (testing_support::binary_dir() + "/lib/nccl_stand_in.so").c_str(), 1);
  }
};

TEST_F(NcclRanks, SumShareAndGather) {
  const auto errors = errors_of([](Communicator& communicator) {
    Rank rank(communicator);
    const auto value = static_cast<float>(communicator.world().rank);
    // The second is exchanged in more than one part.
    const std::array all{rank.piece({value, 2}),
                         rank.piece(std::vector<float>(300'000, 1 + value))};
    const std::array owned{rank.piece({value, 4}, 0), rank.piece({value, 6}, 1)};
    const Nccl::Piece gathered = rank.piece({value, value});
    rank.nccl().mean(all, false, rank.stream());
    rank.nccl().mean(owned, true, rank.stream());
    rank.nccl().share(owned, rank.stream());
    rank.nccl().all_gather(gathered.data, sizeof(float), rank.stream());
    rank.wait();
    EXPECT_THAT(Rank::read(all[0]), ElementsAre(0.5, 2));
    EXPECT_THAT(Rank::read(all[1]), Each(1.5));
    EXPECT_THAT(Rank::read(owned[0]), ElementsAre(0.5, 4));
    EXPECT_THAT(Rank::read(owned[1]), ElementsAre(0.5, 6));
    EXPECT_THAT(Rank::read(gathered), ElementsAre(0, 1));
  });
  EXPECT_THAT(errors, Each(""));
}

// As when a rank hears of another's end on the host, while its device waits for that one.
TEST_F(NcclRanks, GiveUpWhatTheDeviceWaitsFor) {
  const auto [first, second] = errors_of([](Communicator& communicator) {
    Rank rank(communicator);
    std::array<std::byte, 1> over{};  // rank 0's, with which rank 1 stays until then
    if (communicator.world().rank == 1) return communicator.broadcast(over);
    std::thread listener([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      rank.nccl().give_up(PeerError("rank 1 has left"));
      rank.nccl().give_up(PeerError("a later error"));
    });
    const std::array pieces{rank.piece({1, 2, 3})};
    try {
      rank.nccl().mean(pieces, false, rank.stream());
      EXPECT_EQ(cudaStreamSynchronize(rank.stream()), cudaSuccess);
    } catch (const RankError&) {  // where the other thread was first
    }
    listener.join();
    EXPECT_THROW(rank.nccl().mean(pieces, false, rank.stream()), PeerError);
    communicator.broadcast(over);
    rank.wait();
  });
  EXPECT_EQ(first, "another: rank 1 has left");
  EXPECT_EQ(second, "");
}

TEST_F(NcclRanks, FailInACall) {
  const auto [first, second] = errors_with("NCCL_STAND_IN_FAIL", "1:ncclCommGetAsyncError:1:3");
  EXPECT_THAT(second, HasSubstr("own: NCCL: ncclCommGetAsyncError failed: internal error"));
  EXPECT_THAT(first, HasSubstr("another: NCCL: an exchange with other ranks failed: remote"));
}

TEST_F(NcclRanks, FailOnTheDevice) {
  const auto [first, second] = errors_with("NCCL_STAND_IN_ASYNC", "1:2:3");
  EXPECT_THAT(second, HasSubstr("own: NCCL: an exchange with other ranks failed: internal error"));
  EXPECT_THAT(first, AllOf(HasSubstr("another: NCCL: an exchange with other ranks failed: remote"),
                           HasSubstr(": rank 0 starts for ")));
}

// NCCL's abort ends only when the trainer has destroyed its graphs. It does so when it hears of the
// error, which the thread that copies batches may have met before it.
TEST_F(NcclRanks, GiveUpWhileAGraphHasAnExchange) {
  setenv("NCCL_STAND_IN_ASYNC", "1:1:3", 1);
  const auto [first, second] = errors_of([](Communicator& communicator) {
    Rank rank(communicator);
    const std::array pieces{rank.piece({1, 2, 3})};
    CudaStream stream;
    const GraphExecHandle graph =
        capture(stream, [&] { rank.nccl().mean(pieces, false, stream.handle()); });
    EXPECT_EQ(cudaGraphLaunch(graph.get(), stream.handle()), cudaSuccess);
    std::thread copier([&] { EXPECT_THROW(rank.wait(), RankError); });
    copier.join();
    rank.wait();
  });
  unsetenv("NCCL_STAND_IN_ASYNC");
  EXPECT_THAT(second, HasSubstr("own: NCCL: an exchange with other ranks failed: internal error"));
  EXPECT_THAT(first, HasSubstr("another: NCCL: an exchange with other ranks failed: remote"));
}

TEST_F(NcclRanks, FailAtTheStart) {
  const auto [first, second] =
      errors_with("NCCL_STAND_IN_FAIL", "0:ncclCommInitRank:1:3,1:ncclCommInitRank:1:6");
  EXPECT_THAT(first, HasSubstr("own: NCCL: ncclCommInitRank failed: internal error"));
  EXPECT_THAT(second, HasSubstr("another: NCCL: ncclCommInitRank failed: remote"));
}

}  // namespace
}  // namespace warpstep::cuda
