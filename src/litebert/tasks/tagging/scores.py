"""Entities in IOB2 tags and their scores, as conlleval and `seqeval` (default mode) count them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

OUTSIDE = "O"


class Entity(NamedTuple):
    """An entity over the words from `start` up to, but not including, `end`."""

    type: str
    start: int
    end: int


class EntityScores(NamedTuple):
    """Scores of entities, whose type, first and last word must be right; 0 where undefined."""

    precision: float
    recall: float
    f1: float


def as_iob2(tags: Sequence[str]) -> tuple[str, ...]:
    """Return tags where an I- that does not continue an entity of its type is a B-."""
    valid = [OUTSIDE]
    for tag in tags:
        begins = tag[0] == "I" and valid[-1][2:] != tag[2:]
        valid.append("B" + tag[1:] if begins else tag)
    return tuple(valid[1:])


def find_entities(tags: Sequence[str]) -> set[Entity]:
    """Find the entities as conlleval does: from a B-, or an I- that continues none of its type."""
    entities, start = set(), -1
    valid = (*as_iob2(tags), OUTSIDE)
    for position, tag in enumerate(valid):
        if start >= 0 and tag[0] != "I":
            entities.add(Entity(valid[start][2:], start, position))
            start = -1
        if tag[0] == "B":
            start = position
    return entities


def score_entities(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> tuple[EntityScores, dict[str, EntityScores]]:
    """Compute the scores over all entities (micro), and of each type by its name."""
    right, gold_counts, predicted_counts = Counter[str](), Counter[str](), Counter[str]()
    for gold_tags, predicted_tags in zip(gold, predicted, strict=True):
        gold_entities, predicted_entities = find_entities(gold_tags), find_entities(predicted_tags)
        right.update(entity.type for entity in gold_entities & predicted_entities)
        gold_counts.update(entity.type for entity in gold_entities)
        predicted_counts.update(entity.type for entity in predicted_entities)
    scores_of_type = {
        type_: _score(right[type_], gold_counts[type_], predicted_counts[type_])
        for type_ in sorted(gold_counts | predicted_counts)
    }
    overall = _score(right.total(), gold_counts.total(), predicted_counts.total())
    return overall, scores_of_type


def _score(right: int, gold: int, predicted: int) -> EntityScores:
    return EntityScores(
        right / predicted if predicted else 0.0,
        right / gold if gold else 0.0,
        2 * right / ((gold + predicted) or 1),
    )
