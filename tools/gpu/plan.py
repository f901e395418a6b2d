"""The steps of gpu_check, most valuable first: who has ten minutes learns the most of them. On an H200 with 16 cores they suffice
for all up to every op's cases, as a test of the planned times proves.

`files` is a folder whose content goes into the archive, `scratch` one that is thrown away.
"""
import shlex

import machine
from steps import Step

SMOKE = r"^Cases/Op\..*/(conv_cifar10cnn_conv2|norm_conv_1x1|linear_odd)_in_fp16$"
SMOKE_OF_CUDNN = SMOKE.replace("|linear_odd", "")
OPS_FP16 = r"^Cases/Op\..*fp16"
FLAGSHIP = "fp16"  # whole models: what the benchmarks run, before the rest
# The batch norms' fusions with convolutions (engine/passes/fuse.h), off.
NORMS_ALONE = " ".join(f"--no-fuse {row}" for row in ("conv+statistics", "dgrad+norm.dgrad", "norm+conv", "join+conv"))
SHORTCUTS_ALONE = "--no-fuse norm.dgrad+norm.dgrad"
STEM_ALONE = "--no-fuse norm+pool"
POOLS_ALONE = "--no-fuse conv+pool"
QUICK_BENCHMARKS = "(conv|linear|max_pool|update).*/(f32|f16)/"
GELUS_ALONE = ("--no-fuse linear+gelu", "--no-fuse linear.dgrad+gelu")
SUMS_ALONE = "--no-fuse dgrad+bias"  # bias gradients, of the adjoints of GELU and layer norm
RELUS_ALONE = "--no-fuse conv.dgrad+relu"
HALF_MOMENTS = "--moments bf16"
CHANGED = {}  # step: {field: value}, for tests
# model: batch, precision, memory format, seconds for PyTorch's rows: a captured step is ready after 10, 27 and 18 to 23 s, a
# compiled one after 23 and more. Of 0.7 of them, less 6 s, it leaves a compiled one what an eager one, at most half, does not take:
# compiling comes last.
PYTORCH = {"cifar10cnn": (128, "fp16", "nhwc", 80), "resnet50": (256, "fp16", "nhwc", 120),
           "gpt2": (8, "bf16", "rows", 110)}
TO_END_S = 10  # what pytorch_step.py may need beyond its --limit: the windows that run, and the processes' ends
# Of step_peer, each alone against the defaults.
SWITCHES = ("--autotune", "--no-graph", "--host-batches", "--overlap-launches")
SEVERAL = tuple(f"--steps-per-launch {steps}" for steps in (8, 32))  # of a short step
# name: model, batch, precision, seconds, switches
SWITCHED = {"cifar10cnn": ("cifar10cnn", 128, "fp16", 60, (*SWITCHES, *SEVERAL, POOLS_ALONE, RELUS_ALONE, HALF_MOMENTS)),
            "resnet50": ("resnet50", 256, "fp16", 100, (*SWITCHES, NORMS_ALONE, SHORTCUTS_ALONE, STEM_ALONE)),
            "gpt2": ("gpt2", 8, "bf16", 50, (*GELUS_ALONE, SUMS_ALONE, HALF_MOMENTS))}


def tests(tree, arguments, name, program, planned_s, limit_s, **more):
    return Step(name, [str(tree.programs / program)], limit_s, tests=True, jobs=arguments.processes, planned_s=planned_s,
                may_skip=bool(arguments.emulate), **more)


def first_tests(tree, arguments):
    """Two ops, planned by the device's properties and by a handle, and one step as a graph, in a minute at most; then
    own kernels, then whole models and single ops in the precision of the benchmarks."""
    yield tests(tree, arguments, "smoke-ops", "op_cuda_test", 3, 20, select=SMOKE)
    yield tests(tree, arguments, "smoke-handle", "op_cuda_test", 3, 20, select=SMOKE_OF_CUDNN,
                env={"WARPSTEP_CUDNN_PLANS": "handle"})
    yield tests(tree, arguments, "smoke-graph", "model_cuda_test", 3, 20, select=r"OneGraphLaunch.*/mlp_fp16")
    yield tests(tree, arguments, "kernels", "kernels_cuda_test", 16, 120)
    yield tests(tree, arguments, "models-fp16", "model_cuda_test", 20, 180, select=FLAGSHIP)
    yield tests(tree, arguments, "ops-fp16", "op_cuda_test", 30, 900, select=OPS_FP16)


def switch_steps(tree, arguments, files, scratch):
    """Our step with each switch against the same without, window by window; no PyTorch is needed."""
    peer = tree.program("step_peer")
    python = machine.pythons()[0]
    why = ("emulated" if arguments.emulate else "" if peer else "no step_peer in this tree")
    for name, (model, batch, precision, seconds, switches) in SWITCHED.items():
        yield Step(f"switches-{name}",
                   [python, str(tree.source / "bench" / "peers" / "step_switches.py"), "--model", model, "--batch",
                    str(batch), "--precision", precision, "--seconds", str(seconds), "--out",
                    str(files / f"switches-{name}.json"), "--plan-cache", str(scratch / "plans"),
                    "--peer-cmd", f"{shlex.quote(str(peer))} --device cuda",
                    *[f"--switch={switch}" for switch in switches]], seconds + 60, 30, skip=why)


def pytorch_steps(tree, arguments, files, scratch):
    peer, found = tree.program("step_peer"), None if arguments.emulate else machine.python_with_torch()
    why = ("emulated" if arguments.emulate else "no step_peer in this tree" if not peer else
           "no Python with PyTorch (set PYTHON to one)" if not found else
           "" if found[2] else f"PyTorch {found[1]} finds no CUDA device")
    for model, (batch, precision, layout, seconds) in PYTORCH.items():
        batch = str(batch)
        ours = [str(peer), "--device", "cuda", "--precision", precision, "--autotune", "--plan-cache",
                str(scratch / "plans")]
        command = [found[0] if found else "python3", str(tree.source / "bench" / "peers" / "pytorch_step.py"),
                   "--model", model, "--batch", batch, "--device", "cuda", "--precision", precision,
                   "--settings", ",".join(f"{mode}-{layout}-fused-glibc" for mode in ("graph", "eager", "compile")),
                   "--survey-windows", "2", "--windows", "10" if arguments.quick else "20", "--limit", str(seconds),
                   "--out", str(files / f"pytorch-{model}.json"),
                   "--peer-cmd", " ".join(shlex.quote(word) for word in [*ours, "--model", model, "--batch", batch])]
        yield Step(f"pytorch-{model}", command, seconds + 30, 60, planned_s=seconds + TO_END_S, skip=why)


def train_steps(tree, arguments, files, scratch):
    """The program as a user runs it: generates a set of images and trains on it, recorded by CUPTI."""
    program, data = tree.program("warpstep"), scratch / "shapes"
    why = "the program cannot use the emulated device" if arguments.emulate else ""
    draw = {"first": (str(program), "data", "make", str(data)), "makes": str(data)}
    train = [str(program), "train", "cifar10cnn", "--data", str(data), "--device", "cuda", "--precision", "fp16",
             "--overwrite"]
    yield Step("cupti", [*train, "--steps", "200", "--profile", "deep", "--profile-raw", str(files / "cupti.raw"),
                         "--out", str(scratch / "deep")], 120, 20, planned_s=20, proof=True, skip=why, carried=True,
               refused="GPU's activities are (?:not recorded|missing)", **draw)
    yield Step("train", [*train, "--epochs", "2", "--out", str(scratch / "run")], 300, 20, proof=True, skip=why,
               carried=True, **draw)


def later_tests(tree, arguments):
    yield tests(tree, arguments, "models", "model_cuda_test", 15, 900, leave_out=FLAGSHIP)
    yield tests(tree, arguments, "parity", "parity_cuda_test", 13, 600)
    yield tests(tree, arguments, "statistics", "statistics_cuda_test", 9, 600)
    yield tests(tree, arguments, "plan_choice", "plan_choice_cuda_test", 10, 1200)
    yield tests(tree, arguments, "precision_spread", "precision_spread_cuda_test", 7, 600)
    yield tests(tree, arguments, "ops", "op_cuda_test", 50, 1800, leave_out=OPS_FP16)
    for program in ("custom_op_cuda_test", "custom_op_model_cuda_test"):
        yield tests(tree, arguments, program.replace("_cuda_test", ""), program, 10, 300,
                    skip="" if tree.program(program) else "not in this tree")


def ranks_step(tree, arguments):
    """Two ranks with NCCL, on one GPU where there are no more."""
    program = tree.program("warpstep")
    why = ("emulated" if arguments.emulate else "" if program else "no warpstep in this tree")
    return Step("ranks", [machine.pythons()[0], str(tree.source / "tests" / "ranks_gpu_test.py"), str(program)], 400, 30,
                planned_s=60, proof=True, skip=why, carried=True)


def benchmark_step(tree, arguments, files):
    program = tree.program("warpstep_bench")
    command = [str(program), "--backends", arguments.emulate or "cuda", f"--benchmark_out={files / 'kernels.json'}",
               "--benchmark_out_format=json"]
    if arguments.emulate:  # product sizes would take minutes of plain loops
        command += ["--all_cases", "--benchmark_filter=linear/forward/f16/odd", "--benchmark_min_time=0.001"]
    elif arguments.quick:
        command += ["--benchmark_filter=" + QUICK_BENCHMARKS, "--benchmark_min_time=0.05"]
    return Step("bench", command, 300 if arguments.quick else 1800, 60,
                skip="" if program else "no warpstep_bench in this tree")


def sanitizer_steps(tree, arguments):
    checker, program = machine.sanitizer(), tree.program("kernels_cuda_test")
    for tool, planned_s in (("memcheck", 30), ("racecheck", 60)):
        why = ("emulated" if arguments.emulate else "left out by --quick" if arguments.quick else
               "no kernels_cuda_test in this tree" if not program else
               "" if checker else "compute-sanitizer is not installed; it comes with the full CUDA toolkit, or by "
               "pip install 'nvidia-cuda-sanitizer-api>=13.5'")
        yield Step(tool, [str(checker), "--tool", tool, "--error-exitcode", "99", "--report-api-errors", "no",
                          str(program)], 1200, 30, tests=True, jobs=arguments.jobs or max(1, arguments.processes // 2),
                   planned_s=planned_s, skip=why)


def steps(tree, arguments, files, scratch):
    recorded, trained = train_steps(tree, arguments, files, scratch)
    every = [*first_tests(tree, arguments), *pytorch_steps(tree, arguments, files, scratch),
             *later_tests(tree, arguments), ranks_step(tree, arguments), recorded, *switch_steps(tree, arguments, files, scratch), trained,
             benchmark_step(tree, arguments, files), *sanitizer_steps(tree, arguments)]
    for step in every:
        for field, value in CHANGED.get(step.name, {}).items():
            setattr(step, field, value)
    return every


class Unknown(Exception):
    """A name that no step has."""


def chosen(every, arguments):
    """The steps of --only, --skip and --from: names, or beginnings of names, by comma."""
    names = [step.name for step in every]

    def of(text):
        wanted = []
        for word in text.split(","):
            found = [name for name in names if name == word] or [name for name in names if name.startswith(word)]
            if not found or not word:
                raise Unknown(f"no step '{word}'; the steps: {', '.join(names)}")
            wanted += found
        return wanted

    if arguments.first:
        every = every[names.index(of(arguments.first)[0]):]
    if arguments.only:
        wanted = of(arguments.only)
        every = [step for step in every if step.name in wanted]
    if arguments.skip:
        unwanted = of(arguments.skip)
        every = [step for step in every if step.name not in unwanted]
    return every
