"""The output of gpu_check: results.json, and rows.md in the format of bench/RECORDS.md."""
import dataclasses
import json
import re

COUNTS = ("passed", "failed", "skipped", "not_run")
FIGURES = ("real_time", "time_unit", "iterations", "GB/s", "TFLOP/s", "of_peak", "label", "error_message")


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


def benchmarks(out):
    """Google Benchmark's file: its context, and one short row per benchmark."""
    found = read_json(out / "kernels.json")
    if not found:
        return None
    rows = [{"name": b["name"], **{key: b[key] for key in FIGURES if key in b}} for b in found.get("benchmarks", [])
            if b.get("run_type", "iteration") == "iteration"]
    return {"context": found.get("context", {}), "rows": rows}


def collect(machine, outcomes, out):
    """The content of results.json."""
    return {**machine, "tests": total(outcomes), "all_tests_passed": good(outcomes),
            "steps": [dataclasses.asdict(o) for o in outcomes],
            "benchmarks": benchmarks(out), "step_against_pytorch": read_json(out / "pytorch.json")}


def line(result, figure, count, command):
    device = result["device"].get("device", "?")
    return f"| {result['date']} | {result['commit']} | {device} | {figure} | {count} | `{command}` |"


def spread(stats):
    return f"{stats['median']:.3f} ({stats['p25']:.3f}-{stats['p75']:.3f})"


def pair_line(result):
    found = result["step_against_pytorch"]
    arguments, pair = found.get("arguments", {}), found["pair"]
    ratio, ours, theirs = pair["ratio"], pair["peer"], pair["torch"]
    about = theirs.get("about", {})
    return line(result, f"{arguments.get('model', 'cifar10cnn')} step, batch {arguments.get('batch', '?')}, "
                f"{arguments.get('precision', 'fp32')}: **{ratio['median']:.2f}x** (quartiles {ratio['p25']:.2f}-"
                f"{ratio['p75']:.2f}) PyTorch {about.get('torch', '?')} {theirs['name']}: "
                f"{spread(ours['step_ms'])} against {spread(theirs['step_ms'])} ms; first step after "
                f"{ours['first_step_s']:.1f} against {theirs['first_step_s']:.1f} s",
                f"{ratio['n']} windows of {arguments.get('steps', '?')} steps a side", command_of(result, "pytorch"))


def command_of(result, name):
    step = next((s for s in result["steps"] if s["name"] == name), {})
    # Without this machine's folders, in paths of programs and files and in --option=FILE.
    return " ".join(re.sub(r"(^|=|\s)/\S*/", r"\1", word) for word in step.get("command", []))


def benchmark_lines(result):
    for b in result["benchmarks"]["rows"]:
        if "error_message" in b:
            yield line(result, f"{b['name']}: {b['error_message']}", 0, command_of(result, "kernels"))
            continue
        rates = [f"{b[key]:.4g} {key}" for key in ("GB/s", "TFLOP/s") if key in b]
        share = [f"{100 * b['of_peak']:.0f} % of the device's measured peak"] if "of_peak" in b else []
        figure = ", ".join([f"{b['name']}: {b['real_time']:.4g} {b['time_unit']}", *rates, *share])
        yield line(result, figure, b.get("iterations", "?"), command_of(result, "kernels"))


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
    if result["step_against_pytorch"] and "pair" in result["step_against_pytorch"]:
        text.append(pair_line(result))
    if result["benchmarks"]:
        text += benchmark_lines(result)
    return "\n".join(text) + "\n"


def write(result, out):
    (out / "results.json").write_text(json.dumps(result, indent=1, default=str) + "\n")
    (out / "rows.md").write_text(rows(result))
