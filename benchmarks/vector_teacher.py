"""Sentence vectors from a teacher: a small student that was not pretrained, beside the baseline and
the teacher, on STS-B.

    python benchmarks/vector_teacher.py TEACHER BENCHMARKS NOVELS OUT [--epochs 2]

TEACHER is a model of sentence vectors. BENCHMARKS has the folder glue/ (STS-B, CoLA, RTE, SST-2),
and squad/dev-v1.1.json and wikitext-2/ where you have them; NOVELS is a folder of .txt.gz files.
Their sentences, without any label or score, go to OUT/texts.txt. A tokenizer and the student learn
from them. The same command again continues. It prints a table of Spearman's correlation of cosines
with the scores of STS-B dev, times 100, and of texts a second on one engine.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from litebert import load
from litebert.text.sentences import split_sentences

STUDENT = """base = "albert-next-tiny"
objectives = ["mlm"]

[encoder]
embedding_size = 128
hidden_size = 256
layers = 2
heads = 8
intermediate_size = 512
pooler = false
"""
"""An untrained network of one block, which is applied twice."""
COLUMNS = {"STS-B": (-3, -2), "CoLA": (-1,), "RTE": (1, 2), "SST-2": (0,)}
"""The columns of text in the training files of GLUE."""
MOST_SST2 = 25_000
"""Phrases of SST-2 that are read, which are parts of each other."""
WORDS = (3, 60)
"""The fewest and the most words of a sentence that is read."""


def list_texts(benchmarks: Path, novels: Path, most: int) -> list[str]:
    """List the different sentences of all sources, the same ones each time."""
    parts = [*_read_glue(benchmarks / "glue"), _read_squad(benchmarks), _read_wikitext(benchmarks)]
    parts.append(read_novels(novels, most))
    return list(dict.fromkeys(text for part in parts for text in part))


def _read_glue(glue: Path) -> Iterator[list[str]]:
    for name, columns in COLUMNS.items():
        with open(glue / name / "train.tsv", encoding="utf-8") as file:
            rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
        width = len(rows[1])
        texts = [_clean(row[column]) for row in rows[1:] if len(row) == width for column in columns]
        random.Random(1).shuffle(texts)
        yield texts[:MOST_SST2] if name == "SST-2" else texts


def _read_squad(benchmarks: Path) -> list[str]:
    file = benchmarks / "squad" / "dev-v1.1.json"
    articles = json.loads(file.read_text(encoding="utf-8"))["data"] if file.is_file() else []
    passages = [passage for article in articles for passage in article["paragraphs"]]
    texts = [text for passage in passages for text in _split(passage["context"])]
    return texts + [_clean(row["question"]) for passage in passages for row in passage["qas"]]


def _read_wikitext(benchmarks: Path) -> list[str]:
    texts: list[str] = []
    for file in sorted((benchmarks / "wikitext-2").glob("*.txt")):
        for line in file.read_text(encoding="utf-8").splitlines():
            if not line.strip().startswith("="):
                texts += _split(re.sub(r" @(.)@ ", r"\1", line))
    return texts


def read_novels(novels: Path, most: int) -> list[str]:
    texts: list[str] = []
    for file in sorted(novels.glob("*.txt.gz")):
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            texts += [text for line in lines for text in _split(line)]
    random.Random(1).shuffle(texts)
    return texts[:most]


def _split(text: str) -> list[str]:
    sentences = map(_clean, split_sentences(text))
    return [text for text in sentences if WORDS[0] <= len(text.split()) <= WORDS[1]]


def _clean(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def run(*words: object) -> None:
    """Run a verb of litebert.

    Raises:
        SystemExit: it fails.
    """
    command = [sys.executable, "-m", "litebert", *map(str, words)]
    print("$ litebert", *map(str, words), flush=True)
    if status := subprocess.run(command, check=False).returncode:
        raise SystemExit(status)


def measure_speed(models: dict[str, str], texts: list[str], rounds: int = 5) -> dict[str, float]:
    """Measure the texts a second of each model in turns: the median of the rounds."""
    encoders = {name: load(folder).sentence_encoder for name, folder in models.items()}
    rates: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(1 + rounds):
        for name, encoder in encoders.items():
            started = time.perf_counter()
            encoder.encode(texts)
            rates[name].append(len(texts) / (time.perf_counter() - started))
    return {name: statistics.median(values[1:]) for name, values in rates.items()}


def score(folder: str, rows: list[tuple[str, str, float]]) -> float:
    """Compute Spearman's correlation of cosines with scores, times 100."""
    encoder = load(folder).vectors_by(None, True)
    first, second = (encoder.encode([row[side] for row in rows]) for side in (0, 1))  # type: ignore[misc]
    cosines = np.sum(first * second, axis=1)
    return float(100 * spearmanr(cosines, [row[2] for row in rows])[0])


def main() -> None:
    """Train the student and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    for name in ("teacher", "benchmarks", "novels", "out"):
        parser.add_argument(name, type=str if name == "teacher" else Path)
    parser.add_argument("--epochs", type=float, default=2)
    parser.add_argument("--sentences", type=int, default=60_000, help="sentences of the novels")
    options = parser.parse_args()
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    texts, words, student = out / "texts.txt", out / "tokenizer", out / "student.toml"
    if not texts.is_file():
        lines = list_texts(options.benchmarks, options.novels, options.sentences)
        texts.write_text("\n".join(lines) + "\n", encoding="utf-8")
    if not words.is_dir():
        size = ("--kind", "wordpiece", "--vocab-size", 16384)
        run("tokenizer", "train", texts, "--split", "line", *size, "--out", words)
    student.write_text(STUDENT, encoding="utf-8")
    dev = options.benchmarks / "glue" / "STS-B" / "dev.tsv"
    columns = ("sentence1", "--pair-column", "sentence2", "--label-column", "score")
    task = ("--task", "pairs", "--data", texts, "--dev", dev, "--text-column", *columns)
    settings = ("--epochs", options.epochs, "--length", 64)
    learned = ("--teacher", options.teacher, *settings, "--out", out / "run")
    run("finetune", student, "--tokenizer", words, *task, *learned)
    small = out / "int8"
    if not small.is_dir():
        run("export", out / "run", "--out", small)
    show(options.teacher, out, dev, count_lines(texts))


def count_lines(file: Path) -> int:
    """Count the lines of a file."""
    return len(file.read_text(encoding="utf-8").splitlines())


def show(teacher: str, out: Path, dev: Path, texts: int) -> None:
    """Print the table."""
    with open(dev, encoding="utf-8") as file:
        cells = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    rows = [(row["sentence1"], row["sentence2"], float(row["score"])) for row in cells]
    baseline = json.loads((out / "run" / "scores.json").read_text())["baseline"]["scores"]
    models = {"the teacher": teacher, "student": str(out / "run")}
    speeds = measure_speed(models, [row[0] for row in rows])
    weights = sum(file.stat().st_size for file in (out / "int8").glob("model.safetensors")) / 1e6
    print(f"\n{texts:,} texts; the 8-bit graph has {weights:.1f} MB\n")
    print("| vectors | Spearman | texts a second |\n|---|---|---|")
    print(f"| baseline | {100 * baseline['spearman']:.1f} | - |")
    for name, folder in {**models, "student in 8 bits": str(out / "int8")}.items():
        speed = f"{speeds[name]:,.0f}" if name in speeds else "-"
        print(f"| {name} | {score(folder, rows):.1f} | {speed} |")


if __name__ == "__main__":
    main()
