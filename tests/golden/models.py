"""The models of the goldens in PyTorch, from the engine's own weights and data."""
import math

import numpy as np
import torch
from torch import nn

import gpt2
import philox


class Cifar10Cnn(nn.Module):
    image = (32, 32, 3)
    mean, std = (0.5, 0.4375, 0.5625), (0.25, 0.3125, 0.375)

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 32, 3, padding=1)
        self.conv3 = nn.Conv2d(32, 64, 3, padding=1)
        self.conv4 = nn.Conv2d(64, 128, 3, padding=1)
        self.fc1 = nn.Linear(2048, 2048)
        self.fc2 = nn.Linear(2048, 10)

    def forward(self, x):
        relu, pool = torch.relu, nn.functional.max_pool2d
        x = relu(self.conv1(x))
        x = pool(relu(self.conv2(x)), 2)
        x = pool(relu(self.conv3(x)), 2)
        x = pool(relu(self.conv4(x)), 2)
        return self.fc2(relu(self.fc1(x.flatten(1))))


class Mlp(nn.Module):
    image = (28, 28, 1)
    mean, std = (0.5,), (0.25,)

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 512)
        self.fc2 = nn.Linear(512, 512)
        self.fc3 = nn.Linear(512, 10)

    def forward(self, x):
        x = torch.relu(self.fc1(x.flatten(1)))
        return self.fc3(torch.relu(self.fc2(x)))


class MnistCnn(nn.Module):
    image = (28, 28, 1)
    mean, std = (0.5,), (0.25,)

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3)
        self.conv2 = nn.Conv2d(16, 32, 3)
        self.bn = nn.BatchNorm2d(32)
        self.fc1 = nn.Linear(512, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = torch.relu(self.conv1(x))
        x = torch.relu(self.bn(self.conv2(x)))
        x = nn.functional.adaptive_avg_pool2d(x, (4, 4))
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


class ConvBnRelu(nn.Module):
    def __init__(self, channels, out):
        super().__init__()
        self.conv = nn.Conv2d(channels, out, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(out)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)))


class Resnet9(nn.Module):
    image = (32, 32, 3)
    mean, std = (0.5, 0.4375, 0.5625), (0.25, 0.3125, 0.375)

    def __init__(self):
        super().__init__()
        twice = lambda channels: nn.Sequential(*[ConvBnRelu(channels, channels) for _ in range(2)])
        self.prep = ConvBnRelu(3, 64)
        self.layer1 = ConvBnRelu(64, 128)
        self.residual1 = twice(128)
        self.layer2 = ConvBnRelu(128, 256)
        self.layer3 = ConvBnRelu(256, 512)
        self.residual3 = twice(512)
        self.linear = nn.Linear(512, 10, bias=False)

    def forward(self, x):
        pool = nn.functional.max_pool2d
        x = pool(self.layer1(self.prep(x)), 2)
        x = self.residual1(x) + x
        x = pool(self.layer2(x), 2)
        x = pool(self.layer3(x), 2)
        x = self.residual3(x) + x
        return self.linear(pool(x, 4).flatten(1))


class AirbenchBlock(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)

    def forward(self, x):
        x = torch.relu(self.norm1(nn.functional.max_pool2d(self.conv1(x), 2)))
        return torch.relu(self.norm2(self.conv2(x)))


class Airbench(nn.Module):
    image = (32, 32, 3)
    mean, std = (0.5, 0.4375, 0.5625), (0.25, 0.3125, 0.375)

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 24, 2)
        self.block1 = AirbenchBlock(24, 64)
        self.block2 = AirbenchBlock(64, 256)
        self.block3 = AirbenchBlock(256, 256)
        self.head = nn.Linear(256, 10, bias=False)

    def forward(self, x):
        x = self.block3(self.block2(self.block1(torch.relu(self.stem(x)))))
        return self.head(nn.functional.max_pool2d(x, 3).flatten(1))


class Toynet(nn.Module):
    image = (256, 256, 3)
    mean, std = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 30, 3, padding=1)
        for layer in range(2, 10):
            setattr(self, f"conv{layer}", nn.Conv2d(30, 30, 3, padding=1))
        self.conv10 = nn.Conv2d(30, 10, 1)

    def forward(self, x):
        x = torch.relu(self.conv1(x))
        for layer in range(2, 10):
            x = nn.functional.max_pool2d(torch.relu(getattr(self, f"conv{layer}")(x)), 2)
        return self.conv10(x).flatten(1)


def torchvision_resnet(name, residual_norm, norm_bias):
    """A class of ours around torchvision's function: small images, as the goldens are made on CPUs.

    residual_norm is the norm whose output is added to a block's input. Its weights start at 1/4, and biases at
    plus and minus norm_bias times the weight in turn, which conditions the network (README.md).
    """
    def make():
        import torchvision  # only these three models need it
        model = getattr(torchvision.models, name)(num_classes=10)
        for field in ("image", "mean", "std", "start"):
            setattr(model, field, getattr(make, field))
        model.fan_out_init = True
        return model
    make.start = lambda label: norm_start(label, residual_norm, norm_bias)
    make.image = (48, 48, 3)
    make.mean, make.std = Resnet9.mean, Resnet9.std
    return make


def norm_start(label, residual_norm, bias):
    """What a norm's parameter starts with, repeated to its end; None of another layer."""
    layer, _, field = label.rpartition(".")
    if not ("bn" in layer or layer.endswith("downsample.1")):
        return None
    weight = 0.25 if layer.endswith("." + residual_norm) else 1.0
    return [weight] if field == "weight" else [bias * weight, -bias * weight]


MODELS = {"cifar10cnn": Cifar10Cnn, "mlp": Mlp, "mnist_cnn": MnistCnn, "airbench": Airbench,
          "resnet9": Resnet9, "toynet": Toynet,
          "resnet18": torchvision_resnet("resnet18", "bn2", 1.0),
          "resnet34": torchvision_resnet("resnet34", "bn2", 1.0),
          "resnet50": torchvision_resnet("resnet50", "bn3", 2.0)}


def make(name, settings=()):
    return gpt2.make(name, settings) if name in gpt2.NAMED else MODELS[name]()


def start_of(model, label):
    """The numbers that replace a parameter's initial values, in turn; None where those stay."""
    rule = getattr(model, "start", None)
    return rule(label) if rule else None


def set_start(model):
    with torch.no_grad():
        for label, value in model.named_parameters():
            if start := start_of(model, label):
                value.copy_(torch.tensor(start).repeat(-(-value.numel() // len(start)))[:value.numel()])


def build(name, seed, settings=()):
    """The model with the engine's initial weights, float32, contiguous."""
    model = make(name, settings)
    number = 0
    with torch.no_grad():
        for module in model.modules():
            for value in module.parameters(recurse=False):
                shape = tuple(value.shape)
                if isinstance(module, (nn.BatchNorm2d, nn.LayerNorm)):
                    value.fill_(1.0 if value is module.weight else 0.0)
                elif hasattr(module, "deviation"):
                    value.copy_(torch.from_numpy(philox.normal_parameter(
                        seed, number, shape, module.deviation if value is module.weight else 0.0)))
                elif isinstance(module, nn.Conv2d) and getattr(model, "fan_out_init", False):
                    deviation = math.sqrt(2 / (shape[0] * math.prod(shape[2:])))
                    value.copy_(torch.from_numpy(
                        philox.normal_parameter(seed, number, shape, deviation)))
                else:  # a bias shares its weight's fan-in
                    fan_in = math.prod(module.weight.shape[1:])
                    value.copy_(torch.from_numpy(philox.parameter(seed, number, shape, fan_in)))
                number += 1
    return model


def normalise(pixels, mean, std, dtype=torch.float32):
    """uint8 [N, H, W, C] -> [N, C, H, W]: x * scale + shift, both rounded to float32 once."""
    scale = torch.tensor([np.float32(1.0 / (255.0 * s)) for s in std]).to(dtype)
    shift = torch.tensor([np.float32(-m / s) for m, s in zip(mean, std)]).to(dtype)
    y = torch.from_numpy(pixels).to(dtype) * scale + shift
    return y.permute(0, 3, 1, 2).contiguous()


def batch(model, seed, step, size, dtype=torch.float32):
    """Images and labels of a step, or tokens and those that follow, for the model's class or object."""
    if isinstance(model, gpt2.Gpt2):
        tokens, label = philox.text(seed, step, size, model.sequence, model.vocabulary)
        return torch.from_numpy(tokens), torch.from_numpy(label).reshape(-1)
    label = philox.labels(seed, step, size)
    pixels = philox.images(seed, step, label, *model.image)
    return normalise(pixels, model.mean, model.std, dtype), torch.from_numpy(label)
