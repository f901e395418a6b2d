#!/usr/bin/env python3
"""Compiles every kernel for every architecture of a release, as the release does but for the host's part: a warning or a
spill is an error.

Spills differ between architectures: some appear only on the newest. With ccache a second run takes seconds.
--ends compiles only for the oldest and the newest, a quarter of the work, as the tests do.
"""
import argparse
import json
import pathlib
import sys
import tempfile

from ptxas_budget import compile_with

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
FLAGS = ["-c", "-fatbin", "-std=c++20", "-O3", "-Xptxas=-warn-spills,-warn-lmem-usage,-Werror", "-Werror=all-warnings"]
SPILLING = """
__global__ void __launch_bounds__(1024, 2) spilling(float* x) {
  float kept[64];
  for (int i = 0; i < 64; ++i) kept[i] = x[i * 1024 + threadIdx.x];
  for (int round = 0; round < 8; ++round)
    for (int i = 0; i < 64; ++i) kept[i] += kept[(i * 7 + round) % 64] * x[round];
  for (int i = 0; i < 64; ++i) x[i * 1024 + threadIdx.x] = kept[i];
}
"""


def architectures():
    """Those of the preset release-cuda: 75-real and the like."""
    presets = json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]
    release = next(p for p in presets if p["name"] == "release-cuda")
    return release["cacheVariables"]["CMAKE_CUDA_ARCHITECTURES"].split(";")


def code_flags(names):
    flags = []
    for name in names:
        number, kind = name.split("-")
        code = {"real": f"sm_{number}", "virtual": f"compute_{number}"}[kind]
        flags += [f"--generate-code=arch=compute_{number},code={code}"]
    return flags


def compile_one(nvcc, source, folder, names):
    with tempfile.TemporaryDirectory() as kept:
        return compile_with(nvcc, [*FLAGS, *code_flags(names)], source, folder, f"{kept}/out.fatbin")


def self_test(nvcc):
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "spilling.cu").write_text(SPILLING)
        rc, said = compile_one(nvcc, "spilling.cu", folder, architectures())
    if rc == 0 or "spill" not in said.lower() and "local memory" not in said.lower():
        sys.exit(f"a planted spill is not found (exit code {rc}):\n{said}")
    print("a planted spill is found")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--ends", action="store_true", help="only the oldest and the newest")
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test(arguments.nvcc)
    sources = [path.relative_to(ROOT) for path in sorted(ROOT.glob("kernels/*/*.cuda.cu"))]
    if not sources:
        sys.exit("there are no kernels to compile")
    names = architectures()
    if arguments.ends:
        real = [name for name in names if name.endswith("-real")]
        names = [real[0], real[-1]]
    failed = 0
    for source in sources:
        rc, said = compile_one(arguments.nvcc, source, ROOT, names)
        failed += rc != 0
        print(f"{source}: {'compiled' if rc == 0 else 'FAILED'} for {' '.join(names)}")
        if rc != 0:
            print(said)
    return sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
