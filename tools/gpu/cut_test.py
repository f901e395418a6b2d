#!/usr/bin/env python3
"""gpu_check cut short by its budget, by SIGTERM and by SIGKILL: what is left can be read and continued, and nothing runs on.

    cut_test.py [KILLS [SECONDS]]    kills it at so many random instants (default 3), with a budget of so many seconds (3)
"""
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tarfile
import time
import unittest

import plan
import standins
from standins import PASSED, SKIPPED

HERE = pathlib.Path(__file__).resolve().parent
NUMBERS = [int(word) for word in sys.argv[1:] if word.isdigit()]
sys.argv[1:] = [word for word in sys.argv[1:] if not word.isdigit()]
KILLS, SECONDS = [*NUMBERS, *(3, 3)[len(NUMBERS):]]
LATE_S = 20  # what a busy machine may add to a budget of seconds; a test that hangs takes longer
# gpu_check on a machine with a driver; nvidia-smi and compute-sanitizer are not there.
PROGRAM = f"""
import sys; sys.path.insert(0, {str(HERE)!r})
import check, machine
machine.no_driver = machine.nvidia_smi = machine.sanitizer = lambda: None
sys.exit(check.command(sys.argv[1:]))
"""


class Cut(standins.Staged):
    def start(self, *words, test_s=0.0):
        env = {**os.environ, "STANDIN_S": str(test_s), "PYTHONUNBUFFERED": "1"}
        return subprocess.Popen([sys.executable, "-B", "-c", PROGRAM, *self.words(*words)], env=env,
                                stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)

    def children(self):
        """Processes of this test that are alive: their environment has its TMPDIR."""
        found, mark = [], f"TMPDIR={self.tmp}".encode()
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if mark in file.read().split(b"\0"):
                        found.append(int(name))
            except OSError:
                continue
        return [process for process in found if process != os.getpid()]

    def assert_no_child_left(self):
        end, looks = time.monotonic() + 10, 0  # a process has no environment for a moment, while it is started
        while looks < 5 and time.monotonic() < end:
            looks = 0 if self.children() else looks + 1
            time.sleep(0.01)
        self.assertEqual(self.children(), [])

    def wait_for(self, process, running):
        end = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < end:
            results = self.results()
            if results and results["running"] == running:
                return
            time.sleep(0.002)

    def assert_whole(self):
        """As if it had never been cut: every step once, every test once, all files."""
        results = self.results()
        self.assertEqual(results["tests"], {"passed": PASSED, "failed": 0, "skipped": SKIPPED, "not_run": 0})
        self.assertTrue(results["whole"] and results["all_tests_passed"])
        names = [step["name"] for step in results["steps"]]
        self.assertEqual(len(names), len(set(names)))
        with tarfile.open(self.out / "archive.tar.gz") as archive:
            kept = set(archive.getnames())
        self.assertLessEqual({step["log"] for step in results["steps"] if step["log"]}, kept)
        self.assertEqual({path.name for path in self.out.iterdir() if not path.name.endswith(".part")},
                         {"results.json", "rows.md", "archive.tar.gz"})

    def test_killed_in_every_step_and_resumed(self):
        steps = [step.name for step in plan.steps(standins.machine.find_tree(self.stage), standins.check.parse([]), self.out, self.out)
                 if not step.skip]
        for number, name in enumerate(steps):
            process = self.start(*(["--resume"] if number else []), "--jobs", str(1 + number % 3), test_s=0.03)
            self.wait_for(process, name)
            process.send_signal(signal.SIGKILL)
            process.wait()
        self.assert_no_child_left()
        self.assertEqual(self.start("--resume").wait(60), 0)
        self.assert_whole()

    def test_killed_at_random_instants(self):
        chance, begun, killed = random.Random(1), False, 0
        while killed < KILLS:
            process = self.start(*(["--resume"] if begun else []), "--jobs", str(chance.choice((1, 3))), test_s=0.02)
            time.sleep(chance.uniform(0.1, 1.2))
            killed += process.poll() is None
            process.send_signal(signal.SIGKILL)
            code = process.wait()
            self.assert_no_child_left()
            results = self.results()  # raises unless it can be read
            begun = results is not None and code != 0  # from the beginning, once all is done
            if begun:
                with tarfile.open(self.out / "archive.tar.gz") as archive:
                    archive.getmembers()
        self.assertEqual(self.start(*(["--resume"] if begun else [])).wait(60), 0)
        self.assert_whole()

    def test_children_in_sessions_of_their_own_die_too(self):
        for jobs, tests in ((1, {"one": "ok", "two": "hang"}), (3, {"one": "hang", "two": "hang", "three": "hang", "four": "ok"})):
            self.gtest("kernels_cuda_test", tests)
            for number in (signal.SIGKILL, signal.SIGTERM):
                process = self.start("--only", "kernels", "--jobs", str(jobs))
                end = time.monotonic() + 20
                while len(self.children()) < 1 + 3 * jobs and time.monotonic() < end:  # a guard, the program, its child
                    time.sleep(0.01)
                process.send_signal(number)
                code = process.wait(20)
                self.assert_no_child_left()
            step = self.step(self.results(), "kernels")
            self.assertEqual((code, step["status"], step["counts"]["passed"], step["counts"]["failed"]),
                             (4, "cut", int(jobs == 1), 0))
            self.assertIn("signal 15", step["reason"])

    def test_processes_that_are_killed_leave_what_ended(self):
        """Three processes, each with a test that ended and one that hangs: only the latter run again."""
        self.gtest("kernels_cuda_test", {name: "ok" if name < "d" else "hang" for name in "abcdef"})
        process = self.start("--only", "kernels", "--jobs", "3")
        end = time.monotonic() + 20
        while len(self.children()) < 10 and time.monotonic() < end:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.assert_no_child_left()
        self.gtest("kernels_cuda_test", {name: "crash" if name < "d" else "ok" for name in "abcdef"})
        self.assertEqual(self.start("--resume", "--skip", "switches,pytorch").wait(60), 0)
        self.assertEqual(self.step(self.results(), "kernels")["counts"],
                         {"passed": 6, "failed": 0, "skipped": 0, "not_run": 0})
        self.assertEqual({path.name for path in self.out.iterdir()}, {"results.json", "rows.md", "archive.tar.gz"})

    def test_a_budget_ends_in_time_and_tests_are_not_repeated(self):
        with unittest.mock.patch.object(standins.check, "RESERVED_S", 0.5), \
                unittest.mock.patch.object(plan, "CHANGED", {"kernels": {"least_s": 1}}):
            self.gtest("kernels_cuda_test", {**{f"t{i}": "ok" for i in range(5)}, "last": "hang"})
            began = time.monotonic()
            code, printed, results = self.run_it("--budget", "2.5", "--from", "kernels", "--skip", "switches,pytorch")
            self.assertLess(time.monotonic() - began, 2.5 + LATE_S)
        self.assertEqual(code, 4, printed)
        step = self.step(results, "kernels")
        self.assertEqual((step["status"], step["counts"]["passed"], step["counts"]["not_run"]), ("cut", 5, 1))
        self.assertEqual(self.step(results, "models-fp16")["status"], "not run")
        self.assertFalse(results["whole"])
        self.gtest("kernels_cuda_test", {**{f"t{i}": "crash" for i in range(5)}, "last": "ok"})
        code, printed, results = self.run_it("--resume")
        self.assertEqual((code, self.step(results, "kernels")["counts"]["passed"]), (0, 6), printed)
        self.assertTrue(results["whole"])

    def test_a_whole_budget_is_spent_and_kept(self):
        """A test takes a sixtieth of the budget, and one never ends. With 540 s no limit is scaled: it ends within 560."""
        real = SECONDS >= 540
        self.gtest("plan_choice_cuda_test", {**standins.TESTS, "four": "hang"})
        names = [step.name for step in plan.steps(standins.machine.find_tree(self.stage), standins.check.parse([]), self.out, self.out)]
        with unittest.mock.patch.object(standins.check, "RESERVED_S", standins.check.RESERVED_S if real else 0.5), \
                unittest.mock.patch.object(plan, "CHANGED", {} if real else {name: {"least_s": 0.1} for name in names}), \
                unittest.mock.patch.dict(os.environ, {"STANDIN_S": str(SECONDS / 60)}):
            began = time.monotonic()
            code, printed, results = self.run_it("--budget", str(SECONDS))
            took = time.monotonic() - began
        self.assertLess(took, 560 if real else SECONDS + LATE_S, printed)
        self.assertGreater(took, SECONDS / 2, printed)
        self.assertEqual((code, results["whole"], results["running"]), (4, False, None), printed)
        found = {step["status"] for step in results["steps"]}
        self.assertTrue("passed" in found and found & {"cut", "not run"}, printed)
        with tarfile.open(self.out / "archive.tar.gz") as archive:
            logs = {step["log"] for step in results["steps"] if step["log"]}
            self.assertLessEqual(logs, set(archive.getnames()))
        self.assert_no_child_left()
        self.gtest("plan_choice_cuda_test", standins.TESTS)
        code, printed, results = self.run_it("--resume")
        self.assertEqual((code, results["whole"]), (0, True), printed)
        self.assertEqual(results["tests"]["passed"], PASSED)

    def test_resumed_elsewhere_and_of_another_commit(self):
        first = self.out
        self.run_it("--only", "kernels,statistics")
        self.out = first.with_name("second")
        self.gtest("kernels_cuda_test", {"one": "crash"})
        code, _, results = self.run_it("--resume", str(first))
        self.assertEqual((code, self.step(results, "kernels")["counts"]["passed"]), (0, 2))
        code, _, results = self.run_it("--resume", "--only", "kernels")
        self.assertEqual((code, self.step(results, "kernels")["counts"]["failed"]), (1, 1), "a step that is named runs again")
        kept = json.loads((self.out / "results.json").read_text())
        (self.out / "results.json").write_text(json.dumps({**kept, "commit": "fedcba987654"}))
        with self.assertRaisesRegex(ValueError, "start again without --resume"):
            self.run_it("--resume")
        (self.out / "results.json").write_text(json.dumps(kept))
        for old, new in (("NVIDIA H200", "NVIDIA A100"), ("runtime 13.0", "runtime 13.1"), ("cuDNN 9.19.0", "cuDNN 9.20.0")):
            self.warpstep(text=standins.DEVICE.replace(old, new))
            with self.assertRaisesRegex(ValueError, f"of .*{old.split()[1]}.*, .*{new.split()[1]}.*; start again without --resume"):
                self.run_it("--resume")
        self.warpstep()
        with unittest.mock.patch.object(standins.machine, "nvidia_smi", lambda: [{"driver_version": "580.65"}]), \
                self.assertRaisesRegex(ValueError, "are of driver None, .* 580.65; start again without --resume"):
            self.run_it("--resume")
        with self.assertRaisesRegex(plan.Unknown, "no step 'kernel_s'; the steps: smoke-ops"):
            self.run_it("--only", "kernel_s")

    def test_a_sticky_error_is_reported_once(self):
        behaviour = {**{f"f{i:02}": "fail" for i in range(31)}, "lost": "sticky", "after": "ok", "again": "ok"}
        self.gtest("parity_cuda_test", behaviour)
        code, _, results = self.run_it("--only", "parity")
        step = self.step(results, "parity")
        self.assertEqual((code, step["counts"]), (1, {"passed": 2, "failed": 32, "skipped": 0, "not_run": 0}))
        self.assertEqual(sum("IllegalAddress" in "".join(f["output"]) for f in step["failures"]), 1)


if __name__ == "__main__":
    unittest.main()
