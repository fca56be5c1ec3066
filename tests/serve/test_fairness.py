"""One legal request, however long, delays the short ones of another client by no more than the
documented bound.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from random import Random
from typing import Any, Literal

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import litebert
from litebert.serve import steps as stepping
from litebert.serve.batching import costs_of
from litebert.serve.served import Served
from litebert.serve.steps import LongTexts, Steps, Turns
from litebert.serve.wire import Group
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.training import train_tokenizer
from serve.test_served_answers import LINES, OPENING, close, rows
from toys.answers import made
from toys.refusals import names
from toys.rows import take_rows
from toys.serving import Service, serving

LONG = "ba de fi " * 20_000
UNSPACED = "\U0001f600" * 190_000
"""A text without a space, which tokenizers read in one piece."""


@pytest.fixture(scope="module")
def bytes_tokenizer(tiny_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a byte-level BPE tokenizer."""
    folder = tmp_path_factory.mktemp("bytes") / "tokenizer"
    texts = tiny_corpus.read_text(encoding="utf-8").split("\n\n")
    train_tokenizer(texts, kind="bpe", vocab_size=400).save(folder)
    return folder


@pytest.fixture(scope="module")
def patient(
    models: Path, bytes_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """A service whose bound is far above what this machine does to a thread at times."""
    folder = tmp_path_factory.mktemp("patient")
    made(folder / "bytes", bytes_tokenizer, "sequence", 3, ("a", "b", "c"), problem="classes")
    words = (
        models / "x-colors",
        models / "x-base",
        models / "x-masks",
        folder / "bytes",
        "--max-wait-ms",
        600,
    )
    with serving(folder, *words) as service:
        yield service


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("path", "heavy", "light"),
    [
        ("/fill-mask", {"inputs": ["[MASK] " * 60] * 64, "top": 20}, {"inputs": "ba [MASK]"}),
        ("/fill-mask", {"inputs": ["[MASK] " * 28_000], "top": 1}, {"inputs": "ba [MASK]"}),
        ("/rerank", {"query": LONG, "texts": ["ba"] * 256}, {"query": "ba", "texts": ["de"]}),
        (
            "/similarity",
            {"inputs": {"source_sentence": LONG, "sentences": [f"ba {i}" for i in range(256)]}},
            {"inputs": {"source_sentence": "ba", "sentences": ["de"]}},
        ),
        ("/embed", {"inputs": [LONG[:780]] * 256}, {"inputs": "ba"}),
        ("/tokenize", {"inputs": LONG}, {"inputs": "ba"}),
        ("/predict", {"inputs": [LONG[:700]] * 256}, {"inputs": "ba"}),
        ("/predict", {"inputs": LONG}, {"inputs": "ba"}),
        ("/models/bytes/predict", {"inputs": UNSPACED}, {"inputs": "ba"}),
        ("/models/bytes/tokenize", {"inputs": UNSPACED}, {"inputs": "ba"}),
    ],
)
def test_short_requests_pass_a_long_one(
    path: str, heavy: Any, light: Any, patient: Service
) -> None:
    patience = max(event["patience_ms"] for event in patient.events("a model is ready")) / 1000
    statuses: list[int] = []
    thread = threading.Thread(
        target=lambda: statuses.append(
            httpx.post(patient.url + path, json=heavy, timeout=60).status_code
        )
    )
    with patient.client() as client:
        assert client.post(path, json=light).status_code == 200
        thread.start()
        seconds = []
        while thread.is_alive():
            begun = time.monotonic()
            assert client.post(path, json=light).status_code == 200
            seconds.append(time.monotonic() - begun)
    assert max(seconds) <= 1.5 * patience
    assert statuses[0] in (200, 413)


def test_a_turn_goes_to_short_work_after_each_step_and_back() -> None:
    turns, seen = Turns(), list[str]()
    started = threading.Event()

    def work() -> None:
        with turns.long():
            started.set()
            for number in range(6):
                seen.append(f"long {number}")
                time.sleep(0.05)
                turns.step()

    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    for number in range(3):
        with turns.short():
            seen.append(f"short {number}")
    thread.join()
    assert seen == [
        "long 0",
        "short 0",
        "long 1",
        "short 1",
        "long 2",
        "short 2",
        "long 3",
        "long 4",
        "long 5",
    ]
    assert turns.paused < 0.05


@given(st.integers(1, 30), st.integers(1, 9), st.sampled_from([1e-9, 1e-4, 1.0]))
def test_passes_in_steps_compute_the_same(count: int, width: int, seconds: float) -> None:
    ids = np.arange(count * width).reshape(count, width)
    whole, steps, ends = (
        take_rows(ids, np.zeros_like(ids), np.ones(ids.shape, bool)),
        Steps(),
        list[int](),
    )
    compute = steps.passes(lambda rows: rows.ids[:, :width].astype(np.float32) * 2)
    assert np.array_equal(compute(whole), 2 * ids)
    with steps.of(seconds, lambda: ends.append(1)):
        assert np.array_equal(compute(whole), 2 * ids)
        parts = list(steps.parts([width] * count))
    assert [place for begin, end in parts for place in range(begin, end)] == [*range(count)]
    assert 2 <= len(ends) <= 2 * count


@given(
    st.lists(st.sampled_from(["ba", "de", "  ", "\n", "fi" * 3000, "x"]), max_size=40).map(" ".join)
)
def test_parts_of_a_text_are_the_text(text: str) -> None:
    parts = list(LongTexts.parts(text))
    assert "".join(part for _, part in parts) == text
    assert all(text[begin:].startswith(part) for begin, part in parts)


SIGNS = (
    "ba",
    "defi",
    "é\u0301",
    "ﬁ①",
    "中文字",
    "İ",
    "[MASK]",
    "▁ba",
    "!",
    "'s",
    "-",
    "\U0001f600",
    "\u200b",
)
SPACES = (" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", " \u0301", "\x1c", "\ufeff", "")


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["unigram", "wordpiece", "bpe"])
def test_parts_have_the_tokens_of_the_whole(
    kind: Literal["unigram", "wordpiece", "bpe"], tiny_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stepping, "PART", 30)
    texts = tiny_corpus.read_text(encoding="utf-8").split("\n\n")
    tokenizer, random = train_tokenizer(texts, kind=kind, vocab_size=400), Random(0)
    for _ in range(500):
        text = "".join(random.choice(SIGNS) + random.choice(SPACES) for _ in range(60))
        assert LongTexts(tokenizer, nullcontext).encode(text) == tokenizer.encode([text])[0], text


@pytest.mark.thorough
def test_other_threads_run_while_a_worker_tokenizes(
    bytes_tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")  # as in a worker
    tokenizer, ticks, ended = Tokenizer.load(bytes_tokenizer), list[float](), threading.Event()

    def tick() -> None:
        while not ended.wait(0.001):
            ticks.append(time.monotonic())

    thread = threading.Thread(target=tick)
    thread.start()
    begun = time.monotonic()
    tokenizer.encode([UNSPACED * 3])
    took = time.monotonic() - begun
    ended.set()
    thread.join()
    assert max(np.diff([begun, *ticks])) < took / 2


def test_a_long_text_is_read_as_a_whole_one(tiny_tokenizer: Path, tmp_path: Path) -> None:
    tokenizer, ends = Tokenizer.load(tiny_tokenizer), list[int]()

    @contextmanager
    def aside() -> Iterator[None]:
        yield
        ends.append(1)

    read = LongTexts(tokenizer, aside)
    assert read.encode(LONG) == tokenizer.encode([LONG])[0]
    assert len(ends) > 20
    assert read.encode(LONG)
    assert len(ends) < 60, "and read once"
    short, cut = read.shorten([LONG, "ba"], 64)
    assert len(tokenizer.encode([short[0]])[0]) + cut == len(tokenizer.encode([LONG])[0])

    folder = made(tmp_path / "m", tiny_tokenizer, "sequence", 3, ("a", "b", "c"), problem="classes")
    served, model = Served(folder, OPENING), litebert.load(folder)
    (answer,) = rows(served, "predict", [LONG])
    assert answer.truncated == len(tokenizer.encode([LONG])[0]) + 2 - answer.tokens
    record = json_of(answer)
    (expected,) = model.predict([LONG])
    assert close({name: record[name] for name in expected}, expected)
    pieces = json_of(rows(served, "tokenize", [LONG])[0])[1:-1]
    ids, spans = tokenizer.encode_offsets([LONG])[0]
    assert [piece["id"] for piece in pieces] == ids.tolist()
    assert [[piece["start"], piece["stop"]] for piece in pieces] == spans.tolist()


def json_of(row: Any) -> Any:
    import json

    return json.loads(row.payload)


@pytest.mark.parametrize(
    ("kind", "classes", "labels", "task", "inputs"),
    [
        ("sequence", 3, ("a", "b", "c"), {"problem": "classes"}, LINES),
        ("tokens", 3, ("O", "B-X", "I-X"), {}, [LINES[0] * 60]),
        ("span", 2, (), {}, [[LINES[0], " ".join(LINES * 9)]]),
        ("choice", 1, (), {}, [[LINES[0], LINES[1], LINES * 5]]),
    ],
)
def test_answers_in_steps_are_the_same(
    kind: str,
    classes: int,
    labels: tuple[str, ...],
    task: Any,
    inputs: list[Any],
    tiny_tokenizer: Path,
    tmp_path: Path,
) -> None:
    served, ends = (
        Served(made(tmp_path / "m", tiny_tokenizer, kind, classes, labels, **task), OPENING),
        list[int](),
    )
    whole = rows(served, "predict", inputs)
    with served.steps.of(1e-9, lambda: ends.append(1)):
        apart = rows(served, "predict", inputs)
    assert len(ends) > 4
    assert all(close(json_of(row), json_of(other)) for row, other in zip(whole, apart, strict=True))


def test_a_list_of_too_many_tokens_is_refused(bytes_tokenizer: Path, tmp_path: Path) -> None:
    folder = made(
        tmp_path / "m", bytes_tokenizer, "sequence", 3, ("a", "b", "c"), problem="classes"
    )
    many, few = rows(Served(folder, OPENING), "tokenize", [UNSPACED, "ba de"])
    assert many.kind == "too_large"
    names(many.refusal, "760,001", "100,000")  # four for each sign, and a space before all
    assert few.tokens > 2


def test_a_long_choice_or_question_is_read_as_by_predict(
    tiny_tokenizer: Path, tmp_path: Path
) -> None:
    folder = made(tmp_path / "m", tiny_tokenizer, "choice", 1)
    served, model = Served(folder, OPENING), litebert.load(folder)
    begin, end = " ".join(LINES * 40), "gi gu ko " * 30
    assert LongTexts.is_long(begin)
    for example in (
        [LINES[0], "ba", [begin + end, "de"]],
        [LINES[0], begin + end, LINES[:2]],
        [begin, "ba", LINES[:2]],
    ):
        (answer,), (expected,) = rows(served, "predict", [example]), model.predict([example])
        record = json_of(answer)
        assert close({name: record[name] for name in expected}, expected)
    assert model.tokenizer is not None
    count = len(model.tokenizer.encode([begin])[0])
    (longer,) = rows(served, "predict", [[begin + " " + begin, "ba", LINES[:2]]])
    assert longer.truncated - answer.truncated == 2 * count, "of each row"


def test_masks_times_predictions_and_a_query_once_are_what_a_request_costs() -> None:
    few = costs_of(Group("fill-mask", (("top", 5),), ["[MASK] ___ <mask>"]))
    many = costs_of(Group("fill-mask", (("top", 100),), ["[MASK] ___ <mask>", "ba"]))
    assert many[0] - few[0] == 3 * 95
    pairs = costs_of(Group("cosine", (), [("q" * 9000, "ba")] * 3))
    assert pairs[0] - pairs[1] == 9000
    assert pairs[1] == pairs[2] < 100


@pytest.mark.thorough
def test_a_choice_costs_all_that_is_read_with_it() -> None:
    single, many, blanks = costs_of(
        Group(
            "predict",
            (),
            [["c" * 100, "q", ["a"] * count] for count in (2, 200)]
            + [["c", "_ " * 9, ["a" * 99] * 2]],
        )
    )
    assert many > 90 * single
    assert blanks > 2 * 9 * 99
    words, empty = costs_of(Group("predict", (), [["a"] * 1000, [""] * 1000]))
    assert words - empty == 1000
    assert empty > 1000
