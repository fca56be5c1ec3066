"""Prepared folders, whole and unfinished."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from litebert.data import shards as disk
from litebert.data.building import Journal
from litebert.data.shards import Shards
from toys.prepare import Interrupted, Prepare, run


@pytest.fixture(scope="session")
def prepare(tiny_corpus: Path, tiny_tokenizer: Path) -> Prepare:
    def prepare(
        out: Path, corpus: Path = tiny_corpus, tokenizer: Path = tiny_tokenizer, **options: Any
    ) -> Shards:
        return run(corpus, out, tokenizer, **options)

    return prepare


@pytest.fixture(scope="session")
def whole(prepare: Prepare, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that an uninterrupted run makes of `tiny_corpus`."""
    folder = tmp_path_factory.mktemp("whole") / "data"
    prepare(folder)
    assert len(list(folder.glob("train-*.arrow"))) >= 3
    return folder


@pytest.fixture(scope="session")
def other_tokenizer(tiny_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from litebert.tokenizer.training import train_tokenizer

    folder, texts = tmp_path_factory.mktemp("other"), tiny_corpus.read_text().split("\n\n")
    train_tokenizer(texts, kind="unigram", vocab_size=300).save(folder / "tokenizer")
    return folder / "tokenizer"


@pytest.fixture
def unfinished_folder(tmp_path: Path, prepare: Prepare) -> Path:
    """A folder with two shards done."""
    out = tmp_path / "out"
    with pytest.MonkeyPatch.context() as patch:
        add = Journal.add

        def add_two(self: Journal, info: Any) -> None:
            add(self, info)
            if len(self.finished) == 2:
                raise Interrupted

        patch.setattr(Journal, "add", add_two)
        with pytest.raises(Interrupted):
            prepare(out)
    assert not (out / disk.INDEX).exists()
    return out
