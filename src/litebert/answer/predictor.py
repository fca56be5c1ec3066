"""Answers of a fine-tuned model: to Python values, or from a file to a file, in order and in constant memory.

Texts are taken a thousand at a time, sorted by length among themselves and never padded to the longest possible, and
given back in the order they came in.
"""

from __future__ import annotations

import csv
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TextIO

from litebert.config.heads import HeadName
from litebert.errors import ConfigError, DataError, ModelError
from litebert.finetune.scoring import logits_of
from litebert.finetune.task import Task
from litebert.interop import LoadedModel
from litebert.interop import load as load_model
from litebert.model.task_model import TaskModel
from litebert.tasks import choices, table, tagging
from litebert.tasks.choices import Choice, ChoiceTask
from litebert.tasks.squad import files as squad_files
from litebert.tasks.squad.files import Question
from litebert.tasks.squad.task import STRIDE, Squad
from litebert.tasks.texts import Example, TextTask
from litebert.text.records import FileFormat, Notes, shown
from litebert.tokenizer import Tokenizer
from litebert.train import device as devices

log = logging.getLogger("litebert")

CHUNK = 1024
"""Examples in memory at a time."""


@dataclass(frozen=True)
class Model(LoadedModel):
    """A model folder ready to answer."""

    device: str = "auto"
    """Where it computes its answers."""

    def predict(self, inputs: Iterable[Any]) -> list[dict[str, Any]]:
        """One answer per input, in order.

        Args:
            inputs: by what the model was fine-tuned for. Text classes and numbers: texts, or pairs of texts. Tagging:
                lists of words, or texts that are split at spaces. Questions: (question, context). Multiple choice:
                (context, question, [choices]). A tuple or a list each; never dictionaries.

        Returns:
            Dictionaries: `prediction`; `probabilities` by label, of each tag or of each choice; `score` of an answer.

        Raises:
            ModelError: the model is not fine-tuned.
            DataError: an input is of another form, or `inputs` is one text instead of a list.
        """
        return list(self.stream(inputs))

    def stream(self, inputs: Iterable[Any]) -> Iterator[dict[str, Any]]:
        """The same one by one, for inputs of any number."""
        if isinstance(inputs, (str, bytes, Mapping)) or not isinstance(inputs, Iterable):
            raise DataError(f"the inputs are {shown(inputs)}; give a list of them, also of one")
        return self._answers(inputs, *self._parts())

    def _answers(
        self, inputs: Iterable[Any], network: TaskModel, tokenizer: Tokenizer, task: Task[Any]
    ) -> Iterator[dict[str, Any]]:
        length = int(self.task.get("length", self.config.sequences.length))
        machine = devices.choose("float32", self.device)  # so that other programs give the same answers
        network.to(machine.device)
        source, fault = enumerate(inputs), None
        while fault is None:
            chunk: list[tuple[int, Any]] = []
            try:
                chunk.extend(islice(source, CHUNK))
            except DataError as error:  # what was read before it is answered first
                fault = error
            if not chunk:
                break
            examples = [_example(task, value, number, self.task.get("pair")) for number, value in chunk]
            items = task.encode(examples, tokenizer, length)
            logits = logits_of(network, items, task, tokenizer.pad_id, machine)
            answers = task.answers(examples, items, logits)
            yield from (_record(task, example, answer) for example, answer in zip(examples, answers, strict=True))
        if fault is not None:
            raise fault

    def _parts(self) -> tuple[TaskModel, Tokenizer, Task[Any]]:
        if not isinstance(self.model, TaskModel):
            raise ModelError(f"{self.path} is not fine-tuned, so it has no answers; litebert finetune it first")
        if self.tokenizer is None:
            raise ModelError(f"{self.path} has no tokenizer; put the one it was trained with there")
        return self.model, self.tokenizer, task_for(self)


def load(path: str | Path, *, head: HeadName | None = None, device: str = "auto") -> Model:
    """Open a run folder, a litebert model folder or a Hugging Face folder.

    Args:
        head: of a Hugging Face folder, what its classifier is for, where its config.json does not name the class.

    Raises:
        ModelError: it is none of them, or a file of it is damaged, missing or of another model.
    """
    return Model(**vars(load_model(path, head=head)), device=device)


def task_for(loaded: LoadedModel) -> Task[Any]:
    """The task a model was fine-tuned for, without its files.

    A folder that does not say more than its class, as those of other programs, has one class per text, or a number
    where there is one output only.
    """
    assert isinstance(loaded.model, TaskModel)
    kind, classes = loaded.model.kind, loaded.model.classes
    labels = loaded.labels or tuple(f"LABEL_{i}" for i in range(classes))
    if kind == "tokens":
        return tagging.TaggingTask({}, labels=labels)
    if kind == "choice":
        return ChoiceTask({}, order=loaded.task.get("order", "context"), name=loaded.task.get("task", "choices"))
    if kind == "span":
        about = loaded.task
        return Squad(version=about.get("version", 1), threshold=float(about.get("threshold", 0.0)),
                     stride=int(about.get("stride", STRIDE)))  # fmt: skip
    problem = loaded.task.get("problem", "classes" if classes > 1 else "number")
    if problem == "number" and classes > 1:
        raise ModelError(f"{loaded.path} has {classes} numbers for a text; only one can be answered")
    task: Any = TextTask(problem, () if problem == "number" else labels, ("accuracy",), "accuracy")
    return task  # type: ignore[no-any-return]


def _example(task: Task[Any], value: Any, number: int, pairs: bool | None) -> Any:
    """An input as the task's example; `pairs` says whether texts come in pairs, None where both do."""
    try:
        if task.kind == "sequence":
            texts = _texts([value] if isinstance(value, str) else value)
            if len(texts) not in (1, 2) or (pairs is not None and pairs != (len(texts) == 2)):
                raise TypeError
            return Example(texts[0], texts[1] if len(texts) == 2 else None)
        if task.kind == "tokens":
            words = _texts(value.split() if isinstance(value, str) else value)
            return tagging.Sentence(words, None, words, tuple(range(len(words))))
        if task.kind == "span":
            question, context = _texts(value)
            return Question(str(number), question, context, (), False)
        *asked, said = _members(value)
        context, question = _texts(asked)
        options = _texts(said)
        if len(options) < 2:
            raise TypeError
        return Choice(context, question, options, None, str(number))
    except (TypeError, ValueError):
        wanted = _WANTED[task.kind]
        if task.kind == "sequence" and pairs is not None:
            wanted = _WANTED["pair" if pairs else "single"]
        raise DataError(f"input {number + 1} is {shown(value)}; {wanted}") from None


def _members(value: Any) -> tuple[Any, ...]:
    """What a list holds; a text, a set or a dictionary has no order that could be meant."""
    if isinstance(value, (str, bytes, Mapping, Set)):
        raise TypeError
    return tuple(value)


def _texts(value: Any) -> tuple[str, ...]:
    texts = _members(value)
    if not all(isinstance(text, str) for text in texts):
        raise TypeError
    return texts


_WANTED = {
    "sequence": "give a text or a pair of texts",
    "pair": "the model was fine-tuned on pairs, give (first text, second text)",
    "single": "the model was fine-tuned on single texts, give a text",
    "tokens": "give a text or a list of words",
    "span": "give (question, context)",
    "choice": "give (context, question, choices), of choices two or more",
}


def _record(task: Task[Any], example: Any, answer: Any) -> dict[str, Any]:
    """What is told of an answer."""
    if task.kind == "span":
        best = answer.candidates[0] if answer.candidates else None
        assert isinstance(task, Squad)
        text = task.texts([answer], float(task.threshold))[0]
        return {"prediction": text, "score": None if best is None else best.score, "no_answer_odds": answer.odds}
    likely = [round(p, 6) for p in answer.probabilities.tolist()]
    if task.kind == "tokens":
        return {"words": list(example.words), "prediction": list(answer.value), "probabilities": likely}
    if task.kind == "choice":
        return {"prediction": answer.value, "probabilities": likely}
    value = list(answer.value) if isinstance(answer.value, tuple) else answer.value
    found: dict[str, Any] = {"prediction": value}
    if likely:
        found["probabilities"] = dict(zip(task.labels, likely, strict=True))
    return found


# ---- files ---------------------------------------------------------------------------------------------------------


def predict_file(
    model: Model,
    source: str | Path,
    out: TextIO,
    *,
    form: Literal["csv", "jsonl"],
    source_form: FileFormat | None = None,
    text: str = "text",
    pair: str | None = None,
) -> int:
    """Answer every row of a file or of standard input (`-`), in order; how many there were.

    Columns: `text` and `pair` of texts to classify; `text`, or CoNLL columns, of sentences to tag; question and
    context; context, question and choices (JSONL). In CSV, probabilities of labels have a column each; tags are joined
    by spaces, several labels and the probabilities of choices by semicolons. What was mended, passed over or cut is
    logged at the end. What stands before a malformed row is answered.

    Raises:
        DataError: the file is missing or malformed; the message names the line.
        ConfigError: a `pair` for a model of single texts, or none for one of pairs.
    """
    network, tokenizer, task = model._parts()
    pairs = model.task.get("pair") if task.kind == "sequence" else False
    if pairs and pair is None:
        raise ConfigError(f"{model.path} was fine-tuned on pairs of texts; name the column of the second with --pair")
    if pairs is False and pair is not None:
        raise ConfigError(f"{model.path} takes no pairs of texts; leave --pair {pair} out")
    count, found = 0, Notes()
    rows = csv.writer(out, lineterminator="\n")
    inputs = _inputs(task, source, source_form, text, pair, found)
    for record in model._answers(inputs, network, tokenizer, task):
        if form == "jsonl":
            out.write(json.dumps(record, ensure_ascii=False) + "\n")
        else:
            flat = _flat(record)
            if count == 0:
                rows.writerow(flat)
            rows.writerow(flat.values())
        count += 1
    for note in (*found.notes(), *task.notes):
        log.info(note)
    return count


def _inputs(
    task: Task[Any], source: str | Path, form: FileFormat | None, text: str, pair: str | None, found: Notes
) -> Iterator[Any]:
    if task.kind == "tokens":
        yield from tagging.stream(source, text=text, form=form, found=found)
    elif task.kind == "sequence":
        for example in table.stream(source, text=text, pair=pair, form=form, found=found):
            yield example.text if example.pair is None else (example.text, example.pair)
    elif task.kind == "span":
        for question in squad_files.stream(source, form=form, found=found):
            yield question.text, question.context
    else:
        for choice in choices.stream(source, form=form, found=found):
            yield choice.context, choice.question, choice.choices


def _flat(record: dict[str, Any]) -> dict[str, Any]:
    """A record as the cells of a row."""
    flat: dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, dict):
            flat.update({f"p_{name}": p for name, p in value.items()})
        else:
            between = " " if "words" in record else ";"
            flat[key] = between.join(map(str, value)) if isinstance(value, list) else value
    return flat
