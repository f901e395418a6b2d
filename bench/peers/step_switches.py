"""A program's training step with each of some switches against the same without, window by window.

    python bench/peers/step_switches.py --model cifar10cnn --batch 128 --precision fp16 --seconds 60 \\
        --switch=--autotune --switch='--no-fuse norm+conv' --out switches.json --peer-cmd 'build/release/bin/step_peer --device cuda'

Each switch gets an equal share of the time; the side without them is started once. --out has every pair that is done, whenever this program is ended.
"""
import argparse
import json
import os
import pathlib
import shlex
import time

import alternate


def started(args, name, words, end):
    """A side after its warm-up, by `end` or within 10 s."""
    command = [*shlex.split(args.peer_cmd), "--model", args.model, "--batch", str(args.batch), "--precision", args.precision]
    if args.plan_cache:
        # A step without --autotune uses measured plans, too, if its folder has any.
        command += ["--plan-cache", args.plan_cache + ("-measured" if "--autotune" in words else "-unmeasured")]
    side = alternate.Runner(name, command + words, limit_s=max(end - time.monotonic(), 10))
    try:
        side.warm_up(args.warm_up)
    except SystemExit:
        side.kill()
        raise
    return side


def measure(args, without, words, end):
    """One switch: its side is started, both are warmed up, and alternate until `end`. `without` continues after it."""
    with_it = started(args, shlex.join(words), words, end)
    try:
        without.forget()
        without.limit_s = max(end - time.monotonic(), 10)
        without.warm_up(args.warm_up)  # it waited
        while not without.ms or time.monotonic() < end:
            alternate.alternate([without, with_it], 1, None, pause_s=0.02, seconds=args.window)
        ratios = [a / b for a, b in zip(with_it.ms, without.ms)]
        return {"switch": with_it.name, "ratio": alternate.spread(ratios),
                "first_losses": [[round(loss, 6) for loss in side.losses[:3]] for side in (without, with_it)],
                "with": with_it.quit(), "without": without.report()}
    except SystemExit:  # one that continues would disturb the next pair
        with_it.kill()
        raise


def write(path, result):
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(result, indent=1) + "\n")
    os.replace(part, path)


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="cifar10cnn")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--peer-cmd", required=True, help="the program, with its --device")
    parser.add_argument("--switch", action="append", default=[], help="options of the program; may be repeated")
    parser.add_argument("--plan-cache", help="folder for the program's plans")
    parser.add_argument("--seconds", type=float, default=60, help="of all switches together, without starting programs")
    parser.add_argument("--window", type=float, default=0.5, help="seconds of a window")
    parser.add_argument("--warm-up", type=int, default=20, help="steps")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    return parser.parse_args(arguments)


def main(arguments=None):
    args = parse(arguments)
    result = {"model": args.model, "batch": args.batch, "precision": args.precision, "pairs": [], "failed": {}}
    begin, without = time.monotonic(), None
    for number, switch in enumerate(args.switch, 1):
        end = begin + args.seconds * number / len(args.switch)
        try:
            if not without or without.process.poll() is not None:
                without = started(args, "without", [], end)
            pair = measure(args, without, shlex.split(switch), end)
        except SystemExit as error:  # of a side that ended: the others are still worth measuring
            result["failed"][switch] = str(error)
            print(f"{switch}: {error}", flush=True)
        else:
            result["pairs"].append(pair)
            ratio = pair["ratio"]
            print(f"{switch}: {ratio['median']:.3f}x as long (quartiles {ratio['p25']:.3f}-{ratio['p75']:.3f}), "
                  f"{pair['with']['step_ms']['median']:.4g} against {pair['without']['step_ms']['median']:.4g} ms", flush=True)
        write(args.out, result)
    if without:
        without.kill()
    if not result["pairs"]:
        raise SystemExit("no switch could be measured")


if __name__ == "__main__":
    main()
