"""GPT-2 in PyTorch with the names and shapes of the Hugging Face hub's files, and the settings of the engine's model."""
import math

import torch
from torch import nn

SETTINGS = {"layers": 12, "heads": 12, "width": 768, "context": 1024, "vocabulary": 50257, "gelu": "tanh", "bias": "yes"}
NAMED = {
    "gpt2": {},
    "gpt2-medium": {"layers": 24, "heads": 16, "width": 1024},
    "gpt2-nano": {"layers": 4, "heads": 4, "width": 128, "context": 64, "gelu": "erf", "bias": "no"},
}
DEVIATION = 0.02  # of the normal distribution that weights begin with


class Projection(nn.Module):
    """A linear layer whose weight is stored [in, out]."""

    def __init__(self, inputs, outputs, bias, deviation):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.empty(outputs)) if bias else None
        self.deviation = deviation

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        y = rows @ self.weight if self.bias is None else torch.addmm(self.bias, rows, self.weight)
        return y.reshape(*x.shape[:-1], -1)


class Attention(nn.Module):
    def __init__(self, width, heads, bias, joins):
        super().__init__()
        self.heads = heads
        self.c_attn = Projection(width, 3 * width, bias, DEVIATION)
        self.c_proj = Projection(width, width, bias, joins)

    def forward(self, x):
        batch, sequence, width = x.shape
        q, k, v = (part.reshape(batch, sequence, self.heads, width // self.heads).transpose(1, 2)
                   for part in self.c_attn(x).split(width, dim=2))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(batch, sequence, width))


class Mlp(nn.Module):
    def __init__(self, width, bias, joins, gelu):
        super().__init__()
        self.c_fc = Projection(width, 4 * width, bias, DEVIATION)
        self.c_proj = Projection(4 * width, width, bias, joins)
        self.approximate = "tanh" if gelu == "tanh" else "none"

    def forward(self, x):
        return self.c_proj(nn.functional.gelu(self.c_fc(x), approximate=self.approximate))


class Block(nn.Module):
    def __init__(self, width, heads, bias, joins, gelu):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, bias=bias)
        self.attn = Attention(width, heads, bias, joins)
        self.ln_2 = nn.LayerNorm(width, bias=bias)
        self.mlp = Mlp(width, bias, joins, gelu)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt2(nn.Module):
    """Tokens [batch, sequence] -> logits [batch * sequence, vocabulary]; the head is the table of tokens."""

    def __init__(self, layers, heads, width, context, vocabulary, gelu, bias):
        super().__init__()
        self.vocabulary, self.sequence = vocabulary, context
        bias, joins = bias == "yes", DEVIATION / math.sqrt(2 * layers)
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(context, width)
        self.wte.deviation = self.wpe.deviation = DEVIATION
        self.h = nn.ModuleList(Block(width, heads, bias, joins, gelu) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width, bias=bias)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight[:tokens.shape[1]]
        for block in self.h:
            x = block(x)
        return nn.functional.linear(self.ln_f(x).reshape(-1, x.shape[-1]), self.wte.weight)


def make(name, assigned=()):
    """The named model with settings as in `--model-option`: "layers=2"."""
    settings = SETTINGS | NAMED[name]
    for assignment in assigned:
        key, value = assignment.split("=")
        settings[key] = type(SETTINGS[key])(value)  # KeyError: no such setting
    return Gpt2(**settings)
