#include "engine/core/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <thread>
#include <vector>

#include "engine/core/error.h"

namespace {
// What the next calls of fsync() answer: an errno each, 0 for the system's own answer.
std::vector<int> fsync_errors;
}  // namespace

// The program's own comes before the C library's, for the library under test too.
extern "C" int fsync(int descriptor) {
  if (!fsync_errors.empty()) {
    const int error = fsync_errors.front();
    fsync_errors.erase(fsync_errors.begin());
    if (error != 0) {
      errno = error;
      return -1;
    }
  }
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

namespace warpstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace fs = std::filesystem;

class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "warpstep-file-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { fs::remove_all(directory_); }

  fs::path make(const std::string& name, const std::string& content) const {
    std::ofstream(directory_ / name, std::ios::binary) << content;
    return directory_ / name;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(directory_))
      found.push_back(entry.path().filename().string());
    return found;
  }

  fs::path directory_;
};

TEST_F(FileTest, SaysHowMoreFilesMayBeOpen) {
  const fs::path path = make("a", "x");
  ::rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const ::rlimit none{0, limit.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &none);
  const auto more = ThrowsMessage<DataError>(HasSubstr("files (allow more with `ulimit -n`)"));
  EXPECT_THAT([&] { InputFile file(path); }, more);
  EXPECT_THAT([&] { write_atomically(path, "y"); }, more);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// The largest size that a file of this process may grow to, for the life of the object: the write
// that goes beyond fails as it would on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST_F(FileTest, ReadsTheWholeContent) {
  const std::string content(100'000, '\0');
  EXPECT_EQ(read_file(make("zeros", content)), content);
  EXPECT_EQ(read_file(make("empty", "")), "");
  EXPECT_THAT(read_file("/proc/self/status"), HasSubstr("VmRSS"));  // states a size of 0
}

TEST_F(FileTest, NamesWhatCannotBeRead) {
  const fs::path missing = directory_ / "missing";
  EXPECT_THAT([&] { read_file(missing); },
              ThrowsMessage<DataError>(
                  AllOf(HasSubstr(missing.string()), HasSubstr("No such file or directory"))));
  EXPECT_THAT(
      [&] { read_file(directory_); },
      ThrowsMessage<DataError>(AllOf(HasSubstr(directory_.string()), HasSubstr("Is a directory"))));
  const fs::path pipe = directory_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT([&] { read_file(pipe); }, ThrowsMessage<DataError>(HasSubstr(pipe.string())));
}

TEST_F(FileTest, RefusesMoreThanTheLimitBeforeReading) {
  const fs::path path = make("sparse", "x");
  fs::resize_file(path, std::uintmax_t{1} << 40);
  EXPECT_THAT([&] { read_file(path, 1000); },
              ThrowsMessage<DataError>(AllOf(HasSubstr("1099511627776 bytes"), HasSubstr("1000"))));
  EXPECT_THROW(read_file("/proc/self/status", 10), DataError);
  EXPECT_EQ(read_file(make("ten", "0123456789"), 10), "0123456789");
}

TEST_F(FileTest, ReadsByPositionAndNamesTheByteWhereAFileEnds) {
  const InputFile file(make("digits", "0123456789"));
  EXPECT_EQ(file.bytes(), 10U);
  std::array<std::byte, 4> out{};
  file.read(3, out);
  EXPECT_EQ(std::to_integer<char>(out[0]), '3');
  EXPECT_EQ(std::to_integer<char>(out[3]), '6');
  EXPECT_EQ(file.read_some(8, out), 2U);
  EXPECT_EQ(file.read_some(100, out), 0U);
  EXPECT_THAT([&] { file.read(8, out); },
              ThrowsMessage<DataError>(AllOf(HasSubstr("ends at byte 10"), HasSubstr("4 bytes"))));
  fs::resize_file(file.path(), 5);  // under our hands
  EXPECT_THROW(file.read(3, out), DataError);
}

TEST_F(FileTest, WritesPartsInOrderAndReplacesTheOldFile) {
  const fs::path path = make("out", "old");
  const std::string a = "one ", b, c = "three";
  const std::vector<std::span<const std::byte>> parts = {
      std::as_bytes(std::span(a)), std::as_bytes(std::span(b)), std::as_bytes(std::span(c))};
  write_atomically(path, parts);
  EXPECT_EQ(read_file(path), "one three");
  EXPECT_THAT(names(), testing::ElementsAre("out"));
}

TEST_F(FileTest, WorksInTheCurrentDirectoryToo) {
  const fs::path before = fs::current_path();
  fs::current_path(directory_);
  write_atomically("plain", "text");
  fs::current_path(before);
  EXPECT_EQ(read_file(directory_ / "plain"), "text");
}

TEST_F(FileTest, NewFilesHaveTheUsersDefaultPermissions) {
  const mode_t mask = ::umask(027);
  write_atomically(directory_ / "out", "x");
  ::umask(mask);
  struct stat status = {};
  ASSERT_EQ(::stat((directory_ / "out").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0640U);
}

TEST_F(FileTest, NothingIsSeenBeforeTheCommitAndNothingStaysWithoutOne) {
  const fs::path path = make("out", "old");
  {
    AtomicFile file(path);
    file.write("new");
    EXPECT_EQ(read_file(path), "old");
  }
  EXPECT_EQ(read_file(path), "old");
  EXPECT_THAT(names(), testing::ElementsAre("out"));
}

TEST_F(FileTest, AFullDiskLeavesTheOldFileAndNoTemporary) {
  const fs::path path = make("out", "old");
  const std::string content(100'000, 'x');
  std::string message;
  {
    const FileSizeLimit limit(65'536);
    try {
      write_atomically(path, content);
    } catch (const DataError& error) {
      message = error.what();
    }
  }
  EXPECT_THAT(message, AllOf(HasSubstr(path.string()), HasSubstr("File too large"),
                             HasSubstr("65536 of 100000 bytes"), HasSubstr("unchanged")));
  EXPECT_EQ(read_file(path), "old");
  EXPECT_THAT(names(), testing::ElementsAre("out"));
}

TEST_F(FileTest, SaysWhyADirectoryCannotBeWrittenTo) {
  const fs::path below_a_file = make("file", "x") / "out";
  EXPECT_THAT([&] { write_atomically(below_a_file, "text"); },
              ThrowsMessage<DataError>(AllOf(HasSubstr(below_a_file.string()),
                                             HasSubstr("Not a directory"), HasSubstr("of 4 bytes"),
                                             HasSubstr("no partial file is left"))));
  const fs::path in_no_directory = directory_ / "none" / "out";
  EXPECT_THAT([&] { write_atomically(in_no_directory, "text"); },
              ThrowsMessage<DataError>(HasSubstr("No such file or directory")));
  EXPECT_THAT(names(), testing::ElementsAre("file"));
}

TEST_F(FileTest, WhatIsNoFileIsNotReplaced) {
  const fs::path directory = directory_ / "directory", pipe = directory_ / "pipe",
                 link = directory_ / "link", standard = directory_ / "stdout";
  fs::create_directory(directory);
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  fs::create_symlink(pipe, link);
  const int file = open_file(make("file", "old").c_str(), O_RDONLY | O_CLOEXEC);
  fs::create_symlink(fmt::format("/proc/self/fd/{}", file), standard);
  for (const auto& [path, what] :
       {std::pair(directory, "a directory"), std::pair(pipe, "a pipe"), std::pair(link, "a pipe"),
        std::pair(standard, "a name of an open file")})
    EXPECT_THAT([&] { write_atomically(path, "text"); },
                ThrowsMessage<DataError>(AllOf(HasSubstr(path.string() + ": is " + what),
                                               HasSubstr("give the path of a file"))));
  ::close(file);
  EXPECT_TRUE(fs::is_directory(directory));
  EXPECT_TRUE(fs::is_fifo(pipe));
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_TRUE(fs::is_symlink(standard));
  EXPECT_EQ(names().size(), 5U);
}

TEST_F(FileTest, ANewFileHasThePermissionsOfTheOldOne) {
  const fs::path path = make("out", "old");
  struct stat status = {};
  for (const mode_t mode : {0600U, 0400U, 0666U}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    write_atomically(path, "new");
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777U, mode);
  }
  if (::geteuid() != 0) return;
  ASSERT_EQ(::chown(path.c_str(), 12, 34), 0);
  write_atomically(path, "new");
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(std::pair(status.st_uid, status.st_gid), std::pair(12U, 34U));
  EXPECT_EQ(status.st_mode & 0777U, 0666U);
}

TEST_F(FileTest, ALinkToAFileIsReplacedAndNotFollowed) {
  const fs::path file = make("file", "old"), link = directory_ / "link";
  fs::create_symlink("file", link);
  write_atomically(link, "new");
  EXPECT_FALSE(fs::is_symlink(link));
  EXPECT_EQ(read_file(link), "new");
  EXPECT_EQ(read_file(file), "old");
}

TEST_F(FileTest, AnInterruptedFsyncIsCalledAgain) {
  fsync_errors = {EINTR, EINTR, 0, EINTR};
  write_atomically(directory_ / "out", "text");
  EXPECT_TRUE(fsync_errors.empty());
  EXPECT_EQ(read_file(directory_ / "out"), "text");
}

TEST_F(FileTest, AFileThatDoesNotReachTheDiskLeavesTheOldOne) {
  const fs::path path = make("out", "old");
  fsync_errors = {EIO};
  EXPECT_THAT(
      [&] { write_atomically(path, "new"); },
      ThrowsMessage<DataError>(AllOf(HasSubstr(path.string()), HasSubstr("Input/output error"),
                                     HasSubstr("the file of that name is unchanged"))));
  EXPECT_EQ(read_file(path), "old");
  EXPECT_THAT(names(), testing::ElementsAre("out"));
}

TEST_F(FileTest, ADirectoryThatDoesNotReachTheDiskIsAnErrorAndOneThatRefusesIsNot) {
  const fs::path path = directory_ / "out";
  fsync_errors = {0, EIO};
  EXPECT_THAT([&] { write_atomically(path, "new"); },
              ThrowsMessage<DataError>(AllOf(HasSubstr(path.string()), HasSubstr("is complete"),
                                             HasSubstr("Input/output error"))));
  EXPECT_EQ(read_file(path), "new");
  for (const int refusal : {EINVAL, ENOSYS, EOPNOTSUPP}) {
    fsync_errors = {0, refusal};
    EXPECT_NO_THROW(write_atomically(path, "newer"));
    EXPECT_TRUE(fsync_errors.empty());
  }
}

TEST_F(FileTest, AFolderThatDoesNotReachTheDiskIsAnErrorAndOneThatRefusesIsNot) {
  fsync_errors = {EINTR, EIO};
  EXPECT_THAT([&] { sync_folder(directory_); },
              ThrowsMessage<DataError>(
                  AllOf(HasSubstr(directory_.string()), HasSubstr("Input/output error"))));
  fsync_errors = {EINVAL};
  EXPECT_NO_THROW(sync_folder(directory_));
  EXPECT_TRUE(fsync_errors.empty());
  EXPECT_NO_THROW(sync_files_in(directory_));
  for (const auto& sync : {sync_folder, sync_files_in})
    EXPECT_THAT([&] { sync(directory_ / "none"); },
                ThrowsMessage<DataError>(HasSubstr("No such file or directory")));
}

TEST_F(FileTest, ANewFileReplacesWhatHasItsNameAndFollowsNoLink) {
  const fs::path victim = make("victim", "mine"), path = directory_ / "out";
  for (const fs::path& target : {victim, directory_ / "dangling"}) {
    fs::create_symlink(target, path);
    const int file = create_file(path);
    ASSERT_GE(file, 0);
    EXPECT_EQ(::write(file, "new", 3), 3);
    ::close(file);
    EXPECT_FALSE(fs::is_symlink(path));
    EXPECT_EQ(read_file(path), "new");
    fs::remove(path);
  }
  EXPECT_EQ(read_file(victim), "mine");
  EXPECT_FALSE(fs::exists(directory_ / "dangling"));
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(create_file(path), -1) << "nobody reads the pipe";
  EXPECT_EQ(create_file(directory_), -1);
}

TEST_F(FileTest, ConcurrentWritersOfOneNameLeaveOneOfTheContents) {
  const fs::path path = directory_ / "out";
  const std::string a(200'000, 'a'), b(200'000, 'b');
  std::thread other([&] {
    for (int i = 0; i < 20; ++i) write_atomically(path, a);
  });
  for (int i = 0; i < 20; ++i) write_atomically(path, b);
  other.join();
  const std::string content = read_file(path);
  EXPECT_TRUE(content == a || content == b);
  EXPECT_THAT(names(), testing::ElementsAre("out"));
}

}  // namespace
}  // namespace warpstep
