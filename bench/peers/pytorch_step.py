"""A training step in PyTorch, in each setting that could be its best, alone or against another program.

    python bench/peers/pytorch_step.py --threads 2
    python bench/peers/pytorch_step.py --threads 2 --peer-cmd 'warpstep bench-step cifar10cnn --threads 2'

A setting is MODE-LAYOUT-ADAM-MALLOC:
  eager | compile | tune   as written, torch.compile, torch.compile with max-autotune
  nchw | nhwc              memory format of input and weights (nhwc: channels_last)
  fused | foreach | plain  implementation of Adam
  keep | glibc             malloc that keeps its memory between steps, or glibc as it comes
"""
import argparse
import datetime
import json
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

ROOT = pathlib.Path(__file__).resolve().parents[2]
SETTINGS = ["eager-nchw-foreach-glibc", "eager-nchw-fused-keep", "eager-nhwc-fused-keep",
            "compile-nchw-fused-keep", "compile-nhwc-fused-keep", "tune-nhwc-fused-keep"]
BATCHES = 8  # step s trains on batch s % 8 of tests/golden/philox.py

# glibc gives blocks above 128 KB back at once and the next step faults them in again; with these it
# keeps them, as a caching allocator would.
KEEP = {"MALLOC_MMAP_THRESHOLD_": str(1 << 32), "MALLOC_TRIM_THRESHOLD_": str(1 << 33),
        "MALLOC_TOP_PAD_": str(1 << 28)}


def build_step(args, torch, models):
    """A function step(s) -> loss, and what is to be known of it."""
    mode, layout, adam, _ = args.serve.split("-")
    device = torch.device(args.device)
    memory = torch.channels_last if layout == "nhwc" else torch.contiguous_format
    model = models.build(args.model, args.seed).to(device).to(memory_format=memory)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=adam == "fused" or None,
                                 foreach=adam == "foreach" if adam != "fused" else None)
    batches = []
    for step in range(BATCHES):
        x, label = models.batch(model, args.seed, step, args.batch)
        batches.append((x.to(device).to(memory_format=memory), label.to(device)))

    def loss_of(x, label):
        return torch.nn.functional.cross_entropy(model(x), label)

    if mode != "eager":
        loss_of = torch.compile(loss_of, fullgraph=True, dynamic=False,
                                mode="max-autotune" if mode == "tune" else "default")

    def step(number):
        loss = loss_of(*batches[number % BATCHES])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    about = {"torch": torch.__version__, "threads": torch.get_num_threads(),
             "capability": torch.backends.cpu.get_cpu_capability(), "python": platform.python_version()}
    return step, about


def serve(args):
    """The child: PyTorch under the protocol of alternate.py."""
    sys.path.insert(0, str(ROOT / "tests" / "golden"))
    import torch
    import models

    torch.set_num_threads(args.threads)
    torch.set_num_interop_threads(1)
    torch.set_flush_denormal(True)
    torch.backends.cudnn.benchmark = True
    wait = torch.cuda.synchronize if args.device.startswith("cuda") else lambda: None
    step, about = build_step(args, torch, models)
    done = 0
    for line in sys.stdin:
        words = line.split()
        if words[:1] == ["quit"]:
            return
        count = int(words[1])
        wait()
        begin = time.perf_counter()
        losses = [step(done + i) for i in range(count)]
        wait()
        seconds = time.perf_counter() - begin
        done += count
        print(json.dumps({"seconds": seconds, "losses": torch.stack(losses).tolist(), **about}), flush=True)
        about = {}


def start(args, setting, cache):
    """A child for the setting, after its warm-up of ten steps in all."""
    command = [sys.executable, __file__, "--serve", setting]
    for option in ("model", "batch", "seed", "threads", "device"):
        command += [f"--{option}", str(getattr(args, option))]
    env = {"OMP_NUM_THREADS": str(args.threads), "TORCHINDUCTOR_CACHE_DIR": cache,
           **(KEEP if setting.endswith("-keep") else {})}
    runner = alternate.Runner(setting, command, env)
    runner.warm_up(9)
    return runner


def survey(args, cache):
    """Every setting in turn, all alive at once; reports sorted by the median, best first."""
    runners = []
    for setting in args.settings.split(","):
        runners.append(start(args, setting, cache))
        print(f"  {setting}: first step after {runners[-1].first_step_s:.1f} s", file=sys.stderr)
    for runner in runners[1:]:
        alternate.check_losses(runners[0], runner, args.tolerance)
    alternate.alternate(runners, args.survey_windows, args.steps)
    reports = sorted((r.quit() for r in runners), key=lambda report: report["step_ms"]["median"])
    print("| setting | step (quartiles) | CPU time of a step | cores busy | peak memory | first step after |\n"
          "|---|---|---|---|---|---|")
    for r in reports:
        ms = r["step_ms"]
        print(f"| {r['name']} | {ms['median']:.1f} ms ({ms['p25']:.1f}-{ms['p75']:.1f}) "
              f"| {r['step_cpu_ms']['median']:.1f} ms | {r['cores_busy']} "
              f"| {r['peak_rss_mb']:.0f} MB | {r['first_step_s']:.1f} s |", flush=True)
    return reports


def against(args, setting, cache):
    """PyTorch in its best setting and the other program, window by window."""
    torch_side = start(args, setting, cache)
    peer = alternate.Runner("peer", shlex.split(args.peer_cmd), {"OMP_NUM_THREADS": str(args.threads)})
    peer.warm_up(9)
    difference = alternate.check_losses(torch_side, peer, args.tolerance)
    alternate.alternate([torch_side, peer], args.windows, args.steps)
    ratios = [a / b for a, b in zip(torch_side.ms, peer.ms)]
    cpu_ratios = [a / b for a, b in zip(torch_side.cpu_ms, peer.cpu_ms)]
    return {"ratio": alternate.spread(ratios), "cpu_time_ratio": alternate.spread(cpu_ratios),
            "largest_loss_difference": difference,
            "torch": torch_side.quit(), "peer": peer.quit()}


def machine():
    with open("/proc/cpuinfo") as info:
        model = next((line.split(":")[1].strip() for line in info if line.startswith("model name")), "?")
    return f"{model}, {os.cpu_count()} logical CPUs"


def commit():
    found = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True)
    return found.stdout.strip() or "unknown"


def row(args, result):
    """A line for bench/RECORDS.md."""
    pair, ratio = result["pair"], result["pair"]["ratio"]
    ours, theirs = pair["peer"], pair["torch"]
    quiet = all(alternate.undisturbed(side, args.threads) for side in (ours, theirs))
    note = "" if quiet or args.device != "cpu" else "; OTHERS USED THE CORES, measure again"
    return (
        f"| {result['date']} | {result['commit']} | {result['machine']}, {args.threads} threads "
        f"| {args.model} step, batch {args.batch}: {ratio['median']:.2f}x "
        f"(p25 {ratio['p25']:.2f}, p75 {ratio['p75']:.2f}) "
        f"PyTorch {theirs['about'].get('torch')} {theirs['name']}: "
        f"{ours['step_ms']['median']:.1f} against {theirs['step_ms']['median']:.1f} ms; "
        f"peak {ours['peak_rss_mb']:.0f} against {theirs['peak_rss_mb']:.0f} MB; "
        f"first step after {ours['first_step_s']:.1f} against {theirs['first_step_s']:.1f} s{note} "
        f"| {ratio['n']} x {args.steps} steps | `python bench/peers/pytorch_step.py {shlex.join(sys.argv[1:])}` |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="cifar10cnn", choices=["cifar10cnn", "mlp"])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--device", default="cpu", help="cpu or cuda[:N]")
    parser.add_argument("--settings", default=",".join(SETTINGS), help="those to survey, by comma")
    parser.add_argument("--peer-cmd", help="the other program; omit for PyTorch alone")
    parser.add_argument("--steps", type=int, default=10, help="of a window")
    parser.add_argument("--survey-windows", type=int, default=5)
    parser.add_argument("--windows", type=int, default=20, help="of each side against the peer")
    parser.add_argument("--tolerance", type=float, default=1e-4, help="relative, of the first ten losses")
    parser.add_argument("--out", type=pathlib.Path, help="JSON with every figure")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        return serve(args)
    if args.peer_cmd and not shutil.which(shlex.split(args.peer_cmd)[0]):
        parser.error(f"--peer-cmd: no program {shlex.split(args.peer_cmd)[0]}")
    result = {"date": datetime.date.today().isoformat(), "commit": commit(), "machine": machine(),
              "arguments": {k: v for k, v in vars(args).items() if k not in ("out", "serve")},
              "load_before": os.getloadavg()}
    with tempfile.TemporaryDirectory() as cache:  # empty, so that a first step includes compiling
        result["survey"] = survey(args, cache)
        if args.peer_cmd:
            result["pair"] = against(args, result["survey"][0]["name"], cache)
            print(row(args, result))
    result["load_after"] = os.getloadavg()
    if args.out:
        args.out.write_text(json.dumps(result, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
