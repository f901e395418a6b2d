#!/usr/bin/env python3
"""Tests loader_bench: the same batches under all settings, consistent figures, the line protocol.

    loader_bench_test.py LOADER_BENCH WARPSTEP
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM, WARPSTEP = sys.argv[1:3]
RECIPE = "random-crop=24:pad=2,flip"
FIELDS = ("images_per_s", "images_per_cpu_s", "first_batch_s", "resume_s", "seek_s", "epoch_first_next_s", "other_next_s")


def call(*options, commands=""):
    return subprocess.run([PROGRAM, *options], input=commands, capture_output=True, text=True, check=False, timeout=120)


class LoaderBench(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.png, cls.jpeg, cls.packed = (os.path.join(cls.folder.name, name) for name in ("png", "jpeg", "packed"))
        size = ("--train", "192", "--test", "16")
        for arguments in (("make", cls.png, *size), ("make", cls.jpeg, *size, "--format", "jpeg"),
                          ("pack", cls.jpeg, cls.packed)):
            subprocess.run([WARPSTEP, "data", *arguments], check=True, stdout=subprocess.DEVNULL)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def measure(self, data, *options):
        answer = call(data, "--batch", "32", "--samples", "384", "--json", "--transforms", RECIPE, *options)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return json.loads(answer.stdout)

    def hashes(self, data, *variants):
        return {self.measure(data, *variant)["hash"] for variant in variants}

    def test_batches_depend_on_the_seed_alone(self):
        same = self.hashes(self.png, (), ("--workers", "3"), ("--prefetch", "5"), ("--tier", "mapped"),
                           ("--tier", "resident"), ("--decoder", "libpng"))
        self.assertEqual(len(same), 1)
        self.assertNotEqual(self.hashes(self.png, ("--seed", "1")), same)
        self.assertNotEqual(self.hashes(self.png, ("--shuffle", "none")), same)

    def test_routes_of_jpeg(self):
        routes = [("--jpeg-route", route) for route in ("automatic", "full", "partial")]
        same = self.hashes(self.jpeg, *routes)
        self.assertEqual(len(same), 1)
        self.assertEqual(self.hashes(self.packed, *routes, ("--jpeg-route", "seek")), same)

    def test_figures(self):
        found = self.measure(self.png, "--workers", "2")
        for field in FIELDS:
            self.assertGreater(found[field], 0, field)
            self.assertLess(found[field], 1e9, field)
        # The ring may have been full when the window began, and empty when it ended.
        self.assertGreaterEqual(found["images"], 384 - 3 * 32)
        self.assertLessEqual(found["images"], 384 + 3 * 32)
        self.assertEqual(found["workers"], 2)
        self.assertGreater(found["memory"]["bound_bytes"], 3 * 32 * 24 * 24 * 3)
        self.assertGreater(found["worker_seconds"]["decode"], 0)
        text = call(self.png, "--batch", "32", "--samples", "384").stdout
        for words in ("images per CPU-second", "first batch", "bound", "hash"):
            self.assertIn(words, text)
        self.assertIn("only rows", call(self.png, "--batch", "32", "--tier", "resident").stdout)

    def test_the_protocol(self):
        answer = call(self.png, "--batch", "32", "--serve", commands="window 9\nwindow 18\nquit\n")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        windows = [json.loads(line) for line in answer.stdout.splitlines()]  # longer than the ring of 3
        self.assertEqual(len(windows), 2)
        self.assertTrue(all(w["seconds"] > 0 and w["cpu_seconds"] >= 0 and w["images"] > 0 for w in windows))
        answer = call(self.png, "--batch", "32", "--serve", commands="window 1\nstop\n")
        self.assertEqual(answer.returncode, 2, answer.stderr)
        self.assertIn("unknown command 'stop'", answer.stderr)

    def test_a_dump_has_one_batch(self):
        path = os.path.join(self.folder.name, "dump")
        options = (self.png, "--batch", "8", "--shuffle", "none", "--dump", path)
        for more, value_bytes in (((), 1), (("--normalize", "cpu", "--transforms", "scale"), 4)):
            self.assertEqual(call(*options, *more).returncode, 0)
            self.assertEqual(os.path.getsize(path), 8 * 32 * 32 * 3 * value_bytes)

    def test_figures_that_are_lost_are_no_success(self):
        with open("/dev/full", "w") as full:
            answer = subprocess.run([PROGRAM, self.png, "--batch", "32", "--samples", "64", "--json"], stdout=full,
                                    stderr=subprocess.PIPE, text=True, check=False, timeout=120)
        self.assertEqual((answer.returncode, "cannot write" in answer.stderr), (1, True), answer.stderr)

    def test_refusals(self):
        for options, code, words in (((self.png, "--batch", "1000"), 2, "batch"), ((self.png, "--batch", "0"), 2, "--batch"),
                                     (("no_such",), 1, "no_such"),
                                     ((self.png, "--transforms", "no-such"), 2, "no-such"),
                                     ((self.png, "--tier", "resident", "--normalize", "cpu"), 2, "resident")):
            answer = call(*options)
            self.assertEqual(answer.returncode, code, answer.stderr)
            self.assertIn(words, answer.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
