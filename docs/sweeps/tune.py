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
import time

try:
    import optuna
except ImportError as error:
    sys.exit(f"tune.py: {error}; install it with: pip install optuna")


def suggest(trial):
    """The options of a trial."""
    return {"--lr": trial.suggest_float("lr", 1e-5, 1e-1, log=True),
            "--batch": trial.suggest_categorical("batch", [16, 32, 64]),
            "--weight-decay": trial.suggest_float("weight_decay", 1e-6, 1e-2, log=True)}


def evaluations(run):
    """(epochs done, validation loss) of each evaluation so far. Epochs compare trials with different batches."""
    path = run / "metrics.jsonl"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []  # the last may not be whole yet
    records = [record for record in map(json.loads, lines) if record["kind"] == "evaluation" and record["step"] > 0]
    return [(r["epoch"], math.inf if r["loss"] is None else r["loss"]) for r in records]


def run_trial(study, trial, command, run):
    """Trains with the trial's options and reports each evaluation; SIGINT stops and saves a run that is pruned."""
    options = [str(word) for pair in suggest(trial).items() for word in pair]
    print(f"trial {trial.number}: {' '.join(options)}", flush=True)
    reported, pruned = 0, False
    with open(run.with_suffix(".log"), "w", encoding="utf-8") as log, \
            subprocess.Popen([*command, *options, "--out", str(run)], stdout=log, stderr=log) as process:
        ended = False
        while not ended:
            ended = process.poll() is not None  # before reading: what it wrote last is read afterwards
            losses = evaluations(run)
            for epoch, loss in losses[reported:]:
                trial.report(loss, epoch)
            reported = len(losses)
            if not ended and not pruned and reported and trial.should_prune():
                process.send_signal(signal.SIGINT)
                pruned = True
            time.sleep(0 if ended else 0.05)
    states = optuna.trial.TrialState
    if pruned and process.returncode == 130:
        study.tell(trial, state=states.PRUNED)
    elif process.returncode == 0 and losses:
        study.tell(trial, losses[-1][1])
    else:
        study.tell(trial, state=states.FAIL)
    how = {0: f"loss {losses[-1][1]:.4f}" if losses else "no evaluation", 130: f"pruned after {reported} evaluations"}
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
                                sampler=optuna.samplers.TPESampler(seed=options.seed),
                                pruner=optuna.pruners.MedianPruner(n_startup_trials=options.startup))
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
