"""Tagging words: entities in CoNLL columns, the word first and its tag last, a blank line between sentences.

Tags are IOB2 (O, B-TYPE, I-TYPE); IOB1 is turned into it. Every word is encoded on its own, as if a space stood before
it; its first token carries the tag. A sentence longer than a row becomes several rows that overlap, and each word is
learnt and answered once, where it has most context; nothing is cut. The price is that some tokens are read twice.

Entities are scored as the conlleval script does, and `seqeval` in its default mode.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from litebert.errors import ConfigError, DataError
from litebert.finetune.task import Item, Kind, Problem, row_of
from litebert.tasks.parts import Data, part_file, part_files, scored_parts, unscored_parts
from litebert.text.records import MARK, MARKS, FileFormat, Notes, file_format, lines, records, shown
from litebert.tokenizer import Tokenizer

OUTSIDE = "O"
DOCUMENT = "-DOCSTART-"
NOT_JUDGED = -100
_TAG = re.compile(r"O|[BI]-.+")


class Sentence(NamedTuple):
    """The words of a sentence, and its lines."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    """IOB2, one for each word; None where they are not known."""
    lines: tuple[str, ...]
    """As they stand in the file, with the blank lines and document marks that follow (for the first sentence also
    those before it)."""
    places: tuple[int, ...]
    """Which line each word stands on."""


class Tagged(NamedTuple):
    """What the model says about one sentence."""

    value: tuple[str, ...]
    """The likeliest tag of each word."""
    probabilities: NDArray[np.float64]
    """(words,): of those tags; 1 for a word without a token, which is O."""


class Entity(NamedTuple):
    """Words `start` up to but not including `end`."""

    type: str
    start: int
    end: int


class EntityScores(NamedTuple):
    """Shares of entities found with the right type, first and last word; 0 where there is nothing to divide by."""

    precision: float
    recall: float
    f1: float


class TaggingTask:
    """Entities from CoNLL files.

    The labels are O, then B- and I- of each type of the training file, sorted; or `labels`, as a model was saved with.
    """

    name = "tagging"
    kind: Kind = "tokens"
    problem: Problem = "tokens"
    metric = "f1"

    def __init__(self, data: Data, *, labels: Sequence[str] | None = None) -> None:
        self._files = part_files(data)
        self.dev, self.tests = scored_parts(self._files), unscored_parts(self._files)
        self._found = Notes()
        if labels is None:
            sentences = _sentences(part_file(self._files, "train", self.name), Notes(), tagged=True)
            types = {tag[2:] for sentence in sentences for tag in sentence.tags or () if tag != OUTSIDE}
            labels = (OUTSIDE, *sorted(f"{first}-{type_}" for first in "BI" for type_ in types))
        for label in labels:
            if not _TAG.fullmatch(label):
                raise ConfigError(f"the model's label '{label}' is none of O, B-TYPE and I-TYPE; give a tagging model")
        self.labels = tuple(labels)

    @property
    def notes(self) -> list[str]:
        """What reading and encoding since the last `read` found worth saying."""
        return self._found.notes()

    def read(self, part: str) -> list[Sentence]:
        """The sentences of a part. Only `test` may be without tags: a file with one column.

        Raises:
            DataError: a file is missing or malformed; the message names the file and the line.
        """
        self._found = Notes()
        path = part_file(self._files, part, self.name)
        sentences = list(_sentences(path, self._found, tagged=part != "test"))
        known = {label[2:] for label in self.labels}
        unseen = Counter(
            entity.type
            for sentence in sentences
            for entity in entities(sentence.tags or ())
            if entity.type not in known
        )
        for type_, count in sorted(unseen.items()):
            self._found[f"entities of type {type_}, unknown to the model, count as missed"] += count
        return sentences

    def encode(self, examples: Sequence[Sentence], tokenizer: Tokenizer, length: int) -> list[Item]:
        """One row of at most `length` tokens a sentence, or several that overlap by half.

        Sentences without a token have none. `detail` is int64 (k, 2): the words that a row answers, and the place in
        the row of their first tokens; all other tokens have the target -100.
        """
        # In byte-level BPE a word inside a text begins with its space; the other kinds mark words themselves.
        space = " " if tokenizer.kind == "bpe" else ""
        words = list(dict.fromkeys(word for sentence in examples for word in sentence.words))
        ids_of = dict(zip(words, tokenizer.encode([space + word for word in words]), strict=True))
        label_of = {label: i for i, label in enumerate(self.labels)}
        items = []
        for example, sentence in enumerate(examples):
            pieces = [ids_of[word] for word in sentence.words]
            tokens = [token for piece in pieces for token in piece]
            starts = np.cumsum([0, *map(len, pieces)])[:-1]
            told = np.array([bool(piece) for piece in pieces], np.bool_)
            if not told.all():
                self._found["words that give no token are answered O"] += int((~told).sum())
            room = length - 2
            windows = _windows(len(tokens), room)
            if len(windows) > 1:
                self._found[f"sentences longer than {length} tokens were read in windows"] += 1
            # The context of a token in a window is the shorter way to either end of it; negative outside of it.
            first = np.array(windows)[:, None]
            last = np.minimum(first + room, len(tokens)) - 1
            best = np.minimum(starts - first, last - starts).argmax(0)
            for window, begin in enumerate(windows):
                own = np.flatnonzero(told & (best == window))
                if len(own) == 0:
                    continue
                row = row_of(tokenizer, tokens[begin : begin + room])
                places = starts[own] - begin + 1
                target = None
                if sentence.tags is not None:
                    target = np.full(len(row.ids), NOT_JUDGED, np.int64)
                    target[places] = [label_of.get(sentence.tags[word], NOT_JUDGED) for word in own]
                items.append(Item(example, (row,), target, np.stack((own, places), axis=1)))
        return items

    def answers(
        self, examples: Sequence[Sentence], items: Sequence[Item], logits: Sequence[NDArray[np.float32]]
    ) -> list[Tagged]:
        """A tag for each word of each sentence, in order."""
        tags = [[OUTSIDE] * len(sentence.words) for sentence in examples]
        likely = [np.ones(len(sentence.words)) for sentence in examples]
        for item, found in zip(items, logits, strict=True):
            words, places = item.detail.T
            chosen = found[places].astype(np.float64)
            chosen = np.exp(chosen - chosen.max(-1, keepdims=True))
            likely[item.example][words] = chosen.max(-1) / chosen.sum(-1)
            for word, label in zip(words.tolist(), chosen.argmax(-1).tolist(), strict=True):
                tags[item.example][word] = self.labels[label]
        return [Tagged(tuple(found), p) for found, p in zip(tags, likely, strict=True)]

    def score(self, examples: Sequence[Sentence], answers: Sequence[Tagged]) -> dict[str, float]:
        """`precision`, `recall` and `f1` over all entities, and `f1_TYPE` of each type.

        Raises:
            DataError: no sentence has tags.
        """
        known = [(sentence.tags, answer.value) for sentence, answer in zip(examples, answers, strict=True)
                 if sentence.tags is not None]  # fmt: skip
        if not known:
            raise DataError(f"the sentences of {self.name} have no tags to score by; give a part that has")
        overall, of_type = entity_scores(*zip(*known, strict=True))
        return overall._asdict() | {f"f1_{type_}": found.f1 for type_, found in of_type.items()}

    def file_name(self, part: str) -> str:
        """A name for the predictions file of a part."""
        return f"{part}.conll"

    def write(self, examples: Sequence[Sentence], answers: Sequence[Tagged], path: Path) -> None:
        """The lines of the file that was read, with one more column: the answers, made valid IOB2."""
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            for sentence, answer in zip(examples, answers, strict=True):
                tag_of = dict(zip(sentence.places, as_iob2(answer.value), strict=True))
                for place, line in enumerate(sentence.lines):
                    if place in tag_of or _cells(line)[:1] == [DOCUMENT]:
                        line = line.rstrip(" \t")
                        line += ("\t" if "\t" in line else " ") + tag_of.get(place, OUTSIDE)
                    file.write(line + "\n")


def as_iob2(tags: Sequence[str]) -> tuple[str, ...]:
    """Tags where every entity begins with B-: an I- that continues nothing of its type becomes a B-."""
    out = [OUTSIDE]
    for tag in tags:
        out.append("B" + tag[1:] if tag[0] == "I" and out[-1][2:] != tag[2:] else tag)
    return tuple(out[1:])


def entities(tags: Sequence[str]) -> set[Entity]:
    """The entities of a sentence, as conlleval sees them: one begins at B-, and at an I- that continues nothing."""
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
    """Scores over all entities (micro), and those of each type that occurs in truth or guess, by name."""
    right, true, guessed = Counter[str](), Counter[str](), Counter[str]()
    for true_tags, guessed_tags in zip(truth, guess, strict=True):
        there, said = entities(true_tags), entities(guessed_tags)
        right.update(entity.type for entity in there & said)
        true.update(entity.type for entity in there)
        guessed.update(entity.type for entity in said)
    of_type = {type_: _scores(right[type_], true[type_], guessed[type_]) for type_ in sorted(true | guessed)}
    return _scores(right.total(), true.total(), guessed.total()), of_type


def _scores(right: int, true: int, guessed: int) -> EntityScores:
    return EntityScores(
        right / guessed if guessed else 0.0, right / true if true else 0.0, 2 * right / ((true + guessed) or 1)
    )


def _windows(tokens: int, room: int) -> list[int]:
    """Where the windows of a sentence begin: every half window, the last one so that it ends with the sentence."""
    if tokens <= room:
        return [0]
    return [*range(0, tokens - room, max(1, room // 2)), tokens - room]


# ---- reading -------------------------------------------------------------------------------------------------------


def _cells(line: str) -> list[str]:
    line = line.rstrip(" \t")
    return line.split("\t") if "\t" in line else [cell for cell in line.split(" ") if cell]


def stream(
    source: str | Path, *, text: str = "text", form: FileFormat | None = None, found: Notes | None = None
) -> Iterator[tuple[str, ...]]:
    """The words of each sentence of a file or of standard input (`-`), in constant memory, for prediction.

    CoNLL columns, of which the first is read; or rows whose column `text` is a list of words, or a text that is split
    at spaces.

    Raises:
        DataError: a file that is missing or malformed; the message names the line.
    """
    found = Notes() if found is None else found
    form = form or file_format(source)
    if form == "conll":
        yield from (sentence.words for sentence in _sentences(source, found, tagged=False))
        return
    for row in records(source, (text,), found, form=form):
        words = row.values[0]
        if words is None or isinstance(words, str):
            cells = _cells(words or "")
            if form == "text" and len(cells) == 2 and cells[1].startswith(("B-", "I-")):
                raise DataError(
                    f"{source}:{row.line} is a word and its tag; give --input-format conll, or sentences without tags"
                )
            words = (words or "").split()
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise DataError(f"{source}:{row.line}: '{text}' is {shown(words)}; give a text or a list of words")
        if not words:
            found["texts are empty"] += 1
        yield tuple(words)


def _sentences(path: str | Path, found: Notes, tagged: bool) -> Iterator[Sentence]:
    """The sentences of a CoNLL file, with IOB2 tags; `tagged` says that they must have tags."""
    words: list[str] = []
    tags: list[str] = []
    kept: list[str] = []
    places: list[int] = []
    columns = first = inside = begun = 0  # counts of entities that begin with I-, and of those that begin with B-
    some = ended = False

    def sentence() -> Sentence:
        return Sentence(tuple(words), as_iob2(tags) if columns > 1 else None, tuple(kept), tuple(places))

    for number, line in lines(path, found):
        if MARK in line:
            found[MARKS] += line.count(MARK)
            line = line.replace(MARK, "")
        cells = _cells(line)
        if not cells or cells[0] == DOCUMENT:
            kept.append(line)
            ended = bool(words)
            continue
        if ended:
            yield sentence()
            for each in (words, tags, kept, places):
                each.clear()
            ended = False
        if not some:
            some, columns, first = True, len(cells), number
        _check(cells, columns, first, tagged, f"{path}:{number}")
        if columns > 1:
            tag, before = cells[-1], tags[-1] if tags else OUTSIDE
            if tag != OUTSIDE and tag[2:] != before[2:]:
                inside += tag[0] == "I"
                begun += tag[0] == "B"
            tags.append(tag)
        places.append(len(kept))
        words.append(cells[0])
        kept.append(line)
    if not some:
        raise DataError(f"{path} holds no words; write one on each line, its tag after it")
    yield sentence()
    if inside and not begun:
        found["entities begin with I- (IOB1) and were read as beginning with B- (IOB2)"] += inside
    elif inside:
        found["entities begin with I- against IOB2 and were read as beginning with B-"] += inside


def _check(cells: list[str], columns: int, first: int, tagged: bool, where: str) -> None:
    if len(cells) != columns:
        raise DataError(
            f"{where} has {len(cells)} columns where line {first} has {columns}; write a word, then its tag last, "
            "between tabs or spaces"
        )
    if columns == 1 and tagged:
        raise DataError(f"{where} has no tag; write a word, then its tag, between a tab or a space")
    if not cells[0]:
        raise DataError(f"{where} has a tag and no word; write the word before it")
    if columns > 1 and not _TAG.fullmatch(cells[-1]):
        raise DataError(f"{where} has the tag {shown(cells[-1])}; write O, B-TYPE or I-TYPE")
