#!/usr/bin/env python3
"""Opens the files of `warpstep export` in the programs they are written for, and compares their figures with ours.

Run by hand, in a separate environment:

    python3 -m venv peers && peers/bin/pip install HolisticTraceAnalysis "pandas<3" perfetto tensorboard \\
        torch_tb_profiler==0.4.3 "setuptools<70"
    peers/bin/python tests/peers/profiler_traces.py build/release/bin/warpstep RUN... [--tb-plugin FOLDER]

RUN is a run directory or a session file; WARPSTEP_PEER_SESSIONS=DIR profiler_test --gtest_filter=Kineto.* writes two to
DIR/device and DIR/host. The released torch_tb_profiler knows neither cuda_runtime nor annotations other than steps: with
--tb-plugin its last source is used, the folder tb_plugin of pytorch/kineto before it was removed
(git archive 94979607^ tb_plugin). HolisticTraceAnalysis opens a run on the CPU a second time, by --cpu-as-device. "Ours"
are figures computed here from the events' integers. Prints each comparison and each skipped one with the reason; exits
with 1 if something differs. xprof_profile.py and memory_snapshot.py do the same for --xplane and --memory.
"""
import argparse
import collections
import gzip
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")
os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
WORK = {"kernel", "gpu_memcpy", "gpu_memset"}
differences = 0


def expect(what, theirs, ours, tolerance=0.0):
    global differences
    if isinstance(ours, float) or isinstance(theirs, float):
        same = theirs is not None and ours is not None and abs(theirs - ours) <= tolerance
    else:
        same = theirs == ours
    differences += not same
    print(f"  {'ok' if same else 'DIFFERENT'}: {what}: {str(theirs)[:90]}" + ("" if same else f", ours {ours}"))


def skipped(what, why):
    print(f"  SKIPPED: {what}: {why}")


# ---- Ours: plain interval arithmetic over the trace's events, in ns.

def ns(us):
    return round(us * 1000)


class Trace:
    def __init__(self, text):
        self.json = json.loads(text)
        self.slices = [e for e in self.json["traceEvents"] if e["ph"] == "X"]
        steps = [e for e in self.slices if e["name"].startswith("ProfilerStep#")]
        self.steps = sorted((ns(e["ts"]), ns(e["ts"]) + ns(e["dur"])) for e in steps)
        self.work = [e for e in self.slices if e["cat"] in WORK]

    def intervals(self, chosen):
        return merged((ns(e["ts"]), ns(e["ts"]) + ns(e["dur"])) for e in self.slices if chosen(e))

    def totals(self, category, until=float("inf")):
        """us and count by name, of slices that begin before `until`."""
        sums = collections.defaultdict(lambda: [0, 0])
        for e in self.slices:
            if e["cat"] == category and ns(e["ts"]) < until:
                sums[e["name"]][0] += ns(e["dur"]) / 1000
                sums[e["name"]][1] += 1
        return dict(sums)


def merged(intervals):
    out = []
    for begin, end in sorted(intervals):
        if out and begin <= out[-1][1]:
            out[-1][1] = max(out[-1][1], end)
        else:
            out.append([begin, end])
    return out


def subtract(intervals, others):
    out = []
    for begin, end in intervals:
        for b, e in others:
            if e <= begin or b >= end:
                continue
            if b > begin:
                out.append([begin, b])
            begin = max(begin, e)
        if begin < end:
            out.append([begin, end])
    return out


def length(intervals):
    return sum(end - begin for begin, end in intervals)


def overlap(a, b):
    return length(a) - length(subtract(a, b))


# ---- torch_tb_profiler

def is_wait(e):
    return e["name"].startswith("enumerate(DataLoader)#")


def roles(knows_runtime):
    """In its order of priority."""
    ops = ("cpu_op", "user_annotation") if knows_runtime else ("cpu_op",)
    return [("Kernel", lambda e: e["cat"] == "kernel"), ("Memcpy", lambda e: e["cat"] == "gpu_memcpy"),
            ("Memset", lambda e: e["cat"] == "gpu_memset"), ("Communication", lambda e: False),
            ("Runtime", lambda e: knows_runtime and e["cat"] == "cuda_runtime"), ("DataLoader", is_wait),
            ("CpuOp", lambda e: e["cat"] in ops and not is_wait(e) and not e["name"].startswith("ProfilerStep#"))]


def our_parts(trace, knows_runtime):
    """Mean us per step by role, by torch_tb_profiler's definitions; these traces have no steps whose device work ends
    after them."""
    left = merged(trace.steps)
    parts = {}
    for role, belongs in roles(knows_runtime):
        mine = trace.intervals(belongs)
        parts[role] = overlap(left, mine) / 1000 / len(trace.steps)
        left = subtract(left, mine)
    parts["Other"] = length(left) / 1000 / len(trace.steps)
    return parts


def compare_tb(trace, plugin):
    if plugin:
        sys.path.insert(0, plugin)
    from torch_tb_profiler.profiler.data import RunProfileData
    from torch_tb_profiler.profiler.event_parser import ProfileRole
    from torch_tb_profiler.profiler.trace import EventTypeMap
    profile = RunProfileData.from_json("train_1", "1", trace.json)
    knows_runtime = "cuda_runtime" in EventTypeMap
    costs = dict(zip([role.name for role in ProfileRole], profile.avg_costs.costs))
    ours = our_parts(trace, knows_runtime)
    for role, us in ours.items():
        expect(f"{role}, us per step", round(costs[role], 3), round(us, 3), 0.002 + 0.003 * len(trace.steps))
    expect("steps", len(profile.steps_names), len(trace.steps))
    expect("parts add up to the step",
           round(sum(us for role, us in costs.items() if role != "Total"), 3), round(costs["Total"], 3), 0.01)
    share = ours["DataLoader"] / sum(ours.values())
    expect(f"it recommends to load faster (waits are {share:.1%} of the steps)",
           any("is in DataLoader" in text for text in profile.recommendations), share > 0.05)
    ops = {op.name: op.calls for op in profile.op_list_groupby_name if op.name}
    named = {k: v[1] for k, v in trace.totals("cpu_op").items() if not is_wait({"name": k})}
    expect("calls by op", {k: v for k, v in ops.items() if k in named}, named)
    if knows_runtime:
        device_us = sum(op.self_device_duration for op in profile.op_list_groupby_name)
        linked = {e["args"]["External id"] for e in trace.slices if e["cat"] == "cpu_op"}
        expect("device time linked to ops, us", float(device_us),
               sum(ns(e["dur"]) / 1000 for e in trace.work if e["args"]["External id"] in linked), 0.01)
    elif trace.work:
        skipped("device time by op", "this version does not know cuda_runtime")
    if not trace.work:
        return skipped("kernels", "the session has none")
    kernels = {name: (row["sum"], row["count"]) for name, row in profile.kernel_stat.iterrows()}
    for name, (us, count) in sorted(trace.totals("kernel").items()):
        expect(f"{name[:50]}: us", float(kernels[name][0]), float(us), 0.001 * count)
        expect(f"{name[:50]}: calls", int(kernels[name][1]), count)
    span = trace.steps[-1][1] - trace.steps[0][0]
    busy = overlap([[trace.steps[0][0], trace.steps[-1][1]]], trace.intervals(lambda e: e["cat"] == "kernel"))
    expect("utilisation", profile.gpu_metrics_parser.gpu_utilization[0], busy / span, 1e-4)


# ---- HolisticTraceAnalysis

def compare_hta(trace, folder):
    from hta.trace_analysis import TraceAnalysis
    hta = TraceAnalysis(trace_dir=str(folder))
    last = trace.steps[-1][0]  # it leaves the last step out
    expect("steps", len(hta.get_profiler_steps()), len(trace.steps) - 1)
    if not trace.work:
        return skipped("kernels, idle, queues, critical path", "it needs kernels: see with --cpu-as-device")
    until = [e for e in trace.work if ns(e["ts"]) < last]
    kernels = merged((ns(e["ts"]), ns(e["ts"]) + ns(e["dur"])) for e in until if e["cat"] == "kernel")
    busy = merged((ns(e["ts"]), ns(e["ts"]) + ns(e["dur"])) for e in until)
    row = hta.get_temporal_breakdown(visualize=False).iloc[0]
    expect("compute, us", float(row["compute_time(us)"]), length(kernels) / 1000, 0.01)
    expect("other than compute, us", float(row["non_compute_time(us)"]),
           (length(busy) - length(kernels)) / 1000, 0.01)
    expect("idle, us", float(row["idle_time(us)"]), (busy[-1][1] - busy[0][0] - length(busy)) / 1000, 0.01)
    table = hta.get_gpu_kernel_breakdown(visualize=False, num_kernels=1000)[1].set_index("name")
    for name, (us, _) in sorted({**trace.totals("kernel", last), **trace.totals("gpu_memcpy", last)}.items()):
        theirs = float(table.loc[name]["sum (us)"]) if name in table.index else 0.0
        expect(f"{name[:50]}: us", theirs, float(us), 0.01)
    idle = hta.get_idle_time_breakdown(visualize=False)[0]
    expect("no idle time is negative", bool((idle["idle_time"] >= 0).all()), True)
    queues = hta.get_queue_length_time_series()[0]
    for stream, of_stream in queues.groupby("stream"):
        mine = [e for e in until if e["args"]["stream"] == stream]
        expect(f"stream {stream}: queue length at the end", int(of_stream["queue_length"].iloc[-1]), 0)
        expect(f"stream {stream}: longest queue", int(of_stream["queue_length"].max()), longest(trace, mine))
    copies = [e for e in until if e["cat"] == "gpu_memcpy"]
    if copies:
        expect("bandwidth, GB/s", float(hta.get_memory_bw_summary()[("memory_bw_gbps", "mean")].iloc[0]),
               statistics.mean(e["args"]["memory bandwidth (GB/s)"] for e in copies), 0.01)
    try:
        graph, sound = hta.critical_path_analysis(rank=0, annotation="ProfilerStep", instance_id=1)
        expect("critical path of a step", (sound, len(graph.critical_path_nodes) > 2), (True, True))
    except Exception as error:  # pylint: disable=broad-except
        skipped("critical path", f"it fails with {type(error).__name__}: {error}")


def longest(trace, work):
    launches = {e["args"]["correlation"]: ns(e["ts"]) for e in trace.slices if e["cat"] == "cuda_runtime"}
    events = sorted([(launches[e["args"]["correlation"]], 1) for e in work] + [(ns(e["ts"]), -1) for e in work])
    depth = most = 0
    for _, change in events:
        depth += change
        most = max(most, depth)
    return most


def compare_cpu_as_device(trace, warpstep, run, folder):
    """`trace` is of the same run without the option."""
    subprocess.run([warpstep, "export", run, "--kineto", "--cpu-as-device", "--out", folder], check=True,
                   stdout=subprocess.DEVNULL)
    file = next((folder / "kineto").iterdir())
    subprocess.run([warpstep, "check-trace", file], check=True)
    shown = Trace(gzip.decompress(file.read_bytes()))
    expect("the file says that the device is the CPU", shown.json["warpstep"]["cpu_as_device"][:19], "device 0 is the CPU")
    calls = {name: v for name, v in trace.totals("cpu_op").items() if not is_wait({"name": name})}
    kernels = shown.totals("kernel")
    expect("kernels are the calls", {k: v[1] for k, v in kernels.items()}, {k: v[1] for k, v in calls.items()})
    off = max(abs(calls[k][0] - kernels[k][0] - 0.001 * kernels[k][1]) for k in kernels)
    expect("kernels take the calls' times less 1 ns, us", off, 0.0, 0.001)
    compare_hta(shown, folder / "kineto")


# ---- Perfetto

def compare_perfetto(trace, path):
    slices = collections.Counter(e["name"] for e in trace.slices if e["cat"] == "loader")
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos
    decoded = protos.Trace.FromString(path.read_bytes())
    names, begun, ended, stages, instants = {}, collections.Counter(), 0, [], 0
    for packet in decoded.packet:
        names.update((n.iid, n.name) for n in packet.interned_data.event_names)
    for packet in decoded.packet:
        event = packet.track_event
        begun[event.name or names.get(event.name_iid)] += event.type == event.TYPE_SLICE_BEGIN
        ended += event.type == event.TYPE_SLICE_END
        instants += event.type == event.TYPE_INSTANT
        if packet.HasField("gpu_render_stage_event"):
            stages.append((names[packet.gpu_render_stage_event.name_iid], packet.gpu_render_stage_event.duration))
    expect("slices of loaders, by name", {n: begun[n] for n in slices}, dict(slices))
    expect("every slice ends", ended, sum(begun.values()))
    expect("work of devices (name, ns)", sorted(stages), sorted((e["name"], ns(e["dur"])) for e in trace.work))
    try:
        from perfetto.trace_processor import TraceProcessor
        processor = TraceProcessor(trace=str(path))
    except Exception as error:  # pylint: disable=broad-except
        return skipped("trace_processor", f"it is loaded from the network, which failed: {error}"[:160])
    count = next(iter(processor.query("select count(*) as n from slice"))).n
    expect("trace_processor: slices", count, sum(begun.values()) + instants + len(stages))
    for row in processor.query("select name, value from stats where severity = 'error' and value > 0"):
        expect(f"trace_processor: errors of {row.name}", row.value, 0)


# ---- TensorBoard

def compare_tensorboard(folder, session_steps, metrics):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def scalars(where):
        events = EventAccumulator(str(where), size_guidance={"scalars": 0})
        events.Reload()
        return {tag: events.Scalars(tag) for tag in events.Tags()["scalars"]}
    found = scalars(folder)
    times = found["train/ms"]
    parts = [found[f"train/{part}_ms"] for part in ("data", "kernels", "copies", "cpu", "other")]
    off = max(abs(sum(p[i].value for p in parts) - t.value) / t.value for i, t in enumerate(times))
    expect("parts add up to each step (of 1)", float(off), 0.0, 1e-6)
    expect("steps count up by one", [e.step for e in times], list(range(times[0].step, times[0].step + len(times))))
    walls = [e.wall_time for e in times]
    expect("wall time goes forward", walls == sorted(walls), True)
    by_step = {e.step: e.value for e in times}
    off = max((abs(by_step[n] - us / 1000) / by_step[n] for n, us in session_steps.items()), default=0.0)
    expect("step times of the Kineto trace (of 1)", float(off), 0.0, 2e-6)
    if not metrics.exists():
        return skipped("evaluations, the machine", "the session has no run directory")
    kinds = {"step": "train", "evaluation": "validation"}
    compared = collections.Counter()
    for record in map(json.loads, metrics.read_text().splitlines()):
        prefix = kinds.get(record["kind"], record["kind"])
        for key, value in record.items():
            if key in ("step", "time") or not isinstance(value, (int, float)):
                continue
            near = [e.value for e in found[f"{prefix}/{key}"] if e.step == record["step"]]
            # The throughput of a step is over its time without the observers' of the step before.
            tolerance = 0.02 if key.endswith("_per_second") else 1e-5
            if not any(abs(other - value) <= tolerance * max(abs(value), 1e-3) for other in near):
                expect(f"{prefix}/{key} of step {record['step']}", near, value)
            compared[prefix] += 1
    expect("numbers of metrics.jsonl that are compared", all(compared[kind] > 0 for kind in ("train", "validation")), True)
    print(f"        {dict(compared)}")
    machine = scalars(folder / "system")
    expect("the machine's tags", {f"system/{t}" for t in ("cpu_percent", "process_cpu_percent", "process_rss_MB",
           "memory_available_MB", "disk_read_MB_per_s")} - set(machine), set())
    cpu = machine["system/cpu_percent"]
    expect("its steps are seconds", all(abs(e.wall_time - cpu[0].wall_time - (e.step - cpu[0].step)) < 1e-3 for e in cpu), True)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("warpstep")
    options.add_argument("run", nargs="+")
    options.add_argument("--tb-plugin")
    options = options.parse_args()
    for run in options.run:
        print(run)
        with tempfile.TemporaryDirectory() as work:
            subprocess.run([options.warpstep, "export", run, "--kineto", "--perfetto", "--tensorboard", "--out", work],
                           check=True, stdout=subprocess.DEVNULL)
            folder = pathlib.Path(work)
            file = next((folder / "kineto").iterdir())
            subprocess.run([options.warpstep, "check-trace", file], check=True)
            trace = Trace(gzip.decompress(file.read_bytes()))
            metrics = pathlib.Path(run, "metrics.jsonl")
            steps = {int(re.sub(r".*#", "", e["name"])): e["dur"] + 0.001 for e in trace.slices
                     if e["name"].startswith("ProfilerStep#")}
            for peer, compare in ((" torch_tb_profiler", lambda: compare_tb(trace, options.tb_plugin)),
                                  (" HolisticTraceAnalysis", lambda: compare_hta(trace, folder / "kineto")),
                                  (" Perfetto", lambda: compare_perfetto(trace, folder / "perfetto/trace.pftrace")),
                                  (" TensorBoard", lambda: compare_tensorboard(folder / "tensorboard", steps, metrics)),
                                  *((" HolisticTraceAnalysis of --cpu-as-device", lambda: compare_cpu_as_device(
                                      trace, options.warpstep, run, folder / "as_device")),) * (not trace.work)):
                print(peer)
                try:
                    compare()
                except ImportError as error:
                    skipped("all", f"it cannot be imported: {error}")
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main()
