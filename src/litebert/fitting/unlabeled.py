"""Texts without labels: where they come from, and the rows of them that are worth a label.

A row is worth a label where the model is unsure of it, and it is unlike those that have one and
those that are chosen with it.

Shapes: N texts, C classes, H numbers of a vector.
"""

from __future__ import annotations

import csv
import io
import random
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert.answer.model import Model, load
from litebert.base import progress
from litebert.base.errors import DataError, suggest_path
from litebert.base.storage import atomic_write
from litebert.demo import ENCODER as PACKAGED
from litebert.demo import locate
from litebert.fitting.columns import GUESS, Columns, find_columns, find_encoding
from litebert.tasks.label_cells import is_blank
from litebert.tasks.texts import Example, hash_texts, stream_texts
from litebert.text.lines import find_suffix
from litebert.text.records import (
    IN_FOLDERS,
    Layout,
    Notes,
    RowFile,
    detect_format,
    find_parts,
    read_lines,
    read_records,
    read_sample,
)
from litebert.text.tally import format_count

MOST_TEXTS = 60_000
"""Texts that are drawn of more."""
SHORTLIST, MOST_KNOWN = 1000, 5000
"""Of how many unsure texts the rows are chosen, at least, and from how many labeled ones, at most,
they shall differ."""
_AT_ONCE, _ROUNDS = 256, 10


def read_texts(
    sources: Sequence[Path], found: Columns, told: Layout, seed: int
) -> tuple[list[Example], int]:
    """Read the texts of tables, plain text and folders, each once and in random order: all, or
    `MOST_TEXTS` drawn of them; and how many there are. A person `told` the encoding, unless it is
    UTF-8, and the delimiter.

    Raises:
        DataError: a source does not exist, or holds no texts of the form of the labeled ones.
    """
    draw, kept, seen = random.Random(seed), list[Example](), set[int]()
    with progress.task("reading texts"):
        for source in sources:
            for example in _stream(source, found, told):
                key = hash_texts(example.text, example.pair)
                if key in seen or not example.text.strip():
                    continue
                seen.add(key)
                if len(kept) < MOST_TEXTS:
                    kept.append(example)
                elif (place := draw.randrange(len(seen))) < MOST_TEXTS:
                    kept[place] = example
    if not kept:
        raise DataError(f"{', '.join(map(str, sources))} has no text that can be read; give others")
    draw.shuffle(kept)
    return kept, len(seen)


def _stream(source: Path, found: Columns, told: Layout) -> Iterator[Example]:
    if not source.exists():
        remedy = "give a table, plain text or a folder of texts"
        raise DataError(f"{source} does not exist; {suggest_path(source, remedy)}")
    if source.is_dir():
        files = [path for path in sorted(source.rglob("*")) if path.is_file()]
        files = [path for path in files if not path.name.startswith(".")]
        texts = [path for path in files if find_suffix(path) == ".txt"]
        tables = [path for path in files if find_suffix(path) in IN_FOLDERS and path not in texts]
        if not tables and not texts:
            raise DataError(f"{source} holds no table and no .txt; give other texts")
        if found.pair is not None and not tables:
            raise DataError(f"{source} holds single texts, and the model learns pairs; give tables")
        for path in tables:
            yield from _stream(path, found, told)
        for path in [] if tables else texts:  # of which each is one
            yield Example("\n".join(line for _, line in read_lines(path, Notes(), "utf-8")))
        return
    form = detect_format(source)
    if form == "text":
        if found.pair is not None:
            raise DataError(
                f"{source} holds single texts, and the model learns pairs; give a table"
            )
        layout, text, pair = Layout(encoding=_find_encoding(source, told)), found.text, None
    else:
        encoding = "utf-8" if form in ("parquet", "xlsx") else _find_encoding(source, told)
        used = told.delimiter if form in ("csv", "tsv") else None
        layout = Layout(header=found.header, encoding=encoding, delimiter=used)
        names, _ = read_sample(source, 1, layout)
        text, pair = found.text, found.pair
        if not {find_parts(text, names)[-1], *([pair] if pair else [])} <= {*names}:
            other = find_columns(source, encoding=encoding, delimiter=used, need_label=False)
            layout = Layout(header=other.header, encoding=encoding, delimiter=used)
            text, pair = other.text, other.pair
            if found.pair is not None and pair is None:
                raise DataError(
                    f"{source} has no columns '{found.text}' and '{found.pair}'; name two of its "
                    "columns so"
                )
            pair = pair if found.pair is not None else None
    for row in stream_texts(RowFile(str(source), layout), Notes(), text=text, pair=pair):
        yield row.example


def _find_encoding(source: Path, told: Layout) -> str:
    return find_encoding(source) if told.encoding == "utf-8" else told.encoding


def leave_out(texts: Sequence[Example], known: Sequence[Example]) -> list[Example]:
    """The texts that no labeled row has."""
    keys = {hash_texts(example.text, example.pair) for example in known}
    return [text for text in texts if hash_texts(text.text, text.pair) not in keys]


# ------------------------------------------------------------------------------- worth a label


def write_next(
    model: Path,
    texts: Sequence[Example],
    known: Sequence[Example],
    count: int,
    *,
    files: Sequence[Path],
    found: Columns,
    group: str | None,
    delimiter: str,
    seconds: float,
    seed: int = 0,
) -> tuple[Path, str]:
    """Write the rows that are worth a label beside the first of the labeled files, and return the
    file and what there is to say of it.

    Args:
        model: the folder of a run of `fit`.
        texts: that no labeled row has, in random order.
        known: the rows that have a label.
        group: the column of what rows belong to, which is left empty: each is alone.
        seconds: the model answers texts for so long, at most.
    """
    opened = load(model)
    answers = _answer(opened, texts, seconds)
    read = "" if len(answers) == len(texts) else f" of which {len(answers):,} were read"
    unsure = compute_unsureness(answers)
    places = choose_rows(opened, texts, unsure, known, count, seed)
    file = name_next(files, found)
    rows = [(texts[place], answers[place].get("prediction")) for place in places]
    _write(file, rows, found, group, delimiter)
    sure = float((unsure < 0.5).mean())
    said = f"{format_count(len(rows), 'row')} worth a label, of {format_count(len(texts), 'text')}"
    said += read
    if "probabilities" in answers[0]:
        said += f"; the model is sure of {sure:.0%} of the texts"
    return file, said


def _answer(model: Model, texts: Sequence[Example], seconds: float) -> list[dict[str, Any]]:
    until, answers = time.monotonic() + seconds, list[dict[str, Any]]()
    with progress.task("answering texts", total=len(texts), unit="texts") as bar:
        while len(answers) < len(texts) and (time.monotonic() < until or not answers):
            some = texts[len(answers) : len(answers) + _AT_ONCE]
            answers += model.predict(
                [example.text if example.pair is None else example[:2] for example in some]
            )
            bar.advance(len(some))
    return answers


def compute_unsureness(answers: Sequence[dict[str, Any]]) -> NDArray[np.float64]:
    """From 0, sure, to 1, (N,): what the likeliest class is above the next, or the least sure of
    several labels; 1 of numbers, which have no probability."""
    if not answers or "probabilities" not in answers[0]:
        return np.ones(len(answers))
    likely = np.array([[*answer["probabilities"].values()] for answer in answers])
    if isinstance(answers[0]["prediction"], (list, tuple)):
        unsure: NDArray[np.float64] = 1 - np.abs(2 * likely - 1).min(1)
        return unsure
    ordered = np.sort(likely, 1)
    margins: NDArray[np.float64] = 1 - (ordered[:, -1] - ordered[:, -2])
    return margins


def choose_rows(
    model: Model,
    texts: Sequence[Example],
    unsure: NDArray[np.float64],
    known: Sequence[Example],
    count: int,
    seed: int,
) -> list[int]:
    """Choose places of texts that have an unsureness: the middle of each of so many groups of the
    unsure ones (k-means, weighted by unsureness and by the distance from what has a label)."""
    top = np.argsort(-unsure, kind="stable")[: max(SHORTLIST, 20 * count)]
    encoder = model if model.can_encode else load(locate(PACKAGED))
    vectors = _read_vectors(encoder, [texts[place] for place in top.tolist()])
    weights = unsure[top] + 1e-6
    if known:
        draw = np.random.default_rng(seed)
        some = draw.permutation(len(known))[:MOST_KNOWN].tolist()
        near = (vectors @ _read_vectors(encoder, [known[place] for place in some]).T).max(1)
        weights = weights * np.clip(1 - near, 1e-6, None)
    chosen = _find_middles(vectors, weights, min(count, len(top)), seed)
    return [int(place) for place in top[chosen]]


def _read_vectors(model: Model, examples: Sequence[Example]) -> NDArray[np.float32]:
    texts = [" ".join(filter(None, example[:2])) for example in examples]
    read: NDArray[np.float32] = model.vectors_by("mean", True).encode(texts)
    return read


def _find_middles(
    vectors: NDArray[np.float32], weights: NDArray[np.float64], count: int, seed: int
) -> list[int]:
    """The place nearest to the middle of each group; from the heaviest group to the lightest."""
    draw = np.random.default_rng(seed)
    begin = [int(weights.argmax())]
    nearest = vectors @ vectors[begin[0]]
    while len(begin) < count:  # k-means++ (Arthur and Vassilvitskii 2007)
        chances = np.clip(1 - nearest, 1e-9, None) * weights
        chances[begin] = 0
        begin.append(int(draw.choice(len(vectors), p=chances / chances.sum())))
        nearest = np.maximum(nearest, vectors @ vectors[begin[-1]])
    middles = vectors[begin]
    for _ in range(_ROUNDS):
        group = (vectors @ middles.T).argmax(1)
        sums = np.zeros(middles.shape)
        np.add.at(sums, group, weights[:, None] * vectors)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        middles = np.where(lengths > 0, sums / np.maximum(lengths, 1e-12), middles)
    alike = vectors @ middles.T
    group = alike.argmax(1)
    heavy = np.bincount(group, weights, count)
    chosen = list[int]()
    for number in np.argsort(-heavy, kind="stable").tolist():
        members = np.flatnonzero(group == number)
        if len(members):
            chosen.append(int(members[alike[members, number].argmax()]))
    taken = {*chosen}
    others = (place for place in np.argsort(-weights).tolist() if place not in taken)
    return [*chosen, *(next(others) for _ in range(count - len(chosen)))]


def name_next(files: Sequence[Path], found: Columns) -> Path:
    """NAME-next.csv, or with a number where that is read now or has labels of a person."""
    first = files[0] if files[0].name.strip(".") else files[0].resolve()
    stem = strip_next(first.name if first.is_dir() else first.stem)
    number = 1
    while True:
        file = first.with_name(f"{stem}-next{'' if number == 1 else f'-{number}'}.csv")
        if not file.exists() or not (file in files or _has_labels(file, found)):
            return file
        number += 1


def strip_next(stem: str) -> str:
    """The name of the file that one of rows to label came from."""
    return re.sub(r"-next(-\d+)?$", "", stem) or stem


def _has_labels(file: Path, found: Columns) -> bool:
    columns = found.label or ("label",)
    try:
        layout = Layout(header=found.header, encoding=find_encoding(file))
        rows = read_records(file, columns, Notes(), layout=layout)
        return any(not is_blank(cell) for row in rows for cell in row.values)
    except DataError:  # of something else, which is not ours to replace
        return True


def _write(
    file: Path,
    rows: Sequence[tuple[Example, Any]],
    found: Columns,
    group: str | None,
    delimiter: str,
) -> None:
    """Write CSV with the columns that `fit` reads, as it reads the first file: in its encoding, and
    with a delimiter that was given; UTF-8 with a byte-order mark for spreadsheets."""
    labels = found.label or ("label",)
    # Where texts were joined, the last of their columns has all of it.
    *titles, text = found.parts or (found.text,)
    texts = [text, *([found.pair] if found.pair else [])]
    with io.StringIO(newline="") as opened:
        names = [*titles, *texts, *labels, *([group] if group else [])]
        if not found.header:  # columns are numbers
            width = 1 + max(map(int, names))
            names = [*map(str, range(width))]
        elif found.encoding == "utf-8":
            opened.write("\ufeff")
        writer = csv.writer(opened, lineterminator="\n", delimiter=delimiter)
        if found.header:
            writer.writerow([*names, GUESS])
        for example, guess in rows:
            cells = dict(zip(texts, example[:2], strict=False))
            shown = "; ".join(guess) if isinstance(guess, (list, tuple)) else guess
            writer.writerow([*(cells.get(name, "") for name in names), shown])
        try:
            content = opened.getvalue().encode(found.encoding)
        except UnicodeEncodeError:
            raise DataError(
                f"the rows to label cannot be written in {found.encoding}, which the first file is "
                "in; save that file in UTF-8"
            ) from None
    with atomic_write(file) as handle:
        handle.write(content)
