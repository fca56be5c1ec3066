"""Batches are made ahead, by a thread or by processes: the same bits, errors as they are, and
nothing left running.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from litebert.base.errors import DataError, RunError
from litebert.config import Config, SequenceConfig
from litebert.config.serialization import to_dict, to_json
from litebert.data.shards import Shards
from litebert.train import supply
from litebert.train.device import choose
from litebert.train.supply import PretrainingBatches, count_processes, make_in_processes, prefetch
from toys.killed import Killed, kill_at
from toys.points import same_batch
from toys.pretraining import config, pretrain, result
from toys.refusals import refused
from toys.typed import typed

pytestmark = pytest.mark.thorough


ROWS = [slice(0, 3), slice(3, 8)]


def children() -> set[int]:
    """The processes that this one has started and that are still there."""
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def gone(pids: set[int], seconds: float = 10) -> bool:
    until = time.monotonic() + seconds
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < until:
        time.sleep(0.02)
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_processes_make_the_batches_that_this_one_would(
    tiny_data: Path,
) -> None:
    point = config(
        objectives=("mlm", "rtd"), sequences=SequenceConfig(length=28, short_probability=0.5)
    )
    local = PretrainingBatches(point, Shards.open(tiny_data))
    before = children()
    with make_in_processes(point, tiny_data, ROWS, 2, local.place) as make:
        assert make is not None
        assert len(children() - before) == 2
        for step in range(5, 7):
            for made, rows in zip(make(step), ROWS, strict=True):
                assert same_batch(made, local(step, rows))
                made.input_ids.add_(1)  # it may be written to, as any tensor
    assert children() == before


@pytest.mark.parametrize(("objectives", "read"), [(("mlm", "sop"), False), (("mlm", "sbo"), True)])
def test_tokens_around_spans_are_found_where_an_objective_reads_them(
    objectives: tuple[str, ...], read: bool, tiny_data: Path
) -> None:
    batches = PretrainingBatches(config(objectives=objectives), Shards.open(tiny_data))
    made = batches(0, slice(0, 3))
    assert (made.masked_boundaries is not None) == read
    if made.masked_boundaries is not None:
        assert made.masked_boundaries.shape == (len(made.masked_positions), 2)


def test_a_run_is_the_same_whoever_makes_its_batches_and_may_change_that_when_it_continues(
    tiny_data: Path, tmp_path: Path
) -> None:
    point = config(
        encoder={"hidden_dropout": 0.1}, train={"micro_batch": 3, "save_every": "5 steps"}
    )
    pretrain(point, tiny_data, tmp_path / "here")
    before = children()
    several = config(
        encoder={"hidden_dropout": 0.1},
        train={"micro_batch": 3, "save_every": "5 steps", "batch_processes": 2},
    )
    with pytest.raises(Killed):
        pretrain(several, tiny_data, tmp_path / "there", on_step=kill_at(7))
    assert children() == before
    pretrain(point, tiny_data, tmp_path / "there")
    assert result(tmp_path / "there") == result(tmp_path / "here")


def test_no_processes_where_none_are_asked_for(tiny_data: Path) -> None:
    before = children()
    with make_in_processes(config(), tiny_data, ROWS, 0, lambda step: (0, step)) as make:
        assert make is None
        assert children() == before


def test_an_error_of_the_data_is_reported_as_it_is(
    tiny_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(step: int) -> Any:
        raise DataError("data/train-00000.arrow is damaged")

    with (
        prefetch(fail, 0, lambda: 4, torch.device("cpu")) as batches,
        refused(DataError, "train-00000.arrow"),
    ):
        next(batches)
    read, write = os.pipe()
    with os.fdopen(read, "rb") as reader, os.fdopen(write, "wb") as writer:
        supply.send(writer, DataError("data/train-00000.arrow is damaged"))
        received = supply.receive(reader)
    assert isinstance(received, DataError)
    assert "train-00000.arrow" in str(received)


def test_a_process_that_was_killed_ends_the_run_with_one_sentence(
    tiny_data: Path, tmp_path: Path
) -> None:
    before = children()

    def kill(loop: Any) -> None:
        if loop.step == 2:
            for pid in children() - before:
                os.kill(pid, signal.SIGKILL)

    point = config(train={"batch_processes": 1, "budget": "5000 steps", "save_every": "1 steps"})
    with refused(RunError, "signal 9", "--train.batch-processes 0"):
        pretrain(point, tiny_data, tmp_path, on_step=kill)
    assert children() == before


def test_where_processes_do_not_know_a_part_the_batches_are_made_here(
    tiny_data: Path, log_messages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        supply, "to_dict", lambda point: {**to_dict(point), "objectives": ["of-my-own"]}
    )
    before = children()
    with make_in_processes(config(), tiny_data, ROWS, 1, lambda step: (0, step)) as make:
        assert make is None
    assert children() == before
    assert any("of-my-own" in message for message in log_messages)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    "number",
    [
        signal.SIGKILL,
        *(
            pytest.param(signal_number, marks=pytest.mark.slow)
            for signal_number in (signal.SIGTERM, signal.SIGINT)
        ),
    ],
)
def test_a_run_that_is_ended_leaves_no_process(
    number: signal.Signals, tiny_data: Path, tmp_path: Path
) -> None:
    recipe, out = tmp_path / "recipe.json", tmp_path / "run"
    recipe.write_text(to_json(config(train={"batch_processes": 1, "budget": "1M steps"})))
    words = typed(
        "{} -m litebert pretrain {} --shards {} --out {}",
        sys.executable,
        str(recipe),
        str(tiny_data),
        str(out),
    )
    with subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as run:
        of_run = Path(f"/proc/{run.pid}/task/{run.pid}/children")
        until = time.monotonic() + 60
        # The first row says that the run trains. Before it, a signal ends the run with nothing to
        # save.
        metrics = out / "metrics.jsonl"
        while not (makers := of_run.read_text().split()) or not (
            metrics.exists() and metrics.stat().st_size
        ):
            assert run.poll() is None, run.stderr and run.stderr.read()
            assert time.monotonic() < until
            time.sleep(0.05)
        run.send_signal(number)
        _, errors = run.communicate(timeout=60)
    assert gone({int(pid) for pid in makers}, seconds=20)
    assert "Traceback" not in errors
    if number != signal.SIGKILL:
        assert list((out / "checkpoints").iterdir())


# ----------------------------------------------------------------------------------------- how many


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """How many processes a GPU of 400 TFLOP/s gets in a machine of 16 cores."""
    monkeypatch.setattr(supply, "measure_matmul_speed", lambda device: 400e12)
    monkeypatch.setattr(supply, "count_cores", lambda: 16)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Some GPU")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)

    def count(point: Config) -> int:
        return count_processes(point, choose("auto", "cuda"))

    return count


def test_a_cpu_gets_a_thread_and_a_gpu_as_many_processes_as_it_needs_and_the_cores_allow(
    gpu: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = config()
    large = config(encoder={"hidden_size": 1024, "intermediate_size": 4096, "layers": 24})
    medium = config(encoder={"hidden_size": 192, "intermediate_size": 768, "layers": 12})
    assert count_processes(small, choose("auto", "cpu")) == 0
    assert gpu(large) == 1
    assert gpu(small) == 15
    assert 1 < gpu(medium) < 15
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert gpu(small) == 1
    assert gpu(config(train={"batch_processes": 3})) == 3
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "16")
    assert gpu(small) == 0
