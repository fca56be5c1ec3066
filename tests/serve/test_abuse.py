"""Abuse that a service must stand: malformed bodies, foreign pages, slow clients, workers that die,
and its own end.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import shutil
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from litebert.serve.batching import Queue
from litebert.serve.pool import Pool
from toys.refusals import names
from toys.serving import Service, open_connection, raw, read_answer, serving, until

Run = Callable[..., tuple[int, str, str]]
SECRET = "xylophone"
"""A word in every text of this file, which no log and no error may hold."""
JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("path", "content", "status", "field"),
    [
        ("/predict", b"", (400, 422), None),
        ("/predict", b"{", (400,), None),
        ("/predict", b'{"inputs": "\xff"}', (400,), None),
        ("/predict", '{"inputs": "a"}'.encode("utf-16"), (400,), None),
        ("/predict", '{"inputs": "a"}'.encode("utf-32-be"), (400,), None),
        (
            "/predict",
            ('{"inputs": ["\u2222",' + "[]," * 400_000 + '"\u2222"]}').encode("utf-16-le"),
            (400,),
            None,
        ),
        ("/predict", b"[" * 100_000, (400,), None),
        ("/predict", b'{"inputs": ' + b"9" * 5000 + b"}", (400, 422), None),
        ("/predict", b"[]", (422,), None),
        ("/predict", b'"x"', (422,), None),
        ("/predict", b"true", (422,), None),
        ("/predict", b"7", (422,), None),
        ("/predict", b"{}", (422,), "inputs"),
        ("/predict", b'{"inputs": null}', (422,), "inputs"),
        ("/predict", b'{"inputs": []}', (422,), "inputs"),
        ("/predict", b'{"inputs": ["a", 3]}', (422,), "inputs[1]"),
        ("/predict", b'{"inputs": ["a", ["a", "b", "c"]]}', (422,), "inputs[1]"),
        ("/predict", b'{"inputs": ["a", {"words": ["a"], "text": "b"}]}', (422,), "inputs[1]"),
        ("/predict", b'{"inputs": "\\ud800"}', (422,), "inputs"),
        ("/predict", b'{"inputs": "a", "\\ud800": 1}', (422,), None),
        ("/predict", b'{"inputs": "a", "input": "b"}', (422,), "input"),
        ("/predict", b'{"inputs": "a", "truncate": NaN}', (422,), "truncate"),
        (
            "/predict",
            json.dumps({"inputs": f"{SECRET} " * 60, "truncate": False}).encode(),
            (413,),
            "inputs",
        ),
        ("/predict", json.dumps({"inputs": ["a"] * 41}).encode(), (413,), "inputs"),
        ("/predict", json.dumps({"inputs": ["a", "b" * 200_001]}).encode(), (413,), "inputs[1]"),
        ("/predict", b'{"inputs": "' + b"x" * (5 << 20) + b'"}', (413,), "body"),
        ("/predict", b'{"inputs": [' + b"1," * 1_000_000 + b"1]}", (413,), "body"),
        ("/predict", b'{"inputs": [' + b"1," * 90_000 + b"1]}", (413,), "inputs"),
        ("/predict", b'{"inputs": [[' + b"1," * 90_000 + b"1]]}", (413,), None),
        ("/predict", b'{"inputs": [' + b"[]," * 1_300_000 + b"1]}", (413,), "body"),
        ("/predict", b'{"inputs": [' + b'"",' * 1_300_000 + b"1]}", (413,), "body"),
        ("/predict", b'{"inputs": [' + b'{"a":1},' * 500_000 + b"1]}", (413,), "body"),
        ("/predict", b'{"inputs": ' + b"[" * 90_000 + b"]" * 90_000 + b"}", (400,), None),
        ("/predict", b'{"inputs": "a", "top": ' + b"9" * 5000 + b"}", (400,), None),
        (
            "/predict",
            b'{"inputs": [{' + b",".join(b'"%d": 1' % i for i in range(90_000)) + b"}]}",
            (422,),
            None,
        ),
        (
            "/embed",
            b'{"inputs": "a", ' + b",".join(b'"%d": 1' % i for i in range(90_000)) + b"}",
            (422,),
            None,
        ),
        ("/predict", b'{"inputs": "a", "top": 0}', (422,), "top"),
        ("/predict", b'{"inputs": "a", "parameters": {"top": 1}}', (422,), "parameters.top"),
        (
            "/predict",
            b'{"inputs": "a", "parameters": {"function_to_apply": "tanh"}}',
            (422,),
            "parameters.function_to_apply",
        ),
        (
            "/similarity",
            b'{"inputs": {"source_sentence": "a", "sentences": [' + b"1," * 99_999 + b"1]}}",
            (413,),
            None,
        ),
        ("/embed", b'{"inputs": []}', (422,), "inputs"),
        ("/rerank", b'{"query": "a", "texts": ["' + b"x" * 200_000 + b'"]}', (413,), "texts[0]"),
        ("/fill-mask", b'{"inputs": "[MASK]", "top": 0}', (422,), "top"),
        (
            "/fill-mask",
            json.dumps({"inputs": ["[MASK] " * 60] * 20, "top": 100}).encode(),
            (413,),
            "top",
        ),
        ("/v1/embeddings", b'{"input": [[1, 99999]]}', (422,), "input[0]"),
        ("/v1/embeddings", b'{"input": [[1, -2]]}', (422,), None),
        ("/v1/embeddings", b'{"input": [[1, true]]}', (422,), None),
        ("/v1/embeddings", b'{"input": [1, "a"]}', (422,), None),
        ("/v1/embeddings", b'{"input": [[]]}', (422,), None),
        ("/fill-mask", b'{"inputs": "[MASK]", "targets": ["ba de fi"]}', (422,), "inputs"),
        ("/fill-mask", b'{"inputs": "[MASK]", "targets": []}', (422,), "targets"),
        ("/rerank", b'{"query": "a"}', (422,), "texts"),
        ("/rerank", b'{"query": "a", "texts": ["a"], "documents": ["a"]}', (422,), "documents"),
        ("/v1/rerank", b'{"query": "a", "documents": [{"title": "a"}]}', (422,), None),
        ("/", b'{"inputs": [["a", "b", "c"]], "model": "base"}', (422,), "inputs"),
        ("/", b'{"inputs": "a", "model": "none"}', (404,), "model"),
        ("/embed", b'{"inputs": "a", "dimensions": 99}', (422,), "dimensions"),
    ],
)
def test_a_wrong_body_is_refused(
    client: httpx.Client, path: str, content: bytes, status: tuple[int, ...], field: str | None
) -> None:
    answer = client.post(path, content=content, headers=JSON)
    assert answer.status_code in status, answer.text
    error = answer.json()
    if path.startswith("/v1/"):
        error = {"error": error["error"]["message"], "field": error["error"]["param"]}
    assert SECRET not in answer.text
    assert field is None or error["field"] == field
    names(error["error"], *([field] if field else []))


def test_a_refusal_names_the_part_that_was_followed_farthest(client: httpx.Client) -> None:
    for value, *words in (
        ([-1], "input[0]", "greater than or equal to 0"),
        ([7, -1], "input[1]", "greater than or equal to 0"),
        ([1, "a"], "input[1]", "integer"),
        (["a", 3], "input[1]", "string"),
    ):
        error = client.post("/v1/embeddings", json={"input": value}).json()["error"]
        names(error["message"], *words)


def test_a_refusal_says_why_json_is_not_read(client: httpx.Client) -> None:
    for content, word in ((b"[" * 9000 + b"]" * 9000, "nested"), (b"9" * 5000, "digits")):
        answer = client.post("/predict", content=b'{"inputs": ' + content + b"}", headers=JSON)
        names(answer.json()["error"], word)


def test_what_is_no_post_of_json_is_refused(client: httpx.Client, service: Service) -> None:
    body = b'{"inputs": "a"}'
    assert client.post("/predict", content=body).status_code == 415
    assert (
        client.post("/predict", content=body, headers={"content-type": "text/plain"}).status_code
        == 415
    )
    assert client.get("/predict").status_code == 405
    assert client.delete("/info").status_code == 405
    assert client.post("/nowhere", content=body, headers=JSON).status_code == 404
    assert client.get("/models/none/info").status_code == 404
    assert client.get("/models/colors/info").status_code == 200
    packed = client.post("/predict", content=body, headers={**JSON, "content-encoding": "br"})
    assert packed.status_code == 415
    names(packed.json()["error"], "Content-Encoding")
    assert b"400" in raw(service, b"\x16\x03\x01 nonsense\r\n\r\n").splitlines()[0]


def test_a_body_in_gzip_is_read_within_the_limit(client: httpx.Client) -> None:
    body = b'{"inputs": ["a", "b"]}'
    zipped = {**JSON, "content-encoding": "GZip"}
    plain = client.post("/predict", content=body, headers=JSON).json()["predictions"]
    answer = client.post("/predict", content=gzip.compress(body), headers=zipped)
    assert answer.json()["predictions"] == plain
    limit = 4 << 20
    bomb = gzip.compress(b'{"inputs": "a"}' + b" " * 500_000_000)
    assert len(bomb) < limit
    for content, status in (
        (bomb, 413),
        (gzip.compress(os.urandom(limit)), 413),
        (gzip.compress(body)[:-9], 400),
        (gzip.compress(body) * 2, 400),
        (body, 400),
        (b"", 422),
    ):
        refused = client.post("/predict", content=content, headers=zipped)
        assert refused.status_code == status, refused.text
    assert client.post("/predict", content=gzip.compress(b"[]"), headers=zipped).status_code == 422


def test_a_path_may_have_more_slashes(client: httpx.Client) -> None:
    for path in ("/tokenize/", "//tokenize", "/models//base/tokenize//"):
        answer = client.post(f"{client.base_url}{path}", json={"inputs": "ba"})
        assert answer.status_code == 200, path
    assert client.get("/v1/models/").json()["object"] == "list"
    wrong = client.post("/v1//embeddings/", json={"input": []}).json()
    assert wrong["error"]["param"] == "input", "in OpenAI's shape"


def test_the_refusal_of_a_large_body_reaches_clients_that_send_it_first(
    service: Service,
) -> None:
    """urllib reads nothing before all is sent, and then only if the connection still stands."""
    body = b'{"inputs": "' + b"x" * (40 << 20) + b'"}'
    chunked = {**JSON, "Transfer-Encoding": "chunked"}
    for content, headers, status in (
        (body, JSON, 413),
        (iter([body[:9], body[9:]]), chunked, 413),
        (body[: 3 << 20], {"Content-Type": "text/x"}, 415),
    ):
        asked = urllib.request.Request(f"{service.url}/predict", content, headers)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(asked)
        assert refused.value.code == status
        refused.value.close()
    with open_connection(service) as connection:  # and the connection can be used again
        head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert read_answer(connection)[0] == 413
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert read_answer(connection) == (200, b'{"status": "ok"}')


def test_a_body_never_stops_the_others(service: Service, client: httpx.Client) -> None:
    many = b'{"inputs":[' + b"[]," * 1_390_000 + b"1]}"
    nested = b'{"inputs":' + (b"[" * 900 + b"]" * 900 + b",") * 2000 + b"1}"
    worst = 0.0
    for body in (many, nested):
        with ExitStack() as ending:
            thread = threading.Thread(
                target=lambda content=body: httpx.post(
                    f"{service.url}/predict", content=content, headers=JSON
                )
            )
            thread.start()
            ending.callback(thread.join)
            while thread.is_alive():
                begun = time.monotonic()
                assert client.get("/health").status_code == 200
                worst = max(worst, time.monotonic() - begun)
    assert worst < 1, "a second is far more than the service needs, but the machine may be busy"


def test_an_error_repeats_no_more_than_a_name(client: httpx.Client) -> None:
    for path in ("/predict", "/v1/embeddings"):
        text = "inputs" if path == "/predict" else "input"
        long = client.post(path, json={text: "a", "model": "x" * 3_000_000})
        assert long.status_code == 404
        assert len(long.content) < 1000
    assert len(client.get(f"/v1/models/{'x' * 30_000}").content) < 1000


def test_a_query_counts_once(client: httpx.Client) -> None:
    assert (
        client.post("/rerank", json={"query": "ba " * 3000, "texts": ["ba"] * 40}).status_code
        == 200
    )


@pytest.mark.thorough
def test_refusals_name_their_model_in_log_and_metrics(models: Path, tmp_path: Path) -> None:
    words = [f"{name}={models / 'x-colors'}" for name in ("a", "b")]
    with serving(tmp_path, *words, "--max-wait-ms", 1) as service:
        pid = next(
            event["pids"][0]
            for event in service.events("a model is ready")
            if event["model"] == "b"
        )
        os.kill(pid, signal.SIGSTOP)
        seen: list[int] = []

        def ask() -> None:
            body = {"inputs": ["b c"] * 40, "model": "b"}
            seen.append(httpx.post(f"{service.url}/predict", json=body, timeout=60).status_code)

        threads = [threading.Thread(target=ask) for _ in range(30)]
        for thread in threads:
            thread.start()
        until(lambda: 429 in seen)
        with service.client() as other:
            assert other.post("/models/a/predict", json={"inputs": 7}).status_code == 422
            text = other.get("/metrics").text
        assert 'litebert_requests_total{route="/predict",model="b",status="429"}' in text
        assert b" 400 " in raw(service, b"nonsense\r\n\r\n").splitlines()[0]
        until(
            lambda: (
                {("b", 429), (None, 400)}
                <= {(event.get("model"), event["status"]) for event in service.events("request")}
            )
        )
        os.kill(pid, signal.SIGCONT)
        for thread in threads:
            thread.join()


def test_the_pages_load_nothing_from_elsewhere(client: httpx.Client) -> None:
    page = client.get("/docs")
    assert page.status_code == 200
    assert "http" not in page.text.replace("/predict", "")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    schema = client.get("/openapi.json").json()
    assert {"/predict", "/embed", "/fill-mask", "/tokenize", "/rerank", "/v1/embeddings"} <= schema[
        "paths"
    ].keys()


def test_metrics_count_and_logs_hold_no_texts(client: httpx.Client, service: Service) -> None:
    client.post("/predict", json={"inputs": [f"{SECRET} a", "b"]})
    client.get(f"/{SECRET}", params={"q": SECRET})
    client.post("/predict", json={"inputs": "a", "model": SECRET})
    text = client.get("/metrics").text
    assert 'litebert_requests_total{route="/predict",model="colors",status="200"}' in text
    assert 'litebert_workers{model="colors"} 1' in text
    for line in text.splitlines():
        assert line.startswith("# ") or float(line.rpartition(" ")[2]) >= 0
    until(
        lambda: service.events("request")[-1]["route"] == "/metrics"
    )  # logged when the answer has been sent
    assert service.events("request")[-1]["status"] == 200
    assert SECRET not in service.log.read_text() + text


def test_alerts_and_the_page_name_what_is_exposed(client: httpx.Client) -> None:
    """Every metric and label of examples/alerts.yaml; Prometheus adds some labels itself."""
    client.post("/predict", json={"inputs": "a"})
    text = client.get("/metrics").text
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.M))
    exposed = {
        f"{name}{suffix}"
        for name, kind in kinds.items()
        for suffix in (("_bucket", "_sum", "_count") if kind == "histogram" else ("",))
    }
    labels = {"instance", "job", *re.findall(r"[{,](\w+)=", text)}
    root = Path(__file__).resolve().parents[2]
    page = (root / "docs" / "reference" / "http.md").read_text(encoding="utf-8")
    described = {part.removesuffix("_bucket") for part in re.findall(r"\blitebert_[a-z_]+", page)}
    assert described == kinds.keys()
    alerts = (root / "examples" / "alerts.yaml").read_text(encoding="utf-8")
    (group,) = yaml.safe_load(alerts)["groups"]
    assert len(group["rules"]) == 6
    for rule in group["rules"]:
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
        named = set(re.findall(r"litebert_\w+", rule["expr"]))
        assert named or 'up{job="litebert"}' in rule["expr"]
        assert named <= exposed
        chosen = re.findall(r"(\w+)(?:=~|!~|=)\"", rule["expr"])
        grouped = ",".join(re.findall(r"by \(([^)]*)\)", rule["expr"]))
        shown = re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])
        assert {*chosen, *re.findall(r"\w+", grouped), *shown} <= labels


def test_a_client_that_goes_leaves_the_queue(service: Service, client: httpx.Client) -> None:
    with pytest.raises(httpx.ReadTimeout):
        client.post(
            "/predict", json={"inputs": [f"{SECRET} a b c d e f g" * 40] * 40}, timeout=0.001
        )
    deadline = time.monotonic() + 10
    while 'litebert_queue_rows{model="colors"} 0' not in (text := client.get("/metrics").text):
        assert time.monotonic() < deadline, text
    assert client.post("/predict", json={"inputs": "a"}).status_code == 200


def waiting(service: Service, model: str) -> int:
    """Inputs of all requests to a model that no worker has been given."""
    with service.client() as client:
        match = re.search(
            rf'litebert_queue_rows{{model="{model}"}} (\d+)', client.get("/metrics").text
        )
    assert match
    return int(match[1])


def ask(service: Service, inputs: list[str], seen: list[tuple[int, Any]]) -> None:
    """Add the status and the body of an answer to those that were seen."""
    with service.client() as client:
        answer = client.post("/predict", json={"inputs": inputs})
        seen.append((answer.status_code, answer.json()))


def asking(service: Service, pid: int, seen: list[tuple[int, Any]]) -> threading.Thread:
    """A client whose request waits: the only worker has been given a part of it, and is stopped
    until it may go on.
    """

    os.kill(pid, signal.SIGSTOP)
    thread = threading.Thread(target=ask, args=(service, ["b c d e f " * 4] * 4000, seen))
    thread.start()
    until(lambda: 0 < waiting(service, "x-colors") < 4000)
    return thread


@pytest.mark.thorough
def test_a_worker_that_dies_is_replaced_and_the_end_loses_nothing(
    models: Path, tmp_path: Path
) -> None:
    with serving(
        tmp_path, models / "x-colors", "--max-rows", 4000, "--max-wait-ms", 20000
    ) as service:
        (pid,) = service.events("a model is ready")[0]["pids"]
        seen: list[tuple[int, Any]] = []
        thread = asking(service, pid, seen)
        os.kill(pid, signal.SIGKILL)
        thread.join()
        assert seen[0][0] == 503
        assert seen[0][1]["error_type"] == "unavailable"
        with service.client() as client:
            assert client.post("/predict", json={"inputs": "a"}).status_code == 200
            assert client.get("/health").json() == {"status": "ok"}
        assert service.events("a worker died")
        (replaced,) = service.events("a worker was replaced")

        thread = asking(service, replaced["pid"], seen)
        os.kill(replaced["pid"], signal.SIGCONT)
        assert service.stop() == 0
        thread.join()
        assert seen[1][0] == 200
        assert len(seen[1][1]["predictions"]) == 4000
        assert service.events("stopped")


@pytest.mark.thorough
def test_a_second_signal_refuses_what_has_no_answer(models: Path, tmp_path: Path) -> None:
    with serving(
        tmp_path, models / "x-colors", "--max-rows", 4000, "--max-wait-ms", 20000
    ) as service:
        (pid,) = service.events("a model is ready")[0]["pids"]
        seen: list[tuple[int, Any]] = []
        first = asking(service, pid, seen)
        more = threading.Thread(target=ask, args=(service, ["b c"] * 3000, seen))
        more.start()
        until(lambda: waiting(service, "x-colors") > 4000)
        with open_connection(service) as half:
            half.sendall(
                b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            )
            half.sendall(b"Content-Length: 100\r\n\r\n{")
            service.process.send_signal(signal.SIGTERM)
            until(lambda: bool(service.events("stopping")))  # two signals at once may be one
            service.process.send_signal(signal.SIGTERM)
            # The worker stays stopped: if it went on, it could answer before the refusals.
            status, body = read_answer(half)
            first.join()
            more.join()
        assert service.process.wait(30) == 0
        for answer in (*seen, (status, json.loads(body))):
            assert (answer[0], answer[1]["error_type"]) == (503, "unavailable")
        requests = [event for event in service.events("request") if event["route"] == "/predict"]
        assert [request["status"] for request in requests] == [503] * 3


@pytest.mark.thorough
def test_an_idle_worker_that_dies_is_replaced_once_it_can_be(models: Path, tmp_path: Path) -> None:
    model = shutil.copytree(models / "x-colors", tmp_path / "model")
    with serving(tmp_path, model) as service, service.client() as client:

        def health() -> int:
            return client.get("/health").status_code

        os.kill(service.events("a model is ready")[0]["pids"][0], signal.SIGKILL)
        until(lambda: service.events("a worker was replaced"))
        assert health() == 200

        model.rename(tmp_path / "away")
        os.kill(service.events("a worker was replaced")[-1]["pid"], signal.SIGKILL)
        until(lambda: service.events("a worker cannot be replaced"))
        names(service.events("a worker cannot be replaced")[0]["reason"], str(model))
        refused = client.post("/predict", json={"inputs": "a"})
        assert (refused.status_code, health()) == (503, 503)
        assert int(refused.headers["retry-after"]) > 0
        (tmp_path / "away").rename(model)
        until(lambda: health() == 200)
        assert client.post("/predict", json={"inputs": "a"}).status_code == 200


@pytest.mark.thorough
def test_another_model_in_the_folder_is_not_served_under_the_old_name(
    models: Path, tmp_path: Path
) -> None:
    model = shutil.copytree(models / "x-colors", tmp_path / "model")
    with serving(tmp_path, model) as service, service.client() as client:
        shutil.rmtree(model)
        shutil.copytree(models / "x-masks", model)
        os.kill(service.events("a model is ready")[0]["pids"][0], signal.SIGKILL)
        until(lambda: service.events("a worker cannot be replaced"))
        names(service.events("a worker cannot be replaced")[0]["reason"], str(model))
        assert client.post("/predict", json={"inputs": "a"}).status_code == 503
        shutil.rmtree(model)
        shutil.copytree(models / "x-colors", model)
        until(lambda: client.get("/health").status_code == 200)
        assert client.post("/predict", json={"inputs": "a"}).status_code == 200


def test_a_worker_that_could_not_be_spawned_is_tried_again(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawn, failures = (
        asyncio.create_subprocess_exec,
        [OSError(24, "Too many open files"), RuntimeError("other")],
    )

    async def failing(*words: Any, **options: Any) -> Any:
        if pool.pids or not pool.info or not failures:
            return await spawn(*words, **options)
        raise failures.pop()

    async def check() -> None:
        await pool.start()
        os.kill(pool.pids[0], signal.SIGKILL)
        for _ in range(1000):
            if pool.restarts:
                break
            await asyncio.sleep(0.02)
        await pool.stop()

    monkeypatch.setattr(asyncio, "create_subprocess_exec", failing)
    opening = {
        "path": str(models / "x-colors"),
        "engine": None,
        "device": "auto",
        "exit_confidence": "auto",
        "threads": 1,
    }
    pool = Pool("colors", {**opening, "tokens": 100}, Queue(8192, 0.0, 1.0), 1, 30)
    asyncio.run(check())
    assert (failures, pool.restarts) == ([], 1)


@pytest.mark.parametrize(
    ("words", "places"),
    [
        (["none"], ["none"]),
        (["a=.", "a=./"], ["a"]),
        ([".", "--port", "70000"], ["70000"]),
        ([".", "--key-file", "nowhere"], ["nowhere"]),
        ([".", "--max-rows", "0"], ["0"]),
        ([".", "--workers", "0"], ["--workers"]),
        ([".", "--workers", "100000"], ["--workers"]),
        ([".", "--threads", "5000"], ["--threads"]),
        ([".", "--keep-alive-s", "nan"], ["--keep-alive-s"]),
        ([".", "--max-wait-ms", "0"], ["--max-wait-ms"]),
        ([".", "--root-path", "litebert"], ["--root-path"]),
        ([".", "--root-path", "/a b"], ["--root-path"]),
        ([".", "--allow-host", ""], ["--allow-host"]),
        ([".", "--allow-host", "https://x.org"], ["--allow-host", "https://x.org"]),
        ([".", "--allow-host", "x.org:80"], ["--allow-host", "x.org:80"]),
        ([".", "--allow-host", "*"], ["--allow-host"]),
        ([".", "--allow-host", "::1"], ["--allow-host", "[::1]"]),
        ([".", "--allow-origin", ""], ["--allow-origin"]),
        ([".", "--allow-origin", "https://"], ["--allow-origin"]),
        ([".", "--allow-origin", "https://example.org:443"], ["--allow-origin"]),
        ([".", "--batch-characters", "0"], ["--batch-characters"]),
        ([".", "--batch-wait-ms", "inf"], ["--batch-wait-ms"]),
        ([".", "--allow-origin", "example.org"], ["--allow-origin"]),
    ],
)
def test_a_wrong_command_is_one_sentence(words: list[str], places: list[str], run: Run) -> None:
    status, _, err = run("serve", *words)
    assert status == 2
    names(err.splitlines()[-1], *places)


def test_a_missing_package_names_the_extra(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "uvicorn", None)
    status, _, err = run("serve", "x")
    assert status == 2
    names(err, "litebert[serve]")
