"""Trains cifar10cnn in PyTorch as a notebook does: a Dataset that opens a PNG for each item, torch's DataLoader, a loop.

    time python bench/peers/pytorch_notebook.py DATA/train DATA/test --epochs 1 --threads 2

DATA/train and DATA/test are folders of PNGs with labels.pkl (file name -> class). The peer of
    time warpstep train cifar10cnn --data DATA --epochs 1 --seed 1
on the same files: batch 128, Adam with a rate of 1e-4, mean 0.5 and std 0.25 of x / 255, a new order each epoch, the
last partial batch dropped, and an evaluation after each epoch. --style tuned adds what a reader of PyTorch's guides
would: channels_last, fused Adam, no loss.item() in each step. Prints images/s of training, with and without the
evaluations, and from the start of the process to its end.
"""
import argparse
import os
import pathlib
import pickle
import sys
import time

import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"))
import models  # noqa: E402


def seconds_alive():
    """Since the kernel started this process, the interpreter included."""
    with open("/proc/self/stat", encoding="ascii") as file:
        ticks = int(file.read().rsplit(")", 1)[1].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


class PngFolder(Dataset):
    def __init__(self, folder, transform):
        with open(folder / "labels.pkl", "rb") as file:
            self.labels = pickle.load(file)  # one's own files
        self.folder, self.transform = folder, transform
        self.names = sorted(self.labels)

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        name = self.names[index]
        with Image.open(self.folder / name) as image:
            return self.transform(image.convert("RGB")), int(self.labels[name])


def evaluate(model, loader, layout):
    model.eval()
    correct = total = 0
    with torch.no_grad():
        for images, labels in loader:
            correct += (model(images.to(memory_format=layout)).argmax(1) == labels).sum().item()
            total += len(labels)
    model.train()
    return correct / total


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=pathlib.Path)
    parser.add_argument("test", type=pathlib.Path)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--workers", type=int, default=0, help="processes of the DataLoader; 0 is its default")
    parser.add_argument("--style", choices=("plain", "tuned"), default="plain")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    tuned = args.style == "tuned"
    layout = torch.channels_last if tuned else torch.contiguous_format
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.5,) * 3, (0.25,) * 3)])
    train_set, test_set = PngFolder(args.train, transform), PngFolder(args.test, transform)
    train_loader = DataLoader(train_set, args.batch, shuffle=True, drop_last=True, num_workers=args.workers)
    test_loader = DataLoader(test_set, args.batch, num_workers=args.workers)
    model = models.MODELS["cifar10cnn"]().to(memory_format=layout)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=tuned)
    trained = evaluated = 0.0
    for epoch in range(args.epochs):
        begin, running = time.perf_counter(), 0.0
        for images, labels in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(images.to(memory_format=layout)), labels)
            loss.backward()
            optimizer.step()
            running += loss.detach() if tuned else loss.item()
        middle = time.perf_counter()
        accuracy = evaluate(model, test_loader, layout)
        trained, evaluated = trained + middle - begin, evaluated + time.perf_counter() - middle
        print(f"epoch {epoch + 1}: loss {float(running) / len(train_loader):.4f}, test accuracy {accuracy:.4f}", flush=True)
    images = args.epochs * len(train_loader) * args.batch
    alive = seconds_alive()
    print(f"{args.style}, {args.workers} workers, {args.threads} threads, PyTorch {torch.__version__}: {images} images; "
          f"training {trained:.1f} s, {images / trained:.0f} images/s; with evaluations {images / (trained + evaluated):.0f} "
          f"images/s; from the start of the process {alive:.1f} s, {images / alive:.0f} images/s")


if __name__ == "__main__":
    main()
