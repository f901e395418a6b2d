#!/usr/bin/env python3
"""Data-parallel jobs of two ranks on real GPUs, with NCCL: the bits of one process, and ranks that fail.

    python3 tests/ranks_gpu_test.py build/release/bin/warpstep

Each rank has a GPU of its own if there are two. On a machine with one, both use it: NCCL refuses that on one machine, so each rank has
a host name of its own (`unshare --uts`, for which root or user namespaces are needed), and they are connected by sockets, as those of
two machines are. Exit code 77 where that is not possible.
"""
import ctypes
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

from ranks_cuda_test import TWO_GPUS, accumulating, equal_bits, shares, skipped, whole_batch
from ranks_test import Jobs, free_port, run_jobs

RENAMED = 'hostname "$0" && exec "$@"'  # for sh -c, with the name


def gpus():
    """How many there are; -1 without a driver."""
    try:
        driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(0)
    except OSError:
        return -1
    try:
        driver.cuInit(0)
        driver.cuDeviceGetCount(ctypes.byref(count))
        return count.value
    except AttributeError:  # a stand-in
        return 0


def own_names():
    """What starts a program that may have another host name than this machine; None where nothing does."""
    for start in (["unshare", "--uts"], ["unshare", "--uts", "--map-root-user"]):
        try:
            if subprocess.run([*start, "sh", "-c", RENAMED, "another", "true"], capture_output=True).returncode == 0:
                return start
        except FileNotFoundError:
            return None
    return None


class Ranks:
    """The processes of a job, as one."""

    def __init__(self, processes):
        self.processes = processes

    def communicate(self, timeout):
        until = time.monotonic() + timeout
        return None, "".join(process.communicate(timeout=max(until - time.monotonic(), 1))[1] for process in self.processes)

    @property
    def returncode(self):
        return next((process.returncode for process in self.processes if process.returncode != 0), 0)


class OneByOne(Jobs):
    """Ranks without a launcher, which would end one when another fails."""

    def start(self, *parts, env={}):
        assert parts[:2] == ("-np", "2"), parts
        port, processes = free_port(), []
        for rank in range(2):
            of_rank = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2",
                       "MASTER_ADDR": "localhost", "WARPSTEP_PORT": port}
            begin = []
            if gpus() < 2:
                begin = [*own_names(), "sh", "-c", RENAMED, f"rank-{rank}"]
                of_rank |= {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "NCCL_HOSTID": f"rank-{rank}", "NCCL_SOCKET_IFNAME": "lo"}
            processes.append(subprocess.Popen([*begin, *parts[2:], "--dist", "env"], env={**os.environ, **env, **of_rank},
                                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
        self.started += processes
        return Ranks(processes)


def running(jobs, out, *options):
    """A job that would go on for hours, and is in its steps."""
    job = jobs.start("-np", "2", *jobs.command(out, "--steps", "100000000", "--epochs", "0", "--plan-cache", "off", "--log-every", "1",
                                               *options))
    metrics = jobs.folder / out / "metrics.jsonl"
    until = time.monotonic() + 60
    while not (metrics.exists() and metrics.read_text().count("step") > 20) and time.monotonic() < until:
        time.sleep(0.05)
    return job


def ended(job, begin):
    """What rank 0 says of a job that cannot go on."""
    said = job.processes[0].communicate(timeout=60)[1]
    took = time.monotonic() - begin
    assert took < 15 and job.processes[0].returncode == 1, f"exit code {job.processes[0].returncode} after {took:.1f} s: {said}"
    return said


def killed(jobs):
    """A rank that dies, while the other waits for it on its GPU, ends the job."""
    job, begin = running(jobs, "killed"), time.monotonic()
    job.processes[1].kill()
    job.processes[1].wait()
    said = ended(job, begin)
    assert "warpstep train: rank 0: " in said and "rank 1" in said, said


def hung(jobs):
    """So does one that hangs, after --dist-timeout. Of processes of other machines it is not known which one that is."""
    job, begin = running(jobs, "hung", "--dist-timeout", "4"), time.monotonic()
    job.processes[1].send_signal(signal.SIGSTOP)
    try:
        said = ended(job, begin)
    finally:
        job.processes[1].kill()
    assert re.search(r"warpstep train: rank 0: waited 4\.\d s .*for an exchange between the GPUs of all ranks", said), said


def interrupted(jobs):
    """SIGTERM to one rank ends all after the same step, with one checkpoint."""
    job = running(jobs, "interrupted")
    job.processes[1].terminate()
    said = job.communicate(timeout=60)[1]
    steps = [max(json.loads(line).get("step", 0) for line in (jobs.folder / run / "metrics.jsonl").read_text().splitlines())
             for run in ("interrupted", "interrupted/ranks/1")]
    saved = [path.stem for path in (jobs.folder / "interrupted").glob("checkpoint-*.safetensors")]
    assert steps[0] == steps[1] and saved == [f"checkpoint-{steps[0]:08}"], (steps, saved, said)


if __name__ == "__main__":
    if gpus() < 0:
        print("SKIPPED: no NVIDIA driver on this machine (libcuda.so.1 not found)")
        sys.exit(77)
    if gpus() < 2 and not own_names():
        print("SKIPPED: no program may have a host name of its own here: run as root")
        sys.exit(77)
    tests = (equal_bits, accumulating, skipped, whole_batch, shares, killed, hung, interrupted)
    sys.exit(run_jobs(tests, OneByOne, sys.argv[1], "cuda"))
