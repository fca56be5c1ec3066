"""A model in a worker process: its abilities, and the answers to a group of inputs.

Every input is answered or refused alone. A refusal never holds a text.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert.answer.engines.exits import EarlyExit
from litebert.answer.masks.texts import build_masked_row, find_targets, mask_pattern
from litebert.answer.model import load
from litebert.answer.predicting import Answered, Predictor
from litebert.answer.vectors import SentenceEncoder
from litebert.base.errors import DataError, ModelError
from litebert.interop.names import find_exported_graph
from litebert.interop.sentence_modules import VectorSettings, vector_settings
from litebert.serve.limits import choices_of
from litebert.serve.steps import LongTexts, Steps
from litebert.serve.wire import Group, Row, as_json, refuse, refuse_length
from litebert.tasks.outputs import logistic, softmax
from litebert.tasks.rows import build_row
from litebert.tasks.similarity import scale_to_unit
from litebert.tasks.task import Task, read_examples
from litebert.tasks.values import Item
from litebert.text.records import Notes

LISTED = 1000
"""Tokens whose JSON is made at a time."""
MOST_LISTED = 100_000
"""Most tokens of a text in an answer of `tokenize`."""


class Served:
    """A model folder, opened to serve."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self.most_tokens = int(settings["tokens"])
        opened = load(
            folder,
            engine=settings.get("engine"),
            dtype=settings.get("dtype"),
            device=settings["device"],
            exit_confidence=settings["exit_confidence"],
            min_precision=settings.get("min_precision"),
        )
        model = self.model = replace(opened, threads=settings["threads"])
        self.tokenizer = model.require_tokenizer()
        record, shape = model.task_record, model.config.encoder
        self.engine, self.length, self.layers = model.engine, model.length, shape.layers
        if self.engine == "tfidf":  # its tokens take no time, so the characters are limit enough
            self.most_tokens = self.length
        try:
            vectors = vector_settings(model) or VectorSettings()
        except ModelError:  # which asking for vectors reports
            vectors = VectorSettings()
        self.width, self.prompts = vectors.count_numbers(shape.hidden_size), [*vectors.prompts]
        self.pooling = vectors.pooling
        self._vector_length = min(vectors.length or self.length, shape.max_positions)
        """The longest row that a vector is made of, in tokens."""
        self.compares = record.get("kind") == "backbone"  # a model of pairs, or an export of states
        self.steps = Steps()
        self.predictor: Predictor | None = None
        if record and not self.compares:
            self.predictor = replace(model.predictor, around=self.steps.passes)
        self._long_texts = LongTexts(self.tokenizer, self.steps.aside)
        self.examples = read_examples(folder)
        task = self.predictor.task if self.predictor is not None else None
        operations: dict[str, tuple[bool, Callable[..., list[Row]]]] = {
            "tokenize": (True, self.tokenize),
            "predict": (self.predictor is not None, self.predict),
            "fill-mask": (model.can_fill, self.fill),
            "embed": (model.can_encode, self.embed),
            "cosine": (model.can_encode, self.cosine),
            "score": (
                task is not None and task.output.ranks and task.pair is not False,
                self.score,
            ),
        }
        self.does = {name: method for name, (can, method) in operations.items() if can}
        """The method that answers a group of inputs, by the name of its operation."""
        # A graph is opened now, so that its fault meets no client.
        if "fill-mask" in self.does:
            _ = model.mask_filler
        if self.compares:
            _ = self.encoder

    def info(self) -> dict[str, Any]:
        """Describe the model for clients."""
        task = self.predictor.task if self.predictor is not None else None
        own = ("predict", "fill-mask")
        lengths: dict[str, int] = {name: self.length for name in own if name in self.does}
        if "embed" in self.does:
            lengths |= dict.fromkeys(("embed", "similarity", "rerank"), self._vector_length)
        if "score" in self.does:
            lengths["rerank"] = self.length
        kind = "similarity" if self.compares else "pretrained"
        if task is not None:
            kind = "number" if task.output.ranks else task.output.name
        dtype: str = self.model.dtype
        graph = find_exported_graph(self.model.path)
        if dtype == "float32" and graph is not None and b"MatMulInteger" in graph.read_bytes():
            dtype = "int8"
        # The samples of the page suit a tokenizer that is mostly Latin.
        tokens = map(self.tokenizer.get_token, range(self.tokenizer.vocab_size))
        written = [
            letters for token in tokens if (letters := [sign for sign in token if sign.isalpha()])
        ]
        return {
            "kind": kind,
            "routes": [*lengths, "tokenize"],
            "pair": task.pair if task is not None else False,
            "labels": list(task.output.labels) if task is not None else [],
            "inputs": task.inputs if task is not None else "give a text",
            "length": min(lengths.values(), default=self.length),
            "lengths": lengths,
            "width": self.width if "embed" in self.does else None,
            "prompts": self.prompts if "embed" in self.does else [],
            "layers": self.layers,
            "exits": self.predictor is not None and isinstance(self.predictor.runtime, EarlyExit),
            "min_precision": self.model.min_precision if task is not None else None,
            "mask": self.tokenizer.get_token(self.tokenizer.mask_id)
            if "fill-mask" in self.does
            else None,
            "engine": self.engine,
            "dtype": dtype,
            "pooling": self.pooling if "embed" in self.does else None,
            "tokenizer": self.tokenizer.kind,
            "examples": [{**example.inputs, "label": example.label} for example in self.examples],
            "reads_english": 3 * sum(all(map(str.isascii, letters)) for letters in written)
            >= 2 * len(written),
        }

    # ------------------------------------------------------------------------------------ answering

    def answer(self, group: Group) -> list[Row]:
        """Return a row for each input of a group; within `Steps.of`, in steps."""
        inputs = [_without_nul(value) for value in group.inputs]
        return self.does[group.operation](inputs, **dict(group.options))

    def predict(
        self,
        inputs: Sequence[Any],
        truncate: bool = True,
        top: int | None = None,
        listed: bool = False,
        **shape: Any,
    ) -> list[Row]:
        """Answer inputs as `litebert predict` does, with the positions of the answers.

        `top` keeps the likeliest labels alone; `listed` answers as Hugging Face's `InferenceClient`
        reads it, in the `shape` that `list_answer` takes.
        """
        assert self.predictor is not None
        task = self.predictor.task
        rows: dict[int, Row] = {}
        examples, chosen = [], list[tuple[int, Any, int]]()  # with the shortened input
        for index, value in enumerate(inputs):
            short, cut = value, 0
            if any(map(self._long_texts.is_long, texts := _texts_of(value))):
                if task.output.reads_cls:
                    short, cut = self._shorten(value)
                else:
                    size = sum(len(self._long_texts.encode(text)) for text in texts)
                    if size > self.most_tokens:
                        rows[index] = refuse_length(size, "this service reads", self.most_tokens)
                        continue
            try:
                examples.append(task.example(short, str(index)))
                chosen.append((index, short, cut))
            except (TypeError, ValueError, DataError):
                rows[index] = refuse(f" does not fit this model; {task.inputs}")
        sizes, truncated, items = [0] * len(examples), [0] * len(examples), list[Item]()
        if examples:
            with self.steps.aside():
                items = task.encode(examples, self.tokenizer, self.predictor.length, Notes())
                for item in items:
                    number = item.example
                    if sizes[number] == 0:
                        _, short, cut = chosen[number]
                        truncated[number] = cut + self._count_truncated(short, item)
                    sizes[number] += sum(len(row.ids) for row in item.rows)
        for number, (index, _, _) in enumerate(chosen):
            if sizes[number] > self.most_tokens:
                rows[index] = refuse_length(sizes[number], "this service reads", self.most_tokens)
            elif not truncate and truncated[number]:
                size = sizes[number] + truncated[number]
                rows[index] = refuse_length(size, "the model reads", self.length)
        left = [number for number, (index, _, _) in enumerate(chosen) if index not in rows]
        places = {number: place for place, number in enumerate(left)}
        answers = self.predictor.answer_items(
            [examples[number] for number in left],
            [
                replace(item, example=places[item.example])
                for item in items
                if item.example in places
            ],
        )
        for number, entry in zip(left, answers if left else (), strict=True):
            reading = {"tokens": sizes[number], "truncated": truncated[number]}
            record: Any = task.record(entry.example, entry.answer) | entry.used | reading
            if task.output.head == "span":  # the characters of the answer in its context
                answer, found = record["prediction"], entry.answer.candidates
                start = found[0].begin if answer and found else None
                record |= {"start": start, "end": None if start is None else start + len(answer)}
            if listed:
                record = list_answer(task, record, entry, top, **shape)
            elif top is not None:
                likely = sorted(record["probabilities"].items(), key=lambda pair: -pair[1])[:top]
                record |= {"probabilities": dict(likely)}
            payload = as_json(record)
            rows[chosen[number][0]] = Row(payload, sizes[number], truncated=truncated[number])
        return [rows[index] for index in range(len(inputs))]

    def _shorten(self, value: Any) -> tuple[Any, int]:
        """Take the ends off long texts that no row would hold, and count the missing tokens. With
        choices, only the context is shortened, for a row may hold the end of a question.
        """
        assert self.predictor is not None
        most = self.predictor.length
        if self.predictor.task.output.head != "choice":
            return self._long_texts.shorten(value, most)
        if not (isinstance(value, list) and value and isinstance(value[0], str)):
            return value, 0
        context, cut = self._long_texts.shorten(value[0], most)
        return [context, *value[1:]], cut * len(choices_of(value))

    def _count_truncated(self, value: Any, item: Item) -> int:
        """Count the tokens of an input that its rows do not hold; `item` is its first item."""
        assert self.predictor is not None
        output, most = self.predictor.task.output, self.predictor.length
        if output.head == "span":  # a context is read in windows, and only a question is cut
            question = int((item.rows[0].types == 0).sum()) - 1 - self.tokenizer.pair_separators
            return max(0, len(self.tokenizer.encode([value[0].strip()])[0]) - question)
        if not output.reads_cls or item.length < most:  # windows, or a row that has room
            return 0
        return sum(max(0, length - most) for length in self._row_lengths(value))

    def _row_lengths(self, value: Any) -> list[int]:
        """Count the tokens of each row of an input, one or one for each choice, uncut."""
        texts = [value] if isinstance(value, str) else value
        plain = self.tokenizer.encode([text for text in texts if isinstance(text, str)])
        if self.predictor is not None and self.predictor.task.apart:
            return [len(ids) + 2 for ids in plain]
        fixed = sum(map(len, plain)) + 2 + (len(texts) > 1) * self.tokenizer.pair_separators
        choices = self.tokenizer.encode(choices_of(texts))
        return [fixed + len(ids) for ids in choices] or [fixed]

    def fill(
        self,
        inputs: Sequence[str],
        top: int = 5,
        targets: tuple[str, ...] = (),
        listed: int = 0,
    ) -> list[Row]:
        """Predict the masks of each text, or the probabilities of `targets`; `listed` answers as
        Hugging Face's `fill_mask` reads it, with so many words at most.
        """
        try:
            words = find_targets(self.tokenizer, targets) if targets else None
        except DataError:
            message = " has a target that is no token; /tokenize shows the tokens of a word"
            return [refuse(message)] * len(inputs)
        rows = []
        for text in inputs:
            rows.append(self._fill_text(text, top, words, listed))
            self.steps.end()
        return rows

    def _fill_text(self, text: str, top: int, targets: list[int] | None, listed: int) -> Row:
        pattern = mask_pattern(self.tokenizer.get_token(self.tokenizer.mask_id))
        masks = len(pattern.findall(text))
        if masks == 0:
            return refuse(" has no mask; write [MASK] where a word should be predicted")
        if masks + 2 > self.length:
            return refuse_length(masks + 2, "the model reads", self.length)
        if self._long_texts.is_long(text):  # finding masks among the tokens takes long
            count = masks + 2 + len(self._long_texts.encode(pattern.sub(" ", text)))
            # A word that contains a mask may have a token more without it.
            if count > self.length + 2 * masks:
                return refuse_length(count, "the model reads", self.length)
        with self.steps.aside():
            row = build_masked_row(self.tokenizer, text, 1 << 40)
        if len(row) > self.length:
            return refuse_length(len(row), "the model reads", self.length)
        masked = [i for i, token in enumerate(row) if token == self.tokenizer.mask_id]
        payloads = []
        guesses = self.model.mask_filler.fill_row(row, masked, top, targets, self.steps.end)
        for position, words in zip(masked, guesses, strict=True):
            parts: list[dict[str, Any]] = [word._asdict() for word in words]
            if listed:
                before, after = row[1:position], row[position + 1 : -1]
                whole = (self.tokenizer.decode([*before, word.id, *after]) for word in words)
                parts = [
                    {"score": score, "token": token, "token_str": text, "sequence": sequence}
                    for (text, score, token), sequence in zip(words[:listed], whole, strict=False)
                ]
            payloads.append(as_json(parts))
            self.steps.end()
        if listed:  # of a single mask, without a list around
            answer = payloads[0] if len(payloads) == 1 else b"[%b]" % b",".join(payloads)
            return Row(answer, len(row))
        payload = b'{"masks":[%b],"tokens":%d,"truncated":0}' % (b",".join(payloads), len(row))
        return Row(payload, len(row))

    def embed(
        self,
        inputs: Sequence[Any],
        normalize: bool = True,
        truncate: bool = True,
        base: bool = False,
        dimensions: int | None = None,
        prompt_name: str | None = None,
    ) -> list[Row]:
        """Compute a vector for each text or list of token ids, as JSON or as base64 of float32, of
        its first `dimensions` numbers, after the prompt of `prompt_name`.
        """
        encoder = self.encoder
        if prompt_name is not None:
            encoder = replace(encoder, prompt=encoder.settings.get_prompt(prompt_name))
        inputs = [encoder.prepare(value) if isinstance(value, str) else value for value in inputs]
        encoded, rows = self._ids(inputs), list[Row]()
        valid = [ids for ids in encoded if max(ids, default=0) < self.tokenizer.vocab_size]
        vectors, most = iter(self._vectors(valid, normalize, dimensions)), self._vector_length
        for ids in encoded:
            length, known = len(ids) + 2, self.tokenizer.vocab_size
            if (largest := max(ids, default=0)) >= known:
                ours = f"and the model knows {known:,}; send texts, or ids of its own tokenizer"
                rows.append(refuse(f" has the token {largest}, {ours}"))
                continue
            vector = next(vectors)
            if length > most and not truncate:
                rows.append(refuse_length(length, "the model reads", most))
                continue
            if base:
                payload = b'"' + base64.b64encode(vector.astype("<f4").tobytes()) + b'"'
            else:
                # Nine digits tell any two float32 apart. This takes a tenth of json's time.
                numbers = ",".join(["%.9g"] * len(vector)) % tuple(vector.tolist())
                payload = f"[{numbers}]".encode()
            rows.append(Row(payload, min(length, most), truncated=max(0, length - most)))
        return rows

    def score(self, inputs: Sequence[Any], raw: bool = False, truncate: bool = True) -> list[Row]:
        """Answer each pair of texts with the model's number, or its logistic function."""
        assert self.predictor is not None
        most, task = self.length, self.predictor.task
        shortened = [self._long_texts.shorten(list(pair), most) for pair in inputs]
        examples = [task.example(pair, "") for pair, _ in shortened]
        with self.steps.aside():
            items = task.encode(examples, self.tokenizer, self.predictor.length, Notes())
            full = [cut + max(self._row_lengths(pair)) for pair, cut in shortened]
        records = [
            task.record(entry.example, entry.answer)
            for entry in self.predictor.answer_items(examples, items)
        ]
        numbers = np.array([record["prediction"] for record in records])
        scores = numbers if raw else logistic(numbers)
        return [
            Row(repr(float(score)).encode(), min(size, most), truncated=max(0, size - most))
            if truncate or size <= most
            else refuse_length(size, "the model reads", most)
            for score, size in zip(scores, full, strict=True)
        ]

    def cosine(self, inputs: Sequence[Any], truncate: bool = True) -> list[Row]:
        """Compute the cosine of each pair's vectors; a text of several pairs is read once."""
        most = self._vector_length
        texts = list(dict.fromkeys(text for pair in inputs for text in pair))
        encoded = self._ids([*map(self.encoder.prepare, texts)])
        vectors = dict(zip(texts, self._vectors(encoded, True), strict=True))
        size = {text: len(ids) + 2 for text, ids in zip(texts, encoded, strict=True)}
        rows = []
        for first, second in inputs:
            if not truncate and (longest := max(size[first], size[second])) > most:
                rows.append(refuse_length(longest, "the model reads", most))
                continue
            cut = sum(max(0, size[text] - most) for text in (first, second))
            score = float(vectors[first] @ vectors[second])
            rows.append(Row(repr(score).encode(), min(size[second], most), truncated=cut))
        return rows

    def tokenize(self, inputs: Sequence[str], special: bool = True) -> list[Row]:
        """List the tokens of each text with their characters."""
        first, last = (
            self._describe_token(token) for token in (self.tokenizer.cls_id, self.tokenizer.sep_id)
        )
        rows = []
        for text in inputs:
            size = len(self._long_texts.encode(text)) if self._long_texts.is_long(text) else 0
            if size > MOST_LISTED:
                rows.append(refuse_length(size, "an answer holds", MOST_LISTED))
                continue
            payloads, count = [as_json([first])[1:-1]] if special else [], 2 * special
            for begin, part in self._long_texts.parts(text):
                with self.steps.aside():
                    for tokens in self._list_tokens(part, begin):
                        count += len(tokens)
                        payloads.append(as_json(tokens)[1:-1])
                self.steps.end()
            payloads += [as_json([last])[1:-1]] if special else []
            rows.append(Row(b"[%b]" % b",".join(payloads), count))
        return rows

    def _list_tokens(self, part: str, begin: int) -> Iterator[list[dict[str, Any]]]:
        """List the tokens of a part of a text that begins at a character, some at a time, because
        JSON of many would stop the other thread.
        """
        # The mark of its first word stands behind the space.
        space = len(part) - len(part.lstrip()) if begin else 0
        ids, spans = self.tokenizer.encode_offsets([part])[0]
        for start in range(0, len(ids), LISTED):
            some = slice(start, start + LISTED)
            pairs = zip(ids[some].tolist(), spans[some].tolist(), strict=True)
            yield [
                self._describe_token(token, span if span[1] else [space, space], begin)
                for token, span in pairs
            ]

    def _describe_token(
        self, token: int, span: list[int] | None = None, begin: int = 0
    ) -> dict[str, Any]:
        about = {"id": token, "text": self.tokenizer.get_token(token), "special": span is None}
        start, stop = (None, None) if span is None else (begin + span[0], begin + span[1])
        return about | {"start": start, "stop": stop}

    def _ids(self, inputs: Sequence[Any]) -> list[list[int]]:
        texts = [value for value in inputs if isinstance(value, str)]
        long = {text for text in texts if self._long_texts.is_long(text)}
        others = iter(self.tokenizer.encode([text for text in texts if text not in long]))
        encoded = iter(
            [self._long_texts.encode(text) if text in long else next(others) for text in texts]
        )
        ends = [self.tokenizer.cls_id], [self.tokenizer.sep_id]
        return [
            next(encoded)
            if isinstance(value, str)
            else value[1:-1]
            if (value[:1], value[-1:]) == ends
            else value
            for value in inputs
        ]

    def _vectors(
        self, encoded: Sequence[Sequence[int]], normalize: bool, size: int | None = None
    ) -> NDArray[np.float32]:
        """Compute vectors (N, D), or their first `size` numbers, of tokens, none special."""
        rows = [build_row(self.tokenizer, ids, None, self._vector_length) for ids in encoded]
        parts = [
            self.encoder.of_rows(rows[begin:end])
            for begin, end in self.steps.parts([len(row.ids) for row in rows])
        ]
        vectors: NDArray[np.float32] = (
            np.concatenate(parts) if parts else np.zeros((0, self.width), np.float32)
        )
        vectors = vectors[:, :size]
        return scale_to_unit(vectors) if normalize else vectors

    @cached_property
    def encoder(self) -> SentenceEncoder:
        """Computes vectors that are not normalized."""
        return self.model.vectors_by(None, False)


def _texts_of(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    parts = value if isinstance(value, (list, tuple)) else ()
    return [text for part in parts for text in _texts_of(part)]


def _without_nul(value: Any) -> Any:
    """Replace the NUL characters of an input by spaces, as in every file that litebert reads."""
    if isinstance(value, str):
        return value.replace("\0", " ")
    return list(map(_without_nul, value)) if isinstance(value, (list, tuple)) else value


def list_answer(
    task: Task[Any],
    record: dict[str, Any],
    entry: Answered,
    top: int | None = None,
    function: str | None = None,
    by_word: bool = False,
    ignored: tuple[str, ...] = ("O",),
) -> Any:
    """Return an answer as Hugging Face's `InferenceClient` reads it.

    `record` is that of `Task.record` with its place; `top` counts labels or answers; `function`
    (softmax, sigmoid, none) makes scores of logits; `by_word` lists the tags of words, not
    entities; tags and types in `ignored` are left out.
    """
    output = task.output
    if output.head == "tokens":
        name = "entity" if by_word else "entity_group"
        found: Any = zip(
            *(record[part] for part in ("prediction", "probabilities", "words", "offsets")),
            strict=True,
        )
        if not by_word and "entities" in record:
            found = (
                (one["type"], one["probability"], one["text"], (one["start"], one["end"]))
                for one in record["entities"]
            )
        return [
            {name: tag, "score": share, "word": word, "start": start, "end": end}
            for tag, share, word, (start, end) in found
            if tag not in ignored
        ]
    if output.head == "span":
        candidates, null = entry.answer.candidates, sum(entry.answer.null)
        shares = softmax(np.array([*(one.score for one in candidates), null])).tolist()
        places = [(one.text, one.begin) for one in candidates]
        if not record["prediction"]:
            places, shares = [("", 0)], shares[-1:]
        found = [
            {"answer": text, "score": share, "start": begin, "end": begin + len(text)}
            for (text, begin), share in zip(places, shares, strict=False)
        ]
        return found[0] if top in (None, 1) else found[:top]
    logits = entry.logits.astype(np.float64)
    chosen = function or {"classes": "softmax", "choice": "softmax", "number": "none"}.get(
        output.name, "sigmoid"
    )
    scores = logits if chosen == "none" else logistic(logits)
    if chosen == "softmax":
        scores = softmax(logits)
    labels = output.labels or [f"LABEL_{number}" for number in range(len(scores))]
    likely = sorted(zip(labels, scores.tolist(), strict=True), key=lambda pair: -pair[1])[:top]
    return [{"label": label, "score": score} for label, score in likely]
