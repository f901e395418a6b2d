// The processes of a data-parallel job, the ranks, and what they exchange: sums of gradients and of
// scores, and short texts. All ranks call the same functions in the same order, from the thread
// that trains.
//
// Sums are added in the order of the ranks, starting from +0, whatever the transport: the same bits
// on every rank and in every run, and the bits of one process that accumulates as many steps
// (graph/ops/update.h: Accumulate).
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/plugin.h"
#include "engine/dist/activity.h"
#include "engine/dist/windows.h"

namespace warpstep {

// The ranks of a job cannot exchange.
struct RankError : Error {
  using Error::Error;
};
// For a cause elsewhere: another rank failed, left or does not answer.
struct PeerError : RankError {
  using RankError::RankError;
};

struct World {
  int size = 1, rank = 0;
  // Among the ranks on this machine. 0 and -1: the launcher did not say; share_memory() finds out.
  int local_size = 1, local_rank = 0;
};

// How bytes get to other ranks; a module implements it. Errors of the transport are RankErrors.
class Transport {
 public:
  struct Message {
    int peer = 0;
    std::span<std::byte> bytes;  // at most 1 GiB
  };

  virtual ~Transport();
  virtual World world() const = 0;
  virtual std::string describe() const = 0;  // "Open MPI 4.1.4"
  // Starts all at once; the bytes must stay until done() was true. Messages between two ranks
  // arrive in the order in which they were started.
  virtual void start(std::span<const Message> sends, std::span<const Message> receives) = 0;
  virtual bool done() = 0;                            // never waits
  virtual std::vector<int> silent_peers() const = 0;  // of messages that did not arrive yet
  // Those that have ended, as far as this can be seen without a message. Any thread may ask.
  virtual std::vector<int> left_peers() const;
  [[noreturn]] virtual void abort(int code) = 0;  // ends all ranks
};

struct CommunicatorOptions {
  std::chrono::milliseconds timeout{600'000};  // how long a rank is waited for
  // Set by a signal. A launcher that ends a job because a rank died also sends one: a rank then
  // waits no longer than `patience` where the process of another on this machine has ended. Where
  // all are there it may be a checkpoint, or a long step, that the others finish. For ranks of
  // other machines, of whose processes nothing is known, it waits `patience_with_unknown`; the
  // whole `timeout` at a checkpoint and after the last step, which all ranks have agreed on.
  const std::atomic<bool>* stop = nullptr;
  std::chrono::milliseconds patience{500}, patience_with_unknown{60'000};
};

class Communicator {
 public:
  explicit Communicator(std::unique_ptr<Transport> transport,
                        const CommunicatorOptions& options = {});

  const World& world() const { return world_; }
  std::string describe() const { return transport_->describe(); }
  // What this rank does now, for the message of one that waits in vain.
  void set_activity(Activity activity) { activities_.set(activity); }
  // Finds the ranks of this machine. They see from now on what each other does, and exchange
  // through shared memory where all ranks of the job are on one.
  void share_memory();
  // What the ranks of this machine do, and which others have left the job.
  std::string activities() const;
  // The same after an error that another rank's end explains: it may be noticed elsewhere before
  // its connections close, and is awaited for up to the options' patience.
  std::string activities_at_an_end() const;
  // This rank failed by itself: others need not say that they wait for it.
  void set_failed(int code) { activities_.set_failed(code); }
  int failure_below(int rank) const { return activities_.failure_below(rank); }
  bool another_ended() const;

  // values[i] becomes the sum over ranks of share * values[i].
  void sum(std::span<float> values, float share = 1);
  void sum(std::span<double> values, double share = 1);
  // Where the parts of the ranks end, in order; the last at the end of all.
  using Ends = std::span<const std::size_t>;
  // The same for this rank's part alone; what the others' parts have afterwards is of no use.
  void sum_own(std::span<float> values, Ends ends, float share = 1);
  // Each rank gives its part and gets the others'. Without ends the parts are of equal size.
  void all_gather(std::span<std::byte> all, Ends ends);
  void all_gather(std::span<std::byte> all);
  void broadcast(std::span<std::byte> bytes);              // rank 0's
  std::vector<std::string> gather(std::string_view mine);  // of all ranks, to all
  [[noreturn]] void abort(int code);
  // How long this rank has exchanged so far, with the waits for others.
  std::chrono::nanoseconds exchanged() const { return exchanged_; }
  // Polls done() until it is true, with the deadlines of every other wait: for work that all ranks
  // do together by other means than the transport's.
  void wait_until(const std::function<bool()>& done) const;

 private:
  struct Neighbours {
    bool are_all = false;   // the ranks of the job
    bool is_first = false;  // this rank, of those on its machine
  };
  Neighbours find_neighbours();
  std::size_t piece_bytes() const;
  template <class T>
  void sum_all(std::span<T> values, T share);
  template <class T>
  void sum_parts(std::span<const std::span<T>> parts, T share);
  template <class T>
  std::vector<const T*> received_terms(std::span<const std::span<T>> parts);
  template <class T>
  std::vector<const T*> shown_terms(std::span<const std::span<T>> parts);
  template <class T>
  void gather_parts(std::span<const std::span<T>> parts);
  void gather_in_pieces(std::vector<std::span<std::byte>> parts);
  void exchange(std::span<const Transport::Message> sends,
                std::span<const Transport::Message> receives);
  void exchange_windows();
  template <class Done, class Silent>
  void wait(Done done, Silent silent);
  bool is_to_end() const;
  bool look_due() const;
  bool await(std::chrono::steady_clock::time_point since,
             std::chrono::steady_clock::duration spin) const;
  [[noreturn]] void give_up(std::chrono::steady_clock::time_point since,
                            const std::string& awaited) const;

  std::unique_ptr<Transport> transport_;
  CommunicatorOptions options_;
  World world_;
  Activities activities_;
  std::unique_ptr<Windows> windows_;  // null: messages
  std::vector<std::byte> scratch_;
  std::chrono::nanoseconds exchanged_{};
  mutable std::atomic<std::chrono::steady_clock::time_point> next_look_{};  // wait_until()
};

// The launcher that started this process as a rank, by its environment: "mpi" (mpirun, or srun with
// PMI), "env" (torchrun; tcp.h), or "" for a process of its own.
std::string launcher();
// The tasks that srun started without PMI, of which this process is one: none can know the others.
// 0 where that is not so.
int tasks_without_pmi();

// Of a transport's module: its function warpstep_transport_build() returns a ModuleBuild with it.
constexpr std::uint64_t transport_interface() {
  std::uint64_t mixed = 1;  // counts changes that show in no size, as of a virtual function
  for (const std::size_t size : {sizeof(Transport), sizeof(Transport::Message), sizeof(World)})
    mixed = mix_interface(mixed, size);
  return mixed;
}

// Throws RankError when the module does not load or is of another build.
std::unique_ptr<Transport> load_transport(const std::filesystem::path& path);

// Joins the job through libwarpstep_mpi.so. Throws RankError when the module is missing or does not
// load. Call it once, before the first step.
std::unique_ptr<Transport> open_mpi();

}  // namespace warpstep
