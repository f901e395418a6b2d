// Compiled for each program that tests a backend; its tests are compiled once for all of them.
#include <cstdlib>
#include <string>

namespace warpstep::testing_support {

std::string tested_backend();

std::string tested_backend() {
  const char* wanted = std::getenv("WARPSTEP_TESTED_BACKEND");
  return wanted && *wanted ? wanted : WARPSTEP_TESTED_BACKEND;
}

}  // namespace warpstep::testing_support
