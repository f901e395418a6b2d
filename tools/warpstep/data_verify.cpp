// warpstep data verify: decodes every sample and lists what is broken.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <mutex>
#include <thread>

#include "data/checksum.h"
#include "data/jpeg.h"
#include "data/parallel.h"
#include "data/statistics.h"
#include "engine/core/error.h"
#include "tools/warpstep/data.h"

namespace warpstep::tools {
namespace {

using data::Dataset;

struct Reader {
  data::Scratch scratch;
  data::JpegDecoder jpeg;
  std::vector<std::uint8_t> pixels;
};

// Throws DataError for a sample that is not as it was packed or cannot be decoded as a whole.
void verify_sample(const Dataset& set, const data::Checksums* checksums, std::uint64_t index,
                   Reader& reader) {
  const data::Sample sample = set.fetch(index, reader.scratch);
  if (checksums != nullptr) {
    const std::optional<std::uint32_t> stored = checksums->stored_crc32c(index);
    const std::uint32_t found = stored ? data::crc32c(sample.bytes) : 0;
    if (stored && *stored != found)
      fail<DataError>("{}: has the CRC32C {:08x}, but was packed with {:08x}; pack the set again",
                      set.name(index), found, *stored);
  }
  if (sample.encoding != data::Encoding::jpeg) {
    data::read_whole(set, index, reader.scratch, reader.pixels);
    return;
  }
  // Every byte of it, where training may skip parts.
  const std::string name = set.name(index);
  const Shape shape = data::decoded_shape(sample, name);
  const std::int64_t channels = set.image_shape()[2];
  reader.pixels.resize(static_cast<std::size_t>(shape[0] * shape[1] * channels));
  reader.jpeg.decode(sample.bytes, name, {0, 0, shape[0], shape[1]}, channels, reader.pixels,
                     data::JpegRoute::full);
}

// Lists what is broken in the set's order, and gives its number.
std::uint64_t verify_split(const Dataset& set) {
  const auto* checksums = dynamic_cast<const data::Checksums*>(&set);
  const int workers = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  std::vector<Reader> readers(static_cast<std::size_t>(workers));
  std::mutex mutex;
  std::vector<std::pair<std::uint64_t, std::string>> bad;
  data::parallel_for(set.size(), workers, [&](int thread, std::uint64_t index) {
    try {
      verify_sample(set, checksums, index, readers[static_cast<std::size_t>(thread)]);
    } catch (const DataError& error) {
      const std::lock_guard lock(mutex);
      bad.emplace_back(index, error.what());
    }
  });
  std::sort(bad.begin(), bad.end());
  for (const auto& [index, message] : bad) fmt::print("{}\n", message);
  return bad.size();
}

int verify(const std::string& spec) {
  std::uint64_t bad = 0;
  std::uint64_t all = 0;
  for (const auto& [split, set] : open_splits(spec)) {
    bad += verify_split(*set);
    all += set->size();
  }
  fmt::print("{}: {} of {} samples are good\n", spec, all - bad, all);
  return bad == 0 ? done : failed;
}

}  // namespace

Run declare_data_verify(CLI::App& app) {
  auto spec = std::make_shared<std::string>();
  app.add_option("SPEC", *spec, "the folder of the data set")->required();
  app.footer("Example:\n  warpstep data verify shapes");
  return [spec] { return verify(*spec); };
}

}  // namespace warpstep::tools
