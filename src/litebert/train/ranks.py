"""The group of processes that train one model together, and share a run folder that the main one
writes. Without torchrun there is one process, and everything here does nothing.

Beside nccl there is gloo for tensors on the CPU, so that agreeing on a few numbers never waits for
a GPU. A process that fails ends the others too: their next exchange fails. The first to fail says
so in the group's store and reports why; the others end in silence, with a `GroupError`. A process
that hangs ends nothing by itself: an exchange fails after `find_wait`. Work that may take one
process longer, such as reading data, goes through `do`, where every process shows that it is alive.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from litebert.base import launch
from litebert.base.errors import GroupError, RunError, require

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")

WAIT_MINUTES = "LITEBERT_WAIT_MINUTES"
_PULSE_SECONDS = 10.0
_STORE_SECONDS = 10.0
"""How long a process that failed waits for the store of its group."""


def find_wait() -> timedelta:
    """Find how long a process, five minutes by default, waits for one that hangs or a machine that
    vanishes; a process that ends is noticed at once.
    """
    text = os.environ.get(WAIT_MINUTES, "5")
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    require(0 < minutes < 1e6, f"{WAIT_MINUTES} is {text!r}; give a number of minutes, such as 5")
    return timedelta(minutes=minutes)


@dataclass(frozen=True)
class Ranks:
    """The group as one of its processes sees it; this one is alone."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    """Its number among those on this machine, and of the GPU that it uses."""
    local_size: int = 1

    @property
    def main(self) -> bool:
        return self.rank == 0

    def share(self, count: int) -> range:
        """Choose the sequences of a batch of `count` that this process trains on."""
        fix = "raise train.batch or start fewer processes"
        require(
            count >= self.size, f"train.batch is {count} sequences for {self.size} processes; {fix}"
        )
        return range(self.rank * count // self.size, (self.rank + 1) * count // self.size)

    def device(self, name: str) -> str:
        """Return the device of this process, where `name` leaves open which GPU it is."""
        return name

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over the processes."""

    def broadcast(self, tensor: Tensor, source: int = 0) -> None:
        """Replace the tensor by that of one process, the main one by default."""

    def agree(self, value: T) -> T:
        return value

    def do(self, find: Callable[[], T]) -> T:
        """Call `find`, which may take one process minutes longer, here; all go on together."""
        return find()

    def decide(self, find: Callable[[], T]) -> T:
        """Call `find` in the main process alone, and return its result in all of them."""
        return find()

    def gather(self, value: T) -> list[T]:
        return [value]

    def turns(self, count: int) -> list[int]:
        return list(range(self.rank, count, self.size))

    def union(self, results: Mapping[int, T]) -> list[T]:
        everything = {
            i: value for by_number in self.gather(results) for i, value in by_number.items()
        }
        return [everything[i] for i in sorted(everything)]


ALONE = Ranks()


@dataclass(frozen=True)
class Group(Ranks):
    """Several processes. All of them call the same methods in the same order."""

    pulses: Any = None
    """The group of torch in which processes at work show that they are alive."""

    def device(self, name: str) -> str:
        import torch

        require(
            name == "cpu" or ":" not in name,
            f"--device {name} is one device for {self.size} processes; give cuda, and each "
            "takes its own",
        )
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        return f"cuda:{self.local_rank}" if name == "cuda" else name

    def sum(self, tensors: Sequence[Tensor]) -> None:
        from torch import distributed

        for tensor in tensors:
            distributed.all_reduce(tensor)

    def broadcast(self, tensor: Tensor, source: int = 0) -> None:
        from torch import distributed

        distributed.broadcast(tensor, src=source)

    def agree(self, value: T) -> T:
        from torch import distributed

        values: list[Any] = [value]
        distributed.broadcast_object_list(values, src=0)
        agreed: T = values[0]
        return agreed

    def do(self, find: Callable[[], T]) -> T:
        done, failures = threading.Event(), list[BaseException]()
        thread = threading.Thread(target=self._pulse, args=(done, failures), daemon=True)
        thread.start()
        try:
            value = find()
        except BaseException:
            done.set()
            thread.join(1.0)  # the others answer at once, unless they are at work themselves
            raise
        done.set()
        thread.join()
        if failures:
            raise failures[0]
        return value

    def _pulse(self, done: threading.Event, failures: list[BaseException]) -> None:
        """Tell the others every few seconds whether this process is done, until all are."""
        import torch
        from torch import distributed

        try:
            all_done = torch.zeros(1)
            while not all_done:
                all_done.fill_(done.wait(_PULSE_SECONDS))
                distributed.all_reduce(all_done, op=distributed.ReduceOp.MIN, group=self.pulses)
        except BaseException as error:
            failures.append(error)

    def decide(self, find: Callable[[], T]) -> T:
        value: Any = self.do(lambda: find() if self.main else None)
        agreed: T = self.agree(value)
        return agreed

    def gather(self, value: T) -> list[T]:
        from torch import distributed

        values: list[Any] = [None] * self.size
        distributed.all_gather_object(values, value)
        return values


_current: Ranks | None = None
_joins = 0


@contextmanager
def join_group() -> Iterator[Ranks]:
    """Join torchrun's group until the outermost block ends; a program's own is used as it is."""
    global _current
    if _current is not None:
        yield _current
        return
    if launch.processes() == 1:
        yield Ranks()
        return
    from torch import distributed

    wait = find_wait()
    store = None if distributed.is_initialized() else _form_group(wait)
    local_rank, local_size = (
        int(os.environ.get(name, default))
        for name, default in (("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "1"))
    )
    pulses: Any = distributed.new_group(backend="gloo", timeout=wait)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(pulses))  # never freed, as in `_form_group`
    _current = Group(
        distributed.get_rank(),
        distributed.get_world_size(),
        local_rank,
        local_size,
        pulses=pulses,
    )
    try:
        yield _current
    except BaseException as error:
        first = _current.main if store is None else _is_first_to_fail(store)
        if not first:
            raise GroupError("another process of this run failed; see what it reported") from error
        words = ("gloo", "nccl", "connection", "socket", "timed out", "timeout")
        if isinstance(error, getattr(distributed, "DistError", ())) or (
            isinstance(error, RuntimeError) and any(word in str(error).lower() for word in words)
        ):
            raise RunError(
                "another process of this run ended, or did not answer for "
                f"{wait.total_seconds() / 60:g} minutes; give the same command again, or torchrun "
                "--max-restarts, to continue from the newest checkpoint"
            ) from error
        raise
    finally:
        _current = None
        if store is not None:
            with suppress(RuntimeError):  # of connections that are gone already
                distributed.destroy_process_group()


def _form_group(wait: timedelta) -> Any:
    """Make the group; the store that its processes have in common."""
    global _joins
    import torch
    from torch import distributed
    from torch.distributed.rendezvous import rendezvous

    _joins += 1
    try:
        base, rank, size = next(rendezvous("env://", timeout=wait))
        # torchrun may keep its store when it starts the processes again, and what the dead ones
        # wrote there.
        prefix = f"litebert/{launch.restarts()}/{_joins}"
        store: Any = distributed.PrefixStore(prefix, base)  # type: ignore[attr-defined]
        backend = (
            "cpu:gloo,cuda:nccl"
            if torch.cuda.is_available() and distributed.is_nccl_available()
            else "gloo"
        )
        if "nccl" in backend and torch.cuda.device_count() > (
            local_rank := int(os.environ.get("LOCAL_RANK", "0"))
        ):
            torch.cuda.set_device(local_rank)  # where nccl keeps what it needs
        distributed.init_process_group(
            backend, store=store, rank=rank, world_size=size, timeout=wait
        )
        # Never freed: gloo's thread may need the interpreter for a tensor that it gives back, and
        # whoever frees the group waits for that thread while holding the interpreter. The end of
        # the process closes its connections.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(distributed.group.WORLD))
    except (RuntimeError, ValueError, OSError) as error:
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise RunError(
            f"the processes of this run do not find each other at {where} ({error}); check the "
            "rendezvous address of torchrun, and that the machines reach each other"
        ) from error
    return store


def _is_first_to_fail(store: Any) -> bool:
    """Record that this process failed; True if none did before, or the store is silent."""
    counts: list[int] = []

    def count() -> None:
        with suppress(RuntimeError):  # the machine that kept the store is gone
            counts.append(store.add("failed", 1))

    # A store on a machine that vanished answers never, so a thread asks it.
    thread = threading.Thread(target=count, daemon=True)
    thread.start()
    thread.join(_STORE_SECONDS)
    return counts in ([], [1])
