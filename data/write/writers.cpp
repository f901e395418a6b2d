#include "data/write/writers.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>
#include <utility>

#include "data/formats/tar.h"
#include "engine/core/error.h"
#include "engine/core/file.h"

namespace warpstep::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t buffer_bytes = std::size_t{1} << 20;
constexpr std::uint64_t most_rows = std::uint64_t{1} << 40;  // reserves its digits in the header

constexpr std::array<std::uint8_t, 2 * tar_block_bytes> end_of_tar{};

// Zero bytes after a member of `bytes`.
constexpr std::uint64_t padding(std::uint64_t bytes) {
  return (tar_block_bytes - bytes % tar_block_bytes) % tar_block_bytes;
}

std::uint64_t bytes_of_columns(std::span<const SafetensorsStream::Column> columns) {
  std::uint64_t all = 0;
  for (const SafetensorsStream::Column& column : columns) {
    std::uint64_t bytes = size_bytes(column.type);
    for (const std::uint64_t extent : column.shape) bytes *= extent;
    all += bytes;
  }
  return all;
}

// No number of a process: in containers that share a volume several have the same.
std::string temporary_name(const std::string& of) {
  std::random_device device;
  return fmt::format(".{}.tmp-{:08x}{:08x}", of, device(), device());
}

}  // namespace

NewFolder::NewFolder(const std::string& out) : out_(fs::absolute(out).lexically_normal()) {
  if (!out_.has_filename()) out_ = out_.parent_path();  // "set/"
  if (exists(out) && (!is_folder(out) || !fs::is_empty(out)))
    fail<DataError>("{}: exists and is not an empty folder; name another one", out);
  const bool replaces = exists(out);
  if (replaces) out_ = fs::canonical(out);  // of a link the folder that it names
  if (!replaces && fs::is_symlink(out_))
    fail<DataError>("{}: is a link to a folder that does not exist; make it, or name another one",
                    out);
  if (replaces && fs::equivalent(out_, fs::current_path()))  // the data's path may begin with ..
    fail<DataError>("{}: is the current folder, which cannot be replaced; name a folder in it",
                    out);
  fs::create_directories(out_.parent_path());
  struct stat before {};
  const bool has_owner = replaces && ::stat(out_.c_str(), &before) == 0;
  const auto create = [&] {  // with the access that the user gave to the folder that it replaces
    do folder_ = out_.parent_path() / temporary_name(out_.filename().string());
    while (!fs::create_directory(folder_));
    if (!has_owner) return;
    if (::chown(folder_.c_str(), static_cast<uid_t>(-1), before.st_gid) != 0) return;
    fs::permissions(folder_, static_cast<fs::perms>(before.st_mode & 07777));
  };
  create();
  if (!replaces) return;
  // As commit() does, but before the work: a folder where a disk is mounted cannot be replaced.
  std::error_code error;
  fs::rename(folder_, out_, error);
  if (error) {
    fs::remove_all(folder_);
    fail<DataError>(
        "{}: cannot be replaced ({}), for example because a disk is mounted there; name "
        "a folder in it",
        out, error.message());
  }
  create();
}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

void NewFolder::commit() {
  sync_folder(folder_);
  fs::rename(folder_, out_);  // also over an empty folder
  folder_.clear();
  sync_name(out_);
}

StreamedFile::StreamedFile(std::string path, std::uint64_t begin)
    : path_(std::move(path)),
      begin_(begin),
      file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
  if (file_.number() < 0) fail_with(errno);
}

void StreamedFile::fail_with(int error) const {
  std::error_code ignored;
  const auto space = fs::space(fs::path(path_).parent_path(), ignored);
  fail<DataError>("{}: cannot be written: {} ({} bytes were written, {} are free on that disk)",
                  path_, std::strerror(error), begin_ + appended_, ignored ? 0 : space.available);
}

void StreamedFile::put(std::uint64_t offset, std::span<const std::byte> bytes) {
  if (write_all(file_.number(), bytes, offset) < bytes.size()) fail_with(errno);
}

void StreamedFile::append(std::span<const std::uint8_t> bytes) {
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  appended_ += bytes.size();
  if (buffer_.size() >= buffer_bytes) flush();
}

void StreamedFile::flush() {
  put(begin_ + appended_ - buffer_.size(), std::as_bytes(std::span(buffer_)));
  buffer_.clear();
}

void StreamedFile::finish() {
  flush();
  if (sync_file(file_.number()) != 0 || file_.close() != 0) fail_with(errno);
}

SafetensorsStream::SafetensorsStream(std::string path, std::span<const Column> columns,
                                     std::string grown, std::vector<std::uint64_t> more_extents,
                                     Metadata metadata)
    : path_(std::move(path)),
      grown_(std::move(grown)),
      more_extents_(std::move(more_extents)),
      metadata_(std::move(metadata)),
      header_bytes_(beginning(columns, most_rows, 0).size()),
      data_begin_(header_bytes_ + bytes_of_columns(columns)),
      file_(path_, data_begin_) {}

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

void SafetensorsStream::finish(std::span<const Column> columns) {
  std::uint64_t row_bytes = 1;
  for (const std::uint64_t extent : more_extents_) row_bytes *= extent;
  const std::string header = beginning(columns, file_.appended() / row_bytes, header_bytes_);
  if (header.size() != header_bytes_ || file_.appended() % row_bytes != 0)
    fail<UsageError>("{}: finish() has other columns than the constructor", path_);
  file_.put(0, std::as_bytes(std::span(header)));
  std::uint64_t at = header_bytes_;
  for (const Column& column : columns) {
    file_.put(at, column.bytes);
    at += column.bytes.size();
  }
  if (at != data_begin_)
    fail<UsageError>("{}: finish() has other columns than the constructor", path_);
  file_.finish();
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
