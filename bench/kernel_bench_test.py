#!/usr/bin/env python3
"""Tests that the names and figures of warpstep_bench are complete, consistent and can be parsed.

    kernel_bench_test.py WARPSTEP_BENCH [--module PATH --filter REGEX]

With --module, that module replaces the cpu backend, and the cases are those that match the filter.
"""
import argparse
import json
import math
import os
import re
import subprocess
import sys
import unittest

NAME = re.compile(r"\w+/(forward|dgrad|wgrad|update)/(f32|tf32|f16|bf16)/\w+(\.\d+)?/(cpu|cuda)/manual_time")
PRODUCT = re.compile(r"(conv|linear)/")
COUNTERS = ("GB/s", "TFLOP/s", "of_peak", "rotated_MB")
CPU_FILTER = "(linear|max_pool)/forward/(f32|bf16)/cifar10cnn_(fc2|pool2)_n128/"
# Bytes and operations of a call: a product of 128x2048 with 2048x10 and a bias; a 2x2 pool of 128x128x16x16 that writes a
# byte for each output, too. By the bytes of an element.
CPU_COSTS = {"linear": lambda size: (size * (128 * 2048 + 2048 * 10 + 10 + 128 * 10), 2 * 128 * 2048 * 10),
             "max_pool": lambda size: ((size + size / 4 + 1 / 4) * 128 * 128 * 16 * 16, 128 * 128 * 16 * 16)}
SIZES = {"f32": 4, "bf16": 2}
# Times depend on the machine's other work: this only catches the time of a part of a call, or of many.
TIMES_OF_PEAK = (0.002, 20)
arguments = None


def bench(*options, isa=None):
    environment = {key: value for key, value in os.environ.items() if isa is None or key != "WARPSTEP_CPU_ISA"}
    environment |= {"WARPSTEP_CPU_ISA": isa} if isa else {}
    return subprocess.run([arguments.program, *options], capture_output=True, text=True, check=False, timeout=240,
                          env=environment)


class KernelBench(unittest.TestCase):
    def test_figures(self):
        answer = bench("--backends", arguments.module, "--benchmark_format=json", "--benchmark_min_time=0.01",
                       f"--benchmark_filter={arguments.filter}", *arguments.more)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        found = json.loads(answer.stdout)
        self.assertTrue(found["context"]["commit"])
        self.assertTrue(found["context"][f"{arguments.backend}_device"])
        self.assertGreaterEqual(len(found["benchmarks"]), 2)
        for row in found["benchmarks"]:
            self.assertRegex(row["name"], NAME)
            self.assertFalse(row.get("error_occurred"), row)
            for counter in COUNTERS:
                self.assertTrue(math.isfinite(row[counter]) and row[counter] > 0, (row["name"], counter, row))
            self.assertGreater(row["of_peak"], TIMES_OF_PEAK[0], row["name"])
            self.assertLess(row["of_peak"], TIMES_OF_PEAK[1], row["name"])
            self.assertTrue(row["label"], "the implementation")
            self.check_rates(row, found["context"])

    def check_rates(self, row, context):
        """Rates, time, bytes and the peaks in the context are consistent."""
        dtype, backend = row["name"].split("/")[2], row["name"].split("/")[4]
        ceilings = (float(context[f"{backend}_copy_GB/s"]), float(context[f"{backend}_{dtype}_TFLOP/s"]))
        call_bytes = row["GB/s"] * row["real_time"] * 1e3
        if backend == "cpu":
            wanted = CPU_COSTS[row["name"].split("/")[0]](SIZES[dtype])
            self.assertAlmostEqual(call_bytes / wanted[0], 1, delta=1e-6)
            self.assertAlmostEqual(row["TFLOP/s"] * row["real_time"] * 1e6 / wanted[1], 1, delta=1e-6)
        sets = row["rotated_MB"] * 1e6 / call_bytes
        self.assertAlmostEqual(sets, round(sets), delta=1e-3)
        self.assertIn(round(sets), range(2, 17))
        share = max(row["GB/s"] / ceilings[0], row["TFLOP/s"] / ceilings[1])
        self.assertAlmostEqual(row["of_peak"] / share, 1, delta=2e-3)

    def test_names(self):
        listed = {}
        for options in ((), ("--all_cases",)):
            answer = bench("--backends", arguments.module, "--benchmark_list_tests", *options)
            self.assertEqual(answer.returncode, 0, answer.stderr)
            names = listed[options] = answer.stdout.split()
            self.assertEqual(len(names), len(set(names)))
            for name in names:
                self.assertRegex(name, NAME)
                self.assertTrue("/tf32/" not in name or PRODUCT.match(name), name)
                if "/cpu/" in name:
                    self.assertRegex(name, "/(f32|bf16)/")
        few, all_of_them = listed.values()
        self.assertTrue(set(few) < set(all_of_them))
        for wanted in ("conv/forward", "conv/dgrad", "conv/wgrad", "linear/wgrad", "max_pool/dgrad",
                       "update_all/update"):
            self.assertTrue(any(name.startswith(wanted + "/") for name in few), wanted)

    def test_a_cpu_is_timed_in_the_dtypes_that_it_computes_in(self):
        if arguments.module != "cpu":
            self.skipTest("of CPUs")
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            has_bf16 = re.search("avx512_bf16|amx_bf16", file.read()) is not None
        for isa, wanted in (("", {"f32", "bf16"} if has_bf16 else {"f32"}), ("avx2", {"f32"})):
            answer = bench("--backends", "cpu", "--benchmark_list_tests", isa=isa)
            self.assertEqual({name.split("/")[2] for name in answer.stdout.split()}, wanted, answer.stderr)

    def test_refusals(self):
        for options, code, words in (
                (("--backends", "no_such"), 2, "no backend is called 'no_such'"),
                (("--backends", "./no_such.so"), 1, "without ./no_such.so"),
                (("--backends", arguments.module, "--benchmark_filter=no_such"), 2, "matches no benchmark"),
                (("--backends", arguments.module, "--benchmark_filter=("), 2, "is not a regular expression"),
                (("--no_such",), 2, "--no_such")):
            answer = bench(*options)
            self.assertEqual(answer.returncode, code, (options, answer.stderr))
            self.assertIn(words, answer.stderr)
            self.assertNotIn('"benchmarks"', answer.stdout)

    def test_figures_that_are_lost_are_no_success(self):
        if arguments.module != "cpu":
            self.skipTest("the same code for every backend, and an emulated device takes long")
        case = ("--backends", arguments.module, "--benchmark_min_time=0.001", f"--benchmark_filter={arguments.filter}", *arguments.more)
        answer = bench(*case, "--benchmark_out=/dev/full")
        self.assertEqual((answer.returncode, "cannot write /dev/full" in answer.stderr), (1, True), answer.stderr)
        with open("/dev/full", "w") as full:
            answer = subprocess.run([arguments.program, *case], stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=240)
        self.assertEqual((answer.returncode, "cannot write to stdout" in answer.stderr), (1, True), answer.stderr)

    def test_a_backend_that_cannot_be_opened_is_left_out(self):
        answer = bench("--backends", f"{arguments.module},./no_such.so", "--benchmark_list_tests")
        self.assertEqual(answer.returncode, 0)
        self.assertEqual(len(re.findall("without ./no_such.so", answer.stderr)), 1)
        self.assertIn(f"/{arguments.backend}/", answer.stdout)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--module", default="cpu")
    parser.add_argument("--filter", default=CPU_FILTER)
    arguments = parser.parse_args()
    arguments.backend = "cpu" if arguments.module == "cpu" else "cuda"
    arguments.more = [] if arguments.module == "cpu" else ["--all_cases"]
    unittest.main(argv=sys.argv[:1], verbosity=2)
