#include "profiler/recorder/trigger_socket.h"

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "profiler/recorder/testing_socket.h"
#include "profiler/sources/testing_tree.h"

namespace warpstep::profiler {
namespace {

using ::testing::HasSubstr;
using testing::nobody;
using testing::soon;
using testing::Tree;

TEST(SocketFolder, IsTheUsersAlone) {
  Tree tree;
  tree.write("file", "");
  EXPECT_THAT(folder_problem(tree.root() / "file", true), HasSubstr("is no folder"));
  std::filesystem::create_directory_symlink(tree.root(), tree.root() / "link");
  EXPECT_THAT(folder_problem(tree.root() / "link", true), HasSubstr("is no folder"));
  ASSERT_EQ(::mkdir((tree.root() / "open").c_str(), 0700), 0);
  ASSERT_EQ(::chmod((tree.root() / "open").c_str(), 0750), 0);
  EXPECT_THAT(folder_problem(tree.root() / "open", true), HasSubstr("open to others"));
  EXPECT_THAT(folder_problem(tree.root() / "none", false), HasSubstr("No such file"));
  EXPECT_THAT(folder_problem(tree.root() / "none" / "none", true), HasSubstr("No such file"));
  EXPECT_EQ(folder_problem(tree.root() / "mine", true), "");
  EXPECT_EQ(folder_problem(tree.root() / "mine", true), "") << "once more";
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown((tree.root() / "mine").c_str(), nobody, nobody), 0);
    EXPECT_THAT(folder_problem(tree.root() / "mine", true), HasSubstr("somebody else"));
  }
}

TEST(SocketFolder, HasASecondChoice) {
  const Tree tree;
  ::unsetenv("XDG_RUNTIME_DIR");
  EXPECT_EQ(socket_folders(12),
            (std::vector<std::filesystem::path>{"/run/user/12/warpstep", "/tmp/warpstep-12"}));
  const uid_t own = ::geteuid();
  ::setenv("XDG_RUNTIME_DIR", tree.root().c_str(), 1);
  EXPECT_EQ(socket_folders(own).at(0), tree.root() / "warpstep");
  EXPECT_EQ(socket_folders(own).size(), 3U);
  EXPECT_EQ(socket_folders(own + 1).size(), 2U) << "the variable is of the calling user";
  for (const char* useless : {"relative", "/nonexistent", ""}) {
    ::setenv("XDG_RUNTIME_DIR", useless, 1);
    EXPECT_EQ(socket_folders(own).size(), 2U) << useless;
  }
  if (own != 0) return;
  ASSERT_EQ(::chown(tree.root().c_str(), nobody, nobody), 0);
  ::setenv("XDG_RUNTIME_DIR", tree.root().c_str(), 1);
  EXPECT_EQ(socket_folders(own).size(), 2U) << "of who called sudo";
}

TEST(Socket, HasAShortPath) {
  Tree tree;
  const std::filesystem::path deep = tree.root() / std::string(150, 'x');
  std::filesystem::create_directory(deep);
  int error = 0;
  EXPECT_FALSE(listen_at(deep / "1.sock", &error));
  EXPECT_EQ(error, ENAMETOOLONG);
  EXPECT_FALSE(connect_to(deep / "1.sock", &error));
  EXPECT_EQ(error, ENAMETOOLONG);
  EXPECT_TRUE(std::filesystem::is_empty(deep));
}

TEST(Socket, TellsADeadOneFromNone) {
  Tree tree;
  const std::filesystem::path at = tree.root() / "1.sock";
  int error = 0;
  EXPECT_FALSE(connect_to(at, &error));
  EXPECT_EQ(error, ENOENT);
  {
    const Descriptor listening = listen_at(at, &error);
    EXPECT_EQ(error, 0);
    EXPECT_TRUE(connect_to(at, &error));
  }
  EXPECT_FALSE(connect_to(at, &error));
  EXPECT_EQ(error, ECONNREFUSED);
  EXPECT_FALSE(listen_at(tree.root() / "none" / "1.sock", &error));
  EXPECT_EQ(error, ENOENT);
}

struct Pair {
  Descriptor one, other;
  Pair() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    one = Descriptor(ends[0]);
    other = Descriptor(ends[1]);
  }
};

TEST(Lines, GoThroughWhateverTheirPieces) {
  const Pair pair;
  const std::string line(3'000'000, 'x');  // more than the kernel keeps
  std::thread sender([&] { EXPECT_TRUE(send_line(pair.one, line, soon())); });
  EXPECT_EQ(receive_line(pair.other, line.size(), soon()), line);
  sender.join();
  EXPECT_TRUE(send_line(pair.one, "", std::chrono::steady_clock::now())) << "it need not wait";
  EXPECT_EQ(receive_line(pair.other, 0, soon()), "");
}

TEST(Lines, EndWithTheirPeerTheirLimitAndTheirDeadline) {
  Pair pair;
  EXPECT_TRUE(send_line(pair.one, "12345", soon()));
  EXPECT_EQ(receive_line(pair.other, 4, soon()), std::nullopt);
  EXPECT_EQ(receive_line(pair.other, 4, std::chrono::steady_clock::now()), std::nullopt);
  EXPECT_FALSE(send_line(pair.one, std::string(3'000'000, 'x'),
                         std::chrono::steady_clock::now() + std::chrono::milliseconds(20)))
      << "nobody reads";
  pair.other = Descriptor();
  EXPECT_FALSE(send_line(pair.one, "x", soon())) << "and no SIGPIPE";
}

TEST(Lines, AreCleanedForATerminal) {
  EXPECT_EQ(one_clean_line("a\nb\x1b[0m\x7f\t\xc3\xa9"), "a b?[0m??\xc3\xa9");
}

}  // namespace
}  // namespace warpstep::profiler
