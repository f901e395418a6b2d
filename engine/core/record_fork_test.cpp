// Not under sanitizers (tests/proofs.cmake).
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "engine/core/record.h"

namespace warpstep::record {
namespace {

TEST(Record, HasAThreadInAForkedProcessWhileItsParentStartsOthers) {
  std::atomic<bool> stop{false};
  std::thread others([&] {
    while (!stop) name_thread("starts");
  });
  for (int fork_number = 0; fork_number < 50; ++fork_number) {
    const pid_t process = fork();
    if (process == 0) {
      alarm(10);  // ends it
      std::thread([] { name_thread("in a fork"); }).join();
      _exit(0);
    }
    int status = 1;
    ASSERT_EQ(waitpid(process, &status, 0), process);
    EXPECT_EQ(status, 0) << "fork " << fork_number;
    if (status != 0) break;
  }
  stop = true;
  others.join();
}

}  // namespace
}  // namespace warpstep::record
