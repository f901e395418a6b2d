// Linked into programs that call the real CUDA runtime themselves: without a usable device it skips
// each of their tests, with the reason; where the process that started it has seen one, each fails.
#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/core/error.h"
#include "kernels/cuda/device.h"

namespace warpstep::cuda {
namespace {

// Empty: there is a device. Checked at the first test, not when tests are only listed.
const std::string& missing_device() {
  static const std::string reason = [] {
    try {
      open_device({});
      return std::string();
    } catch (const DeviceError& error) {
      return std::string(error.what());
    }
  }();
  return reason;
}

class NeedsDevice final : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo&) override {
    if (missing_device().empty()) return;
    if (std::getenv("WARPSTEP_DEVICE_SEEN") != nullptr)
      GTEST_FAIL() << "the device was seen before: " << missing_device();
    GTEST_SKIP() << missing_device();
  }
};

const bool appended = [] {
  ::testing::UnitTest::GetInstance()->listeners().Append(new NeedsDevice);
  return true;
}();

}  // namespace
}  // namespace warpstep::cuda
