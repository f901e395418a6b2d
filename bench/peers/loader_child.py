#!/usr/bin/env python3
"""Another loader in a separate process, under the line protocol of loader_peers.py.

    window K    read K batches; {"seconds", "cpu_seconds" with those of its workers, "images"}
    first K     K fresh loaders; {"seconds": median from iter() to the first batch}
    gap K       K epochs; {"first_s", "other_s": medians of the wait for an epoch's first batch and for others, "step_s"}
    dump FILE   write the first batch's images; {}
    quit        end
"""
import argparse
import json
import statistics
import sys
import time

import loader_sources
import torch


def cpu_s(source):
    # Linux numbers the clock of another process's CPU time so (clock_getcpuclockid(3)).
    return time.process_time() + sum(time.clock_gettime((~pid << 3) | 2) for pid in source.processes())


def window(source, batches):
    """Workers that go on between windows are counted on: what they make then is taken in the next one."""
    began, images = time.perf_counter(), 0
    cpu_began = source.counted_cpu_s if source.goes_on else cpu_s(source)
    for batch in source.epoch(batches):
        images += len(batch[0])
    source.counted_cpu_s = cpu_s(source)
    return {"seconds": time.perf_counter() - began, "cpu_seconds": source.counted_cpu_s - cpu_began, "images": images}


def first(make, repeats):
    seconds = []
    for _ in range(repeats):
        source = make()
        began = time.perf_counter()
        batches = source.epoch(8)
        next(batches)
        seconds.append(time.perf_counter() - began)
        del batches, source
    return {"seconds": statistics.median(seconds)}


def gap(source, epochs):
    firsts, others = [], []
    began = time.perf_counter()
    for epoch in range(epochs):
        last = time.perf_counter()
        for place, _ in enumerate(source.epoch(12)):
            now = time.perf_counter()
            if epoch > 0:
                (others if place else firsts).append(now - last)
            last = now
    return {"first_s": statistics.median(firsts), "other_s": statistics.median(others),
            "step_s": (time.perf_counter() - began) / epochs / 12}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loader", choices=["pil", "torchvision", "npy", "npy-gather", "dali", "webdataset", "spdl", "warpstep"])
    parser.add_argument("data")
    parser.add_argument("--transforms", default="none", choices=loader_sources.TRANSFORMS)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--prefetch", type=int, default=2)
    parser.add_argument("--in-order", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)

    def make():
        return loader_sources.make(options.loader, options.data, options.batch, options.workers, options.prefetch,
                                   options.transforms, not options.in_order)

    source = make()
    for line in sys.stdin:
        command, *argument = line.split()
        if command == "quit":
            break
        if command == "window":
            answer = window(source, int(argument[0]))
        elif command == "first":
            answer = first(make, int(argument[0]))
        elif command == "gap":
            answer = gap(source, int(argument[0]))
        elif command == "dump":
            images = next(iter(source.epoch(1)))[0]
            if options.loader == "dali":
                images = torch.from_numpy(images.as_array()).permute(0, 3, 1, 2)
            images.contiguous().numpy().tofile(argument[0])
            answer = {}
        else:
            sys.exit(f"loader_child.py: unknown command {command!r}")
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
