"""Tokenizers trained once for the tests of a module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from toy_prepare import Interrupted, run
from toy_tokenizers import train

from litebert.data import shards as disk
from litebert.data.journal import Journal
from litebert.data.tokenizer import Tokenizer

KINDS = ["unigram", "wordpiece", "bpe", "unigram-cased", "unigram-strip", "wordpiece-cased", "wordpiece-strip"]


@pytest.fixture(scope="module", params=KINDS)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, Path]:
    kind, _, option = request.param.partition("-")
    options = {"": {}, "cased": {"lower_case": False}, "strip": {"strip_accents": True}}[option]
    tokenizer = train(kind, **options)
    folder = tmp_path_factory.mktemp(request.param)
    tokenizer.save(folder)
    return tokenizer, folder


@pytest.fixture(scope="module")
def theirs(saved: tuple[Tokenizer, Path]) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(saved[1])


@pytest.fixture(scope="module")
def unigram() -> Tokenizer:
    return train()


@pytest.fixture(scope="module")
def wordpiece() -> Tokenizer:
    return train("wordpiece")


@pytest.fixture(scope="module")
def bpe() -> Tokenizer:
    return train("bpe")


@pytest.fixture(scope="session")
def whole(tiny_corpus: Path, tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an uninterrupted run makes of `tiny_corpus`."""
    folder = tmp_path_factory.mktemp("whole") / "data"
    run(tiny_corpus, folder, tiny_tokenizer)
    assert len(list(folder.glob("train-*.arrow"))) >= 3
    return folder


# ---- what is made --------------------------------------------------------------------------------------------------


@pytest.fixture
def unfinished(tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path) -> Path:
    """A folder with two shards done."""
    out = tmp_path / "out"
    with pytest.MonkeyPatch.context() as patch:
        add = Journal.add

        def interrupted(self: Journal, info: Any) -> None:
            add(self, info)
            if len(self.finished) == 2:
                raise Interrupted

        patch.setattr(Journal, "add", interrupted)
        with pytest.raises(Interrupted):
            run(tiny_corpus, out, tiny_tokenizer)
    assert not (out / disk.INDEX).exists()
    return out
