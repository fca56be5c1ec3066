"""Model cards: metadata that parses, nothing of the machine, and code that runs in the folder."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from litebert.change.conversion import convert
from litebert.finetuning.run import finetune
from litebert.interop.cards import make_finetuned_card
from litebert.judge.baselines import read_scores
from litebert.model.task_model import TaskModel
from toys.families import MODERN
from toys.finetuning import config, recipe_file, write_table
from toys.folders import checkpoint, save_hf, save_litebert, small_tokenizer, tiny
from toys.tasks import task_of

Output = tuple[int, str, str]
BERT: dict[str, Any] = {"sharing": "none", "embedding_size": 8, "max_positions": 64}


def front(folder: Path) -> dict[str, Any]:
    """The metadata of a folder's card, as the Hub reads it."""
    text = (folder / "README.md").read_text(encoding="utf-8")
    _, head, _ = text.split("---\n", 2)
    facts: dict[str, Any] = yaml.safe_load(head)
    assert isinstance(facts, dict)
    return facts


def run_card(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run each block of Python of a folder's card in the folder; what each prints."""
    monkeypatch.chdir(folder)
    prints = []
    for code in re.findall(
        r"```python\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), re.DOTALL
    ):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, "README.md", "exec"), {})
        prints.append(out.getvalue())
    return prints


@pytest.fixture(scope="module")
def tuned_folder(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Path) -> Path:
    """A small classifier that `transformers` has a class for."""
    folder = tmp_path_factory.mktemp("home") / "private"
    folder.mkdir()
    posts = (
        'norm = "post"\nfeedforward = "plain"\npositions = "learned"\nbias = true\nactivation '
        '= "gelu"\n'
    )
    task = task_of(
        "table", write_table(folder / "train.csv", 60), dev=write_table(folder / "dev.csv", 20, 1)
    )
    finetune(
        recipe_file(folder, posts), task, folder / "run", config(epochs=1), tokenizer=tiny_tokenizer
    )
    return folder / "run"


def test_a_fine_tuned_folder_has_a_card(
    tuned_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card, facts = (
        (tuned_folder / "model" / "README.md").read_text(encoding="utf-8"),
        front(tuned_folder / "model"),
    )
    scores = read_scores(tuned_folder / "scores.json")
    assert (facts["library_name"], facts["pipeline_tag"]) == ("litebert", "text-classification")
    (result,) = facts["model-index"][0]["results"]
    assert {metric["type"]: metric["value"] for metric in result["metrics"]} == {
        name: pytest.approx(value, abs=1e-4) for name, value in scores.items()
    }
    assert "license" not in facts
    assert "base_model" not in facts, "a recipe is no model"
    assert {"| train | train.csv | 60 |", "| dev | dev.csv | 20 |"} <= {
        line.rsplit(" ", 2)[0] for line in card.splitlines()
    }
    assert "train.optimizer.learning_rate" in card
    assert "private" not in card, "a folder of the machine"
    (answer,) = run_card(tuned_folder / "model", monkeypatch)
    assert "prediction" in answer


def test_a_converted_model_keeps_its_card(
    tuned_folder: Path, tmp_path: Path, run: Callable[..., Output], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("convert", tuned_folder, "--out", tmp_path / "hf", "--to", "hf")[0] == 0
    assert run("convert", tmp_path / "hf", "--out", tmp_path / "own", "--to", "litebert")[0] == 0
    first, second, third = (
        front(folder) for folder in (tuned_folder / "model", tmp_path / "hf", tmp_path / "own")
    )
    assert second == {**first, "library_name": "transformers"}
    assert third == first
    cards = [
        (folder / "README.md").read_text(encoding="utf-8")
        for folder in (tuned_folder / "model", tmp_path / "own")
    ]
    assert cards[0].split("##")[1:5] == cards[1].split("##")[1:5]
    our_card, peer_card = run_card(tmp_path / "hf", monkeypatch)
    assert "prediction" in our_card
    assert "logits" in peer_card
    assert "prediction" in run_card(tmp_path / "own", monkeypatch)[0]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "kind", ["sequence", "tokens", "span", "choice", "mlm", "backbone", "unpooled", "modernbert"]
)
def test_the_code_of_a_card_runs(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = small_tokenizer()
    if kind in ("mlm", "backbone"):
        checkpoint(tmp_path / "run", 5, tiny(("mlm",), **BERT))
        words.save(tmp_path / "run" / "tokenizer")
    elif kind == "modernbert":
        save_litebert(tiny(("mlm",), max_positions=64, **MODERN), words, tmp_path / "run")
    elif kind == "unpooled":
        save_litebert(tiny(("mlm",), pooler=False, **BERT), words, tmp_path / "run")
    else:
        width = {"sequence": 2, "tokens": 3, "span": 2, "choice": 1}[kind]
        encoder = tiny(("mlm",), pooler=kind in ("sequence", "choice"), **BERT).encoder.config
        model = TaskModel(encoder, kind in ("sequence", "choice"), width)
        labels = (
            ("a", "b") if kind == "sequence" else ("O", "B-x", "I-x") if kind == "tokens" else ()
        )
        save_litebert(
            model, words, tmp_path / "run", task={"kind": kind, "length": 16}, labels=labels
        )
    head: Any = "backbone" if kind in ("backbone", "unpooled") else None
    convert(tmp_path / "run", tmp_path / "hf", to="hf", head=head)
    convert(tmp_path / "run", tmp_path / "own", to="litebert")
    assert len(run_card(tmp_path / "hf", monkeypatch)) == 2
    assert len(run_card(tmp_path / "own", monkeypatch)) == 1
    assert str(tmp_path) not in (tmp_path / "own" / "README.md").read_text(encoding="utf-8")


def test_a_pretraining_run_tells_its_data_and_scores(tmp_path: Path) -> None:
    run, data = tmp_path / "run", tmp_path / "my-shards"
    folder = checkpoint(run, 5, tiny())
    data.mkdir()
    settings = {"sources": [str(tmp_path / "novels"), "hf:some/set"], "language": "sw"}
    (data / "index.json").write_text(json.dumps({"settings": settings}))
    (run / "run.json").write_text(json.dumps({"steps": 5, "data": str(data)}))
    (run / "metrics.jsonl").write_text('{"step": 5, "kind": "heldout", "mlm_accuracy": 0.25}\n{"st')
    (folder / "state.json").write_text("{}")
    convert(run, tmp_path / "hf", to="hf")
    card, facts = (
        (tmp_path / "hf" / "README.md").read_text(encoding="utf-8"),
        front(tmp_path / "hf"),
    )
    assert (facts["datasets"], facts["language"]) == (["some/set"], "sw")
    assert facts["pipeline_tag"] == "fill-mask"
    assert "| mlm_accuracy | 0.25 |" in card
    assert str(tmp_path) not in card


def test_the_card_of_a_stranger_stays(tmp_path: Path) -> None:
    save_hf(tiny(("mlm",), **BERT), None, tmp_path / "hf")
    (tmp_path / "hf" / "README.md").write_text(
        "---\nlicense: mit\nlibrary_name: other\n---\n# Theirs\nWords.\n"
    )
    convert(tmp_path / "hf", tmp_path / "own", to="litebert")
    assert front(tmp_path / "own") == {
        "license": "mit",
        "library_name": "litebert",
        "pipeline_tag": "fill-mask",
    }
    assert "# Theirs\nWords.\n" in (tmp_path / "own" / "README.md").read_text()


def test_names_that_yaml_does_not_take(tmp_path: Path) -> None:
    names = ['a: "b" # \x85\x7f\ud800\u2028😀.csv', "- yes"]
    identity = {
        "task": "table",
        "model": "/home/me/secret/base: x",
        "metric": "accuracy",
        "files": {"train": names},
        "config": {"length": 32, "epochs": 2.0, "steps": 0, "dropout": -1.0, "layer_decay": 1.0}
        | {"train": {"precision": "auto", "seed": 0}},
    }
    scores = {"accuracy": 0.00001, "matthews": float("nan")}
    card = make_finetuned_card(
        "sequence", identity, {"train": (4, 9), "dev": (2, 9)}, scores, ["dev"]
    )
    (tmp_path / "README.md").write_text(card, encoding="utf-8")
    facts = front(tmp_path)
    assert not {"base_model", "datasets"} & set(facts), "the Hub takes its own names there"
    (result,) = facts["model-index"][0]["results"]
    assert result["metrics"] == [{"type": "accuracy", "value": 0.0}], (
        "rounded, and without what is no number"
    )
    settings = card.partition("## Training")[2].partition("## Scores")[0]
    assert re.findall(r"^\| ([a-z._]+) \| (.*) \|$", settings, re.MULTILINE)[1:] == [
        ("length", "32"),
        ("epochs", "2.0"),
        ("layer_decay", "1.0"),
        ("train.seed", "0"),
    ]
    assert "😀.csv" in card.partition("## Data")[2]
    assert "secret" not in (tmp_path / "README.md").read_text(encoding="utf-8")


@pytest.mark.thorough
def test_the_library_of_the_hub_is_loaded_only_when_a_card_is_written() -> None:
    """It takes longer to import than a light verb to answer."""
    program = "import litebert.finetuning.run, sys; print('huggingface_hub' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout == "False\n"
