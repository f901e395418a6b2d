"""Builds and runs every tier of tests that this machine can run, and says what it skipped and why.

The tiers are CTest labels, except asan* and tsan*, which are other tiers built with sanitizers. tools/check, which
starts this program, checks the arguments first: add a new argument there too.
Ends with one line 'N passed, N failed, N skipped'. These are tests; a tier that was skipped as a whole counts the
tests it would have run. Exit code 1 if anything failed, if a tier that this machine can run had no tests, or
if no test ran.
"""
import argparse
import collections
import concurrent.futures
import ctypes
import dataclasses
import itertools
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools/gpu"))
import cores  # noqa: E402

CORES = cores.cores()
SHOWN_LINES = 150  # last lines of the output of a failing test or build
MAX_OUTPUT_BYTES = 20_000_000  # of a failing test, which may be a program of thousands of cases


@dataclasses.dataclass
class Tier:
    name: str
    labels: tuple
    preset: str = "release"
    targets: tuple = ()  # empty: all targets
    optional: bool = False  # some trees and machines have no such tests
    single: bool = False  # few tests, each on one core most of the time: runs beside other such tiers
    environment: dict = dataclasses.field(default_factory=dict)
    tests: str = ""  # a regular expression of test names; empty: all tests with these labels


SANITIZED = ("tier_host", "tier_cpu", "tier_cuda-on-cpu")  # targets built with sanitizers
# A program that ends while another thread lives waits this long for races, by default a second.
AT_EXIT = {"TSAN_OPTIONS": "atexit_sleep_ms=50"}
# Every op and the losses of whole models: results that depend on the instruction set.
OLD_CPU = "^(op_cpu_test|parity_test|model_test|random_model_cpu_test)/"
# Most machines have AVX2 and no AVX-512: also threads, signals, text, and whole runs with what they resume and evaluate.
AVX2 = ("^(op_cpu_test|parity_test|model_test|random_model_cpu_test|cpu_test|signals_test|decoding_test|statistics_cpu_test|"
        "precision_spread_cpu_test|system_test/(Train|Resume|Text|Weights|Numerics|Again)[.])")
TIERS = [
    Tier("style", ("style",)),
    Tier("host", ("host",)),
    Tier("cpu", ("cpu",)),
    # Code that works with this CPU's instruction set may be unsupported, or wrong, with that of another CPU.
    Tier("cpu-avx2", ("cpu",), optional=True, environment={"WARPSTEP_CPU_ISA": "avx2"}, tests=AVX2),
    # Products of bf16 with AVX512_BF16, where the tier cpu has used AMX.
    Tier("cpu-avx512-bf16", ("cpu",), optional=True, environment={"WARPSTEP_CPU_ISA": "avx512-bf16"},
         tests="^(op_cpu_test|gemm_bf16_test|model_test|random_model_cpu_test|precision_spread_cpu_test)/"),
    # With more threads than cores: some shares of kernels' work are none or uneven only with several.
    Tier("cpu-sse41", ("cpu",), optional=True, environment={"WARPSTEP_CPU_ISA": "sse41", "OMP_NUM_THREADS": "5"}, tests=OLD_CPU),
    Tier("cuda-on-cpu", ("cuda-on-cpu",), optional=True),
    Tier("gpu", ("gpu",), optional=True),
    Tier("plans", ("plans",), optional=True, single=True),
    Tier("example", ("example",), single=True),
    Tier("pages", ("pages",), single=True),
    Tier("python", ("python",), single=True),
    Tier("asan", ("host",), "asan", SANITIZED),
    # LeakSanitizer's own tracer crashes on libgomp's idle threads; code that can leak is tested in the host tier too.
    Tier("asan-cpu", ("cpu",), "asan", SANITIZED, environment={"ASAN_OPTIONS": "detect_leaks=0"}),
    # The OpenMP runtime is not instrumented: with more threads every parallel loop looks like a race.
    Tier("tsan", ("host", "cpu"), "tsan", SANITIZED, environment={"OMP_NUM_THREADS": "1", **AT_EXIT}),
    # Out-of-bounds and misaligned accesses of the CUDA kernels, and races between their threads.
    Tier("asan-cuda", ("cuda-on-cpu",), "asan", SANITIZED, optional=True),
    Tier("tsan-cuda", ("cuda-on-cpu",), "tsan", SANITIZED, optional=True,
         environment={"OMP_NUM_THREADS": "1", **AT_EXIT}),
]


@dataclasses.dataclass
class Result:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    notes: list = dataclasses.field(default_factory=list)
    seconds: float = 0  # of the tests, without the build before them


def say(text=""):
    print(text, flush=True)


def tail(text):
    lines = text.rstrip().splitlines()
    cut = [f"... {len(lines) - SHOWN_LINES} lines before"] if len(lines) > SHOWN_LINES else []
    return "\n".join("    " + line for line in cut + lines[-SHOWN_LINES:])


def run(command, **how):
    """As subprocess.run(): but the command ends, with all that it started, when this program does."""
    gone, held = os.pipe()
    try:
        return subprocess.run([sys.executable, "-I", "-S", ROOT / "tools/gpu/guard.py", str(gone), *command], pass_fds=[gone],
                              check=False, **how)
    finally:
        os.close(held)
        os.close(gone)


def without_random_addresses(preset):
    """A prefix for commands: ThreadSanitizer of older compilers cannot start with highly randomised addresses."""
    prefix = ["setarch", platform.machine(), "-R"]
    if preset != "tsan" or not shutil.which("setarch"):
        return []
    return prefix if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0 else []


def failures(output):
    """What the failing tests of a GoogleTest program printed; of any other program, its last lines."""
    shown, running = [], []
    for line in output.splitlines():
        if line.startswith("[ RUN "):
            running = []
        running.append(line)
        if line.startswith("[  FAILED  ]") and line.endswith(" ms)"):
            shown += running
            running = []
    return tail("\n".join(shown) if shown else output)


class Builds:
    """Configures and builds each preset's targets, and lists its tests, at most once."""

    def __init__(self):
        self.done = {}
        self.listed = {}

    def registered(self, preset):
        """After the build: programs list their tests when they are built."""
        if preset not in self.listed:
            self.listed[preset] = registered(preset)
        return self.listed[preset]

    def step(self, preset, name, command):
        key = (preset, name)
        if key in self.done:
            return self.done[key]
        log = ROOT / "build" / f"check-{preset}-{name}.log"
        log.parent.mkdir(exist_ok=True)
        began = time.monotonic()
        with log.open("w") as output:
            good = run([*without_random_addresses(preset), *command], cwd=ROOT, stdout=output,
                       stderr=subprocess.STDOUT).returncode == 0
        if time.monotonic() - began > 5 or not good:
            say(f"{name} {preset}: {time.monotonic() - began:.0f} s" + ("" if good else ", FAILED"))
        if not good:
            say(tail(log.read_text(errors="replace")))
            say(f"    (full output: {log.relative_to(ROOT)})")
        self.done[key] = good
        return good

    def configure(self, preset):
        warnings = os.environ.get("WARPSTEP_WERROR", "ON")
        return self.step(preset, "configure", ["cmake", "--preset", preset, "-DWARPSTEP_TESTS=ON",
                                               f"-DWARPSTEP_WERROR={warnings}"])

    def build(self, preset, targets):
        wanted = ["--target", *targets] if targets else []
        return self.configure(preset) and self.step(
            preset, "build", ["cmake", "--build", "--preset", preset, "-j", str(cores.build_jobs()), *wanted])


def registered(preset):
    """Label -> number of tests; tests without a known tier are counted under None."""
    listing = subprocess.run(["ctest", "--preset", preset, "--show-only=json-v1"], cwd=ROOT, capture_output=True,
                             text=True, check=True)
    known = {label for tier in TIERS for label in tier.labels}
    counts = collections.Counter()
    for test in json.loads(listing.stdout)["tests"]:
        labels = next((p["value"] for p in test.get("properties", []) if p["name"] == "LABELS"), [])
        counts.update([label for label in labels if label in known] or [None])
    return counts


def cuda_device_missing():
    """Why no CUDA device can be used, or None."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver (libcuda.so.1 not found)"
    count = ctypes.c_int(0)
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if status or count.value == 0:
        return f"the NVIDIA driver finds no device (status {status})"
    return None


def cuda_backend_missing():
    """Why CMake built no CUDA backend (cmake/WarpstepCuda.cmake), or None."""
    log = ROOT / "build/check-release-configure.log"
    found = re.search(r"CUDA backend: not built, (.+)", log.read_text(errors="replace")) if log.is_file() else None
    return found and found[1]


def has_avx512():
    """Whether the tier cpu runs with AVX-512 here (engine/core/cpu_x86_64.cpp checks the same flags)."""
    cpuinfo = pathlib.Path("/proc/cpuinfo").read_text()
    return all(f" {flag} " in cpuinfo.replace("\n", " ") for flag in
               ("avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl"))


def has_amx():
    """Whether products of bf16 run on AMX here, where the kernel permits it."""
    return " amx_bf16 " in pathlib.Path("/proc/cpuinfo").read_text().replace("\n", " ")


def why_not(tier, counts):
    """Why an optional tier cannot run here, or None."""
    if not tier.optional:
        return None
    if tier.name == "gpu" and (missing := cuda_device_missing()):
        return missing
    if tier.name == "cpu-sse41" and platform.machine() != "x86_64":
        return "this is not an x86-64 CPU, so the tier cpu already ran with its only instruction set"
    if tier.name == "cpu-avx2" and not has_avx512():
        return "this CPU has no AVX-512, so the tier cpu already ran with AVX2 or less"
    if tier.name == "cpu-avx512-bf16" and not has_amx():
        return "this CPU has no AMX, so the tier cpu already ran with AVX512_BF16, or without bf16"
    if sum(counts[label] for label in tier.labels) == 0:
        if tier.name in ("gpu", "plans") and (missing := cuda_backend_missing()):
            return f"no CUDA backend was built: {missing}"
        return "this version has no such tests"
    return None


def skip_reason(output):
    """Why a test was skipped: our scripts print 'SKIPPED: why', GoogleTest prints it below 'FILE:LINE: Skipped'."""
    lines = [line.strip() for line in output.splitlines()]
    for line, following in zip(lines, lines[1:] + [""]):
        if line.startswith("SKIPPED: "):
            return line.removeprefix("SKIPPED: ")
        if line.endswith(": Skipped"):
            return following or line
    return "no reason given"


def gtest_counts(name, output):
    """How many tests of a GoogleTest program passed, failed and were skipped, and the reasons for the latter. CTest counts a
    shard of a program as one test, whose result is that of the worst."""
    counts = {word.lower(): int(number) for word, number in
              re.findall(r"^\[  (PASSED|FAILED|SKIPPED) +\] (\d+) tests?[.,]", output, re.MULTILINE)}
    if "/shard_" not in name or not counts:
        return None
    skipped = re.findall(r"^(\S.*: Skipped\n.*)$", output, re.MULTILINE)
    return counts, [skip_reason(each) for each in skipped]


def read_junit(path):
    result, skipped_for = Result(), collections.defaultdict(list)
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        name, output = case.get("name"), case.findtext("system-out") or ""
        skipped, failure = case.find("skipped"), case.find("failure")
        counts = gtest_counts(name, output)
        if counts and (failure is None) == ("failed" not in counts[0]):
            result.passed += counts[0].get("passed", 0)
            result.failed += counts[0].get("failed", 0)
            result.skipped += counts[0].get("skipped", 0)
            for reason in counts[1]:
                skipped_for[reason].append(name)
            if failure is not None:
                result.notes.append(f"  FAILED {name}\n{failures(output)}")
            continue
        # CTest also writes 'skipped' for tests it could not start; those count as failures.
        if skipped is not None and skipped.get("message", "").startswith("SKIP_"):
            result.skipped += 1
            skipped_for[skip_reason(output)].append(name)
        elif case.get("status") == "run" and failure is None:
            result.passed += 1
        else:
            result.failed += 1
            message = next((e.get("message") for e in (failure, skipped) if e is not None), case.get("status"))
            result.notes.append(f"  FAILED {name}: {message}\n{failures(output)}")
    for reason, names in skipped_for.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        result.notes.append(f"  skipped {names[0].split('  #')[0]}{more}: {reason}")
    return result


def run_tests(tier):
    with tempfile.TemporaryDirectory() as folder:
        junit = pathlib.Path(folder) / "junit.xml"
        labels = "|".join(tier.labels)
        chosen = ["-R", tier.tests] if tier.tests else []
        at_once = max(1, CORES // 3) if tier.single else CORES + 1  # one more: some wait for ranks, processes or disks
        ran = run(
            [*without_random_addresses(tier.preset), "ctest", "--preset", tier.preset, "-j", str(at_once),
             "-L", f"^({labels})$", *chosen, "--output-junit", str(junit),
             "--test-output-size-passed", str(MAX_OUTPUT_BYTES), "--test-output-size-failed", str(MAX_OUTPUT_BYTES)],
            cwd=ROOT, env={**os.environ, **tier.environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace")
        if not junit.exists():
            return Result(failed=1, notes=[f"  FAILED: ctest wrote no results\n{tail(ran.stdout)}"])
        result = read_junit(junit)
    if ran.returncode != 0 and result.failed == 0:
        result.failed += 1
        result.notes.append(f"  FAILED: ctest ended with {ran.returncode}\n{tail(ran.stdout)}")
    if result.passed + result.failed + result.skipped == 0:
        result.failed += 1
        result.notes.append("  FAILED: this tier has no tests, but this machine should run some")
    return result


def run_tier(tier, builds):
    if not builds.configure(tier.preset):
        return Result(failed=1, notes=["  FAILED: CMake could not configure"])
    # The style tests read only the source tree and run before anything is compiled.
    if tier.name != "style" and not builds.build(tier.preset, tier.targets):
        return Result(failed=1, notes=["  FAILED: the build failed"])
    counts = registered(tier.preset) if tier.name == "style" else builds.registered(tier.preset)
    if reason := why_not(tier, counts):
        return Result(skipped=max(1, sum(counts[label] for label in tier.labels)), notes=[f"  skipped: {reason}"])
    began = time.monotonic()
    result = run_tests(tier)
    result.seconds = time.monotonic() - began
    if tier.name == "host" and counts[None]:
        result.failed += 1
        result.notes.append(f"  FAILED: {counts[None]} tests have no tier, so no tier runs them")
    return result


LIBRARIES = ("engine", "kernels", "models", "data", "profiler", "tools")
# Their files that are compiled only where CUDA's toolkit is, or only where it is not, or only for one kind of CPU.
OF_SOME_MACHINES = re.compile(r"cuda|/cupti|/nccl|/device_trace|_none(_test)?[.]cpp$|_(x86_64|aarch64)[.]cpp$")


def files_to_tidy(folder, root=ROOT):
    """The files that the commands in a build folder compile, and those of the libraries that none compiles."""
    commands = json.loads((folder / "compile_commands.json").read_text())
    ours = {path for path in (pathlib.Path(c["file"]) for c in commands)
            if path.suffix == ".cpp" and root / "build" not in path.parents}
    of_libraries = {path for library in LIBRARIES for path in (root / library).rglob("*.cpp")}
    return sorted(ours), sorted(path for path in of_libraries - ours if not OF_SOME_MACHINES.search(str(path.relative_to(root))))


def run_tidy(builds):
    folder = ROOT / "build" / "tidy"  # where a command compiles one file
    if not builds.step("tidy", "configure", ["cmake", "--preset", "release", "-B", str(folder), "-DWARPSTEP_TESTS=ON",
                                             "-DCMAKE_UNITY_BUILD=OFF"]):
        return Result(failed=1, notes=["  FAILED: CMake could not configure"])
    ours, unseen = files_to_tidy(folder)
    # clang has no omp.h of its own, and its attribute `malloc` no arguments, which GCC's omp.h gives.
    of_gcc = subprocess.check_output([os.environ.get("CXX", "g++"), "-print-file-name=include"], text=True).strip()
    command = [os.environ["TIDY"], "--quiet", f"--extra-arg=-idirafter{of_gcc}", "--extra-arg=-D__malloc__(...)=", "-p", str(folder)]

    def tidy(file):
        return file, run([*command, str(file)], capture_output=True, text=True, errors="replace")

    began = time.monotonic()
    result = Result(failed=len(unseen), notes=[f"  FAILED {file.relative_to(ROOT)}: no command compiles it" for file in unseen])
    with concurrent.futures.ThreadPoolExecutor(CORES) as pool:
        for file, ran in pool.map(tidy, ours):
            good = ran.returncode == 0
            result.passed += good
            result.failed += not good
            if not good:
                result.notes.append(f"  FAILED {os.path.relpath(file, ROOT)}\n{tail(ran.stdout or ran.stderr)}")
    result.seconds = time.monotonic() - began
    return result


def run_jobs(jobs, builds):
    """Name and result of each (name, is single, what to call), in order; neighbours that are single run together."""
    for is_single, group in itertools.groupby(jobs, key=lambda job: job[1]):
        if is_single:
            builds.build("release", ())  # once, before several want it
        pool = concurrent.futures.ThreadPoolExecutor(CORES if is_single else 1)
        try:
            pending = [(name, pool.submit(job)) for name, _, job in group]
            for name, future in pending:
                yield name, future.result()
        finally:  # no tier starts after an interruption
            pool.shutdown(wait=False, cancel_futures=True)


def main():
    parser = argparse.ArgumentParser(prog="tools/check", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="no sanitizer builds")
    parser.add_argument("--tier", action="append", choices=[t.name for t in TIERS], help="only this tier; repeatable")
    parser.add_argument("--tidy", action="store_true", help="also clang-tidy over all sources (slow)")
    arguments = parser.parse_args()
    chosen = [t for t in TIERS if (not arguments.tier or t.name in arguments.tier) and
              not (arguments.quick and t.preset != "release")]
    if not chosen and not arguments.tidy:
        parser.error("--quick leaves out every tier of --tier: they need a build with sanitizers")
    builds, total = Builds(), Result()
    jobs = [(tier.name, tier.single, lambda tier=tier: run_tier(tier, builds)) for tier in chosen]
    if arguments.tidy:
        jobs.append(("tidy", False, lambda: run_tidy(builds)))
    began = time.monotonic()
    for name, result in run_jobs(jobs, builds):
        say(f"{name:<12} {result.passed:4} passed, {result.failed} failed, {result.skipped} skipped  {result.seconds:6.1f} s")
        for note in result.notes:
            say(note)
        total.passed += result.passed
        total.failed += result.failed
        total.skipped += result.skipped
    say(f"\n{'everything' if not (arguments.quick or arguments.tier) else 'done'} in {time.monotonic() - began:.0f} s")
    if not total.failed and not total.passed:
        say("no test ran, which counts as a failure")
    say(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped")
    sys.exit(1 if total.failed or not total.passed else 0)


if __name__ == "__main__":
    main()
