"""The sources of labeled rows: training rows and test rows of each."""

from __future__ import annotations

import csv
import gzip
import json
import random
import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import worth

from litebert.demo.tickets import write_tickets
from litebert.studies.packages import LABEL, TEXT, write_table

Row = tuple[str, ...]
"""One text or two, and the label."""
CODES = {"0": "negative", "1": "positive"}
"""What the labels of SST-2 are called."""
GLUE = {
    "sst2": ("SST-2", "sentence", "label"),
    "rte": ("RTE", "sentence1", "sentence2", "label"),
    "stsb": ("STS-B", "sentence1", "sentence2", "score"),
}
"""The folders and the columns of tasks of GLUE."""


# ------------------------------------------------------------------------------- those kept aside


def read_grammar(data: Path) -> tuple[list[Row], list[Row]]:
    """Read the sentences of CoLA, which linguists accept or not."""
    parts: tuple[list[Row], list[Row]] = [], []
    for name, part in zip(("train", "dev"), parts, strict=True):
        for line in (data / "glue" / "CoLA" / f"{name}.tsv").read_text("utf-8").splitlines():
            _, accepted, _, sentence = line.split("\t")
            part.append((sentence, ("wrong", "right")[int(accepted)]))
    return parts


def read_authors(data: Path) -> tuple[list[Row], list[Row]]:
    """Read paragraphs of novels, with the authors who have several; their last ones test."""
    novels = defaultdict[str, list[list[Row]]](list)
    for file in sorted((data / "novels-en").glob("*.txt.gz")):
        text = gzip.decompress(file.read_bytes()).decode("utf-8")
        author = file.name.partition("_")[2].partition(".")[0]
        lines = [line for line in text.splitlines() if 200 < len(line) < 800]
        novels[author].append([(line, author) for line in lines])
    several = {author: texts for author, texts in novels.items() if len(texts) > 1}
    train = [row for texts in several.values() for novel in texts[:-1] for row in novel]
    draw = random.Random(0)
    test = [row for texts in several.values() for row in draw.sample(texts[-1], 80)]
    return train, test


def read_centuries(data: Path) -> tuple[list[Row], list[Row]]:
    """Read paragraphs of inaugural addresses, with their centuries; every fourth address tests."""
    parts: tuple[list[Row], list[Row]] = [], []
    for i, file in enumerate(sorted((data / "speeches-en").glob("[12]*.txt"))):
        text = file.read_bytes().decode("utf-8", "replace")
        for paragraph in text.splitlines():
            if len(paragraph) > 100:
                parts[i % 4 == 3].append((" ".join(paragraph.split()), f"{file.name[:2]}00s"))
    return parts


def read_levels(data: Path) -> tuple[list[Row], list[Row]]:
    """Read the passages of RACE, for middle or for high school."""
    parts: tuple[list[Row], list[Row]] = [], []
    for name, part in zip(("train", "dev"), parts, strict=True):
        for level in ("middle", "high"):
            for file in sorted((data / "race" / name / level).glob("*.txt")):
                part.append(
                    (" ".join(json.loads(file.read_text("utf-8"))["article"].split()), level)
                )
    return parts


def read_names(data: Path) -> tuple[list[Row], list[Row]]:
    """Read the sentences of WNUT-17, and whether they name somebody or something."""
    parts: tuple[list[Row], list[Row]] = [], []
    for name, part in zip(("wnut17train.conll", "emerging.test.annotated"), parts, strict=True):
        for block in re.split(r"\n\s*\n", (data / "wnut17" / name).read_text("utf-8-sig")):
            rows = [line.split("\t") for line in block.splitlines() if line.strip()]
            if rows:
                plain = all(row[-1] == "O" for row in rows)
                part.append((" ".join(row[0] for row in rows), "plain" if plain else "named"))
    return parts


ASIDE = {
    "grammar": read_grammar,
    "authors": read_authors,
    "centuries": read_centuries,
    "levels": read_levels,
    "names": read_names,
}
"""Sources on which nothing of `fit` was chosen."""


def read_source(name: str, data: Path, out: Path) -> tuple[list[Row], list[Row]]:
    """Read all training rows and the test rows of a source; `out` is for files that are made."""
    if name in GLUE:
        folder, *columns = GLUE[name]
        files = (data / "glue" / folder / f"{part}.tsv" for part in ("train", "dev"))
        names = CODES if name == "sst2" else {}
        train, test = (read_glue(file, columns, names) for file in files)
    elif name == "topics":
        source = data / "squad" / "dev-v1.1.json"
        train, test = map(read_jsonl, worth.write_topics(source, out / "squad"))
    elif name == "docstrings":
        train, test = (read_csv(file, TEXT, LABEL) for file in write_table(out / "docstrings"))
    elif name == "chapters":
        rows = read_chapters(data / "rust-book" / "ko")
        train, test = [row for i, row in enumerate(rows) if i % 5], rows[::5]
    elif name == "answers":
        train, test = read_answers(data)
    elif name in ASIDE:
        train, test = ASIDE[name](data)
    else:
        write_tickets(out / "tickets")
        files = (out / "tickets" / f"{part}.csv" for part in ("train", "test"))
        train, test = (read_csv(file, "text", "team") for file in files)
    return train, test


def read_glue(path: Path, columns: Sequence[str], names: Mapping[str, str]) -> list[Row]:
    """Read columns of a file of GLUE, the label last, with what its codes are called."""
    header, *lines = path.read_text(encoding="utf-8").splitlines()
    places = [header.split("\t").index(column) for column in columns]
    rows = [[line.split("\t")[place].strip() for place in places] for line in lines]
    return [(*texts, names.get(label, label)) for *texts, label in rows]


def read_jsonl(path: Path) -> list[Row]:
    """Read rows with the fields text and label."""
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [(row["text"], row["label"]) for row in rows]


def read_csv(path: Path, text: str, label: str) -> list[Row]:
    """Read two columns of a table."""
    with open(path, encoding="utf-8", newline="") as file:
        return [(row[text], row[label]) for row in csv.DictReader(file)]


def read_chapters(folder: Path) -> list[Row]:
    """Read the Korean paragraphs of a book, with the numbers of their chapters."""
    rows = []
    for file in sorted(folder.glob("ch[0-9][0-9]-*.md")):
        for paragraph in file.read_text(encoding="utf-8").split("\n\n"):
            if sum("가" <= character <= "힣" for character in paragraph) > 20:
                rows.append((" ".join(paragraph.split()), file.name[:4]))
    return list(dict.fromkeys(rows))


def read_answers(data: Path) -> tuple[list[Row], list[Row]]:
    """Read questions of SQuAD, each with a sentence of its paragraph, and whether that answers it;
    articles are on one side (as QNLI of GLUE)."""
    articles = json.loads((data / "squad" / "dev-v1.1.json").read_text("utf-8"))["data"]
    parts: tuple[list[Row], list[Row]] = [], []
    draw = random.Random(0)
    for i, article in enumerate(articles):
        for paragraph in article["paragraphs"]:
            context = paragraph["context"]
            ends = [match.end() for match in re.finditer(r"[.!?][\"')\]]*\s+", context)]
            spans = list(zip([0, *ends], [*ends, len(context)], strict=True))
            for question in paragraph["qas"] if len(spans) > 1 else ():
                place = question["answers"][0]["answer_start"]
                right = next(span for span in spans if span[0] <= place < span[1])
                answers = draw.random() < 0.5
                span = right if answers else draw.choice([s for s in spans if s != right])
                sentence = context[span[0] : span[1]].strip()
                row = question["question"], sentence, "yes" if answers else "no"
                parts[i % 6 == 5].append(row)
    return parts
