#!/usr/bin/env python3
"""Trains with planted bottlenecks, from outside of the program: does the report name the cause and a remedy, and does
following the remedy gain what it says?

    python bench/planted_bottlenecks.py                           # all, an hour on two cores: on an idle machine
    python bench/planted_bottlenecks.py --only slow-open,quota    # some; --list names them
    python bench/planted_bottlenecks.py --cores 0                 # the process and its loader on one core
    python bench/planted_bottlenecks.py --only slow-open --no-follow --steps 60   # names alone

A plant is right when the finding that it wants is among the first two and names one of its remedies. A prediction holds
when the step changes by what was promised to within 10 % of the step, or lies in the range that was promised. Remedies
for steps are followed by `warpstep try`, so that nothing but the remedy differs; others by a second run.
Exit code: 1 when a plant was not named.
"""
import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.append(str(ROOT / "tools" / "gpu"))
from guard import die_with_the_parent  # noqa: E402


class Skip(Exception):
    pass


@dataclasses.dataclass
class Plant:
    name: str
    what: str
    findings: set  # one of these
    remedies: str  # a regular expression for the flag or the advice
    options: str = ""  # of train, after the common ones
    data: str = "small"
    env: dict = dataclasses.field(default_factory=dict)
    around: object = None  # a function of the bench: context manager of more arguments for Popen
    follow: bool = True  # whether the remedy is an option that can be tried here
    evict: bool = False  # the files leave the kernel's cache, whose pages count for who first read them
    cores: int = 1  # that it takes


@contextlib.contextmanager
def busy(count):
    """Other programs that compute."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=die_with_the_parent) for _ in range(count)]
    try:
        yield {}
    finally:
        for other in others:
            other.kill()
            other.wait()


@contextlib.contextmanager
def control_group(controller, values):
    """A group with these files set, of version 1 or 2, where this user may make one."""
    for root in (pathlib.Path("/sys/fs/cgroup") / controller, pathlib.Path("/sys/fs/cgroup")):
        group = root / f"planted-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            given = [(group / name).write_text(value) for name, value in values.items() if (group / name).exists()]
        except OSError:
            given = []
        try:
            if given:
                yield {"preexec_fn": lambda: (group / "cgroup.procs").write_text(str(os.getpid()))}
                return
        finally:
            group.rmdir()
    raise Skip(f"no control group with {controller} can be made here")


def quota(cores):
    return control_group("cpu", {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": str(int(cores * 1e5)),
                                 "cpu.max": f"{int(cores * 1e5)} 100000"})


def slow_device(reads):
    """The group's processes may read the disk of the scratch folder so many times a second."""
    device = os.stat(tempfile.gettempdir()).st_dev
    disk = f"{os.major(device)}:{os.minor(device)}"
    return control_group("blkio", {"blkio.throttle.read_iops_device": f"{disk} {reads}", "io.max": f"{disk} riops={reads}"})


def memory(mib):
    """Reclaims all the time: of version 2 alone. A hard limit ends the process instead, as it has no files to drop."""
    return control_group("memory", {"memory.high": str(mib << 20)})


def memory_limit(mib):
    """A group whose memory holds the run, but not the files that it reads: these are read from the disk in each epoch."""
    return control_group("memory", {"memory.limit_in_bytes": str(mib << 20), "memory.max": str(mib << 20)})


@contextlib.contextmanager
def both(one, other):
    """Groups of two controllers."""
    with one as a, other as b:
        yield {"preexec_fn": lambda: (a["preexec_fn"](), b["preexec_fn"]())}


def beside_each(act):
    """Another process acts on the program, act(its id), until it ends."""
    def start():
        program = os.getpid()
        if os.fork() != 0:
            return
        os.closerange(0, 1024)
        with contextlib.suppress(BaseException):
            act(program)
        os._exit(0)
    return contextlib.nullcontext({"preexec_fn": start})


def pauses(every, length):
    """Something stops the whole program now and then: a debugger, a snapshot of a virtual machine."""
    def act(program):
        while b") Z" not in pathlib.Path(f"/proc/{program}/stat").read_bytes():
            time.sleep(every)
            os.kill(program, signal.SIGSTOP)
            time.sleep(length)
            os.kill(program, signal.SIGCONT)
    return beside_each(act)


def traced():
    if not shutil.which("strace"):
        raise Skip("strace is not installed")
    return beside_each(lambda program: subprocess.run(["strace", "-f", "-o", "/dev/null", "-p", str(program)],
                                                      stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                                      stderr=subprocess.DEVNULL, check=False))


def bound_later(seconds):
    """Somebody moves the trainer's thread and the kernels' others to one CPU while the program runs."""
    def act(program):
        time.sleep(seconds)
        for task in pathlib.Path(f"/proc/{program}/task").iterdir():
            if (task / "comm").read_text().split()[0] in ("warpstep", "kernels"):
                os.sched_setaffinity(int(task.name), {max(os.sched_getaffinity(0))})
    return beside_each(act)


@contextlib.contextmanager
def beside(around, other):
    """Both: what `around` gives the program, and another program."""
    with around as how, other():
        yield how


@contextlib.contextmanager
def neighbour():
    """One other program that computes, on the core that one_core() gives the run."""
    cpu = max(os.sched_getaffinity(0))
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"],
                             preexec_fn=lambda: (die_with_the_parent(), os.sched_setaffinity(0, {cpu})))
    try:
        yield {}
    finally:
        other.kill()
        other.wait()


def bound():
    return contextlib.nullcontext({"env": {"GOMP_CPU_AFFINITY": str(max(os.sched_getaffinity(0)))}})


def nice(value):
    return contextlib.nullcontext({"preexec_fn": lambda: os.nice(value)})


def one_core():
    cpu = max(os.sched_getaffinity(0))
    return contextlib.nullcontext({"preexec_fn": lambda: os.sched_setaffinity(0, {cpu})})


def plants():
    cores = len(os.sched_getaffinity(0))
    disk, wait = {"slow-disk", "data-wait"}, {"data-wait", "loader-contention"}
    more = r"--workers|data pack|--tier mapped"
    return [
        Plant("slow-open", "150 us an open, 1 worker", disk, more, "--workers 1", env={"OPEN": 150}),
        Plant("slow-open-2", "150 us an open, 2 workers", disk, more, "--workers 2", env={"OPEN": 150}),
        Plant("slow-read", "1 ms a read, 2 workers", disk, more, "--workers 2", env={"READ": 1000}),
        Plant("link", "a link of 5 MB/s, 1 worker", {"low-bandwidth", "slow-disk"}, r"faster disk|--tier mapped|data pack",
              "--workers 1", env={"MBPS": 5}),
        Plant("link-2", "a link of 5 MB/s, 2 workers", {"low-bandwidth"}, r"faster disk|--tier mapped", "--workers 2",
              env={"MBPS": 5}),
        Plant("link-4", "a link of 5 MB/s, 4 workers", {"low-bandwidth"}, r"faster disk|--tier mapped", "--workers 4",
              env={"MBPS": 5}),
        Plant("tail", "1 % of the reads take 20 ms", {"slow-samples"}, r"--prefetch|files", "--workers 2",
              env={"TAIL": 20000}),
        Plant("period", "each 256th read takes 30 ms", {"slow-samples"}, r"--prefetch|files", "--workers 2",
              env={"TAIL": 30000, "PERIOD": 256}),
        Plant("slow-worker", "5 ms a read, in one of two workers", {"slow-worker"}, r"thread", "--workers 2",
              env={"READ": 5000, "THREAD": "loader 0"}, follow=False),
        Plant("pread", "300 us a pread of a packed set", disk, r"--workers|--shuffle window|--tier",
              "--workers 1 --data-io pread", data="packed", env={"READ": 300}),
        Plant("pread-2", "the same with 2 workers", disk, r"--workers|--shuffle window|--tier",
              "--workers 2 --data-io pread", data="packed", env={"READ": 300}),
        Plant("asleep", "500 us of sleep in each decoding, 1 worker", {"waiting-stage", "data-wait"}, more + "|strace", "--workers 1",
              env={"DECODE": 500}),
        Plant("locked", "500 us in one lock in each decoding, 2 workers", {"waiting-stage"}, "lock", "--workers 2",
              env={"DECODE": 500, "LOCK": 1}, follow=False),
        Plant("decode", "PNG files of 256x256, 1 worker", wait, more + "|--tier", "--workers 1 --batch 32 --transforms random-crop=64",
              data="large"),
        Plant("resize", "a costly transform", wait | {"slow-transform"}, r"--workers|--transforms|data pack|--tier",
              "--workers 1 --batch 32 --transforms resize=320,random-crop=64", data="large"),
        Plant("normalize", "numbers made by the workers", wait, r"--normalize device|--workers", "--workers 1 --normalize cpu"),
        Plant("fsync", "60 ms an fsync, a checkpoint each 5 steps", {"slow-checkpoints"}, r"--checkpoint-every",
              "--checkpoint-every 5", env={"FSYNC": 60000}),
        Plant("evaluation", "an evaluation each 5 steps", {"long-evaluation"}, r"--eval-every|test", "--eval-every 5",
              data="tested"),
        Plant("busy", "two other programs a core", {"other-programs"}, r"other|cores",
              around=lambda: busy(2 * cores), follow=False),
        Plant("quota", "a quota of half a core", {"cpu-quota"}, r"quota", around=lambda: quota(0.5), follow=False),
        Plant("one-core", "one core for two threads of kernels and a worker", {"narrow-affinity", "oversubscribed"},
              r"CPUs|--threads", "--threads 2 --workers 1", around=one_core, follow=False),
        Plant("threads", "four times as many threads as cores", {"oversubscribed", "narrow-affinity"}, r"--threads",
              f"--threads {4 * cores} --tier mapped"),
        Plant("memory", "64 MiB of memory before it is reclaimed", {"short-memory"}, r"memory", around=lambda: memory(64), follow=False),
        Plant("leak", "each read of a file leaves 4 KiB that nothing frees", {"memory-growth"}, r"heaptrack", "--workers 1 --steps 1500",
              env={"LEAK": 4}, follow=False),
        Plant("bound", "OpenMP binds both threads of the kernels to one of two cores", {"bound-threads", "narrow-affinity"},
              r"OMP_PLACES|allow more", "--threads 2 --tier mapped --workers 1", around=bound, follow=False, cores=2),
        Plant("tiny-batch", "one sample a step", {"tiny-batch", "launch-bound"}, r"--batch", "--batch 1 --steps 600", follow=False),
        Plant("one-class", "5 ms a read of the files of one class of ten", {"slow-samples"}, r"files|--prefetch|--workers",
              "--workers 2", env={"READ": 5000, "MATCH": "_ring.png"}),
        Plant("huge", "2 % of the images have 900 times the pixels", {"slow-samples"}, r"files|--prefetch|--workers",
              "--workers 1 --batch 32 --transforms resize=64,centre-crop=64", data="uneven"),
        Plant("open-hang", "one open in 1,000 takes 300 ms", {"slow-samples"}, r"files|--prefetch", "--workers 2",
              env={"OPEN": 300000, "OPEN_EACH": 1000}),
        Plant("cold", "1 ms a read, in the first epoch only", {"slow-start"}, r"first|epoch|read", "--workers 2 --steps 400",
              env={"READ": 1000, "FIRST": 12800}, follow=False),
        Plant("little-cache", "memory that does not hold a packed set, which each epoch reads again from a disk of 1,500 reads a second",
              {"set-not-in-memory"}, r"memory limit", "--workers 1 --steps 950", data="pixels",
              around=lambda: both(memory_limit(120), slow_device(1500)), follow=False, evict=True),
        Plant("io-limit", "a control group that may read 600 times a second", {"io-limit"}, r"raise the limit", "--workers 2",
              data="many", around=lambda: slow_device(600), follow=False, evict=True),
        Plant("weight", "a control group of a quarter of the usual weight, and one other program a core", {"other-programs"},
              r"raise the weight", around=lambda: beside(control_group("cpu", {"cpu.shares": "256", "cpu.weight": "25"}),
                                                         lambda: busy(cores)), follow=False),
        Plant("starved", "one core, and another program on it", {"other-programs"}, r"other|cores", "--workers 2",
              around=lambda: beside(one_core(), neighbour), follow=False),
        Plant("nice", "the run itself at nice 10, and two other programs a core", {"other-programs"}, r"without nice",
              around=lambda: beside(nice(10), lambda: busy(2 * cores)), follow=False),
        Plant("evicted", "pages of a mapped set leave the cache each 100 ms", {"set-not-in-memory"}, r"--tier mapped",
              "--workers 1 --steps 250", data="packed", env={"EVICT": 100000}),
        Plant("open-lock", "500 us in one lock in each open, 4 workers", {"slow-disk", "data-wait"}, r"--workers|data pack|lock",
              "--workers 4", env={"OPEN": 500, "LOCK": 1}),
        Plant("parts", "two samples a batch, 32 batches an update", {"tiny-batch"}, r"--batch 4 --accumulate 16",
              "--batch 2 --accumulate 32 --tier mapped --steps 2000", follow=False),
        Plant("spin", "threads of kernels that spin on the cores of two workers", {"slow-option"}, r"OMP_WAIT_POLICY",
              "--workers 2", around=lambda: contextlib.nullcontext({"env": {"OMP_WAIT_POLICY": "active"}}), follow=False),
        Plant("slow-log", "2 ms a write to --out, a line each step", {"slow-observers"}, r"--log-every", "--log-every 1 --tier mapped",
              env={"WRITE": 2000}),
        Plant("slow-out", "checkpoints over a link of 20 MB/s", {"slow-checkpoints"}, r"--checkpoint-every|disk",
              "--checkpoint-every 20", env={"WRITE_MBPS": 20}),
        Plant("large-test", "a test part of ten times the training part", {"long-evaluation"}, r"--eval-every|test",
              "--eval-every 1 --epochs 6 --steps 60", data="much-tested"),
        Plant("one-thread", "one thread of two cores, resident data", {"idle-cores"}, r"--threads", "--threads 1 --tier mapped",
              cores=2),
        Plant("prefetch", "a queue of one batch, and reads that vary", {"data-wait", "slow-samples"}, r"--prefetch|--workers",
              "--workers 2 --prefetch 2", env={"TAIL": 10000, "EACH": 200}),
        Plant("pauses", "stopped for 40 ms each 250 ms", {"pauses"}, r"stop|SIGSTOP|debugger", "--tier mapped --steps 400",
              around=lambda: pauses(0.25, 0.04), follow=False),
        Plant("slower", "each step takes 40 % longer from the middle of the run on", {"slower-later"}, r"clock|machine",
              "--tier mapped --steps 1200", env={"SLOWER": 40, "AFTER": 2.4}, follow=False),
        Plant("traced", "strace follows each system call", {"traced"}, r"without it", "--workers 1", around=traced, follow=False),
        Plant("bound-later", "both threads of the kernels moved to one of two cores in the middle of the run",
              {"bound-threads"}, r"--pin-cpus",
              "--tier mapped --steps 1200 --profile-schedule skip_first=10,warmup=2,active=1150", around=lambda: bound_later(1.5), follow=False,
              cores=2),
        Plant("slow-clock", "30 us a reading of the clock", {"slow-clock"}, r"tsc|--profile steps", "--tier mapped",
              env={"CLOCK": 30}, follow=False),
        Plant("statistics", "statistics of every block at each step", {"statistics"}, r"--stats-every", "--tier mapped --stats-every 1"),
        Plant("jitter", "a costly transform of decoded data, on the kernels' cores", {"loader-contention", "slow-transform"}, r"--transforms",
              "--workers 1 --tier mapped --transforms flip,colour-jitter=0.4:0.4:0.4:0.1"),
        Plant("none", "nothing: resident data", set(), "", "--tier mapped"),
    ]


class Bench:
    def __init__(self, args, scratch):
        self.args, self.scratch = args, scratch
        self.shims = []
        for name in ("planted_io", "planted_slower"):
            self.shims.append(str(scratch / f"{name}.so"))
            subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", self.shims[-1], HERE / f"{name}.c", "-ldl"], check=True)

    def warpstep(self, *options, **how):
        command = [str(self.args.warpstep), *map(str, options)]
        done = subprocess.run(command, capture_output=True, text=True, **how)
        if done.returncode:
            raise RuntimeError(f"{shlex.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        return done.stdout

    def data(self, name):
        path = self.scratch / name
        if not path.exists():
            if name == "small":
                self.warpstep("data", "make", path, "--train", 6400, "--test", 256)
            elif name == "tested":
                self.warpstep("data", "make", path, "--train", 6400, "--test", 3200)
            elif name == "large":
                self.warpstep("data", "make", path, "--train", 960, "--test", 32, "--size", "256x256")
            elif name == "many":
                self.warpstep("data", "make", path, "--train", 25600, "--test", 64)
            elif name == "much-tested":
                self.warpstep("data", "make", path, "--train", 640, "--test", 6400)
            elif name == "uneven":  # one image of 50 is 900 times as large
                self.warpstep("data", "make", path, "--train", 3200, "--test", 64, "--size", "64x64")
                large = self.scratch / "uneven-large"
                self.warpstep("data", "make", large, "--train", 64, "--test", 10, "--size", "1900x1900")
                small = sorted((path / "train").glob("*.png"))
                for i, file in enumerate(sorted((large / "train").glob("*.png"))):
                    shutil.copy(file, small[50 * i])
            elif name == "pixels":
                self.warpstep("data", "make", self.scratch / "pixels-files", "--train", 51200, "--test", 64)
                self.warpstep("data", "pack", self.scratch / "pixels-files", path, "--decode")
            elif name == "packed":
                self.warpstep("data", "pack", self.data("small"), path)
        return path

    @staticmethod
    def evict(data):
        os.sync()
        for path in data.rglob("*"):
            if path.is_file():
                with path.open("rb") as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def run(self, name):
        return self.scratch / "runs" / name

    def planted(self, plant, *options):
        """The output of warpstep with the bottleneck."""
        env = {**os.environ, "LD_PRELOAD": ":".join(self.shims), "PLANT_PATH": str(self.scratch)}
        env.update({f"PLANT_{key}": str(value) for key, value in plant.env.items()})
        with (plant.around or contextlib.nullcontext)() or contextlib.nullcontext({}) as how:
            more = dict(how or {})
            env.update(more.pop("env", {}))
            return self.warpstep(*options, env=env, **more)

    def train(self, plant, name, options, data):
        """Tables of the report, by name."""
        if plant.evict:
            self.evict(data)
        run = self.run(name)
        shutil.rmtree(run, ignore_errors=True)
        self.planted(plant, "train", "mlp", "--data", data, "--device", "cpu", "--out", run, "--profile", "spans", *options)
        return json.loads(self.warpstep("report", run, "--json"))["tables"]

    def tried(self, plant, name, options):
        """ns per step without and with the options, of two processes that take turns."""
        result = json.loads(self.planted(plant, "try", self.run(name), *options, "--starts", "1", "--json"))
        before = result["before"]["step_ns"]
        return before, before * result["ratio"]

    def options(self, plant):
        given = shlex.split(plant.options)
        common = {"--steps": str(self.args.steps), "--batch": "64", "--tier": "decoded", "--epochs": "40",
                  "--eval-every": "0", "--profile-schedule": f"skip_first=10,warmup=2,active={self.args.steps - 20}"}
        if plant.name == "tiny-batch":
            common["--profile-schedule"] = "skip_first=100,warmup=2,active=400"
        if plant.name == "little-cache":  # the second epoch begins at step 801
            common["--profile-schedule"] = "skip_first=820,warmup=2,active=100"
        if plant.name == "threads":  # the data is resident from the second epoch on, which begins at step 101
            common["--steps"] = str(self.args.steps + 100)
            common["--profile-schedule"] = f"skip_first=110,warmup=2,active={self.args.steps - 20}"
        return join(common, given)

    def follow(self, plant, before, finding, options, data):
        """ns per step without and with the remedy; None when it is no option of this program."""
        flag = finding["flag"] or ""
        now = step_ns(before, finding)
        if flag == "--tier mapped":  # gains from the second epoch on, which begins at step 101
            flag = f"{flag} --steps {self.args.steps + 100} --profile-schedule skip_first=110,warmup=2,active={self.args.steps - 20}"
        elif flag.startswith("--") and not is_outside(finding):
            return self.tried(plant, plant.name, shlex.split(flag))
        elif match := re.fullmatch(r"warpstep (data pack \S+) (\S+)(.*)", flag):
            out = self.scratch / "followed"
            shutil.rmtree(out, ignore_errors=True)
            self.warpstep(*shlex.split(match[1]), out, *shlex.split(match[3]))
            # A mapping's reads cannot be slowed from outside.
            return self.tried(plant, plant.name, ["--data", out, "--data-io", "pread"])
        elif not flag.startswith("--"):
            return None
        after = self.train(plant, plant.name + "-followed", flat(join(options, shlex.split(flag))), data)
        return now, step_ns(after, finding)


def join(options, more):
    """Options by name, the later ones in place of the earlier."""
    named = dict(options)
    for i, option in enumerate(more):
        if option.startswith("--"):
            named[option] = more[i + 1] if i + 1 < len(more) and not more[i + 1].startswith("--") else None
    return named


def flat(options):
    return [part for name, value in options.items() for part in ([name] if value is None else [name, value])]


def is_outside(finding):
    """Of steps: in evaluations or checkpoints."""
    return finding and finding["key"] in ("slow-checkpoints", "long-evaluation")


def step_ns(tables, finding=None):
    """Mean time per step; with its share of evaluations and checkpoints where these are what was found."""
    outside = 0 if not is_outside(finding) else sum(
        part["ns"] for part in tables["whole_run"] if part["part"] in ("evaluation", "checkpoint") and not part["of"])
    return sum(part["ns"] for part in tables["breakdown"] if part["category"] != "Total") + outside / max(1, len(tables["steps"]))


def judge(plant, tables):
    """(whether cause and remedy are named, the finding)."""
    found = tables["findings"]
    if not plant.findings:
        usual = {"slow-start", "half-precision"}  # it decodes; the mlp is in fp32
        worst = max((finding["gain_ns"] or 0 for finding in found if finding["key"] not in usual), default=0)
        return worst < 0.1 * step_ns(tables), None
    for finding in found[:2]:
        if finding["key"] in plant.findings and re.search(plant.remedies, f"{finding['flag']} {finding['advice']}"):
            return True, finding
    return False, next((finding for finding in found if finding["key"] in plant.findings), None)


def predicted(finding):
    """The range of the promise; a range from 0 has no least in the report."""
    gain, most = finding["gain_ns"] or 0, finding.get("gain_most_ns") or 0
    return (finding.get("gain_least_ns") or 0, most) if most else (gain, gain)


def try_plant(bench, plant):
    """A line of the table; whether it was named, whether the prediction held (None: not tried)."""
    if plant.cores > len(os.sched_getaffinity(0)):
        raise Skip(f"it takes {plant.cores} cores")
    data, options = bench.data(plant.data), bench.options(plant)
    before = bench.train(plant, plant.name, flat(options), data)
    named, finding = judge(plant, before)
    text = f"| {plant.name} | {plant.what} | {'yes' if named else 'NO'} | "
    if finding is None:
        others = ", ".join(found["key"] for found in before["findings"][:3])
        return text + f"{'nothing found' if named else others} | | |", named, None
    text += f"{finding['key']}: {finding['flag'] or finding['advice'][:40]} | "
    follows = plant.follow and bench.args.follow and finding["gain_ns"]
    steps = bench.follow(plant, before, finding, options, data) if follows else None
    if steps is None:
        return text + " | |", named, None
    now, then = steps
    least, most = predicted(finding)
    held = least - 0.1 * now <= now - then <= most + 0.1 * now
    promise = f"{least / 1e6:.2f}" if most - least < 1e4 else f"{least / 1e6:.2f} to {most / 1e6:.2f}"
    return text + f"{now / 1e6:.2f} -> {then / 1e6:.2f} | {promise}, got {(now - then) / 1e6:.2f} |", named, held


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--warpstep", type=pathlib.Path, default=ROOT / "build/release/bin/warpstep")
    parser.add_argument("--only", help="names, separated by commas")
    parser.add_argument("--list", action="store_true", help="name the plants and end")
    parser.add_argument("--steps", type=int, default=160, help="of a run")
    parser.add_argument("--cores", help="run on these CPUs alone, as taskset -c takes them")
    parser.add_argument("--follow", action=argparse.BooleanOptionalAction, default=True,
                        help="train again with the remedy")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for data and runs, which are kept")
    args = parser.parse_args()
    args.warpstep = args.warpstep.resolve()
    if args.cores:
        os.sched_setaffinity(0, [int(cpu) for cpu in args.cores.split(",")])
    chosen = [plant for plant in plants() if not args.only or plant.name in args.only.split(",")]
    if args.list:
        return print("\n".join(f"{plant.name:12} {plant.what}" for plant in plants()))
    if args.only and len(chosen) < len(args.only.split(",")):
        parser.error(f"--only {args.only}: not all of these are plants; --list names them")
    named = held = tried = count = 0
    with tempfile.TemporaryDirectory() as folder:
        scratch = args.keep or pathlib.Path(folder)
        scratch.mkdir(parents=True, exist_ok=True)
        bench = Bench(args, scratch)
        print("| plant | what | named | finding | step, ms | gain promised, ms |\n|---|---|---|---|---|---|")
        for plant in chosen:
            try:
                line, is_named, has_held = try_plant(bench, plant)
            except Skip as why:
                print(f"| {plant.name} | {plant.what} | skipped: {why} | | | |")
                continue
            count, named = count + 1, named + is_named
            tried, held = tried + (has_held is not None), held + bool(has_held)
            print(line + ("" if has_held is None else " held" if has_held else " MISSED"), flush=True)
    print(f"named {named} of {count}; predictions that held: {held} of {tried}")
    return 0 if named == count else 1


if __name__ == "__main__":
    sys.exit(main())
