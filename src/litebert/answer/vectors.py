"""Sentence vectors: the mean of the last state over the tokens of a text."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray

from litebert import progress
from litebert.errors import DataError, ModelError
from litebert.finetuning.rows import by_length, padded
from litebert.interop import LoadedModel
from litebert.model.encoder import Encoder
from litebert.text.records import shown
from litebert.tokenizer import Tokenizer

log = logging.getLogger("litebert")

CHUNK = 1024
"""Texts in memory at a time; they are sorted by length among themselves, so that little is padded."""
BATCH_TOKENS = 8192
"""Tokens per forward pass, padding included."""


def texts_of(texts: Iterable[str]) -> Iterator[str]:
    """The texts of a list, checked.

    Raises:
        DataError: it is one text instead of a list, or something in it is no text.
    """
    if isinstance(texts, (str, bytes, Mapping)) or not isinstance(texts, Iterable):
        raise DataError(f"the texts are {shown(texts)}; give a list, even for a single one")

    def checked() -> Iterator[str]:
        for number, text in enumerate(texts, 1):
            if not isinstance(text, str):
                raise DataError(f"text {number} is {shown(text)}; give a text")
            yield text

    return checked()


def batches(
    rows: Sequence[Sequence[int]], pad_id: int, most: int = BATCH_TOKENS
) -> Iterator[tuple[list[int], NDArray[np.int64], NDArray[np.bool_]]]:
    """Rows of nearly the same length side by side: which they are, their ids (R, S), and where no padding stands.

    At most `most` tokens stand in a batch, padding included, but always one row.
    """
    for places in by_length(list(map(len, rows)), min(most, BATCH_TOKENS)):
        yield places, *padded([rows[place] for place in places], pad_id, len(rows[places[0]]))


@dataclass(frozen=True)
class SentenceEncoder:
    """The encoder of a model with its tokenizer, on a device."""

    encoder: Encoder
    tokenizer: Tokenizer
    length: int
    """Longest row in tokens, special ones included."""

    @classmethod
    def of(cls, loaded: LoadedModel, device: torch.device) -> SentenceEncoder:
        """That of a model folder, pretrained or fine-tuned.

        Raises:
            ModelError: it has no tokenizer.
        """
        if loaded.tokenizer is None:
            raise ModelError(f"{loaded.path} has no tokenizer; put the one it was trained with there")
        length = int(loaded.task.get("length", loaded.config.sequences.length))
        return cls(loaded.model.to(device).eval().encoder, loaded.tokenizer, length)

    @property
    def width(self) -> int:
        """H, the numbers of a vector."""
        return self.encoder.config.hidden_size

    def blocks(self, texts: Iterable[str]) -> Iterator[NDArray[np.float32]]:
        """The vectors of up to `CHUNK` texts at a time, (n, H), in order and in constant memory.

        A vector is the mean of the last state over the tokens of a text, without [CLS] and [SEP]: of a pretrained
        encoder their own states were trained on other things or on nothing. A text without tokens has the zero vector.
        Longer texts are truncated, which is logged.

        Raises:
            DataError: something is no text.
        """
        source, truncated = texts_of(texts), 0
        with progress.task("encoding", unit="texts") as bar:
            while chunk := list(islice(source, CHUNK)):
                encoded = self.tokenizer.encode(chunk)
                truncated += sum(len(ids) > self.length - 2 for ids in encoded)
                yield self._vectors([ids[: self.length - 2] for ids in encoded], bar)
        if truncated:
            log.info(f"texts longer than {self.length} tokens were truncated ({truncated:,})")

    def encode(self, texts: Iterable[str]) -> NDArray[np.float32]:
        """All of them, (N, H)."""
        return np.concatenate([np.zeros((0, self.width), np.float32), *self.blocks(texts)])

    @torch.no_grad()
    def _vectors(self, encoded: Sequence[Sequence[int]], bar: progress.Task) -> NDArray[np.float32]:
        found = np.zeros((len(encoded), self.width), np.float32)
        rows = [[self.tokenizer.cls_id, *ids, self.tokenizer.sep_id] for ids in encoded]
        device = self.encoder.embedding.word.weight.device
        for places, ids, mask in batches(rows, self.tokenizer.pad_id):
            lengths = mask.sum(1)
            attention = torch.from_numpy(mask).to(device)
            last = self.encoder(torch.from_numpy(ids).to(device), None, attention).last.float()
            inner = np.arange(ids.shape[1]) < (lengths - 1)[:, None]  # without [SEP] and, below, without [CLS]
            inner[:, 0] = False
            weight = torch.from_numpy(inner / np.maximum(inner.sum(1), 1)[:, None]).to(device, torch.float32)
            found[places] = torch.einsum("rs,rsh->rh", weight, last).cpu().numpy()
            bar.advance(len(places))
        return found
