"""`--tokenizer` of convert, fill and finetune, for model folders whose tokenizer is missing or
cannot be read.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import litebert
from litebert.base.errors import ConfigError, ModelError
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.training import train_tokenizer
from toys.finetuning import write_table
from toys.folders import save_hf, save_litebert, small_tokenizer, tiny
from toys.refusals import names, refused

Output = tuple[int, str, str]
TEXT = "a model with ___ words"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return small_tokenizer()


@pytest.fixture(scope="module")
def folders(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One model: whole/own and whole/hf; lacking/own and lacking/hf without a tokenizer; and the
    tokenizer itself.
    """
    place = tmp_path_factory.mktemp("folders")
    torch.manual_seed(0)
    model = tiny()
    for name, words in (("whole", tokenizer), ("lacking", None)):
        save_litebert(model, words, place / name / "own")
        save_hf(model, words, place / name / "hf")
    tokenizer.save(place / "tokenizer")
    return place


def guesses(run: Callable[..., Output], *words: object) -> object:
    status, out, err = run("fill-mask", *words, TEXT, "--json")
    assert status == 0, err
    return json.loads(out)


@pytest.mark.parametrize("form", ["own", "hf"])
@pytest.mark.parametrize("file", ["", "spiece.model", "tokenizer.json"])
def test_fill_reads_the_tokenizer_that_is_named(
    form: str, file: str, folders: Path, run: Callable[..., Output]
) -> None:
    expected = guesses(run, folders / "whole" / form)
    assert (
        guesses(run, folders / "lacking" / form, "--tokenizer", folders / "tokenizer" / file)
        == expected
    )


@pytest.mark.parametrize("form", ["own", "hf"])
@pytest.mark.parametrize("to", ["litebert", "hf"])
def test_convert_writes_the_tokenizer_with_the_model(
    form: str,
    to: str,
    folders: Path,
    tokenizer: Tokenizer,
    run: Callable[..., Output],
    tmp_path: Path,
) -> None:
    words = ("--to", to, "--tokenizer", folders / "tokenizer")
    assert run("convert", folders / "lacking" / form, "--out", tmp_path / "new", *words)[0] == 0
    written = litebert.load(tmp_path / "new").tokenizer
    assert written is not None
    assert written.fingerprint == tokenizer.fingerprint
    assert guesses(run, tmp_path / "new") == guesses(run, folders / "whole" / "own")


def test_a_damaged_tokenizer_is_replaced(
    folders: Path, run: Callable[..., Output], tmp_path: Path
) -> None:
    for form, inside in (("own", "tokenizer/tokenizer.json"), ("hf", "tokenizer.json")):
        copy = tmp_path / form
        shutil.copytree(folders / "whole" / form, copy)
        (copy / inside).write_text("{", encoding="utf-8")
        status, _, err = run("fill-mask", copy, TEXT)
        assert status == 2
        names(err.splitlines()[-1], copy / inside)
        actual = guesses(run, copy, "--tokenizer", folders / "tokenizer")
        assert actual == guesses(run, folders / "whole" / form)


@pytest.mark.parametrize("form", ["own", "hf"])
def test_another_tokenizer_than_that_of_the_folder_is_refused(
    form: str, folders: Path, run: Callable[..., Output], tmp_path: Path
) -> None:
    other = small_tokenizer(38)
    other.save(tmp_path / "other")
    source = folders / "whole" / form
    for words in (
        ("fill-mask", source, TEXT),
        ("convert", source, "--out", tmp_path / "new", "--to", "hf"),
    ):
        status, _, err = run(*words, "--tokenizer", tmp_path / "other")
        assert status == 2
        names(err.splitlines()[-1], tmp_path / "other", source)
    assert not (tmp_path / "new").exists()
    with refused(ConfigError, tmp_path / "other", source):
        litebert.load(source, tokenizer=tmp_path / "other")


@pytest.mark.parametrize(
    ("rows", "tokens", "fits"), [(40, 45, False), (400, 45, False), (170, 45, True)]
)
def test_the_vocabulary_must_fit_the_table(
    rows: int, tokens: int, fits: bool, tmp_path: Path
) -> None:
    texts = [" ".join(f"{a}{b}{c}" for a in "bdfg" for b in "aeiou" for c in "lmnrst")] * 20
    train_tokenizer(texts, kind="unigram", vocab_size=tokens).save(tmp_path / "tokenizer")
    save_litebert(tiny(vocab_size=rows), None, tmp_path / "model")
    if fits:
        assert (
            litebert.load(tmp_path / "model", tokenizer=tmp_path / "tokenizer").tokenizer
            is not None
        )
        return
    with refused(ModelError, tmp_path / "model", rows, tokens):
        litebert.load(tmp_path / "model", tokenizer=tmp_path / "tokenizer")


@pytest.mark.thorough
@pytest.mark.parametrize("option", [("--layers", 1), ("--intermediate-size", 8)])
def test_convert_scores_and_measures_with_the_tokenizer_that_is_named(
    option: tuple[object, ...],
    folders: Path,
    tokenizer: Tokenizer,
    run: Callable[..., Output],
    tmp_path: Path,
) -> None:
    text = "\n\n".join(
        "A model with words. Some words that repeat often. Reading a folder." for _ in range(40)
    )
    (tmp_path / "text.txt").write_text(text + "\n\n" + text.upper(), encoding="utf-8")
    words: tuple[object, ...] = ("--out", tmp_path / "data", "--split", "line", "--heldout", 0.5)
    assert (
        run("prepare", tmp_path / "text.txt", "--tokenizer", folders / "tokenizer", *words)[0] == 0
    )
    tables = []
    for name, more in (("whole", ()), ("lacking", ("--tokenizer", folders / "tokenizer"))):
        words = (
            "resize",
            folders / name / "own",
            "--out",
            tmp_path / name,
            *option,
            "--shards",
            tmp_path / "data",
            *more,
        )
        status, out, err = run(*words)
        assert status == 0, err
        tables.append(out.partition("held-out")[2])
    assert tables[0] == tables[1] != ""
    words = (
        "resize",
        folders / "lacking" / "own",
        "--out",
        tmp_path / "new",
        *option,
        "--shards",
        tmp_path / "data",
    )
    small_tokenizer(39).save(tmp_path / "other")
    for more in ((), ("--tokenizer", tmp_path / "other")):
        status, _, err = run(*words, *more)
        assert status == 2
        names(err.splitlines()[-1], folders / "lacking" / "own")
        assert not (tmp_path / "new").exists()


@pytest.mark.thorough
def test_rows_behind_the_tokens_are_left_out_where_text_is_scored(
    folders: Path, tokenizer: Tokenizer, run: Callable[..., Output], tmp_path: Path
) -> None:
    """Published tables have more rows than their tokenizer has tokens."""
    model = tiny(vocab_size=64)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(
                torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)) / 4
            )
    save_litebert(model, tokenizer, tmp_path / "padded")
    state = {
        name: tensor[:40] if len(tensor) == 64 else tensor
        for name, tensor in model.state_dict().items()
    }
    exact = tiny(vocab_size=40)
    exact.load_state_dict(state)
    save_litebert(exact, tokenizer, tmp_path / "exact")
    text = "\n\n".join(f"A model with some words. It repeats {i} words often." for i in range(60))
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    words: tuple[object, ...]
    words = ("--tokenizer", folders / "tokenizer", "--out", tmp_path / "data", "--heldout", 0.3)
    assert run("prepare", tmp_path / "text.txt", *words)[0] == 0
    for verb in ("evaluate", "analyze"):
        scores = []
        for name in ("padded", "exact"):
            page = () if verb == "evaluate" else ("--out", tmp_path / "page.html")
            words = (verb, tmp_path / name, "--shards", tmp_path / "data", *page)
            status, out, err = run(*words, "--json")
            assert status == 0, err
            scores.append(json.loads(out.replace("padded", "exact")))
        assert scores[0] == scores[1]
    words = ("--layers", 1, "--shards", tmp_path / "data")
    assert run("resize", tmp_path / "padded", "--out", tmp_path / "small", *words)[0] == 0


def test_finetune_starts_from_a_folder_with_a_damaged_tokenizer(
    folders: Path, run: Callable[..., Output], tmp_path: Path
) -> None:
    shutil.copytree(folders / "whole" / "own", tmp_path / "model")
    (tmp_path / "model" / "tokenizer" / "tokenizer.json").write_text("{", encoding="utf-8")
    table = write_table(tmp_path / "table.csv", 30)
    words = (
        "finetune",
        tmp_path / "model",
        "--task",
        "table",
        "--data",
        table,
        "--out",
        tmp_path / "run",
    )
    assert run(*words, "--steps", 1, "--length", 16)[0] == 2
    assert run(*words, "--steps", 1, "--length", 16, "--tokenizer", folders / "tokenizer")[0] == 0
