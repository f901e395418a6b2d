#include "data/write/writers.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "data/formats/tar.h"
#include "engine/core/error.h"

namespace warpstep::data {
namespace {

constexpr std::size_t buffer_bytes = std::size_t{1} << 20;
constexpr std::uint64_t most_rows = std::uint64_t{1} << 40;  // reserves its digits in the header

constexpr std::array<std::uint8_t, 2 * tar_block_bytes> end_of_tar{};

// Zero bytes after a member of `bytes`.
constexpr std::uint64_t padding(std::uint64_t bytes) {
  return (tar_block_bytes - bytes % tar_block_bytes) % tar_block_bytes;
}

}  // namespace

SafetensorsStream::SafetensorsStream(std::string path, std::span<const Column> columns,
                                     std::string grown, std::vector<std::uint64_t> more_extents,
                                     Metadata metadata)
    : path_(std::move(path)),
      grown_(std::move(grown)),
      more_extents_(std::move(more_extents)),
      metadata_(std::move(metadata)),
      file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
  if (file_.number() < 0) fail_with(errno);
  header_bytes_ = beginning(columns, most_rows, 0).size();
  data_begin_ = header_bytes_;
  for (const Column& column : columns) {
    std::uint64_t bytes = size_bytes(column.type);
    for (const std::uint64_t extent : column.shape) bytes *= extent;
    data_begin_ += bytes;
  }
}

std::string SafetensorsStream::beginning(std::span<const Column> columns, std::uint64_t rows,
                                         std::size_t least_bytes) const {
  std::vector<StoredTensor> tensors;
  const auto add = [&](const std::string& name, StoredType type, std::vector<std::uint64_t> shape) {
    std::uint64_t bytes = size_bytes(type);
    for (const std::uint64_t extent : shape) bytes *= extent;
    tensors.push_back({name, type, std::move(shape), 0, bytes});
  };
  for (const Column& column : columns) add(column.name, column.type, column.shape);
  std::vector<std::uint64_t> shape{rows};
  shape.insert(shape.end(), more_extents_.begin(), more_extents_.end());
  add(grown_, StoredType::u8, std::move(shape));
  return safetensors_beginning(path_, tensors, metadata_, least_bytes);
}

void SafetensorsStream::fail_with(int error) const {
  std::error_code ignored;
  const auto space = std::filesystem::space(std::filesystem::path(path_).parent_path(), ignored);
  fail<DataError>("{}: cannot be written: {} ({} bytes were written, {} are free on that disk)",
                  path_, std::strerror(error), bytes(), ignored ? 0 : space.available);
}

void SafetensorsStream::put(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put =
        ::pwrite(file_.number(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_with(errno);
    offset += static_cast<std::uint64_t>(put);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
}

void SafetensorsStream::append(std::span<const std::uint8_t> bytes) {
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  appended_ += bytes.size();
  if (buffer_.size() >= buffer_bytes) flush();
}

void SafetensorsStream::flush() {
  put(data_begin_ + appended_ - buffer_.size(), std::as_bytes(std::span(buffer_)));
  buffer_.clear();
}

void SafetensorsStream::finish(std::span<const Column> columns) {
  flush();
  std::uint64_t row_bytes = 1;
  for (const std::uint64_t extent : more_extents_) row_bytes *= extent;
  const std::string header = beginning(columns, appended_ / row_bytes, header_bytes_);
  if (header.size() != header_bytes_ || appended_ % row_bytes != 0)
    fail<UsageError>("{}: finish() has other columns than the constructor", path_);
  put(0, std::as_bytes(std::span(header)));
  std::uint64_t at = header_bytes_;
  for (const Column& column : columns) {
    put(at, column.bytes);
    at += column.bytes.size();
  }
  if (at != data_begin_)
    fail<UsageError>("{}: finish() has other columns than the constructor", path_);
  if (::fsync(file_.number()) != 0 || file_.close() != 0) fail_with(errno);
}

TarWriter::TarWriter(std::string prefix, std::uint64_t most_bytes)
    : prefix_(std::move(prefix)), most_bytes_(most_bytes) {}

void TarWriter::add(std::span<const Member> sample) {
  std::uint64_t bytes = end_of_tar.size();
  for (const Member& member : sample)
    bytes += tar_block_bytes + member.bytes.size() + padding(member.bytes.size());
  if (file_ && at_ + bytes > most_bytes_) close_shard();
  if (!file_) open_shard();
  for (const Member& member : sample) {
    put(tar_header(member.name, member.bytes.size()));
    index_.add({member.name, at_, member.bytes.size()});
    put(member.bytes);
    put(std::span(end_of_tar).first(padding(member.bytes.size())));
  }
}

void TarWriter::finish() {
  if (file_) close_shard();
}

void TarWriter::open_shard() {
  path_ = fmt::format("{}-{:06d}", prefix_, shards_);
  file_ = std::make_unique<AtomicFile>(path_ + ".tar");
  index_ = {};
  at_ = 0;
}

void TarWriter::close_shard() {
  put(end_of_tar);
  flush();
  file_->commit();
  file_.reset();
  write_atomically(path_ + ".idx", index_.text());
  ++shards_;
  all_bytes_ += at_;
}

void TarWriter::put(std::span<const std::uint8_t> bytes) {
  at_ += bytes.size();
  buffer_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (buffer_.size() >= buffer_bytes) flush();
}

void TarWriter::flush() {
  file_->write(buffer_);
  buffer_.clear();
}

}  // namespace warpstep::data
