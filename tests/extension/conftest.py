"""What a test module registers is forgotten at its end, so that no other test meets it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from litebert import registry


@pytest.fixture(autouse=True, scope="module")
def _registries_as_they_were() -> Iterator[None]:
    before = [
        (one, dict(one._parts))
        for one in vars(registry).values()
        if isinstance(one, registry.Registry)
    ]
    yield
    for one, parts in before:
        one._parts.clear()
        one._parts.update(parts)
