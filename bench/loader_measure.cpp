#include "bench/loader_measure.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <utility>

#include "data/formats/cached.h"
#include "data/io/file.h"
#include "data/transforms/statistics.h"

namespace warpstep::bench {
namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Of the whole process.
double cpu_now_s() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

bool is_stored_decoded(const data::Dataset& set) {
  data::Scratch scratch;
  return set.fetch(0, scratch).encoding == data::Encoding::pixels;
}

data::TierFacts facts_of(const LoaderCase& what, const data::Dataset& set,
                         const data::Recipe& recipe) {
  const Shape image = set.image_shape();
  const ImageExtent extent = recipe.extent(image);
  return {.samples = set.size(),
          .decoded_bytes = set.size() * static_cast<std::uint64_t>(image.count()),
          .is_decoded = is_stored_decoded(set),
          .sets_extent = extent.height != image[0] || extent.width != image[1],
          .is_gathered = recipe.is_gathered(),
          .normalizes_on_device = !what.normalizes_on_cpu,
          .host_budget_bytes = data::host_budget_bytes()};
}

PixelPlan pixels_of(const data::Recipe& recipe, const data::Dataset& set) {
  data::ChannelStatistics channels;
  if (recipe.normalizes()) channels = data::channel_statistics(set);
  return recipe.pixels(static_cast<int>(set.image_shape()[2]), channels.mean, channels.std);
}

// The row that a device would gather.
void gather(const data::Dataset& set, std::span<const std::uint8_t> pixels, const RowPlan& plan,
            const Shape& row, std::vector<std::uint8_t>& out) {
  const Shape image = set.image_shape();
  const std::size_t channels = idx(image[2]);
  out.assign(idx(row.count()), 0);
  const std::uint8_t* from = pixels.data() + plan.source * idx(image.count());
  for (std::int64_t i = 0; i < row[0]; ++i) {
    for (std::int64_t j = 0; j < row[1]; ++j) {
      const std::int64_t y = plan.y + i;
      const std::int64_t x = plan.x + (plan.mirrored != 0 ? row[1] - 1 - j : j);
      if (y < 0 || x < 0 || y >= image[0] || x >= image[1]) continue;
      std::memcpy(&out[idx(i * row[1] + j) * channels], from + idx(y * image[1] + x) * channels,
                  channels);
    }
  }
}

template <class T>
std::span<const std::uint8_t> bytes_of(std::span<const T> values) {
  return {reinterpret_cast<const std::uint8_t*>(values.data()), values.size_bytes()};
}

// The data of a row that are the same in every tier.
void add_numbers(data::Hash& hash, const RowPlan& plan) {
  const auto add = [&](const auto& value) {
    hash.add(bytes_of(std::span<const std::remove_reference_t<decltype(value)>>(&value, 1)));
  };
  add(plan.gain);
  add(plan.offset);
  add(plan.key);
  add(plan.counter);
  add(plan.weight);
  add(plan.pair);
  add(plan.pair_label);
}

}  // namespace

ProcessMemory ProcessMemory::now() {
  ProcessMemory memory;
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word == "RssAnon:") status >> memory.anonymous;
    if (word == "VmHWM:") status >> memory.peak;
  }
  memory.anonymous <<= 10;
  memory.peak <<= 10;
  return memory;
}

void ProcessMemory::reset_peak() {
  std::ofstream("/proc/self/clear_refs") << 5;
}

LoaderSubject::LoaderSubject(const LoaderCase& what) : options_(what.loader) {
  ProcessMemory::reset_peak();
  before_ = ProcessMemory::now();
  dataset_ = data::open(what.data, what.split);
  read_ = dataset_;
  if (what.transforms != "none") options_.recipe = data::Recipe(what.transforms);
  tier_ = data::choose_tier(what.tier, facts_of(what, *dataset_, options_.recipe)).tier;
  if (tier_ != data::Tier::decoded && !is_stored_decoded(*dataset_)) {
    auto decoded = std::make_shared<data::CachedDataset>(dataset_);
    decoded->decode_all();
    read_ = std::move(decoded);
  }
  if (tier_ == data::Tier::resident) options_.resident = read_->all_pixels();
  if (what.normalizes_on_cpu) options_.pixels = pixels_of(options_.recipe, *dataset_);
}

std::unique_ptr<data::Loader> LoaderSubject::loader(Position start) const {
  data::LoaderOptions options = options_;
  options.start = start;
  return std::make_unique<data::Loader>(read_, options);
}

Window run_window(data::Loader& loader, std::uint64_t batches) {
  const std::uint64_t before = loader.stats().samples;
  const double begin = now_s(), cpu_begin = cpu_now_s();
  for (std::uint64_t i = 0; i < batches; ++i) loader.next();
  return {now_s() - begin, cpu_now_s() - cpu_begin, loader.stats().samples - before};
}

std::uint64_t hash_of(data::Loader& loader, const LoaderSubject& subject, std::uint64_t batches) {
  const bool gathers = subject.tier() == data::Tier::resident;
  const Shape shape = data::row_shape(subject.dataset(), subject.recipe());
  std::vector<std::uint8_t> row;
  data::Hash hash;
  for (std::uint64_t i = 0; i < batches; ++i) {
    const Batch& batch = loader.next();
    const auto images = batch.get<std::uint8_t>("images");
    if (!gathers) hash.add(images);
    for (const RowPlan& plan : batch.get<RowPlan>("rows")) {
      if (gathers) {
        gather(subject.dataset(), images, plan, shape, row);
        hash.add(row);
      }
      if (subject.recipe().uses_rows()) add_numbers(hash, plan);
    }
    hash.add(bytes_of(batch.get<std::int32_t>("labels")));
  }
  return hash.value();
}

double first_batch_s(const LoaderSubject& subject, Position start, int repeats) {
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    const double begin = now_s();
    const auto loader = subject.loader(start);
    loader->next();
    seconds.push_back(now_s() - begin);
  }
  return median(std::move(seconds));
}

double seek_s(data::Loader& loader, int repeats) {
  std::vector<double> seconds;
  const std::uint64_t steps = loader.steps_per_epoch();
  for (int i = 0; i < repeats; ++i) {
    const auto place = static_cast<std::uint64_t>(i);
    // 7 of 10: far from the last position, so that no batch is ready.
    const Position to{place % 3, steps * (place * 7 % 10) / 10};
    const double begin = now_s();
    loader.seek(to);
    loader.next();
    seconds.push_back(now_s() - begin);
  }
  return median(std::move(seconds));
}

EpochGap epoch_gap(data::Loader& loader, std::uint64_t epochs) {
  std::vector<double> firsts, others;
  loader.seek({0, 0});
  loader.next();
  for (std::uint64_t i = 1; i < (epochs + 1) * loader.steps_per_epoch(); ++i) {
    const double begin = now_s();
    const bool is_first = loader.next().position.step == 0;
    (is_first ? firsts : others).push_back(now_s() - begin);
  }
  if (firsts.empty()) return {};
  return {median(std::move(firsts)), others.empty() ? 0 : median(std::move(others))};
}

}  // namespace warpstep::bench
