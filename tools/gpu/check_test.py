#!/usr/bin/env python3
"""gpu_check on a staged tree of fake programs: its counts, stored files, rows and exit codes."""
import contextlib
import io
import json
import os
import pathlib
import re
import sys
import tempfile
import textwrap
import unittest
import unittest.mock

import check
import machine

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEVICE = ("NVIDIA H200 (sm_90, 132 SMs, 139.8 GiB), driver for CUDA 13.0, runtime 13.0, cuDNN 9.19.0, "
          "cuBLASLt 13.1.0")

# Behaves like GoogleTest; BEHAVIOUR is test -> ok | fail | skip | crash | hang.
GTEST = """
import os, sys, time
BEHAVIOUR = {behaviour!r}
if "--gtest_list_tests" in sys.argv:
    print("Running main() from gtest_main.cc\\nCases/Op.")
    sys.exit(print("\\n".join("  " + t + "  # GetParam() = x y" for t in BEHAVIOUR)))
flags = next(a for a in sys.argv if a.startswith("--gtest_flagfile=")).split("=", 1)[1]
wanted = open(flags).read().strip().split("=", 1)[1].split(":")
ended = False
for test, what in BEHAVIOUR.items():
    name = "Cases/Op." + test
    if name not in wanted: continue
    print("[ RUN      ] " + name, flush=True)
    if ended:
        print("a.cpp:1: Skipped\\n\\n[  SKIPPED ] " + name + " (0 ms)")
    elif what == "ok":
        print("[       OK ] " + name + " (1 ms)")
    elif what == "skip":
        print("a.cpp:1: Skipped\\nnot on this device\\n[  SKIPPED ] " + name + " (0 ms)")
    elif what == "fail":
        print("a.cpp:7: Failure\\n1 is not 2\\n[  FAILED  ] " + name + ", where GetParam() = x y (2 ms)")
        ended = "--gtest_fail_fast" in sys.argv
    elif what == "crash":
        os.abort()
    else:
        time.sleep(60)
sys.exit(1 if "fail" in BEHAVIOUR.values() else 0)
"""
WARPSTEP = """
import json, os, sys
if sys.argv[1] == "info":
    found = {needs!r} in os.environ.get("LD_LIBRARY_PATH", "")
    cuda = {{"name": "cuda", "available": found, "description" if found else "reason": {text!r}}}
    print(json.dumps({{"version": "0.1.0", "commit": "0123456789ab", "backends": [cuda, {{"name": "ref"}}]}}))
elif sys.argv[1] == "data":
    os.mkdir(sys.argv[3])
sys.exit({train} if sys.argv[1] == "train" else 0)
"""
BENCH = """
import json, sys
out = next(a for a in sys.argv if a.startswith("--benchmark_out=")).split("=", 1)[1]
row = {"name": "conv/forward/f16/cifar10cnn_conv2_n128/cuda/manual_time", "run_type": "iteration", "iterations": 4000,
       "real_time": 12.345, "time_unit": "us", "GB/s": 2100.5, "TFLOP/s": 50.1, "of_peak": 0.71, "label": "eng63"}
json.dump({"context": {"cuda_copy_GB/s": "4300"}, "benchmarks": [row, {**row, "run_type": "mean"}]}, open(out, "w"))
"""
# A Python with PyTorch, whose packages are in SITE.
PYTHON = """
import json, sys
if sys.argv[1] == "-c":
    sys.exit(print("2.9.0 True" if "torch" in sys.argv[2] else json.dumps([{site!r}])))
side = {{"name": "peer", "about": {{"torch": "2.9.0"}}, "first_step_s": 1.5,
         "step_ms": {{"median": 0.1, "p25": 0.09, "p75": 0.11}}}}
ratio = {{"median": 4.2, "p25": 4.1, "p75": 4.3, "n": 20}}
with open(sys.argv[sys.argv.index("--out") + 1], "w") as file:
    json.dump({{"arguments": {{"model": "cifar10cnn", "batch": 128, "precision": "fp16", "steps": 10}},
               "pair": {{"ratio": ratio, "peer": side, "torch": {{**side, "name": "eager-nhwc"}}}}}}, file)
"""


class GpuCheck(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.stage, self.out = pathlib.Path(folder.name) / "stage", pathlib.Path(folder.name) / "out"
        self.site = pathlib.Path(folder.name) / "site-packages"
        (self.stage / "bin").mkdir(parents=True)
        for name in check.TESTS:
            self.gtest(name, {"one": "ok", "two": "ok", "three": "skip"})
        self.warpstep()
        self.program("warpstep_bench", BENCH)
        self.program("step_peer", "")
        python = self.program("python", PYTHON.format(site=str(self.site)))
        for patch in (unittest.mock.patch.dict(os.environ, {"PYTHON": str(python)}),
                      unittest.mock.patch.object(machine, "no_driver", lambda: None),
                      unittest.mock.patch.object(machine, "nvidia_smi", lambda: None),
                      unittest.mock.patch.object(machine, "sanitizer", lambda: None)):
            patch.start()
            self.addCleanup(patch.stop)

    def program(self, name, text):
        path = self.stage / "bin" / name
        path.write_text(f"#!{sys.executable}\n{textwrap.dedent(text)}")
        path.chmod(0o755)
        return path

    def gtest(self, name, behaviour):
        self.program(name, GTEST.format(behaviour=behaviour))

    def warpstep(self, needs="", text=DEVICE, train=0):
        self.program("warpstep", WARPSTEP.format(needs=needs, text=text, train=train))

    def run_it(self, *words):
        """(exit code, printed text, results.json or None)"""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            try:
                code = check.main(["--stage", str(self.stage), "--out", str(self.out), *words])
            except SystemExit as end:
                code = end.code
        results = self.out / "results.json"
        return code, printed.getvalue(), json.loads(results.read_text()) if results.exists() else None

    def step(self, results, name):
        return next(s for s in results["steps"] if s["name"] == name)

    def test_everything_passes(self):
        code, printed, results = self.run_it()
        self.assertEqual(code, 0, printed)
        programs = len(check.TESTS)
        self.assertEqual(results["tests"], {"passed": 2 * programs + 2, "failed": 0, "skipped": programs, "not_run": 0})
        self.assertEqual(results["device"], {"device": "NVIDIA H200", "architecture": "sm_90", "driver_cuda": "13.0",
                                             "cuda": "13.0", "cudnn": "9.19.0", "cublaslt": "13.1.0",
                                             "description": DEVICE})
        self.assertEqual(results["commit"], "0123456789ab")
        self.assertEqual(self.step(results, "op_cuda_test")["skips"], {"not on this device": 1})
        self.assertEqual(self.step(results, "memcheck")["status"], "skipped")
        self.assertIn("compute-sanitizer is not installed", printed)
        self.assertEqual([row["of_peak"] for row in results["benchmarks"]["rows"]], [0.71])
        for step in results["steps"]:
            self.assertTrue(step["status"] == "skipped" or pathlib.Path(step["log"]).exists(), step["name"])

    def test_rows_have_the_columns_of_the_records(self):
        self.run_it()
        header = next(line for line in (ROOT / "bench" / "RECORDS.md").read_text().splitlines()
                      if line.startswith("| date") and "| n |" in line)
        rows = [line for line in (self.out / "rows.md").read_text().splitlines() if line.startswith("|")]
        self.assertEqual(rows[0], header)
        self.assertEqual({row.count("|") for row in rows}, {header.count("|")})
        self.assertEqual(len(rows), 2 + 3, rows)
        self.assertIn(f"{2 * len(check.TESTS) + 2} passed, 0 failed", rows[2])
        self.assertIn("cifar10cnn step, batch 128, fp16: **4.20x** (quartiles 4.10-4.30) PyTorch 2.9.0", rows[3])
        self.assertIn("12.35 us, 2100 GB/s, 50.1 TFLOP/s, 71 % of the device's measured peak", rows[4])
        self.assertIsNone(re.search(r"[ `=]/", "\n".join(rows)), "a path of this machine")

    def test_no_device(self):
        with unittest.mock.patch.object(machine, "no_driver", lambda: "no NVIDIA driver on this machine"):
            self.assertEqual(self.run_it(), (3, "gpu_check: no usable CUDA device: no NVIDIA driver on this machine\n",
                                             None))
        self.assertFalse(self.out.exists())
        self.warpstep(needs="nowhere", text="the driver finds no device")
        self.assertEqual(self.run_it(), (3, "gpu_check: no usable CUDA device: the driver finds no device\n", None))

    def test_libraries_of_wheels_are_found(self):
        folder = self.site / "nvidia" / "cudnn" / "lib"
        folder.mkdir(parents=True)
        (folder / "libcudnn.so.9").touch()
        self.warpstep(needs=str(folder), text="libwarpstep_cuda.so does not load: libcudnn.so.9: not there")
        code, printed, results = self.run_it("--quick")
        self.assertEqual(code, 0, printed)
        self.assertEqual(results["tests"]["failed"], 0)

    def test_a_failure_ends_with_1_and_stops_nothing(self):
        self.gtest("op_cuda_test", {"one": "ok", "two": "fail", "three": "ok", "four": "fail", "five": "skip"})
        code, printed, results = self.run_it()
        self.assertEqual(code, 1)
        step = self.step(results, "op_cuda_test")
        self.assertEqual(step["counts"], {"passed": 2, "failed": 2, "skipped": 1, "not_run": 0})
        self.assertEqual([f["test"] for f in step["failures"]], ["Cases/Op.two", "Cases/Op.four"])
        self.assertIn("1 is not 2", step["failures"][0]["output"])
        self.assertIn("FAILED Cases/Op.two", printed)
        self.assertEqual(self.step(results, "plan_choice_cuda_test")["counts"]["passed"], 2)
        self.assertEqual(self.step(results, "kernels")["status"], "passed")
        self.assertFalse(results["all_tests_passed"])

    def test_a_crash_is_the_failure_of_the_test_that_ran(self):
        self.gtest("model_cuda_test", {"one": "ok", "two": "crash", "three": "ok"})
        code, _, results = self.run_it()
        step = self.step(results, "model_cuda_test")
        self.assertEqual((code, step["counts"]), (1, {"passed": 2, "failed": 1, "skipped": 0, "not_run": 0}))
        self.assertEqual(step["failures"], [{"test": "Cases/Op.two", "output": ["ended the program, exit code -6"]}])

    def test_a_program_that_hangs_is_ended(self):
        self.gtest("parity_cuda_test", {"one": "ok", "two": "hang", "three": "ok"})
        with unittest.mock.patch.dict(check.TESTS, {"parity_cuda_test": 1.5}):
            code, _, results = self.run_it()
        step = self.step(results, "parity_cuda_test")
        self.assertEqual((code, step["status"]), (1, "timed out"))
        self.assertEqual(step["counts"], {"passed": 1, "failed": 1, "skipped": 0, "not_run": 1})
        self.assertLess(step["seconds"], 30)
        self.assertEqual(self.step(results, "plan_choice_cuda_test")["status"], "passed")

    def test_a_program_whose_tests_are_all_skipped_is_a_failure(self):
        self.gtest("plan_choice_cuda_test", {"one": "skip", "two": "skip"})
        code, printed, results = self.run_it()
        self.assertEqual((code, self.step(results, "plan_choice_cuda_test")["status"]), (1, "failed"))
        self.assertIn("all of its tests were skipped", printed)

    def test_a_program_that_is_missing_is_a_failure(self):
        (self.stage / "bin" / "kernels_cuda_test").unlink()
        code, _, results = self.run_it()
        self.assertEqual((code, self.step(results, "kernels_cuda_test")["status"]), (1, "failed"))

    def test_training_that_fails_is_a_failure_and_a_benchmark_is_not(self):
        self.program("warpstep_bench", "import sys; print('no memory'); sys.exit(1)")
        code, printed, results = self.run_it()
        self.assertEqual((code, self.step(results, "kernels")["reason"]), (0, "no memory"), printed)
        self.warpstep(train=1)
        code, _, results = self.run_it()
        self.assertEqual((code, self.step(results, "train")["status"]), (1, "failed"))

    def test_a_sanitizer_that_finds_something_fails(self):
        checker = self.program("compute-sanitizer", "import subprocess, sys\n"
                               "subprocess.run([a for a in sys.argv[1:] if 'bin/' in a or 'gtest' in a], check=True)\n"
                               "sys.exit(99 if 'racecheck' in sys.argv else 0)")
        with unittest.mock.patch.object(machine, "sanitizer", lambda: str(checker)):
            code, _, results = self.run_it()
        self.assertEqual((code, self.step(results, "racecheck")["rc"]), (1, 99))
        self.assertEqual(self.step(results, "racecheck")["status"], "failed")
        self.assertEqual(self.step(results, "memcheck")["status"], "passed")


if __name__ == "__main__":
    unittest.main()
