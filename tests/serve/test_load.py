"""Slow: ten thousand random requests, and four times what the service can do for five minutes."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import litebert
from answer.test_predict import texts
from serve.test_served_answers import close
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
    from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

    schema = schemathesis.openapi.from_url(f"{service.url}/openapi.json")
    operations, modes = [found.ok() for found in schema.get_all_operations()], list(schemathesis.GenerationMode)
    posts = [one for one in operations if one.method == "post"]
    each, counts = -(-REQUESTS // (len(posts) * len(modes))), list[int]()
    for operation in operations:
        for mode in modes:

            @settings(max_examples=each, deadline=None, phases=[Phase.generate], database=None,
                      suppress_health_check=list(HealthCheck))  # fmt: skip
            def ask(case: Any) -> None:
                answer = case.call(base_url=service.url)
                checks = [not_a_server_error, content_type_conformance, response_schema_conformance]
                case.validate_response(answer, checks=checks)
                counts.append(answer.status_code)

            try:
                given(case=operation.as_strategy(generation_mode=mode))(ask)()
            except Unsatisfiable:
                assert operation.method == "get"  # without parameters, nothing about it can be wrong
    assert len(counts) >= REQUESTS
    assert {200, 422} <= {*counts}
    assert not {status for status in counts if status >= 500}
    assert "Traceback" not in service.log.read_text()


@pytest.fixture(scope="module")
def asked(models: Path) -> list[tuple[Any, Callable[[Any], bool]]]:
    """Texts, with what says whether an answer is right."""
    lines = texts(200, most=20)
    expected = litebert.load(models / "colours").predict(lines)
    return [
        ({"inputs": line}, lambda answer, right=right: close(answer["predictions"], [right]))
        for line, right in zip(lines, expected, strict=True)
    ]


def test_four_times_what_it_can_do(models: Path, tmp_path: Path, asked: Any) -> None:
    with serving(tmp_path, models / "x-colours", "--quiet") as service:
        alone = asyncio.run(load(service.url, "/predict", asked, None, 5, 1))
        several = asyncio.run(load(service.url, "/predict", asked, None, 10, 4))
        rate = 4 * len(several.seconds) / 10
        before = service.resident()
        tally = asyncio.run(load(service.url, "/predict", asked, rate, SECONDS, 64))
        assert (tally.wrong, tally.lost, tally.unsent) == ([], [], 0)
        assert tally.seconds
        assert tally.refused
        assert service.resident() < 1.05 * before
        assert tally.percentile(0.99) < 10 * alone.percentile(0.99)
        with service.client() as client:
            counted = client.get("/metrics").text
        answered = len(alone.seconds) + len(several.seconds) + len(tally.seconds)
        assert f'litebert_rows_total{{model="x-colours"}} {answered}' in counted  # none twice
        assert service.stop() == 0


def test_it_ends_under_load_without_losing_a_request(models: Path, tmp_path: Path, asked: Any) -> None:
    with serving(tmp_path, models / "x-colours", "--quiet", "--max-wait", 5000) as service:
        thread = threading.Timer(3, lambda: service.process.send_signal(signal.SIGTERM))
        thread.start()
        ended = time.monotonic() + 3
        tally = asyncio.run(
            load(service.url, "/predict", asked, None, 30, 32, lambda: service.process.poll() is not None)
        )
        assert time.monotonic() > ended
        assert (tally.wrong, tally.lost) == ([], [])
        assert service.process.wait(10) == 0
