"""The ranges of a config's numbers."""

from __future__ import annotations

import operator

from litebert.base.errors import require

_BOUNDS = {
    "least": ("at least", operator.ge),
    "above": ("above", operator.gt),
    "most": ("at most", operator.le),
    "below": ("below", operator.lt),
}


def require_range(config: object, prefix: str, *names: str, **bounds: float) -> None:
    """Refuse fields that are outside a range; None, which is chosen later, is in every range.

    Args:
        prefix: what stands before a field's name in the message, such as `encoder.`.
        bounds: `least` and `most`, which are in the range, `above` and `below`, which are not.
    """
    wanted = " and ".join(f"{_BOUNDS[kind][0]} {bound}" for kind, bound in bounds.items())
    for name in names:
        value = getattr(config, name)
        is_inside = value is None or all(
            _BOUNDS[kind][1](value, bound) for kind, bound in bounds.items()
        )
        require(is_inside, f"{prefix}{name} is {value}; it must be {wanted}")
