#include "data/load/loader.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "data/load/image_batches.h"
#include "engine/core/caught.h"
#include "engine/core/clock.h"
#include "engine/core/cpus.h"
#include "engine/core/error.h"
#include "engine/core/thread.h"

namespace warpstep::data {
namespace {

constexpr std::size_t buffer_alignment = 64;  // bytes, a cache line
constexpr int worker_nice = 5;                // added to the nice value of the starting thread
constexpr int max_workers = 256;
constexpr int most_tuned_workers = 8;
constexpr int max_prefetch = 64;

class Heap : public SlotMemory {
 public:
  std::byte* allocate(std::size_t bytes) override {
    return static_cast<std::byte*>(::operator new (bytes, std::align_val_t{buffer_alignment}));
  }
  void release(std::byte* memory, std::size_t) noexcept override {
    ::operator delete (memory, std::align_val_t{buffer_alignment});
  }
};

LoaderOptions checked(LoaderOptions options) {
  if (options.workers < 0 || options.workers > max_workers)
    fail<UsageError>("{} data workers: must be from 1 to {}, or 0 to choose", options.workers,
                     max_workers);
  if (options.prefetch < 2 || options.prefetch > max_prefetch)
    fail<UsageError>("prefetch {}: must be from 2 to {} batches", options.prefetch, max_prefetch);
  if (options.hold < 1 || options.hold > max_prefetch)
    fail<UsageError>("hold {}: must be from 1 to {} batches", options.hold, max_prefetch);
  return options;
}

template <class Pointer>
Pointer given(Pointer pointer, std::string_view what) {
  if (!pointer) fail<UsageError>("a loader of no {}: the pointer is null", what);
  return pointer;
}

int most_workers(const LoaderOptions& options, const BatchMaker& maker) {
  if (options.workers > 0) return options.workers;
  if (maker.is_light()) return 1;
  const int cores = allowed_cores();
  return std::max(options.start_workers, std::clamp(cores - 1, 1, most_tuned_workers));
}

int first_workers(const LoaderOptions& options, const BatchMaker& maker) {
  const int most = most_workers(options, maker);
  if (options.workers > 0) return most;
  return options.start_workers > 0 ? options.start_workers : (most + 1) / 2;
}

// The thread that launches steps has priority: when it is late, the step is late. A failure
// to lower a worker's priority is harmless.
void lower_own_priority() {
  const auto self = static_cast<id_t>(::gettid());
  ::setpriority(PRIO_PROCESS, self, ::getpriority(PRIO_PROCESS, self) + worker_nice);
}

}  // namespace

Loader::Loader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options)
    : Loader(
          std::make_unique<ImageBatches>(given(std::move(dataset), "data set"), checked(options)),
          options) {}

Loader::Loader(std::unique_ptr<BatchMaker> maker, const LoaderOptions& options)
    : options_(checked(options)),
      maker_(given(std::move(maker), "batch maker")),
      ready_name_(spans::of_loader("batch ready", options_.thread_name), record::Kind::mark),
      depth_name_(spans::of_loader("batches ready", options_.thread_name), record::Kind::counter) {
  if (maker_->batch() != options_.batch)
    fail<UsageError>(
        "{}: the batch maker was made for batches of {}, the loader for {}; give both the same "
        "LoaderOptions",
        maker_->path(), maker_->batch(), options_.batch);
  claim_rows_ = maker_->claim();
  ring_ = std::make_unique<Ring>(
      static_cast<std::uint32_t>(options_.prefetch + options_.hold - 1),
      static_cast<std::uint32_t>((options_.batch + claim_rows_ - 1) / claim_rows_));
  for (int i = 0; i < most_workers(options_, *maker_); ++i) {
    states_.push_back(std::make_unique<MakerState>(maker_->stages().size()));
    states_.back()->developer.scratch.choice = options_.decoders;
  }
  slots_ = std::vector<Slot>(ring_->slots());
  active_ = first_workers(options_, *maker_);
  tuner_ = Tuner(active_, options_.workers > 0 ? active_ : workers());
  ring_->set_active(static_cast<std::uint32_t>(active_));
  next_ = oldest_held_ = batch_of(options_.start);
  memory_bound_ = memory_bound(*maker_, options_);
  if (options_.memory_limit_bytes > 0 && memory_bound_.total() > options_.memory_limit_bytes)
    fail<UsageError>(
        "the loader may need {}, more than the limit of {:.1f} MiB; use a smaller "
        "--batch, --prefetch or --workers, or a larger --memory",
        memory_bound_.text(), static_cast<double>(options_.memory_limit_bytes) / (1 << 20));
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
  if (options_.memory == nullptr) {
    heap_ = std::make_unique<Heap>();
    options_.memory = heap_.get();
  }
  try {
    memory_ = options_.memory->allocate(slot_bytes());
  } catch (const std::bad_alloc&) {
    fail<UsageError>(
        "cannot allocate the loader's {} bytes: {} batches of {} {}; use a smaller --batch or "
        "--prefetch",
        slot_bytes(), slots_.size(), options_.batch, maker_->sample_text());
  }
  if (!memory_) fail<UsageError>("LoaderOptions::memory allocated nothing: the pointer is null");
  for (std::size_t i = 0; i < slots_.size(); ++i)
    slots_[i].bytes = {memory_ + i * maker_->slot_bytes(), maker_->slot_bytes()};
}

std::uint64_t Loader::batch_of(Position position) const {
  if (position.step >= steps_per_epoch()) {
    fail<UsageError>("step {} of epoch {}: an epoch of {} has {} steps of {} samples",
                     position.step, position.epoch, maker_->path(), steps_per_epoch(),
                     options_.batch);
  }
  if (position.epoch > std::numeric_limits<std::uint32_t>::max()) {
    fail<UsageError>("epoch {}: the number must be below 2^32", position.epoch);
  }
  return position.epoch * steps_per_epoch() + position.step;
}

void Loader::start(std::uint64_t batch) {
  ring_->reset(batch);
  for (Slot& slot : slots_) slot.bad.clear();
  for (auto& state : states_) state->epoch = ~std::uint64_t{0};
  failure_ = nullptr;
  try {
    start_threads();
  } catch (...) {
    failure_ = std::current_exception();
    stop();
    throw;
  }
}

void Loader::start_threads() {
  process_ = ::getpid();
  threads_.reserve(states_.size());  // a thread that finds no place would end the program
  try {
    for (std::uint32_t i = 0; i < states_.size(); ++i)
      threads_.push_back(
          start_thread(fmt::format("{} {}", options_.thread_name, i), [this, i] { work(i); }));
  } catch (const Error& error) {
    fail<Error>("only {} of {} data workers could be started: {}; use fewer --workers",
                threads_.size(), states_.size(), error.what());
  }
}

void Loader::require_own_process() const {
  if (::getpid() != process_)
    fail<UsageError>(
        "{}: this loader's threads are not in a forked process; make a loader of its own there",
        maker_->path());
}

// After a seek() that failed nobody fills a slot.
void Loader::require_started() const {
  if (failure_) std::rethrow_exception(failure_);
  require_own_process();
}

void Loader::stop() {
  ring_->stop();
  if (::getpid() != process_) {  // the fork may have freed what joining them would read
    static_cast<void>(new std::vector<std::thread>(std::move(threads_)));
    threads_.clear();
    return;
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Loader::work(std::uint32_t worker) {
  lower_own_priority();
  MakerState& state = *states_[worker];
  const CpuClock::Running on_core(state.cpu);
  const auto stopping = [this] { return ring_->stopping(); };
  std::vector<BadSample> bad;
  // A user's data set, transform or batch maker may throw anything, and in this thread nobody else
  // would catch it. An exception ends the run when the batch is due.
  const auto guarded = [this](Position position, std::vector<BadSample>& into, const auto& make) {
    try {
      make();
    } catch (...) {
      into.push_back({0, position, 0,
                      fmt::format("{}: {} (epoch {}, step {})", maker_->path(), caught_text(),
                                  position.epoch + 1, position.step + 1),
                      true});
    }
  };
  RunDelay delay;
  for (;;) {
    const spans::Idle idle;
    const auto claim = ring_->claim(worker);
    idle.end(delay);
    if (!claim) return;
    std::atomic<std::uint64_t>& waited = state.times.wait_ns;
    waited.store(waited.load(std::memory_order_relaxed) + claim->wait_ns,
                 std::memory_order_relaxed);
    Slot& slot = slot_of(claim->batch);
    const Position position = position_of(claim->batch);
    const std::int64_t begin = claim->part * claim_rows_;
    guarded(position, bad, [&] {
      if (claim->part == 0) maker_->prepare_next(position);
      const spans::CpuTime cpu(delay);
      maker_->fill(position, begin, std::min(begin + claim_rows_, options_.batch), slot.bytes,
                   state, bad, stopping);
    });
    if (!bad.empty()) {
      const std::lock_guard lock(slot.mutex);
      std::move(bad.begin(), bad.end(), std::back_inserter(slot.bad));
      bad.clear();
    }
    if (ring_->stopping()) return;  // fill() may have left rows out
    if (!ring_->finish(*claim)) continue;
    guarded(position, slot.bad, [&] { maker_->finish(position, slot.bytes, state, slot.bad); });
    const std::uint64_t now = now_ns();
    record::note(ready_name_, now, now, claim->batch);
    ring_->publish(*claim);
  }
}

const Batch& Loader::next() {
  require_started();
  release_old_batches();
  // Of those that are ready the trainer has some already. None is left where it must wait.
  const std::uint32_t ready =
      ring_->ready_count() - static_cast<std::uint32_t>(next_ - oldest_held_);
  record::mark(depth_name_, ready);
  const std::uint64_t wait_ns = wait_for(next_) + std::exchange(waited_ns_, 0);
  const Slot& slot = slot_of(next_);
  accept(slot);
  note_taken(wait_ns, ready);
  batch_.position = position_of(next_);
  batch_.inputs.clear();
  batch_.slot = slot.bytes;
  batch_.wait_ns = wait_ns;
  maker_->describe(slot.bytes, batch_);
  ++next_;
  return batch_;
}

// Returns slots to the workers, oldest batch first, until the caller holds one batch fewer than it
// may: the batch that next() is about to return is the last one.
void Loader::release_old_batches() {
  const auto most = static_cast<std::uint64_t>(options_.hold) - 1;
  for (; next_ - oldest_held_ > most; ++oldest_held_) {
    slot_of(oldest_held_).bad.clear();
    ring_->release(oldest_held_);
  }
}

bool Loader::ready_within(std::chrono::nanoseconds longest) {
  constexpr std::chrono::microseconds first_pause{20}, longest_pause{500};
  require_started();
  if (ring_->ready(next_)) return true;
  const std::uint64_t begin = now_ns();
  const std::uint64_t end = begin + static_cast<std::uint64_t>(longest.count());
  for (auto pause = first_pause; !ring_->ready(next_) && now_ns() < end;
       pause = std::min(2 * pause, longest_pause))
    std::this_thread::sleep_for(pause);
  waited_ns_ += now_ns() - begin;
  return ring_->ready(next_);
}

std::span<std::byte> Loader::exchange(std::span<std::byte> other) {
  if (options_.hold != 1 || oldest_held_ + 1 != next_)
    fail<UsageError>(
        "the memory of a batch is exchanged once, right after next(), and with hold 1");
  Slot& slot = slot_of(oldest_held_);
  if (other.size() != slot.bytes.size())
    fail<UsageError>("a batch has {} bytes of memory: it cannot be exchanged for {}",
                     slot.bytes.size(), other.size());
  const std::span<std::byte> given = std::exchange(slot.bytes, other);
  slot.bad.clear();
  ring_->release(oldest_held_++);
  return given;
}

// How long it slept; reads no clock when the batch is ready.
std::uint64_t Loader::wait_for(std::uint64_t batch) const {
  if (ring_->ready(batch)) return 0;
  const std::uint64_t begin = now_ns();
  ring_->wait(batch);
  return now_ns() - begin;
}

// Throws when the policy does not allow the batch's bad samples; otherwise adds them to the list.
void Loader::accept(const Slot& slot) {
  if (slot.bad.empty()) return;
  for (const BadSample& bad : slot.bad)
    if (bad.fatal || options_.errors == DataErrors::fail) throw DataError(bad.message);
  const std::lock_guard lock(mutex_);
  // Once, although the batch stays the next one where they are too many.
  if (std::exchange(counted_, next_ + 1) != next_ + 1)
    for (const BadSample& bad : slot.bad) {
      bad_.push_back(bad);
      bad_indices_.insert(bad.index);
    }
  bad_count_.store(bad_.size(), std::memory_order_relaxed);
  const double most = options_.max_bad * static_cast<double>(samples());
  if (static_cast<double>(bad_indices_.size()) <= most) return;
  fail<DataError>(
      "{} of {} samples cannot be decoded, more than --max-bad {} (a share) allows: repair them or "
      "allow more; the last one: {}",
      bad_indices_.size(), samples(), options_.max_bad, slot.bad.back().message);
}

void Loader::seek(Position position) {
  const std::uint64_t batch = batch_of(position);
  require_own_process();
  if (batch == next_ && !failure_) return;
  // A thread starts in about 20 us: cheaper than cancelling the claims that workers hold.
  stop();
  next_ = oldest_held_ = batch;
  counted_ = 0;
  waited_ns_ = 0;
  start(batch);
}

void Loader::note_taken(std::uint64_t wait_ns, std::uint32_t ready) {
  const std::uint64_t now = now_ns();
  std::uint64_t step_ns = 0;
  {
    const std::lock_guard lock(mutex_);
    if (taken_++ > 0)
      step_ns = now - last_taken_ns_;
    else
      first_taken_ns_ = now;
    last_taken_ns_ = now;
    trainer_wait_ns_ += wait_ns;
    ready_sum_ += ready;
  }
  if (options_.workers > 0 || states_.size() == 1 || step_ns == 0) return;
  const auto held = static_cast<std::uint32_t>(next_ - oldest_held_);
  if (!tuner_.observe({wait_ns, step_ns, ready + held == ring_->slots()})) return;
  ring_->set_active(static_cast<std::uint32_t>(tuner_.active()));
  const std::lock_guard lock(mutex_);
  active_ = tuner_.active();
}

namespace {

std::vector<StageTime> stages_of(const WorkerTimes& times, const std::vector<std::string>& names) {
  const auto value = [](const std::atomic<std::uint64_t>& counter) {
    return counter.load(std::memory_order_relaxed);
  };
  std::vector<StageTime> stages{{"wait", value(times.wait_ns)},
                                {"read", value(times.read_ns)},
                                {"decode", value(times.decode_ns)},
                                {"resize", value(times.resize_ns)}};
  for (std::size_t i = 0; i < names.size(); ++i)
    stages.push_back({names[i], value(times.transforms_ns[i])});
  stages.push_back({"pixels", value(times.pixels_ns)});
  stages.push_back({"copy", value(times.copy_ns)});
  return stages;
}

}  // namespace

MemoryBound memory_bound(const BatchMaker& maker, const LoaderOptions& options) {
  const int slots = options.prefetch + options.hold - 1;
  return {
      .slots = static_cast<std::uint64_t>(slots) * maker.slot_bytes(),
      .workers = static_cast<std::uint64_t>(most_workers(options, maker)) * maker.worker_bytes(),
      .order = maker.order_bytes(),
      .dataset = maker.data_bytes()};
}

std::vector<SlowSample> Loader::slowest() const {
  std::vector<SlowestSamples::Sample> all;
  for (const auto& state : states_) {
    const auto of_worker = state->slowest.list();
    all.insert(all.end(), of_worker.begin(), of_worker.end());
  }
  std::ranges::sort(all, std::ranges::greater{}, &SlowestSamples::Sample::ns);
  if (all.size() > SlowestSamples::most) all.resize(SlowestSamples::most);
  std::vector<SlowSample> named;
  for (const SlowestSamples::Sample& sample : all)
    named.push_back({maker_->name(sample.index), maker_->class_name(sample.index), sample.ns});
  return named;
}

LoaderStats Loader::stats() const {
  LoaderStats stats;
  for (const auto& state : states_) {
    WorkerStats worker;
    worker.stages = stages_of(state->times, maker_->stages());
    worker.samples = state->times.samples.load(std::memory_order_relaxed);
    worker.bytes = state->times.bytes.load(std::memory_order_relaxed);
    worker.cpu_ns = state->cpu.ns();
    stats.samples += worker.samples;
    stats.cpu_ns += worker.cpu_ns;
    stats.bytes += worker.bytes;
    if (stats.stages.empty()) {
      stats.stages = worker.stages;
    } else {
      for (std::size_t i = 0; i < worker.stages.size(); ++i)
        stats.stages[i].ns += worker.stages[i].ns;
    }
    stats.workers.push_back(std::move(worker));
  }
  stats.slowest = slowest();
  stats.prefetch = options_.prefetch;
  const std::lock_guard lock(mutex_);
  stats.batches = taken_;
  stats.trainer_wait_ns = trainer_wait_ns_;
  stats.active = active_;
  stats.bad = bad_.size();
  stats.first_taken_ns = first_taken_ns_;
  stats.last_taken_ns = last_taken_ns_;
  if (taken_ > 0) stats.mean_ready = static_cast<double>(ready_sum_) / static_cast<double>(taken_);
  return stats;
}

void Loader::know_bad(std::uint64_t index) {
  const std::lock_guard lock(mutex_);
  if (index < samples()) bad_indices_.insert(index);
}

std::vector<BadSample> Loader::bad_samples(std::size_t from) const {
  const std::lock_guard lock(mutex_);
  return {bad_.begin() + static_cast<std::ptrdiff_t>(std::min(from, bad_.size())), bad_.end()};
}

namespace {

double percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

// Which option would shorten the workers' longest stage.
std::string advice(const LoaderStats& stats, const StageTime& longest, const std::string& encoding,
                   int most_workers) {
  const std::string more =
      stats.active < most_workers
          ? fmt::format("--workers {}", std::min(most_workers, 2 * std::max(1, stats.active)))
          : "a machine with more cores";
  if (longest.name == "decode" && encoding == "jpeg")
    return fmt::format(
        "pack the set with `warpstep data pack` (of seekable JPEG files only the crop is decoded), "
        "or use {}",
        more);
  if (longest.name == "decode" && (encoding == "packed jpeg" || encoding == "encoded"))
    return fmt::format("use smaller crops or {}", more);
  if (longest.name == "decode" && encoding != "png")  // what is read is decoded already
    return fmt::format(
        "the first epoch decodes each image once; store decoded images (`warpstep data pack "
        "--decode`), or use {}",
        more);
  if (longest.name == "decode")
    return fmt::format(
        "keep decoded images (--tier mapped), store them (`warpstep data pack --decode`), or use "
        "{}",
        more);
  if (longest.name == "read")
    return fmt::format("pack the set into one file with `warpstep data pack`, or use {}", more);
  if (longest.name == "pixels") return "normalise on the device (--normalize device)";
  return fmt::format("use {}", more);
}

}  // namespace

std::uint64_t LoaderStats::stage_ns(const std::string& name) const {
  for (const StageTime& stage : stages)
    if (stage.name == name) return stage.ns;
  return 0;
}

std::string MemoryBound::text() const {
  const auto mib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  return fmt::format("{:.1f} MiB (slots {:.1f}, workers {:.1f}, order {:.1f}, data set {:.1f})",
                     mib(total()), mib(slots), mib(workers), mib(order), mib(dataset));
}

std::string diagnose(const LoaderStats& stats, const std::string& encoding, int most_workers) {
  if (stats.batches < 2) return "data: too few batches for statistics";
  std::uint64_t busy = 0;
  for (const StageTime& stage : stats.stages) busy += stage.ns;
  std::vector<StageTime> order = stats.stages;
  std::stable_sort(order.begin(), order.end(),
                   [](const StageTime& a, const StageTime& b) { return a.ns > b.ns; });
  const std::uint64_t whole = stats.last_taken_ns - stats.first_taken_ns;
  const double waits = percent(std::min(stats.trainer_wait_ns, whole), whole);
  std::string text = fmt::format("data: {} worker{}, trainer waits {:.1f} %, ", stats.active,
                                 stats.active == 1 ? "" : "s", waits);
  std::string stages;
  for (const StageTime& stage : order) {
    const double share = percent(stage.ns, busy);
    if (share < 0.5) continue;
    stages += fmt::format("{}{} {:.0f} %", stages.empty() ? "" : ", ", stage.name, share);
  }
  text += stages.empty() ? "no work" : "workers: " + stages;
  const auto longest =
      std::find_if(order.begin(), order.end(), [](const StageTime& s) { return s.name != "wait"; });
  if (waits < 1 || longest == order.end()) return text + "; loading overlaps with computing";
  if (2 * stats.stage_ns("wait") > busy)
    return text + (encoding == "resident"
                       ? "; nothing is left to load: the trainer waits at the start, after "
                         "evaluations, or for a core that others use"
                       : "; the workers have time to spare: the trainer waits at the start, for a "
                         "core that others use, or because too few batches are made ahead "
                         "(--prefetch)");
  return text + fmt::format("; bottleneck: {}: {}", longest->name,
                            advice(stats, *longest, encoding, most_workers));
}

}  // namespace warpstep::data
