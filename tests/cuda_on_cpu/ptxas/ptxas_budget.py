#!/usr/bin/env python3
"""Compiles every kernel for sm_90 and compares its registers, spills and occupancy with budgets.txt.

Finds changes that cost occupancy or spill registers, without a GPU. A row of the table:

    REGISTERS BLOCK OCCUPANCY SOURCE KERNEL

the maximum of registers, the threads per block (__launch_bounds__), and the minimum percentage of a multiprocessor's
threads that are resident at once. After an intended change: ptxas_budget.py --update > new.txt && mv new.txt budgets.txt
"""
import argparse
import dataclasses
import math
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
FLAGS = ["-c", "-cubin", "-gencode", "arch=compute_90,code=sm_90", "-std=c++20", "-O3", "-Xptxas", "-v"]  # the product's
REGISTERS_UNIT = 8  # of one thread: a warp's are given out 256 at a time
DEFAULT_BLOCK = 256  # of a kernel without __launch_bounds__

PROPERTIES = re.compile(r"Function properties for (\S+)\n\s*(\d+) bytes stack frame, (\d+) bytes spill stores, "
                        r"(\d+) bytes spill loads\n.*?Used (\d+) registers([^\n]*)")


@dataclasses.dataclass(frozen=True)
class Kernel:
    registers: int
    spilled_bytes: int
    shared_bytes: int
    block: int  # 0: the source does not say


@dataclasses.dataclass(frozen=True)
class Budget:
    registers: int
    block: int
    occupancy: int


def run(command, text=None):
    ran = subprocess.run([str(c) for c in command], input=text, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        sys.exit(f"{' '.join(str(c) for c in command)} failed:\n{ran.stdout}{ran.stderr}")
    return ran.stdout + ran.stderr


def short_names(mangled):
    lines = run(["c++filt", "-p"], "\n".join(mangled)).splitlines()
    return [line.replace("(anonymous namespace)::", "").replace("warpstep::cuda::", "") for line in lines]


def compile_with(nvcc, flags, source, folder, output):
    """Exit code and messages. `source` is relative to `folder`, from which it includes; flags must have -c, without which ccache,
    where it is installed, keeps nothing."""
    cache = [shutil.which("ccache")] if shutil.which("ccache") else []
    ran = subprocess.run([str(c) for c in (*cache, nvcc, *flags, "-I", ".", source, "-o", output)], capture_output=True, text=True,
                         check=False, cwd=folder, env={**os.environ, "CCACHE_NOHASHDIR": "1"})
    return ran.returncode, ran.stdout + ran.stderr


def sections(elf):
    """Name and bytes of each section of a 64-bit ELF file."""
    table, = struct.unpack_from("<Q", elf, 0x28)
    row_bytes, count, names = struct.unpack_from("<3H", elf, 0x3a)
    rows = [struct.unpack_from("<2I4Q", elf, table + i * row_bytes) for i in range(count)]
    for name, _, _, _, begin, length in rows:
        name += rows[names][4]
        yield elf[name:elf.index(b"\0", name)].decode(), elf[begin:begin + length]


def declared_block(attributes):
    """The threads per block that a kernel's section .nv.info declares, or 0."""
    at = 0
    while at < len(attributes):
        form, attribute, value = struct.unpack_from("<2BH", attributes, at)
        at += 4
        if form != 4:  # EIFMT_SVAL: `value` is the length of what follows
            continue
        if attribute == 5:  # EIATTR_MAX_THREADS: the three extents
            return math.prod(struct.unpack_from("<3I", attributes, at))
        at += value
    return 0


def compile_kernels(nvcc, source, folder):
    """Short name -> Kernel of one source, a path in `folder`."""
    with tempfile.TemporaryDirectory() as kept:
        cubin = pathlib.Path(kept) / "out.cubin"
        failed, log = compile_with(nvcc, FLAGS, source, folder, cubin)
        if failed:
            sys.exit(f"{source} cannot be compiled:\n{log}")
        blocks = {name.removeprefix(".nv.info."): declared_block(attributes) for name, attributes in sections(cubin.read_bytes())
                  if name.startswith(".nv.info.")}
    found = {}
    for name, _, stores, loads, registers, rest in PROPERTIES.findall(log):
        if name not in blocks:  # a function that was not inlined
            continue
        shared = re.search(r"(\d+) bytes smem", rest)
        found[name] = Kernel(int(registers), int(stores) + int(loads), int(shared[1]) if shared else 0, blocks[name])
    if set(found) != set(blocks):
        sys.exit(f"{source}: ptxas says nothing of {sorted(set(blocks) - set(found))}")
    names = short_names(found)
    if len(set(names)) != len(names):
        sys.exit(f"{source}: two kernels have one name among {names}")
    return dict(zip(names, found.values()))


def occupancies(nvcc, wanted):
    """Percentages of (registers, block, shared bytes)."""
    include = pathlib.Path(nvcc).resolve().parents[1] / "include"
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "occupancy"
        run([os.environ.get("CXX", "c++"), "-std=c++20", "-isystem", include, HERE / "occupancy.cpp", "-o", program])
        lines = run([program], "".join(f"{r} {b} {s}\n" for r, b, s in wanted)).split()
    return [int(line) for line in lines]


def read_table(text):
    table = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        registers, block, occupancy, name = line.split(maxsplit=3)
        if name in table:
            sys.exit(f"line {number}: a second row of {name}")
        table[name] = Budget(int(registers), int(block), int(occupancy))
    return table


def problems(nvcc, kernels, table):
    found = [f"{name}: no row in the table; --update prints one" for name in kernels if name not in table]
    found += [f"{name}: no such kernel; take the row out of the table" for name in table if name not in kernels]
    common = [name for name in kernels if name in table]
    percentages = occupancies(nvcc, [(kernels[n].registers, table[n].block, kernels[n].shared_bytes) for n in common])
    for name, percentage in zip(common, percentages):
        kernel, budget = kernels[name], table[name]
        if kernel.spilled_bytes:
            found.append(f"{name}: spills {kernel.spilled_bytes} bytes")
        if kernel.registers > budget.registers:
            found.append(f"{name}: {kernel.registers} registers, {budget.registers} are allowed")
        if kernel.block not in (0, budget.block):
            found.append(f"{name}: blocks of {kernel.block} threads, and {budget.block} in the table")
        if percentage < budget.occupancy:
            found.append(f"{name}: occupancy {percentage} %, {budget.occupancy} % are asked for")
    return found


def rows(nvcc, kernels, table):
    blocks = [k.block or (table[n].block if n in table else DEFAULT_BLOCK) for n, k in kernels.items()]
    budgets = [-(-k.registers // REGISTERS_UNIT) * REGISTERS_UNIT for k in kernels.values()]
    wanted = [(b, block, k.shared_bytes) for b, block, k in zip(budgets, blocks, kernels.values())]
    return [f"{budget:4} {block:5} {percentage:4}  {name}" for budget, block, percentage, name in
            sorted(zip(budgets, blocks, occupancies(nvcc, wanted), kernels), key=lambda row: row[3])]


PLANTED = """
__global__ void plain(float* x) { x[threadIdx.x] *= 2; }
template <int N> __global__ void __launch_bounds__(128) bounded(float* x) { __shared__ float s[128]; s[threadIdx.x] = N;
  __syncthreads(); x[threadIdx.x] = s[127 - threadIdx.x]; }
template __global__ void bounded<3>(float*);
"""
SPILLING = """
__global__ void __launch_bounds__(1024) spilling(float* x) { float v[120];
#pragma unroll
  for (int i = 0; i < 120; ++i) v[i] = x[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 120; ++i) x[i * 1024 + threadIdx.x] = v[119 - i] * v[i / 2];
}
"""


def self_test(nvcc):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "planted.cu").write_text(PLANTED)
        (folder / "spilling.cu").write_text(SPILLING)
        good = compile_kernels(nvcc, "planted.cu", folder)
        spilling = compile_kernels(nvcc, "spilling.cu", folder)
    clean = "16 256 100 plain\n16 128 100 bounded<3>\n"
    cases = [
        (good, clean, []),
        (good, "\n".join(rows(nvcc, good, {})), []),
        (good, clean.replace("16 256", "1 256"), ["plain: ", "registers, 1 are allowed"]),
        (good, clean.replace("16 128", "16 256"), ["bounded<3>: blocks of 128 threads, and 256"]),
        (good, clean.replace("128 100", "128 101"), ["bounded<3>: occupancy 100 %, 101 %"]),
        (good, "16 256 100 plain\n", ["bounded<3>: no row"]),
        (good, clean + "16 256 100 gone\n", ["gone: no such kernel"]),
        (spilling, "64 1024 50 spilling\n", ["spilling: spills"]),
    ]
    wrong = 0
    for kernels, text, words in cases:
        found = problems(nvcc, kernels, read_table(text))
        if len(found) != (1 if words else 0) or not all(word in found[0] for word in words):
            wrong += 1
            print(f"{text!r}: wanted {words or 'nothing'}, found {found or 'nothing'}")
    print(f"{len(cases)} cases, {wrong} wrong")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--table", type=pathlib.Path, default=HERE / "budgets.txt")
    parser.add_argument("--update", action="store_true", help="print the table as the kernels are now")
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    nvcc = run(["which", arguments.nvcc]).strip()
    if arguments.self_test:
        sys.exit(self_test(nvcc))
    kernels = {}
    for source in sorted(ROOT.glob("kernels/*/*.cuda.cu")):
        place = source.relative_to(ROOT / "kernels")
        kernels |= {f"{place} {name}": kernel for name, kernel in compile_kernels(nvcc, source.relative_to(ROOT), ROOT).items()}
    if not kernels:
        sys.exit(f"no kernels below {ROOT}/kernels")
    text = arguments.table.read_text()
    if arguments.update:
        head = [line for line in text.splitlines() if line.startswith("#")]
        print("\n".join(head + rows(nvcc, kernels, read_table(text))))
        return
    found = problems(nvcc, kernels, read_table(text))
    print("\n".join(found + [f"{len(kernels)} kernels, {len(found)} over budget or without one"]))
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
