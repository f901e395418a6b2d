#!/usr/bin/env python3
"""Instructions of x86-64 stand in files called *_x86_64.cpp, or between `#if defined(__x86_64__)` and its #else or #endif:
64-bit Arm compiles the rest (tests/install/arm.sh). The libraries read numbers without the locale of the program that uses them."""
import re

import source_tree
from source_tree import Finding

INSTRUCTIONS = re.compile(r"\b(immintrin|xmmintrin|cpuid)\.h|\b_mm\d*_\w+\(|\b_tile_\w+\(|\b__builtin_(ia32_\w+|cpu_supports)|"
                          r"\btarget\(\"|\b__m(128|256|512)")
LOCALE = re.compile(r"\b(std::)?(strto[dfl]d?|sto[dfl]d?|atof)\(")  # of floating point; "1.5" is 1 where a comma is written
LIBRARIES = ("engine/", "kernels/", "models/", "data/", "profiler/", "python/src/")
SUFFIXES = source_tree.CPP | {".inc"}
FIX = "move it to a file *_x86_64.cpp, or guard it by #if defined(__x86_64__), and add what Arm needs"


def findings_of(root, paths):
    findings = []
    for path in paths:
        if source_tree.suffix(path) not in SUFFIXES or path.startswith("tests/") or path.endswith("_x86_64.cpp"):
            continue
        guards = []  # of each open #if: whether this branch is x86-64's alone
        for number, line in enumerate(source_tree.read_lines(root, path) or [], 1):
            if re.match(r"\s*#\s*if", line):
                guards.append(bool(re.search(r"#\s*(if\s+defined\(__x86_64__\)|ifdef\s+__x86_64__)", line)))
            elif re.match(r"\s*#\s*el(se|if)", line) and guards:
                guards[-1] = bool(re.search(r"elif\s+defined\(__x86_64__\)", line))
            elif re.match(r"\s*#\s*endif", line) and guards:
                guards.pop()
            elif (found := INSTRUCTIONS.search(line.split("//")[0])) and not any(guards):
                findings.append(Finding(path, number, f"'{found[0]}' compiles for x86-64 alone", FIX))
            if path.startswith(LIBRARIES) and (found := LOCALE.search(line.split("//")[0])):
                findings.append(Finding(path, number, f"'{found[0]}' reads as the host program's locale writes",
                                        "use std::from_chars"))
    return findings


PLANTED = [
    ("kernels/a.cpp", "#include <immintrin.h>\n", "a.cpp:1: 'immintrin.h'"),
    ("kernels/b.cpp", "#if defined(__x86_64__)\n#else\nint x = _mm_getcsr();\n#endif\n", "b.cpp:3: '_mm_getcsr('"),
    ("kernels/c.inc", "#if defined(__x86_64__)\n#endif\n\n__builtin_ia32_movmskps(x);\n", "c.inc:4: '__builtin_ia32_movmskps'"),
    ("engine/d.cpp", "#if defined(OTHER)\n#pragma GCC target(\"avx2\")\n#endif\n", "d.cpp:2: 'target(\"'"),
    ("models/e.cpp", "double x = std::stod(text);\n", "e.cpp:1: 'std::stod(' reads as the host program's locale writes"),
    ("engine/f.cpp", "int a;\ndouble x = strtod(text, &end);\n", "f.cpp:2: 'strtod('"),
]
CLEAN = [
    ("kernels/a.cpp", "#if defined(__x86_64__)\n#include <immintrin.h>\n#if 1\nint x = _mm_getcsr();\n#endif\n#else\nint x;\n#endif\n"),
    ("kernels/b.cpp", "// not _mm_getcsr()\nint target(int x);\n"),
    ("tests/c.cpp", "#include <immintrin.h>\n"),
    ("tools/d.cpp", "double x = std::strtod(text, &end);\n"),
    ("models/e.cpp", "int x = std::stoll(text);  // not std::stod(text)\n"),
    ("engine/core/a_x86_64.cpp", "#include <immintrin.h>\n"),
]

if __name__ == "__main__":
    source_tree.run(findings_of, PLANTED, CLEAN)
