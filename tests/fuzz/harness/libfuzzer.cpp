// The same targets under libFuzzer. WARPSTEP_FUZZ_TARGET names the target; its seeds are written to
// the first folder of the command line, which is the corpus.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "data/io/file.h"
#include "tests/fuzz/harness/target.h"

namespace {

const warpstep::fuzz::Target* chosen = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* count, char*** values) {
  try {
    const char* name = std::getenv("WARPSTEP_FUZZ_TARGET");
    chosen = &warpstep::fuzz::target(name != nullptr ? name : "");
    for (int i = 1; i < *count; ++i) {
      const std::string folder = (*values)[i];
      if (!warpstep::data::is_folder(folder)) continue;
      int seed = 0;
      for (const auto& bytes : warpstep::fuzz::corpus(*chosen)) {
        const std::string path = folder + "/seed-" + std::to_string(seed++);
        if (!warpstep::data::exists(path)) warpstep::data::write_quickly(path, bytes);
      }
      break;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fuzz: %s\n", error.what());
    std::exit(2);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  warpstep::fuzz::run_once(*chosen, {data, bytes});
  return 0;
}
