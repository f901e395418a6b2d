#include <gtest/gtest.h>

#include "engine/core/record.h"
#include "profiler/sources/cupti_api.h"
#include "profiler/sources/cupti_testing.h"

namespace warpstep::profiler {
namespace {

using testing::FakeCupti;

TEST(CuptiDevices, AreDescribed) {
  FakeCupti cupti;
  const std::vector<Device> devices = query_devices(cupti.api());
  ASSERT_EQ(devices.size(), 1U);
  EXPECT_EQ(record::names()[devices[0].name].text, "NVIDIA H200");
  EXPECT_EQ(devices[0].total_memory, 150'754'820'096U);
  EXPECT_EQ(devices[0].multiprocessors,
            static_cast<std::uint32_t>(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  EXPECT_EQ(devices[0].reserved_shared_per_block, 0U);  // the driver does not know it
  cupti.faults.no_device = true;
  EXPECT_TRUE(query_devices(cupti.api()).empty());
}

}  // namespace
}  // namespace warpstep::profiler
