"""Writes parity-NAME.json: some steps in PyTorch, in float64 (the truth) and in float32.

    python tests/golden/make_parity.py [NAME...]

NAME is a model, or one of OTHERS and TEXTS.
"""
import itertools
import json
import math
import pathlib
import sys

import numpy as np
import torch

import models

ADAM = {"kind": "adam", "lr": 1e-4, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0}
# For networks with many batch norms: Adam divides by gradients that are rounding noise.
SGD = {"kind": "sgd", "lr": 1e-3, "momentum": 0.9, "weight_decay": 1e-4}
# An epsilon that noise does not reach: the gradient of the keys' biases is exactly 0.
ADAMW = {"kind": "adamw", "lr": 1e-3, "betas": [0.9, 0.99], "eps": 1e-5, "weight_decay": 0.1}
# With momentum ten steps of the rate go into one direction; in its first step each is ten times the rate.
RMSPROP = {"kind": "rmsprop", "lr": 1e-5, "alpha": 0.99, "eps": 1e-8, "momentum": 0.9, "weight_decay": 1e-4}
SIZES = {"batch": 128, "steps": 10, "samples": 64}
# Of models whose step in plain loops takes seconds, or that have very many parameters.
SMALLER = {
    "toynet": {"batch": 2, "steps": 3, "samples": 64},
    "airbench": {"batch": 2, "steps": 2, "samples": 64, "clear": 16},
    "resnet9": {"batch": 1, "steps": 2, "samples": 64, "clear": 16},
    "resnet18": {"batch": 2, "steps": 2, "samples": 16, "clear": 16},
    "resnet50": {"batch": 2, "steps": 2, "samples": 16, "clear": 12},
}
# A model with another optimiser than its own.
OTHERS = {"mnist_cnn-rmsprop": "mnist_cnn"}
# Variants of models of text.
TEXTS = {
    "gpt2-nano": {"model": "gpt2-nano", "sequence": 32, "batch": 3, "steps": 5, "samples": 64,
                  "settings": ["layers=2", "width=64", "context=32", "vocabulary=67"]},
    "gpt2-nano-tanh": {"model": "gpt2-nano", "sequence": 20, "batch": 3, "steps": 5, "samples": 64,
                       "settings": ["layers=2", "width=64", "context=32", "vocabulary=97", "gelu=tanh", "bias=yes"]},
}


def bias_start(label):
    """What a bias, or the weight of a norm beside one, starts with, repeated to its end; None of another parameter.

    With weights of 1, attention's scores would be a few hundredths, and GELU almost linear.
    """
    if label.endswith(".bias"):
        return [0.125, -0.0625, 0.03125, -0.25, 0.1875]
    return [4.0, 3.0, 3.5] if ".ln_" in label or label.startswith("ln_") else None


def make(name, seed):
    """The model with its initial weights."""
    if name not in TEXTS:
        return models.build(OTHERS.get(name, name), seed)
    model = models.build(TEXTS[name]["model"], seed, TEXTS[name]["settings"])
    model.sequence = TEXTS[name]["sequence"]
    if "bias=yes" in TEXTS[name]["settings"]:
        model.start = bias_start
    return model


def optimizer_of(name):
    return ADAMW if name in TEXTS else RMSPROP if name in OTHERS else SGD if name in SMALLER else ADAM


def make_optimizer(options, parameters):
    if options["kind"] == "adamw":  # decays matrices alone
        groups = [{"params": [p for p in parameters if p.dim() >= 2], "weight_decay": options["weight_decay"]},
                  {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0}]
        return torch.optim.AdamW(groups, lr=options["lr"], betas=tuple(options["betas"]), eps=options["eps"],
                                 foreach=False, fused=False)
    if options["kind"] == "rmsprop":
        return torch.optim.RMSprop(parameters, lr=options["lr"], alpha=options["alpha"], eps=options["eps"],
                                   momentum=options["momentum"], weight_decay=options["weight_decay"], foreach=False)
    if options["kind"] == "sgd":
        return torch.optim.SGD(parameters, lr=options["lr"], momentum=options["momentum"],
                               weight_decay=options["weight_decay"], foreach=False, fused=False)
    return torch.optim.Adam(parameters, lr=options["lr"], betas=tuple(options["betas"]),
                            eps=options["eps"], weight_decay=0, foreach=False, fused=False)


def size_of(name, what):
    return (SMALLER | TEXTS).get(name, SIZES)[what]


class Decisions:
    """Records what the ReLUs and max pools of a model are given, while it is entered."""

    def __init__(self):
        self.relus, self.windows = [], []

    def __enter__(self):
        functional = torch.nn.functional
        self.before = torch.relu, functional.relu, functional.max_pool2d
        relu, _, max_pool = self.before

        def recording_relu(x, inplace=False):
            self.relus.append(x.detach().double())
            return relu(x)

        def recording_pool(x, size, stride=None, padding=0, *rest, **named):
            # Padding with 0 instead of minus infinity changes no winner: only ReLUs' outputs are pooled so.
            planes = x.detach().double().reshape(-1, 1, *x.shape[2:])
            self.windows.append(functional.unfold(planes, size, padding=padding, stride=stride or size))
            return max_pool(x, size, stride, padding, *rest, **named)

        torch.relu, functional.relu, functional.max_pool2d = recording_relu, recording_relu, recording_pool
        return self

    def __exit__(self, *_):
        torch.relu, torch.nn.functional.relu, torch.nn.functional.max_pool2d = self.before


def clearance(truth, single):
    """How far the nearest ReLU or max pool is from deciding otherwise, in root mean squares of what
    float32 rounds there."""
    nearest = math.inf
    for exact, rounded32 in zip(truth.relus, single.relus):
        error = (exact - rounded32).square().mean().sqrt()
        nearest = min(nearest, float(exact.abs().min() / error))
    for exact, rounded32 in zip(truth.windows, single.windows):
        error = (exact - rounded32).square().mean().sqrt()
        best = exact.topk(2, dim=1).values
        margin = best[:, 0] - best[:, 1]
        nearest = min(nearest, float(margin[margin > 0].min() / error))  # equal ones are zeros
    return nearest


def seed_of(name):
    """The first seed in whose run every decision is clear of float32's rounding on any CPU: one that
    hangs on the last bit sends a gradient elsewhere, by hundredths."""
    wanted = SMALLER.get(name, {}).get("clear")
    if not wanted:
        return 1
    for seed in itertools.count(1):
        for steps in range(1, size_of(name, "steps") + 1):
            with Decisions() as truth:
                train(name, seed, torch.float64, steps)
            with Decisions() as single:
                train(name, seed, torch.float32, steps)
            if clearance(truth, single) < wanted:
                break
        else:
            return seed


def train(name, seed, dtype, steps=None):
    """Losses, correct counts, margins, the first step's gradients, first and final values."""
    model = make(name, seed)
    copy = lambda tensors: [t.detach().double().reshape(-1).numpy().copy() for t in tensors]
    out = {"losses": [], "correct": [], "margins": [], "initial": copy(model.parameters())}
    models.set_start(model)
    out["start"] = copy(model.parameters())
    model = model.to(dtype)
    optimizer = make_optimizer(optimizer_of(name), list(model.parameters()))
    for step in range(steps or size_of(name, "steps")):
        x, label = models.batch(model, seed, step, size_of(name, "batch"), dtype)
        logits = model(x)
        loss = torch.nn.functional.cross_entropy(logits, label, ignore_index=-1)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if step == 0:
            out["gradients"] = copy(p.grad for p in model.parameters())
        optimizer.step()
        best = logits.detach().topk(2, dim=1).values
        out["losses"].append(loss.item())
        out["correct"].append(int((logits.argmax(1) == label).sum()))
        out["margins"].append(float((best[:, 0] - best[:, 1]).min()))
    out["final"] = copy(model.parameters())
    out["buffers"] = {label: b.detach().double().reshape(-1).numpy().copy()
                      for label, b in model.named_buffers() if b.is_floating_point()}
    return out


def rounded(value, digits=8):
    """Eight digits keep 5e-8 of a number, less than float32 itself rounds."""
    return float(f"{value:.{digits}g}")


def first_of(start):
    """The first elements, or one where all are equal; exactly, in the digits of float32."""
    return [float(str(np.float32(v))) for v in (start[:8] if np.ptp(start) else start[:1])]


def stride_of(name, shape):
    """For at most so many samples; without a factor in common with any extent, so that the
    samples fall on every row, column and channel in turn and not on one column alone."""
    count, samples = math.prod(shape), size_of(name, "samples")
    if len(shape) == 1:
        samples //= 2  # a vector has no layout to get wrong
    stride = max(1, -(-count // samples))
    if name in TEXTS and len(shape) == 2:  # columns far apart: those of queries, keys and values differ
        stride += (round(0.618 * shape[1]) - stride) % shape[1]
    while stride > 1 and math.gcd(stride, count) != 1:
        stride += 1
    return stride


def describe(truth, single, stride):
    """Norm and samples of a tensor, and how far float32 in PyTorch came from it, relative to the norm."""
    norm = float(np.linalg.norm(truth))
    return {"norm": rounded(norm),
            "float32_spread": rounded(float(np.linalg.norm(truth - single)) / max(norm, 1e-300), 3),
            "samples": [rounded(value) for value in truth[::stride]]}


def input_of(name, model):
    if name not in TEXTS:
        return {"image": list(model.image), "mean": list(model.mean), "std": list(model.std)}
    return {"sequence": model.sequence, "vocabulary": model.vocabulary, "settings": TEXTS[name]["settings"]}


def golden(name):
    seed = seed_of(name)
    truth, single = train(name, seed, torch.float64), train(name, seed, torch.float32)
    parameters, model = [], make(name, seed)
    for i, (label, value) in enumerate(model.named_parameters()):
        stride = stride_of(name, value.shape)
        initial, start = truth["initial"][i], models.start_of(model, label)
        parameters.append({
            "name": label, "shape": list(value.shape), "stride": stride,
            "initial": {"norm": rounded(np.linalg.norm(initial)), "first": first_of(initial)},
            **({"start": start} if start else {}),
            "moved_norm": rounded(np.linalg.norm(truth["final"][i] - truth["start"][i])),
            "final": describe(truth["final"][i], single["final"][i], stride),
            "first_gradient": describe(truth["gradients"][i], single["gradients"][i], stride),
        })
    buffers = []
    for label, value in truth["buffers"].items():
        stride = stride_of(name, value.shape)
        buffers.append({"name": label, "stride": stride,
                        "final": describe(value, single["buffers"][label], stride)})
    spread = [abs(a - b) / a for a, b in zip(truth["losses"], single["losses"])]
    return {
        "model": TEXTS[name]["model"] if name in TEXTS else OTHERS.get(name, name),
        "seed": seed, "clear": SMALLER.get(name, {}).get("clear", 0), "batch": size_of(name, "batch"),
        "steps": size_of(name, "steps"), **input_of(name, model), "optimizer": optimizer_of(name),
        "made_with": {"torch": torch.__version__.split("+")[0], "numpy": np.__version__,
                      "python": sys.version.split()[0], "device": "cpu",
                      "capability": torch.backends.cpu.get_cpu_capability(),
                      "threads": torch.get_num_threads()},
        "losses": {"float64": truth["losses"], "float32": single["losses"],
                   "max_relative_spread": rounded(max(spread), 3)},
        "correct": {"float64": truth["correct"], "float32": single["correct"],
                    "smallest_margin": rounded(min(truth["margins"]), 3)},
        "parameters": parameters,
        **({"buffers": buffers} if buffers else {}),
    }


def text(value, indent=""):
    """JSON with a line a field, and fields of a tensor on one line each: readable, and small diffs."""
    flat = lambda v: not isinstance(v, dict) and not (isinstance(v, list) and v and isinstance(v[0], dict))
    if isinstance(value, dict) and not all(flat(v) for v in value.values()) or not indent:
        inner = ",\n".join(f"{indent} {json.dumps(k)}: {text(v, indent + ' ')}" for k, v in value.items())
        return "{\n" + inner + f"\n{indent}}}"
    if isinstance(value, list) and not flat(value):
        inner = ",\n".join(f"{indent} {text(v, indent + ' ')}" for v in value)
        return "[\n" + inner + f"\n{indent}]"
    return json.dumps(value, separators=(",", ":"))


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in sys.argv[1:] or [*(name for name in models.MODELS if name != "resnet34"), *OTHERS, *TEXTS]:
        path = pathlib.Path(__file__).parent / f"parity-{name}.json"
        made = golden(name)
        path.write_text(text(made) + "\n")
        losses = made["losses"]
        print(f"{path.name}: {path.stat().st_size} bytes, loss {losses['float64'][0]:.4f} -> "
              f"{losses['float64'][-1]:.4f}, float32 within {losses['max_relative_spread']:.1e}")


if __name__ == "__main__":
    main()
