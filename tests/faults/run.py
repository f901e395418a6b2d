#!/usr/bin/env python3
"""Short training runs in which one system call fails; checks the message, the files and the resumed run.

    tests/faults/run.py --program build/release/bin/warpstep --shim build/release/lib/libwarpstep_faults.so [--all | --runs N]

First a run counts its calls on files in its folder; then the same run is repeated for each chosen call and error. Each run
must end by itself with code 0 or 1, name the fault and the file, and leave complete checkpoints and no temporary files;
resumed without a fault, it must end with the bits of an undisturbed run. --all chooses each call of each kind with each of
its errors, at most --each per kind, evenly spread; --runs N chooses N of them, evenly spread too.
"""
import argparse
import collections
import dataclasses
import errno
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

CALLS = ("open", "read", "write", "fsync", "rename", "link", "unlink", "close", "mmap", "thread")
SHORT = 0
DISK = (errno.EIO, errno.ENOSPC, errno.EDQUOT)
ERRORS = {"open": (errno.EIO, errno.EMFILE, errno.EROFS, errno.EINTR), "read": (errno.EIO, errno.EINTR, SHORT),
          "write": (*DISK, errno.EROFS, errno.EINTR, SHORT), "fsync": (*DISK, errno.EINTR), "rename": (*DISK, errno.EROFS),
          "link": (*DISK, errno.EROFS), "unlink": (errno.EIO, errno.EROFS), "close": (*DISK, errno.EINTR),
          "mmap": (errno.EIO, errno.ENOMEM), "thread": (errno.EAGAIN,)}
STICKY = {errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.EAGAIN}

# Failures that a run may survive without a message: call, errno's name, pattern of the path, reason.
EXCUSED = (
    ("read", "short", "", "the rest is read by another call"),
    ("write", "short", "", "the rest is written by another call"),
    ("", "EINTR", "", "the call is made again"),
    ("close", "", r" \(only read\)$", "nothing is lost"),
    ("open", "", "/data/", "what the survey of a data set cannot read is read again when its turn comes"),
    ("read", "", "/data/", "the same: with other images the weights would be others"),
    ("link", "", "", "the bytes are copied instead"),
    ("unlink", "", r"\.tmp-", "the next --resume removes it"),
    ("write", "", r"/\.lock$", "the lock holds without the name of its holder"),
    ("unlink", "", r"/\.lock$", "a lock's file that stays locks nothing"),
    ("close", "", r"/\.lock", "the same"),
)


@dataclasses.dataclass(frozen=True)
class Fault:
    call: str
    error: int
    at: int
    sticky: bool

    def __str__(self):
        return f"{self.call} {self.at} {name_of(self.error)}{' and all after' if self.sticky else ''}"


def name_of(error):
    return "short" if error == SHORT else errno.errorcode[error]


# ---- The data and the program

def png(pixels, size):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    rows = b"".join(b"\0" + pixels[3 * size * y:3 * size * (y + 1)] for y in range(size))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def make_idx(folder, draw):
    folder.mkdir()
    for name, count in (("train", 48), ("t10k", 16)):
        images, labels = draw.randbytes(count * 64), bytes(i % 10 for i in range(count))
        (folder / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, count, 8, 8) + images)
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, count) + labels)


def make_pngs(folder, draw):
    for split, count in (("train", 24), ("test", 8)):
        for i in range(count):
            at = folder / split / f"class{i % 2}" / f"{i}.png"
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_bytes(png(draw.randbytes(3 * 64), 8))


SETS = {"idx": make_idx, "png": make_pngs}


class Job:
    """One kind of run in its own folder."""

    def __init__(self, options, folder, kind):
        self.options, self.folder, self.out = options, folder / kind, folder / kind / "out"
        self.report = folder / f"{kind}.report"
        self.folder.mkdir()
        SETS[kind](self.folder / "data", random.Random(7))
        self.train = ["train", "mlp", "--data", str(self.folder / "data"), "--epochs", "2", "--batch", "8", "--threads", "1",
                      "--workers", "1", "--device", "cpu", "--profile", "spans", "--log-every", "1", "--out", str(self.out)]

    def run(self, arguments, fault=None):
        """The ended process and the shim's report: calls of each kind, failed ones, the path of the first."""
        env = {**os.environ, "LD_PRELOAD": str(self.options.shim), "WARPSTEP_FAULT_REPORT": str(self.report),
               "WARPSTEP_FAULT_BELOW": str(self.folder), "OMP_NUM_THREADS": "1"}
        if fault:
            env.update(WARPSTEP_FAULT_CALL=fault.call, WARPSTEP_FAULT_AT=str(fault.at), WARPSTEP_FAULT_ERROR=str(fault.error),
                       WARPSTEP_FAULT_STICKY=str(int(fault.sticky)))
        self.report.write_bytes(b"\0" * 4096)
        ran = subprocess.run([str(self.options.program), *arguments], env=env, cwd=self.folder, stdin=subprocess.DEVNULL,
                             capture_output=True, text=True, errors="replace", timeout=self.options.seconds, check=False)
        content = self.report.read_bytes()
        numbers = struct.unpack_from(f"<{len(CALLS) + 1}Q", content)
        path = content[8 * len(numbers):].split(b"\0", 1)[0].decode(errors="replace")
        return ran, dict(zip(CALLS, numbers)), numbers[-1], path

    def clear(self):
        shutil.rmtree(self.out, ignore_errors=True)


# ---- What is left

def tensors(path):
    """A digest of the names, shapes and bytes of a safetensors file. ValueError if it is not whole."""
    content = path.read_bytes()
    if len(content) < 8:
        raise ValueError("has no header")
    size, = struct.unpack_from("<Q", content)
    header = json.loads(content[8:8 + size])
    header.pop("__metadata__", None)
    end = max(tensor["data_offsets"][1] for tensor in header.values())
    if len(content) != 8 + size + end:
        raise ValueError(f"has {len(content)} bytes, not {8 + size + end}")
    digest = hashlib.sha256(content[8 + size:])
    digest.update(json.dumps(header, sort_keys=True).encode())
    return digest.hexdigest()


def checkpoints(out):
    return sorted(out.glob("*.safetensors"))


def final(out):
    files = sorted(out.glob("checkpoint-*.safetensors"))
    return tensors(files[-1]) if files else None


def leftovers(out):
    return [p.name for p in out.rglob("*") if ".tmp-" in p.name] if out.exists() else []


def is_excused(fault, path):
    return any(call in ("", fault.call) and error in ("", name_of(fault.error)) and re.search(pattern, path)
               for call, error, pattern, _ in EXCUSED)


def judge(job, fault, reference):
    """The problems of one run; None if the fault did not occur."""
    job.clear()
    try:
        ran, _, failed, path = job.run(job.train, fault)
    except subprocess.TimeoutExpired:
        return ["hangs"]
    if failed == 0:
        return None
    problems = []
    said = [line for line in ran.stderr.splitlines() if re.match(r"warpstep( \w+)?: ", line)]
    reason = "" if fault.error == SHORT else os.strerror(fault.error)
    if ran.returncode not in (0, 1):
        problems.append(f"ends with {ran.returncode}")
    elif ran.returncode == 1:
        if len(said) != 1:
            problems.append(f"has {len(said)} messages")
        if reason not in ran.stderr:
            problems.append("does not say the reason")
        if fault.call != "thread" and not any(str(p) in ran.stderr for p in named_by(job, fault, path)):
            problems.append("does not name the file")
    elif reason not in ran.stderr + ran.stdout and not is_excused(fault, path):
        problems.append("succeeds and says nothing")
    for file in checkpoints(job.out):
        try:
            tensors(file)
        except (ValueError, KeyError) as error:
            problems.append(f"leaves {file.name}, which {error}")
    if ran.returncode != 0 or leftovers(job.out):
        problems += resume(job)
    elif final(job.out) != reference:
        problems.append("ends with other weights")
    if not problems:
        if final(job.out) != reference:
            problems.append("ends with other weights after --resume")
        if leftovers(job.out):
            problems.append(f"leaves {' '.join(leftovers(job.out))} after --resume")
    return [f"{problem} ({path}) [{' | '.join(ran.stderr.splitlines()[-2:])}]" for problem in problems]


def named_by(job, fault, path):
    """Which names a message may give: a temporary file goes by that of the one that it becomes. Of all later calls, it may
    be another one that ends the run."""
    if fault.sticky:
        return (job.folder,)
    file = pathlib.Path(path.removesuffix(" (only read)"))
    name = file.name.split(".tmp-")[0].lstrip(".") if ".tmp-" in file.name else file.name
    return (file.parent / name, file)


def resume(job):
    arguments = ["train", "--resume", str(job.out)] if list(job.out.glob("checkpoint-*")) else [*job.train, "--overwrite"]
    ran, *_ = job.run(arguments)
    return [] if ran.returncode == 0 else [f"cannot go on: {ran.stderr.strip().splitlines()[-1:]}"]


# ---- Which faults

def faults_of(counts, each):
    """For each kind of call and error: up to `each` places, evenly spread; the first half of them also sticky."""
    for call in CALLS:
        places = sorted({1 + i * counts[call] // each for i in range(min(each, counts[call]))} if counts[call] > each
                        else range(1, counts[call] + 1))
        for error in ERRORS[call]:
            for number, at in enumerate(places):
                yield Fault(call, error, at, False)
                if error in STICKY and number % 4 == 0:
                    yield Fault(call, error, at, True)


def choose(faults, runs):
    return faults if not runs or runs >= len(faults) else [faults[i * len(faults) // runs] for i in range(runs)]


def try_all(options, folder):
    table, problems, made = collections.Counter(), [], 0
    for kind in options.sets:
        job = Job(options, folder, kind)
        ran, counts, *_ = job.run(job.train)
        reference = final(job.out) if ran.returncode == 0 else None
        if reference is None:
            sys.exit(f"faults: the run without faults failed: {ran.stderr}")
        print(f"{kind}: " + ", ".join(f"{counts[call]} {call}" for call in CALLS), flush=True)
        for fault in choose(list(faults_of(counts, options.each)), options.runs):
            found = judge(job, fault, reference)
            made += found is not None
            table[fault.call, name_of(fault.error), "-" if found is None else "bad" if found else "good"] += 1
            problems += [f"{kind}: {fault}: {problem}" for problem in found or []]
            for problem in found or []:
                print(f"{kind}: {fault}: {problem}", flush=True)
    return table, problems, made


def print_table(table):
    print(f"{'call':8} {'error':8} {'good':>5} {'bad':>5} {'not reached':>12}")
    for call, error in sorted({key[:2] for key in table}):
        print(f"{call:8} {error:8} {table[call, error, 'good']:5} {table[call, error, 'bad']:5} {table[call, error, '-']:12}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--shim", type=pathlib.Path, required=True)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("--runs", type=int, default=12, help="of each set (%(default)s)")
    amount.add_argument("--all", action="store_const", const=0, dest="runs")
    parser.add_argument("--each", type=int, default=40, help="of each kind of call, at most (%(default)s)")
    parser.add_argument("--seconds", type=float, default=60, help="that a run may take (%(default)s)")
    options = parser.parse_args()
    options.program, options.shim = options.program.resolve(), options.shim.resolve()
    with tempfile.TemporaryDirectory() as folder:
        table, problems, made = try_all(options, pathlib.Path(folder).resolve())
    print_table(table)
    print(f"{made} faults, {len(problems)} problems")
    if made == 0:
        sys.exit("faults: nothing failed: the shim is not loaded")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
