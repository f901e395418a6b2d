#!/usr/bin/env python3
"""Searches hyperparameters with Optuna: each trial is a run of warpstep, and hopeless runs are stopped early.

    pip install optuna
    python3 docs/sweeps/tune.py runs/study --trials 20 -- warpstep train mlp --data cifar10 --epochs 4

Edit suggest() for other options. RUNS/trial-NNN are ordinary run directories, and RUNS/study.db is Optuna's: the same
command continues a study. A pruned run was interrupted, so it is saved: `warpstep train --resume` continues it.
"""
import argparse
import json
import math
import pathlib
import signal
import subprocess
import sys

try:
    import optuna
except ImportError as error:
    sys.exit(f"tune.py: {error}; install it with: pip install optuna")


def suggest(trial):
    """The options of a trial."""
    return {"--lr": trial.suggest_float("lr", 1e-5, 1e-1, log=True),
            "--batch": trial.suggest_categorical("batch", [16, 32, 64]),
            "--weight-decay": trial.suggest_float("weight_decay", 1e-6, 1e-2, log=True)}


class Evaluations:
    """The evaluations of a run as it writes them."""

    def __init__(self, run):
        self.path, self.offset = run / "metrics.jsonl", 0

    def read(self):
        """(data seen, validation loss) of each that is new. Data are counted in thousandths of an epoch: Optuna wants an
        integer, and trials with different batches are compared after equal data."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self.offset)
                content = file.read()
        except FileNotFoundError:
            return []
        content = content[:content.rfind(b"\n") + 1]  # the last line may not be whole yet
        self.offset += len(content)
        records = [record for record in map(json.loads, content.splitlines()) if record["kind"] == "evaluation"]
        return [(round(1000 * record["epochs_done"]), math.inf if record["loss"] is None else record["loss"])
                for record in records if record["step"] > 0]


def run_trial(study, trial, command, run):
    """Trains with the trial's options and reports each evaluation; SIGTERM stops and saves a run that is pruned."""
    options = [str(word) for pair in suggest(trial).items() for word in pair]
    print(f"trial {trial.number}: {' '.join(options)}", flush=True)
    losses, evaluations, pruned = {}, Evaluations(run), False
    with open(run.with_suffix(".log"), "w", encoding="utf-8") as log, \
            subprocess.Popen([*command, *options, "--out", str(run)], stdout=log, stderr=log) as process:
        ended = False
        while not ended:
            try:
                process.wait(timeout=0.2)  # short runs can be pruned, too
                ended = True  # before reading: what it wrote last is read afterwards
            except subprocess.TimeoutExpired:
                pass
            new = {seen: loss for seen, loss in evaluations.read() if seen not in losses}
            for seen, loss in new.items():
                trial.report(loss, seen)
            losses.update(new)
            if new and not ended and not pruned and trial.should_prune():
                process.send_signal(signal.SIGTERM)  # a background job of a script ignores SIGINT
                pruned = True
    last = list(losses.values())[-1:]
    states = optuna.trial.TrialState
    if pruned and process.returncode == 130:
        study.tell(trial, state=states.PRUNED)
    elif process.returncode == 0 and last:
        study.tell(trial, last[0])
    else:
        study.tell(trial, state=states.FAIL)
    how = {0: f"loss {last[0]:.4f}" if last else "no evaluation", 130: f"pruned after {len(losses)} evaluations"}
    print(f"trial {trial.number}: {how.get(process.returncode, f'failed, see {run}.log')}", flush=True)


def parse(arguments):
    at = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", metavar="RUNS", type=pathlib.Path, help="folder of the trials' run directories")
    parser.add_argument("--trials", type=int, default=20, help="trials to run now (default: 20)")
    parser.add_argument("--startup", type=int, default=5, help="trials before any is pruned (default: 5)")
    parser.add_argument("--seed", type=int, help="of the sampler")
    options = parser.parse_args(arguments[:at])
    options.command = arguments[at + 1:]
    if not options.command:
        parser.error("give the command after --, for example: -- warpstep train mlp --data cifar10 --epochs 4")
    return options


def main(arguments):
    options = parse(arguments)
    options.runs.mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(study_name="warpstep", direction="minimize", load_if_exists=True,
                                storage=f"sqlite:///{options.runs / 'study.db'}",
                                pruner=optuna.pruners.MedianPruner(n_startup_trials=options.startup))
    # More trials of a study must not be its first ones once more.
    seed = None if options.seed is None else options.seed + len(study.trials)
    study.sampler = optuna.samplers.TPESampler(seed=seed)
    for _ in range(options.trials):
        trial = study.ask()
        try:
            run_trial(study, trial, options.command, options.runs / f"trial-{trial.number:03}")
        except KeyboardInterrupt:  # the run got the signal from the terminal, too, and saves
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            return 130
    try:
        best = study.best_trial
    except ValueError:  # Optuna's, if there is none
        print(f"tune.py: no trial completed: see {options.runs}/trial-*.log", file=sys.stderr)
        return 1
    print(f"best: trial {best.number}, loss {best.value:.4f}: {best.params}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
