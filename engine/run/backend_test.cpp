// Which modules are opened, as backends and as transports.
#include "engine/run/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "engine/core/version.h"
#include "engine/dist/communicator.h"
#include "tests/build_tree.h"

namespace warpstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::filesystem::path module(const std::string& name) {
  return testing_support::binary_dir() + "/lib/lib" + name + ".so";
}

TEST(LoadBackend, OpensAModuleOfThisBuild) {
  EXPECT_EQ(load_backend(module("warpstep_ref"))->name(), "ref");
}

// A team of so many would start before it fails.
TEST(LoadBackend, RefusesThreadsThatNoMachineHas) {
  for (const int threads : {-1, 4097, 1'000'000'000})
    EXPECT_THAT([&] { open_backend("cpu", {.threads = threads}); },
                ThrowsMessage<UsageError>(
                    fmt::format("BackendOptions::threads is {}; must be from 0 (all that this "
                                "process may run on) to 4096",
                                threads)));
}

TEST(LoadModule, RefusesOneOfAnotherBuild) {
  const std::string own = fmt::format("its engine is of Warpstep {} (commit {}); build and install",
                                      version(), commit());
  for (const auto& [name, other] :
       {std::pair("module_of_earlier", std::string("Warpstep 0.0.9, but ")),
        {"module_of_changed", fmt::format("Warpstep {}, from other headers, but ", version())},
        {"module_of_unnamed", "an earlier Warpstep, which named no version, but "}}) {
    const std::filesystem::path file = module(name);
    const auto refusal_of = [&](const std::string& what) {
      return AllOf(HasSubstr(fmt::format("{}: this {} is of {}", file.string(), what, other)),
                   HasSubstr(own), HasSubstr("remove this file"));
    };
    EXPECT_THAT([&] { load_backend(file); }, ThrowsMessage<DeviceError>(refusal_of("backend")));
    EXPECT_THAT([&] { load_transport(file); }, ThrowsMessage<RankError>(refusal_of("MPI module")));
  }
}

}  // namespace
}  // namespace warpstep
