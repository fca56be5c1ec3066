"""Sentence vectors or classes over HTTP: `litebert serve` beside other servers, on the same weights
and the same cores.

    python benchmarks/serving [--task vectors|classes] [--default-wait] [--peers PYTHON ...]
                              [--shapes minilm albert] [--rounds 2] [--seconds 5] [--cores 2]
                              [--data FILE] [--tokenizer FILE] [--systems NAME ...] [--quick]
                              [--json FILE]

Networks have random weights: a BERT of MiniLM's shape (6 layers, H 384) and albert-base. A request
is one text. `litebert serve` waits for as long as clients do (`--max-wait-ms 10000`). With
--default-wait it has its default, and refuses requests: a refused connection waits as long as
`Retry-After` says, and requests that were refused are counted apart. FILE is a TSV with a column
`sentence`, such as SST-2's dev.tsv, or has one text on each line; without it, sentences of the
built-in corpus are taken. --peers names interpreters with the libraries of the peers
(sentence-transformers, transformers, fastembed, onnxruntime, openvino and infinity-emb, with
FastAPI and uvicorn); a peer that none of them has is skipped, with the reason. infinity-emb needs
transformers before 5, and so mostly an environment of its own.

The servers run one at a time, in turns, on the same cores as the client, which is a process of its
own. N connections send a request each, and the next one when it is answered; N doubles until the
99th percentile of the time to an answer is over 100 ms. Prints medians of the rounds: most requests
a second within 100 ms and their N, percentiles with one connection, the memory of all processes
after the load, and the time from the command to the first answer. Ends with status 1 where a
float32 vector, or a probability, differs from that of `litebert.load` by more than 1e-4, the cosine
of an int8 vector with it is below 0.98, or a request is lost.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from answering import read
from numpy.typing import NDArray
from results import machine
from results import write as write_results

import litebert
from serving.servers import PATIENT, Running, System, running, systems
from serving.weights import LENGTH, SHAPES, build, words_of

MOST_MS = 100.0
ALLOWED, COSINE = 1e-4, 0.98
TEXTS = 200
CLIENT = Path(__file__).with_name("client.py")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", nargs="+", default=[], metavar="PYTHON")
    parser.add_argument("--task", choices=["vectors", "classes"], default="vectors")
    parser.add_argument(
        "--default-wait", action="store_true", help="litebert serve without --max-wait-ms"
    )
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["minilm", "albert"])
    parser.add_argument(
        "--systems",
        nargs="+",
        help="those to run, by the beginnings of their names; by default all",
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--most", type=int, default=64, help="connections, at most")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument(
        "--quick", action="store_true", help="one round of seconds each: does everything run?"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds, options.most = 1, min(options.seconds, 1.0), 2
    return options


def main() -> int:
    options = parse_options()
    if hasattr(os, "sched_setaffinity"):  # inherited by all processes
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    # pip compiles what it installs, the peers too, so a source tree must not be compiled at starts.
    compileall.compile_dir(Path(litebert.__file__).parent, quiet=2)
    texts = read(options.data)[0][:TEXTS]
    chosen, skipped = systems(options.peers, options.task, () if options.default_wait else PATIENT)
    chosen = [
        system
        for system in chosen
        if not options.systems or system.name.startswith(tuple(options.systems))
    ]
    for name, reason in skipped.items():
        print(f"{name} is skipped: {reason}")
    report: dict[str, Any] = {
        "machine": machine(),
        "cores": options.cores,
        "seconds": options.seconds,
        "task": options.task,
        "wait": "the default" if options.default_wait else " ".join(PATIENT),
        "skipped": skipped,
    }
    with tempfile.TemporaryDirectory() as folder:
        words = words_of(options.tokenizer)
        for shape in options.shapes:
            weights = Path(folder, shape)
            build(shape, words, weights, options.task)
            expected = compute_answers(weights / "litebert", texts, options.task)
            rounds: dict[str, list[dict[str, Any]]] = {system.name: [] for system in chosen}
            for turn in range(options.rounds):
                for system in chosen:
                    rounds[system.name].append(one_round(system, weights, texts, expected, options))
                    print(
                        f"{shape}, round {turn + 1}, {system.name}: "
                        f"{_line(rounds[system.name][-1])}",
                        flush=True,
                    )
            report[shape] = {
                name: {**summary(runs), "rounds": runs} for name, runs in rounds.items()
            }
            print(table(f"{shape}, {options.task}", report[shape]), flush=True)
    print(
        report["machine"],
        f"{options.cores} cores, {options.seconds:g} s a measurement, {options.rounds} rounds",
        sep=", ",
    )
    write_results(options.json, report)
    exact = {system.name: system.exact for system in chosen}
    return int(
        any(
            wrong(result, exact[name], options.default_wait)
            for shape in options.shapes
            for name, result in report[shape].items()
        )
    )


def compute_answers(model: Path, texts: Sequence[str], task: str) -> NDArray[np.float32]:
    """Compute the vectors of texts, or the probabilities of their classes."""
    loaded = litebert.load(model, device="cpu")
    if task == "vectors":
        return loaded.encode(texts)
    answers = loaded.predict(texts)
    return np.array([list(row["probabilities"].values()) for row in answers], np.float32)


def one_round(
    system: System,
    weights: Path,
    texts: Sequence[str],
    expected: NDArray[np.float32],
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Start a server and load it more and more."""
    log = weights / "server.log"
    with running(system, weights, options.cores, texts[0], log) as server:
        levels, connections = list[dict[str, Any]](), 1
        while connections <= options.most and (not levels or levels[-1]["p99_ms"] <= MOST_MS):
            levels.append(
                load_server(system, server, weights, texts, expected, connections, options.seconds)
            )
            connections *= 2
        return {"start_seconds": server.seconds, **server.memory(), "levels": levels}


def load_server(
    system: System,
    server: Running,
    folder: Path,
    texts: Sequence[str],
    expected: NDArray[np.float32],
    connections: int,
    seconds: float,
) -> dict[str, Any]:
    """Counts of the client, and how far its answers are from what they should be."""
    bodies, answers = folder / "bodies.json", folder / "answers.json"
    bodies.write_text(json.dumps([system.body(text) for text in texts]))
    command = [
        sys.executable,
        CLIENT,
        server.port,
        system.path,
        bodies,
        answers,
        connections,
        seconds,
    ]
    done = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True)
    counts: dict[str, Any] = json.loads(done.stdout)
    answered = {int(number): answer for number, answer in json.loads(answers.read_text()).items()}
    vectors = np.array(
        [system.vector(json.loads(answer)) for answer in answered.values()], np.float32
    )
    right = expected[list(answered)]
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(right, axis=1)
    return counts | {
        "apart": float(np.abs(vectors - right).max()),
        "cosine": float(((vectors * right).sum(1) / lengths).min()),
        "checked": len(answered),
    }


def summary(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Medians; of the requests a second within the bound, and of where they were reached."""
    best = [
        max(
            (level for level in each["levels"] if level["p99_ms"] <= MOST_MS),
            default=None,
            key=lambda level: level["requests_per_second"],
        )
        for each in rounds
    ]
    levels = [level for each in rounds for level in each["levels"]]

    def median(values: Sequence[float]) -> float:
        return float(statistics.median(values)) if values else float("nan")

    return {
        "requests_per_second": median(
            [level["requests_per_second"] if level else 0.0 for level in best]
        ),
        "connections": median([level["connections"] if level else 0 for level in best]),
        "p99_ms": median([level["p99_ms"] for level in best if level]),
        "p50_one_ms": median([each["levels"][0]["p50_ms"] for each in rounds]),
        "p99_one_ms": median([each["levels"][0]["p99_ms"] for each in rounds]),
        "pss": median([each["pss"] for each in rounds if "pss" in each]),
        "rss": median([each["rss"] for each in rounds if "rss" in each]),
        "start_seconds": median([each["start_seconds"] for each in rounds]),
        "client_processor": max(
            (level["client_processor"] for level in best if level), default=float("nan")
        ),
        "apart": max(level["apart"] for level in levels),
        "cosine": min(level["cosine"] for level in levels),
        "refused_per_second": median(
            [level["refused_per_second"] if level else float("nan") for level in best]
        ),
        "refused": sum(level["refused_per_second"] for level in levels),
        "others": sum(level["others"] for level in levels),
        "lost": sum(level["lost"] for level in levels),
    }


def wrong(result: dict[str, Any], exact: bool, may_refuse: bool) -> bool:
    """True if answers differ, or are missing."""
    differs = result["apart"] > ALLOWED if exact else result["cosine"] < COSINE
    refuses = result["refused"] and not may_refuse
    return bool(differs or refuses or result["others"] or result["lost"])


def _line(result: dict[str, Any]) -> str:
    levels = (
        f"{level['connections']:g}: {level['requests_per_second']:.1f}/s {level['p99_ms']:.0f} ms"
        + (f" ({level['refused_per_second']:.1f} refused)" if level["refused_per_second"] else "")
        for level in result["levels"]
    )
    return ", ".join(levels)


def table(shape: str, results: dict[str, dict[str, Any]]) -> str:
    """A table in Markdown, with the speed beside the best peer's of the precision."""
    best = {}
    for is_int8 in (False, True):
        peers = [
            result["requests_per_second"]
            for name, result in results.items()
            if not name.startswith("litebert") and ("int8" in name) == is_int8
        ]
        best[is_int8] = max(peers, default=float("nan")) or float("nan")
    head = [
        "",
        f"requests/s, p99 <= {MOST_MS:g} ms",
        "/ best peer",
        "connections",
        "refused/s",
        "one connection: p50",
        "p99",
        "memory, PSS (RSS)",
        "start",
        "largest difference",
        "least cosine",
        "client, of a core",
    ]
    lines = [f"{shape}, {LENGTH} tokens at most", "", _row(head), _row(["---"] * len(head))]
    lines += [
        _row(
            [
                name,
                f"{result['requests_per_second']:.1f}",
                f"{result['requests_per_second'] / best['int8' in name]:.2f}",
                f"{result['connections']:g}",
                f"{result['refused_per_second']:.1f}",
                f"{result['p50_one_ms']:.1f} ms",
                f"{result['p99_one_ms']:.1f} ms",
                f"{result['pss']:.0f} ({result['rss']:.0f}) MB",
                f"{result['start_seconds']:.1f} s",
                f"{result['apart']:.1g}",
                f"{result['cosine']:.4f}",
                f"{result['client_processor']:.0%}",
            ]
        )
        for name, result in results.items()
    ]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
