"""A TF-IDF model of words and characters: its file, and its tokenizer, whose tokens are the words,
pairs of words and n-grams that it knows. Neither scikit-learn nor torch is needed to answer.

Shapes: F features (words first, then n-grams), C columns of weights: one for two classes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from litebert.base.errors import ModelError
from litebert.config import Config, EncoderConfig
from litebert.interop.cards import read_card
from litebert.interop.loaded import LoadedModel, Unread
from litebert.interop.records import MOST, read_task
from litebert.tokenizer.tokenizer import Tokenizer

TFIDF = "tfidf.safetensors"
"""The file of a TF-IDF model."""
WORD = r"\w+|[^\w\s]"
"""A word or a single mark, as a regular expression."""
SCALE = 3.0
"""Factor of the cosines of a pair: they are few, and each says more than a word."""
_WORD, _SPACED = re.compile(WORD), re.compile(r"\S+")
_REMEMBERED, _LONGEST = 200_000, 64
"""Words whose n-grams stay in memory, and the characters of the longest."""


class Tfidf(NamedTuple):
    """What a model has learned of words and characters."""

    words: list[str]
    """Words, and two in a row with a space between."""
    ngrams: list[str]
    sizes: tuple[int, int]
    """The characters of the shortest and of the longest n-gram."""
    idf: NDArray[np.float32]
    """(F,)"""
    weight: NDArray[np.float32]
    """(C, F); of pairs (C, 4W + 2G + 4), in the order of `tasks.features` (W words, G n-grams)."""
    bias: NDArray[np.float32]
    """(C,)"""
    bounds: NDArray[np.float32]
    """(2,): the least and the largest number that it answers; (0,) where it answers classes."""

    def write(self, folder: Path) -> None:
        names = {
            name: np.frombuffer("\n".join(listed).encode("utf-8", "surrogatepass"), np.uint8)
            for name, listed in (("words", self.words), ("ngrams", self.ngrams))
        }
        arrays = {"idf": self.idf, "weight": self.weight, "bias": self.bias, "bounds": self.bounds}
        save_file({**names, **arrays}, folder / TFIDF, {"sizes": json.dumps(self.sizes)})

    @classmethod
    def read(cls, file: Path) -> Tfidf:
        """Raises: ModelError: the file is damaged."""
        try:
            with safe_open(file, "numpy") as opened:
                sizes = tuple(json.loads(opened.metadata()["sizes"]))
                held = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
            listed = {}
            for name in ("words", "ngrams"):
                text = held.pop(name).tobytes().decode("utf-8", "surrogatepass")
                listed[name] = text.split("\n") if text else []
            read = cls(**{"sizes": sizes, **listed, **held})
            columns = len(read.idf)
            pairs = 4 * len(read.words) + 2 * len(read.ngrams) + 4
            whole = columns == len(read.words) + len(read.ngrams)
            fits = read.weight.shape in {(len(read.bias), n) for n in (columns, pairs)}
            if not whole or not fits or len(read.sizes) != 2:
                raise ValueError("its tables do not fit each other")
        except (SafetensorError, OSError, ValueError, TypeError, KeyError) as error:
            raise ModelError(
                f"{file} is not a whole TF-IDF model ({error}); copy it again, or train it again"
            ) from None
        return read


class FeatureTokenizer(Tokenizer):
    """Texts to the numbers of the features that they contain, each as often as it stands there."""

    def __init__(self, tables: Tfidf) -> None:
        self.tables = tables
        self.truncation_side, self.kind, self.pair_separators = "right", "tfidf", 1
        known = len(tables.idf)
        self.cls_id, self.sep_id, self.pad_id, self.unk_id, self.mask_id = range(known, known + 5)
        self.special_ids = tuple(range(known, known + 5))
        self.vocab_size = known + 5
        self._words_of = {word: i for i, word in enumerate(tables.words)}
        self._ngrams_of = {gram: i for i, gram in enumerate(tables.ngrams, len(tables.words))}
        self._remembered: dict[str, list[int]] = {}

    def __reduce__(self) -> Any:
        return FeatureTokenizer, (self.tables,)

    @cached_property
    def fingerprint(self) -> str:
        listed = "\n".join((*self.tables.words, *self.tables.ngrams))
        return sha256(listed.encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def word_starts(self) -> None:
        """Every token that `encode_offsets` gives begins a word."""
        return None

    def get_token(self, id: int) -> str:  # noqa: A002
        words, ngrams = self.tables.words, self.tables.ngrams
        if id < len(words):
            return words[id]
        roles = ("[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]")
        place = id - len(words)
        return ngrams[place] if place < len(ngrams) else roles[place - len(ngrams)]

    get_word = get_token

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        words, remembered = self._words_of.get, self._remembered
        encoded = []
        for text in texts:
            lowered = text.lower()
            listed = _WORD.findall(lowered)
            found = [words(word, -1) for word in listed]
            found += [words(f"{a} {b}", -1) for a, b in pairwise(listed)]
            ids = [i for i in found if i >= 0]
            for word in _SPACED.findall(lowered):
                grams = remembered.get(word)
                ids += self._count_ngrams(word) if grams is None else grams
            encoded.append(ids)
        return encoded

    def _count_ngrams(self, word: str) -> list[int]:
        """The n-grams of a word between spaces, as `char_wb` of scikit-learn counts them."""
        padded, ids = f" {word} ", list[int]()
        shortest, longest = self.tables.sizes
        for size in range(shortest, longest + 1):
            for start in range(max(1, len(padded) - size + 1)):
                known = self._ngrams_of.get(padded[start : start + size])
                if known is not None:
                    ids.append(known)
            if len(padded) <= size:  # it is counted once
                break
        if len(word) <= _LONGEST:
            if len(self._remembered) >= _REMEMBERED:
                self._remembered.clear()
            self._remembered[word] = ids
        return ids

    def encode_offsets(
        self, texts: Sequence[str]
    ) -> list[tuple[NDArray[np.int32], NDArray[np.int32]]]:
        """The words of each text, with the characters that they cover."""
        spans = ([match.span() for match in _WORD.finditer(text)] for text in texts)
        return [
            (np.full(len(found), self.unk_id, np.int32), np.array(found, np.int32).reshape(-1, 2))
            for found in spans
        ]

    def decode(self, ids: Iterable[int]) -> str:
        return " ".join(self.get_token(int(i)) for i in ids)

    def normalize(self, text: str) -> str:
        return " ".join(text.lower().split())


def read_tfidf(folder: Path) -> LoadedModel:
    """Open a folder with a TF-IDF model.

    Raises:
        ModelError: a file of it is damaged or missing.
    """
    file, task = folder / TFIDF, read_task(folder / "task.json")
    tokenizer = FeatureTokenizer(Tfidf.read(file))
    columns, classes = len(tokenizer.tables.bias), task["classes"]
    if columns != (1 if classes == 2 and task.get("problem") == "classes" else classes):
        raise ModelError(
            f"{file} has {columns} columns of weights; it does not belong to task.json"
        )

    def refuse() -> Any:
        raise ModelError(f"{folder} is a TF-IDF model without a network; name a model that has one")

    encoder = EncoderConfig(vocab_size=tokenizer.vocab_size, max_positions=MOST)
    return LoadedModel(
        Unread(refuse, refuse, file, {"kind": "sequence", "classes": classes}),
        Config(name="tfidf", encoder=encoder, objectives=("mlm",)),
        tokenizer,
        folder,
        tuple(task.get("labels", ())),
        task=task,
        card=read_card(folder),
    )
