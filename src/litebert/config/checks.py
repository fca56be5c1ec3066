"""The one form of a check of a config's field, and of the sentence that refuses it."""

from __future__ import annotations

from litebert.base.errors import require


def require_fields(config: object, prefix: str, *rules: tuple[str, bool, str]) -> None:
    """Refuse the first field that breaks its rule, by `PREFIXNAME is VALUE` and what it says.

    Args:
        rules: the name of a field, whether its value is right, and what to say if it is not.
    """
    for name, is_right, fault in rules:
        require(is_right, f"{prefix}{name} is {getattr(config, name)}{fault}")
