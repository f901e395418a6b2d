#!/usr/bin/env python3
"""Checks that runs interrupted at random instants and resumed until done end with the bits of an uninterrupted run.

    python3 tests/interrupts.py [--runs 12] [--seed 1] [--warpstep build/release/bin/warpstep]

Each run trains mlp or cifar10cnn on a small set with one thread or two, and gets SIGINT, SIGTERM or SIGHUP at a random
instant, sometimes two at once; an interrupted run is resumed, and interrupted again. A run must exit with 0 or 130,
or by the signal if it came before training began. Exit code 1 if a run crashed, hung, ended in another way, or
ended with different weights.
"""
import argparse
import collections
import hashlib
import pathlib
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIMIT_S = 120
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
CASES = [(model, threads) for model in ("mlp", "cifar10cnn") for threads in (1, 2)]


def write_idx(folder, name, images, rng):
    labels = bytes(rng.randrange(10) for _ in range(images))
    pixels = b"".join(bytes(min(255, 20 * label + rng.randrange(56)) for _ in range(64)) for label in labels)
    (folder / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 0x803, images, 8, 8) + pixels)
    (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, images) + labels)


def default_signals():
    for number in SIGNALS:  # a shell's background ignores some
        signal.signal(number, signal.SIG_DFL)


def weights(run):
    """The last checkpoint's step and a hash of all its tensors (not of the header, which has options and times)."""
    path = max(run.glob("checkpoint-*.safetensors"))
    data = path.read_bytes()
    header = struct.unpack("<Q", data[:8])[0]
    return path.name, hashlib.sha256(data[8 + header:]).hexdigest()


class Campaign:
    def __init__(self, warpstep, folder, seed):
        self.warpstep, self.folder, self.seed = warpstep, folder, seed
        self.rng = random.Random(seed)
        self.counts = collections.Counter()
        self.failures = []
        data = folder / "data"
        data.mkdir()
        write_idx(data, "train", 320, self.rng)
        write_idx(data, "t10k", 32, self.rng)
        self.alone, self.seconds = {}, {}
        for model, threads in CASES:
            run = folder / f"alone-{model}-{threads}"
            begin = time.monotonic()
            code, err = self.ended(subprocess.Popen(self.command(model, threads, run), **self.pipes()))
            self.seconds[model, threads] = time.monotonic() - begin
            if code != 0:
                sys.exit(f"a run left alone ended with {code}: {err}")
            self.alone[model, threads] = weights(run)

    @staticmethod
    def pipes():
        return dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                    preexec_fn=default_signals)

    def command(self, model, threads, run):
        return [self.warpstep, "train", model, "--data", self.folder / "data", "--out", run, "--device", "cpu", "--batch",
                "16", "--epochs", "3" if model == "mlp" else "2", "--threads", str(threads), "--checkpoint-every", "7",
                "--workers", "1", "--profile", "off"]

    @staticmethod
    def ended(process):
        try:
            err = process.communicate(timeout=LIMIT_S)[1]
        except subprocess.TimeoutExpired:
            process.kill()
            return "hung", process.communicate()[1]
        return process.returncode, err

    def interrupt(self, process, seconds):
        """Sends one signal, or two that are one request; returns them."""
        time.sleep(self.rng.uniform(0, 1.1) * seconds)
        sent = self.rng.choices(SIGNALS, k=2 if self.rng.random() < 0.2 else 1)
        for number in sent:
            process.send_signal(number)
            time.sleep(self.rng.choice([0, 0.001, 0.02]))
        return sent

    def fail(self, text):
        self.failures.append(text)
        print(text, flush=True)

    def one(self, index):
        model, threads = case = CASES[index % len(CASES)]
        run = self.folder / f"run-{index}"
        command = self.command(model, threads, run)
        for attempt in range(50):
            process = subprocess.Popen(command, **self.pipes())
            # The later attempts are left alone, so that each run has an end.
            sent = self.interrupt(process, self.seconds[case]) if attempt < 4 else []
            code, err = self.ended(process)
            self.counts[f"exit {code}"] += 1
            # Before it says where it trains there is nothing to save, and signals act by default.
            by_default = "device: " not in err and code in [-number for number in sent]
            if code not in (0, 130) and not by_default:
                self.fail(f"run {index} ({model}, {threads} threads), attempt {attempt}, {sent}: {code}\n{err}")
                return
            # Half of the signals are to come before the end, however busy the machine is.
            self.seconds[case] *= 0.9 if code == 0 else 1.1
            if code == 0:
                break
            if any(run.glob("checkpoint-*.safetensors")):
                command = [self.warpstep, "train", "--resume", run]
            elif run.exists():
                command = self.command(model, threads, run) + ["--overwrite"]
        if weights(run) != self.alone[case]:
            self.fail(f"run {index} ({model}, {threads} threads): other weights: {weights(run)}")
        else:
            self.counts["same bits"] += 1
        for path in sorted(run.iterdir()):
            path.unlink()
        run.rmdir()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--warpstep", default=str(ROOT / "build/release/bin/warpstep"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        campaign = Campaign(options.warpstep, pathlib.Path(folder), options.seed)
        for index in range(options.runs):
            campaign.one(index)
            if (index + 1) % 50 == 0:
                print(f"{index + 1} runs: {dict(campaign.counts)}, {len(campaign.failures)} failures", flush=True)
    print(f"{options.runs} runs, seed {options.seed}: {dict(campaign.counts)}, {len(campaign.failures)} failures")
    sys.exit(1 if campaign.failures else 0)


if __name__ == "__main__":
    main()
