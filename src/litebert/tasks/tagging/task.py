"""Tagging words: sentences with a tag for each word, in CoNLL columns and other forms (files.py).

Scores count entities; if no tag of the training file begins with B- or I-, as with parts of speech,
they count words. Each word is encoded alone, as if after a space, and its first token carries the
tag. A long sentence becomes several sequences that overlap; each word is learned and answered once,
in the sequence that gives it the most context.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert.base.errors import ConfigError, DataError
from litebert.base.storage import atomic_text
from litebert.data import IGNORED
from litebert.tasks.outputs import restore_output
from litebert.tasks.predictions import list_texts
from litebert.tasks.rows import build_row
from litebert.tasks.scores import compute_class_scores, compute_scores
from litebert.tasks.splits import Source, SplitFiles, SplitOptions, format_files, take_layout
from litebert.tasks.tagging.files import (
    DOCUMENT,
    TAG,
    Columns,
    Sentence,
    cut_text,
    make_sentence,
    read_sentences,
    split_cells,
    survey,
)
from litebert.tasks.tagging.scores import OUTSIDE, as_iob2, find_entities, score_entities
from litebert.tasks.task import Row, Task
from litebert.tasks.token_outputs import Tags
from litebert.tasks.values import Answer, Item, ModelExample, PlainItem
from litebert.text.records import Notes, RowSource, detect_format, format_value, read_records
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.words import find_words

log = logging.getLogger("litebert")


@dataclass(frozen=True, kw_only=True)
class TaggingOptions(SplitOptions):
    """The options of tagging."""

    word_column: str | None = None
    """Column of the words, by name or by number from 0; by default the first, or tokens."""
    tag_column: str | None = None
    """Column of the tags; by default the last, or ner_tags."""


class TaggingFiles(SplitFiles[Sentence]):
    """Files of sentences with tags. A dev split that is held out takes whole documents, or
    sentences where the files tell no documents.
    """

    task: TaggingTask

    @classmethod
    def of(
        cls,
        sources: Mapping[str, Source],
        *,
        labels: Sequence[str] | None = None,
        task_class: type[Task[Sentence]] | None = None,
        **options: Any,
    ) -> TaggingFiles:
        """Open files. The training split gives the labels, if they are not those of a model."""
        layout = take_layout(options)
        given = TaggingOptions(**options)
        make = task_class or TaggingTask
        assert issubclass(make, TaggingTask)
        columns = given.word_column, given.tag_column
        task = replace(make.of_labels(labels or ()), columns=columns)
        files = cls(task, sources, heldout=given.heldout, layout=layout)
        if labels is None:
            paths, name = files._find_files("train"), format_files(files._find_files("train"))
            files.task = replace(files.task, plain=True)  # which converts no tags
            plain, found = survey(files._read_files(paths, Notes(), True), name)
            output = Tags(found)
            if output.labels == (OUTSIDE,):
                remedy = "give the column of the tags (--tag-column), or other files"
                log.warning(f"all tags of {name} are O, so there is nothing to learn; {remedy}")
            metric = "accuracy" if plain else output.scores[0]
            files.task = replace(files.task, output=output, metric=metric, plain=plain)
        return files

    @classmethod
    def open_labeled(
        cls, task: Task[Sentence], source: Source, **options: Any
    ) -> SplitFiles[Sentence]:
        """Open labeled files to score a task on, by default with the training files' columns."""
        assert isinstance(task, TaggingTask)
        word, tag = task.columns
        columns = options.pop("text_column", word), options.pop("label_column", tag)
        return super().open_labeled(replace(task, columns=columns), source, **options)

    def _read_files(self, paths: Sequence[Path], notes: Notes, tagged: bool) -> Iterator[Sentence]:
        plain, encoding = self.task.plain, self._layout.encoding
        read = partial(read_sentences, plain=plain, encoding=encoding, columns=self.task.columns)
        for path in paths:
            yield from read(path, notes, tagged)

    def read(self, split: str, notes: Notes | None = None) -> list[Sentence]:
        """Read the sentences of a split. Only `test` may lack tags: a file with one column."""
        notes = Notes() if notes is None else notes
        paths = self._find_files(split)
        sentences = list(self._read_files(paths, notes, tagged=split != "test"))
        words = len(sentences[0].words)
        if len(sentences) == 1 and split != "test" and (self._holds_out or words > 1000):
            raise DataError(
                f"{format_files(paths)} is one sentence, of {words:,} words; put a blank line "
                "between sentences, or give more of them"
            )
        documents = {sentence.document for sentence in sentences} - {None}
        unit, groups = "sentences", list[Any](range(len(sentences)))
        if len(documents) > 1:
            unit, groups = "documents", [s.document or i for i, s in enumerate(sentences)]
        sentences = self._select_split(split, sentences, groups, unit, notes)
        if split == "train" and self.task.plain:
            notes[
                "different tags, none with B- or I-: every word is scored, and accuracy chooses"
            ] = len(self.task.output.labels)
        # Tags or types that the model has not learned.
        counts = Counter[str]()
        for sentence in sentences:
            tags = sentence.tags or ()
            counts.update(
                tags if self.task.plain else (entity.type for entity in find_entities(tags))
            )
        labels = self.task.output.labels
        learned = set(labels) if self.task.plain else {label[2:] for label in labels}
        for name in sorted(counts.keys() - learned):
            what = f"words with the tag {name}" if self.task.plain else f"entities of type {name}"
            notes[f"{what}, unknown to the model, count as missed"] += counts[name]
        return sentences

    @classmethod
    def stream(
        cls, source: RowSource, notes: Notes, *, text: str = "text", pair: str | None = None
    ) -> Iterator[Row[Sentence]]:
        """Read sentences without tags: the first of CoNLL columns; or rows whose column `text` is a
        list of words, or a text, whose words are found.
        """
        form = detect_format(source)
        if form == "conll":
            columns = (text if text.isdecimal() else None, None)
            for sentence in read_sentences(source, notes, tagged=False, columns=columns):
                yield Row(make_sentence(sentence.words), file=str(source))
            return
        for line, (words,), extras in read_records(source, (text,), notes):
            if words is None or isinstance(words, str):
                cells = split_cells(words or "")
                if form == "text" and len(cells) == 2 and cells[1].startswith(("B-", "I-")):
                    raise DataError(
                        f"{source}:{line} is a word and its tag; give --input-format "
                        "conll, or plain sentences"
                    )
                sentence = cut_text(words or "")
            elif not isinstance(words, list) or not all(isinstance(word, str) for word in words):
                raise DataError(
                    f"{source}:{line}: '{text}' is {format_value(words)}; give a text or a "
                    "list of words"
                )
            else:
                sentence = make_sentence(words)
            if not sentence.words:
                notes["texts are empty"] += 1
            yield Row(sentence, extras, str(source), line)


@dataclass(frozen=True)
class TaggingTask(Task[Sentence]):
    """Tags of words: entities, or plain tags such as parts of speech."""

    name, files, options = "tagging", TaggingFiles, TaggingOptions
    suffix = ".conll"
    inputs = "give a text or a list of words"
    predicted_files = ("SENTENCES.conll", "ANSWERS.jsonl")

    plain: bool = False
    """True if tags mark no entities, as those of parts of speech."""
    columns: Columns = (None, None)

    @classmethod
    def of_labels(cls, labels: Sequence[str]) -> TaggingTask:
        is_iob2 = [TAG.fullmatch(label) is not None for label in labels]
        plain = not all(is_iob2)
        if plain and any(label.startswith(("B-", "I-")) for label in labels):
            other = labels[is_iob2.index(False)]
            raise ConfigError(
                f"the model's label '{other}' is not O, B-TYPE or I-TYPE, but other labels are; "
                "give a tagging model"
            )
        return cls(Tags(tuple(labels)), metric="accuracy" if plain else "", plain=plain)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> TaggingTask:
        columns = settings.get("columns") or {}
        task = cls.of_labels(restore_output(settings).labels)
        return replace(task, columns=(columns.get("text"), columns.get("label")))

    def settings(self) -> dict[str, Any]:
        columns = {n: c for n, c in zip(("text", "label"), self.columns, strict=True) if c}
        return {"columns": columns} if columns else {}

    @property
    def outside(self) -> str:
        """The tag of a word without an answer."""
        return self.output.labels[0] if self.plain else OUTSIDE

    def example(self, value: Any, name: str) -> Sentence:
        return cut_text(value) if isinstance(value, str) else make_sentence(list_texts(value))

    def show_example(self, example: Sentence) -> ModelExample:
        return ModelExample({"words": list(example.words)})

    def encode(
        self, examples: Sequence[Sentence], tokenizer: Tokenizer, length: int, notes: Notes
    ) -> list[Item]:
        """Encode each sentence as sequences of at most `length` tokens that overlap by half.

        A sentence without tokens has none. `detail` is int64 (k, 2): the words that a sequence
        answers, and the positions of their first tokens. All other tokens have the target
        `IGNORED`.
        """
        words = list(dict.fromkeys(word for sentence in examples for word in sentence.words))
        ids_of = dict(
            zip(words, tokenizer.encode([tokenizer.space + word for word in words]), strict=True)
        )
        label_of = {label: i for i, label in enumerate(self.output.labels)}
        size = length - 2
        items = []
        for example, sentence in enumerate(examples):
            word_ids = [ids_of[word] for word in sentence.words]
            tokens = [token for ids in word_ids for token in ids]
            word_starts = np.cumsum([0, *map(len, word_ids)])[:-1]
            has_token = np.array([bool(ids) for ids in word_ids], np.bool_)
            if not has_token.all():
                missing = int((~has_token).sum())
                notes[f"words that give no token are tagged {self.outside}"] += missing
            begins, owner = _assign_windows(word_starts, len(tokens), size)
            if len(begins) > 1:
                notes[f"sentences longer than {length} tokens were read in windows"] += 1
            for window, begin in enumerate(begins):
                owned = np.flatnonzero(has_token & (owner == window))
                if len(owned) == 0:
                    continue
                row = build_row(tokenizer, tokens[begin : begin + size])
                positions = word_starts[owned] - begin + 1
                target = None
                if sentence.tags is not None:
                    target = np.full(len(row.ids), IGNORED, np.int64)
                    labels = [label_of.get(sentence.tags[word], IGNORED) for word in owned]
                    target[positions] = labels
                items.append(Item(example, (row,), target, np.stack((owned, positions), axis=1)))
        return items

    def plain_items(self, examples: Sequence[Sentence]) -> list[PlainItem]:
        label_of = {label: i for i, label in enumerate(self.output.labels)}
        items = []
        for i, sentence in enumerate(examples):
            target = None
            if sentence.tags is not None:
                target = np.array([label_of.get(tag, IGNORED) for tag in sentence.tags], np.int64)
            indices = np.arange(len(sentence.words))
            detail = np.stack((indices, indices), axis=1)
            items.append(PlainItem(i, (), target, detail, texts=sentence.words))
        return items

    def answers(
        self,
        examples: Sequence[Sentence],
        items: Sequence[Item],
        logits: Sequence[NDArray[np.float32]],
    ) -> list[Answer]:
        """Return a tag for each word, and its probability; tags of entities as valid IOB2. A word
        without a token has the answer O (or the commonest tag), with probability 1.
        """
        tags = [[self.outside] * len(sentence.words) for sentence in examples]
        probabilities = [np.ones(len(sentence.words)) for sentence in examples]
        for item, item_logits in zip(items, logits, strict=True):
            words, positions = item.detail.T
            (answer,) = self.output.answers([item_logits[positions]])
            probabilities[item.example][words] = answer.probabilities
            for word, tag in zip(words.tolist(), answer.value, strict=True):
                tags[item.example][word] = tag
        return [
            Answer(tuple(values) if self.plain else as_iob2(values), sentence_probabilities)
            for values, sentence_probabilities in zip(tags, probabilities, strict=True)
        ]

    def record(self, example: Sentence, answer: Answer) -> dict[str, Any]:
        """Return the words, their tags, their characters in the text (a list joined by spaces), and
        the entities.
        """
        record = {"words": list(example.words), **super().record(example, answer)}
        text = " ".join(example.words) if example.text is None else example.text
        ends = np.cumsum([len(word) + 1 for word in example.words], dtype=np.int64) - 1
        spans = [(e - len(w), e) for w, e in zip(example.words, ends.tolist(), strict=True)]
        offsets = spans if example.text is None else find_words(text)
        record["offsets"] = [*map(list, offsets)]
        if not self.plain:
            tags, record["entities"] = record["prediction"], list[dict[str, Any]]()
            for type_, first, end in sorted(find_entities(tags), key=lambda entity: entity.start):
                place = {"start": offsets[first][0], "end": offsets[end - 1][1]}
                probability = min(record["probabilities"][first:end])
                entity = {"type": type_, **place, "text": text[place["start"] : place["end"]]}
                record["entities"].append({**entity, "probability": probability})
        return record

    def read_record(self, example: Sentence, record: Mapping[str, Any]) -> Answer:
        answer: Answer = super().read_record(example, record)
        if len(answer.value) != len(example.words):
            raise ValueError
        return answer

    def has_label(self, example: Sentence) -> bool:
        return example.tags is not None

    def score(self, examples: Sequence[Sentence], answers: Sequence[Answer]) -> dict[str, float]:
        """Score entities, over all and `f1_TYPE`; plain tags by `accuracy` and `macro_f1`."""
        gold, predicted = self._align(examples, answers)
        if self.plain:
            return compute_scores(("accuracy", "macro_f1"), *self._number_tags(gold, predicted))
        overall, scores_of_type = score_entities(gold, predicted)
        f1_of_type = {f"f1_{type_}": scores.f1 for type_, scores in scores_of_type.items()}
        return overall._asdict() | f1_of_type

    def by_class(
        self, examples: Sequence[Sentence], answers: Sequence[Answer]
    ) -> dict[str, dict[str, float]]:
        gold, predicted = self._align(examples, answers)
        if self.plain:
            return compute_class_scores(self.output.labels, *self._number_tags(gold, predicted))
        counts = Counter(entity.type for tags in gold for entity in find_entities(tags))
        return {
            type_: {**scores._asdict(), "count": counts[type_]}
            for type_, scores in score_entities(gold, predicted)[1].items()
        }

    def _align(
        self, examples: Sequence[Sentence], answers: Sequence[Answer]
    ) -> tuple[list[Any], list[Any]]:
        examples, answers = self._select_labeled(examples, answers)
        return [sentence.tags for sentence in examples], [answer.value for answer in answers]

    def _number_tags(self, *sides: Sequence[Sequence[str]]) -> list[NDArray[np.int64]]:
        """Return the label numbers of all words, for each side; -1 for a tag without a label."""
        number_of = {label: number for number, label in enumerate(self.output.labels)}
        return [
            np.array([number_of.get(tag, -1) for tags in side for tag in tags], np.int64)
            for side in sides
        ]

    def write(self, examples: Sequence[Sentence], answers: Sequence[Answer], path: Path) -> None:
        with atomic_text(path) as file:
            for sentence, answer in zip(examples, answers, strict=True):
                tags = answer.value if self.plain else as_iob2(answer.value)
                tag_of_line = dict(zip(sentence.word_lines, tags, strict=True))
                for i, line in enumerate(sentence.lines):
                    if i in tag_of_line or split_cells(line)[:1] == [DOCUMENT]:
                        line = line.rstrip(" \t")
                        separator = "\t" if "\t" in line else " "
                        line += separator + tag_of_line.get(i, self.outside)
                    file.write(line + "\n")


def _assign_windows(
    word_starts: NDArray[np.int64], count: int, size: int
) -> tuple[list[int], NDArray[np.int64]]:
    """Divide a sentence of `count` tokens into windows of at most `size`: the first token of each;
    and (words,), the window of each word, the one that gives it the most context.
    """
    excess = count - size
    # The last window ends with the sentence.
    begins = [*range(0, excess, max(1, size // 2)), max(0, excess)]
    # The context of a token in a window is its distance to the nearer end, negative outside.
    first = np.array(begins)[:, None]
    last = np.minimum(first + size, count) - 1
    return begins, np.minimum(word_starts - first, last - word_starts).argmax(0)
