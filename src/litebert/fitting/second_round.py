"""What a method is sure of teaches it once more (self-training): texts without labels, each with
the class that the first round gives it, at a low weight beside the rows that a person labeled.

The rows that judge are answered by models whose guesses come from a first round that had not
learned from them either.

Shapes: N labeled rows, M texts without labels, C classes, H numbers of a vector.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from litebert.config import replace
from litebert.finetuning.heads import fit_head
from litebert.fitting.methods import (
    METHODS,
    TRAINED,
    Learn,
    Learned,
    LearnedNetwork,
    LearnedTfidf,
    Material,
    MethodName,
    read_vectors,
)
from litebert.tasks.outputs import softmax
from litebert.tasks.texts import Example
from litebert.text.records import Notes

MULTIPLE, WEIGHT = 16, 0.5
"""How many guesses of a class there are for each labeled row of the mean class, at most, and what
one counts beside a labeled row."""
READS = 3
"""How often all texts are read: by the encoder, by the model that is judged, and by the last."""
_TIMED = 512


def add_texts(
    material: Material, method: MethodName, texts: Sequence[Example], seconds: float
) -> Material:
    """Put texts without labels after the labeled rows, (N + M): as many as the encoder reads
    `READS` times within the seconds."""
    if method == "tfidf":
        return replace(material, examples=[*material.examples, *texts])
    start = material.start
    assert start is not None
    labeled, items, parts = len(material.examples), dict(material.items), [material.vectors]
    done, count = 0, min(len(texts), _TIMED)
    began = time.monotonic()
    while done < count:
        some = texts[done:count]
        encoded = material.task.encode(some, start.tokenizer, material.length, Notes())
        parts.append(read_vectors(start, encoded, material.machine))
        items.update(zip(range(labeled + done, labeled + count), encoded, strict=True))
        if not done:
            speed = count / max(1e-9, time.monotonic() - began)
            rest = min(len(texts), int(speed * seconds / READS))
        done, count = count, rest
    vectors = np.concatenate(parts)
    examples = [*material.examples, *texts[:done]]
    return replace(material, examples=examples, items=items, vectors=vectors)


def learn_again(
    material: Material,
    method: MethodName,
    places: Sequence[int],
    labeled: int,
    first: Learned | None,
) -> Learned:
    """Learn from the labeled rows at places, and from what the method is sure of among the rows of
    the material after the `labeled` ones. `first` is what it learned of the places alone, if that
    is known."""
    learn: Learn = METHODS[method]
    first = learn(material, places) if first is None else _move(first, material)
    texts = range(labeled, len(material.examples))
    targets = [material.examples[place].label for place in places]
    numbers = np.stack(first.logits(texts))
    most = np.full(numbers.shape[1], MULTIPLE * len(targets) / numbers.shape[1])
    chosen, guesses = choose_guesses(numbers, most)
    examples, items = list(material.examples), dict(material.items)
    for index, guess in zip(chosen.tolist(), guesses.tolist(), strict=True):
        place = labeled + index
        examples[place] = examples[place]._replace(label=guess, weight=WEIGHT)
        if place in items:
            items[place] = replace(items[place], target=guess, weight=WEIGHT)
    taught = replace(material, examples=examples, items=items)
    places = [*places, *(labeled + chosen).tolist()]
    if method not in TRAINED:
        return learn(taught, places)
    # A network that is trained on its own guesses costs much, and was worse; its head is not.
    assert isinstance(first, LearnedNetwork)
    vectors = read_vectors(first.start, [items[place] for place in places], material.machine)
    plain = taught.task.plain_items([examples[place] for place in places])
    head = fit_head(first.head.output, vectors, plain, apart=taught.task.apart)
    return replace(first, head=head)


def choose_guesses(
    numbers: NDArray[np.floating], most: NDArray[np.floating]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of logits (M, C), the places and classes of the guesses to learn from: the surest of each
    class, `most` (C,) at most."""
    likely = softmax(numbers.astype(np.float64), axis=1)
    guesses = likely.argmax(1)
    ordered = np.sort(likely, 1)
    margins = ordered[:, -1] - ordered[:, -2]
    chosen = list[int]()
    for guess in range(numbers.shape[1]):
        members = np.flatnonzero(guesses == guess)
        chosen += members[np.argsort(-margins[members], kind="stable")][
            : max(1, int(most[guess]))
        ].tolist()
    places = np.array(chosen, np.int64)
    return places, guesses[places].astype(np.int64)


def _move(learned: Learned, material: Material) -> Learned:
    """What was learned, over the places of a larger material."""
    if isinstance(learned, LearnedTfidf):
        return replace(learned, material=material)
    assert isinstance(learned, LearnedNetwork)
    vectors = None if learned.vectors is None else material.vectors
    return replace(learned, material=material, vectors=vectors)
