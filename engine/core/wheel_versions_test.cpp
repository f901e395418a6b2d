#include "engine/core/wheel_versions.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "engine/core/error.h"

namespace warpstep {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

const std::string library = "libstandin_dnn.so.9";

// Two virtual environments with wheels, of which the first is active, and a folder of a system. The
// test is started with LD_LIBRARY_PATH of a stand-in 9.14, to which the stand-in module is linked.
class WheelVersions : public testing::Test {
 protected:
  WheelVersions() : root_(fs::path(testing::TempDir()) / fmt::format("versions_{}", ::getpid())) {
    fs::remove_all(root_);
    fs::create_directories(root_ / "system");
    ::setenv("VIRTUAL_ENV", (root_ / "first").c_str(), 1);
    ::setenv("CONDA_PREFIX", (root_ / "second").c_str(), 1);
  }
  ~WheelVersions() override {
    ::unsetenv("VIRTUAL_ENV");
    ::unsetenv("CONDA_PREFIX");
    fs::remove_all(root_);
  }

  // The library's file of a wheel with that version in its metadata.
  fs::path wheel(const std::string& environment, const std::string& version) {
    const fs::path site = root_ / environment / "lib/python3.12/site-packages";
    fs::create_directories(site / "nvidia/cu13/lib");
    fs::create_directories(site / "nvidia/standin_dnn/lib");
    // A package for another CUDA, and one that has no library.
    fs::create_directories(site / "nvidia_standin_dnn_cu12-9.99.0.1.dist-info");
    fs::create_directories(site / "nvidia_standin_dnn_frontend-99.1.0.dist-info");
    if (!version.empty())
      fs::create_directories(site / ("nvidia_standin_dnn_cu13-" + version + ".dist-info"));
    const fs::path folder = site / "nvidia/standin_dnn/lib";
    for (const std::string part : {"", "_graph"}) {
      const std::string name = "libstandin_dnn" + part + ".so.9";
      fs::copy_file(fs::path(STANDINS) / "9.19.0" / name, folder / name);
    }
    return folder / library;
  }
  // A library of a system's package: a link to a file with its version.
  fs::path system(const std::string& version) {
    const fs::path file = root_ / "system" / library;
    std::ofstream(root_ / "system" / ("libstandin_dnn.so." + version)) << "";
    fs::remove(file);
    fs::create_symlink("libstandin_dnn.so." + version, file);
    return file;
  }
  // What a module uses that is loaded after prefer_newer_in_wheels(): 1000 times the library's
  // version and that of its part. In a process of its own, as a library stays loaded.
  static void expect_in_use(int version, const LibraryVersion& needed) {
    EXPECT_EXIT(
        {
          prefer_newer_in_wheels(library, needed, STANDIN_MODULE);
          void* module = dlopen(STANDIN_MODULE, RTLD_NOW | RTLD_LOCAL);
          const auto in_use = reinterpret_cast<int (*)()>(dlsym(module, "version_in_use"));
          fmt::print(stderr, "in use: {}\n", in_use());
          ::_exit(0);
        },
        testing::ExitedWithCode(0), fmt::format("in use: {}\n", version));
  }

  fs::path root_;
};

TEST_F(WheelVersions, AreReadFromNamesAndMetadata) {
  EXPECT_THAT(library_version(system("9.14.0")), ElementsAre(9, 14, 0));
  EXPECT_THAT(library_version(wheel("first", "9.19.0.56")), ElementsAre(9, 19, 0, 56));
  EXPECT_THAT(library_version(wheel("second", "")), IsEmpty());
  EXPECT_THAT(library_version(root_ / "nothing.so.9.1"), IsEmpty());
  EXPECT_THAT(library_version(system("9")), IsEmpty());
}

TEST_F(WheelVersions, TheNewestReplacesOneThatIsTooOld) {
  const fs::path old = system("9.14.0");
  const LibraryVersion needed{9, 16};
  EXPECT_EQ(newer_in_wheels(old, needed), fs::path());
  wheel("first", "9.13.1.26");
  EXPECT_EQ(newer_in_wheels(old, needed), fs::path()) << "older than the system's";
  const fs::path newest = wheel("second", "9.19.0.56");
  EXPECT_EQ(newer_in_wheels(old, needed), newest);
  EXPECT_EQ(newer_in_wheels(old, {9, 14}), fs::path()) << "the system's suffices";
  EXPECT_EQ(newer_in_wheels(root_ / "missing.so.9", needed), fs::path());
  EXPECT_EQ(newer_in_wheels(system("9"), needed), fs::path()) << "of an unknown version";
}

TEST_F(WheelVersions, TheLoadersFileIsFound) {
  const fs::path old = fs::path(STANDINS) / "9.14.0" / library;
  EXPECT_EQ(file_of_loader(library, "nothing.so"), old) << "by LD_LIBRARY_PATH";
  const std::string path = std::getenv("LD_LIBRARY_PATH");
  ::unsetenv("LD_LIBRARY_PATH");
  EXPECT_EQ(file_of_loader(library, STANDIN_MODULE), old) << "by the module's own path";
  EXPECT_EQ(file_of_loader(library, root_ / "nothing.so"), old) << "by opening it";
  ::setenv("LD_LIBRARY_PATH", path.c_str(), 1);
  EXPECT_EQ(file_of_loader("libno_such_library.so.9", STANDIN_MODULE), fs::path());
  EXPECT_EQ(file_of_loader("libc.so.6", STANDIN_MODULE), fs::path()) << "the process has it";
  void* still = dlopen(library.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  EXPECT_EQ(still, nullptr) << "looking for it has left it loaded";
}

TEST_F(WheelVersions, AModuleUsesTheNewerOneWithItsParts) {
  expect_in_use(914914, {9, 16});
  wheel("first", "9.19.0.56");
  expect_in_use(914914, {9, 14});
  expect_in_use(919919, {9, 16});
}

TEST_F(WheelVersions, OneThatDoesNotLoadChangesNothing) {
  const fs::path newer = wheel("first", "9.19.0.56");
  std::ofstream(newer) << "not a library";
  expect_in_use(914914, {9, 16});
}

}  // namespace
}  // namespace warpstep
