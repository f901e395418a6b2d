"""Checks in the CPU backend's machine code that the tiles of its products keep their sums in registers.

    python3 tests/registers_test.py build/release/lib/libwarpstep_cpu.so
    python3 tests/registers_test.py --self-test

An array of vectors that the compiler leaves in memory costs a load and a store per multiply-add: six times the time. The
innermost loop of each tile may therefore not touch the stack.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

TILES = re.compile(r"<.*(avx2|avx512|bf16)::(whole_tile_of|product_tile|pixels_of|taps_tile|dot_tile_of|amx_tile_of)<.*>:$")
PRODUCT = re.compile(r"vfmadd|vdpbf16ps|tdpbf16ps")
EXPECTED = ("avx2::whole_tile_of", "avx512::whole_tile_of", "bf16::dot_tile_of", "bf16::amx_tile_of")
FEWEST_TILES = 100  # of all instruction sets and sizes: fewer means that the names above changed
LEAST_PRODUCTS = 4  # in a loop that is judged


def functions(disassembly):
    """Name -> [(address, instruction)]."""
    found, name = {}, None
    for line in disassembly.splitlines():
        if re.match(r"^[0-9a-f]+ <", line):
            name = line.split(" ", 1)[1] if TILES.search(line) else None
            if name:
                found[name] = []
        elif name and (parts := re.match(r"^\s*([0-9a-f]+):\s+(.*)$", line)):
            found[name].append((int(parts[1], 16), parts[2]))
    return found


def innermost_loops(code):
    """The instructions between the target of each backward jump and the jump, without those around other loops."""
    loops = []
    for address, text in code:
        jump = re.match(r"j[a-z]+\s+([0-9a-f]+)", text)
        if jump and code[0][0] <= int(jump[1], 16) <= address:
            loops.append((int(jump[1], 16), address))
    inner = [loop for loop in loops if not any(loop != other and loop[0] <= other[0] and other[1] <= loop[1] for other in loops)]
    return [[text for address, text in code if begin <= address <= end] for begin, end in inner]


def spills(name, code):
    """Problems of one tile: stack operands in a loop of products, or no such loop."""
    judged = [loop for loop in innermost_loops(code) if sum(bool(PRODUCT.search(text)) for text in loop) >= LEAST_PRODUCTS]
    size = [int(n) for n in re.findall(r"<(\d+), (\d+)", name)[-1]]
    if not judged and size[0] * size[1] >= LEAST_PRODUCTS:
        return [f"{name} no loop of products found"]
    frame = any(re.fullmatch(r"mov\s+%rsp,%rbp", text) for _, text in code)  # otherwise rbp is any pointer
    stack = r"\(%r[sb]p" if frame else r"\(%rsp"
    return [f"{name} touches the stack in its loop: {text}" for loop in judged for text in loop
            if re.search(stack, text) and re.search(r"%[xyz]mm", text)]


def problems(disassembly):
    found = functions(disassembly)
    if len(found) < FEWEST_TILES:
        return [f"only {len(found)} tiles found, of at least {FEWEST_TILES}: have their names changed?"]
    missing = [f"no {kind} found: has its name changed?" for kind in EXPECTED if not any(kind in name for name in found)]
    return missing + [problem for name, code in found.items() for problem in spills(name, code)]


def tile(loop, rows=4, kind="avx2::whole_tile_of"):
    lines = ["10: vxorps %xmm0,%xmm0,%xmm0", *[f"{20 + i:x}: {text}" for i, text in enumerate(loop)], "60: jne 14", "70: ret"]
    return f"0000 <ns::{kind}<{rows}, 2>(Tile const&)>:\n" + "\n".join(lines) + "\n"


def self_test():
    """Each planted fault must be found, and the clean tiles must pass."""
    product = "vfmadd231ps %ymm1,%ymm2,%ymm3"
    dots = "vdpbf16ps %zmm1,%zmm2,%zmm3"
    others = (tile([product] * 4, kind="avx512::whole_tile_of") + tile([dots] * 4, kind="bf16::dot_tile_of") +
              tile(["tdpbf16ps %tmm6,%tmm4,%tmm0"] * 4, rows=2, kind="bf16::amx_tile_of"))
    clean = "".join(tile([product] * 4, rows=i) for i in range(FEWEST_TILES)) + others
    cases = [(clean, False),
             (clean + tile([*[product] * 4, "vmovaps %ymm3,0x20(%rsp)"], rows=777), True),
             (clean + tile(["nop"], rows=777), True),
             (clean + tile([*[dots] * 4, "vmovaps %zmm3,0x40(%rsp)"], rows=777, kind="bf16::dot_tile_of"), True),
             (clean.replace("amx_tile_of", "renamed"), True),
             (tile([product] * 4), True)]
    for text, faulty in cases:
        if bool(problems(text)) != faulty:
            sys.exit(f"self-test: expected {'a problem' if faulty else 'none'}, found {problems(text)[:3]}")
    print("self-test passed")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", nargs="?", type=pathlib.Path)
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        self_test()
        return
    if not options.library or not options.library.is_file():
        parser.error("name the CPU backend's library, as build/release/lib/libwarpstep_cpu.so")
    with tempfile.TemporaryFile("w+") as text:
        subprocess.run(["objdump", "-dC", "--no-show-raw-insn", str(options.library)], stdout=text, check=True)
        text.seek(0)
        found = problems(text.read())
    print("\n".join(found[:20]))
    if found:
        sys.exit(f"{len(found)} problem{'' if len(found) == 1 else 's'} in the tiles of products")


if __name__ == "__main__":
    main()
