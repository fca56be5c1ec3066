"""Facts that a process finds out about its machine."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from litebert import machine

pytestmark = pytest.mark.skipif(
    not Path("/proc/cpuinfo").exists(), reason="only Linux has /proc/cpuinfo"
)


def test_a_fact_of_every_core_is_read_once() -> None:
    facts = machine.read_processor_facts()
    assert facts["processor"][0] == "0"
    for key, values in facts.items():
        assert len(values) == len(set(values)), key


def test_the_name_and_the_instructions_are_those_of_the_first_core(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    facts = {"model name": ["One", "Another"], "Features": ["fp asimd", "fp"]}
    monkeypatch.setattr(machine, "read_processor_facts", lambda: facts)
    assert machine.read_processor_name() == "One"
    assert machine.read_instructions() == {"fp", "asimd"}
    monkeypatch.setattr(machine, "read_processor_facts", dict)
    assert machine.read_processor_name() in (platform.processor(), platform.machine())
    assert machine.read_instructions() == frozenset()


def test_fewer_cores_count_where_the_process_has_fewer() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert machine.count_cores() == 1
    finally:
        os.sched_setaffinity(0, before)
    assert machine.count_cores() == len(before)


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "150000 100000"}, 2),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "max 100000"}, 8),
        ({"cpu.max": "nonsense"}, 8),
        ({"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
        ({}, 8),
    ],
)
def test_a_limit_of_processor_time_counts_as_cores(
    files: dict[str, str], cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    monkeypatch.setattr(machine, "CONTROL_GROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert machine.count_cores() == cores
