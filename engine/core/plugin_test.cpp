#include "engine/core/plugin.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace warpstep {
namespace {

TEST(Version, OfTheHeadersIsThatOfTheBuild) {
  EXPECT_THAT(version(), testing::StartsWith(fmt::format("{}.{}.", version_major, version_minor)));
}

TEST(PluginInterface, DiffersBetweenMinorVersions) {
  EXPECT_NE(interface_of_version(version_minor), interface_of_version(version_minor + 1));
}

}  // namespace
}  // namespace warpstep
