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
_AMOUNT = re.compile(
    rf"\s*(\d+(?:\.\d+)?)\s*(?:(%)|({'|'.join(_SECONDS)})|(?:([{''.join(_SCALE)}])\s)?\s*(step|token|sequence)s?)\s*"
)
_COUNTED: dict[str, Unit] = {"step": "steps", "token": "tokens", "sequence": "sequences"}
_EXAMPLES = {
    "time": "30m", "steps": "5000 steps", "tokens": "300M tokens", "sequences": "256 sequences", "share": "10%"
}  # fmt: skip


def parse_amount(text: str, name: str, units: tuple[Unit, ...]) -> Amount:
    """Read `30m`, `5000 steps`, `300M tokens`, `256 sequences` or `10%`; `name` is the field an error names."""
    match = _AMOUNT.fullmatch(text)
    if match is not None:
        number, (share, time, scale, counted) = float(match[1]), match.groups()[1:]
        if share:
            amount = Amount(number / 100, "share")
        elif time:
            amount = Amount(number * _SECONDS[time], "time")
        else:
            amount = Amount(number * _SCALE[scale or ""], _COUNTED[counted])
        whole = share or time or amount.value.is_integer()
        if amount.unit in units and amount.value > 0 and whole and not (share and number > 100):
            return amount
    raise ConfigError(f"{name} is '{text}'; write it like {' or '.join(_EXAMPLES[unit] for unit in units)}")
