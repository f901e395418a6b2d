#include "engine/run/feeder.h"

#include <algorithm>
#include <utility>

#include "engine/core/clock.h"
#include "engine/core/error.h"
#include "engine/core/record.h"
#include "engine/core/thread.h"

namespace warpstep {
namespace {

using record::Kind;
const record::Name copy_name{"copy to the device", Kind::copy},
    buffer_name{"wait for a buffer", Kind::sync}, source_name{"wait for a batch", Kind::idle};

// The same place in another block of memory. A span outside of the slot, a resident set, is
// unchanged.
std::span<const std::byte> moved(std::span<const std::byte> part, std::span<const std::byte> slot,
                                 const std::byte* to) {
  if (part.data() < slot.data() || part.data() >= slot.data() + slot.size()) return part;
  return {to + (part.data() - slot.data()), part.size()};
}

std::uint64_t at_least_one(std::uint64_t steps_per_launch) {
  if (steps_per_launch == 0) fail<UsageError>("a launch runs 1 step or more, not 0");
  return steps_per_launch;
}

}  // namespace

Feeder::Feeder(BatchSource& source, const Backend& backend, Stream& steps,
               std::uint64_t steps_per_launch)
    : source_(source),
      backend_(backend),
      steps_(steps),
      copies_(backend.make_stream(Precedence::first)),
      steps_per_launch_(at_least_one(steps_per_launch)),
      ring_(buffers * steps_per_launch) {
  start();
}

Feeder::~Feeder() {
  stop();
}

Feeder::Buffer& Feeder::place(const Turn& turn) {
  return ring_[turn.group % buffers * steps_per_launch_ + turn.position.step % steps_per_launch_];
}

bool Feeder::begins_group(Position position) const {
  return position.step % steps_per_launch_ == 0;
}

void Feeder::advance(Turn& turn) const {
  ++turn.position.step;
  if (turn.position.step == steps_per_epoch()) turn.position = {turn.position.epoch + 1, 0};
  if (begins_group(turn.position)) ++turn.group;
}

void Feeder::start() {
  for (Buffer& buffer : ring_) {
    buffer.batch.reset();
    buffer.error = nullptr;
    buffer.taken = false;
    buffer.mark.reset();
  }
  next_ = {0, source_.position()};
  stop_ = false;
  thread_ = start_thread("copier", [this, first = next_] { run(first); });
}

void Feeder::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Feeder::seek(Position position) {
  if (position == next_.position) return;
  stop();
  steps_.wait();  // they may still read the buffers
  try {
    source_.seek(position);
    start();
  } catch (...) {  // next() throws it, too: nobody copies what it would wait for
    Buffer& buffer = place(next_);
    buffer.error = std::current_exception();
    buffer.taken = false;
    throw;
  }
}

// The steps that read the groups before are enqueued by now.
void Feeder::mark_taken() {
  std::optional<std::uint64_t> mark;
  for (Buffer& buffer : ring_) {
    if (!buffer.taken || buffer.mark) continue;
    if (!mark) mark = steps_.mark();
    buffer.mark = mark;
  }
  changed_.notify_all();
}

const Batch& Feeder::next() {
  Buffer& buffer = place(next_);
  const std::uint64_t begin = now_ns();
  std::unique_lock lock(mutex_);
  if (begins_group(next_.position)) mark_taken();
  const bool ready = !buffer.taken && (buffer.batch || buffer.error);
  changed_.wait(lock, [&] { return !buffer.taken && (buffer.batch || buffer.error); });
  if (buffer.error) std::rethrow_exception(buffer.error);
  batch_ = *std::exchange(buffer.batch, std::nullopt);
  const std::uint64_t end = now_ns();
  batch_.wait_ns = ready ? 0 : end - begin;
  const std::uint64_t copied = std::min(end, buffer.copy_end_ns);
  const std::uint64_t copying = std::max(begin, buffer.copy_begin_ns);
  batch_.copy_wait_ns = ready || copied < copying ? 0 : copied - copying;
  {
    const std::lock_guard counting(stats_mutex_);
    stats_.trainer_wait_ns += batch_.wait_ns;
  }
  buffer.taken = true;
  advance(next_);
  return batch_;
}

void Feeder::run(Turn turn) {
  for (;; advance(turn)) {
    Buffer& buffer = place(turn);
    std::optional<std::uint64_t> mark;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] {
        return stop_ || buffer.mark || (!buffer.taken && !buffer.batch && !buffer.error);
      });
      if (stop_) return;
      mark = buffer.mark;
    }
    try {
      if (mark) {
        const std::uint64_t begin = now_ns();
        steps_.wait_for(*mark);
        const std::uint64_t end = now_ns();
        record::note(buffer_name, begin, end);
        const std::lock_guard lock(stats_mutex_);
        stats_.device_wait_ns += end - begin;
      }
      fill(buffer);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      buffer.error = std::current_exception();
      buffer.taken = false;
      buffer.mark.reset();
      changed_.notify_all();
      return;  // next() throws from now on, as the source does
    }
  }
}

void Feeder::fill(Buffer& buffer) {
  const std::uint64_t begin = now_ns();
  const Batch& from = source_.next();
  if (from.wait_ns > 0) record::note(source_name, begin, now_ns());
  if (from.slot.empty() && !from.inputs.empty())
    fail<UsageError>(
        "a batch of the feeder's source has no slot: set Batch::slot, one piece of memory that "
        "holds the inputs; only that is copied to the device");
  if (!buffer.memory || buffer.bytes < from.slot.size()) {
    buffer.bytes = from.slot.size();
    buffer.memory = backend_.allocate(buffer.bytes);
  }
  copy(from, buffer);
}

void Feeder::copy(const Batch& from, Buffer& buffer) {
  const std::uint64_t begin = now_ns();
  backend_.upload(*copies_, buffer.memory.get(), from.slot.data(), from.slot.size());
  copies_->wait_for(copies_->mark());
  const std::uint64_t end = now_ns();
  record::note(copy_name, begin, end, from.slot.size());
  {
    const std::lock_guard lock(stats_mutex_);
    ++stats_.batches;
    stats_.bytes += from.slot.size();
    stats_.copy_ns += end - begin;
  }
  Batch there = from;
  const std::byte* memory = buffer.memory.get();
  for (BatchInput& input : there.inputs) input.bytes = moved(input.bytes, from.slot, memory);
  there.slot = {memory, from.slot.size()};
  const std::lock_guard lock(mutex_);
  buffer.batch = there;
  buffer.copy_begin_ns = begin;
  buffer.copy_end_ns = end;
  buffer.taken = false;
  buffer.mark.reset();
  changed_.notify_all();
}

FeedStats Feeder::stats() const {
  const std::lock_guard lock(stats_mutex_);
  return stats_;
}

}  // namespace warpstep
