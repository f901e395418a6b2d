"""Runs one step of gpu_check with its own time limit and log, and counts the tests of test programs."""
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time


RUN = re.compile(r"\[ RUN      \] (\S+)")
END = re.compile(r"\[ +(OK|FAILED|SKIPPED) +\] (\S+?)(?:, where .*)? \(\d+ ms\)")
# After one of these every later call of the process fails: kernels/cuda/check.cpp prints the status by name.
STICKY = re.compile(r"cudaError(IllegalAddress|MisalignedAddress|IllegalInstruction|InvalidAddressSpace|InvalidPc|Assert|"
                    r"LaunchFailure|LaunchTimeout|HardwareStackError|ECCUncorrectable|DevicesUnavailable|Contained|Unknown)\b")
# What compute-sanitizer prints of a finding; its exit code comes only at the end of a process, which may be cut.
FINDING = re.compile(r"^========= (?!COMPUTE-SANITIZER|ERROR SUMMARY|RACECHECK SUMMARY|LEAK SUMMARY|Target application)\S", re.M)
RESTARTS = 30  # after this many failures a process continues after one, unless its CUDA error is sticky
SHOWN_LINES = 20  # last lines of a failing test's output
COUNTED = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}
GUARD = str(pathlib.Path(__file__).resolve().with_name("guard.py"))

interrupted = []  # the signal that asked this program to end, if one did


SKIPPED_RC = 77  # of a script that says in its last line what this machine lacks


@dataclasses.dataclass
class Step:
    name: str
    command: list
    limit_s: float
    least_s: float = 5  # with less time left it is not begun
    tests: bool = False  # the last word of the command is a GoogleTest program
    select: str = ""  # a pattern that its tests' names must have
    leave_out: str = ""  # a pattern that they must not have
    jobs: int = 1  # its tests run in so many processes at once
    planned_s: float = 0  # how long it takes on an H200 with 16 cores, measured; 0: as long as its limit
    may_skip: bool = False  # all tests may be skipped; otherwise a program without a test that ran fails
    proof: bool = False  # the step itself counts as one test
    skip: str = ""  # the reason to skip it
    carried: bool = False  # needs the libraries of a staged tree
    env: dict = dataclasses.field(default_factory=dict)  # variables of its own
    first: tuple = ()  # a command to run before, unless the path `makes` is there
    makes: str = ""
    refused: str = ""  # a pattern: a line of the output that has it makes the step fail


@dataclasses.dataclass
class Outcome:
    name: str
    status: str  # passed, failed, timed out, skipped; cut and not run: the time of --budget was over
    command: list = dataclasses.field(default_factory=list)
    rc: object = None  # exit code; None: it was stopped
    seconds: float = 0
    log: str = ""  # its name in the archive
    reason: str = ""
    counts: dict = None  # numbers of tests: passed, failed, skipped, not_run
    failures: list = dataclasses.field(default_factory=list)  # {"test", "output"}
    skips: dict = dataclasses.field(default_factory=dict)  # reason -> tests
    done: list = dataclasses.field(default_factory=list)  # of a step that was cut: the tests that ended

    def is_whole(self):
        return self.status in ("passed", "failed", "timed out")


def on_signal(number, _):
    interrupted.append(number)


def wait(process, limit_s):
    """The exit code; None past the limit, or once this program is asked to end."""
    end = time.monotonic() + limit_s
    while not interrupted:
        left = end - time.monotonic()
        try:
            return process.wait(max(min(left, 0.2), 0.01))
        except subprocess.TimeoutExpired:
            if left <= 0:
                return None
    return None


def execute(command, log, limit_s, env, cwd=None):
    """Appends the outputs to the file `log`. Returns (exit code, appended text); the code is None if it was stopped.

    However this program ends, guard.py ends the command and all that it started.
    """
    with open(log, "a+", errors="replace") as file:
        file.write("$ " + " ".join(command) + "\n")
        file.flush()
        begin = file.tell()
        gone, held = os.pipe()
        process = subprocess.Popen([sys.executable, "-I", "-S", GUARD, str(gone), *command], stdin=subprocess.DEVNULL,
                                   stdout=file, stderr=subprocess.STDOUT, env=env, cwd=cwd, pass_fds=[gone],
                                   start_new_session=True)
        os.close(gone)
        try:
            code = wait(process, limit_s)
        finally:
            os.close(held)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    with open(log, errors="replace") as file:
        file.seek(begin)
        return code, file.read()


def parse(output, to_first_failure):
    """(test -> (OK | FAILED | SKIPPED, its output) in order, the test that started but did not end).

    Stops at a failure that left the process useless: what follows it says nothing.
    """
    ended, running, lines = {}, None, []
    for line in output.splitlines():
        begun, end = RUN.search(line), END.search(line)
        if begun:
            running, lines = begun[1], []
        elif end and end[2] == running:
            ended[running] = ("FAILED" if end[1] == "OK" and FINDING.search("\n".join(lines)) else end[1], lines)
            running = None
            if end[1] == "FAILED" and (to_first_failure or STICKY.search("\n".join(lines))):
                break  # with fail_fast the others are listed as skipped, but did not run
        else:
            lines.append(line)
    return ended, (running, lines) if running else None


def listed(step, env):
    """The step's tests, of those that its GoogleTest program lists."""
    program = step.command[-1]
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
    tests = [t for t in tests if re.search(step.select, t) and not (step.leave_out and re.search(step.leave_out, t))]
    if not tests:
        raise RuntimeError(f"{program} has no test whose name has '{step.select}'")
    return tests


def skip_reason(lines):
    for line, following in zip(lines, lines[1:] + [""]):
        if line.endswith(": Skipped"):
            return following.strip() or "no reason given"
    return "no reason given"


def count(outcome, ended):
    """Adds tests that ended to the outcome's figures; those that it has already count once."""
    outcome.counts = outcome.counts or dict.fromkeys((*COUNTED.values(), "not_run"), 0)
    done = set(outcome.done)
    for test, (result, lines) in ended.items():
        if test in done:
            continue
        outcome.counts[COUNTED[result]] += 1
        outcome.done.append(test)
        if result == "FAILED":
            outcome.failures.append({"test": test, "output": lines[-SHOWN_LINES:]})
        elif result == "SKIPPED":
            outcome.skips[skip_reason(lines)] = outcome.skips.get(skip_reason(lines), 0) + 1


def part_of(log, number):
    """The log of one of several processes while it runs; then it is at the end of `log`."""
    return log.with_name(f"{log.stem}.{number}{log.suffix}")


def parts_of(log):
    return sorted(log.parent.glob(f"{log.stem}.*{log.suffix}"))


def read_log(log):
    """In whole lines, as another process's follow."""
    text = log.read_text(errors="replace")
    return text if text.endswith("\n") or not text else text + "\n"


class Parts:
    """A step's tests, in as many processes as it has jobs: each has every so many of them, so that neighbours, which
    take similar times, are in different ones."""

    def __init__(self, step, outcome, tests, end, is_cut, env, log):
        self.step, self.outcome, self.end, self.is_cut, self.env, self.log = step, outcome, end, is_cut, env, log
        self.jobs = max(1, min(step.jobs, len(tests)))
        self.parts = [tests[number::self.jobs] for number in range(self.jobs)]
        self.lock = threading.Lock()  # of the outcome and of the step's log

    def run(self):
        """Whether a process was stopped."""
        if self.jobs == 1:
            return self.part(self.log, self.parts[0])
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            running = [pool.submit(self.part, part_of(self.log, number), tests)
                       for number, tests in enumerate(self.parts)]
            return any([each.result() for each in running])

    def part(self, log, remaining):
        """A sticky CUDA error costs the test that met it: a new process runs the rest."""
        while remaining:
            code, ended, running = self.process(log, remaining)
            with self.lock:
                done = self.take(code, ended, running)
                if log != self.log:
                    with open(self.log, "a", errors="replace") as whole:
                        whole.write(read_log(log))
                    log.unlink()
            if code is None or not done:
                return code is None
            remaining = [test for test in remaining if test not in done]
        return False

    def process(self, log, tests):
        """Runs `tests` until the program ends or one fails: its exit code, the tests that ended, the one that had not."""
        with tempfile.NamedTemporaryFile("w", suffix=".flags") as flags:
            flags.write("--gtest_filter=" + ":".join(tests) + "\n")
            flags.flush()
            stops = ["--gtest_fail_fast"] if self.outcome.counts["failed"] < RESTARTS else []
            code, output = execute([*self.step.command, "--gtest_flagfile=" + flags.name, "--gtest_color=no", *stops],
                                   str(log), self.end - time.monotonic(), self.env)
        return (code, *parse(output, bool(stops)))

    def take(self, code, ended, running):
        """Counts what a process ended with; the tests that need not run again."""
        outcome = self.outcome
        if running and code is not None:
            ended[running[0]] = ("FAILED", [*running[1], f"ended the program, exit code {code}"])
        elif running and not self.is_cut and not interrupted:
            ended[running[0]] = ("FAILED", [*running[1], "not finished within the time limit"])
        count(outcome, ended)
        outcome.rc = code if outcome.rc in (None, 0) else outcome.rc
        if code not in (0, None) and not outcome.failures:  # a sanitizer's findings
            outcome.status, outcome.reason = "failed", f"exit code {code} although no test failed; see the log"
        return set(ended)


def run_tests(step, outcome, end, is_cut, env, log):
    """Runs every test of the program that has not ended before. `is_cut`: at `end` the budget is over, not the step's own
    limit. Returns whether it was stopped."""
    count(outcome, {})
    every, done = listed(step, env), set(outcome.done)
    stopped = Parts(step, outcome, [test for test in every if test not in done], end, is_cut, env, log).run()
    place = {test: number for number, test in enumerate(every)}
    outcome.failures.sort(key=lambda failure: place.get(failure["test"], -1))
    counts, remaining = outcome.counts, set(every) - set(outcome.done)
    counts["not_run"] = len(remaining)
    if counts["failed"] or remaining:
        outcome.status = "failed"
    elif not counts["passed"] and not step.may_skip:
        outcome.status, outcome.reason = "failed", "all of its tests were skipped"
    if remaining:
        outcome.reason = f"{len(remaining)} tests were not run; see the log"
    return stopped


def judge(outcome, limit_s, is_cut, stopped):
    """What being stopped makes of the outcome."""
    if stopped and (interrupted or is_cut):
        outcome.status = "cut"
        outcome.reason = (f"signal {interrupted[0]}" if interrupted else "the budget was over") + "; continue with --resume"
    elif stopped:
        outcome.status, outcome.reason = "timed out", f"stopped after {limit_s:.1f} s"
    if outcome.status != "cut":
        outcome.done = []


def run(step, log, env, left_s, earlier=None):
    """Runs the step within `left_s` seconds and returns its outcome; no failure of the step raises. `earlier`: its
    outcome when it was cut, whose tests are not repeated."""
    if step.skip:
        return Outcome(step.name, "skipped", reason=step.skip)
    if left_s < min(step.least_s, step.limit_s):
        return earlier or Outcome(step.name, "not run", reason=f"needs {step.least_s:g} s; the budget was over")
    continued = earlier if earlier and step.tests else None
    outcome = dataclasses.replace(continued) if continued else Outcome(step.name, "passed", list(step.command))
    outcome.status, outcome.reason, outcome.log, outcome.rc = "passed", "", f"{step.name}.log", None
    limit_s, is_cut = min(step.limit_s, left_s), left_s < step.limit_s
    began, stopped = time.monotonic(), False
    try:
        if step.tests:
            stopped = run_tests(step, outcome, began + limit_s, is_cut, env, log)
        else:
            for command in [step.first] * bool(step.first and not os.path.exists(step.makes)) + [step.command]:
                outcome.rc, output = execute(list(command), str(log), began + limit_s - time.monotonic(), env)
                if outcome.rc != 0:
                    break
            stopped = outcome.rc is None
            if outcome.rc not in (0, None):
                last = [line.strip() for line in output.splitlines() if line.strip()]
                outcome.status = "skipped" if outcome.rc == SKIPPED_RC else "failed"
                outcome.reason = last[-1] if last else ""
            elif step.refused and (line := re.search(f".*(?:{step.refused}).*", output)):
                outcome.status, outcome.reason = "failed", line[0].strip()
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        outcome.status, outcome.reason = "failed", str(error)
    outcome.seconds = round(time.monotonic() - began, 1)
    judge(outcome, limit_s, is_cut, stopped)
    if step.proof and outcome.status not in ("cut", "skipped"):
        good = outcome.status == "passed"
        outcome.counts = {"passed": int(good), "failed": int(not good), "skipped": 0, "not_run": 0}
    return outcome


def recovered(step, text):
    """The outcome of a step whose log is all that is left, because this program was killed."""
    outcome = Outcome(step.name, "cut", list(step.command), log=f"{step.name}.log", reason="killed; continue with --resume")
    if step.tests:
        for part in re.split(r"(?m)^\$ ", text):
            count(outcome, parse(part, True)[0])
    return outcome
