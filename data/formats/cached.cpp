#include "data/formats/cached.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>

#include "data/io/parallel.h"
#include "engine/core/control_group.h"
#include "engine/core/cpus.h"
#include "engine/core/error.h"

namespace warpstep::data {
namespace {

// States of a cached sample.
constexpr std::uint8_t unknown = 0, decoding = 1, decoded = 2, not_cached = 3;

constexpr std::array tiers{Tier::automatic, Tier::resident, Tier::mapped, Tier::decoded};

double mib(std::uint64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

bool fits_host(const TierFacts& facts) {
  return facts.decoded_bytes <= facts.host_budget_bytes;
}

// "300 MiB of pixels exceed the host's budget of 100 MiB", or, with the least value of the option
// that would do, "... do not fit into --memory 4MiB: they need --memory 9MiB".
std::string beyond_host_budget(const TierFacts& facts) {
  if (facts.host_budget_option.empty())
    return fmt::format("{:.0f} MiB of pixels exceed the host's budget of {:.0f} MiB",
                       mib(facts.decoded_bytes), mib(facts.host_budget_bytes));
  const std::string& option = facts.host_budget_option;
  return fmt::format(
      "{:.1f} MiB of pixels and {:.1f} MiB for loading do not fit into {}: they need {} {:.0f}MiB",
      mib(facts.decoded_bytes), mib(facts.loading_bytes), option,
      option.substr(0, option.find(' ')),
      std::ceil(mib(facts.decoded_bytes + facts.loading_bytes)));
}

// Why the set cannot be resident; empty if it can.
std::string not_resident(const TierFacts& facts) {
  if (!facts.is_gathered)
    return fmt::format("its recipe resizes images, changes their bytes or pads a crop of them{}",
                       facts.not_gathered.empty() ? "" : ": " + facts.not_gathered);
  if (!facts.normalizes_on_device) return "it is normalised on the CPU";
  if (facts.has_device && facts.device_budget_bytes > 0 &&
      facts.decoded_bytes > facts.device_budget_bytes)
    return fmt::format("its {:.0f} MiB of pixels exceed the device's budget of {:.0f} MiB",
                       mib(facts.decoded_bytes), mib(facts.device_budget_bytes));
  if ((!facts.has_device || !facts.is_decoded) && !fits_host(facts))
    return "its " + beyond_host_budget(facts);
  return {};
}

TierChoice chosen(Tier wanted, const TierFacts& facts) {
  const std::string obstacle = not_resident(facts);
  if (wanted == Tier::resident && !obstacle.empty())
    fail<UsageError>("--tier resident: the set cannot be resident: {}; use --tier auto", obstacle);
  if (wanted == Tier::decoded && facts.is_decoded) return {Tier::mapped, "it is stored decoded"};
  if (wanted == Tier::mapped && !facts.is_decoded && !fits_host(facts))
    fail<UsageError>(
        "--tier mapped: {}; use --tier decoded, or pack the set with `warpstep data pack --decode`",
        beyond_host_budget(facts));
  if (wanted != Tier::automatic) return {wanted, "as requested"};
  if (facts.has_device && obstacle.empty() && !facts.sets_extent)
    return {Tier::resident, "its pixels fit the device"};
  if (facts.is_decoded) return {Tier::mapped, "it is stored decoded"};
  if (facts.many_epochs && !facts.sets_extent && fits_host(facts))
    return {Tier::mapped, "its pixels fit into memory"};
  return {Tier::decoded, facts.sets_extent   ? "only the pixels of the crop are decoded"
                         : facts.many_epochs ? "its pixels do not fit into memory"
                                             : "every sample is needed once"};
}

}  // namespace

std::string_view name(Tier tier) {
  switch (tier) {
    case Tier::automatic: return "auto";
    case Tier::resident: return "resident";
    case Tier::mapped: return "mapped";
    case Tier::decoded: return "decoded";
  }
  return "?";
}

Tier parse_tier(std::string_view text) {
  for (const Tier tier : tiers)
    if (name(tier) == text) return tier;
  fail<UsageError>("--tier {}: must be one of auto, resident, mapped and decoded", text);
}

TierChoice choose_tier(Tier wanted, const TierFacts& facts) {
  TierChoice choice = chosen(wanted, facts);
  choice.fits_mapped = facts.is_decoded || fits_host(facts);
  return choice;
}

std::uint64_t host_budget_bytes(int processes, const std::filesystem::path& root) {
  const std::uint64_t machine = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                                static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return std::min(machine, memory_limit(root).value_or(machine)) / 4 /
         static_cast<std::uint64_t>(processes);
}

namespace {

std::shared_ptr<const Dataset> cacheable(std::shared_ptr<const Dataset> dataset) {
  if (!dataset) fail<UsageError>("a cache of no data set: the pointer is null");
  check_image_shape(dataset->image_shape(), dataset->path());
  return dataset;
}

}  // namespace

CachedDataset::CachedDataset(std::shared_ptr<const Dataset> inner)
    : inner_(cacheable(std::move(inner))),
      shape_(inner_->image_shape()),
      image_bytes_(idx(shape_.count())),
      bytes_(image_bytes_ * inner_->size()),
      states_(inner_->size()) {
  // Pages use no memory until they are written.
  void* memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    fail<UsageError>("{}: cannot reserve {} bytes for its decoded images: {}; use --tier decoded",
                     inner_->path(), bytes_, std::strerror(errno));
  pixels_ = static_cast<std::uint8_t*>(memory);
}

CachedDataset::~CachedDataset() {
  ::munmap(pixels_, bytes_);
}

Sample CachedDataset::fetch(std::uint64_t index, Scratch& scratch) const {
  std::atomic<std::uint8_t>& state = states_[index];
  const Sample cached{{pixels_of(index), image_bytes_}, Encoding::pixels, shape_};
  if (state.load(std::memory_order_acquire) == decoded) return cached;
  const Sample sample = inner_->fetch(index, scratch);
  // While another thread decodes the sample, or when it cannot be cached, the caller decodes it.
  std::uint8_t expected = unknown;
  if (!state.compare_exchange_strong(expected, decoding, std::memory_order_relaxed)) return sample;
  // An undecodable sample is returned as it is stored, without an error: the window that the caller
  // decodes may be intact.
  std::uint8_t outcome = not_cached;
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
  if (states_[index].load(std::memory_order_relaxed) == unknown) inner_->will_need(index);
}

std::span<const std::uint8_t> CachedDataset::all_pixels() const {
  if (!whole_) return {};
  return {pixels_, bytes_};
}

void CachedDataset::decode_all(int workers) {
  if (workers <= 0) workers = allowed_cores();
  std::vector<Scratch> scratches(static_cast<std::size_t>(workers));
  std::mutex mutex;
  std::map<std::uint64_t, std::string> broken;
  parallel_for(size(), workers, [&](int thread, std::uint64_t index) {
    try {
      Scratch& scratch = scratches[static_cast<std::size_t>(thread)];
      fetch(index, scratch);
      if (states_[index] == decoded) return;
      read(index, scratch, {pixels_of(index), image_bytes_});  // throws with the reason
    } catch (const DataError& error) {
      const std::lock_guard lock(mutex);
      broken.emplace(index, error.what());
    }
  });
  if (!broken.empty()) throw DataError(broken.begin()->second);
  whole_ = true;
}

}  // namespace warpstep::data
