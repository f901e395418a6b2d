"""The output of gpu_check: results.json, rows.md in the format of bench/RECORDS.md, and archive.tar.gz with the rest.

Every file appears whole or not at all: it is written beside its place and renamed.
"""
import dataclasses
import json
import os
import re
import shlex
import tarfile

from steps import Outcome, parts_of, read_log

COUNTS = ("passed", "failed", "skipped", "not_run")
FIGURES = ("real_time", "time_unit", "iterations", "GB/s", "TFLOP/s", "of_peak", "label", "error_message")
RESULTS, ROWS, ARCHIVE, RUNNING = "results.json", "rows.md", "archive.tar.gz", "running.log"


def total(outcomes):
    """The test counts of all steps together."""
    return {key: sum(o.counts.get(key, 0) for o in outcomes if o.counts) for key in COUNTS}


def good(outcomes):
    """Whether all tests passed: some ran, none failed, none was left out. Benchmarks are figures, not tests."""
    tests = [o for o in outcomes if o.counts is not None]
    return total(tests)["passed"] > 0 and all(o.status in ("passed", "skipped") for o in tests)


def read_json(path):
    """None if a step did not write the file, or not completely."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def read_benchmarks(path):
    """Google Benchmark's file; of a program that was stopped, the benchmarks that it had written, each whole."""
    found = read_json(path)
    if found or not path.exists():
        return found
    whole, end, _ = path.read_text(errors="replace").rpartition("\n    }")
    try:
        return json.loads(whole + end + "]}")
    except ValueError:
        return None


def benchmarks(files):
    """Google Benchmark's file: its context, and one short row per benchmark."""
    found = read_benchmarks(files / "kernels.json")
    if not found:
        return None
    rows = [{"name": b["name"], **{key: b[key] for key in FIGURES if key in b}} for b in found.get("benchmarks", [])
            if b.get("run_type", "iteration") == "iteration"]
    return {"context": found.get("context", {}), "rows": rows}


def collect(about, outcomes, files, running=None, missing=False):
    """The content of results.json. `running`: the step that has begun; `missing`: some have not begun; whole is what has run
    every step.
    """
    figures = {}
    for kind in ("switches", "pytorch"):
        paths = sorted(files.glob(f"{kind}-*.json"), key=lambda path: path.stem)
        found = {path.stem[len(kind) + 1:]: read_json(path) for path in paths}
        figures[kind] = {model: figure for model, figure in found.items() if figure}
    whole = not running and not missing and not any(o.status in ("cut", "not run") for o in outcomes)
    return {**about, "whole": whole, "running": running, "tests": total(outcomes), "all_tests_passed": good(outcomes),
            "steps": [dataclasses.asdict(o) for o in outcomes], "benchmarks": benchmarks(files), **figures}


def line(result, figure, count, command):
    device = result["device"].get("device", "?")
    return f"| {result['date']} | {result['commit']} | {device} | {figure} | {count} | `{command}` |"


def spread(stats):
    return f"{stats['median']:.3f} ({stats['p25']:.3f}-{stats['p75']:.3f})"


def pair_lines(result):
    for model, found in result["pytorch"].items():
        if "pair" not in found:
            continue
        arguments, pair = found.get("arguments", {}), found["pair"]
        ratio, ours, theirs = pair["ratio"], pair["peer"], pair["torch"]
        about, left_out = theirs.get("about", {}), ", ".join(found.get("left_out", []))
        yield line(result, f"{model} step, batch {arguments.get('batch', '?')}, {arguments.get('precision', 'fp32')}: "
                   f"**{ratio['median']:.2f}x** (quartiles {ratio['p25']:.2f}-{ratio['p75']:.2f}) "
                   f"PyTorch {about.get('torch', '?')} {theirs['name']}: "
                   f"{spread(ours['step_ms'])} against {spread(theirs['step_ms'])} ms; first step after "
                   f"{ours['first_step_s']:.1f} against {theirs['first_step_s']:.1f} s{'; not timed: ' * bool(left_out)}{left_out}",
                   f"{ratio['n']} windows a side", command_of(result, f"pytorch-{model}"))


def switch_lines(result):
    for name, found in result["switches"].items():
        for pair in found["pairs"]:
            ratio = pair["ratio"]
            yield line(result, f"{found['model']} step, batch {found['batch']}, {found['precision']}, {pair['switch']}: "
                       f"{ratio['median']:.3f}x as long (quartiles {ratio['p25']:.3f}-{ratio['p75']:.3f}): "
                       f"{spread(pair['with']['step_ms'])} against {spread(pair['without']['step_ms'])} ms",
                       f"{ratio['n']} windows a side", command_of(result, f"switches-{name}"))


def command_of(result, name):
    step = next((s for s in result["steps"] if s["name"] == name), {})
    # Without this machine's folders, in paths of programs and files and in --option=FILE.
    return shlex.join(re.sub(r"(^|=|\s)/\S*/", r"\1", word) for word in step.get("command", []))


def benchmark_lines(result):
    for b in result["benchmarks"]["rows"]:
        if "error_message" in b:
            yield line(result, f"{b['name']}: {b['error_message']}", 0, command_of(result, "bench"))
            continue
        rates = [f"{b[key]:.4g} {key}" for key in ("GB/s", "TFLOP/s") if key in b]
        share = [f"{100 * b['of_peak']:.0f} % of the device's measured peak"] if "of_peak" in b else []
        figure = ", ".join([f"{b['name']}: {b['real_time']:.4g} {b['time_unit']}", *rates, *share])
        yield line(result, figure, b.get("iterations", "?"), command_of(result, "bench"))


def rows(result):
    """The text of rows.md."""
    device = result["device"]
    known = ", ".join(f"{key} {device[key]}" for key in ("driver", "driver_cuda", "cuda", "cudnn", "cublaslt")
                      if key in device)
    counts = result["tests"]
    text = [f"<!-- {device.get('device', '?')}: {known}; commit {result['commit']}, {result['date']} -->",
            "", "| date | commit | machine | figure | n | command |", "| --- | --- | --- | --- | --- | --- |"]
    ran = [s["name"] for s in result["steps"] if s["counts"]]
    text.append(line(result, f"tests of tier gpu ({', '.join(ran)}): {counts['passed']} passed, {counts['failed']} "
                     f"failed, {counts['skipped']} skipped, {counts['not_run']} not run", sum(counts.values()),
                     result["command"]))
    text += [*switch_lines(result), *pair_lines(result)]
    if result["benchmarks"]:
        text += benchmark_lines(result)
    return "\n".join(text) + "\n"


def replace(path, text):
    part = path.with_name(path.name + ".part")
    part.write_text(text)
    os.replace(part, path)


def pack(files, out):
    """All files of the scratch folder that are kept, in one archive."""
    part = out / (ARCHIVE + ".part")
    with tarfile.open(part, "w:gz", compresslevel=6) as archive:
        for path in sorted(files.iterdir()):
            archive.add(path, arcname=path.name, recursive=False)
    os.replace(part, out / ARCHIVE)


def write(result, files, out):
    """The archive first: what results.json says of a step is then in it."""
    pack(files, out)
    replace(out / ROWS, rows(result))
    replace(out / RESULTS, json.dumps(result, indent=1, default=str) + "\n")


def load(out, files):
    """(results.json, its outcomes by step, the log of the step that was running or "") of an earlier gpu_check, whose
    files are unpacked. ValueError: there is none."""
    result = read_json(out / RESULTS)
    if not result:
        raise ValueError(f"--resume: no {RESULTS} of an earlier gpu_check in {out}")
    if (out / ARCHIVE).exists():
        with tarfile.open(out / ARCHIVE) as archive:
            for member in archive.getmembers():
                if member.isfile() and "/" not in member.name and not member.name.startswith("."):
                    archive.extract(member, files)
    return result, {step["name"]: Outcome(**step) for step in result["steps"]}, running_log(out)


def running_log(out):
    """The log of the step that was running, with those of its processes; "" without one."""
    log = out / RUNNING
    return "".join(read_log(path) for path in (log, *parts_of(log)) if path.exists())


def remove_running_log(out):
    for path in (out / RUNNING, *parts_of(out / RUNNING)):
        if path.exists():
            path.unlink()
