"""The inputs of the estimators: texts, pairs, classes and numbers, in lists, arrays and columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert.base.errors import DataError
from litebert.text.records import Notes, clean, format_value, list_values


def list_texts(values: Any, pairs: bool = True) -> list[Any]:
    """List texts, or pairs of texts as tuples, of what `list_values` takes."""
    texts: list[Any] = []
    for number, value in enumerate(list_values(values, "X")):
        if isinstance(value, str):
            texts.append(str(value))  # of numpy's own kind, too
        elif pairs and _is_pair(value):
            texts.append(tuple(map(str, value)))
        else:
            raise DataError(f"X[{number}] is {format_value(value)}; give a text")
    if len({type(text) for text in texts}) > 1:
        raise DataError("X has single texts and pairs; give one or the other")
    return texts


def _is_pair(value: Any) -> bool:
    is_sequence = isinstance(value, (list, tuple, np.ndarray))
    return is_sequence and len(value) == 2 and all(isinstance(text, str) for text in value)


def name_classes(values: Sequence[Any]) -> tuple[NDArray[Any], list[str]]:
    """Return the sorted classes (C,) of targets, and the name of each in the run."""
    for row, value in enumerate(values):
        if not _is_class(value):
            raise DataError(f"y[{row}] is {format_value(value)}; give a class")
    if len({isinstance(value, str) for value in values}) > 1:
        raise DataError("y has texts and numbers; give one or the other")
    classes: NDArray[Any] = np.unique(np.asarray(values))
    # A table cleans and strips its labels.
    names = [clean(str(value), Notes()).strip() for value in classes.tolist()]
    if len(names) < 2:
        raise DataError(f"all targets are {names or 'missing'}; give two classes or more")
    if repeated := [name for name in names if names.count(name) > 1]:
        raise DataError(f"several classes have the name '{repeated[0]}'; give them different ones")
    return classes, names


def _is_class(value: Any) -> bool:
    """Return True if a target is text or a number: not missing, blank or of broken characters."""
    if not isinstance(value, (str, int, float, np.generic)) or value != value:  # a NaN
        return False
    name = str(value)
    is_blank = not clean(name, Notes()).strip()
    return not is_blank and name == name.encode("utf-8", "ignore").decode("utf-8")


def list_numbers(values: Sequence[Any]) -> list[float]:
    """List targets as finite numbers."""
    numbers = list[float]()
    for row, value in enumerate(values):
        try:
            numbers.append(float(value))
        except (TypeError, ValueError, OverflowError):
            numbers.append(math.nan)
        if not math.isfinite(numbers[-1]):
            raise DataError(f"y[{row}] is {format_value(value)}; give a number")
    return numbers
