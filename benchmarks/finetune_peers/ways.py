"""The other ways to a classifier, each run by a Python that has its libraries and not litebert.

    python benchmarks/finetune_peers/ways.py WAY CELL.json

CELL.json names the encoder's folder, the files of the rows, and the seed. The last line of the
output is a JSON object: the accuracy on the test rows, and what the way chose.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

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
Rows = list[dict[str, str]]
Result = dict[str, Any]


def read_rows(cell: dict[str, Any], name: str) -> Rows:
    """Read the rows of a part of a cell: train, dev, labeled (both), or test."""
    with open(cell[name], encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def list_column(rows: Rows, column: str) -> list[str]:
    """List the texts or the labels of rows."""
    return [row[column] for row in rows]


def compute_accuracy(answers: Sequence[Any], rows: Rows) -> float:
    """Compute the share of rows whose label is the answer."""
    pairs = zip(answers, rows, strict=True)
    return sum(str(answer) == row["label"] for answer, row in pairs) / len(rows)


# --------------------------------------------------------------------------------- scikit-learn


def fit_linear(vectors: Any, labels: list[str]) -> Any:
    """Fit a logistic regression whose penalty 4-fold cross-validation chooses, where each class has
    so many rows."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV

    if min(map(labels.count, set(labels))) < 4:
        return LogisticRegression(max_iter=2000).fit(vectors, labels)

    grid = {"C": list(INVERSE_PENALTIES)}
    return GridSearchCV(LogisticRegression(max_iter=2000), grid, cv=4).fit(vectors, labels)


def run_tfidf(cell: dict[str, Any]) -> Result:
    """Weigh words and pairs of words, and fit a logistic regression."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    rows, test = read_rows(cell, "labeled"), read_rows(cell, "test")
    counter = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    model = fit_linear(counter.fit_transform(list_column(rows, "text")), list_column(rows, "label"))
    answers = model.predict(counter.transform(list_column(test, "text")))
    return {
        "accuracy": compute_accuracy(answers, test),
        "chosen": getattr(model, "best_params_", None),
    }


def run_frozen(cell: dict[str, Any]) -> Result:
    """Fit a logistic regression on the vectors of the encoder."""
    from sentence_transformers import SentenceTransformer

    rows, test = read_rows(cell, "labeled"), read_rows(cell, "test")
    encoder = SentenceTransformer(cell["model"], device="cpu")
    vectors, test_vectors = (
        encoder.encode(list_column(part, "text"), show_progress_bar=False) for part in (rows, test)
    )
    model = fit_linear(vectors, list_column(rows, "label"))
    accuracy = compute_accuracy(model.predict(test_vectors), test)
    return {"accuracy": accuracy, "chosen": getattr(model, "best_params_", None)}


# --------------------------------------------------------------------------------- transformers


class TrainerRun:
    """The Trainer of `transformers` on the rows of a cell."""

    def __init__(self, cell: dict[str, Any]) -> None:
        from transformers import AutoTokenizer

        self._cell = cell
        self._words = AutoTokenizer.from_pretrained(cell["model"])
        self._labels = sorted({row["label"] for row in read_rows(cell, "labeled")})

    def encode(self, rows: Rows) -> list[dict[str, Any]]:
        """Encode rows as the Trainer takes them."""
        texts = list_column(rows, "text")
        encoded = self._words(texts, truncation=True, max_length=LENGTH)["input_ids"]
        return [
            {"input_ids": ids, "labels": self._labels.index(row["label"])}
            for ids, row in zip(encoded, rows, strict=True)
        ]

    def train(self, rows: Rows, dev: Rows | None, folder: str, **options: Any) -> Any:
        """Train on rows; with dev rows, keep the epoch with the most of them right.

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
                "metric_for_best_model": "accuracy",
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
            self._cell["model"], num_labels=len(self._labels)
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

    @staticmethod
    def score(predictions: Any) -> dict[str, float]:
        """Compute the accuracy of what the Trainer predicted."""
        right = predictions.predictions.argmax(-1) == predictions.label_ids
        return {"accuracy": float(right.mean())}

    def compute_accuracy(self, trainer: Any, rows: Rows) -> float:
        """Compute the accuracy of a trained network on rows."""
        return float(trainer.predict(self.encode(rows)).metrics["test_accuracy"])


def run_trainer_defaults(cell: dict[str, Any]) -> Result:
    """Train with the Trainer's own defaults, on all labeled rows."""
    run = TrainerRun(cell)
    with tempfile.TemporaryDirectory() as folder:
        trainer = run.train(read_rows(cell, "labeled"), None, folder)
        return {"accuracy": run.compute_accuracy(trainer, read_rows(cell, "test"))}


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
            rank = metrics["eval_accuracy"], -metrics["eval_loss"]
            if best is None or rank > best[0]:
                network = {
                    name: value.clone() for name, value in trainer.model.state_dict().items()
                }
                best = rank, network, {**options, "dev_accuracy": rank[0]}
    assert best is not None
    trainer.model.load_state_dict(best[1])
    return {"accuracy": run.compute_accuracy(trainer, test), "chosen": best[2]}


# --------------------------------------------------------------------------------------- SetFit


def run_setfit(cell: dict[str, Any]) -> Result:
    """Train on pairs of rows with SetFit's defaults, and fit its logistic regression."""
    import setfit
    from datasets import Dataset

    rows, test = read_rows(cell, "labeled"), read_rows(cell, "test")
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
    accuracy = compute_accuracy(list(answers), test)
    return {"accuracy": accuracy, "chosen": {"num_iterations": ITERATIONS}}


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
