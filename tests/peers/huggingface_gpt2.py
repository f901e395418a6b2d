#!/usr/bin/env python3
"""Compares GPT-2 weights that go from Hugging Face's transformers to Warpstep and back.

Run by hand, in a separate environment:

    python3 -m venv peers && peers/bin/pip install torch transformers numpy
    peers/bin/python tests/peers/huggingface_gpt2.py build/release/bin/warpstep [--size 124m]

Weights are random, because the published ones need the network; biases and gains too are not zeros and ones. Both programs
compute the mean loss of the same windows of tokens, for models with tanh and erf GELU: of a folder of save_pretrained(); of
names and buffers as in the published file; of nanoGPT's names and matrices; and of Warpstep's own training steps, with and
without biases, through `weights export` and from_pretrained(). Losses, and the logits of a folder, must agree within ten times
PyTorch's own float32 error in a window, measured against float64; it also checks that this tolerance detects a change of 1 % in
any kind of tensor, and that exported tokenizers give the ids of the data. Exits with 1 at the first difference.
"""
import argparse
import copy
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

SIZES = {"small": dict(n_layer=3, n_head=4, n_embd=64, n_positions=48, vocab_size=211), "124m": {}}
TRANSPOSED = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")


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
        return done.stdout if code == 0 else done.stderr

    def loss(self, *subject):
        return json.loads(self("eval", *subject, "--batch", 2, "--device", "cpu", "--json"))["loss"]


class Case:
    """A model, tokens for it, and the folder of both."""

    def __init__(self, size, activation, work):
        torch.manual_seed(7)
        self.work, self.data = work, work / "data"
        config = GPT2Config(**SIZES[size], activation_function=activation)
        self.model = GPT2LMHeadModel(config).eval()
        self.spread()
        self.context, self.vocabulary = config.n_positions, config.vocab_size
        self.tokens = np.random.default_rng(1).integers(0, self.vocabulary, 4 * self.context + 1).astype(np.uint16)
        self.data.mkdir(parents=True)
        for split in ("train", "val"):
            save_file({"token": torch.from_numpy(self.tokens)}, self.data / f"{split}.safetensors",
                      {"vocabulary": str(self.vocabulary)})

    def spread(self):
        """Values of which every kind matters to the loss."""
        for name, parameter in self.model.named_parameters():
            if name.endswith("bias"):
                torch.nn.init.normal_(parameter, 0, 0.3)
            elif "ln_" in name:
                torch.nn.init.uniform_(parameter, 0.5, 1.5)
            else:
                parameter.mul_(10 if "wte" in name or "wpe" in name else 5)

    def logits(self, model, dtype=torch.float64):
        """Of all windows after each other, and the tokens that follow."""
        model = copy.deepcopy(model).eval().to(dtype)
        tokens = torch.from_numpy(self.tokens.astype(np.int64))
        windows = range(0, len(tokens) - 1, self.context)
        return torch.cat([model(tokens[None, at:at + self.context]).logits[0] for at in windows])[:len(tokens) - 1], tokens[1:]

    def losses(self, model, dtype=torch.float64):
        """The mean loss of each window."""
        logits, labels = self.logits(model, dtype)
        return torch.nn.functional.cross_entropy(logits, labels, reduction="none").double().view(-1, self.context).mean(1)

    def tolerance(self, model):
        return 10 * (self.losses(model, torch.float32) - self.losses(model)).abs().max().item()

    def options(self):
        return ["--data", self.data]


def agree(what, case, model, ours):
    exact, tolerance = case.losses(model).mean().item(), case.tolerance(model)
    expect(f"{what}: a loss of {exact:.7f} differs by {abs(ours - exact):.2g}, {tolerance:.2g} is allowed",
           abs(ours - exact) <= tolerance)


def kind_of(name):
    return name.split(".", 3)[3] if name.startswith("transformer.h.") else name


def check_tolerance(case):
    exact, tolerance = case.losses(case.model).mean(), case.tolerance(case.model)
    state = case.model.state_dict()
    changes = {}
    for kind in sorted({kind_of(name) for name in state} - {"lm_head.weight"}):
        changed = copy.deepcopy(case.model)
        for name, parameter in changed.named_parameters():
            if kind_of(name) == kind:
                parameter.mul_(1.01)
        changes[kind] = abs(case.losses(changed).mean() - exact).item()
    least = min(changes, key=changes.get)
    expect(f"the tolerance {tolerance:.2g} detects a change of 1 % in each of {len(changes)} kinds of tensors, at least by "
           f"{changes[least]:.2g}, of {least}", changes[least] > tolerance)


def check_logits(warpstep, case, path):
    file = case.work / "logits.safetensors"
    warpstep("eval", "gpt2", "--weights", path, *case.options(), "--batch", 2, "--device", "cpu", "--logits", file)
    ours, (exact, labels), (single, _) = load_file(file), case.logits(case.model), case.logits(case.model, torch.float32)
    expect(f"{len(labels)} labels are the tokens that follow", torch.equal(ours["label"], labels))
    error, allowed = (ours["logits"] - exact).abs().max().item(), 10 * (single - exact).abs().max().item()
    expect(f"{exact.numel()} logits up to {exact.abs().max():.4g} differ by {error:.2g}, {allowed:.2g} is allowed",
           ours["logits"].shape == exact.shape and error <= allowed)


def check_folder(warpstep, case):
    folder = case.work / "theirs"
    case.model.save_pretrained(folder)
    path = folder / "model.safetensors"
    check_logits(warpstep, case, path)
    agree("a folder of save_pretrained", case, case.model, warpstep.loss("gpt2", "--weights", path, *case.options()))
    message = warpstep("eval", "gpt2", "--weights", path, *case.options(), "--model-option", "heads=1", code=2)
    expect("other heads than config.json's are refused", "heads=1" in message and
           f"heads={case.model.config.n_head}" in message)


def published(case):
    """As the published file: no prefix, masks as buffers, and the head as a tensor of its own."""
    state = {name.removeprefix("transformer."): t.clone() for name, t in case.model.state_dict().items()}
    for layer in range(case.model.config.n_layer):
        state[f"h.{layer}.attn.bias"] = torch.ones(case.context, case.context).tril()[None, None]
        state[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    return state


def check_names(warpstep, case):
    config = case.model.config
    same = [part for name, value in (("layers", config.n_layer), ("heads", config.n_head), ("width", config.n_embd),
                                     ("context", config.n_positions),
                                     ("gelu", "tanh" if config.activation_function == "gelu_new" else "erf"))
            for part in ("--model-option", f"{name}={value}")]
    path, state = case.work / "published.safetensors", published(case)
    save_file(state, path)
    agree("published names, with masks and the tied head", case, case.model,
          warpstep.loss("gpt2", "--weights", path, *case.options(), *same))
    save_file(state | {"lm_head.weight": state["lm_head.weight"] * 1.001}, path)
    message = warpstep("eval", "gpt2", "--weights", path, *case.options(), *same, code=1)
    expect("a head that is not tied is refused", "lm_head.weight differs from wte.weight" in message)

    nano = {f"_orig_mod.{name}": t.T.contiguous() if name.endswith(TRANSPOSED) else t
            for name, t in case.model.state_dict().items()}
    path = case.work / "nano.safetensors"
    save_file({name: t.clone() for name, t in nano.items()}, path)
    agree("nanoGPT's names and matrices", case, case.model,
          warpstep.loss("gpt2", "--weights", path, *case.options(), *same))
    narrow = case.work / "narrow"
    narrow.mkdir()
    tokens = torch.from_numpy((case.tokens % (case.vocabulary - 8)).astype(np.uint16))
    save_file({"token": tokens}, narrow / "val.safetensors", {"vocabulary": str(case.vocabulary - 8)})
    save_file({"token": tokens}, narrow / "train.safetensors", {"vocabulary": str(case.vocabulary - 8)})
    message = warpstep("eval", "gpt2", "--weights", path, "--data", narrow, *same, code=1)
    expect("a padded vocabulary is refused with the option that fits", f"--model-option vocabulary={case.vocabulary}" in message)
    warpstep.loss("gpt2", "--weights", path, "--data", narrow, *same, "--model-option", f"vocabulary={case.vocabulary}")


def from_pretrained(folder):
    model, info = GPT2LMHeadModel.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
    problems = {key: value for key, value in info.items() if value}
    expect(f"{folder.name}: from_pretrained loads all tensors {problems or ''}", not problems)
    return model.eval()


def check_back(warpstep, case):
    out, folder = case.work / "run", case.work / "ours"
    warpstep("train", "gpt2", "--weights", case.work / "theirs/model.safetensors", *case.options(), "--batch", 2, "--steps", 3,
             "--device", "cpu", "--optimizer", "sgd", "--lr", 0.01, "--out", out)
    warpstep("weights", "export", out, folder)
    model = from_pretrained(folder)
    expect("training moved the weights", (case.losses(model) - case.losses(case.model)).abs().max() > 1e-3)
    agree("three steps later, in transformers", case, model, warpstep.loss(out))
    same = {key: (getattr(model.config, key), getattr(case.model.config, key))
            for key in ("n_layer", "n_head", "n_embd", "n_positions", "vocab_size", "activation_function", "n_inner")}
    expect("config.json is the same", all(a == b for a, b in same.values()))


def check_text(warpstep, work, tokenizer, bias):
    """A run of Warpstep's own, from a text to transformers: tokenizer, weights and loss."""
    text = "the cat sat on the mat, and the dog ate the cat's hat. " * 40
    (work / "text.txt").write_text(text)
    name = f"{tokenizer[0]}-bias-{bias}"
    case, out, folder = work / f"set-{name}", work / f"run-{name}", work / name
    warpstep("data", "tokenize", work / "text.txt", case, "--tokenizer", *tokenizer, "--val-fraction", 0.25)
    warpstep("train", "gpt2-nano", "--data", case, "--model-option", "layers=2", "--model-option", f"bias={bias}", "--sequence",
             16, "--batch", 4, "--steps", 20, "--device", "cpu", "--ema", 0.9, "--out", out)
    warpstep("weights", "export", out, folder)
    model, tokens = from_pretrained(folder), load_file(case / "val.safetensors")["token"].long()
    exported = AutoTokenizer.from_pretrained(folder)
    end = exported.decode(tokens)
    expect(f"{name}: the exported tokenizer has the data's ids of the last {len(end)} characters",
           len(end) == len(text) // 4 and text.endswith(end)
           and exported(end, add_special_tokens=False)["input_ids"] == tokens.tolist())
    total = 0.0
    for at in range(0, len(tokens) - 1, 16):
        labels = tokens[at + 1:at + 17]
        logits = model.double()(tokens[None, at:at + len(labels)]).logits[0]
        total += torch.nn.functional.cross_entropy(logits, labels, reduction="sum").item()
    theirs, ours = total / (len(tokens) - 1), warpstep.loss(out)
    expect(f"{name}: the average of the weights has a loss of {theirs:.7f}, off by {abs(ours - theirs):.2g}",
           abs(ours - theirs) < 2e-6 * theirs)
    state, file = model.state_dict(), load_file(folder / "model.safetensors")
    zeros = [key for key, t in file.items() if key.endswith("bias") and not t.any()]
    expect(f"{name}: {len(zeros)} biases are zeros", (len(zeros) == 2 * 6 + 1) == (bias == "no"))
    again = work / f"again-{name}"
    model.float().save_pretrained(again)
    expect(f"{name}: saved again, Warpstep loads it",
           abs(warpstep.loss("gpt2-nano", "--weights", again / "model.safetensors", "--data", case, "--sequence", 16) - ours)
           < 2e-6 * ours)
    return state


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--size", default="small", choices=SIZES, help="of transformers' random models")
    options = parser.parse_args()
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warpstep = Warpstep(options.program.resolve())
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    for activation in ("gelu_new", "gelu") if options.size == "small" else ("gelu_new",):
        print(f"{options.size}, {activation}:")
        with tempfile.TemporaryDirectory() as folder:
            case = Case(options.size, activation, pathlib.Path(folder))
            if options.size == "small":
                check_tolerance(case)
            check_folder(warpstep, case)
            if options.size == "small":
                check_names(warpstep, case)
            check_back(warpstep, case)
    if options.size == "small":
        print("runs from text:")
        with tempfile.TemporaryDirectory() as folder:
            for tokenizer, bias in ((["char"], "no"), (["bpe", "--vocab-size", 300], "yes")):
                check_text(warpstep, pathlib.Path(folder), tokenizer, bias)


if __name__ == "__main__":
    main()
