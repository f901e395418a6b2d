#!/usr/bin/env python3
"""Every file of tests, X_test.cpp, is compiled: one that no program has would pass for ever. And all of the product's code has
the project's warnings and rounds as it says: CMake drops options that a target takes from another one's links, silently.

    compiled_test.py BUILD     a configured build folder with all tests
"""
import argparse
import json
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77
INCLUDED = re.compile(r'^#include "(.+)"$', re.MULTILINE)
# Of builds without CUPTI's headers, in which what they test has taken another file's place.
OF_OTHER_BUILDS = {"profiler/sources/device_trace_none_test.cpp"}
OPTIONS = {".cu": ["-Wconversion"], "": ["-Wconversion", "-ffp-contract="]}


def commands(build):
    for entry in json.loads((build / "compile_commands.json").read_text()):
        yield pathlib.Path(entry["directory"], entry["file"]), entry["command"]


def compiled(build):
    """All files that are compiled, with those that CMake includes into one."""
    files = set()
    for file, _ in commands(build):
        files.add(file.resolve())
        if "Unity" in file.parts:
            files |= {pathlib.Path(name).resolve() for name in INCLUDED.findall(file.read_text())}
    return files


def missing(root, build):
    known = compiled(build)
    tests = [path for path in sorted(root.glob("*/**/*_test.cpp")) if path.relative_to(root).parts[0] not in ("build", ".git")]
    return [str(name) for path in tests
            if path.resolve() not in known and str(name := path.relative_to(root)) not in OF_OTHER_BUILDS]


def without_options(root, build):
    """What lacks an option, apart from the tests."""
    for file, command in commands(build):
        name = file.relative_to(build if file.is_relative_to(build) else root)
        if name.parts[0] != "tests":
            wanted = OPTIONS.get(file.suffix, OPTIONS[""])
            yield from (f"{name}: compiled without {option}" for option in wanted if option not in command)


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder).resolve()
        build = root / "build"
        (build / "Unity").mkdir(parents=True)
        (root / "engine").mkdir()
        for name in ("alone", "together", "forgotten"):
            (root / f"engine/{name}_test.cpp").write_text("")
        (build / "Unity/unity_0.cxx").write_text(f'/* CMake */\n#include "{root}/engine/together_test.cpp"\n')
        files = [str(root / "engine/alone_test.cpp"), "Unity/unity_0.cxx"]
        options = ["-Wconversion -ffp-contract=off", "-Wconversion"]
        (build / "compile_commands.json").write_text(json.dumps(
            [{"directory": str(build), "file": file, "command": f"c++ {words} -c {file}"}
             for file, words in zip(files, options, strict=True)]))
        found = [*missing(root, build), *without_options(root, build)]
    wrong = found != ["engine/forgotten_test.cpp", "Unity/unity_0.cxx: compiled without -ffp-contract="]
    print(f"{found}\n{int(wrong)} wrong")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    cache = (arguments.build / "CMakeCache.txt").read_text()
    if not any(file.suffix == ".cu" for file in compiled(arguments.build)) or re.search(r"WARPSTEP_SANITIZE:\w+=\w", cache):
        print("SKIPPED: only builds with CUDA and without sanitizers have all tests")
        return SKIPPED
    build = arguments.build.resolve()
    found = [*(f"{name}: no program of tests has it; see tests/README.md" for name in missing(ROOT, build)),
             *without_options(ROOT, build)]
    print("\n".join([*found, f"{len(found)} findings"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
