"""Runs one step of gpu_check with its own time limit and log, and counts the tests of test programs."""
import collections
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

import machine

RUN = re.compile(r"\[ RUN      \] (\S+)")
END = re.compile(r"\[ +(OK|FAILED|SKIPPED) +\] (\S+?)(?:, where .*)? \(\d+ ms\)")
RESTARTS = 30  # after this many failures the rest runs in one process, even if CUDA errors persist in it
SHOWN_LINES = 20  # last lines of a failing test's output


@dataclasses.dataclass
class Step:
    name: str
    command: list
    limit_s: float
    tests: bool = False  # the last word of the command is a GoogleTest program
    may_skip: bool = False  # all tests may be skipped; otherwise a program without a test that ran fails
    proof: bool = False  # the step itself counts as one test
    skip: str = ""  # the reason to skip it
    libraries: list = dataclasses.field(default_factory=list)  # folders that the loader searches first


@dataclasses.dataclass
class Outcome:
    name: str
    status: str  # passed, failed, timed out, skipped
    command: list = dataclasses.field(default_factory=list)
    rc: object = None  # exit code; None: it was stopped
    seconds: float = 0
    log: str = ""
    reason: str = ""
    counts: dict = None  # numbers of tests: passed, failed, skipped, not_run
    failures: list = dataclasses.field(default_factory=list)  # {"test", "output"}
    skips: dict = dataclasses.field(default_factory=dict)  # reason -> tests


def execute(command, log, limit_s, env, cwd=None):
    """Appends the outputs to the file `log`. Returns (exit code, appended text); the code is None past the limit."""
    with open(log, "a+", errors="replace") as file:
        file.write("$ " + " ".join(command) + "\n")
        file.flush()
        begin = file.tell()
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                                       env=env, cwd=cwd, start_new_session=True)
        except OSError as error:
            file.write(f"{error}\n")
            return 127, str(error)
        try:
            code = process.wait(max(limit_s, 0.1))
        except subprocess.TimeoutExpired:
            code = None
        finally:  # also ends its child processes, even if this program is interrupted
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
    with open(log, errors="replace") as file:
        file.seek(begin)
        return code, file.read()


def parse(output, to_first_failure):
    """(test -> (OK | FAILED | SKIPPED, its output) in order, the test that started but did not end)."""
    ended, running, lines = {}, None, []
    for line in output.splitlines():
        begun, end = RUN.search(line), END.search(line)
        if begun:
            running, lines = begun[1], []
        elif end and end[2] == running:
            ended[running] = (end[1], lines)
            running = None
            if end[1] == "FAILED" and to_first_failure:
                break  # the others are listed as skipped, but did not run
        else:
            lines.append(line)
    return ended, (running, lines) if running else None


def listed(program, env):
    """The tests of a GoogleTest program."""
    ran = subprocess.run([program, "--gtest_list_tests"], env=env, capture_output=True, text=True, timeout=120,
                         check=False)
    tests, suite = [], ""
    for line in ran.stdout.splitlines():
        name = line.split("#")[0].rstrip()
        if name.endswith(".") and not name.startswith(" "):
            suite = name
        elif name.startswith("  ") and suite:
            tests.append(suite + name.strip())
    if ran.returncode != 0 or not tests:
        raise RuntimeError(f"{program} lists no tests (exit code {ran.returncode}): {ran.stderr.strip()[-500:]}")
    return tests


def skip_reason(lines):
    for line, following in zip(lines, lines[1:] + [""]):
        if line.endswith(": Skipped"):
            return following.strip() or "no reason given"
    return "no reason given"


def run_tests(step, outcome, env):
    """Runs every test of the program. CUDA errors may persist in a process: after a failure a new one runs the rest."""
    counts = collections.Counter()
    outcome.counts = {}
    remaining = listed(step.command[-1], env)
    end = time.monotonic() + step.limit_s
    while remaining:
        with tempfile.NamedTemporaryFile("w", suffix=".flags") as flags:
            flags.write("--gtest_filter=" + ":".join(remaining) + "\n")
            flags.flush()
            stops = ["--gtest_fail_fast"] if counts["failed"] < RESTARTS else []
            code, output = execute([*step.command, "--gtest_flagfile=" + flags.name, "--gtest_color=no", *stops],
                                   outcome.log, end - time.monotonic(), env)
        ended, running = parse(output, bool(stops))
        for test, (result, lines) in ended.items():
            counts[{"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}[result]] += 1
            if result == "FAILED":
                outcome.failures.append({"test": test, "output": lines[-SHOWN_LINES:]})
            elif result == "SKIPPED":
                outcome.skips[skip_reason(lines)] = outcome.skips.get(skip_reason(lines), 0) + 1
        if running:
            what = "not finished within the time limit" if code is None else f"ended the program, exit code {code}"
            counts["failed"] += 1
            outcome.failures.append({"test": running[0], "output": [*running[1][-SHOWN_LINES:], what]})
        outcome.rc = code if outcome.rc in (None, 0) else outcome.rc
        done = set(ended) | ({running[0]} if running else set())
        remaining = [test for test in remaining if test not in done]
        if code not in (0, None) and not outcome.failures:  # a sanitizer's findings
            outcome.status, outcome.reason = "failed", f"exit code {code} although no test failed; see the log"
        if code is None or not done:
            break
    outcome.counts = {key: counts[key] for key in ("passed", "failed", "skipped")}
    outcome.counts["not_run"] = len(remaining)
    if counts["failed"] or remaining:
        outcome.status = "failed"
    elif not counts["passed"] and not step.may_skip:
        outcome.status, outcome.reason = "failed", "all of its tests were skipped"
    if remaining:
        outcome.reason = f"{len(remaining)} tests were not run; see the log"


def run(step, out, env):
    """Runs the step and returns its outcome; no failure of the step raises."""
    outcome = Outcome(step.name, "passed", list(step.command), log=str(pathlib.Path(out) / f"{step.name}.log"))
    if step.skip:
        return Outcome(step.name, "skipped", reason=step.skip)
    pathlib.Path(outcome.log).write_text("")
    env, began = machine.with_libraries(env, step.libraries), time.monotonic()
    try:
        if step.tests:
            run_tests(step, outcome, env)
        else:
            outcome.rc, output = execute(step.command, outcome.log, step.limit_s, env)
            if outcome.rc not in (0, None):
                last = [line.strip() for line in output.splitlines() if line.strip()]
                outcome.status, outcome.reason = "failed", last[-1] if last else ""
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        outcome.status, outcome.reason = "failed", str(error)
    outcome.seconds = round(time.monotonic() - began, 1)
    if outcome.rc is None and outcome.seconds >= step.limit_s:
        outcome.status, outcome.reason = "timed out", f"stopped after {step.limit_s:g} s"
    if step.proof:
        good = outcome.status == "passed"
        outcome.counts = {"passed": int(good), "failed": int(not good), "skipped": 0, "not_run": 0}
    return outcome
