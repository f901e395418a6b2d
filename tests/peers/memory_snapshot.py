#!/usr/bin/env python3
"""Opens `warpstep export --memory` with torch.cuda._memory_viz and compares it with the report's memory table.

Run by hand, where PyTorch (CPU suffices) is installed:

    python tests/peers/memory_snapshot.py build/release/bin/warpstep RUN...

Exits with 1 if something differs. It does not run the page https://pytorch.org/memory_viz itself.
"""
import argparse
import csv
import json
import pathlib
import pickle
import subprocess
import sys
import tempfile

from torch.cuda import _memory_viz


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("warpstep")
    options.add_argument("run", nargs="+")
    options = options.parse_args()
    failures = 0
    for run in options.run:
        with tempfile.TemporaryDirectory() as work:
            folder = pathlib.Path(work)
            subprocess.run([options.warpstep, "export", run, "--memory", "--csv", "--out", work], check=True,
                           stdout=subprocess.DEVNULL)
            snapshot = pickle.loads((folder / "memory/snapshot.pickle").read_bytes())
            with open(folder / "tables/memory.csv", encoding="utf-8") as file:
                rows = [row for row in csv.DictReader(file) if int(row["bytes"]) > 0]
        live, most = {}, 0
        allocated = []
        for event in snapshot["device_traces"][0]:
            if event["action"] == "alloc":
                assert event["addr"] not in live, "two buffers at one address"
                live[event["addr"]] = event["size"]
                allocated.append(event["size"])
            elif event["action"] == "free_completed":
                assert live.pop(event["addr"]) == event["size"]
            most = max(most, sum(live.values()))
        peak = sum(int(row["bytes"]) for row in rows if row["at_peak"] == "yes")
        stay = sum(int(row["bytes"]) for row in rows if not row["first_call"])
        shown = _memory_viz.trace(snapshot)  # every address must be in a segment, every free known
        page = _memory_viz.trace_plot(snapshot)
        active = sum(segment["active_size"] for segment in snapshot["segments"])
        print(run)
        for what, theirs, ours in (("buffers", sorted(allocated), sorted(int(row["bytes"]) for row in rows)),
                                   ("bytes at the peak", most, peak), ("bytes that stay", sum(live.values()), stay),
                                   ("active bytes of segments", active, stay),
                                   ("entries of the trace", f"{len(snapshot['device_traces'][0])} entries" in shown, True),
                                   ("frees of unknown buffers", shown.count("free of unknown"), 0),
                                   ("the page has the snapshot", "snapshot.pickle" in page, True)):
            failures += theirs != ours
            print(f"  {'ok' if theirs == ours else 'DIFFERENT'}: {what}: {json.dumps(theirs)[:70]}"
                  + ("" if theirs == ours else f", ours {json.dumps(ours)[:70]}"))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
