#!/usr/bin/env python3
"""Tests that tools/bench_compare finds differences between runs and refuses runs that cannot be compared."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "tools" / "bench_compare"
CONTEXT = {"commit": "abc", "cpu_device": "a CPU, 2 threads", "cpu_copy_GB/s": "40", "cpu_f32_TFLOP/s": "0.19"}


def entry(name, time, unit="us", **more):
    return {"name": name, "run_name": name, "run_type": "iteration", "real_time": time, "time_unit": unit, **more}


def repeated(name, times):
    runs = [entry(name, time) for time in times]
    return runs + [entry(f"{name}_median", 1e9, run_type="aggregate", aggregate_name="median") | {"run_name": name}]


class Compare(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, name, benchmarks, **context):
        path = pathlib.Path(self.folder.name) / name
        path.write_text(json.dumps({"context": CONTEXT | context, "benchmarks": benchmarks}))
        return path

    def run_on(self, *arguments):
        return subprocess.run([sys.executable, "-B", PROGRAM, *arguments], capture_output=True, text=True, check=False)

    def compare(self, a, b, *options, **context):
        return self.run_on(self.write("a.json", a), self.write("b.json", b, **context), *options)

    def test_rows_are_sorted_by_ratio(self):
        answer = self.compare([entry("same", 10), entry("slower", 10), entry("faster", 10, "ms")],
                              [entry("faster", 5000), entry("slower", 12), entry("same", 10)])
        self.assertEqual(answer.returncode, 0, answer.stderr)
        lines = answer.stdout.splitlines()
        self.assertEqual([line.split()[-1] for line in lines[3:6]], ["slower", "same", "faster"])
        self.assertEqual([line.split()[0] for line in lines[3:6]], ["1.200", "1.000", "0.500"])
        self.assertIn("10 ms", lines[5])
        self.assertIn("one run each, no spread", answer.stdout)
        self.assertNotIn("*", answer.stdout)

    def test_quartiles_tell_what_is_apart(self):
        answer = self.compare(repeated("apart", [10, 10, 11, 11, 50]) + repeated("mixed", [10, 11, 12, 13, 14]),
                              repeated("apart", [12, 12, 13, 13, 1]) + repeated("mixed", [12, 13, 14, 15, 16]))
        apart, mixed = (next(line for line in answer.stdout.splitlines() if line.endswith(name))
                        for name in ("apart", "mixed"))
        self.assertTrue(apart.startswith("*"), apart)
        self.assertIn("11 (10-11) us", apart)
        self.assertFalse(mixed.startswith("*"), mixed)
        self.assertIn("12 (11-13) us", mixed)
        self.assertIn("medians of 5 runs", answer.stdout)

    def test_missing_names_are_named(self):
        answer = self.compare([entry("both", 1), entry("old", 1)], [entry("both", 1), entry("new", 1)])
        self.assertEqual(answer.returncode, 0)
        self.assertIn("only in A: old", answer.stdout)
        self.assertIn("only in B: new", answer.stdout)

    def test_fail_above(self):
        rows = [entry("x", 10)], [entry("x", 11.5)]
        self.assertEqual(self.compare(*rows).returncode, 0)
        self.assertEqual(self.compare(*rows, "--fail-above", "1.2").returncode, 0)
        answer = self.compare(*rows, "--fail-above", "1.10")
        self.assertEqual(answer.returncode, 1)
        self.assertIn("1 of 1 benchmarks above 1.1", answer.stdout)

        self.assertEqual(self.compare(*rows, "--fail-above", "0").returncode, 1)

    def test_a_benchmark_that_failed_is_no_pass(self):
        failed = entry("old", 0, error_occurred=True, error_message="out of memory")
        for b in ([entry("both", 1), failed], [entry("both", 1), entry("old", 1), failed]):
            answer = self.compare([entry("both", 1), entry("old", 1)], b, "--fail-above", "1.10")
            self.assertEqual(answer.returncode, 1)
            self.assertIn("failed in B: old: out of memory", answer.stdout)
            self.assertNotIn("only in A", answer.stdout)
            self.assertIn("1 of A's benchmarks failed in B", answer.stdout)
            self.assertEqual(self.compare([entry("both", 1), entry("old", 1)], b).returncode, 0)
        answer = self.compare([entry("both", 1)], [entry("both", 1), failed], "--fail-above", "1.10")
        self.assertEqual((answer.returncode, "failed in B: old" in answer.stdout), (0, True), answer.stdout)

    def test_other_conditions_are_refused(self):
        rows = [entry("x", 10)], [entry("x", 10)]
        self.assertEqual(self.compare(*rows, **{"cpu_copy_GB/s": "43"}).returncode, 0)
        self.assertEqual(self.compare(*rows, cuda_device="of rows that A lacks").returncode, 0)
        for context in ({"cpu_device": "another CPU"}, {"cpu_copy_GB/s": "45"}, {"cpu_f32_TFLOP/s": "?"}):
            answer = self.compare(*rows, **context)
            self.assertEqual(answer.returncode, 2, context)
            self.assertIn(next(iter(context)), answer.stderr)
            self.assertEqual(answer.stdout, "")
            self.assertEqual(self.compare(*rows, "--force", **context).returncode, 0)

    def test_what_is_no_run(self):
        good = self.write("good.json", [entry("x", 10)])
        broken = pathlib.Path(self.folder.name) / "broken.json"
        broken.write_text("{")
        for other, words in ((broken, "not the JSON"), (pathlib.Path("no_such.json"), "No such file"),
                             (self.write("none.json", []), "no times"),
                             (self.write("means.json", repeated("x", [])), "only aggregates"),
                             (self.write("failed.json", [entry("x", 0, error_occurred=True)]), "no times"),
                             (self.write("zero.json", [entry("x", 0)]), "took 0"),
                             (self.write("other.json", [entry("y", 10)]), "no benchmark in common")):
            answer = self.run_on(good, other)
            self.assertEqual(answer.returncode, 2, other)
            self.assertIn(words, answer.stderr)
        self.assertEqual(self.run_on(good).returncode, 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
