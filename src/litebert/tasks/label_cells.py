"""What the cell of a label means: a label, a list of labels, 0 or 1 for each label, or a number.

Lists come as lists, as JSON (Label Studio's `{"choices": [...]}` too), as Python prints them, which
`to_csv` of pandas writes, or divided by a separator.
"""

from __future__ import annotations

import ast
import datetime
import json
import math
import re
import unicodedata
import warnings
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from litebert.base.errors import DataError
from litebert.text.records import format_value

_PRINTED = re.compile(r"\[.*\]|\{.*\}|\(\s*['\"].*,.*\)", re.DOTALL)
_ARRAY = re.compile(r"""\[\s*(?:['"].*['"]|[-+.\d\s]*)\s*\]""", re.DOTALL)
"""A list that was printed, also one without commas, as numpy prints arrays."""
_DIGITS = re.compile(r"[01](?:[,;| ][01]){2,}")
_AMOUNT = re.compile(
    r"[-+]?[€$£]?\s*(?:\d{1,3}(?:[.,'\s]\d{3})+|\d+)(?:[.,]\d+)?\s*[%‰€$£]?|[-+]?[.,]\d+"
)
"""A number as people write it, with a decimal comma, separated thousands or a sign."""
_WHOLE = re.compile(r"([-+]?\d+)\.0+")


def is_blank(value: Any) -> bool:
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, float) and math.isnan(value))


def read_cell(value: Any, location: str, column: str) -> Any:
    """Return the value of a cell, perhaps printed; of an object of 0 and 1 the labels with 1."""
    if isinstance(value, str) and _PRINTED.fullmatch(text := value.strip()):
        value = _parse_printed(text)
        if isinstance(value, str) and _ARRAY.fullmatch(text):
            raise DataError(
                f"{location}: '{column}' is {format_value(text)}, which looks like a printed list; "
                "write it as JSON, or labels with a separator"
            )
    elif isinstance(value, str) and _DIGITS.fullmatch(value.strip()):
        value = re.split(r"\D", value.strip())
    if isinstance(value, dict) and isinstance(value.get("choices"), list):
        value = value["choices"]
    if isinstance(value, dict):
        flags = {label: _parse_flag(flag) for label, flag in value.items()}
        if (wrong := next((label for label in flags if flags[label] is None), None)) is not None:
            raise DataError(
                f"{location}: '{wrong}' is {format_value(value[wrong])}, not 0 or 1; correct it, "
                "or name another column of labels"
            )
        value = [label for label, applies in flags.items() if applies]
    return value


def _parse_printed(text: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        if re.search(r"['\"]\s+['\"]", text):
            return text  # Python would join what numpy printed
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of escapes
                value = ast.literal_eval(text)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            return text
    return list(value) if isinstance(value, (list, tuple, set)) else value


def _parse_flag(value: Any) -> bool | None:
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    number = float(value) if isinstance(value, bool) else parse_number(value)
    return bool(number) if number in (0, 1) else None


def split_labels(value: Any, separator: str | None) -> list[Any] | None:
    """Return the labels of a cell that may hold several; None for a cell with one label."""
    if isinstance(value, list):
        return value
    if separator is not None and isinstance(value, str):
        return [label for label in value.split(separator) if not is_blank(label)]
    return None


def count_flags(labels: Sequence[Any]) -> int:
    """Return the length of a list of 0 and 1; 0 for another list."""
    flags = [_parse_flag(label) for label in labels]
    return 0 if len(flags) < 2 or None in flags else len(flags)


def format_label(value: Any, location: str, column: str) -> str:
    """Return a label as text: whole numbers without a fraction, booleans as JSON writes them."""
    if isinstance(value, list):
        if len(value) == 1 and not isinstance(value[0], list):
            return format_label(value[0], location, column)
        remedy = "write one label, or set target=labels"
        if len({*map(type, value)}) > 1 or isinstance(next(iter(value), ""), (list, dict)):
            remedy = "spans of a text are learned by the task tagging"
        raise DataError(f"{location}: '{column}' is the list {format_value(value)}; {remedy}")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (float, Decimal)) and math.isfinite(value) and value == int(value):
        value = int(value)
    if not isinstance(value, (str, int, float, Decimal, datetime.date, datetime.time)):
        raise DataError(
            f"{location}: '{column}' holds a {type(value).__name__}, not a label; write text, "
            "a number or a list"
        )
    return str(value).strip()


def parse_number(value: Any) -> float | None:
    """Return the finite number that a cell holds or spells; None if there is none."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float, Decimal)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def is_amount(value: Any) -> bool:
    return isinstance(value, str) and _AMOUNT.fullmatch(value.strip()) is not None


def drop_fraction(name: str) -> str:
    """Return the name of a whole number without a fraction: 2 for 2.0, as pandas writes it."""
    return _WHOLE.sub(r"\1", name) if _WHOLE.fullmatch(name) else name


def list_lookalikes(names: Iterable[str]) -> list[list[str]]:
    """List names that differ in case, spaces, invisible characters, Unicode form or ".0" alone."""
    alike: dict[str, list[str]] = {}
    for name in sorted(names):
        plain = unicodedata.normalize("NFKC", name).casefold()
        visible = "".join(c for c in plain if unicodedata.category(c) != "Cf")
        alike.setdefault(drop_fraction(" ".join(visible.split())), []).append(name)
    return [group for group in alike.values() if len(group) > 1]
