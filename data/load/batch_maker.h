// What stands in each row of each batch: arithmetic in (seed, epoch, step, row), without threads.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
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

namespace warpstep::data {

// What a loader is asked for.

enum class Tail : std::uint8_t {
  drop,  // samples that do not fill the last batch are left out of this epoch
  pad    // the last batch gets rows of zeros with label -1, which are not counted
};

// What becomes of a row whose sample cannot be decoded.
enum class DataErrors : std::uint8_t {
  fail,  // next() throws when the turn comes to its batch
  skip,  // it repeats the next good row of its batch
  mask   // zeros with label -1, which are not counted
};

// Where slots live. A backend may hand memory that its device can read directly.
class SlotMemory {
 public:
  virtual ~SlotMemory() = default;
  virtual std::byte* allocate(std::size_t bytes) = 0;  // aligned to 64 bytes; throws on failure
  virtual void release(std::byte* memory, std::size_t bytes) noexcept = 0;
};

struct LoaderOptions {
  std::int64_t batch = 128;  // rows; of this rank
  int workers = 0;           // threads; 0: as many as it takes, of all cores but one and at most 8
  int start_workers = 0;     // that 0 begins with; 0: half of the most
  int prefetch = 3;          // batches in the ring, 2 or more: one is the trainer's
  int hold = 1;              // batches given last that stay valid; those beyond one add slots
  std::uint64_t seed = 0;
  Shuffle shuffle = Shuffle::full;
  std::uint64_t shuffle_window = 8192;  // samples, of Shuffle::window
  // Rank r of a world of w has rows [r batch, (r + 1) batch) of each global batch of w batch rows:
  // the ranks' batches side by side are the batches of a world of 1.
  std::uint32_t world = 1, rank = 0;
  Tail tail = Tail::drop;
  Recipe recipe;
  // Workers also make the numbers: images are f32 then, else bytes. Not for recipes that mix.
  std::optional<PixelPlan> pixels;
  // A whole decoded set where the step can read it, [samples, height, width, channels], in the
  // memory of a device or the host's: slots have no images then, their rows say what to gather.
  std::span<const std::uint8_t> resident;
  DecoderChoice decoders;
  DataErrors errors = DataErrors::fail;
  double max_bad = 0.001;  // of the samples of the set; more that cannot be decoded end the run
  std::uint64_t memory_limit_bytes = 0;  // 0: none
  Position start;                        // of the first batch
  SlotMemory* memory = nullptr;          // null: the heap; must outlive the loader
  std::string thread_name = "loader";    // of its workers, before their numbers
};

}  // namespace warpstep::data

namespace warpstep::data::spans {

// What a loader's threads tell the profiler.

inline const record::Name sample{"sample", record::Kind::sample};  // arg: its ticket
inline const record::Name pixels{"pixels", record::Kind::stage};
inline const record::Name idle{"idle", record::Kind::idle};
inline const record::Name worker_cpu{"worker cpu ns", record::Kind::counter};  // of a claim

// A name that is told apart from that of another loader: "batch ready", or "batch ready, test
// loader".
std::string of_loader(const std::string& name, const std::string& thread_name);

// Between its construction and end() a worker asked for work and waited; told when that took longer
// than asking does.
class Idle {
 public:
  Idle() : since_ns_(record::is_on() ? now_ns() : 0) {}
  void end() const;

 private:
  std::uint64_t since_ns_;
};

// The CPU time that the calling thread takes in a scope.
class CpuTime {
 public:
  CpuTime();
  ~CpuTime();
  CpuTime(const CpuTime&) = delete;
  CpuTime& operator=(const CpuTime&) = delete;

 private:
  std::uint64_t begin_ns_;
};

}  // namespace warpstep::data::spans

namespace warpstep::data {

// The memory of one batch: one piece, images first, then labels, then rows, each at a multiple of
// 64 bytes.
struct SlotLayout {
  std::size_t row_bytes = 0;  // of one image; 0 with a resident set
  std::size_t labels = 0, rows = 0, bytes = 0;

  SlotLayout(std::size_t image_row_bytes, std::int64_t batch);
};

struct SlotView {
  std::span<std::byte> bytes;
  std::span<std::uint8_t> images;
  std::span<std::int32_t> labels;
  std::span<RowPlan> plans;

  SlotView() = default;
  SlotView(std::byte* memory, const SlotLayout& layout, std::int64_t batch);
};

// A row whose sample could not be had.
struct BadSample {
  std::uint64_t index = 0;  // of the data set
  Position position;
  std::int64_t row = 0;
  std::string message;  // names file, byte, sample, epoch and step
  bool fatal = false;   // ends the run whatever the policy is
};

// Times of one worker, one writer each.
struct WorkerTimes {
  std::atomic<std::uint64_t> wait_ns{0}, read_ns{0}, decode_ns{0}, resize_ns{0}, pixels_ns{0},
      copy_ns{0}, samples{0}, bytes{0};
  std::vector<std::atomic<std::uint64_t>> transforms_ns;  // by Recipe::worker_names()

  explicit WorkerTimes(std::size_t transforms) : transforms_ns(transforms) {}
};

// One worker's state; made anew by nobody, so that buffers are kept.
struct MakerState {
  explicit MakerState(std::size_t transforms) : times(transforms), transforms_ns(transforms) {}

  Developer developer;
  std::vector<std::uint8_t> bytes;          // of a row whose numbers are made here too
  std::uint64_t epoch = ~std::uint64_t{0};  // in which the set was last found unchanged
  WorkerTimes times;
  std::vector<std::uint64_t> transforms_ns;
};

class BatchMaker {
 public:
  // Throws UsageError for options that cannot be meant.
  BatchMaker(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options);

  const Dataset& dataset() const { return *dataset_; }
  const LoaderOptions& options() const { return options_; }
  const Shape& image_shape() const { return shape_; }  // of a row: [height, width, channels]
  const SlotLayout& layout() const { return layout_; }
  std::uint64_t steps_per_epoch() const { return steps_; }
  std::int64_t rows_of(Position position) const;  // that are samples
  std::size_t order_bytes() const { return order_.bytes(); }

  // Writes rows [begin, end) of a batch; what cannot be had is added to `bad`. Ends early once
  // *stop is set.
  void fill(Position position, std::int64_t begin, std::int64_t end, const SlotView& slot,
            MakerState& state, std::vector<BadSample>& bad, const std::function<bool()>& stop);
  // When all rows are there: what becomes of the bad ones, and the pairs of mixing. Changes the
  // order of `bad` to that of the rows.
  void finish(Position position, const SlotView& slot, std::vector<BadSample>& bad) const;
  // Half an epoch early, so that nobody waits for the next permutation at the boundary.
  void prepare_next(Position position);

 private:
  void make_row(std::uint64_t index, Position position, std::int64_t row, const SlotView& slot,
                MakerState& state) const;
  void hint(Position position, std::int64_t row, const EpochOrder& order) const;
  std::uint64_t place_of(Position position, std::int64_t row) const;
  std::uint64_t ticket(Position position, std::int64_t row) const {  // counted through all epochs
    return (position.epoch * steps_ + position.step) * static_cast<std::uint64_t>(options_.batch) +
           static_cast<std::uint64_t>(row);
  }
  BadSample bad_sample(std::uint64_t index, Position position, std::int64_t row,
                       const std::string& what) const;
  void replace(const SlotView& slot, std::int64_t samples, std::vector<BadSample>& bad) const;
  void pair(const SlotView& slot) const;

  std::shared_ptr<const Dataset> dataset_;
  LoaderOptions options_;
  Shape shape_;
  SlotLayout layout_;
  std::uint64_t global_batch_ = 0;
  std::uint64_t steps_ = 0;
  bool is_resident_ = false;
  bool plans_rows_ = false;
  Order order_;
};

}  // namespace warpstep::data
