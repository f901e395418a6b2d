#include "data/pack_sink.h"

#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "data/safetensors_stream.h"
#include "data/tar_writer.h"
#include "engine/core/error.h"

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

}  // namespace warpstep::data
