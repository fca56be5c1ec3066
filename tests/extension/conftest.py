"""Parts that a test module registers are forgotten at its end, so that no other test meets them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from litebert.base import registry


@pytest.fixture(autouse=True, scope="module")
def _registries_as_they_were() -> Iterator[None]:
    before = [
        (table, dict(table._parts))
        for table in vars(registry).values()
        if isinstance(table, registry.Registry)
    ]
    yield
    for table, parts in before:
        table._parts.clear()
        table._parts.update(parts)
