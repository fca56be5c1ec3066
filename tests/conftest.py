"""Fixtures shared by all tests: made-up data, real data where it is present, no network."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import pkgutil
import random
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import pytest
from coverage import Coverage
from hypothesis import is_hypothesis_test, settings

from toys.preload import MODULES
from toys.warm_commands import start

# Before torch: on tiny tensors threads only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # for tests that import onnxruntime themselves

# In a background job, whose children would ignore Ctrl-C too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What a test proves does not depend on the speed of the machine.
settings.register_profile("litebert", deadline=None)
settings.load_profile("litebert")

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


LONG = (
    "train/test_ranks.py",
    "train/test_interruption.py",
    "abuse/test_wrong_inputs.py",
    "golden/test_golden.py",
    "tokenizer/test_offsets.py",
    "test_readme.py",
    "studies/test_quickstart.py",
    "abuse/test_environments.py",
    "finetuning/test_finetune.py",
    "train/test_pretrain.py",
    "train/test_recompute.py",
    "train/test_grow.py",
    "data/test_prepare_interruption.py",
    "model/test_loader.py",
    "test_wheel.py",
    "test_hub.py",
    "train/test_supply.py",
)
"""Files that take long, longest first. A worker takes whole files: one of these at the end would
run alone.
"""


COVERED = ("data", "model", "parity", "extension", "test_cost.py", "test_teacher.py")
"""Tests that coverage traces: the tests of the rooms that have a bound, but for properties. Tracing
makes a test half as slow again, and a property, whose hundred examples run the same lines, four
times as slow."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take long."""
    ranks = {Path(__file__).parent / name: rank for rank, name in enumerate(LONG)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))
    if Coverage.current() is None:
        return
    for room in ("data", "model"):  # traced, for which test imports a module first is chance
        path = import_module(f"litebert.{room}").__path__
        for module in pkgutil.walk_packages(path, f"litebert.{room}."):
            import_module(module.name)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Measure coverage, where it was asked for, in the tests of `COVERED` alone."""
    inside = not {item.path.relative_to(Path(__file__).parent).parts[0], item.path.name}.isdisjoint(
        COVERED
    )
    if Coverage.current() is None or (
        inside and not is_hypothesis_test(getattr(item, "function", None))
    ):
        return (yield)
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(tracer)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests marked `cuda` are skipped on a machine without a GPU."""
    if item.get_closest_marker("cuda") is not None:
        import torch

        if not torch.cuda.is_available():
            pytest.skip("this machine has no GPU that torch can use")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """A folder of real text and task files; the test is skipped where it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"the folder of real text {SHARED_DATA} is absent")
    return SHARED_DATA


@pytest.fixture(scope="session")
def tiny_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text file of 200 made-up documents, separated by blank lines; the same on every machine."""
    path = tmp_path_factory.mktemp("corpus") / "tiny.txt"
    path.write_text("\n\n".join(made_up_documents(200)) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def tiny_tokenizer(tiny_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a unigram tokenizer of 400 pieces, trained on `tiny_corpus`."""
    from litebert.tokenizer.training import train_tokenizer

    folder = tmp_path_factory.mktemp("tokenizer") / "tokenizer"
    texts = tiny_corpus.read_text(encoding="utf-8").split("\n\n")
    train_tokenizer(texts, kind="unigram", vocab_size=400).save(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_data(
    tiny_corpus: Path, tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """`tiny_corpus` as token shards, a tenth of the documents held out."""
    from litebert.data.prepare import PrepareConfig, prepare

    folder = tmp_path_factory.mktemp("data") / "data"
    prepare(
        [str(tiny_corpus)],
        folder,
        tokenizer=tiny_tokenizer,
        processes=1,
        config=PrepareConfig(heldout=0.1),
    )
    return folder


@pytest.fixture(scope="session")
def warm_litebert(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A program `litebert` for scripts, which need not wait for the import of torch at every
    command.
    """
    folder = tmp_path_factory.mktemp("warm")
    with start(folder) as process:
        yield folder / "litebert"
        process.kill()


@pytest.fixture(scope="session")
def processes() -> Any:
    """Processes that start fast because torch is loaded once, in a server that they are forked
    from.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(MODULES)
    return context


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser for pages; the test is skipped where playwright or Chromium is not installed. While
    it is open, nothing else in this thread can run an event loop."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    if program is None:
        pytest.skip("there is no Chromium on this machine")
    with playwright.sync_playwright() as tool:
        running = tool.chromium.launch(executable_path=program)
        yield running
        running.close()


@pytest.fixture
def log_messages() -> Iterator[list[str]]:
    """Messages of the library to a person during the test."""
    messages: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    logger, ear = logging.getLogger("litebert"), Ear()
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(ear)
    yield messages
    logger.removeHandler(ear)
    logger.setLevel(level)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command line in this process: its status, standard output and standard error."""
    from litebert.cli import main

    def call(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main([str(word) for word in words])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def made_up_documents(count: int, seed: int = 0, topic_words: int = 30) -> list[str]:
    """Documents of a made-up language with something to learn: each has a topic, which is a chain
    of words, and its sentences walk along the chain from where the last one stopped."""
    draw = random.Random(seed)
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    words = sorted({"".join(draw.choices(syllables, k=draw.randint(2, 4))) for _ in range(800)})
    topics = [draw.sample(words, topic_words) for _ in range(20)]
    documents = []
    for _ in range(count):
        topic, place, sentences = draw.choice(topics), 0, []
        for _ in range(draw.randint(3, 20)):
            length = draw.randint(3, 14)
            chosen = [
                topic[(place + i) % topic_words] if draw.random() < 0.9 else draw.choice(words)
                for i in range(length)
            ]
            place += length
            sentences.append(" ".join(chosen).capitalize() + ".")
        documents.append(" ".join(sentences))
    return documents


@pytest.fixture(autouse=True)
def _reports_end() -> Iterator[None]:
    """No report that a test leaves running may speak into the output of another."""

    def list_reporters() -> list[str]:
        return [
            thread.name
            for thread in threading.enumerate()
            if thread.name.startswith("progress of ")
        ]

    yield
    if list_reporters():
        gc.collect()
    assert not list_reporters()


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing needs the network: opening a connection to anything but this machine fails the
    test."""
    connect = socket.socket.connect

    def connect_locally(self: socket.socket, address: Any) -> None:
        if self.family == socket.AF_UNIX or (
            isinstance(address, tuple) and address[0] in ("127.0.0.1", "::1")
        ):
            return connect(self, address)
        _refuse(address)

    monkeypatch.setattr(socket.socket, "connect", connect_locally)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def _refuse(address: object) -> NoReturn:
    raise AssertionError(f"a test tried to reach {address}; tests run without the network")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """Escape what a test logs of names that are not UTF-8: processes of xdist send UTF-8 alone."""
    report = yield
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections
    ]
    return report
