#!/usr/bin/env python3
"""Errors of NCCL at each of its calls, planted by tests/cuda_on_cpu/nccl_stand_in.cpp, in jobs of two ranks on emulated GPUs.

    python3 tests/nccl_failures_test.py build/release/cuda_emulated            a sample, seconds
    python3 tests/nccl_failures_test.py build/release/cuda_emulated --every    every call of every function, minutes

Each job must end in time with exit code 1 and one line that names the rank and the call, and leave no process and only whole
checkpoints. Exit code 77 where mpirun is not installed.
"""
import atexit
import concurrent.futures
import os
import pathlib
import re
import sys
import threading
import time

from ranks_cuda_test import TWO_GPUS
from ranks_test import run, tensors

LIMIT_S = 60  # on a busy machine; a job takes 1 to 4 s
INTERNAL, REMOTE = 3, 6
HANGS = -1
EAGER = ("--no-graph", "--checkpoint-every", "1")  # calls in each step, and a checkpoint before it
SHARES = (*EAGER, "--shard-optimizer", "on")
NORMS = (*EAGER, "--sync-bn")

# Function, rank, options, and the calls of the sample. The last of each is beyond the end of the run, where it is 1000.
FUNCTIONS = [
    ("ncclGetVersion", 1, (), (1,)),
    ("ncclGetUniqueId", 0, (), (1,)),
    ("ncclCommInitRank", 0, (), (1,)),
    ("ncclCommInitRank", 1, (), (1,)),
    ("ncclGroupStart", 1, EAGER, (2,)),
    ("ncclAllReduce", 1, (), (1,)),
    ("ncclAllReduce", 0, EAGER, (5, 1000)),
    ("ncclGroupEnd", 1, EAGER, (3,)),
    ("ncclCommGetAsyncError", 1, EAGER, (2,)),
    ("ncclReduce", 1, SHARES, ()),
    ("ncclBroadcast", 0, SHARES, (2,)),
    ("ncclAllGather", 1, NORMS, ()),
]


class Walk:
    def __init__(self, jobs, name):
        self.jobs, self.name, self.count, self.lock = jobs, name, 0, threading.Lock()

    def job(self, options, env):
        with self.lock:
            self.count += 1
            out = f"{self.name}-{self.count}"
        model = "mnist_cnn" if options == NORMS else "mlp"
        command = self.jobs.command(out, "--steps", "4", "--epochs", "9", "--plan-cache", "off", "--dist-timeout", "8", *options, model=model)
        scratch = self.jobs.folder / f"mpi-{out}"  # several mpirun at once would create the same folders
        scratch.mkdir()
        begin = time.monotonic()
        job = self.jobs.start("-np", "2", *command, env={**TWO_GPUS, **env, "TMPDIR": str(scratch)})
        said = job.communicate(timeout=LIMIT_S)[1]
        self.left_no_process(out)
        return self.jobs.folder / out, job.returncode, said, time.monotonic() - begin

    def left_no_process(self, out):
        until = time.monotonic() + 5
        while left := self.processes(out):
            assert time.monotonic() < until, f"{out}: processes {left} are left"
            time.sleep(0.05)

    def processes(self, out):
        wanted = str(self.jobs.folder / out).encode()
        left = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if wanted in path.read_bytes().split(b"\0"):
                    left.append(path.parent.name)
            except OSError:
                pass  # has ended
        return left

    def require(self, what, rank, call, job):
        """One line of the rank that names the call."""
        run, code, said, seconds = job
        errors = [line for line in said.splitlines() if line.startswith("warpstep train: ")]
        where = f"{what}: exit code {code} after {seconds:.1f} s\n{said}"
        assert code == 1 and len(errors) == 1, where
        assert errors[0].startswith(f"warpstep train: rank {rank}: ") and call in errors[0], where
        saved = list(run.glob("checkpoint-*.safetensors"))
        assert not list(run.glob("*.tmp*")), where
        if saved:
            assert tensors(run), where
            named = re.search(r"the last checkpoint saved is (\S+); start the job again", errors[0])
            # Rank 0 may save one while another rank fails.
            assert named and named[1] == str(max(saved)) if rank == 0 else not named or pathlib.Path(named[1]) in saved, where
        return len(saved)

    def fails(self, function, rank, options, call):
        """False where the run ended before that call."""
        job = self.job(options, {"NCCL_STAND_IN_FAIL": f"{rank}:{function}:{call}:{INTERNAL}"})
        if job[1] == 0:
            return False
        self.require(f"{function} {call} of rank {rank}, {options}", rank, f"NCCL: {function} failed: internal error", job)
        return True

    def every(self, function, rank, options):
        call, failed = 1, 0
        while self.fails(function, rank, options, call):
            failed += 1
            # How often a rank asks for errors depends on how long it waits.
            call = call * 2 if function == "ncclCommGetAsyncError" else call + 1
        assert failed > 0, f"{function} was not called"
        print(f"{function} of rank {rank}: {failed} jobs, each failed at another call", flush=True)


def sample(jobs):
    walk = Walk(jobs, "sample")

    def one(case):
        function, rank, options, call = case
        assert walk.fails(function, rank, options, call) == (call < 1000), case

    cases = [(function, rank, options, call) for function, rank, options, calls in FUNCTIONS for call in calls]
    with concurrent.futures.ThreadPoolExecutor(3) as pool:  # jobs that fail mostly wait
        list(pool.map(one, cases))


def every(jobs):
    walk = Walk(jobs, "every")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda case: walk.every(*case), list(dict.fromkeys(case[:3] for case in FUNCTIONS))))


def hangs(jobs):
    """A call that does not return; an exchange that breaks while ncclCommAbort does not return either."""
    walk = Walk(jobs, "hangs")
    job = walk.job((), {"NCCL_STAND_IN_FAIL": f"1:ncclCommInitRank:1:{HANGS}", "NCCL_STAND_IN_PATIENCE": "600"})
    walk.require("a hanging start", 0, "s before the first step for an exchange between the GPUs of all ranks: rank 0 starts for", job)
    job = walk.job(EAGER, {"NCCL_STAND_IN_FAIL": f"1:ncclAllReduce:5:{HANGS}", "NCCL_STAND_IN_PATIENCE": "3"})
    assert walk.require("a hanging sum", 0, "; rank 1 computes step", job) > 0
    job = walk.job(EAGER, {"NCCL_STAND_IN_ASYNC": f"1:5:{INTERNAL}", "NCCL_STAND_IN_FAIL": f"1:ncclCommAbort:1:{HANGS}"})
    assert walk.require("a hanging end", 1, "NCCL: an exchange with other ranks failed: internal error", job) > 0


def unsaved(jobs):
    """Rank 0 alone fails, at a directory in place of a checkpoint: it must not wait for rank 1, whose steps wait for it."""
    out = jobs.folder / "unsaved"
    job = jobs.start("-np", "2", *jobs.command("unsaved", "--steps", "1000000", "--epochs", "0", "--plan-cache", "off", "--checkpoint-every", "5",
                                               "--dist-timeout", "30"), env={**TWO_GPUS, "NCCL_STAND_IN_PATIENCE": "600"})
    until = time.monotonic() + LIMIT_S
    while not (out / "config.json").exists() and time.monotonic() < until:
        time.sleep(0.02)
    (out / "checkpoint-00000005.safetensors").mkdir()
    begin = time.monotonic()
    said = job.communicate(timeout=LIMIT_S)[1]
    errors = [line for line in said.splitlines() if line.startswith("warpstep train: ")]
    assert job.returncode == 1 and len(errors) == 1 and errors[0].startswith("warpstep train: rank 0: "), said
    assert "checkpoint-00000005.safetensors" in errors[0], said
    assert time.monotonic() - begin < 20, "rank 0 waited for rank 1"


def clean_up():
    """Memory of jobs that ended while the library started."""
    for path in pathlib.Path("/dev/shm").glob("nccl-stand-in-*"):
        if not pathlib.Path(f"/proc/{path.name.split('-')[3]}").exists():
            path.unlink(missing_ok=True)


if __name__ == "__main__":
    stage = pathlib.Path(sys.argv[1])
    os.environ["LD_LIBRARY_PATH"] = str(stage / "lib")
    atexit.register(clean_up)
    sys.exit(run((every if "--every" in sys.argv else sample, hangs, unsaved), stage / "bin/warpstep", "cuda"))
