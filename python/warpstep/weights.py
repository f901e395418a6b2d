"""Weights as NumPy arrays, from and to safetensors files; checkpoints are such files."""
from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from warpstep import _warpstep
from warpstep._arguments import path_bytes, text

_DTYPES = {"F32": np.float32, "F16": np.float16, "F64": np.float64, "U8": np.uint8, "U16": np.uint16, "U32": np.uint32,
           "U64": np.uint64, "I8": np.int8, "I16": np.int16, "I32": np.int32, "I64": np.int64, "BOOL": np.bool_}
_CHECKPOINT = re.compile(r"checkpoint-(\d{8}|[1-9]\d{8,})\.safetensors")  # as training names it; a user's copies differ
_TYPES = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}


class Weights(dict[str, np.ndarray]):
    """Arrays by name, in the file's order.

    types     how each is stored: {"fc.weight": "BF16"}
    metadata  the file's text, without the checksums of what it holds
    """

    def __init__(self, arrays: Mapping[str, np.ndarray] | None = None, types: Mapping[str, str] | None = None,
                 metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(arrays or {})
        self.types = dict(types or {})
        self.metadata = dict(metadata or {})


def load_weights(path: str | os.PathLike[str], *, bf16: str = "float32", optimizer: bool = False,
                 average: bool = True) -> Weights:
    """Reads a safetensors file, a checkpoint, or the best checkpoint of a run directory.

    bf16       NumPy has no such type. "float32": the same numbers, wider; "bits": their 16 bits, as uint16
    optimizer  also a checkpoint's optimizer.* tensors
    average    of a checkpoint with averaged weights (--ema), those in place of the others; False: the weights themselves
    """
    if bf16 not in ("float32", "bits"):
        raise _warpstep.UsageError(f"bf16 {bf16!r}: use 'float32' or 'bits'")
    path = file_of(path)
    file = _warpstep.SafetensorsFile(os.fsencode(path))
    weights = Weights(metadata={key: value for key, value in file.metadata.items()
                                if not key.startswith("warpstep.checksum.")})
    names = {name for name, _, _ in file.tensors}
    # "optimizer.KIND.NAME" and "ema.NAME" of a weight NAME; without one, a model's part has such a name.
    moments = {name for name in names if name.startswith("optimizer.") and _weight_of(name) in names}
    averages = {f"ema.{name}" for name in names} & names
    for source, stored, shape in file.tensors:
        name = source
        if name in moments and not optimizer or average and f"ema.{name}" in averages:
            continue
        if name in averages:
            if not average:
                continue
            name = name.removeprefix("ema.")
        try:
            array: np.ndarray = np.empty(shape, np.uint16 if stored == "BF16" else _DTYPES[stored])
        except ValueError as error:
            raise _warpstep.DataError(f"{path}: {source} of shape {shape} does not fit a NumPy array: {error}") from None
        file.read(source, array.reshape(-1).view(np.uint8))
        if stored == "BF16" and bf16 == "float32":
            # In one axis: arithmetic gives a scalar where there is none.
            array = (array.reshape(-1).astype(np.uint32) << 16).view(np.float32).reshape(shape)
        weights[name] = array
        weights.types[name] = stored
    return weights


def save_weights(path: str | os.PathLike[str], weights: Mapping[str, np.ndarray], *,
                 types: str | Mapping[str, str] | None = None, metadata: Mapping[str, str] | None = None) -> None:
    """Writes a safetensors file, completely or not at all.

    types  None: each array as its own dtype. "F16", "BF16" or "F32": all arrays of floating-point numbers so, rounded to
           nearest even. A dict for each name, such as the `types` of load_weights(): the same file again
    """
    file = path_bytes("path", path, "a file to write")
    if not hasattr(weights, "items"):
        raise _warpstep.UsageError(f"weights: give a dict of arrays by name, not {type(weights).__name__}")
    try:
        metadata = dict(metadata or {})
    except (TypeError, ValueError):
        raise _warpstep.UsageError(f"metadata {metadata!r}: give a dict of texts by name") from None
    metadata = {text("key of metadata", key): text(f"metadata[{key!r}]", value) for key, value in metadata.items()}
    rows = []
    for name, array in weights.items():
        text("name of an array", name)
        try:
            array = np.asarray(array)
        except (RuntimeError, TypeError, ValueError) as error:
            raise _warpstep.UsageError(f"{name}: give an array: {error}") from None
        wanted = types.get(name) if isinstance(types, Mapping) else types if array.dtype.kind == "f" else None
        array, stored = _stored(name, np.ascontiguousarray(array).reshape(array.shape), wanted)
        rows.append((name, stored, list(array.shape), array.reshape(-1).view(np.uint8)))
    _warpstep.write_safetensors(file, rows, metadata)


def file_of(path: str | os.PathLike[str]) -> Path:
    """The file itself, or the best or the newest checkpoint of a run directory."""
    path = Path(os.fsdecode(path_bytes("path", path, "a run directory or a safetensors file")))
    if not os.path.isdir(path):  # also of a name that is too long: reading it says so
        return path
    if os.path.exists(best := path / "best.safetensors"):
        return best
    try:
        names = os.listdir(path)
    except OSError as error:
        raise _warpstep.DataError(f"{path}: {error.strerror}") from None
    steps = {int(step[1]): path / name for name in names if (step := _CHECKPOINT.fullmatch(name))}
    if not steps:
        raise _warpstep.DataError(f"{path}: has no checkpoint; give a run directory or a safetensors file")
    return steps[max(steps)]


def _weight_of(moment: str) -> str:
    """NAME of "optimizer.KIND.NAME"; otherwise ""."""
    return (moment.split(".", 2) + ["", ""])[2]


def _to_float32(array: np.ndarray) -> np.ndarray:
    """To be rounded again, to 16 bits. What float32 cannot hold is rounded to odd: a number next to a tie stays next to it."""
    with np.errstate(over="ignore"):
        near = array.astype(np.float32)
    if array.dtype != np.float64:
        return near
    bits = near.view(np.uint32) - (np.abs(near.astype(np.float64)) > np.abs(array))  # towards zero
    rounded: np.ndarray = (bits | (near.astype(np.float64) != array)).astype(np.uint32).view(np.float32)
    return rounded


def _stored(name: str, array: np.ndarray, wanted: str | None) -> tuple[np.ndarray, str]:
    """The array in the type `wanted`, and the name of the type."""
    own = _TYPES.get(array.dtype.newbyteorder("="))
    if own is None:
        raise _warpstep.UsageError(f"{name}: an array of {array.dtype} cannot be stored; convert it to one of "
                                   f"{', '.join(np.dtype(d).name for d in _DTYPES.values())}")
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if wanted is None or wanted == own:
        return array, own
    if wanted == "BF16" and array.dtype == np.uint16:
        return array, "BF16"  # its bits
    if wanted in ("F16", "BF16") and array.dtype.kind == "f":
        rounded = np.empty(array.shape, np.uint16)
        _warpstep.round_to(wanted, _to_float32(array).reshape(-1), rounded.reshape(-1).view(np.uint8))
        return rounded, wanted
    if wanted in ("F32", "F64") and array.dtype.kind == "f":
        return array.astype(_DTYPES[wanted]), wanted
    raise _warpstep.UsageError(f"{name}: an array of {array.dtype} is not stored as {wanted}")
