"""Which words decided: occlusion and integrated gradients, on networks whose answers are known."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from litebert.answer.export import export
from litebert.answer.gradients import integrate_gradients
from litebert.answer.model import Model, load
from litebert.base.errors import ConfigError
from litebert.cli import main
from litebert.config import EncoderConfig
from litebert.model.task_model import TaskModel
from litebert.tasks.outputs import log_softmax
from litebert.text.records import Notes
from litebert.tokenizer import Tokenizer
from toys.finetuning import recipe_file, write_table
from toys.folders import save_litebert
from toys.refusals import refused

Run = Callable[..., tuple[int, str, str]]
TEXTS = ["bado toto", "kumi, mimi lala", "fa"]


def save_random(folder: Path, tokenizer: Path, problem: str, labels: tuple[str, ...]) -> Model:
    """Save a network with weights of some size, and open it."""
    words = Tokenizer.load(tokenizer)
    shape = EncoderConfig(
        vocab_size=words.vocab_size,
        embedding_size=8,
        hidden_size=16,
        layers=2,
        heads=2,
        intermediate_size=32,
        max_positions=64,
        pooler=True,
    )
    model = TaskModel(shape, True, len(labels) or 1)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.4 * torch.randn(parameter.shape, generator=generator))
    task = {"kind": "sequence", "problem": problem, "length": 64, "pair": False}
    save_litebert(model, words, folder, labels=labels, task=task)
    return load(folder)


@pytest.mark.parametrize("method", ["occlusion", "gradients"])
def test_an_empty_text_has_no_words(method: Any, tiny_tokenizer: Path, tmp_path: Path) -> None:
    model = save_random(tmp_path / "model", tiny_tokenizer, "classes", ("a", "b"))
    assert model.explain(["", "kumi"], method=method)[0] == []


@pytest.mark.parametrize(
    ("problem", "labels"), [("classes", ("a", "b", "c")), ("labels", ("a", "b")), ("number", ())]
)
def test_occlusion_is_the_difference_without_a_word(
    problem: str, labels: tuple[str, ...], tiny_tokenizer: Path, tmp_path: Path
) -> None:
    model = save_random(tmp_path / "model", tiny_tokenizer, problem, labels)

    def odds(text: str, label: int) -> float:
        task, predictor = model.predictor.task, model.predictor
        item = task.encode([task.example(text, "0")], predictor.tokenizer, 64, Notes())
        (logits,), _ = predictor.logits(item)
        values = logits.astype(np.float64)
        if problem != "classes":
            return float(values[label])
        likely = np.exp(log_softmax(values))[label]
        return float(np.log(likely / (1 - likely)))

    text = "kumi, mimi lala"
    (words,) = model.explain([text])
    assert [text[word.start : word.end] for word in words] == [word.word for word in words]
    assert "".join(word.word for word in words) == text.replace(" ", "")
    whole = model.predictor.task.encode(
        [model.predictor.task.example(text, "0")], model.predictor.tokenizer, 64, Notes()
    )
    label = int(model.predictor.logits(whole)[0][0].argmax())
    without = odds(text.replace(" mimi", ""), label)
    mimi = next(word for word in words if word.word == "mimi")
    assert mimi.weight == pytest.approx(odds(text, label) - without, abs=1e-3)


@pytest.mark.parametrize("problem", ["classes", "number"])
def test_gradients_add_up_to_the_difference_from_masks(
    problem: str, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    labels = ("a", "b", "c") if problem == "classes" else ()
    model = save_random(tmp_path / "model", tiny_tokenizer, problem, labels)
    predictor, network = model.predictor, model.model.eval()
    assert isinstance(network, TaskModel)
    words = predictor.tokenizer
    example = predictor.task.example("kumi, mimi lala", "0")
    (row,) = predictor.task.encode([example], words, 64, Notes())
    weights = integrate_gradients(predictor.task.output, words, row.rows[0], network)
    ids = torch.from_numpy(row.rows[0].ids.astype(np.int64))[None]
    masks = torch.where(
        torch.isin(ids, torch.tensor(words.special_ids)), ids, torch.tensor(words.mask_id)
    )
    with torch.no_grad():
        text, nothing = network(ids)[0].double(), network(masks)[0].double()
    best = int(text.argmax())

    def odds(logits: torch.Tensor) -> float:
        rest = [value for place, value in enumerate(logits) if place != best]
        return float(logits[best] - (torch.stack(rest).logsumexp(0) if rest else 0))

    assert weights.sum() == pytest.approx(odds(text) - odds(nothing), rel=0.02)
    (explained,) = model.explain(["kumi, mimi lala"], method="gradients")
    assert sum(word.weight for word in explained) == pytest.approx(weights.sum(), abs=1e-3)


def test_wrong_methods_are_one_sentence(tiny_tokenizer: Path, tmp_path: Path) -> None:
    model = save_random(tmp_path / "model", tiny_tokenizer, "classes", ("a", "b"))
    with refused(ConfigError, "explain is 'gradient'", "gradients"):
        model.explain(TEXTS, method="gradient")  # type: ignore[arg-type]
    pytest.importorskip("onnxruntime")
    export(tmp_path / "model", tmp_path / "exported", format="onnx")
    with refused(ConfigError, tmp_path / "exported", "occlusion"):
        load(tmp_path / "exported").explain(TEXTS, method="gradients")
    model = save_random(tmp_path / "tags", tiny_tokenizer, "classes", ("a", "b"))
    assert len(model.explain([])) == 0


@pytest.fixture(scope="module")
def tuned(tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose labels follow from the first word of a text."""
    folder = tmp_path_factory.mktemp("explained")
    train, dev = write_table(folder / "train.csv", 200), write_table(folder / "dev.csv", 40, 1)
    words = ["finetune", recipe_file(folder), "--task", "table", "--data", train, "--dev", dev]
    words += ["--tokenizer", tiny_tokenizer, "--out", folder / "run", "--no-baseline"]
    words += ["--epochs", 5, "--length", 32, "--train.batch", "16 sequences"]
    words += ["--train.precision", "float32", "--train.optimizer.learning-rate", 3e-3]
    assert main([str(word) for word in words]) == 0
    return folder


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["occlusion", "gradients"])
def test_the_word_that_decides_has_the_largest_weight(
    tuned: Path, method: str, run: Run, tmp_path: Path
) -> None:
    answers = tmp_path / "answers.jsonl"
    words = ("predict", tuned / "run", "--input", tuned / "dev.csv", "--out", answers)
    status, _, err = run(*map(str, words), "--explain", method)
    assert status == 0, err
    rows = [json.loads(line) for line in answers.read_text(encoding="utf-8").splitlines()]
    with open(tuned / "dev.csv", newline="", encoding="utf-8") as file:
        texts = [row["text"] for row in csv.DictReader(file)]
    first = 0
    for text, row in zip(texts, rows, strict=True):
        best = max(row["words"], key=lambda word: word["weight"])
        assert text[best["start"] : best["end"]] == best["word"]
        first += best["start"] < len(text.split()[0])
    assert first >= 0.75 * len(rows)


@pytest.mark.thorough
def test_a_cell_of_csv_names_the_largest_weights(tuned: Path, run: Run, tmp_path: Path) -> None:
    answers = tmp_path / "answers.csv"
    words = ("predict", tuned / "run", "--input", tuned / "dev.csv", "--out", answers)
    assert run(*map(str, words), "--explain", "occlusion")[0] == 0
    with open(answers, newline="", encoding="utf-8") as file:
        cells = [row["words"] for row in csv.DictReader(file)]
    assert all(1 <= len(cell.split(", ")) <= 5 for cell in cells)
    assert any("+" in cell for cell in cells)
