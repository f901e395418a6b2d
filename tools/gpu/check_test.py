#!/usr/bin/env python3
"""gpu_check on a staged tree of stand-in programs: its counts, stored files, rows and exit codes."""
import contextlib
import io
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tarfile
import unittest
import unittest.mock

import check
import cores
import machine
import plan
import standins
import steps
from standins import DEVICE, PASSED, SKIPPED

ROOT = pathlib.Path(__file__).resolve().parents[2]


class GpuCheck(standins.Staged):
    def test_everything_passes(self):
        code, printed, results = self.run_it()
        self.assertEqual(code, 0, printed)
        self.assertEqual(results["tests"], {"passed": PASSED, "failed": 0, "skipped": SKIPPED, "not_run": 0})
        self.assertTrue(results["whole"])
        self.assertEqual(results["device"], {"device": "NVIDIA H200", "architecture": "sm_90", "driver_cuda": "13.0",
                                             "cuda": "13.0", "cudnn": "9.19.0", "cublaslt": "13.1.0",
                                             "description": DEVICE})
        self.assertEqual(results["commit"], "0123456789ab")
        self.assertEqual(self.step(results, "ops")["skips"], {"not on this device": 1})
        self.assertEqual(self.step(results, "memcheck")["status"], "skipped")
        self.assertIn("compute-sanitizer is not installed", printed)
        self.assertEqual([row["of_peak"] for row in results["benchmarks"]["rows"]], [0.71])
        with tarfile.open(self.out / "archive.tar.gz") as archive:
            names = set(archive.getnames())
        logs = {step["log"] for step in results["steps"] if step["status"] != "skipped"}
        figures = {"kernels.json", "cupti.raw", *(f"switches-{name}.json" for name in plan.SWITCHED),
                   *(f"pytorch-{model}.json" for model in plan.PYTORCH)}
        self.assertEqual(names, logs | figures)
        self.assertEqual({path.name for path in self.out.iterdir()}, {"results.json", "rows.md", "archive.tar.gz"})
        self.assertEqual(list(self.tmp.iterdir()), [], "scratch is left behind")

    def test_rows_have_the_columns_of_the_records(self):
        self.run_it()
        header = next(line for line in (ROOT / "bench" / "RECORDS.md").read_text().splitlines()
                      if line.startswith("| date") and "| n |" in line)
        rows = [line for line in (self.out / "rows.md").read_text().splitlines() if line.startswith("|")]
        self.assertEqual(rows[0], header)
        self.assertEqual({row.count("|") for row in rows}, {header.count("|")})
        self.assertEqual(len(rows), 2 + 8, rows)
        self.assertIn(f"{PASSED} passed, 0 failed", rows[2])
        self.assertIn("cifar10cnn step, batch 128, fp16, --autotune: 4.200x as long", rows[3])
        self.assertIn("cifar10cnn step, batch 128, fp16: **4.20x** (quartiles 4.10-4.30) PyTorch 2.9.0", rows[6])
        self.assertEqual([row.partition("; not timed: ")[2].partition(" |")[0] for row in rows[6:9]], ["", "compile-rows", ""])
        self.assertIn("12.35 us, 2100 GB/s, 50.1 TFLOP/s, 71 % of the device's measured peak", rows[9])
        pasted = shlex.split(rows[6].split("`")[-2])
        self.assertTrue(pasted[pasted.index("--peer-cmd") + 1].startswith("step_peer --device cuda "), pasted)
        self.assertIsNone(re.search(r"[ `=]/", "\n".join(rows)), "a path of this machine")

    def test_an_old_python_is_refused(self):
        python = self.tmp / "python3"
        python.write_text(f"""#!{sys.executable}
import sys
sys.version_info = (3, 8, 18)
if sys.argv[1] == "-V": print("Python 3.8.18")
if sys.argv[1] == "-c": exec(sys.argv[2])
""")
        python.chmod(0o755)
        ran = subprocess.run([ROOT / "tools" / "gpu_check", "--list"], capture_output=True, text=True,
                             env={**os.environ, "PATH": f"{self.tmp}:{os.environ['PATH']}"})
        self.assertEqual((ran.returncode, ran.stdout), (2, ""))
        self.assertEqual(ran.stderr, "gpu_check needs Python 3.9 or later; python3 is Python 3.8.18\n")

    def test_no_device(self):
        with unittest.mock.patch.object(machine, "no_driver", lambda: "no NVIDIA driver on this machine"):
            self.assertEqual(self.run_it(), (3, "gpu_check: no usable CUDA device: no NVIDIA driver on this machine\n",
                                             None))
        self.assertFalse(self.out.exists())
        self.warpstep(needs="nowhere", text="the driver finds no device")
        self.assertEqual(self.run_it(), (3, "gpu_check: no usable CUDA device: the driver finds no device\n", None))

    def test_a_build_that_is_cut_is_no_failure(self):
        (self.stage / "tools").mkdir()
        (self.stage / "tools" / "setup").write_text("#!/bin/sh\nsleep 60")
        (self.stage / "tools" / "setup").chmod(0o755)
        tree = machine.Tree(self.stage / "none", self.stage / "none", self.stage, False)
        with unittest.mock.patch.object(machine, "find_tree", lambda *_: tree), \
                unittest.mock.patch.object(machine, "cannot_build", lambda: "no cmake"):
            code, printed, _ = self.run_it("--budget", str(check.RESERVED_S + 0.5))
            self.assertEqual((code, "stopped as the budget was over; " in printed), (4, True), printed)
            with unittest.mock.patch.object(steps, "interrupted", [15]):
                code, printed, _ = self.run_it()
            self.assertEqual((code, "stopped by signal 15; " in printed), (4, True), printed)
            with unittest.mock.patch.object(check, "BUILD_S", 0.5):
                code, printed, _ = self.run_it()
            self.assertEqual((code, "stopped after 0.5 s; " in printed), (1, True), printed)

    def test_a_budget_is_a_time(self):
        for seconds in ("0", "-1", "nan"):
            with contextlib.redirect_stderr(io.StringIO()) as words:
                self.assertEqual(self.run_it("--budget", seconds), (2, "", None))
            self.assertIn("is not above 0", words.getvalue())

    def test_the_documentation_has_every_step(self):
        """docs/gpu.md: "`pytorch-cifar10cnn`, `-gpt2`" and "`models` to `ops`"."""
        every = [step.name for step in plan.steps(machine.find_tree(self.stage), check.parse([]), self.out, self.out)]
        table = (ROOT / "docs" / "gpu.md").read_text().partition("| step | time |")[2].partition("\n\n")[0]
        named = []
        for cell in re.findall(r"^\| (`.*?) \|", table, re.M):
            words = re.findall("`([^`]+)`", cell)
            words = [words[0].partition("-")[0] + word if word.startswith("-") else word for word in words]
            named += every[every.index(words[0]):every.index(words[1]) + 1] if "` to `" in cell else words
        self.assertEqual(sorted(named), sorted(every))

    def test_programs_that_are_linked_to_wheels_find_them(self):
        folder = self.site / "nvidia" / "cu13" / "lib"
        folder.mkdir(parents=True)
        (folder / "libcudart.so.13").touch()
        self.gtest("kernels_cuda_test", {"one": "ok", "two": "ok", "three": "skip"}, needs=str(folder))
        code, printed, results = self.run_it("--only", "kernels")
        self.assertEqual((code, self.step(results, "kernels")["counts"]["passed"]), (0, 2), printed)

    def test_plans_are_tried_by_handle_too(self):
        self.gtest("op_cuda_test", {"X/conv_cifar10cnn_conv2_in_fp16": "by handle"})
        code, printed, results = self.run_it("--only", "smoke-handle,smoke-ops")
        self.assertEqual((code, self.step(results, "smoke-handle")["counts"]["passed"]), (1, 1), printed)
        self.assertEqual(self.step(results, "smoke-ops")["counts"]["passed"], 0)

    def test_a_benchmark_that_is_stopped_keeps_its_figures(self):
        half = standins.BENCH.replace("json.dump(", "text = json.dumps(").replace("open(out, \"w\"))", "indent=2)")
        self.assertNotEqual(half, standins.BENCH)
        self.program("warpstep_bench", half + "\nopen(out, 'w').write(text[:-30])\nimport time; time.sleep(60)\n")
        with unittest.mock.patch.object(plan, "CHANGED", {"bench": {"limit_s": 3.0}}):
            _, printed, results = self.run_it("--only", "bench")
        self.assertEqual(self.step(results, "bench")["status"], "timed out", printed)
        self.assertEqual([row["of_peak"] for row in results["benchmarks"]["rows"]], [0.71])
        self.assertIn("12.35 us", (self.out / "rows.md").read_text())

    def test_libraries_of_wheels_are_found(self):
        folder = self.site / "nvidia" / "cudnn" / "lib"
        folder.mkdir(parents=True)
        (folder / "libcudnn.so.9").touch()
        self.warpstep(needs=str(folder), text="libwarpstep_cuda.so does not load: libcudnn.so.9: not there")
        code, printed, results = self.run_it("--quick", "--from", "statistics")
        self.assertEqual(code, 0, printed)
        self.assertEqual(results["tests"]["failed"], 0)

    def wheel(self, name, version):
        """The library folder of site-packages with such a cuDNN."""
        site = self.site.with_name(name)
        (site / "nvidia" / "cudnn" / "lib").mkdir(parents=True)
        (site / "nvidia" / "cudnn" / "lib" / "libcudnn.so.9").touch()
        (site / f"nvidia_cudnn_{version}.dist-info").mkdir()
        return site / "nvidia" / "cudnn" / "lib"

    def test_a_newer_cudnn_of_wheels_replaces_an_old_one(self):
        old = DEVICE.replace("9.19.0", "9.14.0")
        folder = self.wheel("site-packages", "cu13-9.19.0.56")
        for text, otherwise, version in ((DEVICE, old, "9.19.0"), (DEVICE, DEVICE.replace("9.19.0", "9.16.0"), "9.16.0"),
                                         (old.replace("9.14.0", "9.13.1"), old, "9.14.0"), ("does not load: x", old, "9.14.0")):
            self.warpstep(needs=str(folder) if "does not" not in text else "nowhere", text=text, otherwise=otherwise)
            self.gtest("parity_cuda_test", {"one": "ok"}, needs=str(folder) if version == "9.19.0" else "")
            code, printed, results = self.run_it("--only", "parity")
            self.assertEqual((code, results["device"]["cudnn"]), (0, version), printed)

    def test_the_newest_cudnn_of_wheels_comes_first(self):
        places = [self.wheel(*words) for words in (("site-a", "cu12-9.99.0.1"), ("site-b", "cu13-9.9.0.1"), ("site-c", "cu13-9.19.0.56"))]
        listed = [str(place.parents[2]) for place in places]
        with unittest.mock.patch.object(machine, "answer_of", lambda *_: json.dumps(listed)):
            found = [folder for folder in machine.wheel_folders() if "/site-" in folder]
        self.assertEqual(found[:3], [str(places[number]) for number in (2, 1, 0)])

    def test_a_failure_ends_with_1_and_stops_nothing(self):
        self.gtest("parity_cuda_test", {"one": "ok", "two": "fail", "three": "ok", "four": "fail", "five": "skip"})
        code, printed, results = self.run_it()
        self.assertEqual(code, 1)
        step = self.step(results, "parity")
        self.assertEqual(step["counts"], {"passed": 2, "failed": 2, "skipped": 1, "not_run": 0})
        self.assertEqual([f["test"] for f in step["failures"]], ["Cases/Op.two", "Cases/Op.four"])
        self.assertIn("1 is not 2", step["failures"][0]["output"])
        self.assertIn("FAILED Cases/Op.two", printed)
        self.assertEqual(self.step(results, "plan_choice")["counts"]["passed"], 2)
        self.assertEqual(self.step(results, "bench")["status"], "passed")
        self.assertFalse(results["all_tests_passed"])

    def test_a_crash_is_the_failure_of_the_test_that_ran(self):
        self.gtest("statistics_cuda_test", {"one": "ok", "two": "crash", "three": "ok"})
        code, _, results = self.run_it("--only", "statistics")
        step = self.step(results, "statistics")
        self.assertEqual((code, step["counts"]), (1, {"passed": 2, "failed": 1, "skipped": 0, "not_run": 0}))
        self.assertEqual(step["failures"], [{"test": "Cases/Op.two", "output": ["ended the program, exit code -6"]}])

    def test_a_program_that_hangs_is_ended(self):
        self.gtest("parity_cuda_test", {"one": "ok", "two": "hang", "three": "ok"})
        for jobs, passed in (("1", 1), ("2", 2)):  # the other process runs the third
            with unittest.mock.patch.object(plan, "CHANGED", {"parity": {"limit_s": 1.5}}):
                code, _, results = self.run_it("--only", "parity,plan", "--jobs", jobs)
            step = self.step(results, "parity")
            self.assertEqual((code, step["status"]), (1, "timed out"))
            self.assertEqual(step["counts"], {"passed": passed, "failed": 1, "skipped": 0, "not_run": 2 - passed})
            self.assertLess(step["seconds"], 30)
            self.assertEqual(self.step(results, "plan_choice")["status"], "passed")

    def test_tests_run_in_several_processes(self):
        """Dealt in turn, at the same time, in one log; failures in the program's order, and one process's errors are its own."""
        behaviour = {"a": "ok", "b": "ok", "c": "fail", "d": "sticky", "e": "crash", "f": "ok", "g": "ok", "h": "skip", "i": "ok"}
        self.gtest("parity_cuda_test", behaviour)
        self.gtest("statistics_cuda_test", {"one": "meet", "two": "meet"})
        code, printed, results = self.run_it("--only", "parity,statistics", "--jobs", "3")
        step = self.step(results, "parity")
        self.assertEqual((code, step["counts"]), (1, {"passed": 5, "failed": 3, "skipped": 1, "not_run": 0}), printed)
        self.assertEqual([f["test"][-1] for f in step["failures"]], ["c", "d", "e"])
        self.assertEqual(self.step(results, "statistics")["counts"]["passed"], 2, printed)
        with tarfile.open(self.out / "archive.tar.gz") as archive:
            processes = archive.extractfile("parity.log").read().decode().split("$ ")[1:]
        ran = ["".join(re.findall(r"RUN      \] Cases/Op\.(.)", process)) for process in processes]
        # With --gtest_fail_fast the first failure ends a process; what it had left follows in another.
        self.assertEqual(sorted(ran), ["adg", "be", "cfi", "fi", "g", "h"])
        self.assertEqual({path.name for path in self.out.iterdir()}, {"results.json", "rows.md", "archive.tar.gz"})

    def test_what_is_timed_runs_alone(self):
        arguments = check.parse(["--jobs", "7"])
        for step in plan.steps(machine.find_tree(self.stage), arguments, self.out, self.out):
            self.assertEqual(step.jobs, 7 if step.tests else 1, step.name)
        arguments = check.parse([])
        arguments.processes = 16
        for step in plan.steps(machine.find_tree(self.stage), arguments, self.out, self.out):
            many = step.tests and step.name not in ("memcheck", "racecheck")
            self.assertEqual(step.jobs, 8 if step.name in ("memcheck", "racecheck") else 16 if many else 1, step.name)

    def test_as_many_processes_as_cores_and_memory_allow(self):
        for count, most in ((64, 16), (4, 4)):
            with unittest.mock.patch.object(cores, "cores", lambda count=count: count):
                self.assertEqual(machine.processes(DEVICE), most)
                self.assertEqual(machine.processes("Tesla T4 (sm_75, 40 SMs, 7.5 GiB), driver for CUDA 13.0"), 3)
                self.assertEqual(machine.processes("?"), most)

    def test_ten_minutes_suffice_for_every_op(self):
        """By the planned times, which are measured, or the limits."""
        steps = plan.steps(machine.find_tree(self.stage), check.parse([]), self.out, self.out)
        names = [step.name for step in steps]
        planned = {step.name: step.planned_s or step.limit_s for step in steps[:names.index("ops") + 1]}
        for model, (*_, seconds) in plan.PYTORCH.items():  # once the captured and the eager step are ready, for the compiled one
            self.assertGreaterEqual(0.7 * seconds - 6 - {"cifar10cnn": 10, "resnet50": 27, "gpt2": 23}[model], 2 * 20, model)
        self.assertLess(sum(planned.values()), 540 - check.RESERVED_S, planned)
        self.assertLessEqual({step.name for step in steps if step.tests and step.name.startswith(("ops", "models", "kernels"))},
                             set(planned))

    def test_a_script_may_say_that_it_cannot_run_here(self):
        for code, status, counts in ((77, "skipped", None), (1, "failed", {"passed": 0, "failed": 1, "skipped": 0, "not_run": 0})):
            step = steps.Step("ranks", ["sh", "-c", f"echo SKIPPED: no root; exit {code}"], 20, proof=True)
            outcome = steps.run(step, self.tmp / "ranks.log", dict(os.environ), 20)
            self.assertEqual((outcome.status, outcome.reason, outcome.counts), (status, "SKIPPED: no root", counts))
        (self.tmp / "ranks.log").unlink()

    def test_a_program_whose_tests_are_all_skipped_is_a_failure(self):
        self.gtest("plan_choice_cuda_test", {"one": "skip", "two": "skip"})
        code, printed, results = self.run_it("--only", "plan_choice")
        self.assertEqual((code, self.step(results, "plan_choice")["status"]), (1, "failed"))
        self.assertIn("all of its tests were skipped", printed)

    def test_a_program_that_is_missing_is_a_failure(self):
        (self.stage / "bin" / "kernels_cuda_test").unlink()
        code, _, results = self.run_it("--only", "kernels")
        self.assertEqual((code, self.step(results, "kernels")["status"]), (1, "failed"))

    def test_training_that_fails_is_a_failure_and_a_benchmark_is_not(self):
        self.program("warpstep_bench", "import sys; print('no memory'); sys.exit(1)")
        code, printed, results = self.run_it("--only", "bench,train")
        self.assertEqual((code, self.step(results, "bench")["reason"]), (0, "no memory"), printed)
        self.warpstep(train=1)
        code, _, results = self.run_it("--only", "train")
        self.assertEqual((code, self.step(results, "train")["status"]), (1, "failed"))

    def test_a_sanitizer_that_finds_something_fails(self):
        checker = self.program("compute-sanitizer", "import subprocess, sys\n"
                               "subprocess.run([a for a in sys.argv[1:] if 'bin/' in a or 'gtest' in a], check=True)\n"
                               "sys.exit(99 if 'racecheck' in sys.argv else 0)")
        with unittest.mock.patch.object(machine, "sanitizer", lambda: str(checker)):
            code, _, results = self.run_it("--only", "memcheck,racecheck")
        self.assertEqual((code, self.step(results, "racecheck")["rc"]), (1, 99))
        self.assertEqual(self.step(results, "racecheck")["status"], "failed")
        self.assertEqual(self.step(results, "memcheck")["status"], "passed")


if __name__ == "__main__":
    unittest.main()
