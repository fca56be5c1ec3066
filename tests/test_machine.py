"""Facts that a process finds out about its machine."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from litebert.base import machine

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


LIMITED = """
import builtins, io, os, sys
old = builtins.open, os.path.isfile
limit = "/sys/fs/cgroup/cpu.max"
os.path.isfile = lambda path: path == limit or old[1](path)
builtins.open = lambda path, *words, **more: (
    io.StringIO("50000 100000") if path == limit else old[0](path, *words, **more)
)
os.sched_getaffinity = lambda _: set(range(8))
os.cpu_count = lambda: 8
for name in sys.argv[1:]:
    __import__(name)
import litebert, numpy, torch
from litebert.cli import main
main(["--version"])
from threadpoolctl import threadpool_info
print(os.environ["OMP_NUM_THREADS"], torch.get_num_threads())
print(*(pool["num_threads"] for pool in threadpool_info()))
"""


@pytest.mark.thorough
@pytest.mark.parametrize("before", [[], ["numpy"], ["torch", "numpy"]])
def test_threads_of_all_libraries_heed_a_limit_of_processor_time(
    before: list[str], tmp_path: Path
) -> None:
    """Before and after they are loaded; and a person's own number stays."""
    plain = {key: value for key, value in os.environ.items() if "NUM_THREADS" not in key}

    def run(environment: dict[str, str]) -> tuple[list[str], list[str]]:
        words = [sys.executable, "-c", LIMITED, *before]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
        numbers, pools = done.stdout.splitlines()[-2:]
        return numbers.split(), pools.split()

    numbers, pools = run(plain)
    assert numbers == ["1", "1"]
    assert {*pools} <= {"1"}
    assert run({**plain, "OMP_NUM_THREADS": "2"})[0][0] == "2"
