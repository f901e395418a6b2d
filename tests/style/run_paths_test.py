#!/usr/bin/env python3
"""No program or library searches for its libraries in the current directory.

The loader reads an empty entry of a run path as the current directory, and resolves relative entries from there: a
program started in an untrusted folder would run libraries from it.
"""
import argparse
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

SKIPPED = 77
PT_LOAD, PT_DYNAMIC = 1, 2
DT_STRTAB, DT_RPATH, DT_RUNPATH = 5, 15, 29


def run_paths(content):
    """The run paths of an ELF file, one string each; None if it is not a 64-bit little-endian ELF file."""
    if content[:6] != b"\x7fELF\x02\x01":
        return None
    offset, = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    headers = [struct.unpack_from("<IIQQQQQQ", content, offset + i * size) for i in range(count)]
    dynamic = []
    for kind, _, at, _, _, bytes_, _, _ in headers:
        if kind == PT_DYNAMIC:
            dynamic = [struct.unpack_from("<QQ", content, at + i) for i in range(0, bytes_, 16)]

    def file_offset(address):
        return next(address - begin + at for kind, _, at, begin, _, bytes_, _, _ in headers
                    if kind == PT_LOAD and begin <= address < begin + bytes_)

    paths = []
    for tag, value in dynamic:
        if tag in (DT_RPATH, DT_RUNPATH):
            begin = file_offset(dict(dynamic)[DT_STRTAB]) + value
            paths.append(content[begin:content.index(b"\0", begin)].decode())
    return paths


def faults(file):
    return [f"{file}: the run path '{path}' has the entry '{entry}', which depends on the current directory"
            for path in run_paths(file.read_bytes()) or []
            for entry in path.split(":")
            if not entry.startswith(("/", "$ORIGIN", "${ORIGIN}"))]


def self_test(compiler):
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for path, count in (("$ORIGIN/../lib::", 2), (":", 2), ("lib", 1), ("$ORIGIN:..", 1), ("$ORIGIN/../lib:$ORIGIN", 0),
                            ("/usr/local/cuda/lib64", 0), (None, 0)):
            library = pathlib.Path(folder) / "a.so"
            run_path = [] if path is None else [f"-Wl,-rpath,{path}"]
            subprocess.run([compiler, "-shared", "-x", "c++", "/dev/null", "-o", library, *run_path], check=True)
            found = faults(library)
            if len(found) != count or len(run_paths(library.read_bytes())) != len(run_path):
                wrong += 1
                print(f"{path}: wanted {count} faults, found {found}")
    print(f"{wrong} wrong")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test(os.environ.get("CXX", "c++"))
    files = [f for name in ("bin", "lib") for f in sorted((arguments.build / name).glob("*"))
             if f.is_file() and not f.is_symlink() and run_paths(f.read_bytes()) is not None]
    if not files:
        print(f"SKIPPED: {arguments.build} has no built programs")
        return SKIPPED
    found = [fault for file in files for fault in faults(file)]
    print("\n".join([*found, f"{len(files)} programs and libraries, {len(found)} findings"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
