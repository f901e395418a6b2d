#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "data/io/mapped_file.h"
#include "tests/data_testing.h"

namespace warpstep::data {
namespace {

TEST(Readahead, RequestsOnceForSetsThatMemoryHolds) {
  const Readahead tracker(3, 100, 100);
  EXPECT_TRUE(tracker.first_request(1));
  EXPECT_FALSE(tracker.first_request(1));
  EXPECT_TRUE(tracker.first_request(2));
  EXPECT_TRUE(tracker.first_request(0));
  EXPECT_FALSE(tracker.first_request(2));
}

TEST(Readahead, RequestsAlwaysForLargerSets) {
  const Readahead tracker(3, 101, 100);
  EXPECT_TRUE(tracker.first_request(1));
  EXPECT_TRUE(tracker.first_request(1));
}

using ::testing::HasSubstr;
using testing::message_of;
using testing::put;
using testing::reads_pages_alone;
using testing::TemporaryFolder;
using Bytes = std::vector<std::uint8_t>;

class MappedFileTest : public ::testing::Test {
 protected:
  MappedFileTest() : path_(folder_ / "file"), content_(10000) {
    for (std::size_t i = 0; i < content_.size(); ++i)
      content_[i] = static_cast<std::uint8_t>(i * 31 >> 3);
    put(path_, content_);
  }
  TemporaryFolder folder_;
  std::string path_;
  Bytes content_;
  Bytes scratch_;
};

TEST_F(MappedFileTest, PagesOfALargerSetAreReadAlone) {
  for (const std::uint64_t budget : {10'000, 9'999}) {
    const MappedFile mapped(path_), read(path_, Io::pread);
    const void* const memory = mapped.view(0, 1, scratch_).data();
    const Readahead readahead(2, 10'000, budget);
    EXPECT_NE(reads_pages_alone(memory), true) << "before samples are requested";
    for (const MappedFile* const file : {&mapped, &read})
      for (const std::uint64_t sample : {1, 1, 0})
        readahead.request(sample, *file, sample * 5'000, 5'000);
    EXPECT_THAT(reads_pages_alone(memory), ::testing::AnyOf(std::nullopt, budget < 10'000));
  }
}

class EitherIo : public MappedFileTest, public ::testing::WithParamInterface<Io> {};

TEST_P(EitherIo, GivesEveryRangeAndNoneBeyond) {
  const MappedFile file(path_, GetParam());
  EXPECT_EQ(file.bytes(), 10000U);
  EXPECT_EQ(file.is_mapped(), GetParam() == Io::mmap);
  for (const auto& [offset, bytes] :
       {std::pair{0, 10000}, {4095, 2}, {9999, 1}, {10000, 0}, {123, 4567}}) {
    const auto view =
        file.view(static_cast<std::uint64_t>(offset), static_cast<std::uint64_t>(bytes), scratch_);
    file.will_need(static_cast<std::uint64_t>(offset), static_cast<std::uint64_t>(bytes));
    EXPECT_EQ(Bytes(view.begin(), view.end()),
              Bytes(content_.begin() + offset, content_.begin() + offset + bytes));
  }
  file.will_need(9000, ~std::uint64_t{0});
  EXPECT_THAT(message_of([&] { file.view(9999, 2, scratch_); }),
              HasSubstr("/file: has 10000 bytes, too few for 2 bytes from byte 9999"));
  EXPECT_NE(message_of([&] { file.view(1, ~std::uint64_t{0}, scratch_); }), "");
}

TEST_P(EitherIo, NamesAFileThatChanged) {
  const MappedFile file(path_, GetParam());
  file.check_unchanged();
  std::filesystem::last_write_time(path_, std::filesystem::file_time_type{});
  EXPECT_THAT(message_of([&] { file.check_unchanged(); }),
              HasSubstr("/file: was replaced or modified after"));
  std::filesystem::resize_file(path_, 7);
  EXPECT_THAT(message_of([&] { file.check_unchanged(); }), HasSubstr("has 7 bytes, but had 10000"));
  std::filesystem::remove(path_);
  EXPECT_THAT(message_of([&] { file.check_unchanged(); }),
              HasSubstr("/file: was deleted after it was opened"));
}

TEST_P(EitherIo, RefusesWhatIsNoFile) {
  EXPECT_THAT(message_of([&] { MappedFile(folder_ / "none", GetParam()); }),
              HasSubstr("/none: cannot be read: No such file"));
  EXPECT_THAT(message_of([&] { MappedFile(folder_.path(), GetParam()); }),
              HasSubstr("is not a file"));
  put(path_, Bytes{});
  const MappedFile empty(path_, GetParam());
  EXPECT_TRUE(empty.view(0, 0, scratch_).empty());
}

INSTANTIATE_TEST_SUITE_P(Io, EitherIo, ::testing::Values(Io::mmap, Io::pread),
                         [](const auto& io) { return io.param == Io::mmap ? "mmap" : "pread"; });

TEST_F(MappedFileTest, APreadFileThatIsCutIsAnError) {
  const MappedFile file(path_, Io::pread);
  std::filesystem::resize_file(path_, 100);
  EXPECT_THAT(message_of([&] { file.view(90, 20, scratch_); }),
              HasSubstr("/file: was truncated at byte 100 while it was read"));
}

TEST_F(MappedFileTest, AMappedFileThatIsCutEndsTheProgramByName) {
  const auto read_cut = [&] {
    const MappedFile file(path_);
    std::filesystem::resize_file(path_, 100);
    const volatile std::uint8_t* bytes = file.view(0, file.bytes(), scratch_).data();
    std::exit(bytes[5000]);
  };
  EXPECT_EXIT(
      read_cut(), ::testing::ExitedWithCode(1),
      "/file: was truncated or its disk failed while it was mapped .byte 5000.; copy it again");
}

TEST_F(MappedFileTest, NoControlCharactersOfANameReachTheTerminal) {
  const auto read_cut = [&] {
    const std::string path = folder_ / "\x1b[31m";
    put(path, content_);
    const MappedFile file(path);
    std::filesystem::resize_file(path, 100);
    const volatile std::uint8_t* bytes = file.view(0, file.bytes(), scratch_).data();
    std::exit(bytes[5000]);
  };
  EXPECT_EXIT(read_cut(), ::testing::ExitedWithCode(1), "/[?][[]31m: was truncated");
}

// The rest of a page that still has bytes of the file is zeros, which no fault reports.
TEST_F(MappedFileTest, ACutWithinTheLastPageIsFoundByTheCheckAlone) {
  const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const MappedFile file(path_);
  const std::size_t last = content_.size() - 1, cut = last / page * page + 1;
  EXPECT_NE(content_[last], 0);
  std::filesystem::resize_file(path_, cut);
  EXPECT_EQ(file.view(last, 1, scratch_)[0], 0);
  EXPECT_THAT(message_of([&] { file.check_unchanged(); }),
              HasSubstr(fmt::format("/file: has {} bytes, but had 10000", cut)));
}

TEST_F(MappedFileTest, FaultsElsewhereGoToTheHandlerThatWasThere) {
  const auto fault_elsewhere = [&] {
    ::signal(SIGBUS, [](int) { ::_exit(42); });
    const MappedFile ours(path_);
    const std::string other = folder_ / "other";
    put(other, content_);
    const int file = ::open(other.c_str(), O_RDONLY);
    const volatile auto* memory = static_cast<const volatile std::uint8_t*>(
        ::mmap(nullptr, 10000, PROT_READ, MAP_SHARED, file, 0));
    std::filesystem::resize_file(other, 0);
    std::exit(memory[0]);
  };
  EXPECT_EXIT(fault_elsewhere(), ::testing::ExitedWithCode(42), "");
}

TEST_F(MappedFileTest, MoreFilesThanTheSoftLimitMayBeOpen) {
  const auto open_all = [&] {
    struct ::rlimit limit {};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit = {64, std::min<rlim_t>(limit.rlim_max, 300)};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    std::vector<std::unique_ptr<MappedFile>> files;
    for (int i = 0; i < 200; ++i) files.push_back(std::make_unique<MappedFile>(path_, Io::pread));
    const std::string message = message_of([&] {
      for (int i = 0; i < 200; ++i) files.push_back(std::make_unique<MappedFile>(path_, Io::pread));
    });
    std::fputs(message.c_str(), stderr);
    ::_exit(42);
  };
  EXPECT_EXIT(open_all(), ::testing::ExitedWithCode(42),
              "/file: cannot be read: Too many open files.*ulimit -n.*data pack --shard-mib");
}

TEST_F(MappedFileTest, MoreFilesThanTheTableHoldsAreReadByPosition) {
  std::vector<std::unique_ptr<MappedFile>> files;
  for (int i = 0; i < 4096; ++i) files.push_back(std::make_unique<MappedFile>(path_));
  EXPECT_TRUE(files.back()->is_mapped());
  const MappedFile further(path_);
  EXPECT_FALSE(further.is_mapped());
  EXPECT_EQ(further.view(1, 1, scratch_)[0], content_[1]);
  files.pop_back();
  EXPECT_TRUE(MappedFile(path_).is_mapped());
}

}  // namespace
}  // namespace warpstep::data
