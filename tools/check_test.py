#!/usr/bin/env python3
"""tools/check's program: its builds and tests end with it, and it says why nothing ran."""
import contextlib
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

sys.dont_write_bytecode = True
import check_tiers  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
# A command whose shell has a child in a session of its own.
PROGRAM = f"""
import sys; sys.path.insert(0, {str(HERE)!r})
import check_tiers  # noqa: E402
print(check_tiers.run(sys.argv[1:], capture_output=True, text=True).stdout)
"""


class Check(unittest.TestCase):
    def start(self, *command):
        return subprocess.Popen([sys.executable, "-B", "-c", PROGRAM, *command], stdout=subprocess.PIPE, text=True)

    @staticmethod
    def sleepers(seconds):
        """Processes whose command is this sleep."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                command = pathlib.Path(f"/proc/{name}/cmdline").read_bytes()
            except OSError:
                continue
            if command == f"sleep\0{seconds}\0".encode():
                found.append(int(name))
        return found

    def wait_until(self, is_so):
        end = time.monotonic() + 20
        while not is_so() and time.monotonic() < end:
            time.sleep(0.01)

    def test_a_command_answers(self):
        with self.start("sh", "-c", "echo found") as program:
            self.assertEqual(program.stdout.read().strip(), "found")

    def main(self, *words):
        """Its exit code and what it printed, on a machine without a GPU, where nothing is built."""
        skipped = check_tiers.Result(skipped=3, notes=["  skipped: no NVIDIA driver"])
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed), self.assertRaises(SystemExit) as end, \
                unittest.mock.patch.object(check_tiers, "run_tier", lambda *_: skipped), \
                unittest.mock.patch.object(check_tiers, "Builds", unittest.mock.MagicMock), \
                unittest.mock.patch.object(sys, "argv", ["check", *words]):
            check_tiers.main()
        return end.exception.code, printed.getvalue()

    def test_nothing_to_run_is_explained(self):
        code, printed = self.main("--quick", "--tier", "asan", "--tier", "tsan")
        self.assertEqual((code, "--quick leaves out every tier of --tier" in printed), (2, True), printed)
        code, printed = self.main("--tier", "gpu")
        self.assertEqual((code, "no test ran, which counts as a failure" in printed), (1, True), printed)
        self.assertTrue(printed.endswith("0 passed, 0 failed, 3 skipped\n"), printed)

    def test_an_orphan_that_ended_is_gone(self):
        """Tests ask for processes by their ids."""
        with self.start("sh", "-c", "(sleep 0.1 >/dev/null & echo $!) | (read id; sleep 0.5; kill -0 $id || echo gone)") as program:
            self.assertEqual(program.stdout.read().strip(), "gone")

    def test_what_it_runs_ends_with_it(self):
        seconds = f"600.{os.getpid()}"  # which no other process sleeps
        for number in (signal.SIGTERM, signal.SIGKILL):
            with self.start("sh", "-c", f"setsid sleep {seconds} & sleep {seconds}; true") as program:
                self.wait_until(lambda: len(self.sleepers(seconds)) == 2)
                self.assertEqual(len(self.sleepers(seconds)), 2)
                program.send_signal(number)
            self.wait_until(lambda: not self.sleepers(seconds))
            left = self.sleepers(seconds)
            for process in left:
                os.kill(process, signal.SIGKILL)
            self.assertEqual(left, [])

    def test_a_process_that_cannot_be_ended_does_not_save_the_others(self):
        """As one of sudo."""
        program = f"""
import contextlib, os, subprocess, sys; sys.path.insert(0, {str(HERE / "gpu")!r})
import guard
sleeps = [subprocess.Popen(["sleep", "600"]) for _ in range(3)]
protected, kill = sleeps[0].pid, os.kill
def refuse(process, number):
    if process == protected:
        raise PermissionError
    kill(process, number)
os.kill = refuse
try:
    guard.end_descendants(limit_s=1)
finally:
    print(os.path.exists(f"/proc/{{protected}}"), *(os.path.exists(f"/proc/{{each.pid}}") for each in sleeps[1:]))
    for each in sleeps:
        with contextlib.suppress(ProcessLookupError):
            kill(each.pid, 9)
"""
        ran = subprocess.run([sys.executable, "-B", "-c", program], capture_output=True, text=True, check=False)
        self.assertEqual(ran.stdout.split(), ["True", "False", "False"], ran.stderr)

    def test_clang_tidy_sees_every_file(self):
        """A file that shares a compilation with others has no command of its own: it is reported."""
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            for file in ("engine/a.cpp", "data/b.cpp", "kernels/x/x.cuda.cpp", "engine/core/a_aarch64.cpp", "docs/c.cpp", "build/tidy/generated/version.cpp"):
                (root / file).parent.mkdir(parents=True, exist_ok=True)
                (root / file).touch()
            compiled = ("engine/a.cpp", "kernels/x/x.cu", "build/tidy/generated/version.cpp")
            (root / "build/tidy/compile_commands.json").write_text(json.dumps([{"file": str(root / file)} for file in compiled]))
            self.assertEqual(check_tiers.files_to_tidy(root / "build/tidy", root), ([root / "engine/a.cpp"], [root / "data/b.cpp"]))

    def test_clang_tidy_runs_on_compilations_of_one_file(self):
        ran, asked = [], []
        builds = unittest.mock.MagicMock()
        builds.step.side_effect = lambda *words: asked.append(words) or True
        files = [check_tiers.ROOT / "engine/core/error.cpp"], [check_tiers.ROOT / "engine/core/cpus.cpp"]
        with unittest.mock.patch.object(check_tiers, "files_to_tidy", lambda _: files), \
                unittest.mock.patch.object(check_tiers, "run", lambda command, **_: ran.append(command) or unittest.mock.Mock(returncode=0)), \
                unittest.mock.patch.dict(os.environ, {"TIDY": "clang-tidy-19", "CXX": "g++"}):
            result = check_tiers.run_tidy(builds)
        self.assertIn("-DCMAKE_UNITY_BUILD=OFF", asked[0][2])
        self.assertEqual([command[-1] for command in ran], [str(files[0][0])])
        of_gcc = next(word for word in ran[0] if "-idirafter" in word)
        self.assertTrue(pathlib.Path(of_gcc.partition("-idirafter")[2], "omp.h").is_file(), of_gcc)
        self.assertEqual((result.passed, result.failed), (1, 1))
        self.assertIn("engine/core/cpus.cpp: no command compiles it", result.notes[0])


if __name__ == "__main__":
    unittest.main()
