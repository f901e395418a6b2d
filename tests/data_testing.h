// Shared by the tests of data sets: a temporary folder, small PNG sets, a data set in memory, a
// system without threads.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/decode/png.h"
#include "data/formats/dataset.h"
#include "data/formats/memory.h"
#include "data/formats/pickle.h"
#include "data/io/file.h"
#include "engine/core/batch.h"
#include "engine/core/error.h"
#include "engine/core/pixels.h"

namespace warpstep::data::testing {

inline std::span<const std::uint8_t> images_of(const Batch& batch) {
  return batch.get<std::uint8_t>("images");
}
inline std::span<const std::int32_t> labels_of(const Batch& batch) {
  return batch.get<std::int32_t>("labels");
}
inline std::span<const RowPlan> rows_of(const Batch& batch) {
  return batch.get<RowPlan>("rows");
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = std::filesystem::temp_directory_path() / "warpstep-data-XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// While it exists, no thread can start: none has so large a stack.
class NoThreads {
 public:
  NoThreads() {
    ::pthread_getattr_default_np(&before_);
    ::pthread_attr_t huge = before_;
    ::pthread_attr_setstacksize(&huge, std::size_t{1} << 47);
    ::pthread_setattr_default_np(&huge);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;
  ~NoThreads() { ::pthread_setattr_default_np(&before_); }

 private:
  ::pthread_attr_t before_{};
};

// Whether the system reads a page of this mapping without its neighbours; nothing where it does not
// say so.
inline std::optional<bool> reads_pages_alone(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  bool is_in = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2)
      is_in = reinterpret_cast<unsigned long>(address) - begin < end - begin;
    else if (is_in && line.starts_with("VmFlags:"))
      return line.find(" rr") != std::string::npos;
  }
  return std::nullopt;
}

inline void put(const std::string& path, const std::vector<std::uint8_t>& bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}
inline void put(const std::string& path, const std::string& text) {
  put(path, std::vector<std::uint8_t>(text.begin(), text.end()));
}

inline std::vector<std::uint8_t> some_pixels(const Shape& shape, std::uint32_t salt) {
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(shape.count()));
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = static_cast<std::uint8_t>((i + salt) * 2654435761U >> 13);
  }
  return pixels;
}

inline std::vector<std::uint8_t> some_png(const Shape& shape, std::uint32_t salt = 0) {
  return encode_png(shape, some_pixels(shape, salt));
}

using Labels = std::vector<std::pair<std::string, std::int32_t>>;

// split/0.png ... with labels.pkl, labels i % classes.
inline void put_png_split(const std::string& folder, int count, int classes,
                          const Shape& shape = {4, 5, 3}) {
  Labels labels;
  for (int i = 0; i < count; ++i) {
    const std::string name = std::to_string(i) + ".png";
    put(folder + "/" + name, some_png(shape, static_cast<std::uint32_t>(i)));
    labels.emplace_back(name, i % classes);
  }
  put(folder + "/labels.pkl", write_pickle(labels));
}

inline std::shared_ptr<Dataset> in_memory(std::uint32_t samples, const Shape& shape = {4, 5, 3}) {
  MemoryParts parts{"test", "memory", shape, {}, {}, {"even", "odd"}};
  for (std::uint32_t i = 0; i < samples; ++i) {
    const auto pixels = some_pixels(shape, i * 7);
    parts.pixels.insert(parts.pixels.end(), pixels.begin(), pixels.end());
    parts.labels.push_back(static_cast<std::int32_t>(i % 2));
  }
  return std::make_shared<MemoryDataset>(std::move(parts));
}

// The message of the E that `action` throws; empty, so that checks of it fail, if it throws none.
template <class E = DataError, class Action>
std::string message_of(Action&& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  }
  return {};
}

}  // namespace warpstep::data::testing
