#!/usr/bin/env python3
"""Limits on file and line length: a file above its limit needs a better structure, not a higher limit."""
import source_tree
from source_tree import Finding

LINES = 600
MODEL_LINES = 100
README_LINES = 80
CPP_COLUMNS = 100
CODE = source_tree.CPP | {".py", ".sh", ".cmake", ".in"}


def is_code(path):
    name = path.rsplit("/", 1)[-1]
    script = path.startswith(("tools/", ".ci/")) and "." not in name
    return source_tree.suffix(path) in CODE or name == "CMakeLists.txt" or script


def line_cap(path):
    if path.rsplit("/", 1)[-1] == "README.md":
        return README_LINES, "shorten it, or move a part to docs/"
    if not is_code(path):
        return None
    if path.startswith("models/"):
        return MODEL_LINES, "a model file lists its layers; move other code to engine/graph/layers.h"
    return LINES, "split it into two concepts"


def findings_of(root, paths):
    findings = []
    for path in paths:
        cap = line_cap(path)
        lines = source_tree.read_lines(root, path) if cap else None
        if lines is None:
            continue
        if len(lines) > cap[0]:
            findings.append(Finding(path, cap[0] + 1, f"{len(lines)} lines, at most {cap[0]} are allowed", cap[1]))
        if source_tree.suffix(path) in source_tree.CPP:
            findings += [Finding(path, number, f"{len(line)} columns, at most {CPP_COLUMNS} are allowed",
                                 "run clang-format; split strings by hand")
                         for number, line in enumerate(lines, 1) if len(line) > CPP_COLUMNS]
    return findings


PLANTED = [
    ("engine/a.cpp", "x\n" * 601, "601 lines, at most 600"),
    ("kernels/conv/conv.cuda.cu", "x\n" * 601, "601 lines, at most 600"),
    ("tools/check", "x\n" * 601, "601 lines, at most 600"),
    ("models/mlp.cpp", "x\n" * 101, "101 lines, at most 100"),
    ("data/README.md", "x\n" * 81, "81 lines, at most 80"),
    ("engine/a.h", "\n" + "x" * 101 + "\n", "a.h:2: 101 columns"),
]
CLEAN = [
    ("engine/a.cpp", "x" * 100 + "\n" + "x\n" * 599),
    ("models/mlp.cpp", "x\n" * 100),
    ("data/README.md", "x" * 200 + "\n" * 80),
    ("LICENSE", "x\n" * 400),
    ("tests/golden/a.json", "x\n" * 1000),
]

if __name__ == "__main__":
    source_tree.run(findings_of, PLANTED, CLEAN)
