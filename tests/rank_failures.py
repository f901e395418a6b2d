#!/usr/bin/env python3
"""What a data-parallel job does when one of its ranks fails: by hand, minutes.

    python3 tests/rank_failures.py --kills 100          kill -9 of a random rank at random instants, resumed until done
    python3 tests/rank_failures.py --table              a row for each kind of failure: seconds to the end, exit code, message
                                   [--other WARPSTEP]   of another version, for its row

Killed jobs must leave a checkpoint that loads, and end with the bits of an undisturbed run of the same number of ranks.
"""
import argparse
import os
import pathlib
import random
import shutil
import signal
import subprocess
import tempfile
import time

from ranks_test import Jobs, ranks_of, tensors

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIMIT_S = 120


def finish(job):
    said = job.communicate(timeout=LIMIT_S)[1]
    return job.returncode, said


def wait_for_checkpoint(run, job, count=1):
    while len(list(run.glob("checkpoint-*.safetensors"))) < count and job.poll() is None:
        time.sleep(0.02)


class Kills:
    """Runs of a few seconds of two, three or four ranks; each is killed at up to four random instants."""

    def __init__(self, jobs, seed, sizes):
        self.jobs, self.rng, self.sizes = jobs, random.Random(seed), sizes
        self.killed, self.runs, self.slowest = 0, 0, 0.0
        self.expected, self.seconds = {}, {}
        for ranks in sizes:
            begin = time.monotonic()
            code, said = finish(jobs.start("-np", str(ranks), *self.command(f"alone-{ranks}")))
            assert code == 0, said
            self.seconds[ranks] = time.monotonic() - begin
            self.expected[ranks] = tensors(jobs.folder / f"alone-{ranks}")

    def command(self, out):
        return self.jobs.command(out, "--steps", "60", "--epochs", "0", "--checkpoint-every", "7", "--clip-norm", "0.5", "--ema", "0.9",
                                 "--shard-optimizer", "on" if self.runs % 2 else "off")

    def one(self, most):
        ranks = self.rng.choice(self.sizes)
        run = self.jobs.folder / f"run-{self.runs}"
        command = self.command(run.name)
        for attempt in range(50):
            job = self.jobs.start("-np", str(ranks), *command)
            if attempt < 4 and self.killed < most:
                time.sleep(self.rng.uniform(0, self.seconds[ranks]))
                processes = ranks_of(job)
                if len(processes) == ranks and job.poll() is None:
                    begin = time.monotonic()
                    os.kill(self.rng.choice(processes), signal.SIGKILL)
                    code, said = finish(job)
                    self.slowest = max(self.slowest, time.monotonic() - begin)
                    self.killed += 1
            code, said = finish(job) if job.returncode is None else (job.returncode, "")
            if code == 0:
                break
            if list(run.glob("checkpoint-*.safetensors")):
                command = [self.jobs.warpstep, "train", "--resume", run]
            else:
                command = [*self.command(run.name), "--overwrite"]
        assert tensors(run) == self.expected[ranks], f"run {self.runs} ended with other weights"
        shutil.rmtree(run)
        self.runs += 1


class Table:
    def __init__(self, jobs, other):
        self.jobs, self.other = jobs, other

    def endless(self, out):
        return self.jobs.command(out, "--steps", "1000000", "--epochs", "0", "--checkpoint-every", "20", "--dist-timeout", "3")

    def row(self, name, out, begin, job):
        code, said = finish(job)
        seconds = time.monotonic() - begin
        run = self.jobs.folder / out
        saved = "-"
        if list(run.glob("checkpoint-*.safetensors")):
            step = max(int(path.stem.split("-")[1]) for path in run.glob("checkpoint-*.safetensors"))
            again = finish(self.jobs.start("-np", "2", self.jobs.warpstep, "train", "--resume", run, "--steps", str(step + 3)))
            saved = "whole" if again[0] == 0 else f"not resumed: {again[1]}"
        lines = [line for line in said.splitlines() if "warpstep train" in line]
        print(f"{name}: ended after {seconds:.1f} s, exit code {code}, checkpoint {saved}", *lines, sep="\n    ", flush=True)

    def running(self, out, *parts):
        job = self.jobs.start(*(parts or ("-np", "2", *self.endless(out))))
        wait_for_checkpoint(self.jobs.folder / out, job)
        return job

    def killed(self):
        job = self.running("killed")
        begin = time.monotonic()
        os.kill(ranks_of(job)[1], signal.SIGKILL)
        self.row("killed", "killed", begin, job)

    def hung(self):
        job = self.running("hung")
        begin = time.monotonic()
        rank = ranks_of(job)[1]
        os.kill(rank, signal.SIGSTOP)
        self.row("hung (--dist-timeout 3)", "hung", begin, job)

    def stopped(self):
        job = self.running("stopped")
        begin = time.monotonic()
        job.send_signal(signal.SIGTERM)
        self.row("SIGTERM to mpirun", "stopped", begin, job)

    def out_of_memory(self):
        begin = time.monotonic()
        parts = self.endless("memory")
        limited = ["prlimit", "--as=400000000", *parts]
        self.row("out of memory (rank 1 has 400 MB of addresses)", "memory", begin,
                 self.jobs.start("-np", "1", *parts, ":", "-np", "1", *limited))

    def full_disk(self):
        disk = self.jobs.folder / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=160m", "none", disk], check=True)
        try:
            job = self.running("disk/run")
            begin = time.monotonic()
            try:
                with open(disk / "filler", "wb", buffering=0) as filler:
                    while True:
                        filler.write(bytes(1 << 16))
            except OSError:
                pass  # full
            code, said = finish(job)
            seconds = time.monotonic() - begin
            (disk / "filler").unlink(missing_ok=True)
            step = max((int(path.stem.split("-")[1]) for path in (disk / "run").glob("checkpoint-*.safetensors")), default=0)
            resumed = finish(self.jobs.start("-np", "2", self.jobs.warpstep, "train", "--resume", disk / "run", "--steps", str(step + 3)))[0]
            print(f"full disk: ended after {seconds:.1f} s, exit code {code}, checkpoint {'whole' if resumed == 0 else 'lost'}",
                  *[line for line in said.splitlines() if "warpstep" in line], sep="\n    ", flush=True)
        finally:
            subprocess.run(["umount", disk], check=True)

    def wrong_version(self):
        if not self.other:
            print("wrong version: not run without --other")
            return
        begin = time.monotonic()
        parts = self.endless("version")
        self.row("wrong version", "version", begin, self.jobs.start("-np", "1", *parts, ":", "-np", "1", self.other, *parts[1:]))

    def unequal_data(self):
        self.jobs.data("other", 328)
        begin = time.monotonic()
        parts = self.endless("unequal")
        other = [part if part != self.jobs.folder / "data" else self.jobs.folder / "other" for part in parts]
        self.row("unequal data", "unequal", begin, self.jobs.start("-np", "1", *parts, ":", "-np", "1", *other))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 3, 4], help="of killed jobs")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--other")
    parser.add_argument("--rows", nargs="*", default=["killed", "hung", "stopped", "out_of_memory", "full_disk", "wrong_version", "unequal_data"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--warpstep", default=str(ROOT / "build/release/bin/warpstep"))
    options = parser.parse_args()
    if not options.kills and not options.table:
        parser.error("give --kills N or --table")
    with tempfile.TemporaryDirectory() as folder:
        jobs = Jobs(options.warpstep, pathlib.Path(folder))
        try:
            if options.table:
                table = Table(jobs, options.other)
                for row in options.rows:
                    getattr(table, row)()
            if options.kills:
                kills = Kills(jobs, options.seed, options.ranks)
                while kills.killed < options.kills:
                    kills.one(options.kills)
                    print(f"{kills.killed} kills in {kills.runs} runs, same bits", flush=True)
                print(f"{kills.killed} kills in {kills.runs} runs, seed {options.seed}: same bits; jobs ended within {kills.slowest:.1f} s")
        finally:
            jobs.end()


if __name__ == "__main__":
    main()
