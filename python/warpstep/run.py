"""Run directories as tables."""
from __future__ import annotations

import importlib
import json
import os
import subprocess
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from warpstep import _program, _warpstep, weights
from warpstep._arguments import json_object, path_bytes

try:
    pandas: Any = importlib.import_module("pandas")
except ImportError:  # tables are dicts of NumPy arrays then
    pandas = None


class Run:
    """A run directory that `warpstep train` wrote, or is writing. Tables are pandas DataFrames; without pandas, dicts of
    NumPy arrays by column."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.fsdecode(path_bytes("path", path, "a run directory")))
        if not os.path.exists(self.path / "config.json"):
            raise _warpstep.DataError(f"{self.path}: has no config.json; give the run directory of a training")

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @cached_property
    def config(self) -> dict[str, Any]:
        """config.json: options, data, device, versions."""
        return self._object("config.json", "options")

    @property
    def options(self) -> dict[str, Any]:
        """The options of the run, by their names with _ for -."""
        options: dict[str, Any] = self.config["options"]
        return options

    @property
    def summary(self) -> dict[str, Any]:
        """summary.json; empty while the run has not ended."""
        return self._object("summary.json") if (self.path / "summary.json").exists() else {}

    @property
    def kinds(self) -> list[str]:
        """The kinds of records in metrics.jsonl."""
        return list(dict.fromkeys(record["kind"] for record in self._records()))

    def metrics(self, kind: str = "step") -> Any:
        """The records of one kind, "step", "epoch" or "evaluation", as a table."""
        return table([{k: v for k, v in record.items() if k != "kind"}
                      for record in self._records() if record["kind"] == kind])

    @cached_property
    def session(self) -> dict[str, Any]:
        """The tables of `warpstep report`: breakdown, steps, layers, calls, ops, memory, findings and others, by name."""
        done = subprocess.run([_program.PATH, "report", str(self.path), "--json"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, encoding="utf-8", errors="surrogateescape", check=False)
        if done.returncode != 0:
            raise _warpstep.DataError(done.stderr.strip())
        return {name: table(rows) for name, rows in json.loads(done.stdout)["tables"].items()}

    def weights(self, **options: Any) -> weights.Weights:
        """load_weights() of the best checkpoint, or of the newest where none is the best."""
        return weights.load_weights(self.path, **options)

    def _object(self, name: str, *keys: str) -> dict[str, Any]:
        return json_object(_text(self.path / name), self.path / name, *keys)

    def _records(self) -> list[dict[str, Any]]:
        path = self.path / "metrics.jsonl"
        lines = _text(path).split("\n")[:-1] if path.exists() else []  # without the last one, which a run may be writing
        return [json_object(line, f"{path}:{number}", "kind") for number, line in enumerate(lines, 1)]


def open_run(path: str | os.PathLike[str]) -> Run:
    """Opens a run directory. DataError if there is none."""
    return Run(path)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except ValueError as error:
        raise _warpstep.DataError(f"{path}: is not UTF-8: {error}") from None


def table(rows: list[dict[str, Any]]) -> Any:
    """Rows as a DataFrame, or as columns. A missing number is NaN, any other missing value None."""
    if pandas is not None:
        return pandas.DataFrame(rows)
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: _column([row.get(name) for row in rows]) for name in names}


def _column(values: list[Any]) -> np.ndarray:
    if all(value is None or type(value) in (int, float) for value in values):
        if None in values:
            values = [np.nan if value is None else value for value in values]
        return np.array(values)
    column = np.empty(len(values), object)
    column[:] = values
    return column
