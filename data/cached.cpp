#include "data/cached.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "data/parallel.h"
#include "engine/core/error.h"

namespace warpstep::data {
namespace {

constexpr std::uint8_t unknown = 0, in_the_making = 1, decoded = 2, not_kept = 3;

}  // namespace

CachedDataset::CachedDataset(std::shared_ptr<const Dataset> inner)
    : inner_(std::move(inner)),
      shape_(inner_->image_shape()),
      image_bytes_(idx(shape_.count())),
      bytes_(image_bytes_ * inner_->size()),
      state_(inner_->size()) {
  // Pages are the system's until they are written.
  void* memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    fail<UsageError>("{}: {} bytes for its decoded images: {}; use --tier decoded", inner_->path(),
                     bytes_, std::strerror(errno));
  pixels_ = static_cast<std::uint8_t*>(memory);
}

CachedDataset::~CachedDataset() {
  ::munmap(pixels_, bytes_);
}

Sample CachedDataset::fetch(std::uint64_t index, Scratch& scratch) const {
  std::atomic<std::uint8_t>& state = state_[index];
  const Sample cached{{pixels_of(index), image_bytes_}, Encoding::pixels, shape_};
  if (state.load(std::memory_order_acquire) == decoded) return cached;
  const Sample sample = inner_->fetch(index, scratch);
  // Whoever comes second while the first is at it, or meets an image of another size, decodes for
  // itself.
  std::uint8_t expected = unknown;
  if (!state.compare_exchange_strong(expected, in_the_making, std::memory_order_relaxed))
    return sample;
  // What cannot be kept is passed on as it is stored: a window of it may still be good, and whoever
  // decodes that judges.
  std::uint8_t outcome = not_kept;
  try {
    const std::string file = name(index);
    const Shape shape = decoded_shape(sample, file);
    if (shape[0] == shape_[0] && shape[1] == shape_[1]) {
      decode(sample, file, shape, {0, 0, shape[0], shape[1]}, shape_[2], scratch,
             {pixels_of(index), image_bytes_});
      outcome = decoded;
    }
  } catch (const DataError&) {
  }
  state.store(outcome, std::memory_order_release);
  return outcome == decoded ? cached : sample;
}

void CachedDataset::will_need(std::uint64_t index) const {
  if (state_[index].load(std::memory_order_relaxed) == unknown) inner_->will_need(index);
}

std::span<const std::uint8_t> CachedDataset::all_pixels() const {
  if (!whole_) return {};
  return {pixels_, bytes_};
}

void CachedDataset::decode_all(int workers) {
  if (workers <= 0) workers = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  std::vector<Scratch> scratches(static_cast<std::size_t>(workers));
  std::mutex mutex;
  std::map<std::uint64_t, std::string> broken;
  parallel_for(size(), workers, [&](int thread, std::uint64_t index) {
    try {
      Scratch& scratch = scratches[static_cast<std::size_t>(thread)];
      if (fetch(index, scratch).encoding == Encoding::pixels) return;
      std::vector<std::uint8_t> pixels(image_bytes_);
      read(index, scratch, pixels);  // says why
    } catch (const DataError& error) {
      const std::lock_guard lock(mutex);
      broken.emplace(index, error.what());
    }
  });
  if (!broken.empty()) throw DataError(broken.begin()->second);
  whole_ = true;
}

}  // namespace warpstep::data
