"""Text in other languages goes through the same commands, from Markdown files to a trained
model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from litebert.cli import main
from litebert.config import MaskingConfig, SequenceConfig
from litebert.data.batches import Batches
from litebert.data.shards import Shards

RECIPE = """
base = "albert-tiny"
[encoder]
hidden_size = 32
embedding_size = 16
heads = 2
layers = 2
intermediate_size = 32
[train]
budget = "8 steps"
batch = "8 sequences"
depth_schedule = []
evaluate_sequences = 16
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("language", "kind"),
    [("ko", "unigram"), ("ja", "unigram"), ("zh", "unigram"), ("ko", "bpe"), ("zh", "bpe")],
)
def test_the_same_commands(
    language: str, kind: str, shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book = sorted((shared_data / "rust-book" / language).rglob("ch0*.md"))[:24]
    assert book, "the folder of real text has no book in this language"
    files = [str(path) for path in book]
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE)
    tokenizer, data, run = (str(tmp_path / name) for name in ("tokenizer", "data", "run"))

    train = ["tokenizer", "train", *files, "--kind", kind, "--vocab-size", "2500"]
    assert main([*train, "--out", tokenizer]) == 0
    words = ["prepare", *files, "--tokenizer", tokenizer, "--language", language, "--out", data]
    words += ["--split", "file", "--heldout", "0.2", "--processes", "1"]
    assert main(words) == 0
    assert main(["pretrain", str(recipe), "--shards", data, "--out", run]) == 0
    capsys.readouterr()
    assert main(["evaluate", run, "--shards", data, "--sequences", "32", "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)["scores"]
    assert 0 < scores["mlm_loss"] < 20
    assert 0 <= scores["sop_accuracy"] <= 1

    shards = Shards.open(data)
    text = shards.tokenizer.decode(shards.train.read_document(0)[0].tolist())
    assert len(text) > 20, "the text survives its tokenizer"
    _whole_words_are_never_clauses(shards)


def _whole_words_are_never_clauses(shards: Shards) -> None:
    """A masked word of a script without spaces is a piece, so no run of masks covers a clause."""
    masking = MaskingConfig(
        unit="word", span="single", replace_mask=1.0, replace_random=0.0, copies=1
    )
    batches = Batches(
        shards.train, shards.tokenizer, SequenceConfig(length=64), masking, None, 16, 0
    )
    runs: list[int] = []
    for step in range(4):
        batch = batches(step)
        masked = (batch.input_ids == shards.tokenizer.mask_id).numpy()
        edges = np.diff(np.pad(masked.astype(int), ((0, 0), (1, 1))), axis=1)
        runs += (np.argwhere(edges == -1)[:, 1] - np.argwhere(edges == 1)[:, 1]).tolist()
    assert np.mean(runs) < 3
