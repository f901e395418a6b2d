#!/usr/bin/env python3
"""clang-format does not change any C++ file. Exit code 77 (skipped) if the required version is not installed."""
import re
import shutil
import subprocess
import sys

import source_tree
from source_tree import Finding

VERSION = 14  # other versions format some constructs differently; this is Debian 12's
SKIPPED = 77


def formatter():
    for name in (f"clang-format-{VERSION}", "clang-format"):
        path = shutil.which(name)
        if path and re.search(rf"version {VERSION}\.", subprocess.run([path, "--version"], capture_output=True,
                                                                      text=True, check=True).stdout):
            return path
    print(f"SKIPPED: clang-format {VERSION} is not installed; other versions format some code differently")
    sys.exit(SKIPPED)


def findings_of(root, paths):
    sources = [p for p in paths if source_tree.suffix(p) in source_tree.CPP]
    if not sources:
        return []
    style = source_tree.pathlib.Path(__file__).resolve().parents[2] / ".clang-format"
    ran = subprocess.run([formatter(), "--dry-run", f"--style=file:{style}", *sources], cwd=root,
                         capture_output=True, text=True, check=False)
    places = re.findall(r"^(.+?):(\d+):\d+: warning: code should be clang-formatted", ran.stderr, re.MULTILINE)
    if ran.returncode != 0 and not places:
        sys.exit(f"clang-format failed: {ran.stderr}")
    first = {path: line for path, line in reversed(places)}
    return [Finding(path, int(line), "is not formatted as .clang-format says", f"clang-format -i {path}")
            for path, line in sorted(first.items())]


PLANTED = [("engine/a.cpp", "int  x ;\nint  y;\n", "a.cpp:1: is not formatted")]
CLEAN = [("engine/a.cpp", "int x;\n"), ("README.md", "int  x ;\n")]

if __name__ == "__main__":
    source_tree.run(findings_of, PLANTED, CLEAN)
