"""This machine as a process finds it: cores, processor and main memory, without torch."""

from __future__ import annotations

import math
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path  # late, as every start of a program reads this file

_MMAP_MAX, _TRIM_THRESHOLD = -4, -1  # malloc.h
_PAUSE_HARD = 2  # omp.h


# ------------------------------------------------------------------------------------ the processor


CONTROL_GROUP = "/sys/fs/cgroup"
"""The folder in which Linux shows the limits of a container."""


def count_cores() -> int:
    """CPU cores that this process may use, a limit of processor time among them, rounded up."""
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    quota = _read_processor_quota()
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def count_threads() -> int:
    """Count the threads that torch would take; torch is asked only where it is loaded."""
    if (torch := sys.modules.get("torch")) is not None:
        return int(torch.get_num_threads())
    threads = os.environ.get("OMP_NUM_THREADS", "")
    return int(threads) if threads.isdigit() and int(threads) else count_cores()


def heed_processor_limit() -> None:
    """Have torch, the kernels and numpy start no more threads than a limit of processor time, of
    which they know nothing, allows. OMP_NUM_THREADS stays as a person has set it.
    """
    cores = count_cores()
    if os.environ.get("OMP_NUM_THREADS") or _read_processor_quota() is None:
        return
    os.environ["OMP_NUM_THREADS"] = str(cores)  # for all that is loaded after this
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(min(cores, torch.get_num_threads()))
    if "numpy" in sys.modules:
        with suppress(ImportError):  # not beside an exported model alone
            from threadpoolctl import threadpool_info, threadpool_limits

            if any(pool["num_threads"] > cores for pool in threadpool_info()):
                threadpool_limits(cores)


def _read_processor_quota() -> float | None:
    """The seconds of processor time that a container may use in a second; None without a limit.

    Version 2 of cgroups has `cpu.max`, as in "200000 100000", and version 1 two files.
    """
    try:
        if os.path.isfile(file := os.path.join(CONTROL_GROUP, "cpu.max")):
            quota, period = _read(file).split()
        else:
            names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
            files = (os.path.join(CONTROL_GROUP, "cpu", name) for name in names)
            quota, period = (_read(file).strip() for file in files)
        return None if quota in ("max", "-1") else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _read(file: str) -> str:
    with open(file, encoding="utf-8", errors="replace") as opened:
        return opened.read()


def read_processor_facts() -> dict[str, list[str]]:
    """The different values of each key of /proc/cpuinfo, one a kind of core, or empty."""
    file, facts = "/proc/cpuinfo", dict[str, dict[str, None]]()
    for line in _read(file).splitlines() if os.path.exists(file) else ():
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), {})[value.strip()] = None
    return {key: list(values) for key, values in facts.items()}


def read_processor_name() -> str:
    import platform

    return _first("model name") or platform.processor() or platform.machine()


def read_instructions() -> frozenset[str]:
    """The sets of instructions that the processor has, by Linux's names, or empty."""
    return frozenset(
        (_first("flags") or _first("Features")).split()
    )  # x86 has flags, ARM has features


def may_have_accelerator() -> bool:
    """True unless the system shows that it has no device beside the CPU that torch could use; torch
    itself knows better, and takes a second to ask."""
    if not sys.platform.startswith("linux"):
        return True
    return any(
        name.startswith("nvidia") or name in ("kfd", "dxg", "accel") for name in os.listdir("/dev")
    )


def _first(key: str) -> str:
    return next(iter(read_processor_facts().get(key, ())), "")


def _end_idle_threads() -> None:
    """End the threads of OpenMP that wait for torch: a forked process has none of them, and its
    first loop would wait for them for ever.
    """
    import ctypes  # late, as every start of a program reads this file

    if (pause := getattr(ctypes.CDLL(None), "omp_pause_resource_all", None)) is not None:
        pause(_PAUSE_HARD)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_end_idle_threads)


# -------------------------------------------------------------------------------------- main memory


def read_free_memory() -> int:
    """Bytes of main memory that this process may still take, within the limits of its cgroups."""
    try:
        lines = _read("/proc/meminfo").splitlines()
        free = next(
            int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")
        )
    except (OSError, StopIteration):
        free = (
            os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
            if hasattr(os, "sysconf")
            else 1 << 62
        )
    return max(
        0,
        min([free, *(left for folder in _cgroups() if (left := _memory_left(folder)) is not None)]),
    )


def _cgroups() -> list[Path]:
    from pathlib import Path

    folders: list[Path] = []
    try:
        for line in _read("/proc/self/cgroup").splitlines():
            _, controllers, name = line.split(":", 2)
            if controllers in ("", "memory"):
                root = Path("/sys/fs/cgroup", controllers)
                folder = root / name.lstrip("/")
                # In a container the name is often one of the host's; the container's folder is then
                # the root.
                folders += [
                    folder,
                    *(part for part in folder.parents if part == root or root in part.parents),
                ]
    except (OSError, ValueError):
        pass
    return folders


def _memory_left(folder: Path) -> int | None:
    """Bytes left below a cgroup's limit, the cache of files not counted; None without a limit."""
    for limit, used, cache in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            most = int((folder / limit).read_text("ascii"))
            taken = int((folder / used).read_text("ascii"))
            stat = dict(
                line.split() for line in (folder / "memory.stat").read_text("ascii").splitlines()
            )
            return most - taken + int(stat.get(cache, 0))
        except (OSError, ValueError):  # absent, or "max"
            continue
    return None


def keep_freed_memory() -> bool:
    """Have glibc keep freed memory for the next step of training; whether it does.

    Otherwise the kernel maps and clears the large tensors of every step again
    (docs/decisions.md). Settings of malloc stay.
    """
    if not sys.platform.startswith("linux") or any(
        name.startswith("MALLOC_") for name in os.environ
    ):
        return False
    import ctypes  # late, as every start of a program reads this file

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none
    return mallopt is not None and all([mallopt(_MMAP_MAX, 0), mallopt(_TRIM_THRESHOLD, 2**31 - 1)])


def return_freed_memory() -> None:
    """Have glibc give freed memory back to the system; other C libraries decide for themselves."""
    import ctypes

    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
