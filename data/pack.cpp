#include "data/pack.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "data/checksum.h"
#include "data/file.h"
#include "data/jpeg.h"
#include "data/ordered.h"
#include "data/pack_sink.h"
#include "engine/core/error.h"
#include "engine/core/file.h"

namespace warpstep::data {
namespace {

namespace fs = std::filesystem;

// The folder beside `out` that becomes it; removed unless it does.
class FolderAside {
 public:
  explicit FolderAside(const std::string& out) : out_(fs::absolute(out).lexically_normal()) {
    if (!out_.has_filename()) out_ = out_.parent_path();  // "set/"
    if (exists(out) && (!is_folder(out) || !fs::is_empty(out)))
      fail<DataError>("{}: is there already and is not an empty folder; name another one", out);
    aside_ = out_.parent_path() / fmt::format(".{}.tmp-{}", out_.filename().string(), ::getpid());
    fs::create_directories(out_.parent_path());
    fs::remove_all(aside_);  // of a process of the same number that was killed
    fs::create_directory(aside_);
  }
  FolderAside(const FolderAside&) = delete;
  FolderAside& operator=(const FolderAside&) = delete;
  ~FolderAside() {
    std::error_code ignored;
    if (!aside_.empty()) fs::remove_all(aside_, ignored);
  }
  std::string path() const { return aside_.string(); }
  void commit() {
    sync(aside_);
    fs::rename(aside_, out_);  // also over an empty folder
    aside_.clear();
    sync(out_.parent_path());
  }

 private:
  // Makes the names in a folder durable; some file systems refuse, which is no error.
  static void sync(const fs::path& folder) {
    const Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (descriptor.number() >= 0) ::fsync(descriptor.number());
  }

  fs::path out_, aside_;
};

// What a worker makes of one sample.
Packed make_sample(const Dataset& set, std::uint64_t index, const PackOptions& options,
                   Scratch& scratch) {
  Packed packed;
  packed.label = set.label(index);
  const Sample sample = set.fetch(index, scratch);
  packed.from_bytes = sample.bytes.size();
  if (options.to == PackTo::decoded) {
    packed.encoding = Encoding::pixels;
    packed.bytes.resize(static_cast<std::size_t>(set.image_shape().count()));
    set.read(index, scratch, packed.bytes);
  } else {
    packed.encoding = sample.encoding;
    if (sample.encoding == Encoding::pixels)
      fail<DataError>("{}: is decoded already; pack it with --decode", set.path());
    const std::string name = set.name(index);
    if (options.seekable && sample.encoding == Encoding::jpeg) {
      const JpegTraits traits = jpeg_traits(sample.bytes, name);
      packed.seekable = traits.baseline;
      if (traits.baseline && !traits.seekable) packed.bytes = make_seekable(sample.bytes, name);
    }
    if (packed.bytes.empty()) packed.bytes.assign(sample.bytes.begin(), sample.bytes.end());
  }
  packed.crc32c = crc32c(packed.bytes);
  return packed;
}

// In all splits together.
struct Progress {
  std::uint64_t done = 0;
  std::uint64_t all = 0;
};

void pack_split(const Dataset& set, PackSink& sink, const PackOptions& options, Progress& progress,
                PackSummary& summary) {
  const int workers = options.workers > 0
                          ? options.workers
                          : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  std::vector<Scratch> scratches(static_cast<std::size_t>(workers));
  ordered_for<Packed>(
      set.size(), workers,
      [&](int thread, std::uint64_t index) {
        return make_sample(set, index, options, scratches[static_cast<std::size_t>(thread)]);
      },
      [&](std::uint64_t index, const Packed& packed) {
        sink.add(index, packed);
        ++summary.samples;
        summary.from_bytes += packed.from_bytes;
        if (options.seekable && packed.encoding == Encoding::jpeg)
          ++(packed.seekable ? summary.seekable : summary.kept);
        if (options.progress) options.progress(++progress.done, progress.all);
      });
  const auto [files, bytes] = sink.finish();
  summary.files += files;
  summary.bytes += bytes;
}

}  // namespace

PackSummary pack(const std::string& from, const std::string& out, const PackOptions& options) try {
  std::vector<std::pair<Split, std::unique_ptr<Dataset>>> sets;
  Progress progress;
  for (const Split split : {Split::train, Split::test}) {
    if (!has_split(from, split)) continue;
    sets.emplace_back(split, open(from, split));
    progress.all += sets.back().second->size();
  }
  FolderAside folder(out);
  PackSummary summary;
  for (const auto& [split, set] : sets) {
    const auto sink = make_pack_sink(*set, fmt::format("{}/{}", folder.path(), name(split)),
                                     options.to, options.shard_bytes);
    pack_split(*set, *sink, options, progress, summary);
  }
  if (options.to == PackTo::tar)
    write_atomically(folder.path() + "/classes.txt", class_lines(*sets.front().second));
  folder.commit();
  return summary;
} catch (const fs::filesystem_error& error) {
  fail<DataError>("{}: cannot be written: {}", out, error.code().message());
}

}  // namespace warpstep::data
