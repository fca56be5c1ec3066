"""Entities in IOB2 tags, and their scores, as the conlleval script counts them and `seqeval` in its
default mode.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

OUTSIDE = "O"


class Entity(NamedTuple):
    """Words `start` up to but not including `end`."""

    type: str
    start: int
    end: int


class EntityScores(NamedTuple):
    """Shares of entities found with the right type, first and last word; 0 where there is nothing
    to divide by.
    """

    precision: float
    recall: float
    f1: float


def as_iob2(tags: Sequence[str]) -> tuple[str, ...]:
    """Tags where every entity begins with B-: an I- that continues nothing of its type becomes a
    B-.
    """
    out = [OUTSIDE]
    for tag in tags:
        out.append("B" + tag[1:] if tag[0] == "I" and out[-1][2:] != tag[2:] else tag)
    return tuple(out[1:])


def entities(tags: Sequence[str]) -> set[Entity]:
    """The entities of a sentence, as conlleval sees them: one begins at B-, and at an I- that
    continues nothing.
    """
    found, start = set(), -1
    valid = (*as_iob2(tags), OUTSIDE)
    for place, tag in enumerate(valid):
        if start >= 0 and tag[0] != "I":
            found.add(Entity(valid[start][2:], start, place))
            start = -1
        if tag[0] == "B":
            start = place
    return found


def entity_scores(
    truth: Sequence[Sequence[str]], guess: Sequence[Sequence[str]]
) -> tuple[EntityScores, dict[str, EntityScores]]:
    """Scores over all entities (micro), and those of each type that occurs in truth or guess, by
    name.
    """
    right, true, guessed = Counter[str](), Counter[str](), Counter[str]()
    for true_tags, guessed_tags in zip(truth, guess, strict=True):
        there, said = entities(true_tags), entities(guessed_tags)
        right.update(entity.type for entity in there & said)
        true.update(entity.type for entity in there)
        guessed.update(entity.type for entity in said)
    of_type = {
        type_: _scores(right[type_], true[type_], guessed[type_])
        for type_ in sorted(true | guessed)
    }
    return _scores(right.total(), true.total(), guessed.total()), of_type


def _scores(right: int, true: int, guessed: int) -> EntityScores:
    return EntityScores(
        right / guessed if guessed else 0.0,
        right / true if true else 0.0,
        2 * right / ((true + guessed) or 1),
    )
