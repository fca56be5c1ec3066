"""Models to serve, and one service for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import litebert
from litebert.config import Config, EncoderConfig, SequenceConfig
from litebert.model.pretrainer import Pretrainer
from litebert.tokenizer import Tokenizer
from toys.answers import made
from toys.folders import save_litebert
from toys.points import randomize
from toys.serving import Service, serving


@pytest.fixture(scope="session")
def models(tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of models: `colors`, a classifier; `base`, a pretrained model; and exports of them,
    small to start.
    """
    folder = tmp_path_factory.mktemp("models")
    made(
        folder / "colors",
        tiny_tokenizer,
        "sequence",
        3,
        ("red", "green", "blue"),
        problem="classes",
    )
    tokenizer = Tokenizer.load(tiny_tokenizer)
    encoder = EncoderConfig(
        vocab_size=tokenizer.vocab_size,
        embedding_size=8,
        hidden_size=16,
        layers=2,
        heads=2,
        intermediate_size=32,
        max_positions=64,
    )
    config = Config(
        name="base", encoder=encoder, sequences=SequenceConfig(length=64), objectives=("mlm",)
    )
    model = Pretrainer(config)
    randomize(model)
    save_litebert(model, tokenizer, folder / "base")
    litebert.export(folder / "colors", folder / "x-colors", format="onnx")
    litebert.export(folder / "base", folder / "x-masks", head="mlm", format="onnx")
    litebert.export(folder / "base", folder / "x-base", head="backbone", format="onnx")
    return folder


@pytest.fixture(scope="session")
def service(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The three exports, behind one address."""
    words = [f"{name}={models / f'x-{name}'}" for name in ("colors", "base", "masks")]
    with serving(
        tmp_path_factory.mktemp("service"), *words, "--max-rows", 40, "--max-wait-ms", 20000
    ) as running:
        yield running


@pytest.fixture(scope="session")
def client(service: Service) -> Iterator[httpx.Client]:
    """A client of it."""
    with service.client() as connection:
        yield connection
