"""The models of the goldens in PyTorch, from the engine's own weights and data."""
import math

import numpy as np
import torch
from torch import nn

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


MODELS = {"cifar10cnn": Cifar10Cnn, "mlp": Mlp}


def build(name, seed):
    """The model with the engine's initial weights, float32, contiguous."""
    model = MODELS[name]()
    fan_in = 1
    with torch.no_grad():
        for number, value in enumerate(model.parameters()):
            if value.dim() > 1:  # a weight; the bias after it shares its fan-in
                fan_in = math.prod(value.shape[1:])
            value.copy_(torch.from_numpy(philox.parameter(seed, number, tuple(value.shape), fan_in)))
    return model


def normalise(pixels, mean, std, dtype=torch.float32):
    """uint8 [N, H, W, C] -> [N, C, H, W]: x * scale + shift, both rounded to float32 once."""
    scale = torch.tensor([np.float32(1.0 / (255.0 * s)) for s in std]).to(dtype)
    shift = torch.tensor([np.float32(-m / s) for m, s in zip(mean, std)]).to(dtype)
    y = torch.from_numpy(pixels).to(dtype) * scale + shift
    return y.permute(0, 3, 1, 2).contiguous()


def batch(model, seed, step, size, dtype=torch.float32):
    """Images and labels of a step, for the model's class or object."""
    label = philox.labels(seed, step, size)
    pixels = philox.images(seed, step, label, *model.image)
    return normalise(pixels, model.mean, model.std, dtype), torch.from_numpy(label)
