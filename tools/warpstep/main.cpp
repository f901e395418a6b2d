#include "tools/warpstep/command.h"

int main(int argc, char** argv) {
  return warpstep::tools::run_program(
      {"train", "eval", "explain", "data", "weights", "report", "compare", "export", "check-trace",
       "profile", "replay", "info"},
      {argv, static_cast<std::size_t>(argc)});
}
