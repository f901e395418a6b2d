#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "engine/core/error.h"
#include "profiler/recorder/trigger.h"
#include "profiler/sources/testing_tree.h"

namespace warpstep::profiler::testing {

// Shared by the tests of the trigger and of its socket.

inline constexpr uid_t nobody = 65534;

inline Deadline soon() {
  return std::chrono::steady_clock::now() + std::chrono::seconds(20);
}

}  // namespace warpstep::profiler::testing

namespace warpstep::profiler {
namespace {

using ::testing::HasSubstr;
using testing::nobody;
using testing::soon;
using testing::Tree;

TEST(SocketFolder, IsTheUsersAlone) {
  Tree tree;
  tree.write("file", "");
  EXPECT_THAT(folder_problem(tree.root() / "file", true), HasSubstr("is not a folder"));
  std::filesystem::create_directory_symlink(tree.root(), tree.root() / "link");
  EXPECT_THAT(folder_problem(tree.root() / "link", true), HasSubstr("is not a folder"));
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

TEST(Socket, DistinguishesADeadOneFromNone) {
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

TEST(Lines, ArriveInAnyPieces) {
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
  EXPECT_EQ(one_clean_line("\xc2\x9b"
                           "0m\xff"),
            "?0m?");
}

using std::filesystem::path;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::nobody;
using testing::soon;
using testing::Tree;

unsigned mode_of(const path& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 ? status.st_mode & 07777 : 0;
}

// Runs `work` in a process of another user and returns its exit status; needs root.
int as_somebody_else(const std::function<bool()>& work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::setuid(nobody) == 0 && work() ? 0 : 1);
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

// Another process that listens, in a PID namespace of its own or not; ends with this object.
class OtherJob {
 public:
  OtherJob(const TriggerListener::Accept& accept, bool in_namespace) {
    int ends[2] = {-1, -1};
    if (::pipe(ends) != 0) return;
    parent_ = ::fork();
    if (parent_ == 0) ::_exit(work(accept, in_namespace, ends[1]));
    ::close(ends[1]);
    pid_t sent[2] = {0, 0};
    for (pid_t& number : sent)
      if (::read(ends[0], &number, sizeof number) != sizeof number) number = 0;
    ::close(ends[0]);
    process_ = std::max(sent[0], sent[1]);
    listens_ = std::min(sent[0], sent[1]) == listening;
  }
  ~OtherJob() {
    if (process_ > 0) ::kill(process_, SIGKILL);
    if (parent_ > 0) ::waitpid(parent_, nullptr, 0);
  }
  OtherJob(const OtherJob&) = delete;
  OtherJob& operator=(const OtherJob&) = delete;

  pid_t process() const { return process_; }  // its number here; 0: it could not start
  bool listens() const { return listens_; }   // and answers to its own number

 private:
  static constexpr pid_t listening = -1;

  static int work(const TriggerListener::Accept& accept, bool in_namespace, int end) {
    if (in_namespace && ::unshare(CLONE_NEWPID) != 0) return 1;
    const pid_t job = ::fork();
    if (job == 0) {
      const TriggerListener listener(accept);
      const bool answers = listener.why().empty() && trigger(::getpid(), {}) == "8 steps";
      const pid_t sent = answers ? listening : -2;
      if (::write(end, &sent, sizeof sent) == sizeof sent) ::pause();
      return 0;
    }
    const bool is_sent = ::write(end, &job, sizeof job) == sizeof job;
    ::close(end);
    ::waitpid(job, nullptr, 0);
    return is_sent ? 0 : 1;
  }

  pid_t parent_ = -1, process_ = 0;
  bool listens_ = false;
};

class Trigger : public ::testing::Test {
 protected:
  Trigger() {
    ::setenv("XDG_RUNTIME_DIR", tree_.root().c_str(), 1);
    accept_ = [this](const TriggerRequest& request) {
      const std::lock_guard lock(mutex_);
      asked_.push_back(request);
      return fmt::format("{} steps{}", request.steps, request.deep ? ", deep" : "");
    };
  }
  path folder() const { return tree_.root() / "warpstep"; }
  path own_socket() const { return socket_path(folder(), ::getpid()); }

  // Sends the bytes and returns the answer, or "closed".
  std::string send_raw(const std::string& bytes) const {
    int error = 0;
    const Descriptor socket = connect_to(own_socket(), &error);
    EXPECT_EQ(error, 0);
    for (std::size_t at = 0; at < bytes.size();) {
      const ssize_t sent =
          ::send(socket.number(), bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (sent > 0) at += static_cast<std::size_t>(sent);
      if (sent < 0 && errno != EAGAIN) return "closed";
    }
    return receive_line(socket, 1 << 20, soon()).value_or("closed");
  }

  Tree tree_;
  std::mutex mutex_;
  std::vector<TriggerRequest> asked_;
  TriggerListener::Accept accept_;
};

std::string refusal(pid_t job, const TriggerRequest& request = {}) {
  try {
    return "answered " + trigger(job, request);
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST_F(Trigger, IsAnsweredByTheJob) {
  TriggerListener listener(accept_);
  ASSERT_EQ(listener.why(), "");
  EXPECT_EQ(trigger(::getpid(), {3, true}), "3 steps, deep");
  EXPECT_EQ(trigger(::getpid(), {}), "8 steps");
  const std::lock_guard lock(mutex_);
  ASSERT_EQ(asked_.size(), 2U);
  EXPECT_EQ(asked_[0].steps, 3U);
  EXPECT_TRUE(asked_[0].deep);
}

TEST_F(Trigger, IsForTheUserAlone) {
  TriggerListener listener(accept_);
  EXPECT_EQ(mode_of(folder()), 0700U);
  EXPECT_EQ(mode_of(own_socket()), 0600U);
}

TEST_F(Trigger, EndsWithTheJob) {
  { const TriggerListener listener(accept_); }
  EXPECT_FALSE(std::filesystem::exists(own_socket()));
  EXPECT_THAT(refusal(::getpid()), HasSubstr("does not listen"));
  const TriggerListener again(accept_);
  EXPECT_EQ(trigger(::getpid(), {1, false}), "1 steps");
}

TEST_F(Trigger, AnswersNonsenseAndContinues) {
  TriggerListener listener(accept_);
  for (const char* line : {"hello", "", "[]", "{", "3", "{\"steps\":0}", "{\"steps\":-1}",
                           "{\"steps\":1.5}", "{\"steps\":1000001}", "{\"steps\":\"8\"}",
                           "{\"deep\":1}", "{\"stops\":1}", "\xff\xfe", "{\"steps\":1} 2"})
    EXPECT_THAT(send_raw(std::string(line) + "\n"), HasSubstr("not recorded: ")) << line;
  EXPECT_THAT(send_raw(std::string(4000, '[') + "\n"), HasSubstr("not recorded: "));
  EXPECT_THAT(send_raw(std::string("{}") + '\0' + "more\n"), HasSubstr("not recorded: "));
  EXPECT_EQ(send_raw("{}\n"), "8 steps");
  EXPECT_EQ(send_raw("{\"steps\":2}\n{\"steps\":3}\n"), "2 steps");
  EXPECT_EQ(send_raw(std::string(100'000, 'x')), "closed") << "no line may be that long";
  EXPECT_EQ(trigger(::getpid(), {}), "8 steps");
}

TEST_F(Trigger, OutlivesPeersThatGoAway) {
  TriggerListener listener(accept_);
  ::signal(SIGPIPE, SIG_DFL);
  for (int i = 0; i < 50; ++i) {
    int error = 0;
    const Descriptor silent = connect_to(own_socket(), &error);
    const Descriptor half = connect_to(own_socket(), &error);
    if (half) ::send(half.number(), "{\"st", 4, MSG_NOSIGNAL);
    const Descriptor leaves = connect_to(own_socket(), &error);
    if (leaves) ::send(leaves.number(), "{}\n", 3, MSG_NOSIGNAL);
  }
  EXPECT_EQ(trigger(::getpid(), {}), "8 steps");
}

TEST_F(Trigger, IsNotBlockedByASlowPeer) {
  TriggerListener listener(accept_);
  int error = 0;
  const Descriptor slow = connect_to(own_socket(), &error);
  ASSERT_EQ(error, 0);
  ::send(slow.number(), "{", 1, MSG_NOSIGNAL);
  EXPECT_EQ(trigger(::getpid(), {}), "8 steps");
  EXPECT_EQ(receive_line(slow, 100, soon()), std::nullopt) << "its connection was closed";
}

TEST_F(Trigger, StopsWhileAPeerIsConnected) {
  int error = 0;
  Descriptor slow;
  {
    TriggerListener listener(accept_);
    slow = connect_to(own_socket(), &error);
    ::send(slow.number(), "{", 1, MSG_NOSIGNAL);
  }
  EXPECT_EQ(receive_line(slow, 100, soon()), std::nullopt);
}

TEST_F(Trigger, ReportsAJobThatFails) {
  accept_ = [](const TriggerRequest&) -> std::string { throw std::runtime_error("disk\nfull"); };
  TriggerListener listener(accept_);
  EXPECT_EQ(trigger(::getpid(), {}), "not recorded: disk full");
  EXPECT_EQ(trigger(::getpid(), {}), "not recorded: disk full");
}

TEST_F(Trigger, AnswersInOneCleanLine) {
  accept_ = [](const TriggerRequest&) { return "a\nb\x1b[31mc"; };
  TriggerListener listener(accept_);
  EXPECT_EQ(trigger(::getpid(), {}), "a b?[31mc");
}

TEST_F(Trigger, RemovesSocketsOfDeadJobsOnly) {
  ASSERT_EQ(folder_problem(folder(), true), "");
  int error = 0;
  { const Descriptor dead = listen_at(socket_path(folder(), 4242), &error); }
  const Descriptor living = listen_at(folder() / "4343.5.sock", &error);
  tree_.write("warpstep/4444.sock", "a file");
  tree_.write("warpstep/notes.sock", "another");
  { const Descriptor dead = listen_at(own_socket(), &error); }
  ASSERT_TRUE(std::filesystem::exists(socket_path(folder(), 4242)));
  TriggerListener listener(accept_);
  EXPECT_EQ(listener.why(), "");
  EXPECT_FALSE(std::filesystem::exists(socket_path(folder(), 4242)));
  EXPECT_TRUE(std::filesystem::exists(folder() / "4343.5.sock"));
  EXPECT_TRUE(std::filesystem::exists(folder() / "notes.sock"));
  const std::vector<pid_t> jobs = listening_jobs();
  EXPECT_TRUE(std::count(jobs.begin(), jobs.end(), ::getpid()));
  EXPECT_FALSE(std::count(jobs.begin(), jobs.end(), 4242));
  EXPECT_FALSE(std::count(jobs.begin(), jobs.end(), 4343));
}

TEST_F(Trigger, ListensOncePerProcess) {
  TriggerListener first(accept_);
  {
    const TriggerListener second(accept_);
    EXPECT_THAT(second.why(), HasSubstr(own_socket().string()));
  }
  EXPECT_EQ(trigger(::getpid(), {}), "8 steps") << "the first one stays";
}

TEST_F(Trigger, AvoidsAFolderWhosePathIsTooLong) {
  const path deep = tree_.root() / std::string(150, 'x');
  std::filesystem::create_directory(deep);
  ::setenv("XDG_RUNTIME_DIR", deep.c_str(), 1);
  const TriggerListener listener(accept_);
  if (listener.why().empty())
    EXPECT_EQ(trigger(::getpid(), {}), "8 steps");
  else
    EXPECT_THAT(listener.why(), HasSubstr(deep.string()));
}

TEST_F(Trigger, ReportsProcessesWithoutAListener) {
  const pid_t ended = ::fork();
  if (ended == 0) ::_exit(0);
  ::waitpid(ended, nullptr, 0);
  EXPECT_THAT(refusal(ended), HasSubstr(fmt::format("there is no process {}", ended)));
  for (const pid_t none : {0, -1})
    EXPECT_THAT(refusal(none), HasSubstr(fmt::format("there is no process {}", none)));
  EXPECT_THAT(refusal(::getpid(), {0, false}), HasSubstr("--steps 0"));
  ASSERT_EQ(folder_problem(folder(), true), "");
  const OtherJob other(accept_, false);
  ASSERT_TRUE(other.listens());
  EXPECT_THAT(refusal(::getpid()),
              AllOf(HasSubstr("does not listen"), HasSubstr(fmt::format("{}", other.process()))));
}

// Each is process 1 of its own namespace, as in containers that share /tmp.
TEST_F(Trigger, TellsJobsOfContainersApart) {
  const OtherJob one(accept_, true);
  if (one.process() == 0) GTEST_SKIP() << "this user may not create PID namespaces";
  ASSERT_TRUE(one.listens());
  EXPECT_EQ(trigger(1, {}), "8 steps") << "there is no other with that number";
  const OtherJob other(accept_, true);
  ASSERT_TRUE(other.listens());
  EXPECT_EQ(trigger(one.process(), {}), "8 steps");
  EXPECT_EQ(trigger(other.process(), {}), "8 steps");
  const std::vector<pid_t> jobs = listening_jobs();
  EXPECT_TRUE(std::ranges::count(jobs, one.process()) && std::ranges::count(jobs, other.process()));
  EXPECT_EQ(std::ranges::count(jobs, 1), 0) << "which is another process here";
}

TEST_F(Trigger, ReportsAJobOfAnotherUser) {
  if (::geteuid() != 0) {
    EXPECT_THAT(refusal(1), HasSubstr("belongs to somebody else"));
    return;
  }
  const pid_t job = ::getpid();
  EXPECT_EQ(as_somebody_else([job] {
              return refusal(job).find("belongs to somebody else") != std::string::npos;
            }),
            0);
}

// Even when folder and socket were opened to others by hand.
TEST_F(Trigger, AnswersNoOtherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can act as somebody else";
  TriggerListener listener(accept_);
  for (const path& path : {tree_.root(), folder(), own_socket()})
    ASSERT_EQ(::chmod(path.c_str(), 0777), 0);
  EXPECT_EQ(as_somebody_else([path = own_socket()] {
              int error = 0;
              const Descriptor socket = connect_to(path, &error);
              if (!socket) return false;
              send_line(socket, "{}", soon());  // fails when the job has closed it already
              return !receive_line(socket, 100, soon());
            }),
            0);
  const std::lock_guard lock(mutex_);
  EXPECT_THAT(asked_, IsEmpty());
}

TEST_F(Trigger, LeavesSignalsToTheProgram) {
  TriggerListener listener(accept_);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, SIGUSR2);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &one, nullptr), 0);
  ::kill(::getpid(), SIGUSR2);  // would end the process in a thread that handles it
  EXPECT_EQ(trigger(::getpid(), {}), "8 steps");
  const timespec now{};
  EXPECT_EQ(::sigtimedwait(&one, nullptr, &now), SIGUSR2);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
}

}  // namespace
}  // namespace warpstep::profiler
