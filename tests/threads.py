"""Finds the test programs that start threads: they must be listed in WARPSTEP_THREADED in cmake/WarpstepTargets.cmake.

    python3 tests/threads.py [release]

Runs the tests of tiers host and cpu with one OpenMP thread and a preloaded library that counts pthread_create(), and
prints the programs missing from the list; exit code 1 if there are any. Programs that system tests start do not count:
all system tests are in the list.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
COUNTER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) {
  static int (*real)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  if (!real) *(void**)&real = dlsym(RTLD_NEXT, "pthread_create");
  const char* name = program_invocation_short_name;
  const int file = open(getenv("WARPSTEP_THREADS_SEEN"), O_WRONLY | O_APPEND | O_CREAT, 0644);
  if (file >= 0 && (write(file, name, strlen(name)) < 0 || write(file, "\n", 1) < 0)) abort();
  if (file >= 0) close(file);
  return real(thread, attributes, run, argument);
}
"""


def programs_with_threads(preset):
    with tempfile.TemporaryDirectory() as folder:
        library, seen = pathlib.Path(folder) / "count.so", pathlib.Path(folder) / "seen"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, "-x", "c", "-", "-ldl"], input=COUNTER, text=True,
                       check=True)
        environment = {**os.environ, "LD_PRELOAD": str(library), "WARPSTEP_THREADS_SEEN": str(seen), "OMP_NUM_THREADS": "1"}
        subprocess.run(["ctest", "--preset", preset, "-L", "^(host|cpu)$", "-j", str(os.cpu_count())], cwd=ROOT,
                       env=environment, stdout=subprocess.DEVNULL, check=False)
        return set(seen.read_text().split())


# These request two OpenMP threads themselves; its runtime is not instrumented, so every loop would look like a race.
EXCEPT = {"signals_test", "cpu_test"}


def main():
    targets = (ROOT / "cmake/WarpstepTargets.cmake").read_text().replace("\\\n", "")
    listed = re.compile(re.search(r'WARPSTEP_THREADED "([^"]*)"', targets).group(1))
    programs = programs_with_threads(sys.argv[1] if len(sys.argv) > 1 else "release")
    missing = sorted(p for p in programs if p.endswith("_test") and p not in EXCEPT and not listed.match(p))
    for program in missing:
        print(f"{program} starts threads and is not in WARPSTEP_THREADED")
    print(f"{len(programs)} programs start threads, {len(missing)} of the tests among them are not listed")
    sys.exit(1 if missing else 0)


if __name__ == "__main__":
    main()
