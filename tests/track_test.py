#!/usr/bin/env python3
"""tools/track, and docs/sweeps/tune.py, with stubs in place of the packages that they import."""
import contextlib
import fcntl
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "tools" / "track"


def load(path, name):
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


track = load(PROGRAM, "track")

# Each writes a line of JSON per call to $CALLS.
WANDB = """
import json, os
def call(*what):
    with open(os.environ["CALLS"], "a") as file:
        file.write(json.dumps(what) + "\\n")
class Run:
    def __init__(self, id): self.id, self.summary = id, {}
    def define_metric(self, name, step_metric): pass
    def log(self, values, step):
        if os.path.exists(os.environ["CALLS"] + ".broken"):
            os.remove(os.environ["CALLS"] + ".broken")
            raise OSError("no network")
        call("log", step, values)
    def finish(self, exit_code): call("finish", exit_code, self.summary)
def init(project, id, name, resume, config):
    call("init", project, id, name, resume, config)
    return Run(id)
"""
MLFLOW = """
import json, os, posixpath, re, types
def sound(name):
    if not re.fullmatch(r"[/\\w.\\- :]+", name) or posixpath.normpath(name) != name or name[0] in "/." or len(name) > 250:
        raise ValueError(f"invalid name {name!r}")
def call(*what):
    with open(os.environ["CALLS"], "a") as file:
        file.write(json.dumps(what) + "\\n")
class entities:
    def Metric(name, value, time, step): return [name, value, time, step]
class MlflowClient:
    params = {}
    def __init__(self):
        if os.path.exists(os.environ["CALLS"] + ".broken"): raise ValueError("no such server")
    def get_experiment_by_name(self, name): return None
    def create_experiment(self, name): return "e"
    def create_run(self, where, run_name):
        call("create", where, run_name)
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id="r1"))
    def update_run(self, id, status): call("update", id, status)
    def get_run(self, id): return types.SimpleNamespace(data=types.SimpleNamespace(params={"lr": "0.5"}))
    def log_param(self, id, key, value): call("param", key, value)
    def set_tag(self, id, key, value): call("tag", key, value)
    def log_batch(self, id, metrics):
        for metric in metrics: sound(metric[0])
        call("log", id, metrics)
    def log_metric(self, id, name, value):
        sound(name)
        call("metric", name, value)
    def set_terminated(self, id, status): call("end", status)
"""


def line(kind, step, **values):
    return json.dumps({"kind": kind, "step": step, **values, "time": 1000.0 + step}) + "\n"


def field(number, wire, body):
    return bytes([number << 3 | wire]) + (bytes([len(body)]) if wire == 2 else b"") + body


def event(when, step, **scalars):
    values = b"".join(field(1, 2, field(1, 2, tag.replace("_", "/", 1).encode()) + field(2, 5, struct.pack("<f", value)))
                      for tag, value in scalars.items())
    message = field(1, 1, struct.pack("<d", when)) + field(2, 0, bytes([step])) + field(5, 2, values)
    return struct.pack("<QI", len(message), 0) + message + bytes(4)


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.run_directory = self.folder / "run"
        self.run_directory.mkdir()
        self.calls_file = self.folder / "calls"
        for name, text in (("wandb", WANDB), ("mlflow", MLFLOW)):
            (self.folder / f"{name}.py").write_text(text)
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB", "MLFLOW"))}
        self.environment |= {"PYTHONPATH": str(self.folder), "CALLS": str(self.calls_file)}

    def write(self, *lines, name="metrics.jsonl"):
        with open(self.run_directory / name, "a", encoding="utf-8") as file:
            file.writelines(lines)

    def config(self, **options):
        (self.run_directory / "config.json").write_text(json.dumps({"options": options}))

    def summary(self, outcome="finished", **more):
        (self.run_directory / "summary.json").write_text(json.dumps({"outcome": outcome, **more}))

    def command(self, *arguments, to="wandb"):
        return [sys.executable, "-B", PROGRAM, self.run_directory, "--to", to, "--poll", "0.02", *arguments]

    def track(self, *arguments, to="wandb", code=0):
        ran = subprocess.run(self.command(*arguments, to=to), env=self.environment, capture_output=True, text=True,
                             timeout=60, check=False)
        self.assertEqual(ran.returncode, code, ran.stderr)
        return ran.stderr

    @contextlib.contextmanager
    def started(self, command, **options):
        """A process that a failing test does not leave: waiting for it would hide the failure."""
        with subprocess.Popen(command, env=self.environment, **options) as process:
            try:
                yield process
            finally:
                process.kill()

    def calls(self, kind=None):
        lines = self.calls_file.read_text().splitlines() if self.calls_file.exists() else []
        return [call for call in map(json.loads, lines) if kind in (None, call[0])]

    def steps(self):
        return [values["step"] for _, _, values in self.calls("log") if "train/loss" in values]


class Files(Folder):
    def test_numbers_in_nested_values(self):
        record = track.record_of(line("step", 7, loss=2.5, name="x", flag=True, none=None,
                                      blocks=[{"norm": 1}, {"norm": 3}], attention={"entropy": 4}))
        self.assertEqual(record, track.Record("step", 7, 1007.0, {"train/loss": 2.5, "train/blocks/0/norm": 1,
                                                                  "train/blocks/1/norm": 3, "train/attention/entropy": 4}))
        self.assertEqual(track.record_of(line("evaluation", 0, loss=1)).values, {"validation/loss": 1})
        for broken in ("", "{", "7", '{"kind": "step"}', '{"kind": "step", "step": "x"}'):
            self.assertIsNone(track.record_of(broken))

    def test_reads_whole_lines_and_replaced_files(self):
        metrics = track.Metrics(self.run_directory / "metrics.jsonl")
        self.assertEqual(metrics.read(), [])
        self.write(line("step", 1, loss=1), line("step", 2, loss=1)[:-5])
        self.assertEqual([r.step for r in metrics.read()], [1])
        self.write(line("step", 2, loss=1)[-5:])
        self.assertEqual([r.step for r in metrics.read()], [2])
        self.write(line("step", 1, loss=1), name="new")
        os.replace(self.run_directory / "new", self.run_directory / "metrics.jsonl")
        self.assertEqual([r.step for r in metrics.read()], [1])

    def test_reads_and_sends_large_files_in_parts(self):
        lines = [line("step", step, loss=1) for step in range(1, 301)]
        self.write(*lines, line("step", 301, loss=1)[:-5])
        self.config(lr=0.5)
        target = unittest.mock.Mock(package="wandb")
        target.open.return_value = "id"
        for most in (len(lines[0]) - 2, 10 * len(lines[0])):
            target.send.reset_mock()
            with unittest.mock.patch.object(track, "MOST_BYTES", most):
                tracker = track.Tracker(self.run_directory, target, "name")
                tracker.state.sent = {}
                tracker.send()
            os.close(tracker.state.file)
            parts = [call.args[0] for call in target.send.call_args_list]
            self.assertEqual([record.step for part in parts for record in part], list(range(1, 301)))
            self.assertGreater(len(parts), 25)

    def test_a_bad_line_costs_no_good_ones(self):
        metrics = track.Metrics(self.run_directory / "metrics.jsonl")
        deep = "[" * 900 + "]" * 900
        self.write(line("step", 1, loss=1), '{"kind":"step","step":1e999}\n', f'{{"kind":"step","step":2,"x":{deep}}}\n',
                   line("step", 3, loss=1))
        self.assertEqual([record.step for record in metrics.read()], [1, 3])
        self.assertEqual(metrics.read(), [])

    def test_lines_are_read_again_after_an_error(self):
        metrics = track.Metrics(self.run_directory / "metrics.jsonl")
        self.write(line("step", 1, loss=1))
        with unittest.mock.patch.object(track, "record_of", side_effect=MemoryError), self.assertRaises(MemoryError):
            metrics.read()
        self.assertEqual([record.step for record in metrics.read()], [1])
        (self.run_directory / "events.out.tfevents.1.host").write_bytes(event(1, 1, system_cpu=1.0))
        unreadable = self.run_directory / "events.out.tfevents.2.host"
        unreadable.mkdir()
        events = track.Events(self.run_directory)
        with self.assertRaises(OSError):
            events.read()
        unreadable.rmdir()
        self.assertEqual([record.step for record in events.read()], [1])

    def test_a_state_that_is_no_object_is_empty(self):
        path = self.run_directory / "track-wandb.json"
        for content in ("[]", "null", "7", "{", "[" * 100000):
            path.write_text(content)
            state = track.State(path)
            os.close(state.file)
            self.assertEqual((state.id, state.sent, state.count), ("", {}, 0))

    def test_a_state_that_is_no_file_is_refused(self):
        path, target = self.run_directory / "track-wandb.json", self.folder / "another"
        target.write_text("its content")
        path.symlink_to(target)
        with self.assertRaisesRegex(SystemExit, "track-wandb.json: is a link; remove it"):
            track.State(path)
        self.assertEqual(target.read_text(), "its content")
        path.unlink()
        os.mkfifo(path)
        with self.assertRaisesRegex(SystemExit, "track-wandb.json: is not a file"):
            track.State(path)

    def test_reads_event_files_up_to_a_cut(self):
        whole = event(5.5, 3, system_cpu=50.0) + event(6.5, 8, system_cpu=0.25)
        path = self.run_directory / "events.out.tfevents.1.host"
        for cut in range(len(whole) + 1):
            path.write_bytes(whole[:cut])
            events = track.Events(self.run_directory)
            count = len(events.read())
            self.assertEqual(count, (cut >= len(whole) // 2) + (cut == len(whole)))
            path.write_bytes(whole)
            self.assertEqual(count + len(events.read()), 2)
        self.assertEqual(track.Events(self.run_directory).read()[1], track.Record("system", 8, 6.5, {"system/cpu": 0.25}))

    def test_leaves_out_damaged_events(self):
        (self.run_directory / "events.out.tfevents.1.host").write_bytes(event(1, 1, system_cpu=1.0))
        second = self.run_directory / "events.out.tfevents.2.host"
        damaged = [b"\x80", field(1, 1, b"123"), field(2, 2, b"7"), field(5, 0, b"\1"), field(5, 2, field(1, 2, field(2, 0, b"\1"))),
                   field(1, 1, struct.pack("<d", float("nan"))) + field(5, 2, field(1, 2, field(1, 2, b"a") + field(2, 5, bytes(4))))]
        with open(second, "wb") as file:
            for message in damaged:
                file.write(struct.pack("<QI", len(message), 0) + message + bytes(4))
            file.write(event(2, 2, system_cpu=1.0))
        events, said = track.Events(self.run_directory), io.StringIO()
        with contextlib.redirect_stderr(said):
            self.assertEqual([record.step for record in events.read()], [1, 2])
            self.assertEqual(events.read(), [])
        lines = said.getvalue().splitlines()
        self.assertEqual(len(lines), len(damaged), lines)
        self.assertIn(f"{second}: left out the record at byte 17", lines[1])

    def test_a_run_trains_while_its_lock_is_held(self):
        self.assertFalse(track.trains(self.run_directory))
        lock = self.run_directory / ".lock"
        lock.write_text("process 4194303 on elsewhere, since then")
        self.assertTrue(track.trains(self.run_directory), "another machine's cannot be seen")
        lock.write_text(f"process 4194303 on {os.uname().nodename}, since then")
        self.assertFalse(track.trains(self.run_directory), "killed")
        with open(lock, encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.path.exists("/proc/locks"):
                self.assertTrue(track.trains(self.run_directory))

    def test_outcomes(self):
        self.summary("interrupted")
        self.assertEqual(track.outcome_of(self.run_directory), "died")
        self.config()
        os.utime(self.run_directory / "summary.json", (1, 1))
        self.assertEqual(track.outcome_of(self.run_directory), "died", "the summary of an earlier part")
        self.summary("interrupted")
        self.assertEqual(track.outcome_of(self.run_directory), "interrupted")

    def test_outcomes_of_copies(self):
        def outcome(config, summary, seconds):
            (self.run_directory / "config.json").write_text(json.dumps({"options": {}} | config))
            self.summary(**summary)
            os.utime(self.run_directory / "summary.json", (seconds, seconds))
            return track.outcome_of(self.run_directory)
        later = time.time() + 10
        self.assertEqual(outcome({"started": "5-7"}, {"started": "5-7"}, 1), "finished", "copied before config.json")
        self.assertEqual(outcome({"started": "6-8"}, {"started": "5-7"}, later), "died", "resumed, then copied")
        self.assertEqual(outcome({"started": "6-8"}, {}, later), "died", "resumed by a later version")
        self.assertEqual(outcome({}, {"started": "5-7"}, 1), "died", "resumed by an earlier version")


class Wandb(Folder):
    def test_sends_each_record_once(self):
        self.config(lr=0.5)
        self.write(line("evaluation", 0, loss=3), line("step", 1, loss=2), line("step", 2, loss=None))
        (self.run_directory / "tensorboard/system").mkdir(parents=True)
        (self.run_directory / "tensorboard/system/events.out.tfevents.1.host").write_bytes(event(9, 4, system_cpu=1.0))
        self.summary(steps=2, test={"loss": 0.5}, loading={"batches": 3})
        self.assertIn("4 record(s)", self.track("--project", "p"))
        (_, project, id_, name, resume, config), = self.calls("init")
        self.assertEqual((project, name, resume, config), ("p", "run", "allow", {"options": {"lr": 0.5}}))
        self.assertEqual(self.calls("log"), [["log", 0, {"step": 0, "_timestamp": 1000, "validation/loss": 3}],
                                             ["log", 1, {"step": 1, "_timestamp": 1001, "train/loss": 2}],
                                             ["log", 2, {"step": 2, "_timestamp": 1002}],
                                             ["log", 3, {"seconds": 4, "_timestamp": 9, "system/cpu": 1.0}]])
        self.assertEqual(self.calls("finish"), [["finish", 0, {"outcome": "finished", "steps": 2, "test/loss": 0.5}]])
        self.track()
        self.assertEqual(len(self.calls("init")), 1, "nothing was new")
        # The run continues: the same id, the next record.
        self.write(line("step", 3, loss=1))
        self.config(lr=0.25)
        self.track()
        self.assertEqual([call[2] for call in self.calls("init")], [id_, id_])
        self.assertEqual(self.calls("log")[4][:2], ["log", 4])
        self.assertEqual(self.calls("finish")[-1], ["finish", 1, {"outcome": "died"}])
        self.summary("broken data")
        self.track()
        self.assertEqual(self.calls("finish")[-1], ["finish", 1, {"outcome": "broken data"}])

    def first_line(self, process):
        timer = threading.Timer(30, process.kill)
        timer.start()
        said = process.stderr.readline()
        timer.cancel()
        return said

    def test_does_not_wait_for_a_fifo(self):
        self.config()
        os.mkfifo(self.run_directory / "metrics.jsonl")
        with self.started(self.command(), stderr=subprocess.PIPE, text=True) as process:
            self.assertEqual(self.first_line(process), f"tools/track: OSError: {self.run_directory}/metrics.jsonl: is not a file\n")

    def expect_to_wait(self, process):
        """It says so, in its first line."""
        self.assertEqual(self.first_line(process), f"tools/track: {self.run_directory}: waits for a run to begin here (no config.json yet)\n")

    def test_follows_a_run_through_its_begin_a_resume_and_its_end(self):
        with self.started(self.command("--follow"), stderr=subprocess.PIPE, text=True) as process:
            def wait(condition):
                end = time.monotonic() + 30
                while not condition():
                    self.assertLess(time.monotonic(), end)
                    self.assertIsNone(process.poll())
                    time.sleep(0.01)
            self.expect_to_wait(process)
            (self.run_directory / ".lock").write_text("process 1 on elsewhere, since then")
            self.config()
            self.write(*(line("step", n, loss=n) for n in (10, 20, 30)))
            wait(lambda: len(self.steps()) == 3)
            self.write(*(line("step", n, loss=n) for n in (10, 20, 30, 40)), name="new")  # resumed at 20
            os.replace(self.run_directory / "new", self.run_directory / "metrics.jsonl")
            wait(lambda: len(self.steps()) == 4)
            self.write(line("step", 50, loss=5))
            self.summary("interrupted", steps=50)
            (self.run_directory / ".lock").unlink()
            self.assertEqual(process.wait(30), 0)
            said = process.stderr.read()
        self.assertNotIn("waits", said)
        self.assertEqual(self.steps(), [10, 20, 30, 40, 50])
        self.assertEqual(self.calls("finish"), [["finish", 0, {"outcome": "interrupted", "steps": 50}]])

    def test_trains_in_place_of_an_earlier_run(self):
        self.config(lr=1)
        self.write(*(line("step", n, loss=n) for n in (1, 2, 3)))
        self.summary()
        self.track()
        # In place of warpstep train --overwrite: slow to begin.
        trainer = self.folder / "trainer.py"
        trainer.write_text(f"""
import os, pathlib, time
os.chdir({str(self.run_directory)!r})
time.sleep(0.5)
for path in pathlib.Path().iterdir():
    path.unlink()
time.sleep(0.2)
pathlib.Path("config.json").write_text('{{"options": {{"lr": 2}}}}')
pathlib.Path("metrics.jsonl").write_text({line("step", 1, loss=7)!r})
pathlib.Path("summary.json").write_text('{{"outcome": "finished", "steps": 1}}')
""")
        self.track("--", sys.executable, trainer, "--overwrite")
        first, second = self.calls("init")
        self.assertNotEqual(first[2], second[2])
        self.assertEqual(second[5], {"options": {"lr": 2}})
        self.assertEqual(self.calls("log")[3:], [["log", 0, {"step": 1, "_timestamp": 1001, "train/loss": 7}]])
        self.assertEqual(json.loads((self.run_directory / "track-wandb.json").read_text())["id"], second[2])
        said = self.track("--", sys.executable, "-c", "raise SystemExit(2)", code=2)
        self.assertIn("no run began here", said)
        self.assertEqual(len(self.calls("init")), 2)

    def test_follows_a_run_into_the_one_that_replaces_it(self):
        def wait(process, steps):
            end = time.monotonic() + 30
            while self.steps() != steps:
                if time.monotonic() > end:
                    process.kill()
                    self.fail(f"sent: {self.steps()}")
                self.assertIsNone(process.poll())
                time.sleep(0.01)
        (self.run_directory / ".lock").write_text("process 1 on elsewhere, since then")
        self.config(lr=1)
        self.write(*(line("step", n, loss=n) for n in (1, 2, 3)))
        with self.started(self.command("--follow")) as process:
            wait(process, [1, 2, 3])
            for name in ("track-wandb.json", "metrics.jsonl", "config.json"):
                (self.run_directory / name).unlink()
                time.sleep(0.1)
            self.config(lr=2)
            self.write(line("step", 1, loss=7))
            wait(process, [1, 2, 3, 1])
            self.config(lr=3)  # resumed
            self.write(line("step", 2, loss=7))
            wait(process, [1, 2, 3, 1, 2])
            self.summary(steps=2)
            (self.run_directory / ".lock").unlink()
            self.assertEqual(process.wait(30), 0)
        first, second = self.calls("init")
        self.assertNotEqual(first[2], second[2])
        self.assertEqual(second[5], {"options": {"lr": 2}})
        self.assertEqual([call[1] for call in self.calls("log")], [0, 1, 2, 0, 1])
        self.assertEqual(self.calls("finish"), [["finish", 0, {"outcome": "replaced"}],
                                                ["finish", 0, {"outcome": "finished", "steps": 2}]])
        self.assertEqual(json.loads((self.run_directory / "track-wandb.json").read_text())["id"], second[2])

    def test_ctrl_c_before_the_run_begins(self):
        with self.started(self.command("--follow"), stderr=subprocess.PIPE, text=True) as process:
            self.expect_to_wait(process)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 130, said)
        self.assertEqual(said, f"tools/track: {self.run_directory}: stopped before a run began here\n")

    def test_trains_and_passes_signals_and_the_exit_code(self):
        # In place of warpstep: refuses a folder that is not empty, saves on SIGINT and exits with 130.
        trainer = self.folder / "trainer.py"
        trainer.write_text("""
import json, os, pathlib, signal, sys, time
out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
out.mkdir(exist_ok=True)
assert not list(out.iterdir()), "not empty"
def stop(*_):
    (out / "summary.json").write_text(json.dumps({"outcome": "interrupted", "steps": 1}))
    sys.exit(130)
signal.signal(signal.SIGINT, stop)
(out / "config.json").write_text("{}")
(out / "metrics.jsonl").write_text(json.dumps({"kind": "step", "step": 1, "loss": 1}) + "\\n")
time.sleep(60)
""")
        self.environment["WANDB_RUN_ID"] = "abc"
        self.run_directory = self.run_directory / "sweep-{id}"
        with self.started(self.command("--", sys.executable, trainer)) as process:
            while not self.calls("log"):
                self.assertIsNone(process.poll())
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(30), 130)
        self.assertTrue((self.folder / "run/sweep-abc/track-wandb.json").exists())
        self.assertEqual(self.calls("init")[0][2], "abc")
        self.assertEqual(self.calls("finish"), [["finish", 0, {"outcome": "interrupted", "steps": 1}]])

    def test_an_error_of_the_package_keeps_the_records(self):
        self.config()
        self.write(line("step", 1, loss=1))
        pathlib.Path(f"{self.calls_file}.broken").touch()  # until the first call
        self.assertIn("no network", self.track())
        self.assertEqual(self.steps(), [1])

    def test_refusals(self):
        self.assertIn("no run began here", self.track(code=1))
        (self.folder / "wandb.py").write_text("import no_such_package_42")
        self.config()
        self.assertIn("install it with: pip install wandb", self.track(code=1))
        with open(self.run_directory / "track-mlflow.json", "w", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self.assertIn("another process sends", self.track(to="mlflow", code=1))
        self.assertEqual(self.calls(), [])


class Mlflow(Folder):
    def test_sends_metrics_options_and_the_result(self):
        self.config(lr=0.25, model="mlp")
        self.write(line("step", 1, loss=2))
        self.summary("interrupted", steps=1)
        self.track(to="mlflow")
        self.assertEqual(self.calls(), [["create", "e", "run"], ["tag", "resumed.lr", "0.25"], ["param", "model", "mlp"],
                                        ["log", "r1", [["train/loss", 2, 1001000, 1]]], ["tag", "outcome", "interrupted"],
                                        ["metric", "summary/steps", 1], ["end", "KILLED"]])
        self.track(to="mlflow")
        self.assertEqual(len(self.calls()), 7, "nothing was new")
        self.write(line("step", 2, loss=1))
        self.track(to="mlflow")
        self.assertIn(["update", "r1", "RUNNING"], self.calls())
        self.assertEqual(self.calls("log")[-1], ["log", "r1", [["train/loss", 1, 1002000, 2]]])
        for outcome in ("broken data", "of a later version"):
            self.summary(outcome)
            self.track(to="mlflow")
            self.assertEqual(self.calls()[-1], ["end", "FAILED"])

    def test_sends_names_that_mlflow_would_refuse(self):
        self.config()
        self.write(line("step", 1, **{"clang++": 1, "a//b": 2, "/..": 3, "kworker/0:1": 4, "x/" * 130: 5}))
        self.summary(**{"c++": 1})
        self.track(to="mlflow")
        self.assertEqual([name for name, *_ in self.calls("log")[0][2]],
                         ["train/clang__", "train/a/_/b", "train/_/_", "train/kworker/0_1", "train/" + "x/" * 121 + "x"])
        self.assertIn(["metric", "summary/c__", 1], self.calls())

    def test_a_client_that_fails_leaves_no_training_behind(self):
        pathlib.Path(f"{self.calls_file}.broken").touch()
        began = self.folder / "began"
        said = self.track("--", sys.executable, "-c", f"open({str(began)!r}, 'w')", to="mlflow", code=1)
        self.assertEqual(said, "tools/track: mlflow: ValueError: no such server\n")
        time.sleep(0.5)
        self.assertFalse(began.exists())


# Records what the study receives; a trial is pruned when its loss is above 5.
OPTUNA = """
import json, os, types
def call(*what):
    with open(os.environ["CALLS"], "a") as file:
        file.write(json.dumps(what) + "\\n")
class Trial:
    def __init__(self, number): self.number, self.loss = number, 0
    def suggest_float(self, name, low, high, log): return [1, 9][self.number]
    def suggest_categorical(self, name, choices): return choices[0]
    def report(self, loss, epoch):
        call("report", self.number, epoch, loss)
        self.loss = loss
    def should_prune(self):
        call("asked", self.number)
        return self.loss > 5
class Study:
    asked, completed = 0, []
    @property
    def best_trial(self):
        if not self.completed: raise ValueError("No trials are completed yet.")
        return min(self.completed, key=lambda trial: trial.value)
    def ask(self):
        Study.asked += 1
        return Trial(Study.asked - 1)
    def tell(self, trial, value=None, state="COMPLETE"):
        call("tell", trial.number, value, state)
        if state == "COMPLETE":
            self.completed.append(types.SimpleNamespace(number=trial.number, value=value, params={}))
def create_study(**options): return Study()
trial = types.SimpleNamespace(TrialState=types.SimpleNamespace(PRUNED="PRUNED", FAIL="FAIL"))
samplers = types.SimpleNamespace(TPESampler=lambda seed: None)
pruners = types.SimpleNamespace(MedianPruner=lambda n_startup_trials: None)
"""


class Tune(Folder):
    def tune(self, trials, *command, code=0, shell=()):
        (self.folder / "optuna.py").write_text(OPTUNA)
        program = ROOT / "docs" / "sweeps" / "tune.py"
        ran = subprocess.run([*shell, sys.executable, "-B", program, self.folder / "study", "--trials", f"{trials}", "--", *command],
                             env=self.environment, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(ran.returncode, code, ran.stderr)
        return ran

    def test_without_a_completed_trial(self):
        ran = self.tune(1, sys.executable, "-c", "raise SystemExit(1)", code=1)
        self.assertEqual(self.calls("tell"), [["tell", 0, None, "FAIL"]])
        self.assertEqual(ran.stderr, f"tune.py: no trial completed: see {self.folder}/study/trial-*.log\n")

    def test_prunes_a_run_by_its_evaluations(self):
        trainer = self.folder / "trainer.py"
        trainer.write_text("""
import json, pathlib, signal, sys, time
option = lambda name: sys.argv[sys.argv.index(name) + 1]
out = pathlib.Path(option("--out"))
out.mkdir()
for number in (signal.SIGINT, signal.SIGTERM):  # as warpstep, which leaves SIGINT ignored where it was
    if signal.getsignal(number) != signal.SIG_IGN:
        signal.signal(number, lambda *_: sys.exit(130))
with open(out / "metrics.jsonl", "w") as file:
    for part in range(3):
        file.write(json.dumps({"kind": "step", "step": 1, "loss": 100}) + "\\n")
        file.write(json.dumps({"kind": "evaluation", "step": 5 * part, "epoch": 0, "epochs_done": part / 4,
                               "loss": float(option("--lr"))}) + "\\n")
        file.flush()
time.sleep(20 if option("--lr") == "9" else 1)
""")
        ran = self.tune(2, sys.executable, trainer, shell=("bash", "-c", '"$@" & wait $!', "bash"))  # as a script does
        # All within the first epoch, by the data seen.
        self.assertEqual([call for call in self.calls() if call[1] == 0 and call[0] != "asked"],
                         [["report", 0, 250, 1], ["report", 0, 500, 1], ["tell", 0, 1, "COMPLETE"]])
        self.assertLessEqual(len([call for call in self.calls("asked") if call[1] == 0]), 2, "once for a report at most")
        self.assertEqual(self.calls("tell")[1:], [["tell", 1, None, "PRUNED"]])
        self.assertIn("trial 1: pruned after", ran.stdout)
        self.assertIn("best: trial 0, loss 1.0000", ran.stdout)


if __name__ == "__main__":
    unittest.main()
