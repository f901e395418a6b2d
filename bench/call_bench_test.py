#!/usr/bin/env python3
"""Tests that call_bench's figures are complete and consistent, and that a slow call makes it fail unless it is excused.

    call_bench_test.py CALL_BENCH
"""
import json
import math
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv[1]
SMALL = ("--model", "mlp", "--batch", "16", "--repetitions", "1", "--patience", "0")
STRICT = ("--above-ms", "0", "--minimum-share", "1000")  # no call is that fast
LENIENT = ("--above-ms", "100000")  # no call is judged


def bench(*options, isa=None):
    environment = {key: value for key, value in os.environ.items() if isa is None or key != "WARPSTEP_CPU_ISA"}
    return subprocess.run([PROGRAM, *options], capture_output=True, text=True, check=False, timeout=240,
                          env=environment | ({"WARPSTEP_CPU_ISA": isa} if isa else {}))


class CallBench(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def excused(self, text, *options, isa=None):
        file = self.folder / "excuses.txt"
        file.write_text(text)
        return bench(*SMALL, "--excuses", str(file), *options, isa=isa)

    def test_figures(self):
        out = self.folder / "calls.json"
        answer = bench(*SMALL, *LENIENT, "--all", "--out", str(out))  # with the list of the repository
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertIn("passed: of 0 calls", answer.stdout)
        found = json.loads(out.read_text())
        self.assertTrue(found["commit"] and found["device"])
        self.assertEqual(found["busy"], "other work" in answer.stderr)
        self.assertIn(found["instruction_set"], ("AVX-512", "AVX2", "SSE4.1", "NEON"))
        (model,) = found["models"]
        self.assertEqual((model["model"], model["image"], model["batch"]), ("mlp", 28, 16))
        self.assertGreater(len(model["calls"]), 10)
        roofs = model["flops_per_s"], model["bytes_per_s"]
        for roof in roofs:
            self.assertTrue(1e8 < roof < 1e14, roofs)
        for call in model["calls"]:
            self.assertTrue(call["ms"] > 0 and all(math.isfinite(call[key]) for key in ("ms", "flops", "bytes")), call)
            floors = call["flops"] / roofs[0], call["bytes"] / roofs[1]
            self.assertAlmostEqual(call["share"], max(floors) / call["ms"] * 1e3, delta=1e-6 * (1 + call["share"]))
            self.assertEqual(call["bound"], "bytes" if floors[1] > floors[0] else "flops", call)
            self.assertTrue(call["verdict"] == "brief" and call["implementation"], call)
            self.assertIn(f"\n  {call['call']} ", answer.stdout)
        product = next(call for call in model["calls"] if call["call"] == "fc1/linear")
        self.assertEqual((product["flops"], product["phase"]), (2.0 * 16 * 784 * 512, "forward"))

    def test_models_of_text(self):
        out = self.folder / "calls.json"
        answer = bench("--model", "gpt2-nano", "--batch", "1", "--repetitions", "1", "--patience", "0", *LENIENT,
                       "--out", str(out))
        self.assertEqual(answer.returncode, 0, answer.stderr)
        nano, large = json.loads(out.read_text())["models"]
        self.assertEqual([(model["model"], model["sequence"], model["batch"]) for model in (nano, large)],
                         [("gpt2-nano", 64, 1), ("gpt2-nano", 256, 1)])
        calls = {call["call"].split("/")[-1] for call in nano["calls"]}
        self.assertLessEqual({"embed", "attention", "attention.dgrad", "layer_norm", "gelu"}, calls)

    def test_a_slow_call_fails(self):
        out = self.folder / "calls.json"
        answer = bench(*SMALL, *STRICT, "--out", str(out))
        self.assertEqual(answer.returncode, 1, answer.stderr)
        self.assertRegex(answer.stdout, r"\n  mlp@28/fc1/linear .* SLOW\n")
        self.assertIn("FAILED: of ", answer.stdout)
        (model,) = json.loads(out.read_text())["models"]
        self.assertEqual({call["verdict"] for call in model["calls"]}, {"slow"})

    def test_excuses(self):
        answer = self.excused("# all\n\n mlp@28/*  any  0%  too short, as a test\n", *STRICT)
        self.assertEqual(answer.returncode, 0, answer.stdout + answer.stderr)
        self.assertRegex(answer.stdout, r"\n  fc1/linear .* excused: too short, as a test\n")
        self.assertNotIn("stale", answer.stdout)
        one = self.excused("mlp@28/fc1/linear any 0% too short\n", *STRICT)
        self.assertEqual(one.returncode, 1)
        self.assertRegex(one.stdout, r"\n  fc1/linear .* excused: too short\n")
        self.assertRegex(one.stdout, r"\n  mlp@28/fc2/linear .* SLOW\n")

    def test_an_excuse_holds_down_to_its_share(self):
        answer = self.excused("* any 0%  first line counts\n* any 999% never\n", *STRICT)
        self.assertEqual(answer.returncode, 0, answer.stdout)
        self.assertRegex(answer.stdout, r"stale: no slow call needs .*:2 \(\*\)")
        answer = self.excused("\n* any 990.5% so fast\n", *STRICT)
        self.assertEqual(answer.returncode, 1)
        self.assertIn("SLOW: excused only down to 990.5 %, by line 2", answer.stdout)

    @unittest.skipUnless(platform.machine() == "x86_64", "another architecture has one instruction set")
    def test_an_excuse_holds_for_its_instruction_set(self):
        self.assertEqual(self.excused("* sse41 0% narrow\n", *STRICT, isa="sse41").returncode, 0)
        answer = self.excused("* avx2 0% wide\n* avx512 0% wider\n", *STRICT, isa="sse41")
        self.assertEqual(answer.returncode, 1)
        self.assertNotIn("stale", answer.stdout)

    def test_stale_excuses(self):
        answer = self.excused("mlp@28/fc1/* any 10% slow\nresnet50@32/fc1/* any 10% not run\n", *LENIENT)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertEqual(answer.stdout.count("stale"), 1)
        self.assertRegex(answer.stdout, r"stale: no slow call needs .*excuses.txt:1 \(mlp@28/fc1/\*\)")

    def test_refusals(self):
        for options, code, words in (
                (("--model", "mpl"), 2, "no model is called 'mpl'; did you mean mlp?"),
                (("--no_such",), 2, "--no_such"),
                (("--repetitions", "0"), 2, "--repetitions"),
                (("--minimum-share", "-1"), 2, "--minimum-share"),
                (("--excuses", "no/such/file"), 2, "no/such/file: cannot read"),
                ((*SMALL, *LENIENT, "--out", "no/such/file"), 1, "no/such/file: cannot write")):
            answer = bench(*options)
            self.assertEqual(answer.returncode, code, (options, answer.stderr))
            self.assertIn(words, answer.stderr)
        self.assertEqual(bench(*SMALL, isa="avx3").returncode, 2)
        for line, words in (("* any", "'' is no share"), ("* avx3 5% x", "'avx3' is no instruction set"),
                            ("* any 5 x", "'5' is no share"), ("* any -5% x", "no share"), ("* any % x", "no share"),
                            ("* any 5%", "the reason is missing")):
            answer = self.excused(f"# head\n{line}\n")
            self.assertEqual(answer.returncode, 2, line)
            self.assertIn("excuses.txt:2: ", answer.stderr)
            self.assertIn(words, answer.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
