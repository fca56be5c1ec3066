"""`fit`: a file of labels to the best model that they allow.

A run's folder holds

    fit.json     the question (file, columns, encoder, settings), each method's score with its
                 error, what was taken and why
    model/       the model, which every verb opens by the name of the run's folder
    methods/     what each method answered to the rows that judge it; the same command again
                 continues
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import numpy as np

from litebert.base.errors import ConfigError, DataError, RunError, nearest, suggest_path
from litebert.base.json_reader import read_json
from litebert.base.storage import LOCK, lock_folder, write_json
from litebert.config import replace
from litebert.config.amounts import parse_amount
from litebert.finetuning.heads import fit_head
from litebert.fitting.columns import GUESS, TITLE_NAMES, Columns, find_columns, find_encoding
from litebert.fitting.encoders import open_encoder, reads_names, says_something
from litebert.fitting.judging import READING, Judged, Prefer, Runner
from litebert.fitting.methods import (
    METHODS,
    LearnedNetwork,
    Material,
    MethodName,
    read_vectors,
)
from litebert.fitting.second_round import choose_guesses
from litebert.fitting.unlabeled import leave_out, read_texts, strip_next, write_next
from litebert.interop.names import FIT
from litebert.tasks.registry import open_task
from litebert.tasks.table import Table, TableFiles
from litebert.tasks.task import Task
from litebert.tasks.text_outputs import Number, OneClass, SeveralLabels
from litebert.tasks.texts import stream_texts
from litebert.tasks.values import Item
from litebert.text.records import JOINT, Layout, Notes, RowFile, detect_format, read_sample

log = logging.getLogger("litebert")

CONTRASTIVE_ROWS = 1000
"""Rows below which texts of one class are brought together; above, the whole network learns."""
HELD = "held"
"""The folder of the run that has what a student learns from."""
FEW_PAIRS = 300
"""Pairs below which no encoder is trained: on 100 to 128 of them it was no better (MiniLM), on
1,000 of SQuAD's questions and sentences by 5 points."""
_MANY_TEXTS = 50
"""Texts without labels that tell half of how near a name is to any; fewer teach nothing."""
_ROUNDS, _SUREST = 3, 0.25
"""How often a model of names learns from its surest answers, a quarter of those of each class:
SST-2 has 71.0 after it and 66.3 before, made-up tickets 56.2 and 51.7; if one class is ten times as
common, 78.5 and 73.2, 49.5 and 48.5."""
_SOME_TEXTS = 1000
"""Texts that a model of names reads, to learn and to tell how sure it is."""
_MOST_CLASSES = 1000
_MOST_SPELLED, _ALIKE = 300, 0.9
"""Labels whose spelling is compared, and what slips have in common with what was meant."""


@dataclass(frozen=True)
class Fit:
    """A finished run of `fit`."""

    folder: Path
    method: MethodName
    metric: str
    judged: list[Judged]
    reason: str
    """Why this method, in a sentence."""
    notes: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    """The arguments of `fit` that make this model where nothing is looked for and nothing judged
    but its method: columns, encoder and method."""
    next: Path | None = None
    """The file of the rows that are worth a label, if they were asked for."""
    interrupted: bool = False
    """Ctrl-C ended it, so the model is the best until then."""

    @property
    def chosen(self) -> Judged | None:
        """None of a model that no row judged."""
        return next((judged for judged in self.judged if judged.method == self.method), None)


def fit(
    data: str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    *,
    model: str | Path | None = None,
    methods: Sequence[MethodName] = (),
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
        methods: those to try, by default tfidf, frozen and the one of contrastive and finetune that
            suits so many rows.
        labels: what the classes are called, of texts without labels. Then no row judges.
        describe: a sentence or more for a class, by its label.
        unlabeled: tables, plain text with a text a line, or folders of texts. What the model is
            sure of teaches a second round, which is kept if the rows that judge say so.
        next_rows: how many rows worth a label to write to NAME-next.csv for NAME.csv: of
            `unlabeled`, or else of the rows of `data` that have no label. Of a finished fit too.
        teacher: also write `held/`, from which a student can learn and be judged: what the method
            learned from a part of the rows, and the rows of both parts.
        budget: the time for all of it, such as 10m.
        prefer: balance takes TF-IDF, which is small and fast, if the best method is not better by
            more than its error or a point; score takes the best.
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
    for method in methods:
        if method not in METHODS:
            raise ConfigError(f"methods has '{method}'; {nearest(method, list(METHODS))}")
    methods = [method for method in METHODS if method in methods]
    deadline = began + parse_amount(budget, "budget", ("time",)).value
    out = _name_folder(first) if out is None else Path(out)
    if labels:
        _check_labels(labels, described, methods, sources, pool, columns)
    if teacher and labels:
        raise ConfigError(
            "a student is judged by rows with labels; label some, and leave --size out"
        )
    if seed < 0:
        raise ConfigError(f"seed is {seed}; give 0 or more")
    if next_rows < 0:
        raise ConfigError(f"next is {next_rows}; give the number of rows to label, such as 50")
    task, examples, blank, found, notes = _open(sources, list(labels), columns)
    told, count = Layout(), 0
    if encoding := columns.get("encoding"):
        told = replace(told, encoding=encoding)
    if delimiter := columns.get("delimiter"):
        told = replace(told, delimiter=delimiter)
    if pool:
        blank, count = read_texts(pool, found, told, seed)
    if not labels:
        read, blank = len(blank), leave_out(blank, examples)
        count -= read - len(blank)
    if next_rows and not blank:
        raise ConfigError(
            "next needs texts without labels, and each has one in the rows; give others"
            if pool
            else "next needs texts without labels, and every row has one; give --unlabeled"
        )
    if "contrastive" in methods and (task.pair or not task.output.exclusive):
        raise ConfigError(
            "the method contrastive is for single texts of one class each; leave it out"
        )
    if described:
        _check_descriptions(described, task, methods)
    question = {
        "data": str(first) if len(sources) == 1 else [*map(str, sources)],
        "columns": asdict(found),
        "model": None if model is None else str(model),
        "methods": list(methods),
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
        known = [] if labels else examples
        file, note = write_next(
            out,
            blank,
            known,
            next_rows,
            files=sources,
            found=found,
            group=columns.get("group_column"),
            delimiter=told.delimiter or ",",
            seconds=READING * (deadline - time.monotonic()),
            seed=seed,
        )
        log.info(note)
        return replace(result, next=file)

    if (finished := _find_finished(out, question, overwrite, bool(next_rows))) is not None:
        for note in (*finished.notes, f"{out} has this fit already; --overwrite makes it again"):
            log.info(note)
        if teacher and finished.method != "tfidf" and not (out / HELD).is_dir():
            raise RunError(
                f"{out} has this fit without what a student learns from; --overwrite makes it again"
            )
        return add_next(finished)
    with lock_folder(out, RunError):
        _begin(out, question, overwrite)
        for note in notes:
            log.info(note)
        wanted = list(methods) or _choose_methods(task, len(examples))
        if labels:
            wanted = ["frozen"]
        material = Material(task, examples, seed=seed, folder=out / "methods", deadline=deadline)
        if set(wanted) != {"tfidf"}:
            material = open_encoder(material, model, described, device, notes)
        if labels:
            learned, reason = _learn_from_names(material)
            result = Fit(out, "frozen", task.metric, [], reason, notes)
            learned.write(out / "model", {}, 1.0, _make_card(result, first))
        else:
            runner = Runner(material, out / "methods", notes)
            runner.judge(wanted)
            method, reason = runner.choose(prefer)
            if pool:
                runner.teach(method, blank, count)
            reason += runner.doubt(method)
            given = columns if first.is_dir() else {**columns, **found.options()}
            options = {
                name: list(value) if isinstance(value, tuple) else value
                for name, value in given.items()
                if value not in (None, ())
            }
            options |= {"model": material.source} if method != "tfidf" else {}
            options["methods"] = [method]
            judged = list(runner.judged.values())
            result = Fit(out, method, task.metric, judged, reason, notes, options)
            runner.finish(method, out / "model", _make_card(result, first))
            result = replace(result, interrupted=runner.interrupted)
            if teacher and method != "tfidf":
                runner.write_teacher(method, out / HELD)
        record = {
            "format": 1,
            "question": question,
            "method": result.method,
            "metric": result.metric,
            "judged": [asdict(judged) for judged in result.judged],
            "reason": result.reason,
            "notes": result.notes,
            "options": result.options,
            "seconds": round(time.monotonic() - began, 1),
        }
        write_json(out / FIT, record)
        shutil.rmtree(out / "methods", ignore_errors=True)
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
    described: Mapping[str, Sequence[str]],
    methods: Sequence[MethodName],
    sources: Sequence[Path],
    pool: Sequence[Path],
    columns: Mapping[str, Any],
) -> None:
    if len({label.casefold() for label in labels}) < len(labels) or len(labels) < 2:
        raise ConfigError(
            f"labels has '{', '.join(labels)}'; name two classes or more, each once, with commas "
            "between them"
        )
    for data in sources:
        if data.is_dir():
            raise ConfigError(f"{data} is a folder, which names its classes; leave --labels out")
    unused = ["label_column", "pair_column", "group_column", "target", "separator"]
    unused = [name for name in unused if columns.get(name)]
    unused += ["methods"] if {*methods} - {"frozen"} else []
    unused += ["unlabeled"] if pool else []
    if unused:
        option = unused[0].replace("_", "-")
        raise ConfigError(
            f"--{option} is for rows with labels; leave it out, or leave --labels out"
        )
    for label in labels:
        if not described.get(label) and not says_something(label):
            raise ConfigError(
                f"the label '{label}' says nothing with fewer than three letters; describe it with "
                "--describe FILE"
            )


def _check_descriptions(
    describe: Mapping[str, Sequence[str]], task: Task[Any], methods: Sequence[MethodName]
) -> None:
    if not reads_names(task):
        raise ConfigError("describe is for texts of one class each; leave it out")
    if methods == ["tfidf"]:
        raise ConfigError("the method tfidf reads no descriptions; add frozen to --methods")
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
            remedy = "give a table or a folder with a folder a class"
            raise DataError(f"{data} does not exist; {suggest_path(data, remedy)}")
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
            told += _look_into(source, found, layout, columns.get("encoding"), source == data)
        if labels:
            texts = [
                row.example
                for source in sources
                for row in stream_texts(RowFile(str(source), layout), Notes(), text=found.text)
            ]
            named: Task[Any] = Table(OneClass(tuple(labels)), texts=(found.text,))
            told = [f"{len(texts):,} texts in '{found.text}', without labels", *told]
            return named, texts, texts, found, told
        # Given as its own dev part, so that no row is held out: methods hold out their own.
        files = open_task("table", sources, dev=sources, **{**found.options(), **options})
    assert isinstance(files, TableFiles)
    files.leaves_blank = True
    counted = Notes()
    examples = files.read("train", counted)
    task = replace(files.task, dev=("dev",), apart=found.pair is not None)
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
    if len(examples) > 2 and all(example[:2] == examples[0][:2] for example in examples):
        raise DataError(
            f"{data} has the same text in every row of {texts_of}, so there is nothing to learn; "
            "name the column of the texts with --text-column"
        )
    if task.output.exclusive:
        rows = Counter(example.label for example in examples)
        told += _doubt_labels({name: rows[i] for i, name in enumerate(task.output.labels)})
    if found.unread:
        listed = ", ".join(f"'{name}'" for name in found.unread[:3])
        joint = f"'{found.text}{JOINT}{found.unread[0]}'"
        told.append(f"not read: {listed}; --text-column {joint} reads both")
    known = "labels in the column"  # as `took` says
    told += [note for note in counted.notes() if not note.startswith(known)]
    return task, examples, list(files.blank), found, [took, *told]


def _doubt_labels(rows: Mapping[str, int]) -> list[str]:
    """Say which rare labels are spelled as a common one is."""
    told, spelled = list[str](), {label: _simplify(label) for label in rows}
    for label, count in rows.items() if len(rows) <= _MOST_SPELLED else ():
        plain = spelled[label]
        if not any(map(str.isalpha, plain)):
            continue
        for other, more in rows.items():
            alike = spelled[other]
            same = plain == alike and (more, other) > (count, label)
            close = min(len(plain), len(alike)) > 3 and 10 * count <= more
            close = close and re.sub(r"\D", "", plain) == re.sub(r"\D", "", alike)
            if same or (close and SequenceMatcher(None, plain, alike).ratio() > _ALIKE):
                told.append(
                    f"{count:,} {'row has' if count == 1 else 'rows have'} '{label}', and {more:,} "
                    f"'{other}'; write one of them if they are one class"
                )
                break
    return told


def _simplify(label: str) -> str:
    """Without case, and without what may stand between words."""
    return re.sub(r"(?<=[^\W\d_])[\s_-]+(?=[^\W\d_])", "", label.strip().casefold())


def _look_into(
    source: Path, found: Columns, layout: Layout, encoding: str | None, is_first: bool
) -> list[str]:
    """Refuse what cannot be read as the first table is, unless a person told its encoding, and say
    what is not read."""
    if source.is_dir():
        return []
    if encoding is None and detect_format(source) not in ("parquet", "xlsx"):
        encoding = find_encoding(source)
        plain = encoding == "utf-8" and (
            found.encoding == "cp1252" and source.read_bytes().isascii()
        )
        if encoding != found.encoding and not plain:
            raise DataError(
                f"{source} is in {encoding}, and the first file in {found.encoding}; save all in "
                "UTF-8"
            )
    names, _ = read_sample(source, 1, layout)
    told = list[str]()
    for part in found.parts[:-1] if is_first else ():
        if part not in names:
            raise DataError(f"{source} has no column '{part}'; {nearest(part, names)}")
    if not is_first and len(found.parts) < 2:
        title = next((name for name in names if name.lower() in TITLE_NAMES), None)
        if title is not None and title not in (found.text, found.pair, *found.label):
            told.append(f"{source}: '{title}' is not read, as the first file has none")
    if GUESS in names and GUESS not in (found.text, found.pair, *found.label):
        told.append(
            f"{source}: rows that --next chose are not like all texts, so their scores can be far "
            f"off; the column '{GUESS}' is not read"
        )
    return told


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
        if "method" not in record or overwrite:
            return None
        asked = {"unlabeled": "", **record.get("question", {})}
        if any_texts:
            asked["unlabeled"] = question["unlabeled"]
        if asked != question:
            raise RunError(
                f"{out} holds the fit of other rows or settings; give another --out, or --overwrite"
            )
        judged = [Judged(**fields) for fields in record["judged"]]
        names = ("method", "metric", "reason", "notes", "options")
        return Fit(out, judged=judged, **{name: record[name] for name in names})
    if out.exists() and (not out.is_dir() or any(item.name != LOCK for item in out.iterdir())):
        raise RunError(f"{out} is there and holds no fit; give another --out")
    return None


def _begin(out: Path, question: Mapping[str, Any], overwrite: bool) -> None:
    """Record the question, and delete what answered another one."""
    file = out / FIT
    asked = read_json(file, RunError).get("question", {}) if file.is_file() else {}
    # What a method answered is worth as much to a run with more time.
    asked |= {name: question[name] for name in ("budget", "prefer")}
    if overwrite or asked != question:
        for name in ("model", "methods", HELD, "student"):
            shutil.rmtree(out / name, ignore_errors=True)
    (out / "methods").mkdir(exist_ok=True)
    write_json(file, {"format": 1, "question": question})


def _choose_methods(task: Task[Any], rows: int) -> list[MethodName]:
    if task.pair and rows < FEW_PAIRS:
        return ["tfidf", "frozen"]
    contrasts = task.output.exclusive and not task.pair and rows < CONTRASTIVE_ROWS
    return ["tfidf", "frozen", "contrastive" if contrasts else "finetune"]


def _learn_from_names(material: Material) -> tuple[LearnedNetwork, str]:
    """The model of what labels are called, and how sure it is."""
    start, names, texts = material.start, material.names, material.examples
    assert start is not None
    assert names is not None
    draw = np.random.default_rng(material.seed).permutation(len(texts))[:_SOME_TEXTS].tolist()
    some = [texts[place] for place in draw]
    items = material.task.encode(some, start.tokenizer, material.length, Notes())
    vectors = read_vectors(start, items, material.machine)
    head = fit_head(material.task.output, vectors[:0], (), names)
    # A name that is near all texts would win too often; half of this goes, for classes may differ
    # in how common they are.
    usual = 0.5 * vectors.sum(0) / (len(vectors) + _MANY_TEXTS)
    head = replace(head, bias=-(head.weight @ usual))
    numbers = np.stack(head.logits(vectors))
    spread = numbers.std(1).mean()
    for _ in range(_ROUNDS if len(vectors) > _MANY_TEXTS else 0):
        counts = np.bincount(numbers.argmax(1), minlength=len(names))
        if not counts.all():  # a class without a text would be forgotten
            break
        chosen, guesses = choose_guesses(numbers, _SUREST * counts)
        plain = [Item(i, (), guess) for i, guess in enumerate(guesses.tolist())]
        head = fit_head(material.task.output, vectors[chosen], plain, names)
        numbers = np.stack(head.logits(vectors))
    # Its own answers taught it, so it is no surer than the names were.
    scale = spread / max(1e-9, numbers.std(1).mean())
    head = replace(head, weight=scale * head.weight, bias=scale * head.bias)
    numbers = scale * numbers
    ordered = np.sort(numbers, 1)
    sure = float((ordered[:, -1] - ordered[:, -2] > np.log(2)).mean())
    reason = (
        "there are no labels, so what they are called answers, and no score is known; for "
        f"{sure:.0%} of the texts the first label is twice as likely as the second, or more"
    )
    return LearnedNetwork(material, start, head, material.vectors), reason


def _make_card(result: Fit, data: Path) -> str:
    chosen = result.chosen
    lines = [
        f"# A model of {data.name}",
        "",
        f"`litebert fit {data.name}` made it: {result.method}.",
    ]
    lines += ["", *(f"- {note}" for note in result.notes)]
    if chosen is not None:
        lines += [
            "",
            f"Expected {result.metric}: {chosen.score:.3f} ± {chosen.error:.3f}, of {chosen.rows} "
            "rows that it had not learned from.",
        ]
    lines += ["", f"Why this method: {result.reason}.", ""]
    return "\n".join(lines)
