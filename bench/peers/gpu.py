"""Reads a GPU's name, clock and power from nvidia-smi: the name once, clock and power while windows run."""
import datetime
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "gpu"))
from guard import die_with_the_parent  # noqa: E402

QUERY = "--query-gpu="
FORMAT = "--format=csv,noheader,nounits"
TIME = "%Y/%m/%d %H:%M:%S.%f"  # as nvidia-smi prints it
STEADY = 0.9  # of the highest clock: a window at a lower one was not run by the same machine


def number_of(device):
    """nvidia-smi's index or UUID for 'cuda' and 'cuda:1': it counts all GPUs, CUDA those that CUDA_VISIBLE_DEVICES names."""
    number = device.partition(":")[2] or "0"
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return number
    named = [name.strip() for name in visible.split(",")]
    return named[int(number)] if int(number) < len(named) else number


def describe(device):
    """Name, driver, memory and highest clocks; None without a GPU or without nvidia-smi."""
    if not device.startswith("cuda") or not shutil.which("nvidia-smi"):
        return None
    fields = ["name", "driver_version", "memory.total", "clocks.max.sm", "clocks.max.memory", "power.limit"]
    answer = subprocess.run(["nvidia-smi", "-i", number_of(device), QUERY + ",".join(fields), FORMAT],
                            capture_output=True, text=True, check=False)
    values = [value.strip() for value in answer.stdout.split(",")]
    return dict(zip(fields, values)) if answer.returncode == 0 and len(values) == len(fields) else None


def summary(lines, windows=((0, float("inf")),)):
    """From lines 'time, MHz, W': the clock's range and median, the median power, and whether the clock stayed high, all of them
    in the windows alone, (begin, end) by time.time(): an idle GPU lowers its clock. None without a sample."""
    samples, inside = 0, []
    for line in lines:
        try:
            when, clock, power = line.split(",")
            when = datetime.datetime.strptime(when.strip(), TIME).timestamp()
            clock, power = float(clock), float(power)
        except ValueError:  # "[N/A]", or a line cut short
            continue
        samples += 1
        if any(begin <= when <= end for begin, end in windows):
            inside.append((clock, power))
    if not inside:
        return {"samples": 0, "outside": samples, "steady": None} if samples else None
    clocks, powers = zip(*inside)
    return {"sm_mhz": {"min": min(clocks), "median": statistics.median(clocks), "max": max(clocks)},
            "power_w": statistics.median(powers), "samples": len(inside), "outside": samples - len(inside),
            "steady": statistics.quantiles(clocks, n=10, method="inclusive")[0] >= STEADY * max(clocks)
            if len(clocks) > 1 else True}


class Sampler:
    """Samples clock and power five times a second for as long as its scope lasts; `windows` are those that are judged."""

    def __init__(self, device):
        self.command = ["nvidia-smi", "-i", number_of(device), QUERY + "timestamp,clocks.sm,power.draw", FORMAT, "-lms", "200"]
        self.wanted = describe(device) is not None
        self.found, self.windows = None, []

    def __enter__(self):
        if self.wanted:
            self.output = tempfile.TemporaryFile("w+")
            self.process = subprocess.Popen(self.command, stdout=self.output, stderr=subprocess.DEVNULL,
                                            preexec_fn=die_with_the_parent)
        return self

    def __exit__(self, *error):
        if self.wanted:
            self.process.terminate()
            self.process.wait()
            self.output.seek(0)
            self.found = summary(self.output, self.windows)
            self.output.close()
