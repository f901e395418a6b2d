#!/usr/bin/env python3
"""torch.profiler's cost per training step of cifar10cnn: blocks of steps with it off, with its minimum, and with shapes,
stacks and memory, in turn in one process. The peer of bench/profile_overhead.cpp, with the same output.

    python bench/peers/profiler_overhead.py [--threads 2] [--rounds 20] [--steps 14]
"""
import argparse
import pathlib
import statistics
import sys
import tempfile
import time

import numpy as np
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/golden"))
import models  # noqa: E402

LEVELS = {"off": None, "minimal": {}, "full": {"record_shapes": True, "with_stack": True, "profile_memory": True}}
SKIPPED = 2  # steps of a block that are not counted: as in the peer, starting up is not part of a step's cost


def median_interval(values, rng):
    medians = [np.median(rng.choice(values, len(values))) for _ in range(4000)]
    return np.percentile(medians, [2.5, 97.5])


class Block:
    """Steps under one level."""

    def __init__(self, args):
        torch.manual_seed(1)
        self.args = args
        self.model = models.Cifar10Cnn().to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4, fused=True)
        self.x = torch.rand(args.batch, 3, 32, 32).to(memory_format=torch.channels_last)
        self.label = torch.randint(0, 10, (args.batch,))

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(self.model(self.x), self.label)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def run(self, level):
        """Median seconds per step, bytes of trace per step, seconds from the window's end to the file."""
        times, folder = [], tempfile.TemporaryDirectory()
        path = pathlib.Path(folder.name) / "trace.json"
        profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU],
                                          **LEVELS[level]) if LEVELS[level] is not None else None
        if profiler:
            profiler.start()
        for i in range(self.args.steps):
            begin = time.perf_counter()
            self.step()
            if profiler:
                profiler.step()
            if i >= SKIPPED:
                times.append(time.perf_counter() - begin)
        if not profiler:
            return statistics.median(times), 0, 0
        begin = time.perf_counter()
        profiler.stop()
        profiler.export_chrome_trace(str(path))
        after = time.perf_counter() - begin
        return statistics.median(times), path.stat().st_size / self.args.steps, after


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=14)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    block = Block(args)
    block.run("off")
    shares, last = {level: [] for level in LEVELS}, {}
    names = list(LEVELS)
    for i in range(args.rounds):
        for level in names[i % 3:] + names[:i % 3]:
            last[level] = block.run(level)
        for level in LEVELS:
            shares[level].append(last[level][0] / last["off"][0] - 1)
    print(f"PyTorch {torch.__version__}, batch {args.batch}: {args.rounds} rounds of {args.steps} steps per level, "
          f"step {1000 * last['off'][0]:.2f} ms")
    rng = np.random.default_rng(1)
    for level in names[1:]:
        low, high = median_interval(np.array(shares[level]), rng)
        print(f"{level:8} {100 * np.median(shares[level]):+.2f} % (95 %: {100 * low:+.2f} to {100 * high:+.2f} %), "
              f"{last[level][1]:.0f} bytes per step, {last[level][2]:.3f} s after the window")


if __name__ == "__main__":
    main()
