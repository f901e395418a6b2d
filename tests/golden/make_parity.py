"""Writes parity-MODEL.json: ten Adam steps in PyTorch, in float64 (the truth) and in float32.

    python tests/golden/make_parity.py [cifar10cnn mlp]
"""
import json
import math
import pathlib
import sys

import numpy as np
import torch

import models

SEED, BATCH, STEPS, MOST_SAMPLES = 1, 128, 10, 512
ADAM = {"lr": 1e-4, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0}


def train(name, dtype):
    """Losses, correct counts, margins, the first step's gradients, first and final values."""
    model = models.build(name, SEED).to(dtype)
    adam = torch.optim.Adam(model.parameters(), lr=ADAM["lr"], betas=tuple(ADAM["betas"]),
                            eps=ADAM["eps"], weight_decay=0, foreach=False, fused=False)
    copy = lambda tensors: [t.detach().double().reshape(-1).numpy().copy() for t in tensors]
    out = {"losses": [], "correct": [], "margins": [], "initial": copy(model.parameters())}
    for step in range(STEPS):
        x, label = models.batch(model, SEED, step, BATCH, dtype)
        logits = model(x)
        loss = torch.nn.functional.cross_entropy(logits, label)
        adam.zero_grad(set_to_none=True)
        loss.backward()
        if step == 0:
            out["gradients"] = copy(p.grad for p in model.parameters())
        adam.step()
        best = logits.detach().topk(2, dim=1).values
        out["losses"].append(loss.item())
        out["correct"].append(int((logits.argmax(1) == label).sum()))
        out["margins"].append(float((best[:, 0] - best[:, 1]).min()))
    out["final"] = copy(model.parameters())
    return out


def rounded(values):
    return [float(f"{value:.9g}") for value in values]  # float32 has 9 digits


def stride_of(shape):
    """For at most MOST_SAMPLES samples; without a factor in common with any extent, so that the
    samples fall on every row, column and channel in turn and not on one column alone."""
    count = math.prod(shape)
    stride = max(1, -(-count // MOST_SAMPLES))
    while stride > 1 and math.gcd(stride, count) != 1:
        stride += 1
    return stride


def describe(truth, single, stride):
    """Figures of a tensor, samples of it, and how far float32 in PyTorch came from it."""
    difference = np.abs(truth - single)
    norm = float(np.linalg.norm(truth))
    return {
        "norm": norm, "mean": float(truth.mean()), "max_abs": float(np.abs(truth).max()),
        "float32_spread": {"max_abs": float(difference.max()),
                           "relative_norm": float(np.linalg.norm(difference)) / norm},
        "samples": rounded(truth[::stride]),
    }


def golden(name):
    truth, single = train(name, torch.float64), train(name, torch.float32)
    parameters = []
    for i, (label, value) in enumerate(models.MODELS[name]().named_parameters()):
        stride = stride_of(value.shape)
        start = truth["initial"][i]
        parameters.append({
            "name": label, "shape": list(value.shape), "stride": stride,
            "initial": {"norm": float(np.linalg.norm(start)), "first": rounded(start[:8])},
            "moved_norm": float(np.linalg.norm(truth["final"][i] - start)),
            "final": describe(truth["final"][i], single["final"][i], stride),
            "first_gradient": describe(truth["gradients"][i], single["gradients"][i], stride),
        })
    spread = [abs(a - b) / a for a, b in zip(truth["losses"], single["losses"])]
    model = models.MODELS[name]
    return {
        "model": name, "seed": SEED, "batch": BATCH, "steps": STEPS, "image": list(model.image),
        "mean": list(model.mean), "std": list(model.std), "adam": ADAM,
        "made_with": {"torch": torch.__version__.split("+")[0], "numpy": np.__version__,
                      "python": sys.version.split()[0], "device": "cpu",
                      "capability": torch.backends.cpu.get_cpu_capability(),
                      "threads": torch.get_num_threads()},
        "losses": {"float64": truth["losses"], "float32": single["losses"],
                   "max_relative_spread": max(spread)},
        "correct": {"float64": truth["correct"], "float32": single["correct"],
                    "smallest_margin": min(truth["margins"])},
        "parameters": parameters,
    }


def text(value, indent=""):
    """JSON with a line a field, but lists of numbers on one line: readable, and small diffs."""
    if isinstance(value, dict):
        inner = ",\n".join(f"{indent} {json.dumps(k)}: {text(v, indent + ' ')}"
                           for k, v in value.items())
        return "{\n" + inner + f"\n{indent}}}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        inner = ",\n".join(f"{indent} {text(v, indent + ' ')}" for v in value)
        return "[\n" + inner + f"\n{indent}]"
    return json.dumps(value, separators=(",", ":"))


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in sys.argv[1:] or models.MODELS:
        path = pathlib.Path(__file__).parent / f"parity-{name}.json"
        made = golden(name)
        path.write_text(text(made) + "\n")
        losses = made["losses"]
        print(f"{path.name}: {path.stat().st_size} bytes, loss {losses['float64'][0]:.4f} -> "
              f"{losses['float64'][-1]:.4f}, float32 within {losses['max_relative_spread']:.1e}")


if __name__ == "__main__":
    main()
