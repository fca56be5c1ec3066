"""Made text of any size, from a seed: sentences of made words, whose frequencies fall as 1/rank."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

WORDS = 30_000
COMMON = 50
"""Documents that every file begins with, so that duplicates lie far apart."""
DOCUMENTS = 500
"""Documents that are drawn at a time."""
SYLLABLES = [
    start + middle + end
    for start in ("b", "d", "f", "k", "l", "m", "n", "p", "r", "s", "t", "v", "sch", "str", "qu")
    for middle in ("a", "e", "i", "o", "u", "ä", "é")
    for end in ("", "n", "r", "st")
]


def write_text(folder: Path, megabytes: int, file_megabytes: int) -> None:
    """Write files of JSON Lines until they hold so many megabytes. Files that exist stay."""
    folder.mkdir(parents=True, exist_ok=True)
    maker = _Maker()
    for number in range(-(-megabytes // file_megabytes)):
        path = folder / f"{number:04d}.jsonl"
        if path.exists():
            continue
        unfinished = path.with_suffix(".unfinished")
        with open(unfinished, "wb") as file:
            file.write(maker.make(np.random.default_rng(0), COMMON))
            draw = np.random.default_rng([1, number])
            while file.tell() < file_megabytes * 1_000_000:
                file.write(maker.make(draw, DOCUMENTS))
        unfinished.rename(path)


class _Maker:
    """Makes documents as lines of JSON."""

    def __init__(self) -> None:
        draw = np.random.default_rng(0)
        words: dict[str, None] = {}
        while len(words) < WORDS:
            count = draw.integers(1, 4)
            words.setdefault("".join(draw.choice(SYLLABLES, count)))
        # A word in the middle, at the beginning and at the end of a sentence, and the two ends of
        # a document.
        forms = [
            *(f"{word} " for word in words),
            *(f"{word.capitalize()} " for word in words),
            *(f"{word}. " for word in words),
            '{"text": "',
            '"}\n',
        ]
        encoded = [form.encode() for form in forms]
        self._bytes = np.frombuffer(b"".join(encoded), np.uint8)
        self._lengths = np.array(list(map(len, encoded)))
        self._starts = np.cumsum(self._lengths) - self._lengths
        shares = 1 / (np.arange(WORDS) + 2.7)
        bounds = np.cumsum(shares / shares.sum())
        self._draws = np.searchsorted(bounds, (np.arange(1 << 20) + 0.5) / (1 << 20))

    def make(self, draw: np.random.Generator, documents: int) -> bytes:
        """Return so many documents of 3 to 39 sentences."""
        sentences = draw.integers(3, 40, documents)
        words = draw.integers(4, 30, int(sentences.sum()))
        forms = self._draws[draw.integers(len(self._draws), size=int(words.sum()), dtype=np.uint32)]
        ends = np.cumsum(words)
        forms[ends - words] += WORDS
        forms[ends - 1] += 2 * WORDS
        document_ends = ends[np.cumsum(sentences) - 1]
        starts = np.concatenate([[0], document_ends[:-1]])
        places = np.stack([starts, document_ends], 1).ravel()
        marks = np.tile([3 * WORDS, 3 * WORDS + 1], documents)
        return self._join(np.insert(forms, places, marks))

    def _join(self, forms: NDArray[np.int64]) -> bytes:
        lengths = self._lengths[forms]
        shifts = self._starts[forms] - (np.cumsum(lengths) - lengths)
        places = np.repeat(shifts.astype(np.int32), lengths)
        places += np.arange(len(places), dtype=np.int32)
        return bytes(self._bytes[places].data)
