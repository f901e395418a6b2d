#include "data/tar_writer.h"

#include <array>
#include <utility>

#include "data/tar.h"
#include "engine/core/error.h"

namespace warpstep::data {
namespace {

constexpr std::size_t buffer_bytes = std::size_t{1} << 20;
constexpr std::array<std::uint8_t, 2 * tar_block_bytes> zeros{};

constexpr std::uint64_t padding(std::uint64_t bytes) {
  return (tar_block_bytes - bytes % tar_block_bytes) % tar_block_bytes;
}

}  // namespace

TarWriter::TarWriter(std::string prefix, std::uint64_t most_bytes)
    : prefix_(std::move(prefix)), most_bytes_(most_bytes) {}

void TarWriter::add(std::span<const Member> sample) {
  std::uint64_t bytes = zeros.size();
  for (const Member& member : sample)
    bytes += tar_block_bytes + member.bytes.size() + padding(member.bytes.size());
  if (file_ && at_ + bytes > most_bytes_) close_shard();
  if (!file_) open_shard();
  for (const Member& member : sample) {
    put(tar_header(member.name, member.bytes.size()));
    index_.add({member.name, at_, member.bytes.size()});
    put(member.bytes);
    put(std::span(zeros).first(padding(member.bytes.size())));
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
  put(zeros);  // the end of an archive
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
