#!/usr/bin/env python3
"""Builds the wheel, installs it into a virtual environment of its own and runs the other tests of this folder there.

    wheel.py SOURCE_DIR BUILD_DIR [--compiler CXX]

BUILD_DIR keeps the environment and the build for the next run. Exit code 77 (skipped) where packages cannot be downloaded or
Python cannot compile modules.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tarfile

SKIPPED = 77
PACKAGES = ["pip>=22.1", "scikit-build-core>=0.10", "nanobind>=2.4", "ninja", "numpy", "pandas", "pytest"]


def skip(why):
    print(f"SKIPPED: {why}")
    sys.exit(SKIPPED)


def run(*command, **options):
    print("+", *command, flush=True)
    return subprocess.run([str(part) for part in command], check=False, **options).returncode


def environment(folder):
    """The Python of an environment that has the packages."""
    python = folder / "bin" / "python"
    if not python.exists() or run(python, "-m", "pip", "--version") != 0:
        if run(sys.executable, "-m", "venv", "--clear", folder) != 0:
            shutil.rmtree(folder, ignore_errors=True)
            skip("python3 -m venv does not work here (Debian: apt-get install python3-venv)")
    known = ["--no-index"], ["--retries", "1", "--timeout", "10"]  # installed ones need no network
    if all(run(python, "-m", "pip", "install", "-q", *options, *PACKAGES) != 0 for options in known):
        skip("PyPI is not reachable, and the packages that build and test the wheel are not installed")
    return python


def expected_tag():
    """One wheel for all versions from 3.12 on, where nanobind's stable interface begins; else one for this version."""
    major, minor = sys.version_info[:2]
    stable = (major, minor) >= (3, 12) and not sysconfig.get_config_var("Py_GIL_DISABLED")
    return "-cp312-abi3-" if stable else f"-cp{major}{minor}-cp{major}{minor}"


def missing_in_archive(python, source, folder):
    """The files of the tree that the source archive lacks; those that `pip install` compiles must be there."""
    shutil.rmtree(folder, ignore_errors=True)
    make = "import sys, scikit_build_core.build as build; build.build_sdist(sys.argv[1])"
    if run(python, "-c", make, folder, cwd=source) != 0:
        return ["pyproject.toml: no archive was made"]
    archive, = folder.glob("warpstep-*.tar.gz")
    with tarfile.open(archive) as files:
        packed = {name.partition("/")[2] for name in files.getnames()}
    sys.path.insert(0, str(source / "tests/style"))
    import source_tree
    return sorted(set(source_tree.files(source)) - packed)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--compiler", default="c++", help="of C++")
    options = parser.parse_args()
    source, work = options.source.resolve(), options.build.resolve() / "python-wheel"
    if not (pathlib.Path(sysconfig.get_path("include")) / "Python.h").exists():
        skip("Python.h is not installed (Debian: apt-get install python3-dev)")
    work.mkdir(parents=True, exist_ok=True)
    os.environ["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    os.environ["CXX"] = options.compiler  # of a test's plugin
    os.environ.pop("PYTHONPATH", None)
    python = environment(work / "venv")
    shutil.rmtree(work / "wheels", ignore_errors=True)
    settings = [f"build-dir={options.build.resolve()}", f"cmake.define.CMAKE_CXX_COMPILER={options.compiler}",
                "cmake.define.WARPSTEP_WERROR=ON", "cmake.define.WARPSTEP_CUDA=OFF"]
    if run(python, "-m", "pip", "wheel", "-v", "--no-build-isolation", "--no-deps", "-w", work / "wheels",
           *(part for setting in settings for part in ("--config-settings", setting)), source) != 0:
        return 1
    wheel, = (work / "wheels").glob("warpstep-*.whl")
    if expected_tag() not in wheel.name:
        print(f"{wheel.name}: should be a wheel for {expected_tag()}")
        return 1
    if run(python, "-m", "pip", "install", "-q", "--force-reinstall", "--no-deps", wheel) != 0:
        return 1
    lacking = missing_in_archive(python, source, work / "sdist")
    if lacking:
        print("the source archive lacks", *lacking)
        return 1
    # From elsewhere, so that the installed package is what is imported.
    tests = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", source / "python" / "tests", cwd=work)
    page = run(python, "-B", source / "tests" / "pages.py", "--build", options.build.resolve(), "docs/python.md", cwd=work)
    return tests or page


if __name__ == "__main__":
    sys.exit(main())
