#!/usr/bin/env python3
"""Compares the loader with other loaders, on the same files with equal pixels, in turn on one machine.

    loader_peers.py --cifar PNG_FOLDER --bin build/release/bin [--work FOLDER] [--rounds 9] [--only CASE ...]

It compares images per CPU-second, including workers; the ratio is the median over neighbouring windows, with its
quartiles. Each case has a gate; exits with 1 if one fails.

- Pixels: both sides must give the same pixels for 32 images without random transforms, otherwise there is no ratio. But two cases,
  "u8 to optimised", compare what a course's loader did with what ours does in its place: ours stops at a crop's bytes, as mask, YUV
  and f32 are the device's work.
- The peer is the best of 0, 1 and 2 workers with 2 and 4 batches ahead: workers are kept from epoch to epoch, memory is not
  pinned, each has one thread. Ours has one worker.
- A peer's window is a whole epoch, so that its workers idle before and after; ours counts the images its workers finish
  meanwhile.
- "original" and "optimised" are two orders of crop, random mask, dilation and YUV; both give f32. "u8" stops at bytes.
- First batch: theirs from iter(), including the start of workers, because a run waits for that; kept workers help only later
  epochs ("epoch gap"). Both sides have two workers.
- Memory: growth of the process tree's proportional set size since before its first batch, against the larger of our bound
  and our measured growth. Both sides make f32 with as many workers.
"""
import argparse
import json
import os
import statistics
import sys
import tempfile

import loader_cases
import loader_data
from loader_process import LoaderProcess, tree_memory

WINDOW_S = 0.5  # that a window should take
SURVEY = 2  # windows for each setting of a peer


def per_cpu_second(answer):
    return answer["images"] / answer["cpu_seconds"]


def warmed(process):
    """Sets how many batches a window has, and runs one."""
    process.ask("window 2")
    answer = process.ask("window 8")
    process.batches = max(4, round(8 * WINDOW_S / answer["seconds"]))
    process.ask(f"window {process.batches}")
    return process


def best_of(settings):
    """The setting of a peer with the most images per CPU-second, and the figure of each."""
    running = [warmed(LoaderProcess(setting.name, setting.command)) for setting in settings]
    found = {process.name: [] for process in running}
    for _ in range(SURVEY):
        for process in running:
            found[process.name].append(per_cpu_second(process.ask(f"window {process.batches}")))
    for process in running:
        process.quit()
    figures = {name: statistics.median(values) for name, values in found.items()}
    return max(settings, key=lambda setting: figures[setting.name]), figures


def surveyed(case):
    """What a survey is of: settings of one name may read other files."""
    return tuple(tuple(setting.command) for setting in case.peers)


def compare(case, rounds, surveys):
    """Windows in turn against the best setting; `surveys` keeps what is known of the settings."""
    key = surveyed(case)
    if key not in surveys:
        surveys[key] = best_of(case.peers)
    peer, survey = surveys[key]
    theirs, ours = (warmed(LoaderProcess(setting.name, setting.command)) for setting in (peer, case.ours))
    pairs = []
    for _ in range(rounds):
        answers = [process.ask(f"window {process.batches}") for process in (theirs, ours)]
        pairs.append(answers)
    theirs.quit()
    ours.quit()
    ratios = [per_cpu_second(b) / per_cpu_second(a) for a, b in pairs]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return {"case": case.name, "peer": peer.name, "survey": survey,
            "theirs": statistics.median(per_cpu_second(a) for a, _ in pairs),
            "ours": statistics.median(per_cpu_second(b) for _, b in pairs),
            "theirs_wall": statistics.median(a["images"] / a["seconds"] for a, _ in pairs),
            "ours_wall": statistics.median(b["images"] / b["seconds"] for _, b in pairs),
            "ratio": middle, "p25": low, "p75": high, "gate": case.gate}


def report(row):
    gate, verdict, ratio = "-", "", ""
    if "ratio" in row:
        ratio = f"{row['ratio']:.2f} ({row['p25']:.2f}..{row['p75']:.2f})" if "p25" in row else f"{row['ratio']:.2f}"
    if row.get("most") is not None:  # of ours
        gate, verdict = f"<= {row['most']:g}", "pass" if row["ours"] <= row["most"] else "FAIL"
    elif row["gate"] is not None:  # of the ratio
        gate, verdict = f">= {row['gate']:g}", "pass" if row["ratio"] >= row["gate"] else "FAIL"
    print(f"{row['case']:<34} {row['peer']:<26} {row['theirs']:>11,.4g} {row['ours']:>11,.4g} {ratio:>22} {gate:>8} "
          f"{verdict}", flush=True)
    for name, figure in row.get("survey", {}).items():
        print(f"    {name:<40} {figure:>11,.4g}")
    return verdict != "FAIL"


def latency_rows(sets, cases, options):
    """First batch, an epoch's beginning, memory: seconds and bytes, where less is better and the ratio is theirs to ours."""
    rows = []
    for name, ours, peer in cases:
        found = json.loads(loader_cases.run(ours.command + ["--json"]))
        process = LoaderProcess(peer.name, peer.command)
        first = process.ask("first 5")["seconds"]
        gap = process.ask("gap 6")
        process.quit()
        step = found["batch"] / found["images_per_s"]
        our_gap = max(found["epoch_first_next_s"] - found["other_next_s"], 0)
        rows.append({"case": f"first batch, {name}, ms", "peer": peer.name, "theirs": 1e3 * first,
                     "ours": 1e3 * found["first_batch_s"], "ratio": first / found["first_batch_s"], "gate": 10})
        rows.append({"case": f"epoch gap, {name}, steps", "peer": peer.name,
                     "theirs": max(gap["first_s"] - gap["other_s"], 0) / gap["step_s"], "ours": our_gap / step,
                     "most": 1})
        # Beyond the batch that must be made anyway; the peer has nothing but to replay the epoch.
        rows.append({"case": f"resuming in an epoch, {name}, ms", "peer": "half an epoch replayed",
                     "theirs": 1e3 * gap["step_s"] * found["steps_per_epoch"] / 2,
                     "ours": 1e3 * max(found["resume_s"] - found["first_batch_s"], 0), "most": 10})
    for name, ours, peer in loader_cases.memory(sets, options):
        bound = json.loads(loader_cases.run(ours.command + ["--json"]))["memory"]
        process = LoaderProcess(peer.name, peer.command)
        before = tree_memory(process.pid)
        theirs = process.peak_memory("window 24") - before
        process.quit()
        held = max(bound["anonymous_bytes"], bound["bound_bytes"])
        rows.append({"case": f"memory, {name}, MiB", "peer": peer.name, "theirs": theirs / 2**20, "ours": held / 2**20,
                     "ratio": theirs / held, "gate": 5})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cifar", help="a folder with train/, PNG files of one size and labels.pkl")
    parser.add_argument("--bin", default="build/release/bin", help="where warpstep and loader_bench are")
    parser.add_argument("--work", help="where data sets are made, and kept for the next run; else a temporary folder")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", nargs="*", default=[], help="cases whose name contains one of these")
    parser.add_argument("--out", help="write all rows as JSON")
    options = parser.parse_args()
    options.cifar = options.cifar and os.path.abspath(options.cifar)
    with tempfile.TemporaryDirectory() as temporary:
        sets = loader_data.Sets(options.work or temporary, f"{options.bin}/warpstep", options.cifar)
        print(loader_cases.versions(), f"; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", sep="")
        loader_cases.check_equal_pixels(sets, options)
        loader_cases.check_python_pixels(sets)
        print(f"{'case':<34} {'peer, its best setting':<26} {'theirs':>11} {'ours':>11} {'ratio (quartiles)':>22} {'gate':>8}")
        passed, rows, surveys = True, [], {}
        wanted = [case for case in loader_cases.throughput(sets, options) + loader_cases.skipped()
                  if not options.only or any(word in case.name for word in options.only)]
        for case in wanted:
            if case.why_not:
                print(f"{case.name:<34} skipped: {case.why_not}")
                continue
            rows.append(compare(case, options.rounds, surveys))
            passed &= report(rows[-1])
        if not options.only or "latency" in options.only:
            for row in latency_rows(sets, loader_cases.latency(sets, options), options):
                rows.append(row)
                passed &= report(row)
        print(f"load at the end {os.getloadavg()[0]:.1f}")
        if options.out:
            with open(options.out, "w", encoding="utf-8") as file:
                json.dump(rows, file, indent=1)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
