"""Amounts as people write them: `30m`, `5000 steps`, `300M tokens`, `256 sequences`, `10%`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from litebert.errors import ConfigError

Unit = Literal["time", "steps", "tokens", "sequences", "share"]


@dataclass(frozen=True)
class Amount:
    """A number with its unit; time is in seconds, a share is in [0, 1]."""

    value: float
    unit: Unit


_SECONDS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "hours": 3600, "d": 86400, "days": 86400}
_SCALE = {"": 1, "k": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
_EXAMPLES = {
    "time": "30m",
    "steps": "5000 steps",
    "tokens": "300M tokens",
    "sequences": "256 sequences",
    "share": "10%",
}


def parse_amount(text: str, name: str, units: tuple[Unit, ...]) -> Amount:
    """Read `30m`, `5000 steps`, `300M tokens`, `256 sequences` or `10%`; `name` is the field an error names."""
    problem = f"{name} is '{text}'; write it like {' or '.join(_EXAMPLES[unit] for unit in units)}"
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z%]*)\s*([a-z]*)\s*", text)
    if match is None:
        raise ConfigError(problem)
    number, first, second = float(match[1]), match[2], match[3]
    amount: Amount | None = None
    if first == "%" and not second:
        amount = Amount(number / 100, "share")
    elif second and first in _SCALE:
        unit = second if second.endswith("s") else second + "s"
        if unit in ("steps", "tokens", "sequences"):
            amount = Amount(number * _SCALE[first], unit)  # type: ignore[arg-type]
    elif first in _SECONDS and not second:
        amount = Amount(number * _SECONDS[first], "time")
    elif not second:
        unit = first if first.endswith("s") else first + "s"
        if unit in ("steps", "tokens", "sequences"):
            amount = Amount(number, unit)  # type: ignore[arg-type]
    if amount is None or amount.unit not in units or amount.value <= 0 or (amount.unit == "share" and number > 100):
        raise ConfigError(problem)
    if amount.unit in ("steps", "tokens", "sequences") and amount.value != int(amount.value):
        raise ConfigError(problem)
    return amount
