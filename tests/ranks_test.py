#!/usr/bin/env python3
"""Data-parallel jobs under mpirun: the bits of one process, and what is said when a rank fails.

    python3 tests/ranks_test.py build/release/bin/warpstep

Exit code 77 where mpirun is not installed.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}  # which containers may forbid
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]


def tensors(run):
    """Of the newest checkpoint: bytes by name, moments of the optimiser included."""
    data = max(run.glob("checkpoint-*.safetensors")).read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:begin])
    header.pop("__metadata__")
    return {name: data[begin + one["data_offsets"][0]:begin + one["data_offsets"][1]] for name, one in header.items()}


class Jobs:
    def __init__(self, warpstep, folder, device="cpu"):
        self.warpstep, self.folder, self.device = warpstep, folder, device
        self.started = []
        self.data("data", 320)
        os.environ["TMPDIR"] = str(folder)  # Open MPI's session files

    def data(self, name, images):
        subprocess.run([self.warpstep, "data", "make", self.folder / name, "--train", str(images), "--test", "50"],
                       check=True, capture_output=True)

    def idx_data(self, name, images, tests, pixels):
        """Grey images of 8 x 8 in the files of MNIST; pixels(image) are those of one, the test images numbered after the others."""
        folder = self.folder / name
        folder.mkdir()
        for part, of in (("train", range(images)), ("t10k", range(images, images + tests))):
            (folder / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, len(of), 8, 8) + b"".join(map(pixels, of)))
            (folder / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, len(of)) + bytes(i % 10 for i in of))

    def command(self, out, *options, data="data", model="mlp"):
        return [self.warpstep, "train", model, "--data", self.folder / data, "--device", self.device, "--batch", "8",
                "--threads", "1", "--profile", "off", "--out", self.folder / out, *options]

    def start(self, *parts, env={}):
        job = subprocess.Popen([*MPIRUN, *parts], env={**os.environ, **ENVIRONMENT, **env}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               text=True)
        self.started.append(job)
        return job

    def end(self):
        """What a failed test left: mpirun ends its ranks, stopped ones too."""
        for job in self.started:
            if job.poll() is None:
                job.send_signal(signal.SIGCONT)
                job.terminate()
                try:
                    job.wait(10)
                except subprocess.TimeoutExpired:
                    job.kill()
                    job.wait()


def equal_bits(jobs):
    for ranks in (2, 3):
        job = jobs.start("-np", str(ranks), *jobs.command(f"ranks-{ranks}", "--steps", "12", "--epochs", "9", "--tensorboard"))
        said = job.communicate(timeout=120)[1]
        assert job.returncode == 0, said
        alone = jobs.command(f"alone-{ranks}", "--steps", str(12 * ranks), "--epochs", "9", "--accumulate", str(ranks))
        subprocess.run([*alone, "--dist", "none"], check=True, capture_output=True, timeout=120)
        assert tensors(jobs.folder / f"ranks-{ranks}") == tensors(jobs.folder / f"alone-{ranks}"), f"{ranks} ranks differ"
        lines = [[json.loads(line) for line in (jobs.folder / f"{run}-{ranks}/metrics.jsonl").read_text().splitlines()]
                 for run in ("ranks", "alone")]
        accuracies = [[line["accuracy"] for line in of if line["kind"] == "evaluation"] for of in lines]
        assert accuracies[0] == accuracies[1], f"the evaluations of {ranks} ranks differ: {accuracies}"
        curves = [len(list((jobs.folder / f"ranks-{ranks}" / of / "tensorboard").glob("events*"))) for of in ("", "ranks/1")]
        assert curves == [1, 0], f"event files of rank 0 and rank 1: {curves}"


def killed(jobs):
    """A rank that dies ends the job within seconds; the others say where they were; the run continues."""
    out = jobs.folder / "killed"
    parts = jobs.command("killed", "--steps", "1000000", "--epochs", "0", "--checkpoint-every", "20")
    parts[parts.index("--profile") + 1] = "steps"
    job = jobs.start("-np", "2", *parts)
    until = time.monotonic() + 60
    while not list(out.glob("checkpoint-*.safetensors")) and time.monotonic() < until:
        time.sleep(0.05)
    ranks = ranks_of(job)
    assert len(ranks) == 2, ranks
    begin = time.monotonic()
    os.kill(max(ranks), signal.SIGKILL)
    said = job.communicate(timeout=60)[1]
    assert time.monotonic() - begin < 20, "a job with a dead rank ran on"
    assert job.returncode != 0
    assert "which did not answer" in said and "the last checkpoint saved is" in said, said
    assert "a partial profile was saved" in said.split("the last checkpoint saved is")[1], said
    step = max(int(path.stem.split("-")[1]) for path in out.glob("checkpoint-*.safetensors"))
    job = jobs.start("-np", "2", jobs.warpstep, "train", "--resume", out, "--steps", str(step + 5))
    finished(job)
    finished(jobs.start("-np", "2", *jobs.command("undisturbed", "--steps", str(step + 5), "--epochs", "0")))
    assert tensors(out) == tensors(jobs.folder / "undisturbed"), "a killed and resumed job ends with other weights"
    alone = subprocess.run([jobs.warpstep, "train", "--resume", out, "--steps", str(step + 9), "--dist", "none"],
                           capture_output=True, text=True, timeout=60)
    assert alone.returncode == 2 and "or with 2 ranks" in alone.stderr, alone.stderr


def hung(jobs):
    """A rank that hangs ends the job after --dist-timeout, with what each rank was doing."""
    out = jobs.folder / "hung"
    job = jobs.start("-np", "2", *jobs.command("hung", "--steps", "1000000", "--epochs", "0", "--checkpoint-every", "20", "--dist-timeout", "4"))
    until = time.monotonic() + 60
    while not list(out.glob("checkpoint-*.safetensors")) and time.monotonic() < until:
        time.sleep(0.05)
    begin = time.monotonic()
    os.kill(max(ranks_of(job)), signal.SIGSTOP)
    said = job.communicate(timeout=60)[1]
    assert time.monotonic() - begin < 20, "a job with a rank that hangs ran on"
    line = next(line for line in said.splitlines() if line.startswith("warpstep train: rank 0: waited"))
    assert job.returncode == 1 and re.search(
        r"for rank 1, which did not answer: rank 0 waits for other ranks in (step|the checkpoint of step) \d+ for 4\.\d s; "
        r"rank 1 .* step \d+ for [4-9]\.\d s, and its process is stopped \(SIGSTOP\); the last checkpoint", line), line


def shared_bytes(process):
    """Of memory that ranks share: a line of what each does, and where all are on one machine their windows."""
    ranges = [line.split()[0].split("-") for line in pathlib.Path(f"/proc/{process}/maps").read_text().splitlines()
              if "warpstep-ranks" in line]
    return sum(int(end, 16) - int(begin, 16) for begin, end in ranges)


def silent(jobs):
    """Of three ranks that exchange messages, as on several machines, the others name the one that hangs.

    Files of at most 6 MB, which are too small for the windows of three ranks, have them use MPI on one machine, too. Where the
    rank had sent its values to one of the others alone, that one waits for both, so it may take more than one job."""
    for attempt in range(8):
        out = jobs.folder / f"silent-{attempt}"
        job = jobs.start("-np", "3", "prlimit", "--fsize=6000000", *jobs.command(
            out.name, "--steps", "1000000", "--epochs", "0", "--checkpoint-every", "20", "--dist-timeout", "3", model="mnist_cnn"))
        until = time.monotonic() + 60
        while not list(out.glob("checkpoint-*.safetensors")) and time.monotonic() < until:
            time.sleep(0.05)
        ranks = ranks_of(job)
        assert len(ranks) == 3, ranks
        assert all(shared_bytes(rank) < 1e6 for rank in ranks), "the ranks have windows: nothing is sent"
        begin = time.monotonic()
        os.kill(ranks[2], signal.SIGSTOP)
        said = job.communicate(timeout=60)[1]
        assert time.monotonic() - begin < 20, "a job with a rank that hangs ran on"
        line = next(line for line in said.splitlines() if line.startswith("warpstep train: rank 0: waited"))
        found = re.search(r"for (ranks? [\d, ]+), which did not answer: rank 0 waits for other ranks in .*; rank 1 waits for other ranks in "
                          r"[^(]*; rank 2 [^;]*, and its process is stopped \(SIGSTOP\); the last checkpoint", line)
        assert job.returncode == 1 and found and found[1] in ("rank 2", "ranks 1, 2"), line
        if found[1] == "rank 2":
            return
    assert False, f"never was rank 2 alone named: {line}"


def interrupted(jobs):
    """A job that SIGTERM ends waits for a rank that is slow at it, as one that saves a large checkpoint."""
    out = jobs.folder / "interrupted"
    options = ("--steps", "1000000", "--epochs", "0", "--checkpoint-every", "20")
    job = jobs.start("-np", "2", *jobs.command("interrupted", *options))
    until = time.monotonic() + 60
    while not list(out.glob("checkpoint-*.safetensors")) and time.monotonic() < until:
        time.sleep(0.05)
    ranks = ranks_of(job)
    os.kill(ranks[0], signal.SIGSTOP)
    for rank in ranks:
        os.kill(rank, signal.SIGTERM)
    time.sleep(1.2)
    os.kill(ranks[0], signal.SIGCONT)
    said = job.communicate(timeout=60)[1]
    assert "interrupted; continue with" in said and "waited" not in said, said
    summary, newest = json.loads((out / "summary.json").read_text()), max(out.glob("checkpoint-*.safetensors"))
    assert (summary["outcome"], summary["steps"]) == ("interrupted", int(newest.stem.split("-")[1])), (summary, newest)


def interrupted_launcher(jobs):
    """mpirun passes SIGUSR1 on at once, at which the ranks stop and save."""
    out = jobs.folder / "interrupted-launcher"
    job = jobs.start("-np", "2", *jobs.command(out.name, "--steps", "1000000", "--epochs", "0", "--checkpoint-every", "20"))
    until = time.monotonic() + 60
    while not list(out.glob("checkpoint-*.safetensors")) and time.monotonic() < until:
        time.sleep(0.05)
    begin = time.monotonic()
    job.send_signal(signal.SIGUSR1)
    while job.poll() is None and not (out / "summary.json").exists():
        time.sleep(0.02)
    assert time.monotonic() - begin < 10, "mpirun did not pass the signal on at once"
    said = job.communicate(timeout=60)[1]
    summary, newest = json.loads((out / "summary.json").read_text()), max(out.glob("checkpoint-*.safetensors"))
    assert (summary["outcome"], summary["steps"]) == ("interrupted", int(newest.stem.split("-")[1])), (summary, newest, said)


def interrupted_evaluation(jobs):
    """SIGTERM ends an evaluation of a job as it ends one of a process: the weights are saved first, and it is made later."""
    jobs.idx_data("many-tests", 64, 400_000, lambda image: bytes([image % 256]) * 64)
    out = jobs.folder / "interrupted-evaluation"
    parts = jobs.command(out.name, "--epochs", "3", "--mean", "0.5", "--std", "0.5", data="many-tests")
    parts[parts.index("--batch") + 1] = "2"
    job = jobs.start("-np", "2", *parts)
    metrics = out / "metrics.jsonl"
    until = time.monotonic() + 60
    while not (metrics.exists() and '"kind":"epoch"' in metrics.read_text()) and time.monotonic() < until:
        time.sleep(0.02)
    time.sleep(0.2)
    for rank in ranks_of(job):
        os.kill(rank, signal.SIGTERM)
    said = job.communicate(timeout=120)[1]
    assert (out / "summary.json").exists(), said
    summary = json.loads((out / "summary.json").read_text())
    assert summary["outcome"] == "interrupted" and '"kind":"evaluation"' not in metrics.read_text(), (summary, said)
    assert [path.name for path in out.glob("checkpoint-*.safetensors")] == ["checkpoint-00000016.safetensors"], said


def late(jobs):
    """MPI itself waits without end for a rank that does not start."""
    begin = time.monotonic()
    job = jobs.start("-np", "1", *jobs.command("late", "--steps", "3", "--dist-timeout", "3"), ":", "-np", "1", "sleep", "60")
    said = job.communicate(timeout=50)[1]
    assert job.returncode == 1 and "not all ranks have started MPI after 3 s" in said and time.monotonic() - begin < 40, said


def silent_from_the_start(jobs):
    """A rank that hangs before the first exchange: the end of MPI, too, would wait for it without end."""
    source, planted = jobs.folder / "planted_hang.c", jobs.folder / "planted_hang.so"
    source.write_text("#include <unistd.h>\nint MPI_Irecv(void) { for (;;) pause(); }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", planted, source], check=True)
    parts = jobs.command("silent-start", "--steps", "3", "--dist-timeout", "3")
    begin = time.monotonic()
    job = jobs.start("-np", "1", *parts, ":", "-np", "1", "env", f"LD_PRELOAD={planted}", *parts)
    said = job.communicate(timeout=50)[1]
    assert job.returncode == 1 and "rank 0: waited 3.0 s before the first step for rank 1" in said and time.monotonic() - begin < 40, said


def left(jobs):
    """Without a launcher that ends the others, they notice by themselves that a rank has ended. Each is the first of its
    launcher, as where one was started for each GPU."""
    def started(out, *options):
        port = free_port()
        ranks = [subprocess.Popen(jobs.command(out, "--steps", "1000000", "--epochs", "0", "--dist", "env", *options), stderr=subprocess.PIPE,
                                  text=True, stdout=subprocess.DEVNULL,
                                  env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost",
                                       "WARPSTEP_PORT": port})
                 for rank in range(2)]
        jobs.started += ranks
        return ranks

    ranks = started("left")
    metrics = jobs.folder / "left/metrics.jsonl"
    until = time.monotonic() + 60
    while not (metrics.exists() and metrics.read_text().count("step") > 2) and time.monotonic() < until:
        time.sleep(0.05)
    begin = time.monotonic()
    ranks[1].kill()
    said = ranks[0].communicate(timeout=60)[1]
    ranks[1].communicate(timeout=60)
    assert time.monotonic() - begin < 20 and ranks[0].returncode == 1, said
    assert "for rank 1, which did not answer: rank 0 waits" in said and "and its process has ended" in said, said
    assert "ranks: 2 (2 on this machine), TCP" in said, "the ranks of a machine are not counted where the launcher did not"
    # What is wrong with all is said once.
    ranks = started("diverges", "--optimizer", "sgd", "--lr", "1e30")
    said = "".join(rank.communicate(timeout=60)[1] for rank in ranks)
    assert [rank.returncode for rank in ranks] == [1, 1] and said.count("warpstep train:") == 1 and "diverged" in said, said


def free_port():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return str(free.getsockname()[1])


def ranks_of(job):
    """The processes that mpirun started, in the order of the ranks."""
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit() and parent_of(name) == job.pid)


def global_batch(size, parts):
    at = parts.index("--batch")
    return [*parts[:at], "--global-batch", str(size), *parts[at + 2:]]


def floats(data):
    return struct.unpack(f"<{len(data) // 4}f", data)


def finished(job):
    said = job.communicate(timeout=120)[1]
    assert job.returncode == 0, said


def losses(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line["kind"] == "step"]


def elastic(jobs):
    """A global batch has the same samples, however many ranks share it."""
    def command(out, steps):
        parts = global_batch(24, jobs.command(out, "--steps", str(steps), "--epochs", "9", "--log-every", "1"))
        at = parts.index("--threads")
        return [*parts[:at], *parts[at + 2:]]

    finished(jobs.start("-np", "4", *command("elastic", 5)))
    options = json.loads((jobs.folder / "elastic/config.json").read_text())["options"]
    assert (options["threads"], options["workers"]) == (0, 0), "a run keeps the shares of its ranks"
    resume = [jobs.warpstep, "train", "--resume", jobs.folder / "elastic"]
    finished(jobs.start("-np", "2", *resume, "--steps", "20"))
    steps = [json.loads(line)["step"] for line in (jobs.folder / "elastic/ranks/1/metrics.jsonl").read_text().splitlines()]
    assert 5 in steps and 20 in steps, f"a rank loses its earlier part: {steps}"
    refused = jobs.start("-np", "5", *resume, "--steps", "25")
    said = refused.communicate(timeout=60)[1]
    assert refused.returncode == 2 and "5 ranks cannot share it evenly" in said, said
    refused = jobs.start("-np", "2", *command("weighted", 5), "--class-weights", ",".join(["1"] * 10))
    said = refused.communicate(timeout=60)[1]
    assert refused.returncode == 2 and "--class-weights does not go with --global-batch" in said, said
    subprocess.run([*resume, "--steps", "25", "--dist", "none"], check=True, capture_output=True, timeout=60)
    subprocess.run([*command("rigid", 25), "--dist", "none"], check=True, capture_output=True, timeout=60)
    elastic, rigid = losses(jobs.folder / "elastic"), losses(jobs.folder / "rigid")
    assert len(rigid) == 25 and len(elastic) == 25, (elastic, rigid)
    assert all(abs(a - b) <= 1e-5 * abs(b) for a, b in zip(elastic, rigid)), list(zip(elastic, rigid))


def whole_batch(jobs):
    """Batch norms of all ranks' rows: two ranks compute what one computes of both batches."""
    def command(out):
        return global_batch(16, jobs.command(out, "--steps", "5", "--epochs", "9", "--log-every", "1", "--sync-bn", "--optimizer", "sgd",
                                             "--lr", "0.05", model="mnist_cnn"))

    finished(jobs.start("-np", "2", *command("sync")))
    subprocess.run([*command("unsplit"), "--dist", "none"], check=True, capture_output=True, timeout=60)
    sync, unsplit = losses(jobs.folder / "sync"), losses(jobs.folder / "unsplit")
    assert len(sync) == 5 and all(abs(a - b) <= 2e-5 * abs(b) for a, b in zip(sync, unsplit)), list(zip(sync, unsplit))
    statistics = [floats(tensors(jobs.folder / run)["bn.running_var"]) for run in ("sync", "unsplit")]
    assert all(abs(a - b) <= 1e-4 * abs(b) for a, b in zip(*statistics)), statistics


def shares(jobs):
    """Moments that ranks share out: equal bits, also clipped, averaged, interrupted, and continued alone."""
    for moments in ("fp32", "bf16"):
        common = ("--steps", "9", "--epochs", "9", "--checkpoint-every", "5", "--clip-norm", "0.5", "--ema", "0.9", "--optimizer", "adamw",
                  "--weight-decay", "0.1", "--decay", "matrices", "--moments", moments)
        plain, shared = jobs.folder / f"plain-{moments}", jobs.folder / f"shared-{moments}"
        finished(jobs.start("-np", "2", *jobs.command(plain.name, *common, "--shard-optimizer", "off")))
        finished(jobs.start("-np", "2", *jobs.command(shared.name, *common)))
        expected = tensors(plain)
        assert any("exp_avg_sq" in name for name in expected) and any("ema." in name for name in expected), list(expected)
        assert tensors(shared) == expected, f"shared moments in {moments} change the result"
        max(shared.glob("checkpoint-*.safetensors")).unlink()
        resume = [jobs.warpstep, "train", "--resume", shared]
        finished(jobs.start("-np", "2", *resume))
        assert tensors(shared) == expected, f"a resumed job with shared moments in {moments} differs"
        finished(jobs.start("-np", "4", *resume, "--global-batch", "16", "--steps", "12"))
        subprocess.run([*resume, "--steps", "15", "--dist", "none"], check=True, capture_output=True, timeout=60)
    # Only rank 0 gathers them for a checkpoint: another has a smaller peak than without.
    peaks = {}
    for shard in ("off", "on"):
        measured = jobs.folder / f"peak-{shard}"
        wrapper = ("import os, resource, subprocess, sys; code = subprocess.run(sys.argv[2:]).returncode; "
                   "open(sys.argv[1] + os.environ['OMPI_COMM_WORLD_RANK'], 'w').write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)); "
                   "sys.exit(code)")
        finished(jobs.start("-np", "2", sys.executable, "-c", wrapper, measured, *jobs.command(
            f"peaks-{shard}", "--steps", "9", "--epochs", "9", "--checkpoint-every", "5", "--shard-optimizer", shard)))
        peaks[shard] = int(pathlib.Path(f"{measured}1").read_text())
    assert peaks["on"] < peaks["off"], f"KiB of rank 1: {peaks}"
    # A model so small that the shares of some ranks are empty, among them rank 0's.
    for out, shard in (("tiny", "auto"), ("tiny-plain", "off")):
        parts = jobs.command(out, "--steps", "2", "--shard-optimizer", shard, model="mnist_cnn")
        finished(jobs.start("-np", "4", *global_batch(16, parts)))
    tiny = tensors(jobs.folder / "tiny")
    assert any("exp_avg_sq" in name for name in tiny) and tiny == tensors(jobs.folder / "tiny-plain"), list(tiny)
    for ranks in (("-np", "4", jobs.warpstep), ("-np", "1", jobs.warpstep)):
        finished(jobs.start(*ranks, "train", "--resume", jobs.folder / "tiny", "--steps", "4" if ranks[1] == "4" else "6"))


def seen(jobs):
    """A job ends with who was waited for: by what the ranks counted, and by their spans."""
    for level, expected in (("steps", "exchanges take"), ("spans", "all_reduce ")):
        parts = jobs.command(f"seen-{level}", "--steps", "60", "--epochs", "9", "--profile-schedule", "skip_first=2,warmup=1,active=20")
        parts[parts.index("--profile") + 1] = level
        job = subprocess.run([*MPIRUN, "-np", "2", *parts], env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, timeout=120)
        assert job.returncode == 0, job.stderr
        assert "waiting" in job.stdout and expected in job.stdout, job.stdout
    ranks = subprocess.run([jobs.warpstep, "ranks", jobs.folder / "seen-spans", jobs.folder / "seen-spans/ranks/1", "--json"],
                           check=True, capture_output=True, text=True)
    read = json.loads(ranks.stdout)
    sums = next(row for row in read["exchanges"] if row["name"].endswith("all_reduce"))
    # A median is at most twice the mean of the same steps, and each step's shortest exchange at most the mean of its ranks.
    assert sums["bytes"] > 1e6 and 0 < sums["transfer_ns"] <= 2 * sums["mean_ns"] and sums["bytes_per_second"] > 1e7, sums
    assert all(row["communication_ns"] > 0 for row in read["ranks"]), read["ranks"]
    for run in ("seen-spans", "seen-spans/ranks/1"):  # the ranks share all CPUs: neither is another program to the other
        report = subprocess.run([jobs.warpstep, "report", jobs.folder / run, "--json"], check=True, capture_output=True, text=True)
        sampled = {row["metric"]: row["max"] for row in json.loads(report.stdout)["tables"]["samples"]}
        assert sampled.get("siblings cpu %", 0) > 0, sampled
    resume = [jobs.warpstep, "train", "--resume", jobs.folder / "seen-spans", "--steps", "70", "--profile", "off"]
    job = subprocess.run([*MPIRUN, "-np", "2", *resume], env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True,
                         timeout=120)
    assert job.returncode == 0 and "exchanges take" in job.stdout and "all_reduce " not in job.stdout, job.stdout


def own_rank(jobs):
    """A job knows its ranks itself, whatever --profile-rank says."""
    parts = jobs.command("own-rank", "--steps", "12", "--epochs", "9", "--profile-rank", f"0@127.0.0.1:{free_port()}")
    parts[parts.index("--profile") + 1] = "steps"
    finished(jobs.start("-np", "2", *parts))
    ranks = subprocess.run([jobs.warpstep, "ranks", jobs.folder / "own-rank", jobs.folder / "own-rank/ranks/1", "--json"],
                           check=True, capture_output=True, text=True)
    assert [row["rank"] for row in json.loads(ranks.stdout)["ranks"]] == [0, 1], ranks.stdout


def slow_rank(jobs):
    """Each rank's report names the one that the others wait for."""
    planted = jobs.folder / "planted_slower.so"
    source = pathlib.Path(__file__).resolve().parent.parent / "bench/planted_slower.c"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", planted, source, "-ldl"], check=True)
    # Batch norms of all ranks' rows wait for the slow one inside their calls.
    for out, model, options in (("slow", "mlp", ()), ("slow-norms", "mnist_cnn", ("--sync-bn",))):
        parts = jobs.command(out, "--steps", "60", "--epochs", "9", "--profile-schedule", "skip_first=2,warmup=1,active=40", *options, model=model)
        parts[parts.index("--profile") + 1] = "spans"
        slow = ("env", f"LD_PRELOAD={planted}", "PLANT_SLOWER=400", *parts)  # five times as long
        finished(jobs.start("-np", "1", *parts, ":", "-np", "1", *slow))
        ranks = subprocess.run([jobs.warpstep, "ranks", jobs.folder / out], check=True, capture_output=True, text=True)
        assert "Rank 1" in ranks.stdout, ranks.stdout
        for run, expected in ((out, "All ranks wait for rank 1"), (f"{out}/ranks/1", "The other ranks wait for this one, rank 1")):
            report = subprocess.run([jobs.warpstep, "report", ".", "--json"], cwd=jobs.folder / run, check=True, capture_output=True, text=True)
            read = json.loads(report.stdout)
            findings = {row["key"]: row for row in read["tables"]["findings"]}
            assert expected in str(findings.get("slow-rank")), (run, findings)
            subprocess.run([jobs.warpstep, "export", jobs.folder / run, "--csv"], check=True, capture_output=True)
            tables = list((jobs.folder / run).glob("trace/**/findings.csv"))
            assert len(tables) == 1 and "slow-rank" in tables[0].read_text(), tables
            assert read["trust"]["lost_spans"] == 0 and read["trust"]["overhead_share"] < 0.5, read["trust"]


def half_an_update(jobs):
    """A checkpoint in between two updates has the gradients of all ranks."""
    options = ("--accumulate", "3", "--checkpoint-every", "4", "--epochs", "9")
    finished(jobs.start("-np", "2", *jobs.command("whole", "--steps", "9", *options)))
    finished(jobs.start("-np", "2", *jobs.command("halves", "--steps", "4", *options)))
    finished(jobs.start("-np", "2", jobs.warpstep, "train", "--resume", jobs.folder / "halves", "--steps", "9"))
    assert tensors(jobs.folder / "halves") == tensors(jobs.folder / "whole")
    # And is that of as many ranks as continue from it.
    resume = [jobs.warpstep, "train", "--resume", jobs.folder / "fewer", "--steps", "9"]
    for out, steps in (("fewer", "4"), ("as-many", "9")):
        parts = jobs.command(out, "--steps", steps, "--log-every", "1", *options)
        finished(jobs.start("-np", "2", *global_batch(24, parts)))
    subprocess.run([*resume, "--dist", "none"], check=True, capture_output=True, timeout=60)
    fewer, as_many = losses(jobs.folder / "fewer"), losses(jobs.folder / "as-many")
    assert len(fewer) == 9 and all(abs(a - b) <= 1e-5 * abs(b) for a, b in zip(fewer, as_many)), list(zip(fewer, as_many))


def masked(jobs):
    """A step in which no rank has a row whose image can be decoded has no loss; it did not diverge."""
    jobs.data("broken", 64)
    for image in sorted((jobs.folder / "broken/train").glob("*.png"))[4:]:
        os.truncate(image, 40)
    parts = jobs.command("masked", "--steps", "4", "--log-every", "1", "--data-errors", "mask", "--max-bad", "1", "--mean", "0.5,0.5,0.5",
                         "--std", "0.5,0.5,0.5", data="broken")
    parts[parts.index("--batch") + 1] = "2"
    finished(jobs.start("-np", "2", *parts))
    out = jobs.folder / "masked"
    assert 0.0 in losses(out), losses(out)
    rows = [len((run / "bad_samples.jsonl").read_text().splitlines()) for run in (out, out / "ranks/1")]
    counted = [json.loads((run / "summary.json").read_text())["bad_rows"] for run in (out, out / "ranks/1")]
    assert min(rows) > 0 and counted == [sum(rows), rows[1]], (rows, counted)


def parent_of(process):
    try:
        return int(pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return -1


def unequal(jobs):
    jobs.data("other", 328)
    parts = [*jobs.command("unequal", "--steps", "5")]
    other = [*jobs.command("unequal", "--steps", "5", data="other")]
    job = jobs.start("-np", "1", *parts, ":", "-np", "1", *other)
    said = job.communicate(timeout=60)[1]
    assert job.returncode == 2 and "rank 1 differs from rank 0 in data/" in said, (job.returncode, said)
    # Only one continues.
    resume = (jobs.warpstep, "train", "--resume", jobs.folder / "ranks-2", "--steps", "20")
    job = jobs.start("-np", "1", *resume, ":", "-np", "1", *parts)
    said = job.communicate(timeout=60)[1]
    assert job.returncode == 2 and "rank 1 differs from rank 0 in " in said, (job.returncode, said)
    # The same name, of other weights.
    for folder, run in (("here", "ranks-2"), ("there", "ranks-3")):
        (jobs.folder / folder).mkdir()
        shutil.copy(max((jobs.folder / run).glob("checkpoint-*.safetensors")), jobs.folder / folder / "start.safetensors")
    parts = jobs.command("otherwise", "--steps", "5", "--weights", "start.safetensors")
    here, there = (("-np", "1", "--wdir", jobs.folder / folder, *parts) for folder in ("here", "there"))
    job = jobs.start(*here, ":", *there)
    said = job.communicate(timeout=60)[1]
    assert job.returncode == 2 and "rank 1 differs from rank 0 in start/weights: " in said, (job.returncode, said)


def alone(jobs):
    """Of several processes that MPI does not bring together none trains by itself."""
    for env, options, expected in (({"PMI_SIZE": "2"}, (), "as one of several ranks, but Open MPI"),
                                   ({}, ("--dist", "mpi"), "--dist mpi: no launcher of MPI")):
        alone = subprocess.run(jobs.command("alone", "--steps", "5", *options), env={**os.environ, **ENVIRONMENT, **env},
                               capture_output=True, text=True, timeout=60)
        assert alone.returncode == 1 and expected in alone.stderr, alone.stderr


def run(tests, warpstep, *device):
    if not shutil.which("mpirun"):
        print("SKIPPED: mpirun was not found: apt-get install openmpi-bin")
        return 77
    return run_jobs(tests, Jobs, warpstep, *device)


def run_jobs(tests, kind, warpstep, *device):
    with tempfile.TemporaryDirectory() as folder:
        jobs = kind(warpstep, pathlib.Path(folder), *device)
        try:
            for test in tests:
                test(jobs)
                print(f"{test.__name__}: passed", flush=True)
        finally:
            jobs.end()
    return 0


if __name__ == "__main__":
    tests = (equal_bits, elastic, whole_batch, shares, seen, own_rank, slow_rank, half_an_update, masked, killed, hung, silent, interrupted,
             interrupted_launcher, interrupted_evaluation, late, silent_from_the_start, left, unequal, alone)
    sys.exit(run(tests, sys.argv[1]))
