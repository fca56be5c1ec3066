"""Tokenizers trained once for the tests of a module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from litebert.tokenizer import Tokenizer
from toys.tokenizing import train

KINDS = [
    "unigram",
    "wordpiece",
    "bpe",
    "unigram-cased",
    "unigram-strip",
    "wordpiece-cased",
    "wordpiece-strip",
]


@pytest.fixture(scope="module", params=KINDS)
def saved_tokenizer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Tokenizer, Path]:
    kind, _, option = request.param.partition("-")
    options: dict[str, bool] = {
        "": {},
        "cased": {"lower_case": False},
        "strip": {"strip_accents": True},
    }[option]
    tokenizer = train(kind, **options)
    folder = tmp_path_factory.mktemp(request.param)
    tokenizer.save(folder)
    return tokenizer, folder


@pytest.fixture(scope="module")
def peer(saved_tokenizer: tuple[Tokenizer, Path]) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(saved_tokenizer[1])


@pytest.fixture(scope="module")
def unigram() -> Tokenizer:
    return train()


@pytest.fixture(scope="module")
def wordpiece() -> Tokenizer:
    return train("wordpiece")


@pytest.fixture(scope="module")
def bpe() -> Tokenizer:
    return train("bpe")
