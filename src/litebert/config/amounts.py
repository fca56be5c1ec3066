"""Amounts as people write them: `30m`, `5000 steps`, `300M tokens`, `256 sequences`, `10%`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from litebert.base.errors import ConfigError

Unit = Literal["time", "steps", "tokens", "sequences", "share"]


@dataclass(frozen=True)
class Amount:
    """A number with its unit; time is in seconds, a share is in [0, 1]."""

    value: float
    unit: Unit


BUDGET_UNITS: tuple[Unit, ...] = ("time", "steps", "tokens")
"""The units of the length of a run."""

_SECONDS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600),
    **dict.fromkeys(("d", "day", "days"), 86400),
}
_SCALE = {"": 1, "k": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
_NUMBER = r"(\d+(?:\.\d+)?)"
_SPAN = rf"{_NUMBER}\s*({'|'.join(sorted(_SECONDS, key=len, reverse=True))})(?![a-z])\s*"
_TIME = re.compile(rf"\s*(?:{_SPAN})+")
_AMOUNT = re.compile(
    rf"\s*{_NUMBER}\s*(?:(%)|(?:([{''.join(_SCALE)}])\s)?\s*(step|token|sequence)s?)\s*"
)
_COUNTED: dict[str, Unit] = {"step": "steps", "token": "tokens", "sequence": "sequences"}
_EXAMPLES = {
    "time": "30m",
    "steps": "5000 steps",
    "tokens": "300M tokens",
    "sequences": "256 sequences",
    "share": "10%",
}


def parse_amount(text: str, name: str, units: tuple[Unit, ...]) -> Amount:
    """Read `30m`, `1h30m`, `5000 steps`, `300M tokens`, `256 sequences` or `10%`."""
    amount = _read(text)
    if amount is not None and amount.unit in units and 0 < amount.value < math.inf:
        return amount
    raise ConfigError(
        f"{name} is '{text}'; write it like {' or '.join(_EXAMPLES[unit] for unit in units)}"
    )


def _read(text: str) -> Amount | None:
    if _TIME.fullmatch(text):
        spans = re.findall(_SPAN, text)
        return Amount(sum(float(number) * _SECONDS[unit] for number, unit in spans), "time")
    if (match := _AMOUNT.fullmatch(text)) is None:
        return None
    number, (share, scale, counted) = float(match[1]), match.groups()[1:]
    if share:
        return Amount(number / 100, "share") if number <= 100 else None
    value = number * _SCALE[scale or ""]
    return Amount(value, _COUNTED[counted]) if value.is_integer() else None
