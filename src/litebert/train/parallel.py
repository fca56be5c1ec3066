"""A network on several processes: whole in each of them (DDP), with the gradients summed, not
averaged, for losses are divided by counts over the whole batch.

The buckets of DDP stay as first laid out, so that a run that continues sums in the same order.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from litebert.base.errors import RunError
from litebert.train.ranks import Ranks


def parallelize(module: nn.Module, ranks: Ranks) -> nn.Module:
    """Make the network of all processes, which start from the main one's weights."""
    if ranks.size == 1:
        return module
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
    from torch import distributed

    work: Any = distributed.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


_sum_bucket.__annotations__.clear()  # DDP compares annotations with its own types


def accumulate_gradients(network: nn.Module, last: bool) -> AbstractContextManager[Any]:
    if last or not isinstance(network, nn.parallel.DistributedDataParallel):
        return nullcontext()
    context: AbstractContextManager[Any] = network.no_sync()
    return context


def load_state(module: nn.Module, saved: Mapping[str, Tensor] | None, ranks: Ranks) -> None:
    """Put a state dict, which the main process has, into the module of every process."""
    state = module.state_dict()
    if saved is not None:
        for name in {**state, **saved}:
            if name not in state or name not in saved or state[name].shape != saved[name].shape:
                raise RunError(
                    f"the saved weights do not fit this run (see {name}); start another --out"
                )
    copy_to_all(saved, state, ranks)


def copy_to_all(
    saved: Mapping[str, Tensor] | None, tensors: Mapping[str, Tensor], ranks: Ranks
) -> None:
    """Copy what the main process has saved into the tensors of these names in every process."""
    for name, tensor in tensors.items():
        whole = torch.empty(tensor.shape, dtype=tensor.dtype) if saved is None else saved[name]
        whole = whole.contiguous()
        ranks.broadcast(whole)
        tensor.copy_(whole)
