// What a loader is asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "data/decode.h"
#include "data/order.h"
#include "data/recipe.h"
#include "engine/core/batch.h"

namespace warpstep::data {

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
