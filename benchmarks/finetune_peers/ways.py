"""The other ways to a classifier, each run by a Python that has its libraries and not litebert.

    python benchmarks/finetune_peers/ways.py WAY CELL.json

CELL.json names the encoder's folder, the files of the rows, and the seed. The last line of the
output is a JSON object: the score of the test rows (accuracy, or Pearson's correlation of numbers),
and what the way chose.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import correlation
from typing import Any

import numpy as np

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

RATES, EPOCHS = (2e-5, 5e-5, 1e-4), (3, 10)
"""What the Trainer chooses among. A run keeps the best of its epochs."""
LENGTH, FEW_ROWS = 128, 500
"""Longest row in tokens, and rows below which the Trainer's batch is its default of 8."""
ITERATIONS = 20
"""SetFit's `num_iterations`: pairs of one label, and pairs of two, for each row."""
INVERSE_PENALTIES = (0.1, 1.0, 10.0, 100.0)
"""The values of C among which cross-validation chooses."""
NUMBER_PENALTIES = (0.1, 1.0, 10.0, 100.0, 1000.0)
"""The values of Ridge's alpha among which cross-validation chooses."""
Rows = list[dict[str, str]]
Result = dict[str, Any]


def read_rows(cell: dict[str, Any], name: str) -> Rows:
    """Read the rows of a part of a cell: train, dev, labeled (both), or test."""
    with open(cell[name], encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def list_column(rows: Rows, column: str) -> list[str]:
    """List the texts or the labels of rows."""
    return [row[column] for row in rows]


def list_texts(rows: Rows) -> list[list[str]]:
    """List the texts of rows, and in a second list those that they are compared with."""
    return [list_column(rows, column) for column in ("text", "pair") if column in rows[0]]


def compute_score(answers: Sequence[Any], rows: Rows, number: bool) -> float:
    """Compute the share of rows whose label is the answer, or Pearson's correlation of numbers."""
    pairs = list(zip(answers, list_column(rows, "label"), strict=True))
    if number:
        answered, labels = (
            [float(value) for value in column] for column in zip(*pairs, strict=True)
        )
        return correlation(answered, labels)
    return sum(str(answer) == label for answer, label in pairs) / len(rows)


# --------------------------------------------------------------------------------- scikit-learn


def fit_linear(vectors: Any, labels: list[str], number: bool) -> Any:
    """Fit a logistic regression whose penalty 4-fold cross-validation chooses, where each class has
    so many rows; of numbers, a ridge regression."""
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.model_selection import GridSearchCV

    if number:
        grid = {"alpha": list(NUMBER_PENALTIES)}
        return GridSearchCV(Ridge(), grid, cv=4).fit(vectors, list(map(float, labels)))
    if min(map(labels.count, set(labels))) < 4:
        return LogisticRegression(max_iter=2000).fit(vectors, labels)

    grid = {"C": list(INVERSE_PENALTIES)}
    return GridSearchCV(LogisticRegression(max_iter=2000), grid, cv=4).fit(vectors, labels)


def run_tfidf(cell: dict[str, Any]) -> Result:
    """Weigh words and pairs of words, and fit a linear model."""
    from scipy.sparse import hstack
    from sklearn.feature_extraction.text import TfidfVectorizer

    counter = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    counter.fit([text for texts in list_texts(read_rows(cell, "labeled")) for text in texts])

    def read(texts: list[list[str]]) -> Any:
        first, *others = map(counter.transform, texts)
        return first if not others else hstack([abs(first - others[0]), first.multiply(others[0])])

    return run_linear(cell, read)


def run_frozen(cell: dict[str, Any]) -> Result:
    """Fit a linear model on the vectors of the encoder, of two texts u, v, |u - v| and u * v."""
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(cell["model"], device="cpu")

    def read(texts: list[list[str]]) -> Any:
        u, *others = (encoder.encode(column, show_progress_bar=False) for column in texts)
        return u if not others else np.hstack([u, (v := others[0]), abs(u - v), u * v])

    return run_linear(cell, read)


def run_linear(cell: dict[str, Any], read: Callable[[list[list[str]]], Any]) -> Result:
    """Fit a linear model on what is read of the labeled rows, and score it on the test rows."""
    rows, test, number = read_rows(cell, "labeled"), read_rows(cell, "test"), cell["number"]
    if names := cell["names"]:  # there are no labels, so the name that is nearest answers
        texts, called = (
            vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
            for vectors in (read(list_texts(test)), read([names]))
        )
        answers = [names[place] for place in (texts @ called.T).argmax(1).tolist()]
        return {"score": compute_score(answers, test, number)}
    model = fit_linear(read(list_texts(rows)), list_column(rows, "label"), number)
    score = compute_score(model.predict(read(list_texts(test))), test, number)
    return {"score": score, "chosen": getattr(model, "best_params_", None)}


# --------------------------------------------------------------------------------- transformers


class TrainerRun:
    """The Trainer of `transformers` on the rows of a cell."""

    def __init__(self, cell: dict[str, Any]) -> None:
        from transformers import AutoTokenizer

        self._cell, self._number = cell, cell["number"]
        self._words = AutoTokenizer.from_pretrained(cell["model"])
        self._labels = sorted({row["label"] for row in read_rows(cell, "labeled")})

    def encode(self, rows: Rows) -> list[dict[str, Any]]:
        """Encode rows as the Trainer takes them."""
        encoded = self._words(*list_texts(rows), truncation=True, max_length=LENGTH)
        read = float if self._number else self._labels.index
        return [
            {**{name: values[i] for name, values in encoded.items()}, "labels": read(row["label"])}
            for i, row in enumerate(rows)
        ]

    def train(self, rows: Rows, dev: Rows | None, folder: str, **options: Any) -> Any:
        """Train on rows; with dev rows, keep the epoch with the best score.

        Args:
            options: further `TrainingArguments`.
        """
        from transformers import (
            AutoModelForSequenceClassification,
            DataCollatorWithPadding,
            Trainer,
            TrainingArguments,
            set_seed,
        )

        set_seed(self._cell["seed"])
        if dev is not None:
            options |= {
                "eval_strategy": "epoch",
                "load_best_model_at_end": True,
                "metric_for_best_model": "score",
            }
        arguments = TrainingArguments(
            output_dir=folder,
            seed=self._cell["seed"],
            save_strategy="no" if dev is None else "epoch",
            save_total_limit=1,
            save_only_model=True,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            **options,
        )
        network = AutoModelForSequenceClassification.from_pretrained(
            self._cell["model"], num_labels=1 if self._number else len(self._labels)
        )
        trainer = Trainer(
            model=network,
            args=arguments,
            train_dataset=self.encode(rows),
            eval_dataset=None if dev is None else self.encode(dev),
            data_collator=DataCollatorWithPadding(self._words),
            compute_metrics=self.score,
        )
        trainer.train()
        return trainer

    def score(self, predictions: Any) -> dict[str, float]:
        """Compute the score of what the Trainer predicted."""
        logits, labels = predictions.predictions, predictions.label_ids
        if self._number:
            return {"score": correlation(logits.ravel().tolist(), labels.tolist())}
        return {"score": float((logits.argmax(-1) == labels).mean())}

    def compute_score(self, trainer: Any, rows: Rows) -> float:
        """Compute the score of a trained network on rows."""
        return float(trainer.predict(self.encode(rows)).metrics["test_score"])


def run_trainer_defaults(cell: dict[str, Any]) -> Result:
    """Train with the Trainer's own defaults, on all labeled rows."""
    run = TrainerRun(cell)
    with tempfile.TemporaryDirectory() as folder:
        trainer = run.train(read_rows(cell, "labeled"), None, folder)
        return {"score": run.compute_score(trainer, read_rows(cell, "test"))}


def run_trainer(cell: dict[str, Any]) -> Result:
    """Train at each rate and for each number of epochs, and keep the best of the dev rows."""
    run, best = TrainerRun(cell), None
    rows, dev, test = (read_rows(cell, name) for name in ("train", "dev", "test"))
    batch = 8 if len(rows) < FEW_ROWS else 16
    for rate in RATES:
        for epochs in EPOCHS:
            options = {"learning_rate": rate, "num_train_epochs": epochs}
            with tempfile.TemporaryDirectory() as folder:
                trainer = run.train(rows, dev, folder, per_device_train_batch_size=batch, **options)
                metrics = trainer.evaluate()
            rank = metrics["eval_score"], -metrics["eval_loss"]
            if best is None or rank > best[0]:
                network = {
                    name: value.clone() for name, value in trainer.model.state_dict().items()
                }
                best = rank, network, {**options, "dev_score": rank[0]}
    assert best is not None
    trainer.model.load_state_dict(best[1])
    return {"score": run.compute_score(trainer, test), "chosen": best[2]}


# --------------------------------------------------------------------------------------- SetFit


def run_setfit(cell: dict[str, Any]) -> Result:
    """Train on pairs of rows with SetFit's defaults, and fit its logistic regression. It reads one
    text, so two are joined by a line break."""
    import setfit
    from datasets import Dataset

    rows, test = (
        [
            {"text": "\n".join(texts), "label": label}
            for *texts, label in zip(*list_texts(part), list_column(part, "label"), strict=True)
        ]
        for part in (read_rows(cell, "labeled"), read_rows(cell, "test"))
    )
    made = setfit.get_templated_dataset(candidate_labels=cell["names"]) if cell["names"] else None
    if made is not None:  # "This sentence is NAME", eight times each
        rows = [{**row, "label": cell["names"][row["label"]]} for row in made]
    model = setfit.SetFitModel.from_pretrained(cell["model"], device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        arguments = setfit.TrainingArguments(
            output_dir=folder,
            num_iterations=ITERATIONS,
            seed=cell["seed"],
            save_strategy="no",
            report_to="none",
        )
        setfit.Trainer(model=model, args=arguments, train_dataset=Dataset.from_list(rows)).train()
    answers = model.predict(list_column(test, "text"), use_labels=True)
    score = compute_score(list(answers), test, cell["number"])
    return {"score": score, "chosen": {"num_iterations": ITERATIONS}}


WAYS: dict[str, Callable[[dict[str, Any]], Result]] = {
    "tfidf": run_tfidf,
    "frozen": run_frozen,
    "trainer-defaults": run_trainer_defaults,
    "trainer": run_trainer,
    "setfit": run_setfit,
}
PACKAGES = ("torch", "scikit-learn", "transformers", "sentence-transformers", "setfit")
"""Packages whose versions a result names, where they are installed."""


def read_versions() -> dict[str, str]:
    """Read the versions of the packages that take part."""
    from importlib.metadata import PackageNotFoundError, version

    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def main() -> None:
    """Run a way on a cell, and print its result."""
    way, file = sys.argv[1:]
    if way != "tfidf":
        import torch

        torch.set_num_threads(1)
    result = WAYS[way](json.loads(Path(file).read_text(encoding="utf-8")))
    print(json.dumps({**result, "versions": read_versions()}))


if __name__ == "__main__":
    main()
