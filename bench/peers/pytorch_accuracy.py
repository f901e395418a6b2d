"""Measures PyTorch's test accuracy with one of our models on folders of PNGs with labels.pkl.

    python bench/peers/pytorch_accuracy.py DATA/train DATA/test --epochs 8 --seeds 1,2,3 --out rows.json
    python bench/peers/pytorch_accuracy.py DATA/train DATA/test --model airbench --recipe one-cycle --lr 0.1 \\
        --epochs 7 --seeds 1

Images are decoded once into memory; a new order each epoch; the last partial batch is dropped; batch
128; PyTorch's own initial weights from the seed. Recipes: adam, without augmentation; one-cycle, which
is SGD with Nesterov momentum 0.9, weight decay 5e-4, label smoothing 0.1, a one-cycle rate, images
padded by 4, cropped and flipped, as
    warpstep train MODEL --optimizer sgd --momentum 0.9 --nesterov --weight-decay 5e-4 --lr-schedule one-cycle
        --label-smoothing 0.1 --transforms random-crop=32:pad=4,flip,normalize --lr LR
"""
import argparse
import json
import pathlib
import pickle
import statistics
import sys
import time

import numpy as np
import torch
from PIL import Image

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"))
import models  # noqa: E402


class PlainUnpickler(pickle.Unpickler):
    """Dicts of names and numbers need no classes, and a pickle that wants one is refused."""

    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"labels.pkl asks for {module}.{name}")


def load(folder, limit):
    """uint8 images [N, H, W, 3] in memory and labels [N], in the order of the file names."""
    with open(folder / "labels.pkl", "rb") as file:
        labels = PlainUnpickler(file).load()
    names = sorted(labels)
    if limit:  # spread over the folder, so that every class is met
        names = names[::max(1, len(names) // limit)][:limit]
    pixels = np.stack([np.asarray(Image.open(folder / name).convert("RGB")) for name in names])
    return pixels, torch.tensor([int(labels[name]) for name in names])


class Batches:
    """Float images [n, 3, H, W] of rows: as they are, or padded, cropped and flipped while they are bytes."""

    def __init__(self, pixels, args, augment):
        self.args, self.size, self.augment = args, pixels.shape[1], augment
        if augment:
            pixels = np.pad(pixels, ((0, 0), (4, 4), (4, 4), (0, 0)))
            self.pixels = torch.from_numpy(pixels).to(args.device)
            self.mean = torch.tensor(args.mean, device=args.device) * 255
            self.scale = 1 / (torch.tensor(args.std, device=args.device) * 255)
        else:
            self.images = models.normalise(pixels, args.mean, args.std).to(args.device)

    def __call__(self, rows):
        if not self.augment:
            return self.images[rows]
        n, span = len(rows), torch.arange(self.size, device=rows.device)
        top, left = (torch.randint(9, (n, 1), device=rows.device) + span for _ in range(2))
        left = torch.where(torch.rand(n, 1, device=rows.device) < 0.5, left, left.flip(1))
        crops = self.pixels[rows[:, None, None], top[:, :, None], left[:, None, :]]
        return ((crops - self.mean) * self.scale).permute(0, 3, 1, 2)  # channels last in memory


def optimiser(args, model, steps):
    if args.recipe == "adam":
        return torch.optim.Adam(model.parameters(), lr=args.lr, fused=True), None
    sgd = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, nesterov=True, weight_decay=5e-4,
                          fused=True)
    return sgd, torch.optim.lr_scheduler.OneCycleLR(sgd, args.lr, total_steps=steps, cycle_momentum=False)


def accuracy(model, images, labels, batch=1000):
    model.eval()
    with torch.inference_mode():
        correct = 0
        for rows in torch.arange(len(labels), device=labels.device).split(batch):
            correct += int((model(images(rows)).argmax(1) == labels[rows]).sum())
    model.train()
    return correct / len(labels)


def train(args, seed, train_set, test_set):
    """Test accuracies: of the untrained model, then after each epoch."""
    torch.manual_seed(seed)
    model = models.MODELS[args.model]().to(args.device).to(memory_format=torch.channels_last)
    images, labels = train_set
    optimizer, schedule = optimiser(args, model, args.epochs * (len(labels) // args.batch))
    smoothing = 0.0 if schedule is None else 0.1
    found = [accuracy(model, *test_set)]
    for epoch in range(args.epochs):
        begin, order, losses = time.perf_counter(), torch.randperm(len(labels)), []
        for first in range(0, len(labels) - args.batch + 1, args.batch):
            rows = order[first:first + args.batch].to(labels.device)
            loss = torch.nn.functional.cross_entropy(model(images(rows)), labels[rows],
                                                     label_smoothing=smoothing)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            if schedule is not None:
                schedule.step()
            losses.append(loss.detach())
        trained = time.perf_counter() - begin
        found.append(accuracy(model, *test_set))
        print(f"seed {seed} epoch {epoch + 1}: test accuracy {found[-1]:.4f}, train loss "
              f"{torch.stack(losses).mean().item():.4f}, {trained:.1f} s, "
              f"{time.perf_counter() - begin:.1f} s with the test", flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=pathlib.Path)
    parser.add_argument("test", type=pathlib.Path)
    parser.add_argument("--model", choices=sorted(models.MODELS), default="cifar10cnn")
    parser.add_argument("--recipe", choices=("adam", "one-cycle"), default="adam")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seeds", type=lambda text: [int(s) for s in text.split(",")], default=[1, 2, 3])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--mean", type=float, nargs=3, default=[0.5, 0.5, 0.5], help="of x / 255")
    parser.add_argument("--std", type=float, nargs=3, default=[0.25, 0.25, 0.25])
    parser.add_argument("--limit", type=int, help="images of each folder")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=pathlib.Path, help="JSON with every figure")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    sets = []
    for folder, augment in ((args.train, args.recipe == "one-cycle"), (args.test, False)):
        pixels, labels = load(folder, args.limit)
        sets.append((Batches(pixels, args, augment), labels.to(args.device)))
    if len(sets[0][1]) < args.batch:
        parser.error(f"{args.train}: {len(sets[0][1])} images, and a batch is {args.batch}")
    print(f"{len(sets[0][1])} training and {len(sets[1][1])} test images, PyTorch {torch.__version__}, "
          f"{args.threads} threads")
    rows = {seed: train(args, seed, *sets) for seed in args.seeds}
    print("| seed | accuracy untrained, then after each epoch |\n|---|---|")
    for seed, row in rows.items():
        print(f"| {seed} | {' '.join(f'{a:.4f}' for a in row)} |")
    last = [row[-1] for row in rows.values()]
    print(f"mean of the last {statistics.mean(last):.4f}, from {min(last):.4f} to {max(last):.4f}")
    if args.out:
        settings = {k: str(v) if isinstance(v, pathlib.Path) else v for k, v in vars(args).items()}
        result = {"settings": settings, "torch": torch.__version__, "training_images": len(sets[0][1]),
                  "test_images": len(sets[1][1]), "accuracy": rows, "mean_last": statistics.mean(last)}
        args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
