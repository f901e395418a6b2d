// Which modules are opened as transports.
#include "engine/dist/transport_build.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/core/version.h"
#include "tests/build_tree.h"

namespace warpstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(LoadTransport, OpensAModuleOfThisBuildAlone) {
  const std::string own = fmt::format("its engine is of Warpstep {} (commit {}); build and install",
                                      version(), commit());
  for (const auto& [name, other] :
       {std::pair("earlier", std::string("this MPI module is of Warpstep 0.0.9, but ")),
        {"changed",
         fmt::format("this MPI module is of Warpstep {}, from other headers, but ", version())},
        {"unnamed", "this MPI module is of an earlier Warpstep, which named no version"}}) {
    const std::string path =
        fmt::format("{}/lib/libtransport_of_{}.so", testing_support::binary_dir(), name);
    EXPECT_THAT([&] { load_transport(path); },
                ThrowsMessage<RankError>(AllOf(HasSubstr(path + ": " + other), HasSubstr(own),
                                               HasSubstr("remove this file"))));
  }
}

}  // namespace
}  // namespace warpstep
