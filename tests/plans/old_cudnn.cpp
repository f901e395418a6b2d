// Preloaded, makes any cuDNN say that it is 9.14.
#include <cstddef>

extern "C" std::size_t cudnnGetVersion() {
  return 91400;
}
