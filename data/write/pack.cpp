#include "data/write/pack.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "data/decode/jpeg.h"
#include "data/formats/formats.h"
#include "data/io/file.h"
#include "data/io/parallel.h"
#include "data/write/writers.h"
#include "engine/core/checksum.h"
#include "engine/core/cpus.h"
#include "engine/core/error.h"
#include "engine/core/file.h"

namespace warpstep::data {
namespace {

namespace fs = std::filesystem;

// A sample as it is written.
struct Packed {
  std::vector<std::uint8_t> bytes;
  Encoding encoding = Encoding::pixels;
  std::int32_t label = 0;
  std::uint32_t crc32c = 0;
  std::uint64_t from_bytes = 0;
  bool seekable = false;
};

// Writes the samples of one split.
class PackSink {
 public:
  virtual ~PackSink() = default;
  virtual void add(std::uint64_t index, const Packed& sample) = 0;  // indices rise by 1
  virtual std::pair<std::uint64_t, std::uint64_t> finish() = 0;     // files and their bytes
};

std::span<const std::uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

// Members are named 00000042.jpg, .cls and .crc32c. File names may contain dots, which separate a
// sample's key from the extension, and white space, which an index cannot have.
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

std::vector<std::uint64_t> image_extents(const Dataset& set, bool decoded) {
  if (!decoded) return {};
  std::vector<std::uint64_t> extents;
  const Shape shape = set.image_shape();
  for (const std::int64_t extent : shape.extents())
    extents.push_back(static_cast<std::uint64_t>(extent));
  return extents;
}

Metadata metadata_of(const Dataset& set, bool decoded) {
  const std::string classes = class_metadata(set.classes());
  if (classes.empty())
    fail<DataError>(
        "{}: a class name is not UTF-8, which safetensors requires; give the class another name",
        set.path());
  Metadata metadata{{"classes", classes},
                    {"source_fingerprint", fmt::format("{:016x}", set.fingerprint())}};
  if (!decoded)
    metadata["encoding"] = "mixed";  // the longest value, until finish() knows the right one
  return metadata;
}

class SafetensorsSink : public PackSink {
 public:
  SafetensorsSink(const Dataset& set, const std::string& stem, bool decoded)
      : samples_(set.size()),
        decoded_(decoded),
        offsets_(decoded ? 0 : 1),
        stream_(stem + ".safetensors", columns(), decoded ? "image" : "data",
                image_extents(set, decoded), metadata_of(set, decoded)) {
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
  // The widest elements first, so that each is aligned to its size.
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

// Writes STEM-000000.tar ... or STEM.safetensors.
std::unique_ptr<PackSink> make_pack_sink(const Dataset& set, const std::string& stem, PackTo to,
                                         std::uint64_t shard_bytes) {
  if (to == PackTo::tar) return std::make_unique<TarSink>(stem, shard_bytes);
  return std::make_unique<SafetensorsSink>(set, stem, to == PackTo::decoded);
}

// The content of classes.txt. Throws DataError for a name that contains a line end.
std::string class_lines(const Dataset& set) {
  std::string lines;
  for (const std::string& name : set.classes()) {
    if (name.empty() || name.find_first_of("\r\n") != std::string::npos)
      fail<DataError>(
          "{}: the class '{}' is empty or contains a line end, which classes.txt does not allow; "
          "give it another name",
          set.path(), shown(name));
    lines += name + '\n';
  }
  return lines;
}

// A worker's part: reads, converts and sums up one sample.
Packed make_sample(const Dataset& set, std::uint64_t index, const PackOptions& options,
                   Scratch& scratch) {
  Packed packed;
  packed.label = set.label(index);
  const Sample sample = set.checked_fetch(index, scratch);
  packed.from_bytes = sample.bytes.size();
  if (options.to == PackTo::decoded) {
    packed.encoding = Encoding::pixels;
    packed.bytes.resize(static_cast<std::size_t>(set.image_shape().count()));
    set.read(index, scratch, packed.bytes);
  } else {
    packed.encoding = sample.encoding;
    if (sample.encoding == Encoding::pixels)
      fail<DataError>("{}: is already decoded; pack it with --decode", set.path());
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

// Samples of all splits together.
struct PackProgress {
  std::uint64_t done = 0;
  std::uint64_t all = 0;
};

void pack_split(const Dataset& set, PackSink& sink, const PackOptions& options,
                PackProgress& progress, PackSummary& summary) {
  const int workers = options.workers > 0 ? options.workers : allowed_cores();
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
  PackProgress progress;
  for (const Split split : {Split::train, Split::test}) {
    if (!has_split(from, split)) continue;
    sets.emplace_back(split, open(from, split));
    const std::string& images = sets.back().second->path();
    if (is_folder(images) && is_inside(out, images))
      fail<UsageError>("{}: is inside {}, whose files are the data; choose another folder", out,
                       images);
    progress.all += sets.back().second->size();
  }
  NewFolder folder(out);
  PackSummary summary;
  for (const auto& [split, set] : sets) {
    const auto sink = make_pack_sink(*set, fmt::format("{}/{}", folder.path(), name(split)),
                                     options.to, options.shard_bytes);
    pack_split(*set, *sink, options, progress, summary);
    const std::vector<std::string> others = set->passed_over();
    summary.passed_over.insert(summary.passed_over.end(), others.begin(), others.end());
  }
  if (options.to == PackTo::tar)
    write_atomically(folder.path() + "/classes.txt", class_lines(*sets.front().second));
  folder.commit();
  return summary;
} catch (const fs::filesystem_error& error) {
  fail<DataError>("{}: cannot be written: {}", out, error.code().message());
}

}  // namespace warpstep::data
