#!/usr/bin/env python3
"""Repeats the test of llm.c's GPT-2: its debug state's logits, loss and gradients, and ten AdamW steps on that batch.

Run by hand, in a separate environment:

    python3 -m venv peers && peers/bin/pip install torch transformers numpy
    peers/bin/python tests/peers/llmc_debug_state.py build/release/bin/warpstep

It makes both files that llm.c's train_gpt2.py writes, gpt2_124M.bin (weights, version 3) and gpt2_124M_debug_state.bin
(version 2), of a small random model of transformers, and then reads only them; --weights and --state take others, as those
of llm.c. Weights and batch go into safetensors files. Then `warpstep eval --logits` must give the state's logits and loss, one
step of SGD its gradients, and ten steps of AdamW (rate 1e-4, betas 0.9 and 0.999, decay 0.01 of all parameters, as in llm.c's
test) the losses that PyTorch has from the same weights. Allowed is ten times PyTorch's own float32 error, measured against
float64. Exits with 1 at the first difference.
"""
import argparse
import json
import os
import pathlib
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from huggingface_gpt2 import TRANSPOSED, Warpstep, expect

STATE, WEIGHTS = 20240327, 20240326  # the first words of the files
STEPS = 10
BLOCK = ("ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight", "attn.c_proj.bias",
         "ln_2.weight", "ln_2.bias", "mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj.weight", "mlp.c_proj.bias")


def names(layers):
    """In the order of the files: each kind of a block's tensors for all layers."""
    return ["wte.weight", "wpe.weight", *(f"h.{layer}.{kind}" for kind in BLOCK for layer in range(layers)),
            "ln_f.weight", "ln_f.bias"]


def padded(vocabulary):
    return (vocabulary + 127) // 128 * 128


def header(*words):
    head = np.zeros(256, np.int32)
    head[:len(words)] = words
    return head.tobytes()


def flat(tensors, layers):
    """Linear weights as [out, in], transformers' are [in, out]; rows of zeros fill the table up."""
    for name in names(layers):
        tensor = tensors[name].detach().float()
        if name.endswith(TRANSPOSED):
            tensor = tensor.T
        if name == "wte.weight":
            tensor = torch.nn.functional.pad(tensor, (0, 0, 0, padded(len(tensor)) - len(tensor)))
        yield tensor.contiguous().numpy().tobytes()


def unflat(data, config):
    """The tensors of `data`, f32, as transformers has them, and how many bytes they take."""
    model, at, tensors = GPT2LMHeadModel(config), 0, {}
    shapes = {name.removeprefix("transformer."): tuple(p.shape) for name, p in model.named_parameters()}
    for name in names(config.n_layer):
        shape = shapes[name]
        if name.endswith(TRANSPOSED):
            shape = shape[::-1]
        stored = (padded(shape[0]), shape[1]) if name == "wte.weight" else shape
        tensor = torch.from_numpy(np.frombuffer(data, np.float32, int(np.prod(stored)), at).reshape(stored).copy())
        at += tensor.numel() * 4
        tensors[name] = (tensor.T if name.endswith(TRANSPOSED) else tensor[:shape[0]]).contiguous()
    return tensors, at


def make(weights, state):
    """Both files, of a random model and batch."""
    torch.manual_seed(11)
    config = GPT2Config(n_layer=3, n_head=4, n_embd=64, n_positions=64, vocab_size=300)
    model = GPT2LMHeadModel(config).eval()
    for name, parameter in model.named_parameters():  # no gain is one and no bias zero
        parameter.data += torch.randn_like(parameter) * 0.02
    tokens = torch.randint(0, config.vocab_size, (4 * 64 + 1,))
    x, y = tokens[:-1].view(4, 64), tokens[1:].view(4, 64)
    logits = model(x).logits
    loss = torch.nn.functional.cross_entropy(logits.view(-1, config.vocab_size), y.reshape(-1))
    loss.backward()
    tensors = {name.removeprefix("transformer."): p for name, p in model.named_parameters()}
    weights.write_bytes(header(WEIGHTS, 3, config.n_positions, config.vocab_size, config.n_layer, config.n_head, config.n_embd,
                               padded(config.vocab_size)) + b"".join(flat(tensors, config.n_layer)))
    state.write_bytes(b"".join([
        header(STATE, 2, 4, 64), x.int().numpy().tobytes(), y.int().contiguous().numpy().tobytes(),
        logits.detach().numpy().tobytes(), loss.detach().numpy().tobytes(),
        *flat({name: p.grad for name, p in tensors.items()}, config.n_layer)]))


def read_weights(path):
    data = path.read_bytes()
    head = np.frombuffer(data, np.int32, 256)
    if head[0] != WEIGHTS or head[1] != 3:
        sys.exit(f"{path}: its first words are {head[0]} {head[1]}, those of llm.c's float32 weights {WEIGHTS} 3")
    context, vocabulary, layers, heads, width, rows = (int(word) for word in head[2:8])
    if rows != padded(vocabulary):
        sys.exit(f"{path}: {vocabulary} tokens are padded to {rows} rows, not to {padded(vocabulary)}")
    config = GPT2Config(n_layer=layers, n_head=heads, n_embd=width, n_positions=context, vocab_size=vocabulary)
    tensors, used = unflat(data[1024:], config)
    expect(f"{path.name}: {layers} layers of {width} fill the file", used + 1024 == len(data))
    return config, tensors


def read_state(path, config):
    data = path.read_bytes()
    head = np.frombuffer(data, np.int32, 256)
    if head[0] != STATE or head[1] != 2:
        sys.exit(f"{path}: its first words are {head[0]} {head[1]}, those of llm.c's debug state {STATE} 2")
    batch, sequence = int(head[2]), int(head[3])
    rows, at = batch * sequence, 1024
    parts = []
    for dtype, count in ((np.int32, rows), (np.int32, rows), (np.float32, rows * config.vocab_size), (np.float32, 1)):
        parts.append(np.frombuffer(data, dtype, count, at))
        at += 4 * count
    gradients, used = unflat(data[at:], config)
    expect(f"{path.name}: {batch} sequences of {sequence} tokens fill the file", at + used == len(data))
    x, y, logits, loss = parts
    if not np.array_equal(x[1:], y[:-1]):
        sys.exit(f"{path}: its sequences do not follow each other in a text")
    return batch, sequence, np.append(x, y[-1]), torch.from_numpy(logits.reshape(rows, -1).copy()), float(loss[0]), gradients


def pytorch(config, tensors, batch, tokens, dtype):
    """Logits and losses of ten AdamW steps, and the gradients of the first."""
    torch.manual_seed(0)
    model = GPT2LMHeadModel(config).eval()
    model.load_state_dict({f"transformer.{name}": t for name, t in tensors.items()}
                          | {"lm_head.weight": tensors["wte.weight"]})
    model = model.to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    x, y = (torch.from_numpy(part.astype(np.int64)) for part in (tokens[:-1], tokens[1:]))
    losses, first = [], None
    for _ in range(STEPS):
        logits = model(x.view(batch, -1)).logits.view(len(x), -1)
        loss = torch.nn.functional.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        first = first or (logits.detach(), {name.removeprefix("transformer."): p.grad.clone()
                                            for name, p in model.named_parameters()})
        optimizer.step()
        losses.append(loss.item())
    return losses, *first


def steps(warpstep, folder, subject, batch, count, *optimizer):
    """The losses of a run of `count` steps on the same batch."""
    warpstep("train", "gpt2", *subject, "--batch", batch, "--windows", "sequential", "--steps", count, "--device", "cpu",
             "--log-every", 1, "--out", folder, "--lr-schedule", "constant", *optimizer)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line["kind"] == "step"]


def compare(warpstep, work, weights, state):
    config, tensors = read_weights(weights)
    batch, sequence, tokens, logits, loss, gradients = read_state(state, config)
    exact, theirs = (pytorch(config, tensors, batch, tokens, dtype) for dtype in (torch.float64, torch.float32))
    data, file = work / "data", work / "model.safetensors"
    data.mkdir()
    for split in ("train", "val"):
        save_file({"token": torch.from_numpy(tokens.astype(np.uint16))}, data / f"{split}.safetensors",
                  {"vocabulary": str(config.vocab_size)})
    save_file(tensors, file, {"format": "pt"})
    subject = ["--weights", file, "--data", data, "--sequence", sequence]
    for name in ("layers", "heads", "width", "context", "vocabulary"):
        key = {"layers": "n_layer", "heads": "n_head", "width": "n_embd", "context": "n_positions",
               "vocabulary": "vocab_size"}[name]
        subject += ["--model-option", f"{name}={getattr(config, key)}"]

    out = work / "logits.safetensors"
    ours = json.loads(warpstep("eval", "gpt2", *subject, "--batch", batch, "--device", "cpu", "--json", "--logits", out))["loss"]
    error, allowed = (load_file(out)["logits"] - logits).abs().max().item(), 10 * (theirs[1] - exact[1]).abs().max().item()
    expect(f"{logits.numel()} logits of the state differ by {error:.2g}, {allowed:.2g} is allowed", error <= allowed)
    allowed = max(10 * max(abs(a - b) for a, b in zip(theirs[0], exact[0])), 2 ** -22 * loss)
    expect(f"its loss of {loss:.7f} differs by {abs(ours - loss):.2g}, {allowed:.2g} is allowed", abs(ours - loss) <= allowed)

    steps(warpstep, work / "sgd", subject, batch, 1, "--optimizer", "sgd", "--lr", 1)
    after = load_file(max((work / "sgd").glob("checkpoint-*.safetensors")))
    for name, before in tensors.items():
        rounding = before.abs().max().item() * 2 ** -23  # of the subtraction
        allowed = 10 * (theirs[2][name] - exact[2][name]).abs().max().item() + rounding
        error = (before - after[name] - gradients[name]).abs().max().item()
        if error > allowed or gradients[name].abs().max().item() < 10 * allowed:
            expect(f"the gradient of {name}, up to {gradients[name].abs().max():.2g}, differs by {error:.2g}, "
                   f"{allowed:.2g} is allowed", False)
    expect(f"{len(tensors)} gradients of the state agree", True)

    ours = steps(warpstep, work / "adamw", subject, batch, STEPS, "--optimizer", "adamw", "--lr", 1e-4, "--betas", 0.9, 0.999,
                 "--weight-decay", 0.01, "--decay", "all")
    allowed = max(10 * max(abs(a - b) for a, b in zip(theirs[0], exact[0])), 2 ** -22 * loss)
    worst = max(abs(a - b) for a, b in zip(ours, exact[0]))
    expect(f"{len(ours)} losses of AdamW from {ours[0]:.6f} to {ours[-1]:.6f} differ by {worst:.2g}, {allowed:.2g} is allowed",
           len(ours) == STEPS and worst <= allowed)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--weights", type=pathlib.Path, help="of llm.c, as gpt2_124M.bin")
    parser.add_argument("--state", type=pathlib.Path, help="of llm.c, as gpt2_124M_debug_state.bin")
    options = parser.parse_args()
    if (options.weights is None) != (options.state is None):
        parser.error("--weights and --state go together")
    transformers.logging.set_verbosity_error()
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        weights, state = options.weights or work / "gpt2.bin", options.state or work / "gpt2_debug_state.bin"
        if not options.weights:
            make(weights, state)
        compare(Warpstep(options.program.resolve()), work, weights, state)


if __name__ == "__main__":
    main()
