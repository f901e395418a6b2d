// planted FAULT: runs one planted fault; a sanitizer ends the program. Exit code 0: nothing was
// found.
#include <cstdio>
#include <exception>
#include <vector>

#include "tests/cuda_on_cpu/planted.h"

int main(int count, char** arguments) {
  if (count != 2) {
    std::fputs("usage: planted FAULT\n", stderr);
    return 2;
  }
  try {
    const std::vector<float> in(2 * warpstep::cuda::planted_threads, 1.0F);
    warpstep::cuda::reverse_with(arguments[1], in);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
