#include "engine/core/wheels.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <fstream>

#include "engine/core/error.h"

namespace warpstep {
namespace {

namespace fs = std::filesystem;

// A virtual environment with wheels, active in this process.
class Wheels : public testing::Test {
 protected:
  Wheels() : prefix_(fs::path(testing::TempDir()) / fmt::format("wheels_{}", ::getpid())) {
    fs::remove_all(prefix_);
    if (const char* before = std::getenv("VIRTUAL_ENV")) before_ = before;
    ::setenv("VIRTUAL_ENV", prefix_.c_str(), 1);
  }
  ~Wheels() override {
    if (before_.empty())
      ::unsetenv("VIRTUAL_ENV");
    else
      ::setenv("VIRTUAL_ENV", before_.c_str(), 1);
    fs::remove_all(prefix_);
  }

  fs::path wheel(const std::string& name) {
    fs::path lib = prefix_ / "lib/python3.12/site-packages/nvidia" / name / "lib";
    fs::create_directories(lib);
    return lib;
  }
  // A library that only the wheels have: a copy of the C library's mathematics.
  static void plant(const fs::path& file) {
    Dl_info math{};
    double (*const sine)(double) = &std::sin;
    ASSERT_NE(dladdr(reinterpret_cast<void*>(sine), &math), 0);
    fs::copy_file(math.dli_fname, file);
  }

  fs::path prefix_;
  std::string before_;
};

TEST_F(Wheels, OfTheActiveEnvironmentComeFirst) {
  const fs::path cuda = wheel("cu13"), cudnn = wheel("cudnn");
  std::ofstream(cudnn / "libcudnn.so.9") << "cuDNN";
  const std::vector<fs::path> folders = wheel_folders();
  ASSERT_GE(folders.size(), 2U);
  EXPECT_EQ(folders[0], cuda);
  EXPECT_EQ(folders[1], cudnn);
  EXPECT_EQ(in_wheels("libcudnn.so.9"), cudnn / "libcudnn.so.9");
  EXPECT_EQ(in_wheels("libonly_of_wheels.so.1"), fs::path());
}

TEST_F(Wheels, OfCuda12AreLeftOut) {
  const fs::path runtime = wheel("cuda_runtime");
  std::ofstream(runtime / "libonly_of_cuda_12.so") << "";
  EXPECT_EQ(in_wheels("libonly_of_cuda_12.so"), fs::path());
  wheel("cu13");
  EXPECT_EQ(in_wheels("libonly_of_cuda_12.so"), runtime / "libonly_of_cuda_12.so");
}

TEST_F(Wheels, AreOpenedWhereTheLoaderFindsNone) {
  std::string why;
  EXPECT_EQ(open_library("libonly_of_wheels.so.1", RTLD_NOW, &why), nullptr);
  EXPECT_NE(why.find("libonly_of_wheels.so.1: cannot open"), std::string::npos) << why;
  plant(wheel("cu13") / "libonly_of_wheels.so.1");
  void* opened = open_library("libonly_of_wheels.so.1", RTLD_NOW, &why);
  ASSERT_NE(opened, nullptr) << why;
  EXPECT_NE(dlsym(opened, "sin"), nullptr);
  dlclose(opened);
}

TEST_F(Wheels, ADamagedOneIsNamed) {
  std::ofstream(wheel("cu13") / "libonly_of_wheels.so.1") << "not a library";
  std::string why;
  EXPECT_EQ(open_library("libonly_of_wheels.so.1", RTLD_NOW, &why), nullptr);
  EXPECT_NE(why.find(prefix_.string()), std::string::npos) << why;
}

}  // namespace
}  // namespace warpstep
