#!/usr/bin/env python3
"""Tests that step_peer implements the line protocol and trains like the goldens; ratios to it rely on both.

    step_peer_test.py STEP_PEER [DEVICE]

With DEVICE, compares a small batch on it with the cpu backend: each precision, call by call and as one launch per step.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "tests" / "golden" / "parity-mlp.json"
PROGRAM, DEVICE = sys.argv[1], (sys.argv[2:] or ["cpu"])[0]
SMALL = ("--model", "mlp", "--batch", "4")
# Ten times what ten steps of this network were seen to differ by.
TOLERANCE = {"fp32": 1e-5, "tf32": 1e-5, "fp16": 1e-3, "bf16": 2e-2}


def run(*options, windows=(1, 3, 9)):
    """The answers to the windows; more steps than there are batches, and than a ring of reports holds."""
    commands = "".join(f"window {steps}\n" for steps in windows) + "quit\n"
    answer = subprocess.run([PROGRAM, *options], input=commands, capture_output=True, text=True, check=False,
                            timeout=240)
    if answer.returncode:
        raise AssertionError(answer.stderr)
    return [json.loads(line) for line in answer.stdout.splitlines() if line.startswith("{")]


def losses(answers):
    return [loss for answer in answers for loss in answer["losses"]]


class StepPeer(unittest.TestCase):
    def assert_near(self, ours, theirs, tolerance, message=""):
        self.assertEqual(len(ours), len(theirs))
        for a, b in zip(ours, theirs):
            self.assertLessEqual(abs(a - b), tolerance * abs(b), message)

    @unittest.skipUnless(DEVICE == "cpu", "the goldens' batch takes an emulated device too long")
    def test_the_goldens(self):
        golden = json.loads(GOLDEN.read_text())
        answers = run("--model", "mlp", "--batch", str(golden["batch"]), windows=(1, 2, 5))
        self.assertEqual([len(answer["losses"]) for answer in answers], [1, 2, 5])
        self.assertTrue(all(answer["seconds"] > 0 and answer["device"] for answer in answers))
        self.assert_near(losses(answers), golden["losses"]["float64"][:8], 1e-5)

    def test_windows_do_not_matter(self):
        whole = losses(run("--device", DEVICE, *SMALL, windows=(13,)))
        self.assertEqual(losses(run("--device", DEVICE, *SMALL)), whole)
        self.assertEqual(losses(run("--device", DEVICE, "--no-graph", *SMALL)), whole)

    def test_launches_do_not_matter(self):
        whole = losses(run("--device", DEVICE, *SMALL, windows=(13,)))
        self.assertEqual(losses(run("--device", DEVICE, "--steps-per-launch", "4", *SMALL)), whole)

    def test_where_batches_lie_does_not_matter(self):
        whole = losses(run("--device", DEVICE, *SMALL, windows=(9,)))
        self.assertEqual(losses(run("--device", DEVICE, "--host-batches", *SMALL, windows=(9,))), whole)

    def test_switches(self):
        with tempfile.TemporaryDirectory() as folder:
            options = ("--autotune", "--plan-cache", folder, "--no-fuse", "dgrad+bias", "--no-fuse", "linear+relu")
            self.assert_near(losses(run("--device", DEVICE, *SMALL, *options)), losses(run("--device", DEVICE, *SMALL)), 1e-5)

    @unittest.skipIf(DEVICE == "cpu", "computes in fp32 alone")
    def test_precisions(self):
        expected = losses(run(*SMALL))
        for precision, tolerance in TOLERANCE.items():
            found = losses(run("--device", DEVICE, "--precision", precision, *SMALL))
            self.assert_near(found, expected, tolerance, precision)

    def test_refusals(self):
        for options, code, words in ((("--precision", "fp8"), 2, "fp8"), (("--model", "no_such"), 2, "no_such"),
                                     (("--no-fuse", "no_such", *SMALL), 2, "no_such"),
                                     (("--device", "./no_such.so"), 1, "no_such"),
                                     (("--precision", "fp16", *SMALL), 1, "computes in fp32"),
                                     (("--model", "mlp", "--batch", "0"), 2, "--batch"),
                                     ((*SMALL, "--sequence", "-1"), 2, "--sequence"),
                                     ((*SMALL, "--sequence", "5"), 2, "--sequence: mlp reads images"),
                                     (("--model", "gpt2-nano", "--image", "32"), 2, "--image: gpt2-nano reads text"),
                                     ((*SMALL, "--model-option", "layers=6"), 2, "layers")):
            answer = subprocess.run([PROGRAM, *options], input="", capture_output=True, text=True, check=False)
            self.assertEqual(answer.returncode, code, (options, answer.stderr))
            self.assertIn(words, answer.stderr)

    def test_commands_that_it_does_not_know(self):
        for commands, words in (("windw 3\n", "'windw'"), ("window three\n", "a whole number"), ("window", "a whole number")):
            answer = subprocess.run([PROGRAM, *SMALL], input=commands, capture_output=True, text=True, check=False)
            self.assertEqual((answer.returncode, answer.stdout), (2, ""), answer.stderr)
            self.assertIn(words, answer.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
