// What makes the content of a batch: a pure function of (seed, epoch, step, row) without threads.
// Also the options of a loader, all of which decide what a batch holds, who makes it or where.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/decode/decode.h"
#include "data/formats/dataset.h"
#include "data/load/order.h"
#include "data/transforms/develop.h"
#include "data/transforms/recipe.h"
#include "engine/core/batch.h"
#include "engine/core/record.h"
#include "engine/core/run_delay.h"

namespace warpstep::data {

// So many rows before its use a maker asks the system to read a sample.
constexpr std::uint64_t hint_distance = 256;

enum class Tail : std::uint8_t {
  drop,  // samples that do not fill the last batch are left out of this epoch
  pad    // the last batch gets rows of zeros with label -1, which are not counted
};

// How a row is handled whose sample cannot be decoded.
enum class DataErrors : std::uint8_t {
  fail,  // next() throws when it reaches the row's batch
  skip,  // the row repeats the next good row of its batch; in an evaluation, and where Tail pads if
         // there is none: mask
  mask   // zeros with label -1, which are not counted
};

// Where slots are allocated. A backend may provide memory that its device can read directly.
class SlotMemory {
 public:
  virtual ~SlotMemory() = default;
  virtual std::byte* allocate(std::size_t bytes) = 0;  // aligned to 64 bytes; throws on failure
  virtual void release(std::byte* memory, std::size_t bytes) noexcept = 0;
};

struct LoaderOptions {
  std::int64_t batch = 128;  // rows per batch of this rank
  int workers = 0;           // threads; 0: tuned while it runs, at most 8 and all cores but one
  int start_workers = 0;     // with workers 0: how many are active first; 0: half of the most
  int prefetch = 3;          // batches in the ring, 2 or more: one is the trainer's
  int hold = 1;              // how many of the last batches stay valid; each beyond 1 adds a slot
  std::uint64_t seed = 0;
  Shuffle shuffle = Shuffle::full;
  std::uint64_t shuffle_window = 8192;  // samples; for Shuffle::window
  // Of each global batch of world * batch rows, rank r has rows [r * batch, (r + 1) * batch): the
  // ranks' batches, concatenated, are the batches of a world of 1.
  std::uint32_t world = 1, rank = 0;
  Tail tail = Tail::drop;
  // Every sample counts once, so that no row may repeat another; messages name the options of
  // evaluations, and no epoch and step.
  bool evaluates = false;
  Recipe recipe;
  // If set, workers also normalise: images are f32 then, else bytes. Not for recipes that mix.
  std::optional<PixelPlan> pixels;
  // A whole decoded set in memory that the step can read (a device's or the host's), [samples,
  // height, width, channels]: slots have no images then, their rows say what to gather.
  std::span<const std::uint8_t> resident;
  // Of the loss, for Batch::weight, one a class, or one for each token there is; empty: all are 1.
  std::vector<float> class_weights;
  DecoderChoice decoders;
  DataErrors errors = DataErrors::fail;
  double max_bad = 0.001;  // share of the set; when more samples cannot be decoded, the run ends
  std::uint64_t memory_limit_bytes = 0;  // 0: none
  Position start;                        // the first batch
  SlotMemory* memory = nullptr;          // null: the heap; must outlive the loader
  std::string thread_name = "loader";    // of its workers, before their numbers
};

}  // namespace warpstep::data

// The trace events of a loader's threads.
namespace warpstep::data::spans {

inline const record::Name sample{"sample", record::Kind::sample};  // arg: its ticket
inline const record::Name pixels{"pixels", record::Kind::stage};
inline const record::Name idle{"idle", record::Kind::idle};
inline const record::Name worker_cpu{"worker cpu ns", record::Kind::counter};  // per claim
// After it, of a claim that was off a core for long: how much of that it waited for one.
inline const record::Name worker_delay{"worker delay ns", record::Kind::counter};

// "batch ready"; of a loader whose threads have another name "batch ready, test loader", so that
// the two can be distinguished.
std::string of_loader(const std::string& name, const std::string& thread_name);

// The time between construction and end(), in which a worker waits for work. Recorded only when it
// is longer than an uncontended claim.
class Idle {
 public:
  Idle() : since_ns_(record::is_on() ? now_ns() : 0) {}
  void end(RunDelay& delay) const;  // delays until now are not of work

 private:
  std::uint64_t since_ns_;
};

// Records the CPU time that the calling thread uses in a scope, and its delays if they may be long.
class CpuTime {
 public:
  explicit CpuTime(RunDelay& delay);
  ~CpuTime();
  CpuTime(const CpuTime&) = delete;
  CpuTime& operator=(const CpuTime&) = delete;

 private:
  RunDelay& delay_;
  std::uint64_t begin_ns_ = 0, cpu_begin_ns_ = 0;
};

}  // namespace warpstep::data::spans

namespace warpstep::data {

// A row whose sample could not be read or decoded.
struct BadSample {
  std::uint64_t index = 0;  // in the data set
  Position position;
  std::int64_t row = 0;
  std::string message;  // names file, byte, sample, epoch and step
  bool fatal = false;   // ends the run under every policy
};

// The samples that took longest. One thread adds; any may read.
class SlowestSamples {
 public:
  struct Sample {
    std::uint64_t ns = 0;
    std::uint64_t index = 0;  // in the data set
  };
  static constexpr std::size_t most = 8;

  void add(std::uint64_t ns, std::uint64_t index) {
    if (ns > least_ns_) insert({ns, index});
  }
  std::vector<Sample> list() const;  // the slowest first

 private:
  void insert(const Sample& sample);

  std::uint64_t least_ns_ = 0;  // of the adding thread: faster samples are not kept
  mutable std::mutex mutex_;
  std::vector<Sample> samples_;  // in descending order
};

// Times of one worker. Only that worker writes them.
struct WorkerTimes {
  std::atomic<std::uint64_t> wait_ns{0}, read_ns{0}, decode_ns{0}, resize_ns{0}, pixels_ns{0},
      copy_ns{0}, samples{0}, bytes{0};
  std::vector<std::atomic<std::uint64_t>> transforms_ns;  // by Recipe::worker_names()

  explicit WorkerTimes(std::size_t transforms) : transforms_ns(transforms) {}
};

// The CPU time of a worker's threads, which run one after the other. Any thread may ask.
class CpuClock {
 public:
  // While it lives, the thread that made it counts.
  class Running {
   public:
    explicit Running(CpuClock& clock);
    ~Running();
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

   private:
    CpuClock& clock_;
  };

  std::uint64_t ns() const;  // 0 where the system has no clocks of threads

 private:
  mutable std::mutex mutex_;
  std::uint64_t ended_ns_ = 0;  // of threads before
  std::optional<clockid_t> running_;
};

// The state of one worker; created once and reused, so that its buffers keep their memory.
struct MakerState {
  explicit MakerState(std::size_t transforms) : times(transforms), transforms_ns(transforms) {}

  Developer developer;
  std::vector<std::uint8_t> bytes;          // a row before a worker normalises it
  std::vector<std::int32_t> tokens;         // a window and the token after it
  std::vector<std::uint32_t> counts;        // for sorting tokens
  std::uint64_t epoch = ~std::uint64_t{0};  // when the set was last checked for changes
  WorkerTimes times;
  CpuClock cpu;
  SlowestSamples slowest;
  std::vector<std::uint64_t> transforms_ns;
};

// What the batches of a loader hold. fill(), finish() and prepare_next() are called by all workers
// at once; what they throw, of any type, ends the run when the batch is due.
class BatchMaker {
 public:
  virtual ~BatchMaker() = default;

  virtual std::string path() const = 0;                     // of the data, for messages
  virtual std::string name(std::uint64_t index) const = 0;  // of a sample: its file, or its place
  // Of a sample; "": it has none.
  virtual std::string class_name(std::uint64_t) const { return ""; }
  virtual std::string sample_text() const = 0;  // "images of 32x32x3", for messages
  virtual std::uint64_t samples() const = 0;    // in an epoch, before the tail policy
  virtual std::uint64_t steps_per_epoch() const = 0;
  virtual std::int64_t batch() const = 0;               // rows
  virtual std::size_t slot_bytes() const = 0;           // a multiple of 64
  virtual std::int64_t claim() const = 0;               // rows that a worker makes at a time
  virtual std::vector<std::string> stages() const = 0;  // of its own, for MakerState
  virtual bool is_light() const = 0;                    // one worker is always enough
  // The most memory, in bytes: of one worker, of the order of samples, and of the data themselves.
  virtual std::uint64_t worker_bytes() const = 0;
  virtual std::uint64_t order_bytes() const = 0;
  virtual std::uint64_t data_bytes() const = 0;

  // Writes rows [begin, end) of a batch and appends samples that cannot be decoded to `bad`.
  // Returns early when stop() is true.
  virtual void fill(Position position, std::int64_t begin, std::int64_t end,
                    std::span<std::byte> slot, MakerState& state, std::vector<BadSample>& bad,
                    const std::function<bool()>& stop) = 0;
  // Called when all rows are written: whatever needs more than one row. Sorts `bad` by row.
  virtual void finish(Position position, std::span<std::byte> slot, MakerState& state,
                      std::vector<BadSample>& bad) const = 0;
  // Prepares the next epoch halfway through this one, so that no worker waits at the boundary.
  virtual void prepare_next(Position position) = 0;
  // The batch's inputs in `slot`, and its count.
  virtual void describe(std::span<const std::byte> slot, Batch& batch) const = 0;
};

}  // namespace warpstep::data
