"""A network on several processes: whole in each (DDP), or each holding some rows of every parameter
(FSDP2).

DDP sums gradients while the backward pass still runs. FSDP2 (`fully_shard`) splits weights,
gradients and optimizer state; blocks are gathered one at a time, when they compute. Both sum
instead of averaging, for losses are divided by counts over the whole batch. The buckets of DDP stay
as they are first laid out, so that a run that continues sums in the same order.

A network that is to be split is built in the main memory of the main process alone. So it may be
larger than a device.

`get_local`, `gather` and `slice_local` translate between a parameter and the rows of it that this
process holds; where nothing is split they return their argument.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from litebert.errors import ConfigError, RunError, require
from litebert.model.blocks import Block
from litebert.train.ranks import Ranks

How = Literal["ddp", "fsdp"]
M = TypeVar("M", bound=nn.Module)


def build_module(make: Callable[[], M], device: torch.device, ranks: Ranks, how: str) -> M:
    """Build a module for `parallelize` on its device; where it is to be split, on the CPU of the
    main process and nowhere else.

    Args:
        make: makes the module of the main process in all of them.
    """
    if ranks.size == 1 or how != "fsdp":
        return make().to(device)
    if ranks.main:
        return make()
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # weights that are loaded into it vanish
        return make()


def parallelize(
    module: nn.Module, device: torch.device, ranks: Ranks, how: str, batch: int = 0
) -> nn.Module:
    """Make the network that computes the losses of a module in all processes. With FSDP it is the
    module itself, with its parameters split.

    Args:
        module: as `build_module` gives it; all processes start from the main one's weights.
        how: `fsdp` or `ddp`.
        batch: sequences of the whole batch.

    Raises:
        ConfigError: this torch cannot split, or the processes would have different numbers of
            sequences.
    """
    if ranks.size == 1:
        return module
    if how == "fsdp":
        fix = "give a multiple, or choose train.parallel=ddp"
        require(
            batch % ranks.size == 0,
            f"train.batch is {batch} sequences for {ranks.size} processes; {fix}",
        )
        return _split(module, device, ranks)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # the option has another name in torch 2.13
        network = nn.parallel.DistributedDataParallel(
            module,
            broadcast_buffers=False,
            gradient_as_bucket_view=True,
            find_unused_parameters=True,
        )
    network.register_comm_hook(None, _sum_bucket)
    return network


def _sum_bucket(_: object, bucket: Any) -> Any:
    """Sum a bucket of gradients over the processes; DDP awaits the result."""
    from torch import distributed

    work: Any = distributed.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


_sum_bucket.__annotations__.clear()  # DDP compares annotations with its own types


def _split(module: nn.Module, device: torch.device, ranks: Ranks) -> nn.Module:
    from torch.distributed import fsdp
    from torch.distributed.device_mesh import init_device_mesh

    if not hasattr(getattr(fsdp, "FSDPModule", None), "set_force_sum_reduction_for_comms"):
        raise ConfigError(
            f"train.parallel=fsdp needs a newer torch than {torch.__version__}; upgrade it "
            "or choose ddp"
        )
    full = _list_tensors(module) if ranks.main else None
    module.to("meta")
    mesh = init_device_mesh(device.type, (ranks.size,))
    blocks = [block for block in module.modules() if isinstance(block, Block)]
    for part in (*blocks, module):
        shard: Any = fsdp.fully_shard(part, mesh=mesh)
        shard.set_gradient_divide_factor(1.0)
        shard.set_force_sum_reduction_for_comms(True)  # which gloo can do
    module.to_empty(device=device)
    _fill(_list_tensors(module), full, ranks)
    return module


def _list_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and buffers of a module, even those that a state dict leaves out."""
    return {
        name: tensor.detach()
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
    }


def accumulate_gradients(network: nn.Module, last: bool) -> AbstractContextManager[Any]:
    """Make the context of a micro-batch: with DDP, the last of a step sums the gradients of all of
    them.
    """
    if last or not isinstance(network, nn.parallel.DistributedDataParallel):
        return nullcontext()
    context: AbstractContextManager[Any] = network.no_sync()
    return context


def is_split(tensor: Tensor) -> bool:
    """Return True if this process holds only some rows of a parameter."""
    return hasattr(tensor, "device_mesh")


def get_local(tensor: Tensor) -> Tensor:
    """Return the rows that this process holds, in the same memory."""
    return tensor.detach().to_local() if is_split(tensor) else tensor  # type: ignore[attr-defined]


def gather(part: Tensor, like: Tensor) -> Tensor:
    """Gather the rows of all processes; all of them must ask.

    Args:
        part: the rows here, of a tensor that is split as `like` is.
    """
    if not is_split(like):
        return part
    from torch.distributed.tensor import DTensor

    mesh, placements = like.device_mesh, like.placements  # type: ignore[attr-defined]
    full = DTensor.from_local(
        part, mesh, placements, run_check=False, shape=like.shape, stride=like.stride()
    )
    return full.full_tensor()


def slice_local(full: Tensor, like: Tensor) -> Tensor:
    """Return the rows of a whole tensor that this process holds, where it is split as `like` is."""
    if not is_split(like):
        return full
    mesh = like.device_mesh  # type: ignore[attr-defined]
    parts, rank = full.chunk(mesh.size()), mesh.get_local_rank()
    return parts[rank] if rank < len(parts) else full[:0]


class TensorsOnDemand(Mapping[str, Tensor]):
    """Tensors by name that are read where they are asked for, and not kept."""

    def describe(self, name: str) -> tuple[torch.dtype, torch.Size]:
        """Return the type and the whole shape of a tensor, without reading it."""
        raise NotImplementedError


def describe(tensors: Mapping[str, Tensor], name: str) -> tuple[torch.dtype, torch.Size]:
    """Return the type and the shape of a tensor, which is not read where it is on demand."""
    if isinstance(tensors, TensorsOnDemand):
        return tensors.describe(name)
    return tensors[name].dtype, tensors[name].shape


class WholeTensors(TensorsOnDemand):
    """Tensors by name, whole in the main process. A split tensor is put together where it is read,
    and not kept, so that no process holds more than one. All processes read the same names in the
    same order.
    """

    def __init__(self, parts: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> None:
        """`parts` are the rows here of tensors that are split as those of `like` are."""
        self._parts, self._like = parts, like

    def __getitem__(self, name: str) -> Tensor:
        part, like = self._parts[name], self._like[name]
        return gather(part, like).cpu() if is_split(like) else part

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def describe(self, name: str) -> tuple[torch.dtype, torch.Size]:
        return self._parts[name].dtype, self._like[name].shape


def gather_state(module: nn.Module) -> WholeTensors:
    """Return the state dict of a module, whole where it is read."""
    state = module.state_dict()
    return WholeTensors({name: get_local(tensor) for name, tensor in state.items()}, state)


def load_state(module: nn.Module, saved: Mapping[str, Tensor] | None, ranks: Ranks) -> None:
    """Put a state dict, which the main process has, into the module of every process.

    Raises:
        RunError: it is that of another module.
    """
    state = module.state_dict()
    if saved is not None and (
        other := [
            name
            for name in {**state, **saved}
            if _find_shape(state, name) != _find_shape(saved, name)
        ]
    ):
        raise RunError(
            f"the saved weights do not fit this run (see {other[0]}); start another --out"
        )
    _fill(state, saved, ranks)


def _fill(state: Mapping[str, Tensor], saved: Mapping[str, Tensor] | None, ranks: Ranks) -> None:
    for name, full in broadcast_all(saved, state, state, ranks):
        get_local(state[name]).copy_(slice_local(full, state[name]))


def _find_shape(tensors: Mapping[str, Tensor], name: str) -> torch.Size | None:
    return describe(tensors, name)[1] if name in tensors else None


def broadcast_all(
    saved: Mapping[str, Tensor] | None,
    local: Mapping[str, Tensor],
    whole: Mapping[str, Tensor],
    ranks: Ranks,
) -> Iterator[tuple[str, Tensor]]:
    """Tensors that the main process has, whole and one after another, in every process.

    Args:
        saved: those tensors; None in the other processes.
        local: tensors with the same names and types.
        whole: tensors with the same whole shapes.
    """
    for name, tensor in local.items():
        full = (
            torch.empty(whole[name].shape, dtype=tensor.dtype)
            if saved is None
            else saved[name].contiguous()
        )
        ranks.broadcast(full)
        yield name, full
