#!/usr/bin/env python3
"""Compares weights that go from PyTorch to Warpstep and back.

Run by hand, in a separate environment:

    python3 -m venv peers && peers/bin/pip install torch torchvision safetensors numpy
    peers/bin/python tests/peers/torchvision_weights.py build/release/bin/warpstep [MODEL...] [--size HxW]

MODEL is one of torchvision's models that our zoo has, or one of tests/golden/models.py (default: mlp and cifar10cnn). Weights
are random, because torchvision's trained ones need the network; running statistics come from a few training-mode passes. For
each model: PyTorch's state_dict into `eval --logits`, unchanged and in half precision with DDP's prefix; a file of
torch.save(), which is refused, converted by the command in the message; a head with other classes; and a trained checkpoint
back into PyTorch by load_state_dict. Logits must agree within ten times PyTorch's own float32 error, measured against
float64; it also checks that this tolerance detects a change of 1 % in any kind of tensor. Exits with 1 at the first difference.
"""
import argparse
import copy
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torchvision
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "golden"))
import models as golden  # noqa: E402

CLASSES = 10
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def expect(what, holds):
    print(f"  {'ok' if holds else 'DIFFERENT'}: {what}")
    if not holds:
        sys.exit(1)


class Warpstep:
    def __init__(self, program):
        self.program = program

    def __call__(self, *arguments, code=0):
        done = subprocess.run([self.program, *map(str, arguments)], capture_output=True, text=True)
        if done.returncode != code:
            sys.exit(f"warpstep {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def logits(self, case, *subject):
        out = case.work / "logits.safetensors"
        self("eval", *subject, "--data", case.data, "--batch", 8, "--device", "cpu", "--exact-math", "--logits", out)
        found = load_file(out)
        expect("logits come with the labels, in the data's order", found["label"].tolist() == case.labels.tolist())
        return found["logits"].double()


class Case:
    """A model, images for it, and the folder of both."""

    def __init__(self, name, size, work):
        torch.manual_seed(7)
        self.name, self.work, self.data = name, work, work / "data"
        if name in torchvision.models.list_models():
            self.model = torchvision.models.get_model(name, weights=None, num_classes=CLASSES)
            (height, width), channels = size, 3
            self.mean, self.std = MEAN, STD
        else:
            self.model = golden.MODELS[name]()
            height, width, channels = self.model.image
            self.mean, self.std = self.model.mean, self.model.std
        random = np.random.default_rng(1)
        self.images = random.integers(0, 256, (4 * CLASSES, height, width, channels), np.uint8)
        self.labels = np.arange(len(self.images)) % CLASSES
        self.data.mkdir(parents=True)
        for split in ("train", "test"):
            save_file({"image": torch.from_numpy(self.images), "label": torch.from_numpy(self.labels)},
                      self.data / f"{split}.safetensors")
        self.make_statistics()

    def make_statistics(self):
        """Gains, shifts and running statistics that are not ones and zeros."""
        for module in self.model.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                torch.nn.init.uniform_(module.weight, 0.5, 1.5)
                torch.nn.init.normal_(module.bias, 0, 0.1)
        self.model.train()
        with torch.no_grad():
            for _ in range(5):
                self.model(self.inputs(torch.float32))
        self.model.eval()

    def inputs(self, dtype):
        return golden.normalise(self.images, self.mean, self.std, dtype)

    def logits(self, model, dtype=torch.float64):
        with torch.no_grad():
            return copy.deepcopy(model).eval().to(dtype)(self.inputs(dtype)).double()

    def normalisation(self):
        return ["--mean", *self.mean, "--std", *self.std]

    def tolerance(self, model):
        exact = self.logits(model)
        return 10 * (self.logits(model, torch.float32) - exact).abs().max().item()


def agree(what, case, model, ours):
    exact, tolerance = case.logits(model), case.tolerance(model)
    off = (ours - exact).abs().max().item()
    expect(f"{what}: {tuple(ours.shape)} logits up to {exact.abs().max():.3g} differ by {off:.2g}, {tolerance:.2g} is "
           "allowed", ours.shape == exact.shape and off <= tolerance)


def check_tolerance(case):
    exact, tolerance = case.logits(case.model), case.tolerance(case.model)
    for kind in sorted({key.rsplit(".", 1)[1] for key, t in case.model.state_dict().items() if t.is_floating_point()}):
        changed = copy.deepcopy(case.model)
        changed.load_state_dict({key: t * 1.01 if key.endswith("." + kind) else t
                                 for key, t in case.model.state_dict().items()})
        off = (case.logits(changed) - exact).abs().max().item()
        expect(f"the tolerance detects a change of 1 % in every {kind}: {off:.2g} > {tolerance:.2g}", off > tolerance)


def check_into(warpstep, case):
    path = case.work / "state.safetensors"
    save_file(case.model.state_dict(), path, {"format": "pt"})
    agree("a state_dict", case, case.model,
          warpstep.logits(case, case.name, "--weights", path, *case.normalisation()))

    halves = case.work / "halves.safetensors"
    narrow = {key: t.half() if t.is_floating_point() else t for key, t in case.model.state_dict().items()}
    save_file({"module." + key: t for key, t in narrow.items()}, halves)
    model = copy.deepcopy(case.model)
    model.load_state_dict(narrow)
    agree("halves with DDP's prefix", case, model,
          warpstep.logits(case, case.name, "--weights", halves, *case.normalisation()))
    bf16 = case.work / "bf16.safetensors"
    warpstep("weights", "convert", halves, bf16, "--dtype", "bf16", "--strip-prefix", "module.")
    expect("`weights convert` rounds as PyTorch does",
           all(torch.equal(t, narrow[key].bfloat16() if t.is_floating_point() else narrow[key])
               for key, t in load_file(bf16).items()) and len(load_file(bf16)) == len(narrow))
    return path


def check_statistics(warpstep, case, path):
    info = json.loads(warpstep("weights", "info", path, "--json"))
    worst = 0.0
    for tensor in info["tensors"]:
        t = case.model.state_dict()[tensor["name"]].double()
        theirs = (t.min(), t.max(), t.mean(), t.std(correction=0))
        worst = max([worst] + [abs(tensor[key] - value.item()) for key, value in zip(("min", "max", "mean", "std"), theirs)])
    expect(f"`weights info` has PyTorch's statistics of {len(info['tensors'])} tensors, off by {worst:.2g}", worst < 1e-9)


def check_pickle(warpstep, case):
    torch.save(case.model.state_dict(), case.work / "saved.pt")
    message = warpstep("weights", "info", case.work / "saved.pt", code=1)
    command = re.search(r"python3 (-c '.*')", message)[1]
    subprocess.run(f"{sys.executable} {command}", shell=True, check=True)
    made = load_file(case.work / "saved.safetensors")
    expect("the command that a .pt file's message names makes a safetensors file",
           all(torch.equal(t, made[key]) for key, t in case.model.state_dict().items()))


def check_head(warpstep, case, path):
    state = load_file(path)
    head = [key for key, t in state.items() if t.dim() > 0 and t.shape[0] == CLASSES][-2:]
    wide = case.work / "wide.safetensors"
    save_file({key: torch.cat([t] * 100) if key in head else t for key, t in state.items()}, wide)
    train = ["train", case.name, "--data", case.data, "--weights", wide, "--batch", 8, "--steps", 1, "--device", "cpu",
             "--optimizer", "sgd", "--lr", 0, *case.normalisation(), "--out", case.work / "head"]
    message = warpstep(*train, code=1)
    expect("a head of other classes is refused by name and shape",
           all(f"{key} is F32 [1000" in message for key in head))
    warpstep(*train, "--allow-missing")
    found = load_file(next((case.work / "head").glob("checkpoint-*")))
    expect("with --allow-missing all but the head is loaded",
           all(torch.equal(t, found[key]) != (key in head) for key, t in state.items()
               if key.endswith(("weight", "bias")) and t.is_floating_point()))


def check_back(warpstep, case, path):
    out, back = case.work / "run", case.work / "back.safetensors"
    warpstep("train", case.name, "--data", case.data, "--weights", path, "--batch", 8, "--steps", 3, "--device", "cpu",
             "--optimizer", "sgd", "--momentum", 0.9, "--lr", 0.01, *case.normalisation(), "--out", out)
    ours = warpstep.logits(case, out)
    warpstep("weights", "convert", next(out.glob("checkpoint-*3.safetensors")), back, "--drop-optimizer")
    model = copy.deepcopy(case.model)
    model.load_state_dict(load_file(back))  # strict
    expect("training moved the weights", (case.logits(model) - case.logits(case.model)).abs().max() > 1e-3)
    agree("three steps later, back by load_state_dict", case, model, ours)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("models", nargs="*", default=["mlp", "cifar10cnn"], metavar="MODEL")
    parser.add_argument("--size", default="96x96", help="of the images of torchvision's models")
    options = parser.parse_args()
    torch.set_grad_enabled(False)
    warpstep = Warpstep(options.program.resolve())
    print(f"torch {torch.__version__}, torchvision {torchvision.__version__}")
    for name in options.models:
        print(f"{name}:")
        with tempfile.TemporaryDirectory() as folder:
            case = Case(name, tuple(map(int, options.size.split("x"))), pathlib.Path(folder))
            check_tolerance(case)
            path = check_into(warpstep, case)
            check_statistics(warpstep, case, path)
            check_pickle(warpstep, case)
            check_head(warpstep, case, path)
            check_back(warpstep, case, path)


if __name__ == "__main__":
    main()
