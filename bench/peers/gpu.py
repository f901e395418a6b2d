"""Reads a GPU's name, clock and power from nvidia-smi: the name once, clock and power while windows run."""
import shutil
import statistics
import subprocess
import tempfile

QUERY = "--query-gpu="
FORMAT = "--format=csv,noheader,nounits"
STEADY = 0.9  # of the highest clock: a window at a lower one was not run by the same machine


def number_of(device):
    """nvidia-smi's index for 'cuda' and 'cuda:1'."""
    return device.partition(":")[2] or "0"


def describe(device):
    """Name, driver, memory and highest clocks; None without a GPU or without nvidia-smi."""
    if not device.startswith("cuda") or not shutil.which("nvidia-smi"):
        return None
    fields = ["name", "driver_version", "memory.total", "clocks.max.sm", "clocks.max.memory", "power.limit"]
    answer = subprocess.run(["nvidia-smi", "-i", number_of(device), QUERY + ",".join(fields), FORMAT],
                            capture_output=True, text=True, check=False)
    values = [value.strip() for value in answer.stdout.split(",")]
    return dict(zip(fields, values)) if answer.returncode == 0 and len(values) == len(fields) else None


def summary(lines):
    """From lines 'MHz, W': the clock's range and median, the median power, and whether the clock stayed high."""
    samples = []
    for line in lines:
        try:
            clock, power = (float(part) for part in line.split(","))
        except ValueError:  # "[N/A]", or a line cut short
            continue
        samples.append((clock, power))
    if not samples:
        return None
    clocks, powers = zip(*samples)
    return {"sm_mhz": {"min": min(clocks), "median": statistics.median(clocks), "max": max(clocks)},
            "power_w": statistics.median(powers), "samples": len(samples),
            "steady": statistics.quantiles(clocks, n=10, method="inclusive")[0] >= STEADY * max(clocks)
            if len(clocks) > 1 else True}


class Sampler:
    """Samples clock and power five times a second for as long as its scope lasts."""

    def __init__(self, device):
        self.command = ["nvidia-smi", "-i", number_of(device), QUERY + "clocks.sm,power.draw", FORMAT, "-lms", "200"]
        self.wanted = describe(device) is not None
        self.found = None

    def __enter__(self):
        if self.wanted:
            self.output = tempfile.TemporaryFile("w+")
            self.process = subprocess.Popen(self.command, stdout=self.output, stderr=subprocess.DEVNULL)
        return self

    def __exit__(self, *error):
        if self.wanted:
            self.process.terminate()
            self.process.wait()
            self.output.seek(0)
            self.found = summary(self.output)
            self.output.close()
