"""Trained models on NumPy images."""
from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from warpstep import _warpstep
from warpstep._arguments import assign, json_object, path_bytes, per_channel, text
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
    weights        safetensors file with other weights, as `--weights`; a warning says what does not fit or is not finite
    classes        number or names; of a run those of its data
    transforms     as `--eval-transforms`; of a run its own
    mean, std      of x / 255 per channel; of a run its own
    image          (height, width, channels) of the images before the transforms; of a run those of its data
    device         "cpu", "cuda", or "auto", the better one that works
    batch          images per step
    threads        of the CPU; 0: all
    precision      "fp32", "tf32", "bf16" or "fp16"; of a run its own. A CPU has no fp16
    allow_missing  keep what the weights file lacks at its initial value
    """

    def __init__(self, run_or_name: str | os.PathLike[str], weights: str | os.PathLike[str] | None = None, *,
                 classes: int | Sequence[str] | None = None, transforms: str | None = None,
                 mean: Sequence[float] | None = None, std: Sequence[float] | None = None,
                 image: tuple[int, int, int] | None = None, device: str = "auto", batch: int = 32, threads: int = 0,
                 precision: str | None = None, allow_missing: bool = False) -> None:
        name = os.fsdecode(path_bytes("run_or_name", run_or_name, "a run or a checkpoint"))
        other = None if weights is None else path_bytes("weights", weights, "a safetensors file")
        if name in _warpstep.model_names() and not os.path.exists(name):
            if other is None:
                raise _warpstep.UsageError(f"{name} is a model, not a run; give its weights")
            of_run = _arguments_of({"options": {"model": name}})
        else:
            _require_path(name)
            self.checkpoint = file_of(name)
            config = json_object(_warpstep.checkpoint_info(os.fsencode(self.checkpoint))[1], self.checkpoint)
            try:
                of_run = _arguments_of(config)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise _warpstep.DataError(f"{self.checkpoint}: its configuration is broken: {error!r}") from None
        self.classes = of_run["classes"] if classes is None else _names(classes)
        if transforms is None:
            transforms = of_run["transforms"]
        request = _warpstep.ModelRequest()
        assign(request, "Model", model=of_run["model"], plugin=of_run["plugin"],
               image=of_run["image"] if image is None else _extents(image), classes=len(self.classes),
               transforms=transforms,
               of_statistics=of_run["transforms"] if mean is None or std is None else transforms,
               mean=of_run["mean"] if mean is None else per_channel("mean", mean),
               std=of_run["std"] if std is None else per_channel("std", std),
               precision=of_run["precision"] if precision is None else precision, device=device,
               weights=os.fsencode(self.checkpoint) if other is None else other, is_checkpoint=other is None,
               allow_missing=allow_missing, batch=batch, threads=threads)
        for argument, value, least, most in (("batch", batch, 1, 1 << 20), ("threads", threads, 0, 4096)):
            if not least <= value <= most:  # as for the options of these names
                raise _warpstep.UsageError(f"{argument} {value}: must be from {least} to {most}")
        self._model = _warpstep.Model(request)
        if warning := os.fsdecode(self._model.load_warning):
            warnings.warn(warning, stacklevel=2)

    def predict(self, images: np.ndarray | Sequence[np.ndarray]) -> Prediction:
        """Of uint8 images [N, height, width, channels], one of them, or a list of images whose sizes differ where the
        transforms resize. Gray images may leave out the channels. NumericError if a model's output is not finite."""
        try:
            each = iter(_each(images))
        except TypeError:
            raise _warpstep.UsageError(f"images {images!r}: give uint8 arrays [height, width, channels], one or "
                                       "more") from None
        probabilities = self._model.predict([_image(image) for image in each]).numpy()
        return Prediction([self.classes[i] for i in probabilities.argmax(axis=1)] if len(probabilities) else [],
                          probabilities)


def _require_path(name: str) -> None:
    """A name that is no path may be a model's with a typo: an error with the models' names."""
    if os.path.exists(name) or os.sep in name or name.endswith(".safetensors"):
        return
    try:
        _warpstep.model_transforms(os.fsencode(name).decode(errors="replace"))
    except _warpstep.UsageError as error:
        raise _warpstep.UsageError(f"{name}: there is no such run or file, and {error}") from None


def _arguments_of(config: dict[str, Any]) -> dict[str, Any]:
    """What a run's configuration says instead of arguments."""
    options, data = config["options"], config.get("data", {})
    texts = {"model": options["model"], "plugin": options.get("plugin", ""), "transforms": _transforms(options),
             "precision": options.get("precision", "fp32")}
    return {**{key: text(key, value) for key, value in texts.items()}, "classes": _names(data.get("classes", 10)),
            "image": _extents([int(n) for n in data["image_shape"].split("x")]) if "image_shape" in data else [],
            "mean": per_channel("mean", options.get("mean")), "std": per_channel("std", options.get("std"))}


def _names(classes: Any) -> list[str]:
    try:
        count = operator.index(classes)
        if count > 1 << 20:
            raise _warpstep.UsageError(f"classes {classes!r}: at most 1048576 are possible")
        return [str(i) for i in range(count)]
    except TypeError:
        pass
    try:
        return list(classes)
    except TypeError:
        raise _warpstep.UsageError(f"classes {classes!r}: give their number, or a list of their names") from None


def _extents(image: Sequence[int]) -> list[int]:
    try:
        extents = [operator.index(extent) for extent in image]
    except TypeError:
        extents = []
    if len(extents) != 3 or min(extents) < 1:
        raise _warpstep.UsageError(f"image {image!r}: is (height, width, channels), each at least 1")
    return extents


def _transforms(options: dict[str, Any]) -> str:
    """Those of the run's evaluation; "auto": its model's, which may be a plugin's."""
    for key in ("eval_transforms", "transforms"):
        if (recipe := options.get(key, "auto")) != "auto":
            return "" if recipe == "none" else recipe
    return "auto"


def _each(images: np.ndarray | Sequence[np.ndarray]) -> Iterable[np.ndarray]:
    if not isinstance(images, np.ndarray):
        if not hasattr(images, "__array__") and not hasattr(images, "__array_interface__"):
            return images
        images = np.asarray(images)
    if images.ndim == 2 or images.ndim == 3 and images.shape[2] in (1, 3, 4):  # 4: RGBA, which predict() names
        return [images]
    return images


def _image(image: Any) -> np.ndarray:
    array = np.asarray(image)
    if array.dtype != np.uint8:
        raise _warpstep.UsageError(f"images are uint8, the pixels of a file, not {array.dtype}: they are normalised here")
    if array.ndim not in (2, 3):
        raise _warpstep.ShapeError(f"an image is [height, width, channels], not {list(array.shape)}")
    return np.ascontiguousarray(array if array.ndim == 3 else array[:, :, None])
