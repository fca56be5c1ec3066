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
