"""The group of processes that train one model together, and share a run folder that the main one
writes.

`torchrun` starts the processes (launch.py), and `join_group` makes a group of them: gloo between
CPUs, nccl between GPUs. Beside nccl there is gloo for tensors on the CPU, so that agreeing on a few
numbers never waits for a GPU. Without torchrun there is one process, and everything here does
nothing.

A process that fails ends the others too: when it ends, their next exchange fails. The first to fail
says so in the group's store and reports why; the others end in silence, with a `GroupError`.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from litebert import launch
from litebert.errors import GroupError, RunError, require

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")

TIMEOUT = timedelta(hours=2)
"""How long a process waits for the others: for the main one to verify data, say. A process that
ends is noticed at once, so this is for machines that vanish from the network."""


@dataclass(frozen=True)
class Ranks:
    """The group as one of its processes sees it; this one is alone."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    """Its number among those on this machine, and of the GPU that it uses."""
    local_size: int = 1
    """How many there are on this machine."""

    @property
    def main(self) -> bool:
        """True if this process writes the files of the run."""
        return self.rank == 0

    def share(self, count: int) -> range:
        """Choose the sequences of a batch of `count` that this process trains on.

        Raises:
            ConfigError: there are fewer sequences than processes.
        """
        fix = "raise train.batch or start fewer processes"
        require(
            count >= self.size, f"train.batch is {count} sequences for {self.size} processes; {fix}"
        )
        return range(self.rank * count // self.size, (self.rank + 1) * count // self.size)

    def device(self, name: str) -> str:
        """Return the device of this process, where `name` leaves open which GPU it is.

        Raises:
            ConfigError: it names one GPU for several processes.
        """
        return name

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over the processes."""

    def broadcast(self, tensor: Tensor, source: int = 0) -> None:
        """Replace the tensor by that of one process, the main one by default."""

    def agree(self, value: T) -> T:
        """Return the main process's value, in all of them."""
        return value

    def decide(self, find: Callable[[], T]) -> T:
        """Call `find` in the main process alone, and return its result in all of them."""
        return find()

    def gather(self, value: T) -> list[T]:
        """Gather the values of all processes, by rank."""
        return [value]

    def turns(self, count: int) -> list[int]:
        """Choose this process's pieces among `count` pieces of work. All processes get the same
        number, because a split network computes only where all take part; so some repeat the last
        piece.
        """
        most = -(-count // self.size)
        return [min(self.rank + turn * self.size, count - 1) for turn in range(most)]

    def union(self, results: Mapping[int, T]) -> list[T]:
        """Gather the results of all pieces of work, in order."""
        everything = {
            i: value for by_number in self.gather(results) for i, value in by_number.items()
        }
        return [everything[i] for i in sorted(everything)]


class Group(Ranks):
    """Several processes. All of them call the same methods in the same order."""

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

    def decide(self, find: Callable[[], T]) -> T:
        value: Any = find() if self.main else None
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
    """Join the group that torchrun started, until the outermost block ends; a program's own group
    is used as it is.

    Raises:
        RunError: the processes do not find each other, or one of them ended without a reason.
        GroupError: another process failed first, and reports why.
    """
    global _current
    if _current is not None:
        yield _current
        return
    if launch.processes() == 1:
        yield Ranks()
        return
    from torch import distributed

    store = None if distributed.is_initialized() else _form_group()
    local = (
        int(os.environ.get(name, default))
        for name, default in (("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "1"))
    )
    _current = Group(distributed.get_rank(), distributed.get_world_size(), *local)
    try:
        yield _current
    except BaseException as error:
        first = _current.main if store is None else _is_first_to_fail(store)
        if not first:
            raise GroupError("another process of this run failed; see what it reported") from error
        if _is_loss(error):
            raise RunError(
                "another process of this run ended without a reason (killed, or out of "
                "memory); give the same command again, or torchrun --max-restarts, to continue "
                "from the newest checkpoint"
            ) from error
        raise
    finally:
        _current = None
        if store is not None:
            with suppress(RuntimeError):  # of connections that are gone already
                distributed.destroy_process_group()


def _form_group() -> Any:
    """Make the group; the store that its processes have in common."""
    global _joins
    import torch
    from torch import distributed
    from torch.distributed.rendezvous import rendezvous

    _joins += 1
    try:
        base, rank, size = next(rendezvous("env://", timeout=TIMEOUT))
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
            backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT
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
    """Record that this process failed, and return True if no other process of the group failed
    before.
    """
    try:
        return bool(store.add("failed", 1) == 1)
    except RuntimeError:  # the machine that kept the store is gone
        return True


def _is_loss(error: BaseException) -> bool:
    """Return True if the error is that another process could not be reached."""
    from torch import distributed

    words = ("gloo", "nccl", "connection", "socket")
    is_dist_error = isinstance(error, getattr(distributed, "DistError", ()))
    return is_dist_error or (
        isinstance(error, RuntimeError) and any(word in str(error).lower() for word in words)
    )
