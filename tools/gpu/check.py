"""Tests and measures Warpstep on a CUDA device: every test of tier gpu, compute-sanitizer, benchmarks.

Each step has its own time limit and log; a failing step does not stop the others. Writes results.json and
rows.md (rows for bench/RECORDS.md) into the output folder. In the repository it builds first; a staged tree
(cmake --install build/release --prefix DIR --component gpu_check --strip) needs only Python.

Exit codes: 0 all tests passed, 1 some failed, 2 wrong usage, 3 no usable CUDA device.
"""
import argparse
import datetime
import os
import pathlib
import shlex
import subprocess
import sys

import machine
import results
import steps
from steps import Step

TESTS = {"kernels_cuda_test": 600, "op_cuda_test": 1800, "model_cuda_test": 900, "statistics_cuda_test": 600,
         "parity_cuda_test": 600, "precision_spread_cuda_test": 600, "plan_choice_cuda_test": 1200}  # program: time limit in seconds
QUICK_BENCHMARKS = "(conv|linear|max_pool|update).*/(f32|f16)/"


def say(text=""):
    print(text, flush=True)


BUILD = """tools/setup --check && source tools/environment.sh &&
cmake --preset release -DWARPSTEP_CUDA=ON -DWARPSTEP_TESTS=ON "-DWARPSTEP_WERROR=$WARPSTEP_WERROR" "$@" &&
cmake --build --preset release --parallel "$(nproc)" --target gpu_check_programs"""


def build(tree, out):
    """None, or why the programs could not be built."""
    say("building (after tools/setup, which installs missing packages) ...")
    found = machine.architectures()
    log = out / "build.log"
    log.write_text("")
    options = [f"-DCMAKE_CUDA_ARCHITECTURES={found}"] if found else []
    code, output = steps.execute(["bash", "-c", BUILD, "build", *options], str(log), 5400, dict(os.environ),
                                 cwd=str(tree.source))
    return None if code == 0 else "\n".join([*output.splitlines()[-30:], f"gpu_check: the build failed; full output: {log}"])


def test_steps(tree, arguments):
    module = arguments.emulate
    for name, limit_s in TESTS.items():
        yield Step(name, [str(tree.programs / name)], limit_s, tests=True, may_skip=bool(module))
    checker, kernels = machine.sanitizer(), tree.program("kernels_cuda_test")
    for tool in ("memcheck", "racecheck"):
        why = ("emulated" if module else "left out by --quick" if arguments.quick else
               "no kernels_cuda_test in this tree" if not kernels else
               "" if checker else "compute-sanitizer is not installed; it comes with the full CUDA toolkit")
        yield Step(tool, [str(checker), "--tool", tool, "--error-exitcode", "99", "--report-api-errors", "no",
                          str(kernels)], 1200, tests=True, skip=why)


def train_steps(tree, arguments, out):
    """The program as a user runs it: generates a set of images and trains on it."""
    program, data, run = tree.program("warpstep"), str(out / "shapes"), str(out / "run")
    why = "the program cannot use the emulated device" if arguments.emulate else ""
    drawn = pathlib.Path(data).exists()
    yield Step("draw", [str(program), "data", "make", data], 600, proof=True,
               skip=why or ("drawn before" if drawn else ""), libraries=tree.carried())
    yield Step("train", [str(program), "train", "cifar10cnn", "--data", data, "--epochs", "2", "--device", "cuda",
                         "--precision", "fp16", "--out", run, "--overwrite"], 600, proof=True, skip=why,
               libraries=tree.carried())


def benchmark_steps(tree, arguments, out):
    program, peer = tree.program("warpstep_bench"), tree.program("step_peer")
    backend = arguments.emulate or "cuda"
    command = [str(program), "--backends", backend, "--benchmark_out=" + str(out / "kernels.json"),
               "--benchmark_out_format=json"]
    if arguments.emulate:  # product sizes would take minutes of plain loops
        command += ["--all_cases", "--benchmark_filter=linear/forward/f16/odd", "--benchmark_min_time=0.001"]
    elif arguments.quick:
        command += ["--benchmark_filter=" + QUICK_BENCHMARKS, "--benchmark_min_time=0.05"]
    yield Step("kernels", command, 300 if arguments.quick else 1800,
               skip="" if program else "no warpstep_bench in this tree")
    found = None if arguments.emulate else machine.python_with_torch()
    why = ("emulated" if arguments.emulate else "no step_peer in this tree" if not peer else
           "no Python with PyTorch (set PYTHON to one)" if not found else
           "" if found[2] else f"PyTorch {found[1]} finds no CUDA device")
    ours = [str(peer), "--device", "cuda", "--precision", "fp16"]
    command = [found[0] if found else "python3", str(tree.source / "bench" / "peers" / "pytorch_step.py"),
               "--model", "cifar10cnn", "--batch", "128", "--device", "cuda", "--precision", "fp16",
               "--out", str(out / "pytorch.json"), "--peer-cmd", " ".join(shlex.quote(w) for w in ours)]
    if arguments.quick:
        command += ["--survey-windows", "2", "--windows", "5"]
    yield Step("pytorch", command, 900 if arguments.quick else 2400, skip=why)


def find(arguments, tree):
    """The device and how it was found; exits with code 3 if there is none."""
    if arguments.emulate:
        facts, _ = machine.info(tree, machine.environment(tree))
        return {"device": "emulated"}, facts, machine.environment(tree, module=arguments.emulate)
    facts, cuda, env = machine.find_device(tree)
    if not cuda["available"]:
        no_device(cuda["reason"])
    device = machine.versions(cuda["description"])
    smi = machine.nvidia_smi()
    if smi:
        device["driver"] = smi[0]["driver_version"]
        device["nvidia_smi"] = smi
    return {**device, "description": cuda["description"]}, facts, env


def no_device(reason):
    say(f"gpu_check: no usable CUDA device: {reason}")
    sys.exit(3)


def report(outcome):
    tests = outcome.counts
    counted = "" if not tests else (f"{tests['passed']} passed, {tests['failed']} failed, {tests['skipped']} skipped"
                                    + (f", {tests['not_run']} not run" if tests["not_run"] else ""))
    say(f"{outcome.name:<28} {outcome.status:<10} {outcome.seconds:7.1f} s  {counted}")
    if outcome.reason:
        say(f"  {outcome.reason}")
    for failure in outcome.failures:
        say("\n".join([f"  FAILED {failure['test']}", *("    " + text for text in failure["output"])]))
    for reason, count in outcome.skips.items():
        say(f"  {count} skipped: {reason}")


def parse(words):
    parser = argparse.ArgumentParser(prog="tools/gpu_check", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short benchmarks, no compute-sanitizer")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/gpu_check"),
                        help="folder for logs and results (%(default)s)")
    parser.add_argument("--stage", type=pathlib.Path, help="a staged tree whose programs are run")
    # For work on gpu_check itself: the path of a module (libwarpstep_cuda_emulated.so) to test instead of cuda.
    parser.add_argument("--emulate", help=argparse.SUPPRESS)
    arguments = parser.parse_args(words)
    if arguments.emulate:
        arguments.emulate = os.path.abspath(arguments.emulate)
        if not os.path.exists(arguments.emulate):
            parser.error(f"--emulate: {arguments.emulate} does not exist")
    arguments.out = arguments.out.resolve()
    return arguments


def main(words):
    arguments = parse(words)
    tree, out = machine.find_tree(arguments.stage), arguments.out
    missing = None if arguments.emulate else machine.no_driver()
    if missing:
        no_device(missing)
    out.mkdir(parents=True, exist_ok=True)
    failed = None if tree.staged else build(tree, out)
    if failed:
        say(failed)
        return 1
    device, facts, env = find(arguments, tree)
    say(f"device    {device.get('description', device['device'])}")
    say(f"warpstep  {facts['version']}, commit {facts['commit']}")
    for old in ("kernels.json", "pytorch.json", "results.json", "rows.md"):
        if (out / old).exists():
            (out / old).unlink()
    outcomes = []
    for step in [*test_steps(tree, arguments), *train_steps(tree, arguments, out),
                 *benchmark_steps(tree, arguments, out)]:
        outcomes.append(steps.run(step, out, env))
        report(outcomes[-1])
    about = {"date": datetime.date.today().isoformat(), "commit": facts["commit"], "version": facts["version"],
             "command": " ".join(["tools/gpu_check", *(["--quick"] if arguments.quick else [])]), "device": device,
             "host": {key: facts.get(key) for key in ("system", "cpu", "cores", "memory_bytes", "compiler")}}
    result = results.collect(about, outcomes, out)
    results.write(result, out)
    tests = result["tests"]
    say(f"\nwrote {out / 'results.json'} and {out / 'rows.md'}")
    say(f"{tests['passed']} passed, {tests['failed']} failed, {tests['skipped']} skipped, {tests['not_run']} not run")
    return 0 if result["all_tests_passed"] else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (RuntimeError, subprocess.SubprocessError, OSError) as error:
        say(f"gpu_check: {error}")
        sys.exit(1)
