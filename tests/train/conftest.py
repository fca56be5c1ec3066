"""Commands in processes that need not import torch again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from toys.groups import Groups


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Groups]:
    server = Groups(tmp_path_factory.mktemp("groups"))
    yield server
    server.close()
