"""Shares of the training documents: nested, whole sets of their own, with the held-out text of the
whole.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from litebert.data.building import write_portion
from litebert.data.shards import Shards


def test_a_share_of_the_text_is_part_of_every_larger_one(tiny_data: Path, tmp_path: Path) -> None:
    def documents(folder: Path) -> set[bytes]:
        split = Shards.open(folder, verify=True).train
        return {np.asarray(split.read_document(n)[0]).tobytes() for n in range(split.documents)}

    small, large = tmp_path / "small", tmp_path / "large"
    whole = Shards.open(tiny_data)
    assert write_portion(tiny_data, small, 0.1).train.documents == round(
        0.1 * whole.train.documents
    )
    write_portion(tiny_data, large, 0.5)
    assert documents(small) < documents(large) < documents(tiny_data)
    assert Shards.open(small).heldout.tokens == whole.heldout.tokens
    assert Shards.open(small).fingerprint != whole.fingerprint
