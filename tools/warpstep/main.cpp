#include "tools/warpstep/command.h"
#include "tools/warpstep/process.h"

int main(int argc, char** argv) {
  using namespace warpstep::tools;
  open_standard_descriptors();
  if (!settle_stacks()) return failed;
  return run_program({"train", "eval", "predict", "sample", "runs", "models", "explain", "data",
                      "weights", "report", "compare", "try", "export", "check-trace", "profile",
                      "replay", "ranks", "info", "completion"},
                     {argv, static_cast<std::size_t>(argc)});
}
