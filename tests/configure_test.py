#!/usr/bin/env python3
"""What CMake finds and decides: nvcc that is installed later, a compiler that is too old, settings of a parent project.

    configure_test.py --cmake CMAKE --compiler CXX
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]
options = None
# As CMake's own, whose answer stays in the cache, but any file is a compiler.
CHECK_LANGUAGE = """
macro(check_language lang)
  if(NOT DEFINED CMAKE_${lang}_COMPILER)
    if(EXISTS "$ENV{CUDACXX}")
      set(CMAKE_${lang}_COMPILER "$ENV{CUDACXX}")
    else()
      set(CMAKE_${lang}_COMPILER NOTFOUND)
    endif()
    set(CMAKE_${lang}_COMPILER "${CMAKE_${lang}_COMPILER}" CACHE FILEPATH "")
  endif()
endmacro()
"""


class Configure(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "source").mkdir()

    def write(self, name, text):
        (self.folder / "source" / name).write_text(text)

    def configure(self, *words, source="source", code=0, **variables):
        """What it prints."""
        environment = {key: value for key, value in os.environ.items() if not re.match("CMAKE_|CUDA|CXXFLAGS$|LDFLAGS$", key)}
        ran = subprocess.run([options.cmake, "-G", "Ninja", "-S", self.folder / source, "-B", self.folder / "build", *words],
                             env={**environment, **variables}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(ran.returncode, code, ran.stdout)
        return ran.stdout

    def test_nvcc_that_is_installed_later_is_found(self):
        """On PATH, and where CUDA's installers put it, which is not on PATH."""
        self.write("CheckLanguage.cmake", CHECK_LANGUAGE)
        self.write("CMakeLists.txt", f"""
cmake_minimum_required(VERSION 3.25)
project(found NONE)
set(CMAKE_MODULE_PATH "${{PROJECT_SOURCE_DIR}}")
set(CMAKE_FIND_ROOT_PATH "{self.folder}/root")  # all that CMake searches lies below this folder
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM ONLY)
include("{ROOT}/cmake/WarpstepNvcc.cmake")
warpstep_find_nvcc()
message(STATUS "nvcc: ${{CMAKE_CUDA_COMPILER}}")
""")
        here = os.environ["PATH"].replace("/usr/local/cuda/bin", "/nowhere")
        path = f"/opt/cuda/bin:{here}"
        for folder in ("opt/cuda/bin", "usr/local/cuda/bin"):
            self.assertIn("nvcc: NOTFOUND", self.configure(PATH=path))
            nvcc = self.folder / "root" / folder / "nvcc"
            nvcc.parent.mkdir(parents=True)
            nvcc.write_text("#!/bin/sh\n")
            nvcc.chmod(0o755)
            self.assertIn(f"nvcc: {nvcc}", self.configure(PATH=path))
            self.assertIn(f"nvcc: {nvcc}", self.configure(PATH=here))
            nvcc.unlink()
            (self.folder / "build" / "CMakeCache.txt").unlink()

    def test_a_compiler_that_is_too_old_is_named(self):
        if "g++" not in pathlib.Path(options.compiler).name:
            self.skipTest("the compiler is not GCC")
        compiler = self.folder / "g++"
        compiler.write_text(f'#!/bin/sh\nexec {options.compiler} -U__GNUC__ -D__GNUC__=11 "$@"\n')
        compiler.chmod(0o755)
        said = " ".join(self.configure(f"-DCMAKE_CXX_COMPILER={compiler}", source=ROOT, code=1).split())
        self.assertRegex(said, r"GCC 11[.0-9]* is too old: set CXX=g\+\+-12, .* cmake --fresh")

    def test_a_cmake_that_is_too_old_is_named(self):
        """Also by a preset, which CMake 3.22 of Ubuntu 22.04 must be able to read for that."""
        self.write("CMakeLists.txt", "set(CMAKE_VERSION 3.22.1)\n" + (ROOT / "CMakeLists.txt").read_text())
        said = " ".join(self.configure(code=1).split())
        self.assertIn("CMake 3.22.1 is too old, 3.25 or later is needed: run tools/setup", said)
        presets = json.loads((ROOT / "CMakePresets.json").read_text())
        self.assertLessEqual(presets["version"], 3)
        self.assertNotIn("cmakeMinimumRequired", presets)

    def test_a_missing_library_is_named_with_its_package(self):
        for name, package in (("fmt", "libfmt-dev"), ("PNG", "libpng-dev"), ("CLI11", "libcli11-dev")):
            said = " ".join(self.configure(f"-DCMAKE_CXX_COMPILER={options.compiler}", "-DWARPSTEP_CUDA=OFF",
                                           f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON", source=ROOT, code=1).split())
            self.assertIn(f"{name} or its headers were not found: on Debian and Ubuntu, install the package {package}. ", said)
            (self.folder / "build" / "CMakeCache.txt").unlink()

    def test_kernels_have_their_level_in_a_distributions_build(self):
        self.configure(f"-DCMAKE_CXX_COMPILER={options.compiler}", "-DWARPSTEP_CUDA=OFF", "-DCMAKE_BUILD_TYPE=None",
                       "-DCMAKE_CXX_FLAGS=-g -O2", source=ROOT)
        for command in json.loads((self.folder / "build" / "compile_commands.json").read_text()):
            if re.search(r"/warpstep_cpu(_vectors)?\.dir/", command["command"]):
                self.assertEqual(re.findall(r" -O(\S+)", command["command"])[-1], "3", command["command"])

    def test_a_parent_project_keeps_its_settings(self):
        """Two of its files have the same local names, which a compilation of both would refuse."""
        for name in ("a.cpp", "b.cpp"):
            self.write(name, "static int local_name() { return 1; }\nint %s() { return local_name(); }\n" % name[0])
        self.write("CMakeLists.txt", f"""
cmake_minimum_required(VERSION 3.25)
project(parent CXX)
add_subdirectory("{ROOT}" warpstep)
add_library(parent STATIC a.cpp b.cpp)
message(STATUS "build type '${{CMAKE_BUILD_TYPE}}', architectures '${{CMAKE_CUDA_ARCHITECTURES}}'")
get_directory_property(ours DIRECTORY "{ROOT}" DEFINITION CMAKE_BUILD_TYPE)
get_target_property(unity warpstep_engine UNITY_BUILD)
message(STATUS "Warpstep: ${{ours}}, unity ${{unity}}")
add_custom_target(release)
""")
        for _ in range(2):
            said = self.configure(f"-DCMAKE_CXX_COMPILER={options.compiler}", "-DWARPSTEP_CUDA=OFF")
            self.assertIn("build type '', architectures ''", said)
            self.assertIn("Warpstep: Release, unity ON", said)
            self.assertFalse((self.folder / "build" / "CPackConfig.cmake").exists(), "the parent has no packages")
        ran = subprocess.run([options.cmake, "--build", self.folder / "build", "--target", "parent"], capture_output=True, text=True,
                             check=False)
        self.assertEqual(ran.returncode, 0, ran.stdout)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cmake", default="cmake")
    parser.add_argument("--compiler", default="c++")
    options, words = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *words])
