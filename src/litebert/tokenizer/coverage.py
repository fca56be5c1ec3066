"""The share of a text that a tokenizer knows, and the warning where it is too small."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from litebert.tokenizer.tokenizer import Tokenizer

log = logging.getLogger("litebert")

MANY_UNKNOWN = 0.03
"""Share of unknown tokens above which a tokenizer does not fit a text. On text that it was trained
on, the share is a ten-thousandth.
"""


def describe_poor_coverage(unknown_share: float) -> str | None:
    """Say that a tokenizer does not cover a text with this share of unknown tokens; None if it
    does.
    """
    if unknown_share <= MANY_UNKNOWN:
        return None
    return f"{unknown_share:.1%} of the tokens are unknown: the tokenizer does not cover this text"


class Coverage:
    """Counts the tokens that a model reads, and how many of them its tokenizer does not know."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.unknown = self.tokens = 0
        self._unknown_id = tokenizer.unk_id
        self._added = {tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id}

    def add(self, rows: Iterable[Sequence[int] | NDArray[Any]]) -> None:
        """Count the token ids of rows. The special tokens that litebert adds are not counted."""
        ids = list(rows)
        if not ids:
            return
        flat = np.concatenate(ids)
        self.unknown += int(np.count_nonzero(flat == self._unknown_id))
        added = sum(int(np.count_nonzero(flat == token)) for token in self._added)
        self.tokens += len(flat) - added

    def warn(self) -> None:
        if fault := describe_poor_coverage(self.unknown / max(self.tokens, 1)):
            log.warning(
                f"{fault}, so the model reads only a part of it; take a model whose "
                "tokenizer was trained on text "
                "like this (litebert tokenizer inspect shows the unknown characters)"
            )
