#!/usr/bin/env python3
"""How often `warpstep compare` or `try` tells equal runs apart, and how often it sees a step that is 3 % slower.

    python bench/equal_runs.py                            # 100 pairs of equal runs, 20 comparisons of 3 runs per side
    python bench/equal_runs.py --pairs 20 --sets 0 --busy # beside another program
    python bench/equal_runs.py --pairs 0 --model airbench --batch 16 --steps 100
    python bench/equal_runs.py --turns                    # the same by `warpstep try`: both sides take turns
    python bench/equal_runs.py --lock /tmp/machine.lock   # takes turns with others that hold this lock (flock)

Runs of a side alternate with those of the other; with --turns as many starts of both take turns. The slower side's trainer computes that share of its time in vain,
at each reading of the clock. Prints the row for RECORDS.md. With --check the exit code is 1 when more than one pair in
ten was called different, or fewer than four slower sides in five were.
"""
import argparse
import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

from planted_bottlenecks import HERE, ROOT, busy


@contextlib.contextmanager
def locked(path):
    if path is None:
        yield
        return
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Bench:
    def __init__(self, args, scratch):
        self.args, self.scratch = args, scratch
        self.shim = scratch / "planted_slower.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", self.shim, HERE / "planted_slower.c", "-ldl"], check=True)
        self.warpstep("data", "make", scratch / "data", "--train", 1280, "--test", 64)

    def warpstep(self, *options, **how):
        command = [str(self.args.warpstep), *map(str, options)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, **how)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        return done.stdout

    def train(self, name, slower):
        run = self.scratch / name
        shutil.rmtree(run, ignore_errors=True)
        self.warpstep("train", self.args.model, "--data", self.scratch / "data", "--device", "cpu", "--tier", "mapped",
                      "--batch", self.args.batch,
                      "--epochs", 1000, "--steps", self.args.steps + 42, "--eval-every", 0, "--out", run,
                      "--profile", "spans", "--profile-schedule", f"skip_first=40,warmup=2,active={self.args.steps}",
                      env={**os.environ, "LD_PRELOAD": str(self.shim), "PLANT_SLOWER": str(slower)})
        return run

    def tried(self, starts, slower):
        tried = self.scratch / "tried"
        if not tried.exists():
            self.train(tried.name, 0)
        answer = json.loads(self.warpstep("try", tried, "--starts", starts, "--env", f"PLANT_SLOWER={slower}", "--json",
                                          env={**os.environ, "LD_PRELOAD": str(self.shim), "PLANT_SLOWER": "0"}))
        return answer["changed"], answer["ratio"] - 1

    def changed(self, runs, slower):
        """Whether `runs` a side, the second of which is slower by that many per cent, are called different, and by how much."""
        sides = [], []
        with locked(self.args.lock), busy(1) if self.args.busy else contextlib.nullcontext():
            if self.args.turns:
                return self.tried(runs, slower)
            for i in range(runs):
                for side, share in ((0, 0), (1, slower)):
                    sides[side].append(self.train(f"{'ab'[side]}{i}", share))
            answer = json.loads(self.warpstep("compare", *sides[0], "--against", *sides[1], "--json"))
        step = next(change for change in answer["changes"] if change["what"] == "step")
        return answer["step_changed"], step["change"]


def count_called(bench, what, count, runs, slower):
    """How many comparisons called the step changed; with `slower`, slower."""
    called, changes = 0, []
    for i in range(count):
        is_changed, change = bench.changed(runs, slower)
        called += is_changed and (not slower or change > 0)
        changes.append(change)
        print(f"{what} {i + 1}: {change:+.2%}{', called different' if is_changed else ''}", file=sys.stderr, flush=True)
    if count:
        changes.sort()
        print(f"{what}: called {'slower' if slower else 'different'} in {called} of {count}; changes from "
              f"{changes[0]:+.2%} to {changes[-1]:+.2%}, median {statistics.median(changes):+.2%}")
    return called


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--warpstep", type=pathlib.Path, default=ROOT / "build/release/bin/warpstep")
    parser.add_argument("--pairs", type=int, default=100, help="of equal runs, one run per side")
    parser.add_argument("--sets", type=int, default=20, help="comparisons with a slower side")
    parser.add_argument("--runs", type=int, default=3, help="a side, of these comparisons")
    parser.add_argument("--slower", type=float, default=3, help="per cent of the step")
    parser.add_argument("--model", default="mlp", help="of 32x32 images; mlp's weights and moments fill a third-level cache")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=800, help="that each run records: of mlp some 3 s, the default window")
    parser.add_argument("--turns", action="store_true", help="compare by `warpstep try`")
    parser.add_argument("--busy", action="store_true", help="beside another program that computes")
    parser.add_argument("--lock", type=pathlib.Path, help="hold this file's lock during each comparison")
    parser.add_argument("--check", action="store_true", help="end with 1 if these rates are bad")
    args = parser.parse_args()
    if min(args.pairs, args.sets) < 0 or min(args.runs, args.steps) < 1 or args.slower <= 0:
        parser.error("--pairs and --sets must be at least 0, --runs and --steps at least 1, --slower above 0")
    args.warpstep = args.warpstep.resolve()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, pathlib.Path(folder))
        equal_runs = args.runs if args.turns else 1
        different = count_called(bench, f"equal runs, {equal_runs} a side", args.pairs, equal_runs, 0)
        seen = count_called(bench, f"{args.slower:g} % slower, {args.runs} a side", args.sets, args.runs, args.slower)
    return int(args.check and (different > 0.1 * args.pairs or seen < 0.8 * args.sets))


if __name__ == "__main__":
    sys.exit(main())
