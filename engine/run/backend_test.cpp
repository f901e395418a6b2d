// Which modules are opened as backends.
#include "engine/run/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "engine/core/version.h"
#include "tests/build_tree.h"

namespace warpstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::filesystem::path module(const std::string& name) {
  return testing_support::binary_dir() + "/lib/lib" + name + ".so";
}

TEST(LoadBackend, OpensAModuleOfThisBuildAlone) {
  EXPECT_EQ(load_backend(module("warpstep_ref"))->name(), "ref");
  const std::string own = fmt::format("its engine is of Warpstep {} (commit {}); build and install",
                                      version(), commit());
  for (const auto& [name, other] :
       {std::pair("backend_of_earlier", std::string("this backend is of Warpstep 0.0.9, but ")),
        {"backend_of_changed",
         fmt::format("this backend is of Warpstep {}, from other headers, but ", version())},
        {"backend_of_unnamed", "this backend is of an earlier Warpstep, which named no version"}})
    EXPECT_THAT([&] { load_backend(module(name)); },
                ThrowsMessage<DeviceError>(AllOf(HasSubstr(module(name).string() + ": " + other),
                                                 HasSubstr(own), HasSubstr("remove this file"))));
}

}  // namespace
}  // namespace warpstep
