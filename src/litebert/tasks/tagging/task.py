"""Tagging words: CoNLL columns, the word first and its tag last, a blank line between sentences.

Tags of entities are IOB2 (O, B-TYPE, I-TYPE); IOB1 is turned into it, and entities are what is
scored. Where no tag of the training file begins with B- or I-, as with parts of speech, every word
is scored on its own.

Every word is encoded on its own, as if a space stood before it; its first token carries the tag. A
sentence longer than a row becomes several rows that overlap, and each word is learned and answered
once, where it has most context; nothing is truncated. The price is that some tokens are read twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert.data import IGNORED
from litebert.errors import ConfigError, DataError
from litebert.finetuning.examples import ModelExample
from litebert.finetuning.items import Item, PlainItem, build_row
from litebert.finetuning.outputs import Answer, saved_output
from litebert.finetuning.token_outputs import Tags
from litebert.storage import atomic_text
from litebert.tasks.parts import Data, FileTask, Layout, Source, given_files, layout_of, part_files
from litebert.tasks.predictions import texts
from litebert.tasks.scores import class_scores, scores
from litebert.tasks.tagging.files import (
    DOCUMENT,
    TAG,
    Sentence,
    cells_of,
    has_entities,
    read_sentences,
)
from litebert.tasks.tagging.scores import OUTSIDE, as_iob2, entities, entity_scores
from litebert.text.records import FileFormat, Notes, detect_format, format_value, read_records
from litebert.tokenizer import Tokenizer


class TaggingTask(FileTask[Sentence]):
    """Tags from CoNLL files.

    The labels are O, then B- and I- of each type of the training file, sorted; without entities,
    its tags, the commonest first; or `labels`, as a model was saved with. Without a dev part, a
    share `heldout` of the sentences of the training part takes its place.
    """

    name, suffix = "tagging", ".conll"
    inputs = "give a text or a list of words"
    predicted_files = ("SENTENCES.conll", "ANSWERS.jsonl")
    takes = ("dev", "test", "heldout", "encoding")

    def __init__(
        self,
        data: Data,
        *,
        labels: Sequence[str] | None = None,
        heldout: float = 0.1,
        layout: Layout | None = None,
    ) -> None:
        super().__init__(Tags(), files=part_files(data), heldout=heldout, layout=layout)
        self.plain = False
        if labels is None:
            paths = self._of("train")
            self.plain = not has_entities(paths, self._layout.encoding)
            labels = self._survey(paths)
        elif labels:
            kinds = [TAG.fullmatch(label) is not None for label in labels]
            self.plain = not any(label.startswith(("B-", "I-")) for label in labels) and not all(
                kinds
            )
            if not self.plain and not all(kinds):
                other = labels[kinds.index(False)]
                raise ConfigError(
                    f"the model's label '{other}' is not O, B-TYPE or I-TYPE, but others "
                    "are; give a "
                    "tagging model"
                )
        self.output = Tags(tuple(labels))
        if self.plain:
            self.metric = "accuracy"
        self._outside = labels[0] if self.plain else OUTSIDE

    def _survey(self, paths: Sequence[Path]) -> tuple[str, ...]:
        """The labels of the training files."""
        counts = Counter(
            tag for sentence in self._sentences(paths, Notes(), True) for tag in sentence.tags or ()
        )
        if self.plain:
            return tuple(sorted(counts, key=lambda tag: (-counts[tag], tag)))
        types = {tag[2:] for tag in counts if tag != OUTSIDE}
        return (OUTSIDE, *sorted(f"{first}-{type_}" for first in "BI" for type_ in types))

    def _sentences(self, paths: Sequence[Path], found: Notes, tagged: bool) -> Iterator[Sentence]:
        for path in paths:
            yield from read_sentences(
                path, found, tagged, plain=self.plain, encoding=self._layout.encoding
            )

    @classmethod
    def from_data(cls, name: str, data: Source, **options: Any) -> TaggingTask:
        """Of a folder's files, or of training files with `dev` and `test` beside them."""
        return cls(given_files(data, options), layout=layout_of(options), **options)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> TaggingTask:
        """With the model's tags."""
        return cls({}, labels=saved_output(settings).labels)

    def read(self, part: str) -> list[Sentence]:
        """The sentences of a part. Only `test` may be without tags: a file with one column."""
        self._found = Notes()
        sentences = list(self._sentences(self._of(part), self._found, tagged=part != "test"))
        sentences = self._own(part, sentences, lambda i: i, "sentences")
        if part == "train" and self.plain:
            self._found[
                "different tags, none with B- or I-: every word is scored, and accuracy chooses"
            ] = len(self.output.labels)
        seen = (
            Counter(tag for sentence in sentences for tag in sentence.tags or ())
            if self.plain
            else Counter(
                entity.type for sentence in sentences for entity in entities(sentence.tags or ())
            )
        )
        known = (
            set(self.output.labels) if self.plain else {label[2:] for label in self.output.labels}
        )
        for one in sorted(seen.keys() - known):
            what = f"words with the tag {one}" if self.plain else f"entities of type {one}"
            self._found[f"{what}, unknown to the model, count as missed"] += seen[one]
        return sentences

    def example(self, value: Any, name: str) -> Sentence:
        """Of a list of words, or of a text that is split at spaces."""
        return _sentence(texts(value.split() if isinstance(value, str) else value))

    def show_example(self, example: Sentence) -> ModelExample:
        """The words; their tags have no short form."""
        return ModelExample({"words": list(example.words)})

    def stream(
        self,
        source: str | Path,
        *,
        text: str = "text",
        pair: str | None = None,
        form: FileFormat | None = None,
    ) -> Iterator[Sentence]:
        """The sentences of CoNLL columns, of which the first is read; or of rows whose column
        `text` is a list of words, or a text that is split at spaces.
        """
        self._found = Notes()
        form = form or detect_format(source)
        if form == "conll":
            for sentence in read_sentences(source, self._found, tagged=False):
                yield _sentence(sentence.words)
            return
        for row in read_records(source, (text,), self._found, form=form):
            words = row.values[0]
            if words is None or isinstance(words, str):
                cells = cells_of(words or "")
                if form == "text" and len(cells) == 2 and cells[1].startswith(("B-", "I-")):
                    raise DataError(
                        f"{source}:{row.line} is a word and its tag; give --input-format "
                        "conll, or plain sentences"
                    )
                words = (words or "").split()
            if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
                raise DataError(
                    f"{source}:{row.line}: '{text}' is {format_value(words)}; give a text or a "
                    "list of words"
                )
            if not words:
                self._found["texts are empty"] += 1
            yield _sentence(tuple(words))

    def encode(self, examples: Sequence[Sentence], tokenizer: Tokenizer, length: int) -> list[Item]:
        """One row of at most `length` tokens a sentence, or several that overlap by half.

        Sentences without a token have none. `detail` is int64 (k, 2): the words that a row answers,
        and the place in the row of their first tokens; all other tokens have the target `IGNORED`.
        """
        # In byte-level BPE a word inside a text begins with its space; the other kinds mark words
        # themselves.
        space = " " if tokenizer.kind == "bpe" else ""
        words = list(dict.fromkeys(word for sentence in examples for word in sentence.words))
        ids_of = dict(zip(words, tokenizer.encode([space + word for word in words]), strict=True))
        label_of = {label: i for i, label in enumerate(self.output.labels)}
        items = []
        for example, sentence in enumerate(examples):
            pieces = [ids_of[word] for word in sentence.words]
            tokens = [token for piece in pieces for token in piece]
            starts = np.cumsum([0, *map(len, pieces)])[:-1]
            told = np.array([bool(piece) for piece in pieces], np.bool_)
            if not told.all():
                self._found[f"words that give no token are tagged {self._outside}"] += int(
                    (~told).sum()
                )
            room = length - 2
            over = len(tokens) - room
            windows = [
                *range(0, over, max(1, room // 2)),
                max(0, over),
            ]  # the last one ends with the sentence
            if len(windows) > 1:
                self._found[f"sentences longer than {length} tokens were read in windows"] += 1
            # The context of a token in a window is the shorter way to either end of it; negative
            # outside of it.
            first = np.array(windows)[:, None]
            last = np.minimum(first + room, len(tokens)) - 1
            best = np.minimum(starts - first, last - starts).argmax(0)
            for window, begin in enumerate(windows):
                own = np.flatnonzero(told & (best == window))
                if len(own) == 0:
                    continue
                row = build_row(tokenizer, tokens[begin : begin + room])
                places = starts[own] - begin + 1
                target = None
                if sentence.tags is not None:
                    target = np.full(len(row.ids), IGNORED, np.int64)
                    target[places] = [label_of.get(sentence.tags[word], IGNORED) for word in own]
                items.append(Item(example, (row,), target, np.stack((own, places), axis=1)))
        return items

    def plain_items(self, examples: Sequence[Sentence]) -> list[PlainItem]:
        """The words of each sentence; the places of their logits are those of the words."""
        label_of = {label: i for i, label in enumerate(self.output.labels)}
        items = []
        for i, sentence in enumerate(examples):
            target = None
            if sentence.tags is not None:
                target = np.array([label_of.get(tag, IGNORED) for tag in sentence.tags], np.int64)
            places = np.arange(len(sentence.words))
            items.append(
                PlainItem(i, (), target, np.stack((places, places), axis=1), texts=sentence.words)
            )
        return items

    def answers(
        self,
        examples: Sequence[Sentence],
        items: Sequence[Item],
        logits: Sequence[NDArray[np.float32]],
    ) -> list[Answer]:
        """A tag for each word of each sentence, in order, those of entities made valid IOB2, and
        its probability.

        A word without a token is answered O (or the commonest tag), of probability 1.
        """
        tags = [[self._outside] * len(sentence.words) for sentence in examples]
        likely = [np.ones(len(sentence.words)) for sentence in examples]
        for item, found in zip(items, logits, strict=True):
            words, places = item.detail.T
            (answer,) = self.output.answers([found[places]])
            likely[item.example][words] = answer.probabilities
            for word, tag in zip(words.tolist(), answer.value, strict=True):
                tags[item.example][word] = tag
        valid = [tuple(found) if self.plain else as_iob2(found) for found in tags]
        return [Answer(found, p) for found, p in zip(valid, likely, strict=True)]

    def record(self, example: Sentence, answer: Answer) -> dict[str, Any]:
        """The words with their tags."""
        return {"words": list(example.words), **super().record(example, answer)}

    def score(self, examples: Sequence[Sentence], answers: Sequence[Answer]) -> dict[str, float]:
        """`precision`, `recall` and `f1` over all entities, and `f1_TYPE` of each type; without
        entities `accuracy`, the share of words, and `macro_f1` over the tags.
        """
        truth, guess = self._tags(examples, answers)
        if self.plain:
            return scores(("accuracy", "macro_f1"), *self._numbers(truth, guess))
        overall, of_type = entity_scores(truth, guess)
        return overall._asdict() | {f"f1_{type_}": found.f1 for type_, found in of_type.items()}

    def by_class(
        self, examples: Sequence[Sentence], answers: Sequence[Answer]
    ) -> dict[str, dict[str, float]]:
        """Of each type of entity, or of each tag."""
        truth, guess = self._tags(examples, answers)
        if self.plain:
            return class_scores(self.output.labels, *self._numbers(truth, guess))
        counts = Counter(entity.type for tags in truth for entity in entities(tags))
        return {
            type_: {**found._asdict(), "count": counts[type_]}
            for type_, found in entity_scores(truth, guess)[1].items()
        }

    def _tags(
        self, examples: Sequence[Sentence], answers: Sequence[Answer]
    ) -> tuple[list[Any], list[Any]]:
        """Right and given tags of the sentences that have some."""
        examples, answers = self._known(
            examples, answers, lambda sentence: sentence.tags is not None
        )
        return [sentence.tags for sentence in examples], [answer.value for answer in answers]

    def _numbers(self, *tagged: Sequence[Sequence[str]]) -> list[NDArray[np.int64]]:
        """The numbers of tags, one after the other; -1 of those that the model does not know."""
        number_of = {label: number for number, label in enumerate(self.output.labels)}
        return [
            np.array([number_of.get(tag, -1) for tags in one for tag in tags], np.int64)
            for one in tagged
        ]

    def write(self, examples: Sequence[Sentence], answers: Sequence[Answer], path: Path) -> None:
        """The lines of the file that was read, with one more column: the answers."""
        with atomic_text(path) as file:
            for sentence, answer in zip(examples, answers, strict=True):
                tags = answer.value if self.plain else as_iob2(answer.value)
                tag_of = dict(zip(sentence.places, tags, strict=True))
                for place, line in enumerate(sentence.lines):
                    if place in tag_of or cells_of(line)[:1] == [DOCUMENT]:
                        line = line.rstrip(" \t")
                        line += ("\t" if "\t" in line else " ") + tag_of.get(place, self._outside)
                    file.write(line + "\n")


def _sentence(words: tuple[str, ...]) -> Sentence:
    """Words without tags, each on a line of its own."""
    return Sentence(words, None, words, tuple(range(len(words))))
