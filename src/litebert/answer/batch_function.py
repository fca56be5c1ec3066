"""A model as a function of batches of columns, which engines such as Ray and Spark call in many
processes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from litebert.answer.model import Model, load
from litebert.base.errors import ConfigError, DataError, nearest
from litebert.data.encoding import choose_id_type
from litebert.kernels.packing import Dtype
from litebert.tasks.predictions import flatten_record
from litebert.text.records import format_value, list_values
from litebert.tokenizer import Tokenizer

BatchVerb = Literal["predict", "embed", "tokenize"]
MOST_MODELS = 2
"""Models that stay in the memory of a process."""


@dataclass(frozen=True)
class BatchFunction:
    """A model as a function of a batch, for engines that divide rows over processes: Ray, Spark,
    Dask or `datasets`.

    The batch maps the names of columns to n values each, lists or arrays. The result has the
    columns of the batch, and arrays of n values that the model adds. `predict` adds
    `prediction`, `p_LABEL` for each label and `score`, as the CSV of `litebert predict` has them.
    `embed` adds `vectors`, float32 (n, D), and `tokenize` adds `ids`, an array of token ids for
    each text, without special tokens.

    A pickle holds the settings alone. Each process reads the model once, at its first batch, and
    again after its files have changed. In another batch a row may be padded otherwise, and its
    numbers may differ in the last bits.
    """

    model: str | Path
    """A model that `litebert.load` opens, or for `tokenize` a tokenizer."""
    verb: BatchVerb = "predict"
    """The task of the function."""
    columns: Sequence[str] = ("text",)
    """The columns that an input of `predict` consists of, such as question and context."""
    engine: str | None = None
    """The engine, as `litebert.load` takes it."""
    dtype: Dtype | None = None
    """The type of the matrix products, as `litebert.load` takes it."""
    device: str = "auto"
    """The device, as `litebert.load` takes it."""
    vector_size: int | None = None
    """The numbers of a vector that are left, the first ones; all by default."""
    state: str = field(init=False, repr=False)
    """A digest of the names, sizes and times of the files of the model."""

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            ConfigError: there is no such verb, or the columns do not fit it.
        """
        if self.verb not in get_args(BatchVerb):
            raise ConfigError(f"verb is '{self.verb}'; {nearest(self.verb, get_args(BatchVerb))}")
        columns = (self.columns,) if isinstance(self.columns, str) else tuple(self.columns)
        if not columns or (self.verb != "predict" and len(columns) > 1):
            wanted = "one column or more" if self.verb == "predict" else "one column"
            raise ConfigError(f"columns is {list(columns)}; give {wanted} to {self.verb}")
        if self.vector_size is not None and self.verb != "embed":
            raise ConfigError(f"vector_size is {self.vector_size}, which only embed reads")
        path = Path(self.model)
        # Another process may have another working folder.
        model = str(path.resolve()) if path.exists() else str(self.model)
        for name, value in {"columns": columns, "model": model, "state": _digest(path)}.items():
            object.__setattr__(self, name, value)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Compute the columns of a batch.

        Raises:
            ConfigError, ModelError: the model cannot be opened, or does not do this.
            DataError: a column is missing, or a value is no input of the model.
        """
        if (names := getattr(batch, "column_names", None)) is not None:  # of Arrow
            batch = {name: batch[name] for name in names}
        if not isinstance(batch, Mapping) and not hasattr(batch, "columns"):  # type: ignore[unreachable]
            raise DataError(f"the batch is {format_value(batch)}; give its columns by their names")
        missing = [name for name in self.columns if name not in batch]
        if missing:
            raise DataError(
                f"the batch has no column '{missing[0]}', but {', '.join(map(str, batch))}; give "
                "`columns` the names of yours"
            )
        values = [list(list_values(batch[name], f"column '{name}'")) for name in self.columns]
        inputs = values[0] if len(values) == 1 else list(zip(*values, strict=True))
        return {**{name: batch[name] for name in batch}, **self._compute(inputs)}

    def _compute(self, inputs: list[Any]) -> dict[str, NDArray[Any]]:
        if self.verb == "tokenize":
            with _lock:
                tokenizer = _read_tokenizer(str(self.model), self.state)
            kind = choose_id_type(tokenizer.vocab_size)
            return {"ids": _fill_array([np.array(ids, kind) for ids in tokenizer.encode(inputs)])}
        with _lock:
            model = _read_model(str(self.model), self.state, self.engine, self.dtype, self.device)
        if self.verb == "embed":
            return {"vectors": model.vectors_by(size=self.vector_size).encode(inputs)}
        cells = [flatten_record(record) for record in model.stream(inputs)]
        names = dict.fromkeys(["prediction", *(name for row in cells for name in row)])
        return {name: _make_array([row.get(name) for row in cells]) for name in names}


_lock = Lock()
"""Held while a model is read, so that two threads do not both read it."""


@lru_cache(MOST_MODELS)
def _read_model(
    path: str, state: str, engine: str | None, dtype: Dtype | None, device: str
) -> Model:
    return load(path, engine=engine, dtype=dtype, device=device)


@lru_cache(MOST_MODELS)
def _read_tokenizer(path: str, state: str) -> Tokenizer:
    return Tokenizer.load(path)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            status = file.stat()
            digest.update(f"{file.name}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return digest.hexdigest()


def _make_array(values: Sequence[Any]) -> NDArray[Any]:
    kinds = set(map(type, values))
    is_number = kinds <= {int, float} or kinds <= {bool}
    return np.array(values) if is_number else _fill_array(values)


def _fill_array(values: Sequence[Any]) -> NDArray[np.object_]:
    array = np.empty(len(values), object)
    array[:] = values
    return array
