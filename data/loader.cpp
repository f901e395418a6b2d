#include "data/loader.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <new>
#include <system_error>
#include <utility>

#include "data/clock.h"
#include "engine/core/error.h"

namespace warpstep::data {
namespace {

constexpr std::size_t alignment = 64;      // bytes, a cache line
constexpr std::size_t timings_kept = 256;  // batches
constexpr int nicer = 5;                   // than the thread that launches the step
constexpr int max_workers = 256;
constexpr int max_prefetch = 64;
constexpr std::int64_t max_batch = 1 << 20;

class Heap : public SlotMemory {
 public:
  std::byte* allocate(std::size_t bytes) override {
    return static_cast<std::byte*>(::operator new (bytes, std::align_val_t{alignment}));
  }
  void release(std::byte* memory, std::size_t) noexcept override {
    ::operator delete (memory, std::align_val_t{alignment});
  }
};

std::size_t rounded(std::size_t bytes) {
  return (bytes + alignment - 1) / alignment * alignment;
}

void check_options(const LoaderOptions& options, const Dataset& dataset) {
  if (options.batch < 1 || options.batch > max_batch) {
    fail<UsageError>("batch {}: must be from 1 to {}", options.batch, max_batch);
  }
  if (options.workers < 0 || options.workers > max_workers)
    fail<UsageError>("{} data workers: must be from 1 to {}, or 0 to choose", options.workers,
                     max_workers);
  if (options.prefetch < 2 || options.prefetch > max_prefetch) {
    fail<UsageError>("prefetch {}: must be from 2 to {} batches", options.prefetch, max_prefetch);
  }
  if (options.hold < 1 || options.hold > max_prefetch)
    fail<UsageError>("{} batches held: must be from 1 to {}", options.hold, max_prefetch);
  if (options.tail == Tail::drop && static_cast<std::uint64_t>(options.batch) > dataset.size()) {
    fail<UsageError>("{}: {} samples do not fill one batch of {}; use a smaller batch or more data",
                     dataset.path(), dataset.size(), options.batch);
  }
}

// A slow trainer thread costs more than a slow worker. Failing to be nicer is harmless.
void yield_to_the_trainer() {
  const auto self = static_cast<id_t>(::gettid());
  ::setpriority(PRIO_PROCESS, self, ::getpriority(PRIO_PROCESS, self) + nicer);
}

struct Counts {
  std::uint64_t bytes_read = 0, read_ns = 0, decode_ns = 0;
};

// One writer each, so an add need not be atomic; readers see some recent value.
void add(std::atomic<std::uint64_t>& counter, std::uint64_t value) {
  counter.store(counter.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
}

}  // namespace

struct alignas(alignment) Loader::Worker {
  std::atomic<std::uint64_t> wait_ns{0};
  std::atomic<std::uint64_t> read_ns{0};
  std::atomic<std::uint64_t> decode_ns{0};
  std::atomic<std::uint64_t> samples{0};
  std::atomic<std::uint64_t> bytes{0};
  Scratch scratch;
  std::shared_ptr<const Permutation> order;  // of `epoch`; null for the identity
  std::uint64_t epoch = std::numeric_limits<std::uint64_t>::max();

  void count(const Counts& before) {
    add(read_ns, scratch.read_ns - before.read_ns);
    add(decode_ns, scratch.decode_ns - before.decode_ns);
    add(bytes, scratch.bytes_read - before.bytes_read);
    add(samples, 1);
  }
};

Loader::Loader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options)
    : dataset_(std::move(dataset)), options_(options) {
  check_options(options_, *dataset_);
  if (options_.workers == 0) {
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    options_.workers = std::clamp(cores - 1, 1, 4);
  }
  const auto rows = static_cast<std::uint64_t>(options_.batch);
  steps_ = options_.tail == Tail::drop ? samples() / rows : (samples() + rows - 1) / rows;
  claim_rows_ = std::clamp<std::int64_t>(dataset_->claim(), 1, options_.batch);
  order_ = std::make_unique<Order>(options_.seed, samples(), options_.shuffle);
  ring_ = std::make_unique<Ring>(
      static_cast<std::uint32_t>(options_.prefetch + options_.hold - 1),
      static_cast<std::uint32_t>((options_.batch + claim_rows_ - 1) / claim_rows_));
  for (int i = 0; i < options_.workers; ++i) workers_.push_back(std::make_unique<Worker>());
  timings_.resize(timings_kept);
  next_ = batch_of(options_.start);
  allocate_slots();
  try {
    start(next_);
  } catch (...) {
    options_.memory->release(memory_, slot_bytes());
    throw;
  }
}

Loader::~Loader() {
  stop();
  options_.memory->release(memory_, slot_bytes());
}

void Loader::allocate_slots() {
  const auto image_bytes = static_cast<std::size_t>(image_shape().count());
  const auto rows = static_cast<std::size_t>(options_.batch);
  const std::size_t images = rounded(rows * image_bytes);
  slot_stride_ = images + rounded(rows * sizeof(std::int32_t));
  slots_ = std::vector<Slot>(static_cast<std::size_t>(options_.prefetch + options_.hold - 1));
  if (options_.memory == nullptr) {
    heap_ = std::make_unique<Heap>();
    options_.memory = heap_.get();
  }
  try {
    memory_ = options_.memory->allocate(slot_bytes());
  } catch (const std::bad_alloc&) {
    fail<UsageError>(
        "the loader needs {} bytes for {} batches of {} images of {}; use a smaller "
        "batch or prefetch",
        slot_bytes(), slots_.size(), rows, image_shape().text());
  }
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    std::byte* slot = memory_ + i * slot_stride_;
    slots_[i].images = {reinterpret_cast<std::uint8_t*>(slot), rows * image_bytes};
    slots_[i].labels = {reinterpret_cast<std::int32_t*>(slot + images), rows};
  }
}

std::uint64_t Loader::batch_of(Position position) const {
  if (position.step >= steps_) {
    fail<UsageError>("step {} of epoch {}: an epoch of {} has {} steps of {} samples",
                     position.step, position.epoch, dataset_->path(), steps_, options_.batch);
  }
  if (position.epoch > std::numeric_limits<std::uint32_t>::max()) {
    fail<UsageError>("epoch {}: at most 2^32 are counted", position.epoch);
  }
  return position.epoch * steps_ + position.step;
}

std::int64_t Loader::rows_of(Position position) const {
  const std::uint64_t first = position.step * static_cast<std::uint64_t>(options_.batch);
  return static_cast<std::int64_t>(
      std::min<std::uint64_t>(static_cast<std::uint64_t>(options_.batch), samples() - first));
}

void Loader::start(std::uint64_t batch) {
  ring_->reset(batch);
  for (Slot& slot : slots_) slot.failure.reset();
  // Workers take no signals: SIGINT belongs to the thread that can act on it.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  try {
    for (auto& worker : workers_) threads_.emplace_back([this, &worker] { work(*worker); });
  } catch (const std::system_error& error) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    const std::size_t started = threads_.size();
    stop();
    fail<UsageError>("only {} of {} data workers could be started: {}; use fewer", started,
                     workers_.size(), error.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Loader::stop() {
  ring_->stop();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Loader::work(Worker& worker) {
  yield_to_the_trainer();
  while (const auto claim = ring_->claim()) {
    add(worker.wait_ns, claim->wait_ns);
    Slot& slot = slots_[claim->batch % slots_.size()];
    if (claim->part == 0) slot.first_claim_ns = now_ns();
    fill(*claim, slot, worker);
    if (ring_->finish(*claim)) {
      slot.ready_ns = now_ns();
      ring_->publish(*claim);
    }
  }
}

void Loader::fill(const Ring::Claim& claim, Slot& slot, Worker& worker) {
  const Position position = position_of(claim.batch);
  const std::int64_t samples_here = rows_of(position);
  const auto image_bytes = static_cast<std::size_t>(image_shape().count());
  const std::int64_t begin = claim.part * claim_rows_;
  const std::int64_t end = std::min(begin + claim_rows_, options_.batch);
  std::int64_t row = begin;
  std::uint64_t index = 0;
  try {
    if (worker.epoch != position.epoch) {
      worker.order = order_->epoch(position.epoch);
      worker.epoch = position.epoch;
    }
    // Half an epoch early, so that nobody waits for the next permutation at the boundary.
    if (claim.part == 0 && position.step == steps_ / 2) order_->epoch(position.epoch + 1);
    for (; row < end && !ring_->stopping(); ++row) {
      const auto pixels =
          slot.images.subspan(static_cast<std::size_t>(row) * image_bytes, image_bytes);
      std::int32_t& label = slot.labels[static_cast<std::size_t>(row)];
      if (row >= samples_here) {
        std::memset(pixels.data(), 0, pixels.size());
        label = -1;
        continue;
      }
      index = position.step * static_cast<std::uint64_t>(options_.batch) +
              static_cast<std::uint64_t>(row);
      if (worker.order) index = (*worker.order)[index];
      const Counts before{worker.scratch.bytes_read, worker.scratch.read_ns,
                          worker.scratch.decode_ns};
      dataset_->read(index, worker.scratch, pixels);
      label = dataset_->label(index);
      worker.count(before);
    }
  } catch (const std::exception& error) {
    const std::lock_guard lock(slot.mutex);
    if (!slot.failure || row < slot.failure->row) {
      slot.failure =
          Failure{row, fmt::format("{} (sample {} of {}, epoch {}, step {})", error.what(), index,
                                   dataset_->path(), position.epoch + 1, position.step + 1)};
    }
  }
}

const Batch& Loader::next() {
  while (taken_slots_ >= static_cast<std::uint64_t>(options_.hold))
    ring_->release(next_ - taken_slots_--);
  std::uint64_t wait_ns = 0;
  if (!ring_->ready(next_)) {
    const std::uint64_t begin = now_ns();
    ring_->wait(next_);
    wait_ns = now_ns() - begin;
  }
  const Slot& slot = slots_[next_ % slots_.size()];
  if (slot.failure) throw DataError(slot.failure->message);
  note_taken(slot);
  const Position position = position_of(next_);
  batch_ = {position, slot.images, slot.labels, {}, rows_of(position), wait_ns};
  ++taken_slots_;
  ++next_;
  return batch_;
}

void Loader::seek(Position position) {
  const std::uint64_t batch = batch_of(position);
  if (batch == next_) return;
  // Threads start in about 20 us each: cheaper than a way to recall claims that are under way.
  stop();
  taken_slots_ = 0;
  next_ = batch;
  start(batch);
}

void Loader::note_taken(const Slot& slot) {
  const std::lock_guard lock(timings_mutex_);
  timings_[taken_++ % timings_.size()] = {position_of(next_), slot.first_claim_ns, slot.ready_ns,
                                          now_ns()};
}

LoaderStats Loader::stats() const {
  LoaderStats stats;
  for (const auto& worker : workers_) {
    stats.wait_ns += worker->wait_ns.load(std::memory_order_relaxed);
    stats.read_ns += worker->read_ns.load(std::memory_order_relaxed);
    stats.decode_ns += worker->decode_ns.load(std::memory_order_relaxed);
    stats.samples += worker->samples.load(std::memory_order_relaxed);
    stats.bytes += worker->bytes.load(std::memory_order_relaxed);
  }
  const std::lock_guard lock(timings_mutex_);
  const std::uint64_t kept = std::min<std::uint64_t>(taken_, timings_.size());
  for (std::uint64_t i = taken_ - kept; i < taken_; ++i) {
    stats.batches.push_back(timings_[i % timings_.size()]);
  }
  return stats;
}

}  // namespace warpstep::data
