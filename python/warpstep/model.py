"""Trained models on NumPy images."""
from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from warpstep import _warpstep
from warpstep.weights import file_of


class Prediction(NamedTuple):
    """Of each image: the most likely class, and all probabilities."""

    classes: list[str]
    probabilities: np.ndarray  # float32 [images, classes], in the order of Model.classes


class Model:
    """A trained model: a run's best checkpoint, a checkpoint, or a model's name with weights.

        warpstep.Model("runs/first").predict(images)
        warpstep.Model("resnet18", "resnet18.safetensors", classes=1000, transforms="resize=256,centre-crop=224",
                       mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))

    run_or_name    run directory, checkpoint, or a model's name
    weights        safetensors file with other weights, as `--weights`
    classes        number or names; of a run those of its data
    transforms     as `--eval-transforms`; of a run its own
    mean, std      of x / 255 per channel; of a run its own
    image          (height, width, channels) of the images before the transforms; of a run those of its data
    device         "cpu", "cuda", or "auto", the better one that works
    batch          images per step
    threads        of the CPU; 0: all
    allow_missing  keep what the weights file lacks at its initial value
    """

    def __init__(self, run_or_name: str | os.PathLike[str], weights: str | os.PathLike[str] | None = None, *,
                 classes: int | Sequence[str] | None = None, transforms: str | None = None,
                 mean: Sequence[float] | None = None, std: Sequence[float] | None = None,
                 image: tuple[int, int, int] | None = None, device: str = "auto", batch: int = 32, threads: int = 0,
                 allow_missing: bool = False) -> None:
        name = os.fsdecode(run_or_name)
        if name in _warpstep.model_names() and not Path(name).exists():
            if weights is None:
                raise _warpstep.UsageError(f"{name} is a model, not a run; give its weights")
            config: dict[str, Any] = {}
            options: dict[str, Any] = {"model": name}
        else:
            self.checkpoint = file_of(name)
            config = json.loads(_warpstep.checkpoint_info(os.fsencode(self.checkpoint))[1])
            options = config["options"]
        data = config.get("data", {})
        if classes is None:
            classes = data.get("classes", 10)
        self.classes = [str(i) for i in range(classes)] if isinstance(classes, int) else list(classes)
        request = _warpstep.ModelRequest()
        request.model, request.plugin = options["model"], options.get("plugin", "")
        of_data = [int(n) for n in data["image_shape"].split("x")] if "image_shape" in data else []
        request.image = of_data if image is None else list(image)
        if image is not None and (len(request.image) != 3 or min(request.image) < 1):
            raise _warpstep.UsageError(f"image {image!r}: is (height, width, channels), each at least 1")
        if batch < 1 or threads < 0:
            raise _warpstep.UsageError(f"batch {batch} and threads {threads}: batch is at least 1, threads at least 0")
        request.classes = len(self.classes)
        request.transforms = _transforms(options) if transforms is None else transforms
        request.mean = list(options.get("mean", ()) if mean is None else mean)
        request.std = list(options.get("std", ()) if std is None else std)
        request.precision, request.device = options.get("precision", "fp32"), device
        request.weights = os.fsencode(weights if weights is not None else self.checkpoint)
        request.is_checkpoint, request.allow_missing = weights is None, allow_missing
        request.batch, request.threads = batch, threads
        self._model = _warpstep.Model(request)

    def predict(self, images: np.ndarray | Sequence[np.ndarray]) -> Prediction:
        """Of uint8 images [N, height, width, channels], one of them, or a list of images whose sizes differ where the
        transforms resize. Gray images may leave out the channels."""
        probabilities = self._model.predict([_image(image) for image in _each(images)]).numpy()
        return Prediction([self.classes[i] for i in probabilities.argmax(axis=1)] if len(probabilities) else [],
                          probabilities)


def _transforms(options: dict[str, Any]) -> str:
    """Those of the run's evaluation."""
    for key in ("eval_transforms", "transforms"):
        if (text := options.get(key, "auto")) != "auto":
            return "" if text == "none" else text
    return _warpstep.model_transforms(options["model"])


def _each(images: np.ndarray | Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    if not isinstance(images, np.ndarray):
        if not hasattr(images, "__array__") and not hasattr(images, "__array_interface__"):
            return images
        images = np.asarray(images)
    if images.ndim == 2 or images.ndim == 3 and images.shape[2] in (1, 3):
        return [images]
    return images


def _image(image: Any) -> np.ndarray:
    array = np.asarray(image)
    if array.dtype != np.uint8:
        raise _warpstep.UsageError(f"images are uint8, the pixels of a file, not {array.dtype}: they are normalised here")
    if array.ndim not in (2, 3):
        raise _warpstep.ShapeError(f"an image is [height, width, channels], not {list(array.shape)}")
    return np.ascontiguousarray(array if array.ndim == 3 else array[:, :, None])
