"""Tests and measures Warpstep on a CUDA device, most valuable first.

What a step found is in the output folder when it ends: results.json, rows.md (rows for bench/RECORDS.md) and archive.tar.gz (logs and
files); running.log is the log of a step that runs. After --budget, a signal or a crash, --resume runs what is missing.
In the repository it builds first; a staged tree (cmake --install build/release --prefix DIR --component gpu_check --strip) needs
only Python.

Exit codes: 0 all tests passed, 1 some failed, 2 wrong usage, 3 no usable CUDA device, 4 the budget was over or a signal came before
the end, and nothing had failed.
"""
import argparse
import datetime
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import machine
import plan
import results
import steps

RESERVED_S = 4  # of the budget, to write the last results


def say(text=""):
    print(text, flush=True)


BUILD = """tools/setup --check && source tools/environment.sh &&
cmake --preset release -DWARPSTEP_CUDA=ON -DWARPSTEP_TESTS=ON "-DWARPSTEP_WERROR=$WARPSTEP_WERROR" "$@" &&
cmake --build --preset release --parallel "$(build_jobs)" --target gpu_check_programs"""


BUILD_S = 5400


def build(tree, out, left_s):
    """The exit code, 0 if the programs could be built, and why they could not."""
    say("building (after tools/setup, which installs missing packages) ...")
    found = machine.architectures()
    log = out / "build.log"
    log.write_text("")
    options = [f"-DCMAKE_CUDA_ARCHITECTURES={found}"] if found else []
    code, output = steps.execute(["bash", "-c", BUILD, "build", *options], str(log), min(BUILD_S, left_s),
                                 dict(os.environ), cwd=str(tree.source))
    if code is None:
        why = (f"by signal {steps.interrupted[0]}" if steps.interrupted else
               "as the budget was over" if left_s < BUILD_S else f"after {BUILD_S} s")
        return (1 if why.startswith("after") else 4), f"gpu_check: the build was stopped {why}; stage a tree (docs/gpu.md)"
    return (0, "") if code == 0 else (1, "\n".join([*output.splitlines()[-30:], f"gpu_check: the build failed; full output: {log}"]))


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
    # From here on a test that finds no device has lost it: a failure, not a reason to skip.
    return {**device, "description": cuda["description"]}, facts, {**env, "WARPSTEP_DEVICE_SEEN": "1"}


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


class Session:
    """One call of gpu_check: its folders, what earlier ones found, and the results so far."""

    def __init__(self, arguments, tree, about, end, scratch):
        self.out, self.end, self.about, self.scratch = arguments.out, end, about, scratch
        self.files = self.scratch / "files"
        self.files.mkdir()
        self.outcomes, self.steps = {}, plan.steps(tree, arguments, self.files, self.scratch)
        self.log = self.out / results.RUNNING
        if arguments.resume:
            self.resume(arguments.resume)
        else:
            for old in (results.RESULTS, results.ROWS, results.ARCHIVE):
                if (self.out / old).exists():
                    (self.out / old).unlink()
            results.remove_running_log(self.out)
        self.repeated = arguments.only is not None  # steps that are named run again
        self.chosen = plan.chosen(self.steps, arguments)

    def resume(self, folder):
        result, self.outcomes, log = results.load(folder, self.files)
        for was, now, keys in ((result, self.about, ("commit", "version")),
                               (result["device"], self.about["device"], ("device", "driver", "cuda", "cudnn"))):
            for key in keys:
                if was.get(key) != now.get(key):
                    raise ValueError(f"--resume: the results in {folder} are of {key} {was.get(key)}, this run is of "
                                     f"{now.get(key)}; start again without --resume")
        running = next((step for step in self.steps if step.name == result["running"]), None)
        if running and log:
            self.outcomes[running.name] = steps.recovered(running, log)
            (self.files / f"{running.name}.log").write_text(log)

    def left_s(self):
        return self.end - time.monotonic()

    def in_order(self):
        order = {step.name: place for place, step in enumerate(self.steps)}
        return sorted(self.outcomes.values(), key=lambda outcome: order.get(outcome.name, len(order)))

    def save(self, running=None):
        missing = any(step.name not in self.outcomes for step in self.chosen)
        result = results.collect(self.about, self.in_order(), self.files, running, missing)
        results.write(result, self.files, self.out)
        return result

    def begin(self, step):
        """What an earlier call had of the step, and its log; of one that is not continued, nothing."""
        earlier = self.outcomes.get(step.name)
        continued = earlier if earlier and earlier.status == "cut" and step.tests and not self.repeated else None
        kept = self.files / f"{step.name}.log"
        self.log.write_text(kept.read_text(errors="replace") if continued and kept.exists() else "")
        for part in steps.parts_of(self.log):  # of processes that were killed: it is in the kept log
            part.unlink()
        self.save(running=step.name)
        return continued

    def run(self, env, tree):
        for step in self.chosen:
            earlier = self.outcomes.get(step.name)
            if earlier and earlier.is_whole() and not self.repeated:
                continue
            if steps.interrupted:
                break
            if step.skip or self.left_s() < step.least_s:
                outcome = steps.run(step, self.log, env, self.left_s(), earlier)
            else:
                continued = self.begin(step)
                carried = tree.carried() if step.carried else []
                outcome = steps.run(step, self.log, {**machine.with_libraries(env, carried), **step.env}, self.left_s(),
                                    continued)
                shutil.copyfile(self.log, self.files / f"{step.name}.log")
            self.outcomes[step.name] = outcome
            report(outcome)
            if outcome.status not in ("skipped", "not run"):
                self.save()
        results.remove_running_log(self.out)
        return self.save()


def parse(words):
    parser = argparse.ArgumentParser(prog="tools/gpu_check", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short benchmarks, no compute-sanitizer")
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="end within this time, with results of what ran")
    parser.add_argument("--jobs", type=int, metavar="N",
                        help="processes that run a step's tests at once; timing steps run alone. Default: one per core and 2 GiB of "
                             "the device, at most 16; half of it for sanitizers")
    parser.add_argument("--only", metavar="STEPS", help="these steps, separated by commas; the beginning of a name is enough")
    parser.add_argument("--skip", metavar="STEPS", help="not these steps")
    parser.add_argument("--from", dest="first", metavar="STEP", help="begin with this step")
    parser.add_argument("--list", action="store_true", help="print the steps, their times on an H200, and their limits")
    parser.add_argument("--resume", type=pathlib.Path, nargs="?", const=pathlib.Path(), metavar="DIR",
                        help="run what the results in this folder (default: --out) lack")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/gpu_check"),
                        help="folder for the results (%(default)s)")
    parser.add_argument("--stage", type=pathlib.Path, help="a staged tree whose programs are run")
    # For work on gpu_check itself: the path of a module (libwarpstep_cuda_emulated.so) to test instead of cuda.
    parser.add_argument("--emulate", help=argparse.SUPPRESS)
    arguments = parser.parse_args(words)
    if arguments.emulate:
        arguments.emulate = os.path.abspath(arguments.emulate)
        if not os.path.exists(arguments.emulate):
            parser.error(f"--emulate: {arguments.emulate} does not exist")
    if arguments.budget is not None and not arguments.budget > 0:
        parser.error(f"--budget: {arguments.budget:g} s is not above 0")
    if arguments.jobs is not None and arguments.jobs < 1:
        parser.error(f"--jobs: {arguments.jobs} is less than 1")
    arguments.processes = arguments.jobs or 1  # of test programs, once the device is known: machine.processes()
    arguments.out = arguments.out.resolve()
    if arguments.resume is not None:
        arguments.resume = arguments.out if arguments.resume == pathlib.Path() else arguments.resume.resolve()
    return arguments


def about_this(arguments, device, facts):
    return {"date": datetime.date.today().isoformat(), "commit": facts["commit"], "version": facts["version"],
            "command": " ".join(["tools/gpu_check", *(["--quick"] if arguments.quick else [])]), "device": device,
            "host": {key: facts.get(key) for key in ("system", "cpu", "cores", "memory_bytes", "compiler")}}


def exit_code(result, outcomes):
    tests = [outcome for outcome in outcomes if outcome.counts]
    if any(o.counts["failed"] or o.status in ("failed", "timed out") for o in tests):
        return 1
    if not result["whole"]:
        return 4
    if not tests:  # figures alone
        statuses = [outcome.status for outcome in outcomes]
        return int("passed" not in statuses or "failed" in statuses or "timed out" in statuses)
    return 0 if result["all_tests_passed"] else 1


def main(words):
    began, arguments = time.monotonic(), parse(words)
    end = began + arguments.budget - RESERVED_S if arguments.budget else float("inf")
    tree, out = machine.find_tree(arguments.stage), arguments.out
    if arguments.list:
        for step in plan.steps(tree, arguments, out, out):
            say(f"{step.name:<20} {step.planned_s or step.limit_s:5g} s, at most {step.limit_s:g} s  {step.skip}".rstrip())
        return 0
    plan.chosen(plan.steps(tree, arguments, out, out), arguments)  # a wrong name is found before the build
    missing = None if arguments.emulate else machine.no_driver()
    if missing:
        no_device(missing)
    out.mkdir(parents=True, exist_ok=True)
    lacking = None if tree.staged else machine.cannot_build()
    if lacking and machine.staged_in(tree):
        tree = machine.staged_in(tree)
        say(f"gpu_check: cannot build here ({lacking}); using the staged tree {tree.source}")
    code, failed = (0, "") if tree.staged else build(tree, out, end - time.monotonic())
    if code == 1 and lacking:
        failed += f"\ngpu_check: cannot build here ({lacking}): stage a tree elsewhere and bring it to build/stage (docs/gpu.md)"
    if code:
        say(failed)
        return code
    device, facts, env = find(arguments, tree)
    if not arguments.jobs and not arguments.emulate:
        arguments.processes = machine.processes(device.get("description", ""))
    say(f"device    {device.get('description', device['device'])}")
    say(f"warpstep  {facts['version']}, commit {facts['commit']}")
    with tempfile.TemporaryDirectory(prefix="gpu_check_") as scratch:
        session = Session(arguments, tree, about_this(arguments, device, facts), end, pathlib.Path(scratch))
        result = session.run(env, tree)
    tests = result["tests"]
    say(f"\nwrote {', '.join((results.RESULTS, results.ROWS, results.ARCHIVE))} in {out}")
    say(f"{tests['passed']} passed, {tests['failed']} failed, {tests['skipped']} skipped, {tests['not_run']} not run"
        + ("" if result["whole"] else "; not whole: continue with --resume"))
    return exit_code(result, session.in_order())


def command(words):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup leaves SIGHUP
            signal.signal(number, steps.on_signal)
    try:
        return main(words)
    except (plan.Unknown, ValueError) as error:
        say(f"gpu_check: {error}")
        return 2
    except (RuntimeError, subprocess.SubprocessError, OSError) as error:
        say(f"gpu_check: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(command(sys.argv[1:]))
