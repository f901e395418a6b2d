"""A training step in PyTorch, in each setting that could be its best, alone or against another program.

    python bench/peers/pytorch_step.py --threads 2
    python bench/peers/pytorch_step.py --threads 2 --peer-cmd 'build/release/bin/step_peer --threads 2'
    python bench/peers/pytorch_step.py --device cuda --precision fp16 --out pair.json \\
        --peer-cmd 'build/release/bin/step_peer --device cuda --precision fp16'

A setting is MODE-LAYOUT-ADAM-MALLOC:
  eager | compile | tune   as written, torch.compile, torch.compile with max-autotune
  graph                    forward, backward and optimiser in one torch.cuda.CUDAGraph (only cuda)
  nchw | nhwc | rows       memory format of input and weights (nhwc: channels_last); rows: of text, which has none
  fused | foreach | plain  implementation of Adam
  keep | glibc             malloc that keeps its memory between steps, or glibc's defaults
"""
import argparse
import datetime
import json
import math
import os
import pathlib
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

import alternate
import gpu

HERE = pathlib.Path(__file__).resolve().parent
PARTS = (("eager", "compile", "tune", "graph"), ("nchw", "nhwc", "rows"), ("fused", "foreach", "plain"), ("keep", "glibc"))
CPU_SETTINGS = ["eager-nchw-foreach-glibc", "eager-nchw-fused-keep", "eager-nhwc-fused-keep",
                "compile-nchw-fused-keep", "compile-nhwc-fused-keep", "tune-nhwc-fused-keep"]
CUDA_SETTINGS = ["eager-nhwc-fused-glibc", "compile-nhwc-fused-glibc", "tune-nhwc-fused-glibc",
                 "graph-nhwc-fused-glibc"]
TEXT_CPU_SETTINGS = ["eager-rows-foreach-glibc", "eager-rows-fused-keep", "compile-rows-fused-keep"]
TEXT_CUDA_SETTINGS = [setting.replace("nhwc", "rows") for setting in CUDA_SETTINGS]
MODELS = ["cifar10cnn", "mlp", "mnist_cnn", "airbench", "resnet9", "toynet", "resnet18", "resnet34", "resnet50",
          "gpt2", "gpt2-medium", "gpt2-nano"]
OWN_IMAGE = {"mlp": 28, "mnist_cnn": 28, "toynet": 256, "resnet18": 224, "resnet34": 224, "resnet50": 224}  # others 32
OWN_CONTEXT = {"gpt2": 1024, "gpt2-medium": 1024, "gpt2-nano": 64}  # tokens
LEAST_S = 5  # to start a program in
FOR_THE_PAIR = 0.3  # of --limit
COMPARED_STEPS = 10  # whose losses must agree; the rest of the warm-up follows
MOST_TOLERANCE = 0.05  # of first losses; those of wrong weights or batches are often 0.1 apart
EPSILON = {"fp32": 2**-23, "tf32": 2**-10, "fp16": 2**-10, "bf16": 2**-7}

# By default glibc returns blocks above 128 KB at once, and the next step page-faults them in again; with
# these settings it keeps them, as a caching allocator would.
KEEP = {"MALLOC_MMAP_THRESHOLD_": str(1 << 32), "MALLOC_TRIM_THRESHOLD_": str(1 << 33),
        "MALLOC_TOP_PAD_": str(1 << 28)}


def tolerance(precision):
    """How far two sound runs' losses may be apart, relative: a few roundings that add up over the steps.

    fp32 has a floor: Adam divides by the gradient's own size, so that a gradient of rounding noise moves a weight.
    """
    return max(1e-4, 4 * EPSILON[precision] * math.sqrt(COMPARED_STEPS))


class TooLate(SystemExit):
    """The time of --limit does not suffice."""


def left_s(args):
    return args.end - time.monotonic()


def start(args, name, command, env, allowed_s=float("inf")):
    """A program after its warm-up; its losses so far are those that are compared. `allowed_s`: its share of --limit."""
    allowed_s = min(900, allowed_s, left_s(args))
    if allowed_s < LEAST_S:
        raise TooLate(f"{name}: the time was over: it was not started, as {max(allowed_s, 0):.0f} s were left for it, and "
                      f"{LEAST_S} s are the least")
    end = time.monotonic() + allowed_s
    try:
        runner = alternate.Runner(name, command, env, limit_s=allowed_s)
        runner.limit_s = end - time.monotonic()
        runner.warm_up(COMPARED_STEPS - 1)
        runner.limit_s = max(left_s(args), LEAST_S) if args.limit else 900
        warm_up(args, runner)
    except alternate.TimeOver as error:
        share = f" (its share of --limit {args.limit:g})" if args.limit else ""
        raise TooLate(f"{error}{share}") from None
    return runner


def warm_up(args, runner):
    """Clocks rise, and every batch's step is captured; losses part, so only times count."""
    if args.device != "cpu":
        runner.warm_up(max(10, min(50, runner.steps_in(2))))


def alternate_windows(args, runners, windows, clocks):
    """Windows until they are enough, or the time of --limit is over; at least one."""
    for done in range(windows):
        if done and left_s(args) < 2 * len(runners) * args.window_seconds:
            break
        alternate.alternate(runners, 1, args.steps, seconds=args.window_seconds)
    clocks.windows += [span for runner in runners for span in runner.spans]


def start_torch(args, setting, cache, allowed_s=float("inf")):
    command = [sys.executable, str(HERE / "pytorch_child.py"), setting]
    for option in ("model", "batch", "image", "sequence", "seed", "threads", "device", "precision"):
        command += [f"--{option}", str(getattr(args, option))]
    command += ["--model-option", *args.model_option]
    env = {"OMP_NUM_THREADS": str(args.threads), "TORCHINDUCTOR_CACHE_DIR": cache,
           **(KEEP if setting.endswith("-keep") else {})}
    return start(args, setting, command, env, allowed_s)


def start_settings(args, cache):
    """Those of PyTorch that are ready in time. Of --limit a part is kept for the pair and for the survey's windows: of the
    rest a setting may take all while none is ready, as without one there is no result, and then an equal share. The others
    are left out: (runners, why by setting)."""
    runners, left_out, settings = [], {}, args.settings.split(",")
    windows_s = 2 * args.survey_windows * len(settings) * args.window_seconds
    end = args.end - (FOR_THE_PAIR * args.limit * bool(args.peer_cmd) + min(windows_s, args.limit / 10) if args.limit else 0)
    for number, setting in enumerate(settings):
        share_s = (end - time.monotonic()) / (len(settings) - number if runners else 1)
        try:
            runners.append(start_torch(args, setting, cache, share_s))
        except SystemExit as error:
            if not args.limit:
                raise
            left_out[setting] = str(error)
            print(f"  left out: {error}", file=sys.stderr)
            continue
        print(f"  {setting}: first step after {runners[-1].first_step_s:.1f} s", file=sys.stderr)
    if not runners:
        raise SystemExit("\n".join(["no setting of PyTorch was ready:", *left_out.values()]))
    return runners, left_out


def survey(args, cache, clocks):
    """Every setting in turn, all alive at once: (reports sorted by the median, best first, the best's runner, alive, those left out)."""
    runners, left_out = start_settings(args, cache)
    for runner in runners[1:]:
        alternate.first_difference(runners[0], runner, args.tolerance)
    alternate_windows(args, runners, args.survey_windows, clocks)
    reports = sorted((r.report() for r in runners), key=lambda report: report["step_ms"]["median"])
    best = next(r for r in runners if r.name == reports[0]["name"])
    for runner in runners:
        if runner is not best:
            runner.quit()
    print("| setting | step (quartiles) | CPU time per step | cores busy | peak memory | first step after |\n"
          "|---|---|---|---|---|---|")
    for r in reports:
        ms = r["step_ms"]
        print(f"| {r['name']} | {ms['median']:.4g} ms ({ms['p25']:.4g}-{ms['p75']:.4g}){tokens_per_s(args, r)} "
              f"| {r['step_cpu_ms']['median']:.4g} ms | {r['cores_busy']} "
              f"| {r['peak_rss_mb']:.0f} MB | {r['first_step_s']:.1f} s |", flush=True)
    return reports, best, left_out


def tokens_per_s(args, report, separator=", "):
    """Of a model of text; else nothing."""
    if not args.sequence:
        return ""
    return f"{separator}{1e3 * args.batch * args.sequence / report['step_ms']['median']:,.0f} tokens/s"


def against(args, best, cache, surveyed, clocks):
    """PyTorch in its best setting and the other program, window by window. `best`: its runner, alive; `surveyed`: reports of
    PyTorch's settings, of which the others are the scale of its losses: the best itself is none. On a GPU, where a start takes 10 to 30 s, the runner continues; on a CPU a new process begins."""
    continues = args.device != "cpu"
    if continues:
        torch_side = best
        torch_side.forget()
    else:
        best.quit()
        torch_side = start_torch(args, best.name, cache)
    peer = start(args, "peer", shlex.split(args.peer_cmd), {"OMP_NUM_THREADS": str(args.threads)})
    if continues:  # it waited for the peer
        warm_up(args, torch_side)
    first = alternate.first_difference(torch_side, peer, args.tolerance)
    equal = [torch_side, *(argparse.Namespace(losses=report["first_losses"]) for report in surveyed[1:])]
    difference = alternate.check_losses(peer, equal, args.tolerance)
    alternate_windows(args, [torch_side, peer], args.windows, clocks)
    ratios = [a / b for a, b in zip(torch_side.ms, peer.ms)]
    cpu_ratios = [a / b for a, b in zip(torch_side.cpu_ms, peer.cpu_ms)]
    return {"ratio": alternate.spread(ratios), "cpu_time_ratio": alternate.spread(cpu_ratios),
            "first_loss_difference": first, "largest_loss_difference": difference,
            "losses_of_settings_apart": max(alternate.spread_of_losses([run.losses[:COMPARED_STEPS] for run in equal])),
            "torch": torch_side.quit(), "peer": peer.quit()}


def machine(device):
    card = gpu.describe(device)
    if card:
        return f"{card['name']}, driver {card['driver_version']}"
    with open("/proc/cpuinfo") as info:
        model = next((line.split(":")[1].strip() for line in info if line.startswith("model name")), "?")
    return f"{model}, {os.cpu_count()} logical CPUs"


def commit():
    found = subprocess.run(["git", "-C", str(HERE), "describe", "--always", "--dirty"], capture_output=True, text=True)
    return found.stdout.strip() or "unknown"


def row(args, result):
    """A line for bench/RECORDS.md."""
    pair, ratio = result["pair"], result["pair"]["ratio"]
    ours, theirs = pair["peer"], pair["torch"]
    first = (f"first step after {ours['first_step_s']:.1f} against {theirs['first_step_s']:.1f} s"
             f"{'' if args.device == 'cpu' else ' (in the survey)'}")
    return (
        f"| {result['date']} | {result['commit']} | {result['machine']}, {args.threads} threads "
        f"| {' '.join([args.model, *args.model_option])} step, batch {args.batch}"
        f"{f' x {args.sequence}' if args.sequence else ''}, {args.precision}: {ratio['median']:.2f}x "
        f"(p25 {ratio['p25']:.2f}, p75 {ratio['p75']:.2f}) "
        f"PyTorch {theirs['about'].get('torch')} {theirs['name']}: "
        f"{ours['step_ms']['median']:.4g} against {theirs['step_ms']['median']:.4g} ms"
        f"{tokens_per_s(args, ours)}{tokens_per_s(args, theirs, ' against ')}; "
        f"peak {ours['peak_rss_mb']:.0f} against {theirs['peak_rss_mb']:.0f} MB; {first}"
        f"{not_timed(result)}{disturbance(args, result)} "
        f"| {ratio['n']} x {f'{args.steps} steps' if args.steps else f'{args.window_seconds:g} s'} | `python bench/peers/pytorch_step.py {shlex.join(sys.argv[1:])}` |")


def not_timed(result):
    """The settings that --limit left out, one of which may have been the best; nothing if there are none."""
    return f"; not timed: {', '.join(result['left_out'])}" if result["left_out"] else ""


def disturbance(args, result):
    """What makes a pair worthless, in words; nothing where it was run in peace."""
    if args.device == "cpu":
        sides = result["pair"]["peer"], result["pair"]["torch"]
        quiet = all(alternate.undisturbed(side, args.threads) for side in sides)
        return "" if quiet else "; OTHERS USED THE CORES, measure again"
    clocks = result.get("pair_clocks")
    if clocks and clocks["steady"] is None:
        return "; no clock was read in its windows"
    return "" if not clocks or clocks["steady"] else "; THE CLOCK DROPPED, measure again"


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="cifar10cnn", choices=MODELS)
    parser.add_argument("--image", type=int, help="height and width; else the model's own")
    parser.add_argument("--model-option", nargs="+", default=[], metavar="NAME=VALUE",
                        help="of a model of text, as of train")
    parser.add_argument("--sequence", type=int, help="tokens of a row of text; else the model's context")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--device", default="cpu", help="cpu or cuda[:N]")
    parser.add_argument("--precision", default="fp32", choices=list(EPSILON), help="16 bits: autocast")
    parser.add_argument("--settings", help="those to survey, separated by commas; else all that suit the device")
    parser.add_argument("--peer-cmd", help="the other program, with its own --device and --precision")
    parser.add_argument("--steps", type=int, help="of a window; 10 on a CPU; else windows go by time")
    parser.add_argument("--window-seconds", type=float, default=0.5, help="of a window without --steps")
    parser.add_argument("--limit", type=float, metavar="SECONDS",
                        help="end in time: three tenths are for the pair; the first setting may take the rest, the others "
                             "equal shares of what it leaves. What is late is left out, windows are fewer")
    parser.add_argument("--survey-windows", type=int, default=5)
    parser.add_argument("--windows", type=int, default=20, help="of each side against the peer")
    parser.add_argument("--tolerance", type=float, help=f"relative, of the first loss, at most {MOST_TOLERANCE:g} or the precision's, "
                             "which is the default; later ones may part as far as three times PyTorch's own settings do")
    parser.add_argument("--out", type=pathlib.Path, help="JSON with every figure")
    args = parser.parse_args(arguments)
    on_cpu = args.device == "cpu"
    if not (on_cpu or args.device == "cuda" or args.device.startswith("cuda:") and args.device[5:].isdigit()):
        parser.error(f"--device: '{args.device}' is neither cpu nor cuda nor cuda:N")
    if on_cpu and args.precision == "tf32":
        parser.error("--precision: tf32 is a matter of GPUs")
    is_text = args.model in OWN_CONTEXT
    if not is_text and (args.sequence or args.model_option):
        parser.error(f"--sequence, --model-option: {args.model} is no model of text")
    if args.out and not args.out.absolute().parent.is_dir():
        parser.error(f"--out: no folder {args.out.parent}")
    args.settings = args.settings or ",".join((CPU_SETTINGS, TEXT_CPU_SETTINGS, CUDA_SETTINGS, TEXT_CUDA_SETTINGS)
                                              [2 * (not on_cpu) + is_text])
    for setting in args.settings.split(","):
        words = setting.split("-")
        if len(words) != len(PARTS) or any(word not in part for word, part in zip(words, PARTS)):
            parser.error(f"--settings: '{setting}' is not {'-'.join('|'.join(part) for part in PARTS)}")
        if (words[1] == "rows") != is_text:
            parser.error(f"--settings: '{setting}': rows are the layout of models of text, and theirs alone")
        if words[0] == "graph" and (on_cpu or words[2] != "fused"):
            parser.error(f"--settings: '{setting}' needs a GPU and a fused Adam, which waits for nothing")
    if args.peer_cmd and not shutil.which(shlex.split(args.peer_cmd)[0]):
        parser.error(f"--peer-cmd: no program {shlex.split(args.peer_cmd)[0]}")
    args.steps = args.steps or (10 if on_cpu else None)
    args.end = time.monotonic() + args.limit if args.limit else float("inf")
    args.image = 0 if is_text else args.image or OWN_IMAGE.get(args.model, 32)
    context = [option.removeprefix("context=") for option in args.model_option if option.startswith("context=")]
    args.sequence = args.sequence or int(context[-1] if context else OWN_CONTEXT.get(args.model, 0))
    own, args.tolerance = tolerance(args.precision), tolerance(args.precision) if args.tolerance is None else args.tolerance
    if not 0 < args.tolerance <= max(own, MOST_TOLERANCE):
        parser.error(f"--tolerance: {args.tolerance:g} is not within 0 and {max(own, MOST_TOLERANCE):.2g}: equal networks' first "
                     "losses are closer, and of a single setting later ones are only reported")
    return args


def write(path, result):
    """What is known so far; whole or not at all."""
    if path:
        part = path.with_name(path.name + ".part")
        part.write_text(json.dumps(result, indent=1, default=str) + "\n")
        os.replace(part, path)


def main():
    args = parse()
    result = {"date": datetime.date.today().isoformat(), "commit": commit(), "machine": machine(args.device),
              "arguments": {k: v for k, v in vars(args).items() if k not in ("out", "end")}, "python": platform.python_version(),
              "gpu": gpu.describe(args.device), "load_before": os.getloadavg()}
    with tempfile.TemporaryDirectory() as cache:  # empty, so that a first step includes compiling
        with gpu.Sampler(args.device) as clocks:
            result["survey"], best, result["left_out"] = survey(args, cache, clocks)
        result["survey_clocks"] = clocks.found
        write(args.out, result)
        if args.peer_cmd:
            with gpu.Sampler(args.device) as clocks, tempfile.TemporaryDirectory() as another:  # empty for a start on a CPU, too
                result["pair"] = against(args, best, another, result["survey"], clocks)
            result["pair_clocks"] = clocks.found
            print(row(args, result))
        else:
            best.quit()
    result["load_after"] = os.getloadavg()
    write(args.out, result)


if __name__ == "__main__":
    main()
