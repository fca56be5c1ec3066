"""The servers: how each is started on the same weights, what it is asked, and what its processes
take.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Literal

import litebert

HERE = Path(__file__).parent
STARTING = 180.0
"""Seconds in which a server must answer."""
PATIENT = ("--max-wait-ms", "10000")
"""No peer refuses a request, so litebert shall not either: these clients wait for their answers."""
Task = Literal["vectors", "classes"]
INFINITY = "from infinity_emb.cli import cli; cli()"


@dataclass(frozen=True)
class System:
    """A server: its command, made of the folder with the weights, a port and the number of
    threads."""

    name: str
    command: Callable[[Path, int, int], list[object]]
    path: str = "/embed"
    body: Callable[[str], Any] = lambda text: {"inputs": text}
    vector: Callable[[Any], Any] = lambda answer: answer[0]
    exact: bool = True
    """True where its weights are float32."""

    @property
    def is_litebert(self) -> bool:
        """True for litebert, false for a peer."""
        return self.name.startswith("litebert")


def systems(
    pythons: Sequence[str], task: Task, wait: Sequence[str] = PATIENT
) -> tuple[list[System], dict[str, str]]:
    """Those that can run, and why each of the others cannot.

    Args:
        pythons: interpreters of the peers. A peer runs with the first that has what it needs.
        wait: options of `litebert serve`.
    """
    servers = [
        litebert_server("compiled", "float32", task, wait),
        litebert_server("onnx", "onnx", task, wait),
        litebert_server("onnx int8", "onnx-int8", task, wait, exact=False),
        litebert_server("compiled int8", "int8", task, wait, exact=False),
    ]
    skipped = {}
    for peer, needs in _list_peers(task):
        missing = {python: _missing(python, needs) for python in pythons}
        if (
            python := next((python for python in pythons if not missing[python]), None)
        ) is not None:
            servers.append(peer(python))
        else:
            skipped[peer("").name] = "; ".join(missing.values()) or "no --peers"
    return servers, skipped


def _list_peers(task: Task) -> list[tuple[Callable[[str], System], str]]:
    """Make a server of an interpreter, with the statements that it needs, for each peer."""
    peers: list[tuple[Callable[[str], System], str]] = [
        (
            lambda python: behind_fastapi(python, "sentence-transformers", "hf"),
            "import sentence_transformers, uvicorn",
        ),
        (
            lambda python: behind_fastapi(python, "transformers", "hf"),
            "import torch, transformers, fastapi, uvicorn",
        ),
        (
            lambda python: behind_fastapi(python, "fastembed", "onnx"),
            "import fastembed, fastapi, uvicorn",
        ),
        (
            lambda python: behind_fastapi(python, "onnxruntime", "onnx"),
            "import onnxruntime, tokenizers, fastapi, uvicorn",
        ),
        (
            lambda python: behind_fastapi(python, "openvino", "onnx"),
            "import openvino, tokenizers, fastapi, uvicorn",
        ),
        (
            lambda python: behind_fastapi(python, "onnxruntime", "onnx-int8", exact=False),
            "import onnxruntime, tokenizers, fastapi, uvicorn",
        ),
        (lambda python: infinity(python, "torch", "hf"), NEEDS),
        (
            lambda python: infinity(python, "optimum", "optimum"),
            f"{NEEDS}; import optimum.onnxruntime",
        ),
    ]
    if task == "vectors":
        return peers
    classifiers = ("transformers", "onnxruntime", "openvino", "onnxruntime int8")
    return [
        (_with_classes(peer), needs)
        for peer, needs in peers
        if peer("").name.removesuffix(", FastAPI") in classifiers
    ]


def _with_classes(peer: Callable[[str], System]) -> Callable[[str], System]:
    """Have a peer answer with the probabilities of classes."""

    def make(python: str) -> System:
        system = peer(python)
        return replace(
            system,
            command=lambda weights, port, threads: [
                *system.command(weights, port, threads),
                "classes",
            ],
            path="/predict",
            vector=lambda answer: answer["probabilities"],
        )

    return make


NEEDS = "import infinity_emb, transformers; transformers.PreTrainedTokenizerFast.batch_encode_plus"
"""Statements that infinity-emb needs, which calls what transformers 5 no longer has."""


@lru_cache
def _missing(python: str, needs: str) -> str:
    """Why an interpreter cannot run some statements; empty where it can."""
    try:
        done = subprocess.run(
            [python, "-c", needs], capture_output=True, text=True, check=False, env=_environment(1)
        )
    except OSError as error:
        return str(error)
    return "" if done.returncode == 0 else done.stderr.strip().rpartition("\n")[2]


def litebert_server(
    name: str, folder: str, task: Task, options: Sequence[str], exact: bool = True
) -> System:
    """`litebert serve`."""

    def command(weights: Path, port: int, threads: int) -> list[object]:
        serve = [sys.executable, "-m", "litebert", "serve", weights / folder, "--port", port]
        return [*serve, "--threads", threads, "--quiet", *options]

    system = System(f"litebert, {name}", command, exact=exact)
    if task == "vectors":
        return system
    return replace(
        system,
        path="/predict",
        vector=lambda answer: list(answer["predictions"][0]["probabilities"].values()),
    )


def behind_fastapi(python: str, kind: str, folder: str, exact: bool = True) -> System:
    """A library behind the routes of peers.py."""
    return System(
        f"{kind}{'' if exact else ' int8'}, FastAPI",
        lambda weights, port, threads: [
            python,
            HERE / "peers.py",
            kind,
            weights / folder,
            port,
            threads,
        ],
        exact=exact,
    )


def infinity(python: str, engine: str, folder: str) -> System:
    """infinity-emb by its own command."""

    def command(weights: Path, port: int, threads: int) -> list[object]:
        words = [
            "--model-id",
            weights / folder,
            "--served-model-name",
            "own",
            "--engine",
            engine,
            "--device",
            "cpu",
            "--pooling-method",
            "mean",
        ]
        return [
            python,
            "-c",
            INFINITY,
            "v2",
            *words,
            "--dtype",
            "float32",
            "--host",
            "127.0.0.1",
            "--port",
            port,
            "--log-level",
            "error",
        ]

    return System(
        f"infinity-emb, {engine}",
        command,
        "/embeddings",
        lambda text: {"input": [text], "model": "own"},
        lambda answer: answer["data"][0]["embedding"],
    )


def _environment(threads: int) -> dict[str, str]:
    """The variables of a server: offline, and our source for litebert."""
    return {
        **os.environ,
        "PYTHONPATH": str(Path(litebert.__file__).parents[1]),
        "OMP_NUM_THREADS": str(threads),
        "HF_HUB_OFFLINE": "1",
        "DO_NOT_TRACK": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


@dataclass
class Running:
    """A server that answers."""

    port: int
    seconds: float
    """From its command to its first answer."""
    process: subprocess.Popen[bytes]

    def memory(self) -> dict[str, float]:
        """MB that its processes hold: rss counts what they share in each, pss once. Empty where
        there is no /proc.
        """
        megabytes = {"rss": 0.0, "pss": 0.0}
        for pid in _family(self.process.pid):
            with suppress(OSError):
                sizes = Path(f"/proc/{pid}/smaps_rollup").read_text()
                for name in megabytes:
                    kilobytes = re.search(rf"^{name}:\s+(\d+)", sizes, re.MULTILINE | re.IGNORECASE)
                    megabytes[name] += int(kilobytes[1]) * 1024 / 1e6 if kilobytes else 0
        return megabytes if megabytes["rss"] else {}


def _family(pid: int) -> list[int]:
    """A process and all that it started, as far as they live."""
    children: list[str] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            children += file.read_text().split()
    return [pid, *(pid for child in children for pid in _family(int(child)))]


@contextmanager
def running(system: System, weights: Path, threads: int, text: str, log: Path) -> Iterator[Running]:
    """Start a server, and end it with all that it started."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    environment = _environment(threads)
    if not system.is_litebert:
        del environment["PYTHONPATH"]
    start = time.perf_counter()
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [str(word) for word in system.command(weights, port, threads)],
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )
    try:
        while not _answers(system, port, text):
            if process.poll() is not None or time.perf_counter() - start > STARTING:
                raise RuntimeError(
                    f"{system.name} does not answer; its log ends with\n{log.read_text()[-2000:]}"
                )
            time.sleep(0.05)
        yield Running(port, time.perf_counter() - start, process)
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(15)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(system: System, port: int, text: str) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        body = json.dumps(system.body(text))
        connection.request("POST", system.path, body, {"Content-Type": "application/json"})
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
