"""What a caller gave, checked: an error names the argument, its value and what to give; and the JSON of files, likewise."""
from __future__ import annotations

import json
import operator
import os
from collections.abc import Sequence
from typing import Any

from warpstep import _warpstep


def assign(request: Any, of: str, **values: Any) -> None:
    """Sets the request's members; `of` is what has arguments of these names."""
    for name, value in values.items():
        try:
            setattr(request, name, value)
        except TypeError:
            raise _warpstep.UsageError(f"{name} {value!r}: not a value of this argument; "
                                       f"help(warpstep.{of}) describes it") from None


def path_bytes(name: str, value: str | os.PathLike[str], of: str) -> bytes:
    """The path of `of` as the system takes it: up to the first NUL."""
    try:
        path = os.fsencode(value)
    except (TypeError, UnicodeEncodeError):
        raise _warpstep.UsageError(f"{name} {value!r}: give the path of {of}, as a str or a pathlib.Path") from None
    if b"\0" in path:
        raise _warpstep.UsageError(f"{name} {value!r}: give the path of {of}, without NUL characters")
    return path


def per_channel(name: str, value: Sequence[float] | None) -> list[float]:
    """A mean or std; None is empty."""
    try:
        return [] if value is None else [float(number) for number in value]
    except (TypeError, ValueError):
        raise _warpstep.UsageError(f"{name} {value!r}: give one number per channel, such as (0.5, 0.5, 0.5)") from None


def whole(name: str, value: Any) -> int:
    """A number of epochs or steps."""
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if not 0 <= number < 1 << 64:
        raise _warpstep.UsageError(f"{name} {value!r}: give a whole number of at least 0")
    return number


def text(name: str, value: Any) -> str:
    """What a file stores as UTF-8."""
    if not isinstance(value, str):
        raise _warpstep.UsageError(f"{name} {value!r}: give a str, not {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _warpstep.UsageError(f"{name} {value!r}: has characters that UTF-8 cannot store") from None
    return value


def json_object(content: str, of: Any, *keys: str) -> dict[str, Any]:
    """The object that `of` holds, with at least these keys. DataError if it does not."""
    try:
        value = json.loads(content)
    except ValueError as error:
        raise _warpstep.DataError(f"{of}: is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise _warpstep.DataError(f"{of}: is JSON, but not an object")
    for key in keys:
        if key not in value:
            raise _warpstep.DataError(f"{of}: has no {key!r}")
    return value
