#!/usr/bin/env python3
"""Opens `warpstep export --xplane` with xprof and compares its step times and its input share with ours.

Run by hand, in a separate environment, on runs or session files:

    python3 -m venv peer && peer/bin/pip install xprof
    peer/bin/python tests/peers/xprof_profile.py build/release/bin/warpstep RUN...

"Ours" are the table of steps and the spans of the same session (by its Kineto trace). Exits with 1 if something differs.
"""
import argparse
import collections
import gzip
import json
import pathlib
import re
import subprocess
import sys
import tempfile

from xprof.convert import raw_to_tool_data as xprof

failures = 0


def expect(what, theirs, ours, tolerance=0.0):
    global failures
    same = abs(theirs - ours) <= tolerance if isinstance(ours, float) else theirs == ours
    failures += not same
    print(f"  {'ok' if same else 'DIFFERENT'}: {what}: {str(theirs)[:80]}" + ("" if same else f", ours {str(ours)[:80]}"))


def tool(file, name):
    data, _ = xprof.xspace_to_tool_data([str(file)], name, {"use_saved_result": False})
    return json.loads(data)


def rows(table):
    """A table of xprof's as dictionaries."""
    keys = [column["id"] for column in table["cols"]]
    return [dict(zip(keys, (cell.get("v") for cell in row["c"]))) for row in table["rows"]]


def table_with(tables, column):
    return next(t for t in tables if any(c["id"] == column for c in t.get("cols", [])))


def compare(warpstep, run, folder):
    subprocess.run([warpstep, "export", run, "--xplane", "--kineto", "--json", "--out", folder], check=True,
                   stdout=subprocess.DEVNULL)
    file = next(folder.glob("xplane/plugins/profile/*/*.xplane.pb"))
    trace = json.loads(gzip.decompress(next((folder / "kineto").iterdir()).read_bytes()))
    slices = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    steps = [e for e in slices if e["name"].startswith("ProfilerStep#")]
    waits = [e for e in slices if e["name"].startswith("enumerate(DataLoader)")]
    table = {row["step"]: row for row in json.loads((folder / "tables/steps.json").read_text())}
    mine, off = {}, 0.0
    for step in steps:
        number, end = int(step["name"].split("#")[1]), step["ts"] + step["dur"]
        mine[f"train {number}"] = (sum(w["dur"] for w in waits if step["ts"] <= w["ts"] < end) / 1000,
                                   (step["dur"] + 0.001) / 1000)
        off = max(off, abs(table[number]["ns"] / 1e6 - mine[f"train {number}"][1]))
    expect("our table of steps and the trace: longest difference, ms", off, 0.0, 2e-6)
    copies = [e for e in slices if e["cat"] == "gpu_memcpy" and "HtoD" in e["name"]]
    if any(e["cat"] == "kernel" for e in slices):
        return compare_gpu(file, slices, copies, [whole for _, whole in mine.values()])
    for page in ("overview_page", "input_pipeline_analyzer"):
        found = table_with(tool(file, page), "infeedTimeMs")
        theirs = rows(found)
        names = [row["stepnum"] for row in theirs]  # of longer runs it leaves out the first and the last
        expect(f"{page}: {len(names)} of {len(mine)} steps", names, list(mine) if len(names) == len(mine) else list(mine)[1:-1])
        total = lambda row: sum(v for k, v in row.items() if k.endswith("TimeMs") and k != "stepTimeMs")
        expect(f"{page}: longest difference of a step, ms",
               max(abs(total(row) - mine[row["stepnum"]][1]) for row in theirs), 0.0, 2e-5)
        expect(f"{page}: longest difference of its input time, ms",
               max(abs(row["infeedTimeMs"] - mine[row["stepnum"]][0]) for row in theirs), 0.0, 2e-5)
        shown = [mine[name] for name in names]
        share = 100 * sum(wait for wait, _ in shown) / sum(whole for _, whole in shown)
        said = float(re.search(r"([0-9.]+)% of the total step time", found["p"]["input_conclusion"])[1])
        expect(f"{page}: input share, %, rounded", said, share, 0.0501)
        print(f"        \"{found['p']['input_conclusion'][:110]}\"")
    stages = collections.Counter()
    for e in slices:
        stages[e["name"]] += (e["cat"] == "loader") * round(e["dur"] * 1000)
    counted = table_with(tool(file, "input_pipeline_analyzer"), "opName")
    for row in rows(counted):
        stage = row["opName"].replace("::TFRecord", "").split("::")[-1]
        if stage in stages:
            expect(f"input op {row['opName']}, ms", row["timeInMs"], stages[stage] / 1e6, 1e-3)
    ops = rows(tool(file, "framework_op_stats")[0])
    theirs = {row["operation"]: (row["occurrences"], round(row["total_time"], 2)) for row in ops}
    calls = collections.defaultdict(lambda: [0, 0.0])
    for e in slices:
        if e["cat"] == "cpu_op" and e not in waits:
            calls[e["name"]][0] += 1
            calls[e["name"]][1] += e["dur"]
    off = [name for name, (count, us) in calls.items()
           if name not in theirs or theirs[name][0] != count or abs(theirs[name][1] - us) > 0.02]
    expect(f"op stats: calls by name and time, of {len(calls)}", off, [])
    expect("the trace viewer has events", len(xprof.xspace_to_tool_data([str(file)], "trace_viewer", {})[0]) > 1000, True)


def compare_gpu(file, slices, copies, steps):
    """Of a GPU xprof takes the steps from the device: copies are its input, waits for data "all others"."""
    theirs = rows(table_with(tool(file, "overview_page"), "infeedTimeMs"))
    total = lambda row: sum(v for k, v in row.items() if k.endswith("TimeMs") and k != "stepTimeMs")
    expect("steps", len(theirs), len(steps))
    expect("longest difference of a step, ms", max(abs(total(row) - ms) for row, ms in zip(theirs, steps)), 0.0, 2e-6)
    expect("input of all steps, ms", sum(row["infeedTimeMs"] for row in theirs),
           sum(e["dur"] for e in copies) / 1000, 1e-6)
    calls = collections.Counter()
    for e in slices:
        calls[e["name"]] += (e["cat"] == "kernel") * round(e["dur"] * 1000)
    kernels = collections.Counter()
    for row in rows(tool(file, "kernel_stats")):
        kernels[row["kernel_name"]] += round(row["total_duration_us"] * 1000)
    expect("kernel stats, ns by name", dict(kernels), {k: v for k, v in calls.items() if v})


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("warpstep")
    options.add_argument("run", nargs="+")
    options = options.parse_args()
    for run in options.run:
        print(run)
        with tempfile.TemporaryDirectory() as work:
            compare(options.warpstep, run, pathlib.Path(work))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
