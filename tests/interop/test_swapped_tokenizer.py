"""A tokenizer that was swapped for another one, in a run, a fine-tuned model or prepared data, is
noticed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from litebert.cli import main
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.training import train_tokenizer
from toys.finetuning import RECIPE, write_table
from toys.refusals import names

Output = tuple[int, str, str]


@pytest.fixture(scope="module")
def other_tokenizer(tiny_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A smaller tokenizer of the same text: its ids are all within the model's vocabulary."""
    folder = tmp_path_factory.mktemp("other") / "tokenizer"
    texts = tiny_corpus.read_text(encoding="utf-8").split("\n\n")
    train_tokenizer(texts, kind="unigram", vocab_size=300).save(folder)
    return folder


@pytest.fixture(scope="module")
def runs(tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a pretraining run, `pretrained`, and a fine-tuning of it, `finetuned`."""
    folder = tmp_path_factory.mktemp("runs")
    recipe = folder / "small.toml"
    train = (
        'budget = "2 steps"\nbatch = "4 sequences"\ndepth_schedule = []\nevaluate_sequences = 8\n'
    )
    recipe.write_text(f'base = "albert-tiny"\n{RECIPE}\n[train]\n{train}')
    assert (
        main(
            [
                "pretrain",
                str(recipe),
                "--shards",
                str(tiny_data),
                "--out",
                str(folder / "pretrained"),
            ]
        )
        == 0
    )
    train_file, dev_file = (
        write_table(folder / "train.csv", 32),
        write_table(folder / "dev.csv", 8, seed=1),
    )
    words = ["finetune", str(folder / "pretrained"), "--task", "table", "--data", str(train_file)]
    more = [
        "--dev",
        str(dev_file),
        "--text-column",
        "text",
        "--label-column",
        "label",
        "--epochs",
        "1",
        "--out",
        str(folder / "finetuned"),
    ]
    assert main([*words, *more]) == 0
    return folder


def swap_tokenizer(folder: Path, place: str, tokenizer: Path, tmp_path: Path) -> Path:
    """A copy of a folder whose tokenizer is another one."""
    copy = tmp_path / folder.name
    shutil.copytree(folder, copy)
    shutil.rmtree(copy / place)
    shutil.copytree(tokenizer, copy / place)
    return copy


def test_in_a_run(
    run: Callable[..., Output], runs: Path, tiny_data: Path, other_tokenizer: Path, tmp_path: Path
) -> None:
    copy = swap_tokenizer(runs / "pretrained", "tokenizer", other_tokenizer, tmp_path)
    expected_fingerprint, other_fingerprint = (
        Tokenizer.load(place).fingerprint[:12]
        for place in (runs / "pretrained/tokenizer", other_tokenizer)
    )
    table = (
        "--task",
        "table",
        "--data",
        runs / "train.csv",
        "--dev",
        runs / "dev.csv",
        "--text-column",
        "text",
    )
    for words in (
        ("evaluate", copy, "--shards", tiny_data),
        ("finetune", copy, *table, "--label-column", "label", "--out", tmp_path / "out"),
        ("convert", copy, "--out", tmp_path / "out", "--to", "hf"),
    ):
        status, _, err = run(*words)
        assert status == 2
        names(
            err.splitlines()[-1],
            copy / "tokenizer",
            copy / "run.json",
            expected_fingerprint,
            other_fingerprint,
        )
    assert not (tmp_path / "out").exists()
    assert run("evaluate", runs / "pretrained", "--shards", tiny_data)[0] == 0


def test_a_run_of_an_older_version_opens(
    run: Callable[..., Output], runs: Path, tiny_data: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(runs / "pretrained", copy)
    facts = json.loads((copy / "run.json").read_text())
    del facts["tokenizer_fingerprint"]
    (copy / "run.json").write_text(json.dumps(facts))
    assert run("evaluate", copy, "--shards", tiny_data)[0] == 0


def test_in_a_fine_tuned_model(
    run: Callable[..., Output], runs: Path, other_tokenizer: Path, tmp_path: Path
) -> None:
    copy = swap_tokenizer(runs / "finetuned", "model/tokenizer", other_tokenizer, tmp_path)
    status, _, err = run("predict", copy, "--input", runs / "dev.csv", "--text-column", "text")
    assert status == 2
    names(err.splitlines()[-1], copy / "model" / "tokenizer", copy / "finetune.json")
    assert (
        run("predict", runs / "finetuned", "--input", runs / "dev.csv", "--text-column", "text")[0]
        == 0
    )


def test_in_prepared_data(
    run: Callable[..., Output], runs: Path, tiny_data: Path, other_tokenizer: Path, tmp_path: Path
) -> None:
    copy = swap_tokenizer(tiny_data, "tokenizer", other_tokenizer, tmp_path)
    status, _, err = run(
        "pretrain", runs / "small.toml", "--shards", copy, "--out", tmp_path / "out"
    )
    assert status == 2
    names(err.splitlines()[-1], copy / "tokenizer")
