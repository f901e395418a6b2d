#include "data/write/pack.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "data/decode/jpeg.h"
#include "data/io/file.h"
#include "data/write/writers.h"
#include "engine/core/checksum.h"
#include "engine/core/error.h"
#include "engine/core/file.h"

namespace warpstep::data {
namespace {

std::span<const std::uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

// 00000042.jpg, .cls and .crc32c. Numbers and not the files' names: these may have dots, which
// divide a sample's members, and white space, which an index cannot have.
class TarSink : public PackSink {
 public:
  TarSink(const std::string& stem, std::uint64_t shard_bytes) : writer_(stem, shard_bytes) {}

  void add(std::uint64_t index, const Packed& sample) override {
    const std::string label = std::to_string(sample.label);
    const std::string checksum = fmt::format("{:08x}", sample.crc32c);
    const std::string key = fmt::format("{:08d}", index);
    const std::array members{
        TarWriter::Member{key + (sample.encoding == Encoding::png ? ".png" : ".jpg"), sample.bytes},
        TarWriter::Member{key + ".cls", bytes_of(label)},
        TarWriter::Member{key + ".crc32c", bytes_of(checksum)}};
    writer_.add(members);
  }
  std::pair<std::uint64_t, std::uint64_t> finish() override {
    writer_.finish();
    return {writer_.shards(), writer_.bytes()};
  }

 private:
  TarWriter writer_;
};

std::vector<std::uint64_t> extents_behind_samples(const Dataset& set, bool decoded) {
  if (!decoded) return {};
  std::vector<std::uint64_t> extents;
  const Shape shape = set.image_shape();
  for (const std::int64_t extent : shape.extents())
    extents.push_back(static_cast<std::uint64_t>(extent));
  return extents;
}

std::string class_array(const Dataset& set) try {
  return nlohmann::json(set.classes()).dump();
} catch (const nlohmann::json::exception&) {
  fail<DataError>("{}: a class has a name that is not UTF-8, as safetensors needs; give it another",
                  set.path());
}

Metadata metadata_of(const Dataset& set, bool decoded) {
  Metadata metadata{{"classes", class_array(set)},
                    {"source_fingerprint", fmt::format("{:016x}", set.fingerprint())}};
  if (!decoded) metadata["encoding"] = "mixed";  // as long as any other until it is known
  return metadata;
}

class SafetensorsSink : public PackSink {
 public:
  SafetensorsSink(const Dataset& set, const std::string& stem, bool decoded)
      : samples_(set.size()),
        decoded_(decoded),
        offsets_(decoded ? 0 : 1),
        stream_(stem + ".safetensors", columns(), decoded ? "image" : "data",
                extents_behind_samples(set, decoded), metadata_of(set, decoded)) {
    labels_.reserve(samples_);
    checksums_.reserve(samples_);
    offsets_.reserve(decoded ? 0 : samples_ + 1);
  }

  void add(std::uint64_t, const Packed& sample) override {
    stream_.append(sample.bytes);
    labels_.push_back(sample.label);
    checksums_.push_back(sample.crc32c);
    if (!decoded_) offsets_.push_back(offsets_.back() + sample.bytes.size());
    (sample.encoding == Encoding::png ? png_ : jpeg_) = true;
  }
  std::pair<std::uint64_t, std::uint64_t> finish() override {
    if (!decoded_)
      stream_.set_metadata("encoding", png_ && jpeg_ ? "mixed" : png_ ? "png" : "jpeg");
    stream_.finish(columns());
    return {1, stream_.bytes()};
  }

 private:
  // Widest elements first, so that each lies at a multiple of its size.
  std::vector<SafetensorsStream::Column> columns() const {
    std::vector<SafetensorsStream::Column> columns;
    if (!decoded_)
      columns.push_back(
          {"offset", StoredType::u64, {samples_ + 1}, std::as_bytes(std::span(offsets_))});
    columns.push_back({"label", StoredType::i32, {samples_}, std::as_bytes(std::span(labels_))});
    columns.push_back(
        {"crc32c", StoredType::u32, {samples_}, std::as_bytes(std::span(checksums_))});
    return columns;
  }

  std::uint64_t samples_;
  bool decoded_;
  bool png_ = false;
  bool jpeg_ = false;
  std::vector<std::uint64_t> offsets_;
  std::vector<std::int32_t> labels_;
  std::vector<std::uint32_t> checksums_;
  SafetensorsStream stream_;
};

}  // namespace

std::unique_ptr<PackSink> make_pack_sink(const Dataset& set, const std::string& stem, PackTo to,
                                         std::uint64_t shard_bytes) {
  if (to == PackTo::tar) return std::make_unique<TarSink>(stem, shard_bytes);
  return std::make_unique<SafetensorsSink>(set, stem, to == PackTo::decoded);
}

std::string class_lines(const Dataset& set) {
  std::string lines;
  for (const std::string& name : set.classes()) {
    if (name.empty() || name.find_first_of("\r\n") != std::string::npos)
      fail<DataError>("{}: the class '{}' does not fit a line of classes.txt; give it another name",
                      set.path(), printable(name));
    lines += name + '\n';
  }
  return lines;
}

namespace {

namespace fs = std::filesystem;

// The folder beside `out` that becomes it; removed unless it does.
class FolderAside {
 public:
  explicit FolderAside(const std::string& out) : out_(fs::absolute(out).lexically_normal()) {
    if (!out_.has_filename()) out_ = out_.parent_path();  // "set/"
    if (exists(out) && (!is_folder(out) || !fs::is_empty(out)))
      fail<DataError>("{}: exists and is not an empty folder; name another one", out);
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
