#!/usr/bin/env python3
"""Which folder may include which. The order of the folders keeps backends and tools out of the engine."""
import re

import source_tree
from source_tree import Finding

# What each folder may include of this repository, as prefixes; tools, bench and tests may include all.
MAY_INCLUDE = {
    "engine": ("engine/",),
    "models": ("models/", "engine/"),
    "kernels": ("kernels/", "engine/"),
    "profiler": ("profiler/", "engine/core/"),
    "python": ("python/", "data/", "models/", "engine/"),
    "data": ("data/", "engine/core/", "engine/files/safetensors.h", "profiler/record"),
}
# The rooms of a folder, from the bottom up: a room includes itself and those before it, so the order is the path of a
# step, of a batch and of a span.
ROOMS = {
    "engine": ("core", "dist", "graph", "passes", "run", "files", "explain"),
    "data": ("io", "decode", "text", "formats", "transforms", "load", "write"),
    "profiler": ("session", "sources", "recorder", "analysis", "export"),
}
FREE = ("tools", "bench", "tests", "docs")
# Folders that may use only the standard library, the system's headers and the small libraries below.
SMALL = {"engine", "models"}
SMALL_LIBRARIES = ("fmt/", "nlohmann/")
SYSTEM = re.compile(r"(sys|linux|arpa|netinet)/\w+\.h|(cxxabi|dlfcn|fcntl|netdb|pthread|sched|signal|unistd|link|elf|poll|"
                    r"errno|stdio|stdlib|string|time|immintrin|arm_neon|cpuid|malloc|dirent)\.h")
CUDA = re.compile(r"(cuda|cublas|cudnn|cupti|curand|cusparse|cusolver|cufft|nccl|nvrtc|nvml|nvToolsExt|nvtx3|cub/|"
                  r"thrust/|cooperative_groups|mma\.h|device_launch_parameters|driver_types|vector_types)")
CUDA_PLACES = re.compile(r".*\.cuda\.[^/]*$|kernels/cuda/|profiler/sources/cupti[^/]*$|data/pinned[^/]*$|"
                         r"tests/cuda_on_cpu/")
TEST_LIBRARIES = ("gtest/", "gmock/", "benchmark/")
TEST_FILE = re.compile(r".*_test\.(cpp|cu)$")
NO_CONDITIONALS = {"engine", "models", "data"}

INCLUDE = re.compile(r"\s*#\s*include\s*([<\"])([^>\"]+)[>\"]")
CONDITIONAL = re.compile(r"\s*#\s*(if|ifdef|ifndef|elif|else|endif)\b")


def is_test(path):
    return TEST_FILE.match(path) is not None


def library_rule(path, folder, header):
    """The rule that including a library's header breaks here, with its fix, or None."""
    if CUDA.match(header):
        if not CUDA_PLACES.match(path):
            return (f"<{header}> belongs to CUDA",
                    "include it only in *.cuda.*, kernels/cuda/, profiler/sources/cupti* or data/pinned*")
    elif header.startswith(TEST_LIBRARIES):
        if folder not in FREE and not is_test(path):
            return f"<{header}> is for tests and benchmarks", "move this code to X_test.cpp, tests/ or bench/"
    elif header == "mpi.h":
        if not path.startswith("engine/dist/mpi/"):
            return "<mpi.h> belongs to the module of MPI", "include it only in engine/dist/mpi/"
    elif folder in SMALL:
        standard = "/" not in header and "." not in header
        if not (standard or SYSTEM.fullmatch(header) or header.startswith(SMALL_LIBRARIES)):
            return (f"{folder}/ may use only the standard library, fmt and nlohmann, not <{header}>",
                    "move the code that needs it to kernels/, data/, profiler/ or tools/")
    return None


def room_rule(path, folder, header):
    """The rule and fix that an include of a later room of the same folder breaks, or None."""
    rooms = ROOMS.get(folder)
    if not rooms or not header.startswith(folder + "/") or is_test(path) or "testing" in path:
        return None
    names = [place.split("/")[1] for place in (path, header)]
    for name, place in zip(names, (path, header)):
        if place.count("/") < 2 or name not in rooms:
            return (f"{place} is in no room of {folder}/",
                    f"move it to one of {', '.join(rooms)}, or add the room to ROOMS in its order")
    if rooms.index(names[1]) > rooms.index(names[0]):
        return (f'{folder}/{names[0]}/ comes before {folder}/{names[1]}/ and may not include "{header}"',
                "move the shared part to the earlier room, or pass it in from the caller")
    return None


def own_rule(path, folder, header):
    """The rule that including a header of this repository breaks here, with its fix, or None."""
    top = header.split("/")[0]
    if top not in MAY_INCLUDE and top not in FREE:
        return (f'"{header}" does not start at the root of the repository',
                'write "FOLDER/FILE.h" from the root, and <...> for libraries')
    if broken := room_rule(path, folder, header):
        return broken
    allowed = MAY_INCLUDE.get(folder)
    helper = is_test(path) and header.startswith("tests/")  # helpers that several test files share
    if allowed is None or helper or header.startswith(allowed):
        return None
    return (f'{folder}/ may include {", ".join(allowed)} only, not "{header}"',
            "move the shared part to a lower folder, or pass it in from the caller")


def findings_of(root, paths):
    findings = []
    for path in paths:
        folder = path.split("/")[0]
        if source_tree.suffix(path) not in source_tree.CPP or folder not in MAY_INCLUDE and folder not in FREE:
            continue
        for number, line in enumerate(source_tree.read_lines(root, path), 1):
            if folder in NO_CONDITIONALS and CONDITIONAL.match(line):
                findings.append(Finding(path, number, f"no preprocessor conditional in {folder}/",
                                        "the linker chooses the backend; make it two files or a run-time choice"))
            include = INCLUDE.match(line)
            if not include or folder == "docs":
                continue
            quoted, header = include[1] == '"', include[2]
            broken = own_rule(path, folder, header) if quoted else library_rule(path, folder, header)
            if broken:
                findings.append(Finding(path, number, *broken))
    return findings


PLANTED = [
    ("engine/a.cpp", '#include "kernels/conv/conv.h"\n', "engine/ may include engine/ only"),
    ("engine/a_test.cpp", '#include "models/zoo.h"\n', "engine/ may include"),
    ("engine/a.cpp", '#include "tests/largest_allocation.h"\n', "engine/ may include"),
    ("engine/a.cpp", "#include <png.h>\n", "may use only the standard library"),
    ("engine/a.cpp", "#include <CLI/CLI.hpp>\n", "may use only the standard library"),
    ("engine/a.h", "#include <gtest/gtest.h>\n", "for tests and benchmarks"),
    ("engine/a.cpp", "  #  ifdef WARPSTEP_CUDA\n", "no preprocessor conditional in engine/"),
    ("models/a.cpp", "#if 1\n", "no preprocessor conditional in models/"),
    ("data/a.cpp", "x\n#else\n", "a.cpp:2: no preprocessor conditional in data/"),
    ("models/a.cpp", '#include "data/load/loader.h"\n', "models/ may include"),
    ("data/a.cpp", '#include "engine/graph/graph.h"\n', "data/ may include"),
    ("python/a.cpp", '#include "tools/warpstep/options.h"\n', "python/ may include"),
    ("data/a.cpp", '#include "profiler/analysis/report.h"\n', "data/ may include"),
    ("profiler/a.cpp", '#include "engine/graph/graph.h"\n', "profiler/ may include"),
    ("kernels/conv/a.cpp", '#include "data/load/loader.h"\n', "kernels/ may include"),
    ("kernels/conv/conv.cpu.cpp", "#include <cudnn.h>\n", "belongs to CUDA"),
    ("data/load/loader.cpp", "#include <cuda_runtime.h>\n", "belongs to CUDA"),
    ("engine/core/a.cpp", '#include "error.h"\n', "does not start at the root"),
    ("engine/graph/ops/a.cpp", '#include "engine/passes/fuse.h"\n', "engine/graph/ comes before engine/passes/"),
    ("data/io/a.h", '#include "data/load/loader.h"\n', "data/io/ comes before data/load/"),
    ("profiler/analysis/a.cpp", '#include "profiler/export/html.h"\n', "comes before profiler/export/"),
    ("engine/a.cpp", '#include "engine/core/error.h"\n', "engine/a.cpp is in no room of engine/"),
    ("engine/dist/a.cpp", "#include <mpi.h>\n", "<mpi.h> belongs to the module of MPI"),
    ("engine/run/a.cpp", '#include "engine/error.h"\n', "engine/error.h is in no room"),
]
CLEAN = [
    ("engine/core/a.cpp", '#pragma once\n#include <dlfcn.h>\n#include <sys/mman.h>\n#include <fmt/format.h>\n'
                     '#include <vector>\n#include <nlohmann/json.hpp>\n#include "engine/core/error.h"\n'),
    ("engine/run/a.cpp", '#include "engine/run/b.h"\n#include "engine/passes/fuse.h"\n'),
    ("engine/graph/a_test.cpp", '#include <gtest/gtest.h>\n#include "engine/run/program.h"\n'),
    ("engine/b_test.cpp", '#include "tests/largest_allocation.h"\n'),
    ("models/a.cpp", '#include "engine/graph/layers.h"\n// if only #ifdef were allowed\n'),
    ("data/pinned.cpp", '#include <cuda_runtime_api.h>\n#include "profiler/record.h"\n#include "profiler/record/span.h"\n'),
    ("data/decode/png.cpp", "#include <png.h>\n#include <zlib.h>\n"),
    ("kernels/conv/conv.cpu.cpp", '#include <omp.h>\n#include "engine/graph/ops/conv.h"\n'),
    ("kernels/conv/conv.cuda.cu", "#include <cuda_fp16.h>\n#if __CUDA_ARCH__\n#endif\n"),
    ("profiler/sources/cupti.cpp", "#include <cupti.h>\n"),
    ("bench/a.cpp", '#include <benchmark/benchmark.h>\n#include "kernels/conv/conv.cases.h"\n'),
]

if __name__ == "__main__":
    source_tree.run(findings_of, PLANTED, CLEAN)
