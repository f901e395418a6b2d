#!/usr/bin/env python3
"""Data-parallel jobs on emulated GPUs, with tests/cuda_on_cpu/nccl_stand_in.cpp in place of NCCL.

    python3 tests/ranks_cuda_test.py build/release/cuda_emulated

Exit code 77 where mpirun is not installed.
"""
import json
import os
import pathlib
import subprocess
import sys

from ranks_test import floats, global_batch, losses, run, tensors

# Small buckets, so that this model's gradients fill several.
TWO_GPUS = {"WARPSTEP_FAKE_DEVICES": "2", "WARPSTEP_BUCKET_MIB": "0.05"}


def train(jobs, out, *options, env=TWO_GPUS, ranks=2):
    job = jobs.start("-np", str(ranks), *jobs.command(out, "--steps", "4", "--epochs", "9", "--plan-cache", "off", "--deterministic",
                                                      *options), env=env)
    said = job.communicate(timeout=200)[1]
    return job.returncode, said


def trained(jobs, out, *options, env=TWO_GPUS):
    code, said = train(jobs, out, *options, env=env)
    assert code == 0, said
    return tensors(jobs.folder / out)


def equal_bits(jobs):
    """Captured steps, calls one by one, and one process that accumulates."""
    for precision in ("fp32", "fp16"):
        expected = trained(jobs, f"graph-{precision}", "--precision", precision)
        calls = trained(jobs, f"calls-{precision}", "--precision", precision, "--no-graph")
        assert calls == expected, f"{precision}: a captured step differs from its calls"
    one_bucket = trained(jobs, "one-bucket", env={**TWO_GPUS, "WARPSTEP_BUCKET_MIB": "0"})
    assert one_bucket == tensors(jobs.folder / "graph-fp32"), "buckets change the result"
    alone = jobs.command("alone", "--steps", "8", "--epochs", "9", "--accumulate", "2", "--plan-cache", "off", "--deterministic")
    subprocess.run([*alone, "--dist", "none"], check=True, capture_output=True, timeout=200)
    assert tensors(jobs.folder / "graph-fp32") == tensors(jobs.folder / "alone"), "2 ranks differ from one"


def reordered(jobs):
    """Replays under schedules in which an exchange that does not wait for its gradients comes before them."""
    for precision, schedule in (("fp32", "2"), ("fp16", "3")):
        shuffled = trained(jobs, f"shuffled-{precision}", "--precision", precision,
                           env={**TWO_GPUS, "WARPSTEP_SIMT_SCHEDULE": schedule})
        assert shuffled == tensors(jobs.folder / f"graph-{precision}"), f"{precision}: a replay in another order differs"


def accumulating(jobs):
    """A step that only accumulates exchanges nothing: two recordings."""
    options = ("--accumulate", "3", "--checkpoint-every", "3")
    expected = trained(jobs, "accumulated", *options)
    assert trained(jobs, "accumulated-calls", *options, "--no-graph") == expected


def one_exchange(jobs):
    """Four steps that accumulate three have one update, and so one exchange: a second one would fail."""
    trained(jobs, "counted", "--accumulate", "3", "--checkpoint-every", "3", env={**TWO_GPUS, "NCCL_STAND_IN_ASYNC": "0:2:6"})


def skipped(jobs):
    """The gradients of one rank overflow in a step that only accumulates: all ranks skip the update, as one process does."""
    jobs.idx_data("one-white", 64, 16, lambda image: bytes([255 if image == 0 else 128]) * 64)
    options = ("--precision", "fp16", "--mean", "0.5019607843", "--std", "0.000001", "--lr", "1e-5", "--epochs", "1", "--no-graph", "--plan-cache",
               "off", "--log-every", "1")
    for seed in ("0", "1", "2"):  # of the last the white image is in the step that updates
        out = jobs.folder / f"skipped-{seed}"
        parts = jobs.command(out.name, *options, "--accumulate", "2", "--seed", seed, data="one-white")
        said = (job := jobs.start("-np", "2", *parts, env=TWO_GPUS)).communicate(timeout=200)[1]
        assert job.returncode == 0, said
        counts = [[line["skipped_steps"] for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
                   if line["kind"] == "step"] for run in (out, out / "ranks/1")]
        assert counts[0] == counts[1] and counts[0][-1] == 1, counts


def whole_batch(jobs):
    """Batch norms of all ranks' rows: two ranks compute what one computes of both batches."""
    options = ("--steps", "4", "--epochs", "9", "--plan-cache", "off", "--deterministic", "--optimizer", "sgd", "--lr", "0.05",
               "--log-every", "1", "--sync-bn")
    job = jobs.start("-np", "2", *global_batch(16, jobs.command("sync", *options, model="mnist_cnn")), env=TWO_GPUS)
    said = job.communicate(timeout=200)[1]
    assert job.returncode == 0, said
    alone = global_batch(16, jobs.command("unsplit", *options, model="mnist_cnn"))
    subprocess.run([*alone, "--dist", "none"], check=True, capture_output=True, timeout=200)
    sync, unsplit = losses(jobs.folder / "sync"), losses(jobs.folder / "unsplit")
    assert len(sync) == 4 and all(abs(a - b) <= 2e-5 * abs(b) for a, b in zip(sync, unsplit)), list(zip(sync, unsplit))
    statistics = [floats(tensors(jobs.folder / run)["bn.running_var"]) for run in ("sync", "unsplit")]
    assert all(abs(a - b) <= 1e-4 * abs(b) for a, b in zip(*statistics)), statistics


def shares(jobs):
    """Moments that ranks share out: equal bits, in 16 bits, clipped, over buckets and summed over steps."""
    for precision, more in (("fp32", ("--clip-norm", "0.5")), ("fp16", ("--ema", "0.9")), ("fp16", ("--accumulate", "2"))):
        options = ("--precision", precision, *more)
        name = f"{precision}{more[0]}"
        expected = trained(jobs, f"plain-{name}", *options)
        assert trained(jobs, f"shared-{name}", *options, "--shard-optimizer", "on") == expected, f"{name}: shared moments change the result"


def failures(jobs):
    code, said = train(jobs, "one-gpu", env={"WARPSTEP_FAKE_DEVICES": "1"})
    assert code != 0 and "ranks 0 and 1 both use the GPU at 0000:01:00.0" in said, said
    def auto(out, *more, env):  # options of rank 1
        parts = jobs.command(out, "--steps", "4", "--epochs", "9", "--plan-cache", "off")
        parts[parts.index("--device") + 1] = "auto"
        job = jobs.start("-np", "1", *parts, ":", "-np", "1", *more, *parts, env=env)
        return job.communicate(timeout=60)[1], job.returncode

    said, code = auto("auto-one-gpu", env={"WARPSTEP_FAKE_DEVICES": "1"})
    assert code != 0 and "ranks 0 and 1 both use the GPU at 0000:01:00.0" in said, said
    said, code = auto("auto-none", "-x", "WARPSTEP_FAKE_DEVICES=0", env=TWO_GPUS)
    assert code == 2 and "rank 1 can use no GPU: " in said and "rank 0 can: give --device cpu" in said, said
    code, said = train(jobs, "too-many", ranks=3)
    assert code != 0 and "rank 2 is number 3 of 3 on this machine, which has 2 CUDA devices" in said, said
    smaller = ("-x", "WARPSTEP_BUCKET_MIB=0.02", "-x", "WARPSTEP_FAKE_DEVICES=2")
    parts = jobs.command("buckets", "--steps", "4", "--epochs", "9", "--plan-cache", "off")
    job = jobs.start("-np", "1", *parts, ":", "-np", "1", *smaller, *parts, env=TWO_GPUS)
    said = job.communicate(timeout=60)[1]
    assert job.returncode == 2 and "rank 1 differs from rank 0 in exchange/bucket_bytes: 20971 instead of" in said, said
    for run in ("1", "5"):
        code, said = train(jobs, f"broken-{run}", env={**TWO_GPUS, "NCCL_STAND_IN_ASYNC": f"0:{run}:6"})
        assert code != 0 and "NCCL: an exchange with other ranks failed: remote process exited" in said, said


if __name__ == "__main__":
    stage = pathlib.Path(sys.argv[1])
    os.environ["LD_LIBRARY_PATH"] = str(stage / "lib")
    tests = (equal_bits, reordered, accumulating, one_exchange, skipped, whole_batch, shares, failures)
    sys.exit(run(tests, stage / "bin/warpstep", "cuda"))
