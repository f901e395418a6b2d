#include "data/io/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/file.h"
#include "engine/core/text.h"

namespace warpstep::data {
int Descriptor::close() {
  return ::close(release());
}

int Descriptor::release() {
  return std::exchange(number_, -1);
}

Descriptor open_regular(const std::string& path, struct ::stat* status) {
  struct ::stat local {};
  if (status == nullptr) status = &local;
  // O_NONBLOCK: opening a FIFO by mistake must not hang.
  Descriptor file(open_file(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.number() < 0 || ::fstat(file.number(), status) != 0)
    fail<DataError>("{}: cannot be read: {}{}", path, std::strerror(errno),
                    errno != EMFILE ? ""
                                    : "; allow more with `ulimit -n`, or store the set in fewer "
                                      "files: `warpstep data pack --shard-mib 1024`");
  if (!S_ISREG(status->st_mode)) fail<DataError>("{}: is not a file", path);
  return file;
}

std::int64_t modified_ns(const struct ::stat& status) {
  return std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

void read_into(std::vector<std::uint8_t>& bytes, const std::string& path,
               std::uint64_t limit_bytes) {
  struct ::stat status {};
  const Descriptor file = open_regular(path, &status);
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size > limit_bytes) {
    fail<DataError>("{}: has {} bytes, more than the {} allowed for such a file", path, size,
                    limit_bytes);
  }
  bytes.resize(size);
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t got = ::read(file.number(), bytes.data() + at, bytes.size() - at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail<DataError>("{}: byte {}: cannot be read: {}", path, at, std::strerror(errno));
    if (got == 0)
      fail<DataError>("{}: was truncated at byte {} while it was read; copy it again", path, at);
    at += static_cast<std::size_t>(got);
  }
}

void write_quickly(const std::string& path, std::span<const std::uint8_t> bytes) {
  const auto give_up = [&] {
    const int error = errno;
    ::unlink(path.c_str());
    fail<DataError>("{}: cannot be written: {}", path, std::strerror(error));
  };
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (file.number() < 0) give_up();
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t put = ::write(file.number(), bytes.data() + at, bytes.size() - at);
    if (put < 0 && errno != EINTR) give_up();
    if (put > 0) at += static_cast<std::size_t>(put);
  }
  if (file.close() != 0) give_up();
}

std::vector<Entry> list_folder(const std::string& path, Dangling dangling) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), ::closedir);
  if (!folder) fail<DataError>("{}: cannot be listed: {}", path, std::strerror(errno));
  std::vector<Entry> entries;
  for (;;) {
    errno = 0;
    const dirent* found = ::readdir(folder.get());
    if (found == nullptr) {
      if (errno != 0) fail<DataError>("{}: cannot be listed: {}", path, std::strerror(errno));
      break;
    }
    if (found->d_name[0] == '.') continue;
    struct stat status {};
    if (::fstatat(::dirfd(folder.get()), found->d_name, &status, 0) != 0) {
      if (dangling == Dangling::list) {
        entries.push_back({.name = found->d_name});
        continue;
      }
      fail<DataError>("{}/{}: cannot be read: {}", path, found->d_name, std::strerror(errno));
    }
    entries.push_back({found->d_name, S_ISDIR(status.st_mode),
                       static_cast<std::uint64_t>(status.st_size), modified_ns(status)});
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return entries;
}

bool has_name_ending(const std::string& path, std::string_view ending) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), ::closedir);
  if (!folder) return false;
  while (const dirent* found = ::readdir(folder.get())) {
    if (found->d_name[0] != '.' && std::string_view(found->d_name).ends_with(ending)) return true;
  }
  return false;
}

bool is_folder(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

bool exists(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0;
}

bool is_inside(const std::string& path, const std::string& folder) {
  // weakly_canonical() alone leaves a path relative of which nothing exists.
  const auto place = [](const std::string& name) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(name));
  };
  const std::filesystem::path way = place(path).lexically_relative(place(folder));
  return !way.empty() && *way.begin() != "..";
}

std::string first_few(std::span<const std::string> names) {
  constexpr std::size_t most = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), most); ++i) {
    text += (i == 0 ? "" : ", ") + shown(names[i]);
  }
  if (names.size() > most) text += fmt::format(" and {} more", names.size() - most);
  return text;
}

std::string shown(std::string_view text) {
  std::string result;
  for (const char c : text.substr(0, 200)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      result += c;
    }
  }
  return printable(text.size() > 200 ? result + "..." : result);
}

void Hash::add(std::span<const std::uint8_t> bytes) {
  for (const std::uint8_t byte : bytes) value_ = (value_ ^ byte) * 0x100000001b3;
}

void Hash::add(std::string_view text) {
  add(std::uint64_t{text.size()});
  add(std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()));
}

void Hash::add(std::uint64_t value) {
  for (int i = 0; i < 8; ++i) value_ = (value_ ^ (value >> (8 * i) & 0xff)) * 0x100000001b3;
}

}  // namespace warpstep::data
