// Stands for a backend, which is linked to that library.
extern "C" int standin_version();

extern "C" int version_in_use() {
  return standin_version();
}
