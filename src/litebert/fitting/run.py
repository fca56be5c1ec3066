"""`fit`: a file of labels to the best model that they allow.

Ways (ways.py) are judged on the same rows, which they did not learn from: of few rows each third in
turn by the cheap ways, and one third by those that train a network; of many rows one part. The way
that is taken learns from all rows. What few rows cannot tell apart is decided as on other tasks:
trained networks are better than frozen vectors, and these better than counts, by `EXPECTED`.

A run's folder holds

    fit.json     the question (file, columns, encoder, settings), each way's score with its error,
                 what was taken and why
    model/       the model, which every verb opens by the name of the run's folder
    ways/        what each way answered to the rows that judge it; the same command again continues
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from litebert.answer.model import load
from litebert.base import progress
from litebert.base.errors import ConfigError, DataError, RunError, nearest
from litebert.base.json_reader import read_json
from litebert.base.storage import LOCK, atomic_text, lock_folder, write_json, write_whole
from litebert.config import replace
from litebert.config.amounts import parse_amount
from litebert.finetuning.heads import fit_head
from litebert.fitting.columns import GUESS, Columns, find_columns, find_encoding
from litebert.fitting.encoders import open_encoder, reads_names
from litebert.fitting.second_round import add_texts, learn_again
from litebert.fitting.unlabeled import leave_out, read_texts, strip_next, write_next
from litebert.fitting.ways import (
    TRAINED,
    WAYS,
    Learned,
    LearnedNetwork,
    Material,
    OutOfTime,
    WayName,
    read_vectors,
)
from litebert.interop.names import FIT
from litebert.judge.calibration import calibrate_part, record_points, scale_logits, trace_part
from litebert.judge.seeds import compute_share_error
from litebert.tasks.registry import open_task
from litebert.tasks.rows import number_groups
from litebert.tasks.table import Table, TableFiles
from litebert.tasks.task import Task, choose_examples, write_examples
from litebert.tasks.text_outputs import Number, OneClass, SeveralLabels
from litebert.tasks.texts import Example, stream_texts
from litebert.tasks.values import EncodedPart, Item, Logits
from litebert.text.records import Layout, Notes, RowFile, detect_format, read_sample

log = logging.getLogger("litebert")

FEW_ROWS, FOLDS = 2000, 3
"""Rows below which the cheap ways judge each row once, in so many folds."""
READING, MOST_READ = 0.25, 60_000
"""The share of the time that is left in which the encoder reads rows, and how many, at most: a
linear model learns little from more."""
JUDGED, MOST_JUDGED = 0.2, 4000
"""Share and number of many rows that judge."""
HALVES = 2000
"""Rows that judge, from which on one half of them chooses the way, and the other scores it."""
CONTRASTIVE_ROWS = 1000
"""Rows below which texts of one class are brought together; above, the whole network learns."""
EXPECTED: Mapping[WayName, tuple[float, float]] = {
    "frozen": (0.15, 0.2),
    "contrastive": (0.15, 0.12),
    "network": (0.15, 0.12),
}
"""The share of the errors that a way takes away from the one that it builds on (frozen vectors from
counts, a trained network from frozen vectors), and its standard deviation: a round number for what
MiniLM did on reviews and on topics with 8 to 500 labels a class."""
LEAST_SPREAD = 0.02
"""The least standard deviation of a score's gain."""
KEPT = 0.5
"""A second round is kept that is better by this share of its error."""
WORTH = 0.01
"""A gain that is smaller than this and than its error is not worth a dearer way."""
TIMED = 256
"""Texts that tell how fast a model answers."""
HELD = "held"
"""The folder of the run that has what a student learns from."""
_BLOCKS = 20
_SOME_TEXTS = 1000
"""Texts that tell how sure a model of names is."""
_MOST_CLASSES = 1000
Prefer = Literal["balance", "score"]


@dataclass(frozen=True)
class Judged:
    """A way, and what its answers to rows that it had not read were worth."""

    way: WayName
    score: float
    error: float
    """The standard error of the score."""
    rows: int
    """How many rows judged it."""
    seconds: float
    """It learned in."""
    texts_per_second: float
    megabytes: float
    """Of the model folder."""


@dataclass(frozen=True)
class Fit:
    """A finished run of `fit`."""

    folder: Path
    way: WayName
    metric: str
    judged: list[Judged]
    reason: str
    """Why this way, in a sentence."""
    notes: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    """The arguments of `fit` that make this model where nothing is looked for and nothing judged
    but its way: columns, encoder and way."""
    next: Path | None = None
    """The file of the rows that are worth a label, if they were asked for."""

    @property
    def chosen(self) -> Judged | None:
        """None of a model that no row judged."""
        return next((judged for judged in self.judged if judged.way == self.way), None)


def fit(
    data: str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    *,
    model: str | Path | None = None,
    ways: Sequence[WayName] = (),
    labels: Sequence[str] = (),
    describe: Mapping[str, str | Sequence[str]] | None = None,
    unlabeled: str | Path | Sequence[str | Path] = (),
    next_rows: int = 0,
    teacher: bool = False,
    budget: str = "10m",
    prefer: Prefer = "balance",
    overwrite: bool = False,
    device: str = "auto",
    seed: int = 0,
    **columns: Any,
) -> Fit:
    """Make the best model that labels allow. Called again, it continues, or returns what it made.

    Args:
        data: a table (CSV, TSV, JSON Lines, Parquet, xlsx) or a folder with a folder of texts for
            each class; several are read as one table.
        out: the folder of the run, by default NAME-model for NAME.csv.
        model: the encoder, by default all-MiniLM-L6-v2 if the Hub or its cache has it, else the one
            in the package.
        ways: the ways to try, by default counts, frozen and the one of contrastive and network that
            suits so many rows.
        labels: what the classes are called, of texts without labels. Then no row judges.
        describe: a sentence or more for a class, by its label.
        unlabeled: tables, plain text with a text a line, or folders of texts. What the model is
            sure of teaches a second round, which is kept if the rows that judge say so.
        next_rows: how many rows worth a label to write to NAME-next.csv for NAME.csv: of
            `unlabeled`, or else of the rows of `data` that have no label. Of a finished fit too.
        teacher: also write `held/`, from which a student can learn and be judged: what the way
            learned from a part of the rows, and the rows of both parts.
        budget: the time for all of it, such as 10m.
        prefer: balance takes a cheaper way if a dearer one is not better by more than its error or
            a point; score takes the best, whatever it costs.
        columns: the options of a table (`text_column`, `label_column`, `pair_column`,
            `group_column`, `target`, `header`, `encoding`); those that are not given are found.

    Raises:
        ConfigError: a setting that cannot be used.
        DataError: the file cannot be used, or its columns are not found.
        ModelError: the encoder cannot be opened.
        RunError: the folder is in use, or holds something else.
    """
    began = time.monotonic()
    sources = [Path(one) for one in ([data] if isinstance(data, (str, Path)) else data)]
    pool = [Path(one) for one in ([unlabeled] if isinstance(unlabeled, (str, Path)) else unlabeled)]
    first = sources[0]
    described = {
        name: [texts] if isinstance(texts, str) else list(texts)
        for name, texts in (describe or {}).items()
    }
    for way in ways:
        if way not in WAYS:
            raise ConfigError(f"ways has '{way}'; {nearest(way, list(WAYS))}")
    ways = [way for way in WAYS if way in ways]
    deadline = began + parse_amount(budget, "budget", ("time",)).value
    out = _name_folder(first) if out is None else Path(out)
    if labels:
        _check_labels(labels, ways, sources, pool, columns)
    if teacher and labels:
        raise ConfigError(
            "a student is judged by rows with labels; label some, and leave --size out"
        )
    if next_rows < 0:
        raise ConfigError(f"next is {next_rows}; give the number of rows to label, such as 50")
    task, examples, blank, found, notes = _open(sources, list(labels), columns)
    delimiter, count = columns.get("delimiter"), 0
    if pool:
        read, count = read_texts(pool, found, delimiter, seed)
        blank = leave_out(read, examples)
        count -= len(read) - len(blank)
    if next_rows and not blank:
        raise ConfigError(
            "next needs texts without labels, and every row has one; name texts with --unlabeled"
        )
    if "contrastive" in ways and not task.output.exclusive:
        raise ConfigError("the way contrastive is for texts of one class each; leave it out")
    if described:
        _check_descriptions(described, task, ways)
    question = {
        "data": str(first) if len(sources) == 1 else [*map(str, sources)],
        "columns": asdict(found),
        "model": None if model is None else str(model),
        "ways": list(ways),
        "labels": list(labels),
        "describe": described,
        "budget": budget,
        "prefer": prefer,
        "seed": seed,
        "rows": len(examples),
        "digest": _compute_digest(examples),
        "unlabeled": _compute_digest(blank) if pool else "",
    }
    question = json.loads(json.dumps(question))  # as it is read again

    def add_next(result: Fit) -> Fit:
        if not next_rows:
            return result
        known, group = [] if labels else examples, columns.get("group_column")
        file, note = write_next(
            out,
            blank,
            known,
            next_rows,
            files=sources,
            found=found,
            group=group,
            seconds=READING * (deadline - time.monotonic()),
            seed=seed,
        )
        log.info(note)
        return replace(result, next=file)

    if (finished := _find_finished(out, question, overwrite, bool(next_rows))) is not None:
        for note in (*finished.notes, f"{out} has this fit already; --overwrite makes it again"):
            log.info(note)
        if teacher and finished.way != "counts" and not (out / HELD).is_dir():
            raise RunError(
                f"{out} has this fit without what a student learns from; --overwrite makes it again"
            )
        return add_next(finished)
    with lock_folder(out, RunError):
        _begin(out, question, overwrite)
        for note in notes:
            log.info(note)
        wanted = list(ways) or _choose_ways(task, len(examples))
        if labels:
            wanted = ["frozen"]
        material = Material(task, examples, seed=seed, folder=out / "ways", deadline=deadline)
        if set(wanted) != {"counts"}:
            material = open_encoder(material, model, described, device, notes)
        if labels:
            learned = _learn_from_names(material)
            reason = _measure_sureness(learned, material)
            result = Fit(out, "frozen", task.metric, [], reason, notes)
            learned.write(out / "model", {}, 1.0, _make_card(result, first))
        else:
            runner = _Runner(material, out / "ways", notes)
            runner.judge(wanted)
            way, reason = runner.choose(prefer)
            if pool:
                runner.teach(way, blank, count)
            given = columns if first.is_dir() else {**columns, **found.options()}
            options = {
                name: list(value) if isinstance(value, tuple) else value
                for name, value in given.items()
                if value not in (None, ())
            }
            options |= {"model": material.source} if way != "counts" else {}
            options["ways"] = [way]
            judged = list(runner.judged.values())
            result = Fit(out, way, task.metric, judged, reason, notes, options)
            runner.finish(way, out / "model", _make_card(result, first))
            if teacher and way != "counts":
                runner.write_teacher(way, out / HELD)
        record = {
            "format": 1,
            "question": question,
            "way": result.way,
            "metric": result.metric,
            "judged": [asdict(judged) for judged in result.judged],
            "reason": result.reason,
            "notes": result.notes,
            "options": result.options,
            "seconds": round(time.monotonic() - began, 1),
        }
        write_json(out / FIT, record)
        shutil.rmtree(out / "ways", ignore_errors=True)
    return add_next(result)


# ---------------------------------------------------------------------------------- what is asked


def _compute_digest(examples: Sequence[Any]) -> str:
    digest = hashlib.sha256()
    for example in examples:  # of millions, a text of all would take gigabytes
        digest.update(repr(example).encode("utf-8", "backslashreplace"))
    return digest.hexdigest()


def _name_folder(data: Path) -> Path:
    named = data if data.name.strip(".") else data.resolve()
    return named.with_name(f"{named.name if named.is_dir() else strip_next(named.stem)}-model")


def _check_labels(
    labels: Sequence[str],
    ways: Sequence[WayName],
    sources: Sequence[Path],
    pool: Sequence[Path],
    columns: Mapping[str, Any],
) -> None:
    if len({*labels}) < len(labels) or len(labels) < 2:
        raise ConfigError(f"labels has '{', '.join(labels)}'; name two classes or more, each once")
    for data in sources:
        if data.is_dir():
            raise ConfigError(f"{data} is a folder, which names its classes; leave --labels out")
    unused = ["label_column", "pair_column", "group_column", "target", "separator"]
    unused = [name for name in unused if columns.get(name)]
    unused += ["ways"] if {*ways} - {"frozen"} else []
    unused += ["unlabeled"] if pool else []
    if unused:
        option = unused[0].replace("_", "-")
        raise ConfigError(
            f"--{option} is for rows with labels; leave it out, or leave --labels out"
        )


def _check_descriptions(
    describe: Mapping[str, Sequence[str]], task: Task[Any], ways: Sequence[WayName]
) -> None:
    if not reads_names(task):
        raise ConfigError("describe is for texts of one class each; leave it out")
    if ways == ["counts"]:
        raise ConfigError("the way counts reads no descriptions; add frozen to --ways")
    for label in describe:
        if label not in task.output.labels:
            raise ConfigError(f"describe has '{label}'; {nearest(label, task.output.labels)}")


# --------------------------------------------------------------------------------- what is learned


def _open(
    sources: Sequence[Path], labels: Sequence[str], columns: dict[str, Any]
) -> tuple[Task[Any], list[Any], list[Any], Columns, list[str]]:
    """Open all rows of the data, as a task, its examples and those without a label."""
    for data in sources:
        if not data.exists():
            raise DataError(
                f"{data} does not exist; give a table or a folder with a folder a class"
            )
    data = sources[0]
    options = {name: value for name, value in columns.items() if value not in (None, ())}
    told = list[str]()
    if data.is_dir():
        found = Columns("text", ("label",))
        files = open_task("table", sources, dev=sources, **options)
    else:
        label = options.pop("label_column", ())
        found = find_columns(
            data,
            options.pop("text_column", None),
            (label,) if isinstance(label, str) else tuple(label),
            options.pop("pair_column", None),
            header=options.pop("header", True),
            encoding=options.pop("encoding", None),
            delimiter=options.get("delimiter"),
            need_label=not labels,
        )
        layout = Layout(
            header=found.header, encoding=found.encoding, delimiter=options.get("delimiter")
        )
        for source in sources:
            told += _look_into(source, found, layout)
        if labels:
            texts = [
                row.example
                for source in sources
                for row in stream_texts(RowFile(str(source), layout), Notes(), text=found.text)
            ]
            named: Task[Any] = Table(OneClass(tuple(labels)), texts=(found.text,), label="label")
            told = [f"{len(texts):,} texts in '{found.text}', without labels", *told]
            return named, texts, texts, found, told
        # Given as its own dev part, so that no row is held out: ways hold out their own.
        files = open_task("table", sources, dev=sources, **{**found.options(), **options})
    assert isinstance(files, TableFiles)
    files.leaves_blank = True
    counted = Notes()
    examples, task = files.read("train", counted), replace(files.task, dev=("dev",))
    kinds = {OneClass: "classes", SeveralLabels: "labels", Number: "a number"}
    kind = kinds[type(task.output)]
    shown = ", ".join(task.output.labels[:8]) + (", ..." if len(task.output.labels) > 8 else "")
    count = f"{len(task.output.labels)} {kind} ({shown})" if task.output.labels else kind
    texts_of = "folders" if data.is_dir() else f"'{found.text}'"
    texts_of += f" and '{found.pair}'" if found.pair else ""
    column = "" if data.is_dir() else f" from '{', '.join(found.label)}'"
    took = f"{len(examples):,} rows: {count}{column}, of texts in {texts_of}"
    if len(task.output.labels) > _MOST_CLASSES:
        raise DataError(
            f"{data} has {len(task.output.labels):,} different labels in "
            f"'{', '.join(found.label)}'; name the column of the labels with --label-column"
        )
    known = "labels in the column"  # as `took` says
    told += [note for note in counted.notes() if not note.startswith(known)]
    return task, examples, list(files.blank), found, [took, *told]


def _look_into(source: Path, found: Columns, layout: Layout) -> list[str]:
    """Refuse what cannot be read as the first table is, and say what is not read."""
    if source.is_dir():
        return []
    if detect_format(source) not in ("parquet", "xlsx"):
        encoding = find_encoding(source)
        if encoding not in (found.encoding, "utf-8") and found.encoding == "utf-8":
            raise DataError(
                f"{source} is in {encoding}, and the first file in {found.encoding}; save all in "
                "UTF-8"
            )
    names, _ = read_sample(source, 1, layout)
    if GUESS in names and GUESS not in (found.text, found.pair, *found.label):
        return [f"{source}: the column '{GUESS}' is the answer of a model, and is not read"]
    return []


def _find_finished(
    out: Path, question: Mapping[str, Any], overwrite: bool, any_texts: bool
) -> Fit | None:
    """Return the fit that the folder holds, if it is the answer; `any_texts` if texts without
    labels that taught it or not do not matter.

    Raises:
        RunError: the folder holds something else.
    """
    file = out / FIT
    if file.is_file():
        record = read_json(file, RunError)
        if "way" not in record or overwrite:
            return None
        asked = {"unlabeled": "", **record.get("question", {})}
        if any_texts:
            asked["unlabeled"] = question["unlabeled"]
        if asked != question:
            raise RunError(
                f"{out} holds the fit of other rows or settings; give another --out, or --overwrite"
            )
        judged = [Judged(**fields) for fields in record["judged"]]
        names = ("way", "metric", "reason", "notes", "options")
        return Fit(out, judged=judged, **{name: record[name] for name in names})
    if out.exists() and (not out.is_dir() or any(item.name != LOCK for item in out.iterdir())):
        raise RunError(f"{out} is there and holds no fit; give another --out")
    return None


def _begin(out: Path, question: Mapping[str, Any], overwrite: bool) -> None:
    """Record the question, and delete what answered another one."""
    file = out / FIT
    asked = read_json(file, RunError).get("question", {}) if file.is_file() else {}
    # What a way answered is worth as much to a run with more time.
    asked |= {name: question[name] for name in ("budget", "prefer")}
    if overwrite or asked != question:
        for name in ("model", "ways", HELD, "student"):
            shutil.rmtree(out / name, ignore_errors=True)
    (out / "ways").mkdir(exist_ok=True)
    write_json(file, {"format": 1, "question": question})


def _choose_ways(task: Task[Any], rows: int) -> list[WayName]:
    contrasts = task.output.exclusive and not task.pair and rows < CONTRASTIVE_ROWS
    return ["counts", "frozen", "contrastive" if contrasts else "network"]


def _read(material: Material, judging: NDArray[np.bool_], notes: list[str]) -> Material:
    """Read texts with the encoder: those that judge (N,), and of many others so many as a quarter
    of the time that is left allows."""
    task, start, examples = material.task, material.start, material.examples
    assert start is not None
    draw = np.random.default_rng(material.seed)
    others = draw.permutation(np.flatnonzero(~judging))
    places = np.concatenate((np.flatnonzero(judging), others))
    vectors = np.zeros((len(examples), start.encoder.hidden_size), np.float32)
    items: dict[int, Item] = {}
    cut = Notes()

    def read(some: Sequence[int]) -> None:
        texts = [examples[place] for place in some]
        encoded = task.encode(texts, start.tokenizer, material.length, cut)
        vectors[some] = read_vectors(start, encoded, material.machine)
        items.update(zip(some, encoded, strict=True))

    count = len(places)
    if count > FEW_ROWS:
        began = time.monotonic()
        read(places[:FEW_ROWS].tolist())
        now = time.monotonic()
        affordable = FEW_ROWS * READING * (material.deadline - now) / (now - began)
        count = min(count, MOST_READ, FEW_ROWS + max(0, int(affordable)))
        count = max(count, int(judging.sum()))
    if rest := places[len(items) : count].tolist():
        read(rest)
    notes += cut.notes()
    if count < len(places):
        note = f"the encoder reads {count:,} of the {len(places):,} rows, drawn at random"
        notes.append(note)
        log.info(note)
    return replace(material, items=items, vectors=vectors)


def _measure_sureness(learned: LearnedNetwork, material: Material) -> str:
    start, texts = material.start, material.examples
    assert start is not None
    draw = np.random.default_rng(material.seed).permutation(len(texts))[:_SOME_TEXTS].tolist()
    some = [texts[place] for place in draw]
    items = material.task.encode(some, start.tokenizer, material.length, Notes())
    numbers = np.stack(learned.head.logits(read_vectors(start, items, material.machine)))
    ordered = np.sort(numbers, 1)
    sure = float((ordered[:, -1] - ordered[:, -2] > np.log(2)).mean())
    return (
        "there are no labels, so what they are called answers, and no score is known; for "
        f"{sure:.0%} of the texts the first label is twice as likely as the second, or more"
    )


def _learn_from_names(material: Material) -> LearnedNetwork:
    assert material.start is not None
    if material.names is None:
        raise ConfigError(
            "labels are codes or numbers, which say nothing; describe each with --describe FILE"
        )
    head = fit_head(material.task.output, material.vectors[:0], (), material.names)
    return LearnedNetwork(material, material.start, head, material.vectors)


# ----------------------------------------------------------------------------------- what is judged


class _Runner:
    """Judges ways on the same rows, chooses one, and lets it learn from all rows."""

    def __init__(self, material: Material, folder: Path, notes: list[str]) -> None:
        self.material, self.folder, self.notes = material, folder, notes
        self.items = material.task.plain_items(material.examples)
        self.folds = _split(material.task, self.items, material.seed)
        self.judged: dict[WayName, Judged] = {}
        self.logits: dict[WayName, tuple[NDArray[np.int64], Logits]] = {}
        self.learned: dict[WayName, Learned] = {}
        self.taught: Material | None = None
        """The rows and texts without labels, if a second round with these is better."""
        self.stopped = False

    def judge(self, ways: Sequence[WayName]) -> None:
        for way in WAYS:
            if way not in ways or self.stopped:
                continue
            folds = self.folds[:1] if way in TRAINED else self.folds
            began = time.monotonic()
            try:
                if way != "counts" and not self.material.items:
                    self.material = _read(self.material, np.any(self.folds, 0), self.notes)
                    began = time.monotonic()
                cost, places, logits = self._answer(way, folds)
            except OutOfTime:
                self._note(f"{way} was left out: it does not fit into the time that is left")
                continue
            except DataError as fault:
                if way != "counts":
                    raise
                self._note(f"counts was left out: {fault}")
                continue
            except KeyboardInterrupt:
                if not self.judged:
                    raise
                self.stopped = True
                self._note("stopped: the best way so far is taken")
                continue
            self.logits[way] = places, logits
            score, error = self.measure(way)
            entry = Judged(way, score, error, len(_halve(places, False)), *cost)
            self.judged[way] = entry
            log.info(
                f"{way}: {self.material.task.metric} {score:.4g} ± {error:.2g} on {len(places):,} "
                f"rows ({time.monotonic() - began:.1f} s)"
            )

    def _answer(
        self, way: WayName, folds: Sequence[NDArray[np.bool_]]
    ) -> tuple[list[float], NDArray[np.int64], Logits]:
        """Answer the held rows of each fold; kept, so that a run that was killed goes on.

        Returns:
            Seconds of learning, texts a second and megabytes; the places of the rows; the answers.
        """
        file = self.folder / f"{way}.npz"
        if file.is_file():
            with suppress(OSError, ValueError, KeyError), np.load(file) as saved:
                return saved["cost"].tolist(), saved["places"], list(saved["logits"])
        places, logits, seconds = [], list[Any](), 0.0
        for held in folds:
            material, learn = self.material, np.flatnonzero(~held).tolist()
            if way in TRAINED:  # what is taken learns once more, from all rows
                material = self._limit(material, len(learn))
            began = time.monotonic()
            learned = WAYS[way](material, learn)
            seconds += time.monotonic() - began
            tried = np.flatnonzero(held)
            places.append(tried)
            logits += learned.logits(tried.tolist())
            self.learned[way] = learned
        every = np.concatenate(places)
        timed = [self.material.examples[place] for place in np.resize(every, TIMED).tolist()]
        cost = [round(seconds / len(folds), 2), *_measure_model(learned, timed)]
        self.folder.mkdir(parents=True, exist_ok=True)
        with write_whole(file) as aside, open(aside, "wb") as opened:
            np.savez(opened, places=every, logits=np.stack(logits), cost=cost)
        return cost, every, logits

    def _limit(self, material: Material, rows: int) -> Material:
        left = material.deadline - time.monotonic()
        share = rows / (rows + len(self.items))
        return replace(material, deadline=time.monotonic() + left * share)

    def teach(self, way: WayName, texts: Sequence[Example], count: int) -> None:
        """Judge a second round of the way with `texts` out of `count`, on the rows that judged the
        first, by models that learned from none of them; `finish` repeats it if it is better."""
        output, rows = self.material.task.output, len(self.items)
        if not output.exclusive:
            self._note("more texts teach classes only, so these were not used")
            return
        if self.stopped or not texts:
            return
        folds = self.folds[:1] if way in TRAINED else self.folds
        file = self.folder / f"{way}-again.npz"
        places, logits = [np.flatnonzero(held) for held in folds], list[Any]()
        try:
            left = READING * (self.material.deadline - time.monotonic())
            material = add_texts(self.material, way, texts, left)
            if file.is_file():
                with suppress(OSError, ValueError, KeyError), np.load(file) as saved:
                    logits = list(saved["logits"])
            if not logits:
                for held, tried in zip(folds, places, strict=True):
                    learn = np.flatnonzero(~held).tolist()
                    limited = self._limit(material, len(learn)) if way in TRAINED else material
                    first = self.learned.get(way) if len(folds) == 1 else None
                    logits += learn_again(limited, way, learn, rows, first).logits(tried.tolist())
                with write_whole(file) as aside, open(aside, "wb") as opened:
                    np.savez(opened, logits=np.stack(logits))
        except OutOfTime:
            self._note("more texts teach nothing in the time that is left")
            return
        except KeyboardInterrupt:
            self.stopped = True
            self._note("stopped: the best way so far is taken")
            return
        before = self.logits[way]
        gain, error = self._compare(way, (np.concatenate(places), logits))
        kept = gain > KEPT * error
        read = len(material.examples) - rows
        of = f" of {count:,}" if read < count else ""
        verdict = "kept" if kept else "not kept"
        metric = self.material.task.metric
        note = f"with {read:,}{of} more texts: {metric} {gain:+.3f} ± {error:.3f}, {verdict}"
        self.notes.append(note)
        log.info(note)
        if not kept:
            self.logits[way] = before
            return
        self.taught, self.learned = material, {}
        score, error = self.measure(way)
        self.judged[way] = replace(self.judged[way], score=score, error=error)

    def _compare(
        self, way: WayName, again: tuple[NDArray[np.int64], Logits]
    ) -> tuple[float, float]:
        """What a second round is better by, which becomes the answer of the way."""
        first = cast("WayName", f"{way} once")
        self.logits[first], self.logits[way] = self.logits[way], again
        gain = self.measure(way, first)
        del self.logits[first]
        return gain

    def measure(self, way: WayName, other: WayName | None = None) -> tuple[float, float]:
        """The score of a way and its error; with another, of the difference from that on the rows
        that judged both. Of many rows, those of scores and of differences are others."""
        places, _ = self.logits[way]
        if other is not None:
            places = np.intersect1d(places, self.logits[other][0])
        places = _halve(places, other is not None)
        values = self._score_blocks(way, places)
        if other is not None:
            values = values - self._score_blocks(other, places)
        score, parts = float(values[0]), values[1:]
        count = len(parts)
        error = float(np.sqrt((count - 1) / count * np.square(parts - parts.mean()).sum()))
        if other is None and 0 <= score <= 1 and not isinstance(self.material.task.output, Number):
            error = max(error, compute_share_error(score, len(places)))
        if other is not None:  # few rows that all agree still tell little
            error = max(error, 1 / (len(places) + 2))
        return score, error

    def _score_blocks(self, way: WayName, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """The score on places, then on them without one block each (a jackknife)."""
        task, examples = self.material.task, self.material.examples
        answered, logits = self.logits[way]
        row_of = {place: row for row, place in enumerate(answered.tolist())}
        listed = places.tolist()
        chosen = [examples[place] for place in listed]
        items = [self.items[place] for place in listed]
        answers = task.answers(chosen, items, [logits[row_of[place]] for place in listed])
        full = 100.0 if task.percent else 1.0
        blocks = np.arange(len(listed)) % min(_BLOCKS, len(listed))

        def score(keep: NDArray[np.bool_]) -> float:
            rows = np.flatnonzero(keep).tolist()
            if not rows:
                return 0.0
            scores = task.score([chosen[i] for i in rows], [answers[i] for i in rows])
            value = scores[task.metric] / full
            return value if np.isfinite(value) else 0.0

        whole = score(np.ones(len(listed), bool))
        return np.array([whole, *(score(blocks != block) for block in range(blocks.max() + 1))])

    def choose(self, prefer: Prefer) -> tuple[WayName, str]:
        """The way to take, and why."""
        if not self.judged:
            raise DataError("no way could learn from these rows; give more, or a longer --budget")
        cheapest = next(iter(self.judged))
        if len(self.judged) == 1:
            return cheapest, "the only way that was judged"
        worth: dict[WayName, float] = {cheapest: 0.0}
        for way in list(self.judged)[1:]:
            ground: WayName = "frozen" if "frozen" in worth and way != "frozen" else cheapest
            left = max(0.0, 1 - self.judged[ground].score)
            mean, spread = (share * left for share in EXPECTED[way])
            seen, error = self.measure(way, ground)
            # Rows that speak against what is usual say that this task is not.
            surprise = max(0.0, (seen - mean) ** 2 - error**2)
            precision, prior = 1 / error**2, 1 / max(spread**2, LEAST_SPREAD**2, surprise)
            expected = (seen * precision + mean * prior) / (precision + prior)
            worth[way] = worth[ground] + expected
        best = max(worth, key=lambda way: worth[way])
        chosen = best
        if prefer == "balance":
            for way in worth:  # from cheap to dear
                apart = worth[best] - worth[way]
                error = 0.0 if way == best else self.measure(best, way)[1]
                if apart <= min(WORTH, error):
                    chosen = way
                    break
        return chosen, self._explain(chosen, best)

    def _explain(self, chosen: WayName, best: WayName) -> str:
        metric, judged = self.material.task.metric, self.judged
        if chosen != best:
            fast = judged[chosen].texts_per_second / max(1.0, judged[best].texts_per_second)
            faster = f", and {fast:.0f} times as fast" if fast >= 2 else ""
            return f"as good as {best} here, inside the noise{faster}"
        others = [way for way in judged if way != chosen]
        rival = max(others, key=lambda way: judged[way].score)
        seen, error = self.measure(chosen, rival)
        apart = f"{seen:+.3f} ± {error:.3f} {metric}"
        if seen > 2 * error:
            return f"better than {rival} ({apart})"
        if list(judged).index(chosen) < list(judged).index(rival):
            return f"as good as {rival} here, inside the noise ({apart}), and cheaper"
        return f"these rows do not tell it from {rival} ({apart}); on other tasks it is better"

    def finish(self, way: WayName, folder: Path, card: str) -> None:
        """Let the way learn from all rows, and write the model."""
        task = self.material.task
        places, logits = self.logits[way]
        targets = [self.items[place].target for place in places.tolist()]
        calibration = calibrate_part(task.output, logits, targets)
        temperature = calibration.temperature if calibration else 1.0
        about: dict[str, Any] = {}
        if task.output.calibrates:
            scaled = scale_logits(logits, temperature)
            about["precision"] = record_points(trace_part(task.output, scaled, targets))
        learned = self.learned.get(way)
        if not self.stopped or learned is None:
            self.stopped = False
            try:
                with progress.task(f"learning from all {len(self.items):,} rows"):
                    rows = range(len(self.items))
                    if self.taught is None:
                        learned = WAYS[way](self.material, rows)
                    else:
                        learned = learn_again(self.taught, way, rows, len(rows), None)
            except (OutOfTime, KeyboardInterrupt) as cause:
                if learned is None and isinstance(cause, OutOfTime):
                    raise RunError(
                        f"no time is left for {way} to learn from all rows; run fit again with a "
                        "longer --budget"
                    ) from None
                if learned is None:
                    raise
                self.stopped = True
        assert learned is not None
        if self.stopped:
            self._note("the model has learned from a part of the rows only")
        shutil.rmtree(folder, ignore_errors=True)
        learned.write(folder, about, temperature, card)
        part = EncodedPart("dev", [self.material.examples[i] for i in places.tolist()], [])
        write_examples(folder, choose_examples(task, part))

    def write_teacher(self, way: WayName, folder: Path) -> None:
        """Write what the way learns without the rows of the first fold, and the rows of both parts
        as tables, so that no label of a row that judges a student reaches it."""
        task, held, output = self.material.task, self.folds[0], self.material.task.output
        learn = np.flatnonzero(~held).tolist()
        try:
            if self.taught is None:
                learned = WAYS[way](self.material, learn)
            else:
                learned = learn_again(self.taught, way, learn, len(self.items), None)
        except OutOfTime:
            raise RunError(
                "no time is left to make a teacher; run fit again with a longer --budget"
            ) from None
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, places in (("train", learn), ("dev", np.flatnonzero(held).tolist())):
            with atomic_text(folder / f"{name}.jsonl") as file:
                for place in places:
                    example = self.material.examples[place]
                    label = example.label
                    if isinstance(output, SeveralLabels):
                        named = zip(output.labels, label, strict=True)
                        label = [called for called, flag in named if flag]
                    elif output.labels:
                        label = output.labels[label]
                    pair = {"pair": example.pair} if task.pair else {}
                    row = {"text": example.text, **pair, "label": label}
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")
        learned.write(folder / "teacher", {}, 1.0, "")

    def _note(self, note: str) -> None:
        self.notes.append(note)
        log.warning(note)


def _halve(places: NDArray[np.int64], choosing: bool) -> NDArray[np.int64]:
    """The rows that choose the way, or those that score it."""
    return places if len(places) < HALVES else places[not choosing :: 2]


def _measure_model(learned: Learned, examples: Sequence[Any]) -> tuple[float, float]:
    """Texts a second and megabytes of the model as it will answer."""
    inputs = [example.text if example.pair is None else example[:2] for example in examples]
    with TemporaryDirectory() as folder:
        learned.write(Path(folder), {}, 1.0, "")
        megabytes = sum(file.stat().st_size for file in Path(folder).rglob("*")) / 1e6
        model = load(folder)
        model.predict(inputs[:1])
        began = time.monotonic()
        model.predict(inputs)
        return round(len(inputs) / max(1e-9, time.monotonic() - began)), round(megabytes, 3)


def _split(task: Task[Any], items: Sequence[Item], seed: int) -> list[NDArray[np.bool_]]:
    """Which rows each fold holds, (N,): every class in its share, and no group on two sides."""
    groups, rows = number_groups(items), len(items)
    if rows < 4:
        raise DataError(f"{rows} rows are too few to judge a model; give 4 or more, or --labels")
    draw = np.random.default_rng(seed)
    count = int(groups.max()) + 1
    first = np.full(count, -1)
    first[groups[::-1]] = np.arange(rows)[::-1]
    order = draw.permutation(count)
    if task.output.exclusive:
        classes = np.array([items[place].target for place in first[order].tolist()])
        order = order[np.argsort(classes, kind="stable")]
    # The folds of a class's groups follow one another.
    if rows < FEW_ROWS:
        folds = np.arange(count) % min(FOLDS, count)
        number = np.empty(count, np.int64)
        number[order] = folds
        return [number[groups] == fold for fold in range(min(FOLDS, count))]
    every = max(2, round(1 / min(JUDGED, MOST_JUDGED / rows)))
    number = np.empty(count, np.int64)
    number[order] = np.arange(count) % every
    return [number[groups] == 0]


def _make_card(result: Fit, data: Path) -> str:
    chosen = result.chosen
    lines = [f"# A model of {data.name}", "", f"`litebert fit {data.name}` made it: {result.way}."]
    lines += ["", *(f"- {note}" for note in result.notes)]
    if chosen is not None:
        lines += [
            "",
            f"Expected {result.metric}: {chosen.score:.3f} ± {chosen.error:.3f}, of {chosen.rows} "
            "rows that it had not learned from.",
        ]
    lines += ["", f"Why this way: {result.reason}.", ""]
    return "\n".join(lines)
