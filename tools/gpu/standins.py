"""Stand-ins for the programs of a staged tree, for tests of gpu_check without a GPU."""
import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import textwrap
import unittest
import unittest.mock

import check
import machine

DEVICE = ("NVIDIA H200 (sm_90, 132 SMs, 139.8 GiB), driver for CUDA 13.0, runtime 13.0, cuDNN 9.19.0, "
          "cuBLASLt 13.1.0")

# Behaves like GoogleTest; BEHAVIOUR is test -> ok | fail | sticky | skip | crash | hang | meet. Does not start without NEEDS in its
# library path, as the loader would end it.
GTEST = """
import os, subprocess, sys, time
if {needs!r} not in os.environ.get("LD_LIBRARY_PATH", ""):
    sys.exit(127)
BEHAVIOUR = {behaviour!r}
if "--gtest_list_tests" in sys.argv:
    print("Running main() from gtest_main.cc\\nCases/Op.")
    sys.exit(print("\\n".join("  " + t + "  # GetParam() = x y" for t in BEHAVIOUR)))
flags = next(a for a in sys.argv if a.startswith("--gtest_flagfile=")).split("=", 1)[1]
wanted = open(flags).read().strip().split("=", 1)[1].split(":")
ended, lost = False, False
for test, what in BEHAVIOUR.items():
    name = "Cases/Op." + test
    if name not in wanted: continue
    print("[ RUN      ] " + name, flush=True)
    time.sleep(float(os.environ.get("STANDIN_S", "0")))
    if lost:
        print("a.cpp:7: Failure\\ncudaErrorIllegalAddress\\n[  FAILED  ] " + name + " (2 ms)")
    elif ended:
        print("a.cpp:1: Skipped\\n\\n[  SKIPPED ] " + name + " (0 ms)")
    elif what == "ok":
        print("[       OK ] " + name + " (1 ms)")
    elif what == "meet":  # ends well once another process runs one, too
        open(os.path.join(os.environ["TMPDIR"], "meet." + test), "w").close()
        end = time.monotonic() + 20
        while sum(f.startswith("meet.") for f in os.listdir(os.environ["TMPDIR"])) < 2 and time.monotonic() < end: time.sleep(0.01)
        print("[       OK ] " + name + " (1 ms)" if time.monotonic() < end else "nobody came")
    elif what == "by handle":
        print("[       OK ] " + name + " (1 ms)" if os.environ.get("WARPSTEP_CUDNN_PLANS") == "handle" else "no")
    elif what == "skip":
        print("a.cpp:1: Skipped\\nnot on this device\\n[  SKIPPED ] " + name + " (0 ms)")
    elif what == "fail":
        print("a.cpp:7: Failure\\n1 is not 2\\n[  FAILED  ] " + name + ", where GetParam() = x y (2 ms)")
        ended = "--gtest_fail_fast" in sys.argv
    elif what == "sticky":
        print("a.cpp:7: Failure\\ncuda: x failed (cudaErrorIllegalAddress)\\n[  FAILED  ] " + name + " (2 ms)")
        lost, ended = True, "--gtest_fail_fast" in sys.argv
    elif what == "crash":
        os.abort()
    else:  # in a session of its own, as compilers' workers are
        subprocess.run(["sleep", "1200"], start_new_session=True)
sys.exit(1 if ended or lost else 0)
"""
WARPSTEP = """
import json, os, sys
if sys.argv[1] == "info":
    found = {needs!r} in os.environ.get("LD_LIBRARY_PATH", "")
    cuda = {{"name": "cuda", "available": found, "description" if found else "reason": {text!r}}}
    if {otherwise!r} and not found:
        cuda = {{"name": "cuda", "available": True, "description": {otherwise!r}}}
    print(json.dumps({{"version": "0.1.0", "commit": "0123456789ab", "backends": [cuda, {{"name": "ref"}}]}}))
elif sys.argv[1] == "data":
    os.mkdir(sys.argv[3])
elif "--profile-raw" in sys.argv:
    open(sys.argv[sys.argv.index("--profile-raw") + 1], "w").write("buffers")
sys.exit({train} if sys.argv[1] == "train" else 0)
"""
BENCH = """
import json, sys
out = next(a for a in sys.argv if a.startswith("--benchmark_out=")).split("=", 1)[1]
row = {"name": "conv/forward/f16/cifar10cnn_conv2_n128/cuda/manual_time", "run_type": "iteration", "iterations": 4000,
       "real_time": 12.345, "time_unit": "us", "GB/s": 2100.5, "TFLOP/s": 50.1, "of_peak": 0.71, "label": "eng63"}
json.dump({"context": {"cuda_copy_GB/s": "4300"}, "benchmarks": [row, {**row, "run_type": "mean"}]}, open(out, "w"))
"""
# A Python with PyTorch, whose packages are in SITE; it runs the scripts that time steps.
PYTHON = """
import json, sys
if sys.argv[1] == "-c":
    sys.exit(print("2.9.0 True" if "torch" in sys.argv[2] else json.dumps([{site!r}])))
if sys.argv[1].endswith("ranks_gpu_test.py"):
    sys.exit(0)
def value(option):
    joined = [word.partition("=")[2] for word in sys.argv if word.startswith(option + "=")]
    return joined[0] if joined else sys.argv[sys.argv.index(option) + 1]
step_ms = {{"median": 0.1, "p25": 0.09, "p75": 0.11}}
side = {{"name": "peer", "about": {{"torch": "2.9.0"}}, "first_step_s": 1.5, "step_ms": step_ms}}
ratio = {{"median": 4.2, "p25": 4.1, "p75": 4.3, "n": 20}}
shape = {{"model": value("--model"), "batch": int(value("--batch")), "precision": "fp16"}}
with open(value("--out"), "w") as file:
    if "step_switches" in sys.argv[1]:
        sides = {{"with": side, "without": side}}
        json.dump({{**shape, "pairs": [{{"switch": value("--switch"), "ratio": ratio, **sides}}]}}, file)
    else:
        json.dump({{"arguments": shape, "left_out": {left_out!r} if value("--model") == "gpt2" else {{}},
                    "pair": {{"ratio": ratio, "peer": side, "torch": {{**side, "name": "eager-nhwc"}}}}}}, file)
"""


TESTS = {"one": "ok", "two": "ok", "three": "skip"}
BY_PROGRAM = {"op_cuda_test": {"X/linear_odd_in_fp16": "ok", "X/norm_conv_1x1_in_fp16": "ok", "three": "skip", "four": "ok"},
              "model_cuda_test": {"OneGraphLaunch/mlp_fp16": "ok", "two_fp16": "ok", "three": "skip", "four": "ok"}}
PROGRAMS = ("kernels_cuda_test", "op_cuda_test", "model_cuda_test", "statistics_cuda_test", "parity_cuda_test",
            "precision_spread_cuda_test", "plan_choice_cuda_test")
PASSED = 2 * len(PROGRAMS) - 4 + (2 + 1 + 1 + 2 + 2 + 1 + 1) + 3  # with three smoke steps, ranks and two trainings
SKIPPED = len(PROGRAMS)


class Staged(unittest.TestCase):
    """A staged tree of stand-ins, and an output folder."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        root = pathlib.Path(folder.name)
        self.stage, self.out, self.site = root / "stage", root / "out", root / "site-packages"
        (self.stage / "bin").mkdir(parents=True)
        (root / "tmp").mkdir()
        self.tmp = root / "tmp"
        for name in PROGRAMS:
            self.gtest(name, BY_PROGRAM.get(name, TESTS))
        self.warpstep()
        self.program("warpstep_bench", BENCH)
        self.program("step_peer", "")
        python = self.program("python", PYTHON.format(site=str(self.site), left_out={"compile-rows": "late"}))
        self.environment = {"PYTHON": str(python), "TMPDIR": str(self.tmp)}
        for patch in (unittest.mock.patch.dict(os.environ, self.environment),
                      unittest.mock.patch.object(tempfile, "tempdir", str(self.tmp)),
                      unittest.mock.patch.object(machine, "no_driver", lambda: None),
                      unittest.mock.patch.object(machine, "nvidia_smi", lambda: None),
                      unittest.mock.patch.object(machine, "sanitizer", lambda: None)):
            patch.start()
            self.addCleanup(patch.stop)

    def program(self, name, text):
        path = self.stage / "bin" / name
        path.write_text(f"#!{sys.executable} -IS\n{textwrap.dedent(text)}")
        path.chmod(0o755)
        return path

    def gtest(self, name, behaviour, needs=""):
        self.program(name, GTEST.format(behaviour=behaviour, needs=needs))

    def warpstep(self, needs="", text=DEVICE, train=0, otherwise=""):
        """`text`: what info says with `needs` in the library path; `otherwise`: a device's description without it."""
        self.program("warpstep", WARPSTEP.format(needs=needs, text=text, train=train, otherwise=otherwise))

    def words(self, *words):
        return ["--stage", str(self.stage), "--out", str(self.out), *words]

    def run_it(self, *words):
        """(exit code, printed text, results.json or None)"""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            try:
                code = check.main(self.words(*words))
            except SystemExit as end:
                code = end.code
        return code, printed.getvalue(), self.results()

    def results(self):
        path = self.out / "results.json"
        return json.loads(path.read_text()) if path.exists() else None

    def step(self, results, name):
        return next(s for s in results["steps"] if s["name"] == name)
