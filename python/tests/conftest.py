"""Small data sets and a short run, made with the program of the installed package."""
import subprocess

import numpy as np
import pytest

from warpstep import _program

IMAGES, CLASSES = 53, 4


def run_program(*arguments):
    done = subprocess.run([_program.PATH, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def arrays(tmp_path_factory):
    """(folder, images, labels): pixels that are known, as .npy files."""
    folder = tmp_path_factory.mktemp("arrays")
    random = np.random.default_rng(1)
    images = random.integers(0, 256, (IMAGES, 8, 6, 3), np.uint8)
    labels = np.arange(IMAGES) % CLASSES
    for split in ("train", "test"):
        np.save(folder / f"{split}-images.npy", images)
        np.save(folder / f"{split}-labels.npy", labels)
    return folder, images, labels


@pytest.fixture(scope="session")
def pngs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pngs") / "set"
    run_program("data", "make", folder, "--train", 64, "--test", 32)
    return folder


@pytest.fixture(scope="session")
def trained(tmp_path_factory, pngs):
    """A run of two epochs."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    run_program("train", "mnist_cnn", "--data", pngs, "--batch", 16, "--epochs", 2, "--device", "cpu", "--log-every", 1,
                "--transforms", "flip", "--out", folder)
    return folder


@pytest.fixture(scope="session")
def averaged(tmp_path_factory, pngs):
    """A run of one epoch that averaged its weights."""
    folder = tmp_path_factory.mktemp("averaged") / "run"
    run_program("train", "mnist_cnn", "--data", pngs, "--batch", 16, "--epochs", 1, "--device", "cpu", "--ema", 0.5,
                "--out", folder)
    return folder
