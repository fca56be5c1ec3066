"""Slow: ten thousand random requests, and four times what the service can do for five minutes."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import litebert
from litebert.config import EncoderConfig
from litebert.model.task_model import TaskModel
from litebert.tokenizer import Tokenizer
from serve.test_served_answers import answers, close
from toys.answers import texts
from toys.folders import save_litebert
from toys.serving import Service, load, serving

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("LITEBERT_LOAD_SECONDS", "300"))
REQUESTS = int(os.environ.get("LITEBERT_RANDOM_REQUESTS", "10000"))


def test_random_requests_never_break_it(service: Service) -> None:
    """Bodies made from the OpenAPI schema, right ones and wrong ones."""
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis.errors import Unsatisfiable
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
    )

    schema: Any = schemathesis.openapi.from_url(f"{service.url}/openapi.json")
    operations, modes = (
        [result.ok() for result in schema.get_all_operations()],
        list(schemathesis.GenerationMode),
    )
    posts = [operation for operation in operations if operation.method == "post"]
    each, counts = -(-REQUESTS // (len(posts) * len(modes))), list[int]()
    for operation in operations:
        for mode in modes:

            @settings(
                max_examples=each,
                deadline=None,
                phases=[Phase.generate],
                database=None,
                suppress_health_check=list(HealthCheck),
            )
            def ask(case: Any) -> None:
                answer = case.call(base_url=service.url)
                checks = [not_a_server_error, content_type_conformance, response_schema_conformance]
                case.validate_response(answer, checks=checks)
                counts.append(answer.status_code)

            try:
                given(case=operation.as_strategy(generation_mode=mode))(ask)()
            except Unsatisfiable:
                assert (
                    operation.method == "get"
                )  # without parameters, nothing about it can be wrong
    assert len(counts) >= REQUESTS
    assert {200, 422} <= {*counts}
    assert not {status for status in counts if status >= 500}
    assert "Traceback" not in service.log.read_text()


@pytest.fixture(scope="module")
def busy(tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of MiniLM's width and depth, which computes for longer than HTTP takes; and its
    export.
    """
    folder, words = tmp_path_factory.mktemp("busy"), Tokenizer.load(tiny_tokenizer)
    shape = EncoderConfig(
        vocab_size=words.vocab_size,
        hidden_size=384,
        layers=6,
        heads=12,
        intermediate_size=1536,
        max_positions=64,
        init_std=0.05,
    )
    task = {"kind": "sequence", "length": 64, "problem": "classes"}
    save_litebert(
        TaskModel(shape, True, 3),
        words,
        folder / "model",
        labels=("red", "green", "blue"),
        task=task,
    )
    litebert.export(folder / "model", folder / "exported", format="onnx")
    return folder


def is_answer(right: Any, answer: Any) -> bool:
    """True if the service answers a text with the prediction that the model has for it."""
    return close(answers(answer["predictions"]), [right])


def make_requests(model: Path) -> list[tuple[Any, Callable[[Any], bool]]]:
    """Texts, with what says whether an answer is right."""
    lines = texts(200, most=20)
    expected = litebert.load(model).predict(lines)
    return [
        (
            {"inputs": line},
            partial(is_answer, right),
        )
        for line, right in zip(lines, expected, strict=True)
    ]


def test_four_times_what_it_can_do(busy: Path, tmp_path: Path) -> None:
    bodies = make_requests(busy / "model")
    with serving(tmp_path, busy / "exported", "--quiet", "--max-wait-ms", 50) as service:
        alone = asyncio.run(load(service.url, "/predict", bodies, None, 10, 1))
        several = asyncio.run(load(service.url, "/predict", bodies, None, 10, 4))
        rate = 4 * len(several.seconds) / 10
        before = service.resident()
        tally = asyncio.run(load(service.url, "/predict", bodies, rate, SECONDS, 64))
        assert (tally.wrong, tally.lost, tally.unsent) == ([], [], 0)
        assert tally.seconds
        assert tally.refused
        assert service.resident() < 1.05 * before
        assert tally.percentile(0.99) < 10 * alone.percentile(0.99)
        with service.client() as client:
            counted = client.get("/metrics").text
        answered = len(alone.seconds) + len(several.seconds) + len(tally.seconds)
        assert f'litebert_rows_total{{model="exported"}} {answered}' in counted  # none twice
        assert service.stop() == 0


def test_it_ends_under_load_without_losing_a_request(models: Path, tmp_path: Path) -> None:
    bodies = make_requests(models / "colors")
    with serving(tmp_path, models / "x-colors", "--quiet", "--max-wait-ms", 5000) as service:
        thread = threading.Timer(3, lambda: service.process.send_signal(signal.SIGTERM))
        thread.start()
        ended = time.monotonic() + 3
        tally = asyncio.run(
            load(
                service.url,
                "/predict",
                bodies,
                None,
                30,
                32,
                lambda: service.process.poll() is not None,
            )
        )
        assert time.monotonic() > ended
        assert (tally.wrong, tally.lost) == ([], [])
        assert service.process.wait(10) == 0
