#!/usr/bin/env python3
"""Real runs in TensorBoard's, W&B's, MLflow's and Optuna's own packages, as far as they are installed.

    python3 -m venv loggers && loggers/bin/pip install tensorboard wandb mlflow-skinny sqlalchemy alembic optuna pyyaml
    loggers/bin/python tests/loggers_test.py build/release/bin/warpstep

Needs no network and no account: W&B runs offline, MLflow uses a SQLite file. Exit code 77 (skipped) without all of the
packages. tests/track_test.py tests the same scripts without any.
"""
import glob
import importlib.util
import json
import math
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[1]
WARPSTEP = pathlib.Path(sys.argv.pop() if len(sys.argv) > 1 else ROOT / "build/release/bin/warpstep").resolve()
SKIPPED = 77


def needs(*packages):
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return unittest.skipIf(missing, f"not installed: {', '.join(missing)}")


def metrics(run, kind):
    """{step: loss} in metrics.jsonl."""
    records = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return {record["step"]: record["loss"] for record in records if record["kind"] == kind}


def wandb_history(folder):
    """The rows of all offline runs below a folder, from their LevelDB logs."""
    from wandb.proto import wandb_internal_pb2
    for path in sorted(glob.glob(f"{folder}/wandb/offline-run-*/*.wandb")):
        content = pathlib.Path(path).read_bytes()
        at, record = 7, b""
        while at + 7 <= len(content):
            if 32768 - at % 32768 < 7:  # the rest of a block
                at += 32768 - at % 32768
                continue
            size, kind = struct.unpack_from("<HB", content, at + 4)
            record += content[at + 7:at + 7 + size]
            at += 7 + size
            if kind in (1, 4):  # whole, or the last part
                message = wandb_internal_pb2.Record.FromString(record)
                record = b""
                if message.WhichOneof("record_type") == "history":
                    yield {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in message.history.item}


class Loggers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not any(importlib.util.find_spec(name) for name in ("tensorboard", "wandb", "mlflow", "optuna")):
            raise unittest.SkipTest("not installed: tensorboard, wandb, mlflow, optuna")
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.data = cls.folder / "data"
        cls.environment = {**os.environ, "OMP_WAIT_POLICY": "passive", "WANDB_MODE": "offline", "WANDB_SILENT": "true",
                           "WANDB_DIR": str(cls.folder), "MLFLOW_TRACKING_URI": f"sqlite:///{cls.folder}/mlflow.db"}
        cls.run_program(WARPSTEP, "data", "make", cls.data, "--train", "384", "--test", "128")
        cls.out = cls.folder / "run"
        command = [*cls.train(), "--epochs", "100000", "--checkpoint-every", "20", "--keep-checkpoints", "0", "--tensorboard",
                   "--out", cls.out]
        with subprocess.Popen(command, env=cls.environment, stderr=subprocess.DEVNULL) as process:
            while len(list(cls.out.glob("checkpoint-*"))) < 4:
                if process.poll() is not None:
                    raise AssertionError(f"the run ended with {process.returncode}")
                time.sleep(0.01)
            process.kill()
        cls.killed = metrics(cls.out, "step")
        step = int(min(cls.out.glob("checkpoint-*")).stem[11:])
        cls.resume = [WARPSTEP, "train", "--resume", min(cls.out.glob("checkpoint-*")), "--epochs", "0", "--steps", str(step + 30)]

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @staticmethod
    def train():
        return [WARPSTEP, "train", "mlp", "--data", Loggers.data, "--batch", "32", "--lr", "1e-3", "--threads", "1",
                "--log-every", "1", "--device", "cpu"]

    @classmethod
    def run_program(cls, *command, code=0, **environment):
        ran = subprocess.run([str(word) for word in command], env={**cls.environment, **environment}, cwd=cls.folder,
                             capture_output=True, text=True, check=False)
        if ran.returncode != code:
            raise AssertionError(f"{command}: exit code {ran.returncode}\n{ran.stdout}\n{ran.stderr}")
        return ran

    def track(self, to, **more):
        return self.run_program(sys.executable, ROOT / "tools/track", self.out, "--to", to, **more)

    # One after the other: the killed run, then the resumed one.
    @needs("tensorboard", "wandb", "mlflow", "sqlalchemy")
    def test_a_killed_and_resumed_run(self):
        self.track("wandb")
        self.track("mlflow")
        self.run_program(*self.resume)
        self.track("wandb")
        self.track("mlflow")
        self.track("mlflow")
        resumed = metrics(self.out, "step")
        sent = self.killed | {step: loss for step, loss in resumed.items() if step not in self.killed}
        with self.subTest("TensorBoard"):
            from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
            events = EventAccumulator(str(self.out / "tensorboard"), size_guidance={"scalars": 0}).Reload()
            for tag, kind in (("train/loss", "step"), ("validation/loss", "evaluation"), ("epoch/loss", "epoch")):
                values = [(scalar.step, scalar.value) for scalar in events.Scalars(tag)]
                expected = metrics(self.out, kind)
                self.assertEqual([step for step, _ in values], list(expected))
                for step, value in values:
                    self.assertAlmostEqual(value, expected[step], delta=1e-6 * abs(expected[step]))
            machine = EventAccumulator(str(self.out / "tensorboard/system")).Reload()
            self.assertIn("system/process_rss_MB", machine.Tags()["scalars"])
        with self.subTest("W&B"):
            rows = list(wandb_history(self.folder))
            self.assertEqual([row["_step"] for row in rows], list(range(len(rows))))
            losses = [(row["step"], row["train/loss"]) for row in rows if "train/loss" in row]
            self.assertEqual(len(losses), len(sent))
            self.assertEqual(dict(losses), sent)
            self.assertTrue(any("system/process_rss_MB" in row for row in rows))
        with self.subTest("MLflow"):
            import mlflow
            client = mlflow.MlflowClient(self.environment["MLFLOW_TRACKING_URI"])
            run, = client.search_runs([client.get_experiment_by_name("warpstep").experiment_id])
            losses = [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, "train/loss")]
            self.assertEqual(len(losses), len(sent))
            self.assertEqual(dict(losses), sent)
            self.assertEqual((run.info.status, run.data.tags["outcome"]), ("FINISHED", "finished"))
            self.assertEqual(run.data.params["lr"], "0.001")

    @needs("wandb", "yaml")
    def test_a_trial_of_the_sweep(self):
        """The command that `wandb agent` makes of docs/sweeps/wandb.yaml, without its server."""
        import yaml
        from wandb.sdk.launch.sweeps import utils
        sweep = yaml.safe_load((ROOT / "docs/sweeps/wandb.yaml").read_text())
        values = {"lr": {"value": 1e-3}, "batch": {"value": 32}, "weight-decay": {"value": 1e-4}}
        self.assertEqual(set(values), set(sweep["parameters"]))
        arguments = utils.create_sweep_command_args({"args": values})["args"]
        words = [word for item in sweep["command"] for word in (arguments if item == "${args}" else [item])]
        known = {"${env}": "/usr/bin/env", "${program}": str(ROOT / sweep["program"]), "cifar10": str(self.data),
                 "warpstep": str(WARPSTEP), "4": "2"}
        words = [known.get(word, word) for word in words]
        path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
        self.run_program(*words, WANDB_RUN_ID="trial7", PATH=path)
        run = self.folder / "runs/sweep-trial7"
        self.assertEqual(json.loads((run / "config.json").read_text())["options"]["weight_decay"], 1e-4)
        self.assertEqual(json.loads((run / "track-wandb.json").read_text())["id"], "trial7")

    @needs("optuna")
    def test_a_study(self):
        study = self.folder / "study"
        self.run_program(sys.executable, ROOT / "docs/sweeps/tune.py", study, "--trials", "4", "--startup", "1", "--seed", "1",
                         "--", *self.train()[:5], "--threads", "1", "--device", "cpu", "--epochs", "6")
        import optuna
        trials = optuna.load_study(study_name="warpstep", storage=f"sqlite:///{study}/study.db").trials
        states = [trial.state.name for trial in trials]
        self.assertEqual(len(states), 4)
        self.assertIn("COMPLETE", states)
        self.assertIn("PRUNED", states)
        for trial in trials:
            run = study / f"trial-{trial.number:03}"
            losses = metrics(run, "evaluation")
            self.assertEqual(list(trial.intermediate_values.values()), list(losses.values()))
            if trial.state.name == "PRUNED":
                self.assertEqual(json.loads((run / "summary.json").read_text())["outcome"], "interrupted")
                self.assertTrue(list(run.glob("checkpoint-*")), "it can be resumed")
            else:
                self.assertTrue(math.isclose(trial.value, list(losses.values())[-1]))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it, and runs would, too
    ended = unittest.main(exit=False).result
    for reason in sorted({reason for _, reason in ended.skipped}):
        print(f"SKIPPED: {reason}")
    sys.exit(1 if not ended.wasSuccessful() else SKIPPED if ended.skipped else 0)
