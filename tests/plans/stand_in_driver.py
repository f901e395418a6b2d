"""Writes the source of a stand-in for the NVIDIA driver's library, with every function of the toolkit's stub of it.

    python3 tests/plans/stand_in_driver.py /usr/local/cuda/lib64/stubs/libcuda.so stand_in_driver.cpp

cuDNN's engines for attention are compiled when a plan is finalised, and loaded through the driver: without its library the
heuristics propose nothing. Planning for an assumed device executes nothing, so that functions which say that all is well,
and hand out handles that nobody reads, are enough.
"""
import argparse
import pathlib
import subprocess

HANDLES = {"cuLibraryLoadData", "cuLibraryGetKernel", "cuLibraryGetModule", "cuKernelGetFunction", "cuModuleLoadData",
           "cuModuleLoadDataEx", "cuModuleGetFunction", "cuModuleLoadFatBinary", "cuCtxGetCurrent", "cuDevicePrimaryCtxRetain",
           "cuCtxCreate_v2", "cuCtxCreate_v4"}  # their first argument receives one
OWN = """
int cuDriverGetVersion(int* version) { *version = 13000; return 0; }
int cuDeviceGetCount(int* count) { *count = 0; return 0; }
int cuGetErrorString(int, const char** text) { *text = "an error of the stand-in"; return 0; }
int cuGetErrorName(int, const char** name) { *name = "STAND_IN"; return 0; }
int cuGetExportTable(const void** table, const void*) { *table = nullptr; return 999; }
int cuGetProcAddress_v2(const char* name, void** function, int, unsigned long long, int* found) {
  *function = nullptr;
  void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  for (const char* version : {"_v4", "_v3", "_v2", ""})
    if (!*function && library) *function = dlsym(library, (std::string(name) + version).c_str());
  if (found) *found = *function ? 0 : 1;
  return *function ? 0 : 500;
}
int cuGetProcAddress(const char* name, void** function, int version, unsigned long long flags) {
  return cuGetProcAddress_v2(name, function, version, flags, nullptr);
}
"""


def functions(stub):
    listing = subprocess.run(["nm", "-D", "--defined-only", str(stub)], check=True, capture_output=True, text=True).stdout
    fields = [line.split() for line in listing.splitlines()]
    return sorted({name for *_, kind, name in fields if kind in "TW"})


def source(names):
    lines = ["#include <dlfcn.h>", "#include <string>", 'extern "C" {']
    for name in names:
        if f"int {name}(" in OWN:
            continue
        if name in HANDLES:
            lines.append(f"int {name}(void** handle) {{ if (handle) *handle = reinterpret_cast<void*>(0x1000); return 0; }}")
        else:
            lines.append(f"int {name}() {{ return 0; }}")
    return "\n".join([*lines, OWN, "}", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stub", type=pathlib.Path)
    parser.add_argument("source", type=pathlib.Path)
    options = parser.parse_args()
    options.source.write_text(source(functions(options.stub)))


if __name__ == "__main__":
    main()
