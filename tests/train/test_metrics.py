"""The log of a run: what is written is read, across kills and resumes."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from litebert.base.errors import RunError
from litebert.train.metrics import MetricsLog, read
from toys.refusals import refused


def log_steps(log: MetricsLog, steps: range) -> None:
    for step in steps:
        log.write("train", step, loss=1 / step, rate=step * 1e-4)
        if step % 5 == 0:
            log.write("heldout", step, accuracy=step / 100)
    log.close()


def test_rows_come_back_and_are_on_the_disk_at_once(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path)
    log.write("event", 0, text="started, ünïcode\n")
    log.write(
        "train",
        1,
        loss=0.1 + 0.2,
        tokens=np.int64(7),
        accuracy=torch.tensor(0.5),
        parts=(1.5, {"a": 2}),
    )
    assert read(tmp_path / "metrics.jsonl") == [
        {"step": 0, "kind": "event", "text": "started, ünïcode\n"},
        {
            "step": 1,
            "kind": "train",
            "loss": 0.1 + 0.2,
            "tokens": 7,
            "accuracy": 0.5,
            "parts": [1.5, {"a": 2}],
        },
    ]
    log.sync()
    log.close()


def test_numbers_that_are_not_finite_become_null(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path)
    log.write(
        "train", 1, a=math.nan, b=torch.tensor(math.inf), c=[-math.inf, 1.0], d=np.float32("nan")
    )
    log.close()
    text = (tmp_path / "metrics.jsonl").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {
        "step": 1,
        "kind": "train",
        "a": None,
        "b": None,
        "c": [None, 1.0],
        "d": None,
    }


@given(resumed_step=st.integers(0, 20), reached=st.integers(0, 20), torn=st.integers(0, 60))
def test_a_resumed_log_equals_one_that_was_never_cut(
    resumed_step: int, reached: int, torn: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    resumed_step = min(resumed_step, reached)
    folder = tmp_path_factory.mktemp("log")
    (folder / "whole").mkdir()
    log_steps(MetricsLog(folder / "whole"), range(1, 21))
    log_steps(MetricsLog(folder), range(1, reached + 1))
    with open(folder / "metrics.jsonl", "ab") as file:  # a row cut short by a kill
        file.write(
            b'{"step": 21, "kind": "train", "loss": "\xc3\xa9", "padding": "................"}'[
                :torn
            ]
        )
    log_steps(MetricsLog(folder, resume=resumed_step), range(resumed_step + 1, 21))
    assert (folder / "metrics.jsonl").read_bytes() == (
        folder / "whole" / "metrics.jsonl"
    ).read_bytes()
    assert sorted(path.name for path in folder.iterdir()) == [
        "metrics.jsonl",
        "speed.jsonl",
        "whole",
    ]


def test_a_resumed_log_of_speed_holds_no_step_twice(tmp_path: Path) -> None:
    first = MetricsLog(tmp_path)
    for step in (1, 2, 3):
        first.write("speed", step, tokens_per_second=100.0 * step)
    first.close()
    second = MetricsLog(tmp_path, resume=1)
    second.write("speed", 2, tokens_per_second=9.0)
    second.close()
    assert [row["tokens_per_second"] for row in read(tmp_path / "speed.jsonl")] == [100.0, 9.0]
    assert read(tmp_path / "metrics.jsonl") == []


def test_a_new_run_starts_an_empty_log(tmp_path: Path) -> None:
    log_steps(MetricsLog(tmp_path), range(1, 4))
    MetricsLog(tmp_path).close()
    assert read(tmp_path / "metrics.jsonl") == []
    MetricsLog(tmp_path, resume=5).close()


def test_a_torn_last_row_is_dropped_and_a_bad_one_before_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1, "kind": "train"}\n{"step": 2, "ki')
    assert read(path) == [{"step": 1, "kind": "train"}]
    for bad in (b"garbage", b'{"loss": 1}', b"[1]", b"\xff", b""):
        path.write_bytes(
            b'{"step": 1, "kind": "train"}\n' + bad + b'\n{"step": 2, "kind": "train"}\n'
        )
        with refused(RunError, f"{path}:2"):
            read(path)
        with refused(RunError, f"{path}:2"):
            MetricsLog(tmp_path, resume=1)
    with refused(RunError, tmp_path / "other.jsonl"):
        read(tmp_path / "other.jsonl")


def test_a_full_disk_is_said_in_a_sentence(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    log = MetricsLog(tmp_path)
    log.close()
    log._file = open("/dev/full", "ab", buffering=0)  # noqa: SIM115
    with refused(RunError, tmp_path / "metrics.jsonl", "No space left on device"):
        log.write("train", 1, loss=1.0)
    log.close()


def test_a_short_write_counts_as_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Short:
        def write(self, line: bytes) -> int:
            return len(line) - 1

    log = MetricsLog(tmp_path)
    log.close()
    monkeypatch.setattr(log, "_file", Short())
    with refused(RunError, tmp_path / "metrics.jsonl", "No space left"):
        log.write("train", 1)
