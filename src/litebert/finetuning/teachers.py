"""The teachers of a run: fine-tuned models, the baseline, or a model of sentence vectors. Of
several, a student learns the mean of their answers.

Their answers are computed once, before training, and stay in the run folder in half precision
(numbers in single), so that a run that continues learns the very same. Only where layers are
compared does the teacher compute beside the student, and must have its tokenizer.

Shapes: N texts, V vocabulary, E embedding size, D numbers of a teacher's vector.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from litebert.base import progress
from litebert.base.errors import ConfigError, ModelError, NonFiniteError, require
from litebert.base.registry import ENGINES
from litebert.base.storage import sha256_of, write_whole
from litebert.config import TableConfig
from litebert.interop import LoadedModel, files, read_folder
from litebert.interop.names import find_exported_graph
from litebert.interop.sentence_modules import VectorSettings, vector_settings
from litebert.judge.baselines import fit_baseline
from litebert.judge.baselines.models import make_baseline
from litebert.model.task_model import TaskModel
from litebert.model.teacher import Teacher
from litebert.tasks.outputs import Output, average_log, log_softmax, restore_output
from litebert.tasks.rows import PaddedRows, build_single_rows, group_by_length
from litebert.tasks.scoring import compute_logits, name_metric, score_parts
from litebert.tasks.similarity import Similarity, scale_to_unit
from litebert.tasks.task import Task
from litebert.tasks.text_outputs import Number, SeveralLabels
from litebert.tasks.values import EncodedPart, Item, Logits
from litebert.text.records import Notes
from litebert.tokenizer import Tokenizer
from litebert.train.teacher import FINGERPRINT, PATH, build_record, compute_fingerprint

log = logging.getLogger("litebert")

KEPT = "teacher.safetensors"
"""Name of the file of the teachers' answers in a run folder."""
FOLDER = "teacher-vectors"
"""Name of the folder of vectors computed so far, in a run folder."""
BLOCK = 4096
"""Texts whose vectors are in one file. A run that is killed computes at most so many again."""
BASELINE = "baseline"
"""The name of the baseline among teachers; a folder of this name is written ./baseline."""
MOST_TEXTS = 300_000
"""Texts from whose vectors a token table starts, at most."""
PENALTY = 0.025
"""The L2 penalty of a token's vector, beside the squared error of the texts, which have unit
length."""
ITERATIONS = 25
"""Steps of conjugate gradients. More of them change the correlation on STS-B by less than half a
point."""


@dataclass(frozen=True)
class Student:
    """Who asks: the task, and how its rows were encoded."""

    task: Task[Any]
    tokenizer: Tokenizer
    length: int
    """Its longest row in tokens."""


# -------------------------------------------------------------------------------------- one teacher


@dataclass(frozen=True)
class BaselineTeacher:
    """The baseline of a task, fitted on the labels of the training rows, as a teacher."""

    task: Task[Any]
    examples: Sequence[Any] = ()
    """The examples of the training part."""

    source, width = BASELINE, 0

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 (hex) of what it learns from: its kind and the training rows."""
        model = make_baseline(self.task.output)
        assert model is not None
        digest = hashlib.sha256(model.name.encode())
        for item in self.task.plain_items(self.examples):
            digest.update(repr((item.texts, item.target)).encode("utf-8", "backslashreplace"))
        return digest.hexdigest()

    @property
    def key(self) -> bytes:
        return self.fingerprint.encode()

    def record(self) -> dict[str, Any]:
        return {PATH: BASELINE, FINGERPRINT: self.fingerprint}

    def with_examples(self, examples: Sequence[Any]) -> BaselineTeacher:
        return replace(self, examples=examples)

    def answer(
        self, student: Student, parts: Sequence[EncodedPart], device: str, folder: Path
    ) -> list[Logits]:
        fitted = fit_baseline(self.task, self.examples)
        answers = [fitted.logits(part.examples) for part in parts]
        return [
            [logits[item.example] for item in part.items]
            for part, logits in zip(parts, answers, strict=True)
        ]


M = TypeVar("M", bound="ModelTeacher")


@dataclass(frozen=True)
class ModelTeacher:
    """A teacher in a model folder."""

    source: str
    loaded: LoadedModel
    fingerprint: str
    tokenizer: Tokenizer

    def record(self) -> dict[str, Any]:
        return build_record(self.source, self.fingerprint)

    def with_examples(self: M, examples: Sequence[Any]) -> M:
        return self


@dataclass(frozen=True)
class TaskTeacher(ModelTeacher):
    """A fine-tuned model that answers the same task."""

    output: Output
    """The teacher's output, with the teacher's order of labels."""
    order: tuple[int, ...]
    """The place of each of the task's labels among its own; empty where the order is the same."""

    width = 0

    @property
    def reads_apart(self) -> bool:
        return self.loaded.task_record.get("pooling") == "apart"

    @property
    def key(self) -> bytes:
        return self.fingerprint.encode() + repr(self.order).encode()

    def answer(
        self, student: Student, parts: Sequence[EncodedPart], device: str, folder: Path
    ) -> list[Logits]:
        """Answer with logits in the task's order of labels."""
        exported = find_exported_graph(self.loaded.path) is not None  # which answers on the CPU
        runtime = ENGINES["onnx" if exported else "torch"](
            self.loaded, "cpu" if exported else device
        )
        length, positions = student.length, self.loaded.config.encoder.max_positions
        read = min(positions, max(length, int(self.loaded.task_record.get("length", length))))
        task = replace(student.task, apart=self.reads_apart)
        # Answers by token must be those of the student's tokens.
        encodes = (
            self.tokenizer.fingerprint != student.tokenizer.fingerprint
            or length > positions
            or (read > length and self.output.reads_cls)
            or task.apart != student.task.apart
        )
        answers: list[Logits] = []
        for part in parts:
            items = part.items
            if encodes:
                encoded = task.encode(part.examples, self.tokenizer, read, Notes())
                by_example = {item.example: item for item in encoded}
                items = [by_example[item.example] for item in items]
            logits = compute_logits(
                runtime.logits,
                items,
                self.output,
                self.tokenizer.pad_id,
                positions,
                most=runtime.capabilities.tokens,
            )
            answers.append(
                [row_logits[..., list(self.order)] for row_logits in logits]
                if self.order
                else logits
            )
        return answers

    @cached_property
    def layers(self) -> Teacher:
        return Teacher(self.loaded.model.encoder, None, self.fingerprint)

    def require_layers(self, words: Tokenizer, length: int) -> None:
        fix = "set distill.states and distill.relations to 0"
        if find_exported_graph(self.loaded.path) is not None:
            raise ModelError(
                f"the teacher {self.source} is an exported graph, which shows its answers only; "
                f"name the folder it was exported from, or {fix}"
            )
        if self.tokenizer.fingerprint != words.fingerprint:
            raise ModelError(
                f"the teacher {self.source} has another tokenizer than the student, and layers are "
                f"compared token by token; name one with the student's tokenizer, or {fix}"
            )
        if length > (positions := self.loaded.config.encoder.max_positions):
            raise ModelError(
                f"the teacher {self.source} reads {positions} tokens, and rows have up to "
                f"{length}; set --length to what it reads, or {fix}"
            )


@dataclass(frozen=True)
class VectorTeacher(ModelTeacher):
    """A model of sentence vectors, which the student learns through a map to their width."""

    settings: VectorSettings

    @property
    def width(self) -> int:
        """D."""
        map_ = self.settings.map
        return self.loaded.config.encoder.hidden_size if map_ is None else len(map_.bias)

    @property
    def length(self) -> int:
        """The longest row that it reads, in tokens, special ones included."""
        length = self.settings.length or self.loaded.config.sequences.length
        return min(int(length), self.loaded.config.encoder.max_positions)

    @property
    def key(self) -> bytes:
        facts = self.settings._replace(map=None), self.length
        return self.fingerprint.encode() + repr(facts).encode()

    def answer(
        self, student: Student, parts: Sequence[EncodedPart], device: str, folder: Path
    ) -> list[Logits]:
        """Compute the vectors of each item's texts, (1, D) or (2, D), half precision, unit length;
        `folder` keeps them until all are computed.
        """

        def list_texts(part: EncodedPart, item: Item) -> tuple[str, ...]:
            example = part.examples[item.example]
            return (example.text,) if example.pair is None else (example.text, example.pair)

        texts = list(
            dict.fromkeys(
                text for part in parts for item in part.items for text in list_texts(part, item)
            )
        )
        # Neighbors in length are in one block, so that little is padded.
        order = np.argsort([len(text) for text in texts], kind="stable")
        vectors: NDArray[Any] = np.zeros((len(texts), self.width), np.float16)
        runtime = None
        with progress.task("asking the teacher", total=len(texts), unit="texts") as bar:
            for start in range(0, len(texts), BLOCK):
                places = order[start : start + BLOCK]
                block = [texts[place] for place in places]
                digest = hashlib.sha256(self.key + repr(block).encode("utf-8", "surrogatepass"))
                file = folder / FOLDER / f"{start // BLOCK:05d}.safetensors"
                saved = _read_answers(file, digest.hexdigest())
                if saved is None:
                    runtime = runtime or self._make_runtime(device)
                    saved = [self._embed(runtime, block).astype(np.float16)]
                    file.parent.mkdir(parents=True, exist_ok=True)
                    _write_answers(file, digest.hexdigest(), saved)
                vectors[places] = saved[0]
                bar.advance(len(block))
        place_of = {text: place for place, text in enumerate(texts)}
        return [
            [vectors[[place_of[text] for text in list_texts(part, item)]] for item in part.items]
            for part in parts
        ]

    def _make_runtime(self, device: str) -> Any:
        if find_exported_graph(self.loaded.path) is not None:  # which answers on the CPU
            return ENGINES["onnx"](self.loaded, "cpu")
        states = TaskModel.of_states(self.loaded.model.eval().encoder)
        task = {"kind": "backbone", "classes": 0}
        return ENGINES["torch"](replace(self.loaded, network=states, task=task, labels=()), device)

    def _embed(self, runtime: Any, texts: Sequence[str]) -> NDArray[np.float32]:
        rows, _ = build_single_rows(self.tokenizer, texts, self.length)
        limits, positions = runtime.capabilities, self.loaded.config.encoder.max_positions
        lengths = [len(row.ids) for row in rows]
        groups = list(group_by_length(lengths, limits.tokens, padding=limits.padding))
        passes = [
            PaddedRows([rows[place] for place in group], self.tokenizer.pad_id, positions)
            for group in groups
        ]

        def pool(padded: PaddedRows) -> NDArray[np.float32]:
            pooled: NDArray[np.float32] = runtime.vectors(padded, self.settings.pooling)
            return pooled if self.settings.map is None else self.settings.map.of(pooled)

        vectors = np.zeros((len(rows), self.width), np.float32)
        for group, values in zip(groups, runtime.map_passes(pool, passes), strict=True):
            vectors[group] = values
        if not np.isfinite(vectors).all():
            raise NonFiniteError(
                f"the teacher {self.source} gives vectors that are not finite; name another teacher"
            )
        return scale_to_unit(vectors)


Member: TypeAlias = TaskTeacher | BaselineTeacher | VectorTeacher


def open_teacher(source: str | Path, task: Task[Any], words: Tokenizer, length: int) -> Member:
    """Open the teacher in a folder: a fine-tuned run, a litebert or Hugging Face folder of one, or
    an exported one; for vectors also a sentence-transformers folder.
    """
    wanted, graph = task.output, find_exported_graph(Path(source))
    is_vectors = isinstance(wanted, Similarity)
    heads = () if is_vectors else (wanted.head,)
    loaded = read_folder(source, *heads, lazy=graph is not None)
    fingerprint = sha256_of(graph) if graph is not None else compute_fingerprint(loaded)
    order: tuple[int, ...] = ()
    if is_vectors:
        if graph is not None and loaded.task.get("kind") != "backbone":
            raise ModelError(
                f"the teacher {source} is an ONNX export that gives no states; export the model "
                "again with --head backbone, or name the folder it was exported from"
            )
    else:
        record = loaded.task_record
        if not record:
            raise ModelError(
                f"the teacher {source} is not fine-tuned; fine-tune it on this task first"
            )
        output = restore_output(record)
        if output.name != wanted.name or output.width != wanted.width:
            raise ModelError(
                f"the teacher {source} answers with '{output.name}' ({output.width} numbers) and "
                f"this task with '{wanted.name}' ({wanted.width}); fine-tune the teacher on this "
                "task"
            )
        if loaded.labels and set(loaded.labels) != set(wanted.labels):
            raise ModelError(
                f"the teacher {source} has the labels {', '.join(loaded.labels)}, and this task "
                f"has {', '.join(wanted.labels)}; fine-tune it on this task, or rename the labels "
                "in its config.json or task.json"
            )
        if loaded.labels:
            order = tuple(loaded.labels.index(name) for name in wanted.labels)
    if (tokenizer := loaded.tokenizer) is None:
        raise ModelError(
            f"the teacher {source} has no tokenizer; put the one it was trained with there"
        )
    if is_vectors:
        settings = vector_settings(loaded) or VectorSettings()
        if settings.map is not None:
            numbers = (settings.map.weight, settings.map.bias)
            digest = hashlib.sha256(b"".join(array.tobytes() for array in numbers))
            fingerprint = hashlib.sha256((fingerprint + digest.hexdigest()).encode()).hexdigest()
        return VectorTeacher(str(source), loaded, fingerprint, tokenizer, settings)
    if not wanted.reads_cls and tokenizer.fingerprint != words.fingerprint:
        raise ModelError(
            f"the teacher {source} has another tokenizer than the student, and answers of "
            f"'{wanted.name}' stand at tokens; name a teacher with the student's tokenizer"
        )
    positions = loaded.config.encoder.max_positions
    if not wanted.reads_cls and length > positions:
        raise ModelError(
            f"the teacher {source} reads {positions} tokens, and rows have up to {length}; set "
            "--length to what it reads"
        )
    order = () if order == tuple(range(len(order))) else order
    return TaskTeacher(str(source), loaded, fingerprint, tokenizer, output, order)


# ------------------------------------------------------------------------------ teachers of a run


@dataclass(frozen=True)
class TaskTeachers:
    """The teachers of a run, in the order in which they were named."""

    members: tuple[Member, ...]
    computed: dict[str, Logits] = field(default_factory=dict)
    """Their answers so far, by the key of the cache; seeds share them."""

    def with_examples(self, examples: Sequence[Any]) -> TaskTeachers:
        """Return the teachers with the examples that a baseline learns from."""
        return replace(self, members=tuple(m.with_examples(examples) for m in self.members))

    def require_network(self) -> TaskTeacher:
        fix = "name one fine-tuned model, or set distill.states and distill.relations to 0"
        require(
            len(self.members) == 1,
            f"the layers of one teacher are compared, and --teacher names {len(self.members)}; "
            f"{fix}",
        )
        (member,) = self.members
        if isinstance(member, BaselineTeacher):
            raise ConfigError(f"--teacher {BASELINE} has no layers to compare; {fix}")
        if isinstance(member, VectorTeacher):
            raise ConfigError(
                "a teacher of sentence vectors teaches vectors and no layers; set distill.states "
                "and distill.relations to 0"
            )
        return member

    @property
    def reads_apart(self) -> bool:
        """True if a teacher encodes the two texts of a pair separately."""
        return any(
            isinstance(member, TaskTeacher) and member.reads_apart for member in self.members
        )

    @property
    def vector_width(self) -> int:
        return max(member.width for member in self.members)

    def build_record(self) -> dict[str, Any]:
        """Build the fields of finetune.json that name the teachers; of several they hold lists."""
        records = [member.record() for member in self.members]
        if len(records) == 1:
            return records[0]
        names = dict.fromkeys(name for record in records for name in record)
        return {name: [record.get(name) for record in records] for name in names}

    def answer(
        self,
        student: Student,
        parts: Sequence[EncodedPart],
        dev: EncodedPart,
        folder: Path,
        device: str,
    ) -> Logits:
        """Return the logits for the rows of the parts, from the run folder, or computed and written
        there; the scores of `dev` are logged.
        """
        digest = hashlib.sha256(b"".join(member.key for member in self.members))
        for part in parts:
            for item in part.items:  # a teacher may read further than the student's rows go
                digest.update(repr(part.examples[item.example]).encode("utf-8", "backslashreplace"))
                for row in item.rows:
                    digest.update(row.ids.tobytes() + b"|")
        key, file = digest.hexdigest(), folder / KEPT
        saved = _read_answers(file, key)
        if key not in self.computed:
            if saved is None:
                answers = self._ask(student, parts, dev, folder, device)
                kept = np.float32 if isinstance(student.task.output, Number) else np.float16
                self.computed[key] = [
                    # Numbers far from zero, which only float64 tells apart, stay as they are.
                    row_logits if row_logits.dtype == np.float64 else row_logits.astype(kept)
                    for part_logits in answers
                    for row_logits in part_logits
                ]
            else:
                self.computed[key] = saved
        if saved is None:
            _write_answers(file, key, self.computed[key])
            shutil.rmtree(folder / FOLDER, ignore_errors=True)  # all vectors are in one file now
        return self.computed[key]

    def _ask(
        self,
        student: Student,
        parts: Sequence[EncodedPart],
        dev: EncodedPart,
        folder: Path,
        device: str,
    ) -> list[Logits]:
        task = student.task
        metric = name_metric(task)

        def log_score(name: str, logits: Logits) -> None:
            score = score_parts(task, (dev,), {dev.name: logits})[metric]
            log.info(f"{name} scores {metric} {score:.4g} on {dev.name}")

        by_member = []
        for member in self.members:
            counts_texts = isinstance(member, VectorTeacher)  # and shows how many it has embedded
            with nullcontext() if counts_texts else progress.task("asking the teacher"):
                by_member.append(member.answer(student, (*parts, dev), device, folder))
            log_score(f"the teacher {member.source}", by_member[-1][-1])
        if len(by_member) == 1:
            return by_member[0][:-1]
        means: list[Logits] = []
        for part in zip(*by_member, strict=True):
            rows = list(zip(*part, strict=True))
            # In float64 where a teacher gives numbers far from zero.
            kinds = [np.result_type(np.float32, *row) for row in rows]
            averages = [average_answers(task.output, row) for row in rows]
            means.append([mean.astype(kind) for mean, kind in zip(averages, kinds, strict=True)])
        log_score(f"the mean of {len(by_member)} teachers", means[-1])
        return means[:-1]


def list_sources(teacher: str | Path | Sequence[str | Path] | None) -> tuple[str | Path, ...]:
    if teacher is None or isinstance(teacher, (str, Path)):
        return () if teacher is None else (teacher,)
    return tuple(teacher)


def open_teachers(
    sources: Sequence[str | Path], task: Task[Any], words: Tokenizer, length: int
) -> TaskTeachers:
    """Open the teachers of a run, as `open_teacher` does, and the baseline by its name."""
    about_texts = task.output.head == "sequence" and task.output.width > 0
    require(
        about_texts or BASELINE not in map(str, sources),
        f"--teacher {BASELINE} answers with a class, labels or a number for a whole text, and the "
        f"{task.name} task answers with '{task.output.name}'; name a fine-tuned model",
    )
    require(
        about_texts or len(sources) == 1,
        "several teachers are averaged on tasks that answer with a class, labels or a number; this "
        f"one answers with '{task.output.name}', so name one teacher",
    )
    members: list[Member] = []
    for source in sources:
        if str(source) == BASELINE:
            require(
                make_baseline(task.output) is not None,
                f"the {task.name} task has no baseline; name a fine-tuned model with --teacher",
            )
            members.append(BaselineTeacher(task))
        else:
            members.append(open_teacher(source, task, words, length))
    fingerprints = [member.fingerprint for member in members]
    for place, fingerprint in enumerate(fingerprints):
        require(
            fingerprint not in fingerprints[:place],
            f"--teacher names {sources[place]} twice, or two folders of the same weights; name "
            "each teacher once",
        )
    return TaskTeachers(tuple(members))


def average_answers(
    output: Output, logits: Sequence[NDArray[np.floating[Any]]]
) -> NDArray[np.float64]:
    """Return the logits of the mean of the teachers' probabilities of an item, (C,): of labels the
    log-odds of each, and of numbers their mean.
    """
    values = np.stack(logits).astype(np.float64)
    if isinstance(output, Number):
        mean: NDArray[np.float64] = values.mean(axis=0)
        return mean
    if isinstance(output, SeveralLabels):
        likely, unlikely = -np.logaddexp(0, -values), -np.logaddexp(0, values)
        return average_log(likely) - average_log(unlikely)
    return average_log(log_softmax(values))


def _write_answers(file: Path, key: str, answers: Logits) -> None:
    flat = np.concatenate([values.ravel() for values in answers])
    shapes = np.array([values.shape for values in answers], np.int32)
    tensors = {"logits": torch.from_numpy(flat), "shapes": torch.from_numpy(shapes)}
    with write_whole(file) as aside:
        files.write_tensors(aside, tensors, {"key": key})


def _read_answers(file: Path, key: str) -> Logits | None:
    if files.read_metadata(file).get("key") != key:
        return None
    try:
        tensors = {name: tensor.numpy() for name, tensor in files.read_tensors(file).items()}
    except ModelError:
        log.warning(f"{file} is damaged; the teacher answers again")
        return None
    if "shapes" not in tensors:  # a block of vectors of an earlier version
        return None
    shapes: NDArray[np.int32] = tensors["shapes"]
    ends = np.cumsum(shapes.prod(axis=1))
    return [
        values.reshape(shape)
        for values, shape in zip(np.split(tensors["logits"], ends[:-1]), shapes, strict=True)
    ]


# ----------------------------------------------------------------- the token table of a new student


def start_table(model: TaskModel, items: Sequence[Item]) -> None:
    started = time.monotonic()
    pairs = [
        (row.ids, vector)
        for item in items
        if item.teacher_logits is not None
        for row, vector in zip(item.rows, item.teacher_logits, strict=True)
    ][:MOST_TEXTS]
    word = model.encoder.embedding.word.weight
    vectors = fit_token_vectors(
        [ids for ids, _ in pairs], np.stack([vector for _, vector in pairs]), *word.shape
    )
    centered = vectors - vectors.mean(0)
    size = vectors.shape[1]
    scaled = torch.from_numpy(centered * (TableConfig().std / max(float(centered.std()), 1e-12)))
    occurs = torch.zeros(len(word), dtype=torch.bool)
    occurs[np.unique(np.concatenate([ids for ids, _ in pairs]))] = True
    with torch.no_grad():
        table = word.detach().cpu().clone()
        table[occurs, :size] = scaled[occurs].to(table.dtype)
        word.copy_(table.to(word.device))
    log.info(
        f"the token table starts from the teacher's vectors of {len(pairs):,} texts, fitted in "
        f"{time.monotonic() - started:.0f} s"
    )


def fit_token_vectors(
    rows: Sequence[NDArray[np.int32]], taught: NDArray[Any], vocabulary: int, size: int
) -> NDArray[np.float32]:
    """Fit vectors of tokens (V, min(E, D)) to the teacher's vectors (N, D) of rows of token ids, in
    the directions in which these vary most: a ridge regression on the counts of tokens.

    The sum of a text's vectors over the square root of their number, which keeps the length of a
    sum of unrelated vectors, comes near the teacher's. 150,000 texts take about a minute.
    """
    from scipy.sparse import csr_matrix  # half a second

    goals = taught.astype(np.float32)
    goals -= goals.mean(0)
    _, directions = np.linalg.eigh(goals.T.astype(np.float64) @ goals)
    goals = goals @ directions[:, ::-1][:, :size].astype(np.float32)
    lengths = np.array([len(ids) for ids in rows])
    values = np.repeat(1 / np.sqrt(lengths), lengths).astype(np.float32)
    places = np.concatenate(([0], np.cumsum(lengths)))
    counts = csr_matrix((values, np.concatenate(rows), places), (len(rows), vocabulary))
    counts.sum_duplicates()
    return _solve_ridge(counts, goals)


def _solve_ridge(counts: Any, goals: NDArray[np.float32]) -> NDArray[np.float32]:
    """Minimize |counts W - goals|^2 + PENALTY |W|^2 over W (V, E) by conjugate gradients.

    The diagonal preconditions them, because some tokens are a thousand times as frequent as others;
    without that they need hundreds of steps.
    """
    transposed = counts.T.tocsr()
    diagonal = np.asarray(counts.multiply(counts).sum(0), np.float32).ravel() + PENALTY
    weights = np.zeros((counts.shape[1], goals.shape[1]), np.float32)
    residual = transposed @ goals
    step = residual / diagonal[:, None]
    size = (residual * step).sum(0)
    for _ in range(ITERATIONS):
        change = transposed @ (counts @ step) + PENALTY * step
        rate = size / np.maximum((step * change).sum(0), 1e-30)
        weights += rate * step
        residual -= rate * change
        scaled = residual / diagonal[:, None]
        previous, size = size, (residual * scaled).sum(0)
        step = scaled + size / np.maximum(previous, 1e-30) * step
    return weights
