// Batches in device memory, copied there by a separate thread while steps run.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "engine/core/batch.h"
#include "engine/run/backend.h"

namespace warpstep {

struct FeedStats {
  std::uint64_t batches = 0;
  std::uint64_t bytes = 0;
  std::uint64_t copy_ns = 0;          // sum over all copies
  std::uint64_t device_wait_ns = 0;   // of the copier, for a step to finish with a buffer
  std::uint64_t trainer_wait_ns = 0;  // in next()
};

// Has two buffers on the device: while a step reads one, the next batch is copied into the other. A
// slot of the source is free again as soon as its copy is done.
//
//   copier:  source.next() -> wait until the step before last is done -> copy -> hand over
//   trainer: next() -> enqueue a step that reads the buffer -> next() marks its end
//
// Where a launch runs several steps, there are two groups of as many buffers: those of one launch
// are taken before any of its steps is enqueued. A group ends where the batch's number in its epoch
// is a multiple of that, and with the epoch, so that the same buffers follow each other in every
// epoch.
//
// The spans of its batches are device addresses.
class Feeder : public BatchSource {
 public:
  // `steps` is the stream of the steps that read the batches. The three must outlive the feeder.
  Feeder(BatchSource& source, const Backend& backend, Stream& steps,
         std::uint64_t steps_per_launch = 1);
  ~Feeder() override;
  Feeder(const Feeder&) = delete;
  Feeder& operator=(const Feeder&) = delete;

  std::int64_t batch_size() const override { return source_.batch_size(); }
  std::uint64_t samples() const override { return source_.samples(); }
  std::uint64_t steps_per_epoch() const override { return source_.steps_per_epoch(); }
  const Batch& next() override;
  // A buffer is written only after the steps that read it are done: next() waits for them. So the
  // trainer may have all launches in flight while it takes the batches of one more.
  int held() const override {
    return (backend_.steps_in_flight() + 1) * static_cast<int>(steps_per_launch_);
  }
  std::uint64_t group() const override { return steps_per_launch_; }
  Position position() const override { return next_.position; }
  void seek(Position position) override;

  FeedStats stats() const;  // may be called from any thread

  // On the device, each as large as a slot, for each step of a launch.
  static constexpr std::size_t buffers = 2;

 private:
  struct Buffer {
    std::shared_ptr<std::byte> memory;
    std::size_t bytes = 0;              // of memory
    std::optional<Batch> batch;         // copied, not yet read by a step
    std::uint64_t copy_begin_ns = 0;    // when its copy was enqueued,
    std::uint64_t copy_end_ns = 0;      // and when it was done
    std::exception_ptr error;           // instead of a batch
    bool taken = false;                 // a step reads it
    std::optional<std::uint64_t> mark;  // the end of that step
  };

  // The place of the next batch.
  struct Turn {
    std::uint64_t group = 0;  // since start()
    Position position;
  };

  Buffer& place(const Turn& turn);
  bool begins_group(Position position) const;
  void advance(Turn& turn) const;
  void mark_taken();
  void start();
  void stop();
  void run(Turn turn);
  void fill(Buffer& buffer);
  void copy(const Batch& from, Buffer& buffer);

  BatchSource& source_;
  const Backend& backend_;
  Stream& steps_;
  std::unique_ptr<Stream> copies_;
  const std::uint64_t steps_per_launch_;
  std::vector<Buffer> ring_;
  Turn next_;  // of next()
  Batch batch_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread thread_;
  mutable std::mutex stats_mutex_;
  FeedStats stats_;
};

}  // namespace warpstep
