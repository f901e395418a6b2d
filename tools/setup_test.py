#!/usr/bin/env python3
"""tools/setup and environment.sh with its count of compilers, in a copy of this folder, with stand-ins for the programs that they call."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE / "gpu"))
import cores  # noqa: E402

# What the scripts may use of this machine.
TOOLS = ("bash", "sh", "dirname", "sed", "sort", "head", "tail", "cat", "mkdir", "rm", "id", "env", "sleep", "grep", "true", "nproc", "python3")


class Setup(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root, self.bin = pathlib.Path(folder.name) / "root", pathlib.Path(folder.name) / "bin"
        (self.root / "tools").mkdir(parents=True)
        self.bin.mkdir()
        (self.root / "tools/gpu").mkdir()
        for name in ("setup", "environment.sh", "gpu/cores.py"):
            shutil.copy2(HERE / name, self.root / "tools" / name)
        for name in TOOLS:
            (self.bin / name).symlink_to(sys.executable if name == "python3" else shutil.which(name))
        self.program("g++", "echo 12.2.0")
        self.program("cmake", "echo cmake version 3.25.1")

    def program(self, name, text, folder=None):
        path = (folder or self.bin) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def run_it(self, command, **variables):
        return subprocess.run(["bash", "-c", command], cwd=self.root, env={"PATH": str(self.bin), **variables},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)

    def missing(self, *words, **variables):
        """The packages that setup misses where nothing can install them."""
        ran = self.run_it(" ".join(["tools/setup", *words]), **variables)
        return ran.stderr.partition("apt-get was not found: ")[2].split("\n")[0].split()

    def test_packages_of_several_architectures_are_installed(self):
        """dpkg-query prints a line for each."""
        if not shutil.which("dpkg-query"):
            self.skipTest("no dpkg-query")
        (self.bin / "dpkg-query").symlink_to(shutil.which("dpkg-query"))
        (self.bin / "dpkg").symlink_to(shutil.which("dpkg"))
        admin = self.root.with_name("dpkg")
        (admin / "info").mkdir(parents=True)
        (admin / "status").touch()
        native = self.run_it("dpkg --print-architecture").stdout.strip()
        (admin / "arch").write_text(f"{native}\ns390x\n")
        variables = {"DPKG_ADMINDIR": str(admin)}
        packages = self.missing(**variables)
        self.assertIn("libfmt-dev", packages)

        def install(status, *architectures):
            (admin / "status").write_text("".join(
                f"Package: {package}\nStatus: install ok {status}\nArchitecture: {architecture}\nMulti-Arch: same\n"
                "Version: 1\nMaintainer: x\nDescription: x\n\n" for package in packages for architecture in architectures))

        for architectures in ((native,), (native, "s390x")):
            install("installed", *architectures)
            self.assertEqual(self.missing(**variables), [])
        install("unpacked", native)
        self.assertEqual(self.missing(**variables), packages)

    def test_a_browser_that_cannot_be_installed_is_not_missed(self):
        self.program("dpkg-query", "echo installed")
        for name, text in (("apt-cache", "echo Package: chromium"), ("apt-get", "exit 1"), ("sudo", '[ "$1" != -n ] || shift; exec "$@"'),
                           ("sleep", "")):
            self.program(name, text)
        ran = self.run_it("tools/setup --check")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn("apt-get failed to install: chromium", ran.stderr)
        self.assertEqual(self.run_it("tools/setup").stderr, "")  # what a build needs
        for text in ("exit 100", "exit 0"):  # no such package; on Ubuntu, a name that a package of a snap provides
            self.program("apt-cache", text)
            self.assertEqual(self.run_it("tools/setup --check").stderr, "")
        self.program("apt-cache", "echo Package: chromium")
        self.program("chromium", "")
        self.assertEqual(self.run_it("tools/setup --check").stderr, "")

    def test_a_clang_tidy_that_the_system_lacks(self):
        for name, text in (("apt-cache", "exit 100"), ("apt-get", ""), ("sudo", '[ "$1" != -n ] || shift; exec "$@"')):
            self.program(name, text)
        ran = self.run_it("tools/setup --tidy", WARPSTEP_SKIP_SETUP="1")
        self.assertEqual(ran.returncode, 1)
        self.assertIn("not in this system's package lists: clang-tidy-19", ran.stderr)
        self.assertIn("Debian 12 and Ubuntu 24.04 or later have it", ran.stderr)
        self.assertNotIn("Ubuntu 22.04 or later", ran.stderr)

    def cmake_from_pypi(self):
        """Stand-ins for Python's venv, which keeps what is there without --clear, and for pip in it. Returns the venv."""
        venv, made = self.root / ".cache" / "cmake", self.root.with_name("made")
        self.program("cmake", "echo cmake version 3.31.6", made)
        self.program("pip", f"cp {made}/cmake {venv}/bin/cmake", made)
        self.program("python3", f"""[ "$2" = venv ] || exit 0
case $* in *--clear*) rm -rf {venv} ;; esac
mkdir -p {venv}/bin; [ -e {venv}/bin/pip ] || cp {made}/pip {venv}/bin/pip""")
        (self.bin / "cp").symlink_to(shutil.which("cp"))
        return venv

    def assert_installs_cmake(self, said):
        ran = self.run_it("tools/setup", WARPSTEP_SKIP_SETUP="1")
        self.assertEqual((ran.returncode, said in ran.stderr), (0, True), ran)
        self.assertIn("3.31.6", self.run_it("source tools/environment.sh; cmake --version").stdout)
        ran = self.run_it("tools/setup", WARPSTEP_SKIP_SETUP="1")
        self.assertEqual((ran.returncode, ran.stderr), (0, ""), "again")

    def test_a_cmake_that_is_missing_or_old_is_installed(self):
        venv = self.cmake_from_pypi()
        (self.bin / "cmake").unlink()
        self.assert_installs_cmake("CMake is missing, 3.25 is needed")
        shutil.rmtree(venv)
        self.program("cmake", "echo cmake version 3.22.1")
        self.assert_installs_cmake("CMake is 3.22.1, 3.25 is needed")

    def test_a_checkout_that_was_moved(self):
        """The programs of its venv name a Python in the old folder."""
        venv = self.cmake_from_pypi()
        (venv / "bin").mkdir(parents=True)
        for name in ("cmake", "pip"):
            (venv / "bin" / name).write_text("#!/nowhere/python3\n")
            (venv / "bin" / name).chmod(0o755)
        self.assertIn("3.25.1", self.run_it("source tools/environment.sh; cmake --version").stdout)
        (self.bin / "cmake").unlink()
        self.assert_installs_cmake("CMake is missing, 3.25 is needed")

    def machine(self, files):
        """The root of a machine that has nothing but these files, by name."""
        root = self.root.with_name("machine")
        shutil.rmtree(root, ignore_errors=True)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        return root

    def test_a_container_has_the_cores_of_its_quota(self):
        """As nproc counts them, but no more than the tightest quota of its control groups."""
        groups = "sys/fs/cgroup"
        for files, expected in (
                ({}, 64),
                ({"proc/self/cgroup": "0::/\n", f"{groups}/cpu.max": "200000 100000\n"}, 2),
                ({"proc/self/cgroup": "0::/\n", f"{groups}/cpu.max": "max 100000\n"}, 64),
                ({"proc/self/cgroup": "0::/\n", f"{groups}/cpu.max": "20000 100000\n"}, 1),
                ({"proc/self/cgroup": "0::/a/b\n", f"{groups}/a/b/cpu.max": "max 100000\n", f"{groups}/a/cpu.max": "250000 100000\n"}, 3),
                ({"proc/self/cgroup": "0::/../elsewhere\n", f"{groups}/cpu.max": "400000 100000\n"}, 4),
                ({"proc/self/cgroup": "4:cpu,cpuacct:/a\n3:memory:/\n0::/\n", f"{groups}/cpu,cpuacct/a/cpu.cfs_quota_us": "500000\n",
                  f"{groups}/cpu,cpuacct/a/cpu.cfs_period_us": "100000\n", f"{groups}/cpu/cpu.cfs_quota_us": "-1\n",
                  f"{groups}/cpu/cpu.cfs_period_us": "100000\n"}, 5),
                ({"proc/self/cgroup": "4:cpu:/a\n", f"{groups}/cpu/cpu.cfs_quota_us": "150000\n",
                  f"{groups}/cpu/cpu.cfs_period_us": "100000\n"}, 2)):
            fake = self.machine(files)
            self.program("nproc", "echo 64")
            with unittest.mock.patch.object(os, "sched_getaffinity", lambda _: range(64)):
                self.assertEqual(cores.cores(fake), expected, files)
            here = min(expected, len(os.sched_getaffinity(0)))
            self.assertEqual(self.run_it(f"source tools/environment.sh; build_jobs {fake}").stdout, f"{here}\n", files)
        self.program("python3", "exit 1")
        self.assertEqual(self.run_it("source tools/environment.sh; build_jobs").stdout, "64\n")

    def test_sourcing_leaves_the_variables_of_others_alone(self):
        self.assertEqual(self.run_it("root=mine; source tools/environment.sh; echo $root").stdout, "mine\n")

    def test_compilers_have_memory(self):
        """Of what the system has left, and of the tightest limit of the control groups."""
        groups, gib, kib = "sys/fs/cgroup", 1 << 30, 1 << 20
        for files, expected in (
                ({"proc/meminfo": f"MemTotal: {99 * kib} kB\nMemAvailable: {12 * kib} kB\n"}, 9),
                ({"proc/meminfo": f"MemAvailable: {kib // 2} kB\n"}, 1),
                ({"proc/meminfo": f"MemAvailable: {50 * kib} kB\n"}, 16),
                ({"proc/self/cgroup": "0::/a/b\n", f"{groups}/a/memory.max": f"{4 * gib}\n", f"{groups}/a/b/memory.max": "max\n"}, 3),
                ({"proc/self/cgroup": "3:memory:/a\n", f"{groups}/memory/a/memory.limit_in_bytes": f"{6 * gib}\n",
                  f"{groups}/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 4)):
            fake = self.machine(files)
            with unittest.mock.patch.object(os, "sched_getaffinity", lambda _: range(16)):
                self.assertEqual(cores.build_jobs(fake), expected, files)

    def test_builds_ask_how_many(self):
        for path in ("quickstart", "install", "gpu/check.py"):
            text = (HERE / path).read_text()
            self.assertTrue("$(build_jobs)" in text and "nproc" not in text, path)


if __name__ == "__main__":
    unittest.main()
