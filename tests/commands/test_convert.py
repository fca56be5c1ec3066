"""`litebert convert`: which of a model's classes is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from litebert.config import Config, EncoderConfig, SequenceConfig
from litebert.model.pretrainer import Pretrainer
from toys.folders import save_litebert
from toys.refusals import names
from toys.typed import typed

Output = tuple[int, str, str]


@pytest.mark.parametrize(
    ("words", "written", "note"),
    [
        ((), "ElectraForPreTraining", "--head mlm"),
        (("--head", "mlm"), "ElectraForMaskedLM", "generator"),
        (("--head", "backbone"), "ElectraModel", "rtd"),
    ],
)
def test_convert_writes_the_head_that_is_asked_for(
    words: tuple[str, ...], written: str, note: str, run: Callable[..., Output], tmp_path: Path
) -> None:
    encoder = EncoderConfig(
        vocab_size=40,
        embedding_size=4,
        hidden_size=8,
        layers=2,
        heads=4,
        intermediate_size=16,
        max_positions=16,
        sharing="none",
        activation="gelu",
        pooler=False,
    )
    config = Config(
        name="x", encoder=encoder, sequences=SequenceConfig(length=16), objectives=("mlm", "rtd")
    )
    save_litebert(Pretrainer(config), None, tmp_path / "own")
    status, out, err = run(
        "convert", tmp_path / "own", "--out", tmp_path / "hf", "--to", "hf", "--json", *words
    )
    assert status == 0
    record = json.loads(out)
    assert (record["path"], record["to"]) == (str(tmp_path / "hf"), "hf")
    assert note in err
    assert str(tmp_path / "hf") in err
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["architectures"] == [written]
    assert f"transformers.{written}.from_pretrained" in err, "AutoModel would leave the head out"


def test_a_head_that_is_not_there_is_refused(run: Callable[..., Output], tmp_path: Path) -> None:
    encoder = EncoderConfig(
        vocab_size=40, embedding_size=4, hidden_size=8, layers=2, heads=2, max_positions=16
    )
    config = Config(
        name="x", encoder=encoder, sequences=SequenceConfig(length=16), objectives=("mlm",)
    )
    save_litebert(Pretrainer(config), None, tmp_path / "own")
    status, _, err = run(
        *typed(
            "convert {} --out {} --to hf --head discriminator", tmp_path / "own", tmp_path / "hf"
        )
    )
    assert status == 2
    names(err.strip(), "discriminator", "backbone", "mlm")
    assert not (tmp_path / "hf").exists()


def test_models_of_the_package_open_by_their_names(
    run: Callable[..., Output], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("convert", "vectors", "--to", "hf", "--out", "hf")[0] == 0
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["hidden_size"] == 256
    assert run("resize", "vectors", "--positions", "1024", "--out", "longer")[0] == 0
    recipe = json.loads((tmp_path / "longer" / "recipe.json").read_text())
    assert recipe["encoder"]["max_positions"] == 1024
