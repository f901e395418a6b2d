// The emulated runtime: work that is deferred until the host waits for it, or runs ahead at random.
#include <algorithm>
#include <utility>

#include "tests/cuda_on_cpu/fake_state.h"

namespace warpstep::fake_cuda {
namespace {

std::shared_ptr<Queue>& queue_of(State& s, cudaStream_t stream) {
  return is_default(stream) ? s.default_queue : stream->queue;
}

void run_first(State& s, Queue& queue) {
  for (const Point& point : queue.pieces.front().after) finish(s, point);
  const Piece piece = std::move(queue.pieces.front());
  queue.pieces.pop_front();
  ++queue.done;
  if (piece.name.empty()) return;
  ++s.runs[piece.name];
  piece.work();
}

}  // namespace

Point so_far(State& s, cudaStream_t stream) {
  const std::shared_ptr<Queue>& queue = queue_of(s, stream);
  return {queue, queue->issued};
}

bool is_done(const Point& point) {
  return !point.queue || point.queue->done >= point.number;
}

void finish(State& s, const Point& point) {
  while (!is_done(point)) run_first(s, *point.queue);
}

void finish_all(State& s) {
  for (std::size_t q = 0; q < s.queues.size(); ++q) {
    const std::shared_ptr<Queue> queue = s.queues[q];
    finish(s, {queue, queue->issued});
  }
  s.queues.clear();
}

void run_some(State& s) {
  if (s.queues.empty()) return;
  const std::shared_ptr<Queue> queue = s.queues[s.draws() % s.queues.size()];
  finish(s, {queue, std::min(queue->issued, queue->done + s.draws() % 8)});
}

// The default stream and blocking streams wait for each other.
void defer(State& s, cudaStream_t stream, Piece piece) {
  const std::shared_ptr<Queue> queue = queue_of(s, stream);
  if (is_default(stream)) {
    for (cudaStream_t other : s.streams)
      if (other->blocking) piece.after.push_back(so_far(s, other));
  } else if (stream->blocking) {
    piece.after.push_back(so_far(s, nullptr));
  }
  queue->pieces.push_back(std::move(piece));
  ++queue->issued;
  if (std::ranges::find(s.queues, queue) == s.queues.end()) s.queues.push_back(queue);
  if (s.draws() % 2 == 0) run_some(s);
}

void set_deferral(std::uint64_t seed) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  finish_all(s);
  s.deferral = seed;
  s.draws.seed(seed);
}

}  // namespace warpstep::fake_cuda
