#!/usr/bin/env python3
"""cifar10cnn on two cores: one process with two threads, two ranks with one each (also with --shard-optimizer off), and PyTorch's
DistributedDataParallel (gloo) with one each, in turn; and sums of as many floats as it has gradients, ours and gloo's.

    python bench/peers/data_parallel.py --data FOLDER [--rounds 5] [--steps 60] [--batch 64] [--build build/release]

A round has a run of each. Ours are whole `warpstep train` runs on FOLDER, batches of 2 x BATCH, timed by their own summary (the first
steps included); PyTorch's has its batch in memory, no loader, a malloc that keeps its memory between steps,
and is timed after ten steps. Prints images/s of all, and ratios.
"""
import argparse
import json
import os
import pathlib
import queue
import statistics
import subprocess
import sys
import tempfile
import time
from unittest import mock

from pytorch_step import KEEP

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLOATS = 4_300_000
MPIRUN = ["mpirun", "--bind-to", "none"]
ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}


def pytorch_rank(rank, args, port, answers):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    import torch
    import torch.distributed as dist

    sys.path.insert(0, str(ROOT / "tests/golden"))
    import models

    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(models.Cifar10Cnn().to(memory_format=torch.channels_last))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    x = torch.rand(args.batch, 3, 32, 32).to(memory_format=torch.channels_last)
    label = torch.randint(0, 10, (args.batch,))

    def step():
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(x), label).backward()
        optimizer.step()

    for _ in range(10):
        step()
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(args.steps):
        step()
    dist.barrier()
    images = 2 * args.batch * args.steps / (time.perf_counter() - begin)
    values, times = torch.ones(FLOATS), []
    for number in range(25):
        dist.barrier()
        begin = time.perf_counter()
        dist.all_reduce(values)
        if number >= 5:
            times.append(1e3 * (time.perf_counter() - begin))
    if rank == 0:
        answers.put((images, statistics.median(times)))
    dist.destroy_process_group()


def pytorch(args, number):
    import torch.multiprocessing as processes

    context = processes.get_context("spawn")
    answers, answer, end = context.Queue(), None, time.monotonic() + 900
    ranks = [context.Process(target=pytorch_rank, args=(rank, args, 29600 + number, answers)) for rank in range(2)]
    with mock.patch.dict(os.environ, KEEP):  # for these ranks alone: ours run as users start them
        for one in ranks:
            one.start()
    try:
        while answer is None:
            try:
                answer = answers.get(timeout=1)
            except queue.Empty:
                codes = [one.exitcode for one in ranks]
                if any(codes) or time.monotonic() > end:
                    sys.exit(f"PyTorch's ranks gave no answer; their exit codes: {codes}")
    finally:
        for one in ranks:
            one.join(30 if answer else 1)
            if one.is_alive():
                one.kill()
                one.join()
    return answer


def ours(args, folder, name, ranks, *more):
    out = pathlib.Path(folder) / name
    command = [args.build / "bin/warpstep", "train", "cifar10cnn", "--data", args.data, "--device", "cpu", "--global-batch",
               str(2 * args.batch), "--threads", str(2 // ranks), "--workers", "1", "--steps", str(args.steps + 10), "--epochs", "0",
               "--profile", "off", "--eval-every", "1000000", "--out", out, *more]
    command = [*MPIRUN, "-np", str(ranks), *command] if ranks > 1 else [*command, "--dist", "none"]
    done = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads((out / "summary.json").read_text())["images_per_second"]


def all_reduce(args):
    done = subprocess.run([*MPIRUN, "-np", "2", args.build / "bin/exchange_bench", str(FLOATS)], env={**os.environ, **ENVIRONMENT},
                          capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    line = next(line for line in done.stdout.splitlines() if line.startswith("sum "))
    return float(line.split()[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--without-peer", action="store_true", help="ours alone: no PyTorch is needed")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TMPDIR"] = folder
        for number in range(args.rounds):
            one, two = ours(args, folder, f"one-{number}", 1), ours(args, folder, f"two-{number}", 2, "--shard-optimizer", "off")
            shares = ours(args, folder, f"shares-{number}", 2)
            peer = (float("nan"), float("nan")) if args.without_peer else pytorch(args, number)
            rows.append((one, two, shares, peer[0], all_reduce(args), peer[1]))
            print("1 x 2 {:.0f} images/s, 2 x 1 {:.0f}, in shares {:.0f}, DDP {:.0f}; sum {:.1f} ms, gloo {:.1f} ms".format(*rows[-1]), flush=True)
    for name, top, bottom in (("2 x 1 against 1 x 2", 1, 0), ("2 x 1 in shares against 1 x 2", 2, 0), ("2 x 1 against DDP", 1, 3),
                              ("gloo's sum against ours", 5, 4)):
        ratios = sorted(row[top] / row[bottom] for row in rows)
        print(f"{name}: {statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})")


if __name__ == "__main__":
    main()
