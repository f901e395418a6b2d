#!/usr/bin/env python3
"""Tests that every program of this folder refuses wrong usage with 2, and explains itself.

    usage_test.py PROGRAM ...
"""
import pathlib
import subprocess
import sys
import unittest

PROGRAMS = {pathlib.Path(path).name: path for path in sys.argv[1:]}
WRONG = {"loader_bench": ("--batch", "0"), "profile_overhead": ("--steps", "1"), "exchange_bench": ("many",)}


class Usage(unittest.TestCase):
    def call(self, name, *options):
        return subprocess.run([PROGRAMS[name], *options], capture_output=True, text=True, check=False, timeout=60)

    def test_wrong_usage(self):
        for name in PROGRAMS:
            data = (".",) if name == "loader_bench" else ("--data", ".") if name == "profile_overhead" else ()
            for options in ("--no-such",), WRONG.get(name, ("--no-such", "0")):
                answer = self.call(name, *data, *options)
                self.assertEqual(answer.returncode, 2, (name, answer.stderr))
                self.assertIn(options[0].lstrip("-"), answer.stderr.lower())

    def test_help(self):
        for name in PROGRAMS:
            answer = self.call(name, "--help")
            self.assertEqual((answer.returncode, "--help" in answer.stdout), (0, True), (name, answer))
            if name == "warpstep_bench":  # its own options, then those of Google Benchmark
                self.assertRegex(answer.stdout, r"(?s)--all_cases.*--benchmark_filter")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
