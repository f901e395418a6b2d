"""Writes transforms.txt: what torchvision makes of a small image, an operation and a magnitude per line.

    python tests/golden/make_transforms.py

A line: the operation (data/transforms/augment.h), its magnitude, height, width, channels, the bytes in hexadecimal.
Any torchvision with transforms.v2.
"""
import math
import pathlib

import torch
import torchvision
from torchvision.transforms.v2 import functional as F


def image(height, width, channels):
    """Byte i of the flat [height, width, channels]: 40 to 219."""
    count = height * width * channels
    flat = torch.tensor([40 + (i * i * 7 + i * 13 + i % 3 * 50 + i % 7) % 180 for i in range(count)], dtype=torch.uint8)
    return flat.reshape(height, width, channels).permute(2, 0, 1).contiguous()


def shear(x, y):
    degrees = [math.degrees(math.atan(x)), math.degrees(math.atan(y))]
    return lambda i: F.affine(i, angle=0.0, translate=[0, 0], scale=1.0, shear=degrees, center=[0, 0])


def translate(x, y):
    return lambda i: F.affine(i, angle=0.0, translate=[x, y], scale=1.0, shear=[0.0, 0.0])


OPERATIONS = {
    "shear_x": (lambda m: shear(m, 0.0), [0.09, -0.3]),
    "shear_y": (lambda m: shear(0.0, m), [0.09, -0.3]),
    "translate_x": (lambda m: translate(m, 0), [3, -5]),
    "translate_y": (lambda m: translate(0, m), [2, -3]),
    "rotate": (lambda m: lambda i: F.rotate(i, m), [9.0, -30.0]),
    "brightness": (lambda m: lambda i: F.adjust_brightness(i, 1 + m), [0.27, -0.9]),
    "saturation": (lambda m: lambda i: F.adjust_saturation(i, 1 + m), [0.27, -0.9]),
    "contrast": (lambda m: lambda i: F.adjust_contrast(i, 1 + m), [0.9, -0.27]),
    "sharpness": (lambda m: lambda i: F.adjust_sharpness(i, 1 + m), [0.9, -0.27]),
    "posterize": (lambda m: lambda i: F.posterize(i, m), [7, 4]),
    "solarize": (lambda m: lambda i: F.solarize(i, m), [178.5, 25.5]),
    "auto_contrast": (lambda m: F.autocontrast, [0]),
    "equalize": (lambda m: F.equalize, [0]),
    "hue": (lambda m: lambda i: F.adjust_hue(i, m), [0.1, -0.5, 0.37]),
}


def main():
    lines = []
    for name, (make, magnitudes) in OPERATIONS.items():
        for magnitude in magnitudes:
            for channels in (3, 1):
                height, width = (23, 24) if name == "equalize" else (11, 12)  # a histogram needs 255 pixels
                made = make(magnitude)(image(height, width, channels))
                values = made.permute(1, 2, 0).reshape(-1).tolist()
                lines.append(f"{name} {magnitude} {height} {width} {channels} {bytes(values).hex()}")
    path = pathlib.Path(__file__).parent / "transforms.txt"
    path.write_text("\n".join(lines) + "\n")
    print(f"{path.name}: {len(lines)} images, torchvision {torchvision.__version__.split('+')[0]}")


if __name__ == "__main__":
    main()
