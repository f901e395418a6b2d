"""Warpstep for Python: its loader, weights, runs and trained models.

    for images, labels in warpstep.Loader("cifar", convert=torch.from_dlpack): ...
    weights = warpstep.load_weights("runs/first/best.safetensors")
    run = warpstep.open_run("runs/first")
    classes, probabilities = warpstep.Model("runs/first").predict(images)
"""
from warpstep._warpstep import (DataError, DeviceError, Error, NumericError, ShapeError, Tensor, UsageError,
                                version as __version__)
from warpstep.loader import Batch, Loader
from warpstep.model import Model, Prediction
from warpstep.run import Run, open_run
from warpstep.weights import Weights, load_weights, save_weights

__all__ = ["Batch", "DataError", "DeviceError", "Error", "Loader", "Model", "NumericError", "Prediction", "Run",
           "ShapeError", "Tensor", "UsageError", "Weights", "__version__", "load_weights", "open_run", "save_weights"]
