// Stands for a library that opens its parts by name, as cuDNN does, and for such a part.
#include <dlfcn.h>

#ifdef STANDIN_PART
extern "C" int standin_part() {
  return STANDIN_VERSION;
}
#else
extern "C" int standin_version() {
  void* part = dlopen("libstandin_dnn_graph.so.9", RTLD_LAZY | RTLD_LOCAL);
  const auto of_part = part ? reinterpret_cast<int (*)()>(dlsym(part, "standin_part")) : nullptr;
  return 1000 * STANDIN_VERSION + (of_part ? of_part() : 0);
}
#endif
