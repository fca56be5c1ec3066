"""Networks built from a config, and the strict way to fill them with weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import init
from torch.overrides import TorchFunctionMode

from litebert.base.errors import ModelError
from litebert.base.registry import OBJECTIVES
from litebert.config import Config
from litebert.interop.files import read_weights, weights_file
from litebert.interop.loaded import Contents, LoadedModel, outputs_of
from litebert.model.pretrainer import Pretrainer
from litebert.model.task_model import TaskModel

M = TypeVar("M", Pretrainer, TaskModel)


class _Zeros(TorchFunctionMode):
    """Weights are zero where they would be drawn, which takes longer than reading them."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        options = kwargs or {}
        drawing = (
            Tensor.normal_,
            Tensor.uniform_,
            init.normal_,
            init.uniform_,
            init.kaiming_uniform_,
        )
        if func not in drawing:
            return func(*args, **options)
        with torch.no_grad():
            return (args[0] if args else options["tensor"]).zero_()


def build_network(file: Path, network: Callable[..., M], *arguments: Any, drawn: bool = True) -> M:
    """A network of a config, whose refusal to be built names its file. Without `drawn` its weights
    are zero, for one that is filled with all of them.
    """
    try:
        with nullcontext() if drawn else _Zeros():
            return network(*arguments)
    except (ModelError, RuntimeError, TypeError, ValueError, OverflowError, MemoryError) as error:
        reason = str(error).partition("\n")[0]
        raise ModelError(f"{file} describes no model that can be built: {reason}") from None


def open_own(folder: Path, config: Config, file: Path, untrained: Sequence[str]) -> Pretrainer:
    model = build_network(folder / "recipe.json", Pretrainer, config, drawn=bool(untrained))
    fill(model, read_weights(file), untrained, file)
    return model


def open_tuned(folder: Path, config: Config, task: Mapping[str, Any]) -> TaskModel:
    usual, file = next(iter(outputs_of(task["kind"]).values())), weights_file(folder)
    fitting = (usual.reads_cls, task["classes"], task.get("dense"), task.get("pooling", "cls"))
    model = build_network(folder / "task.json", TaskModel, config.encoder, *fitting, drawn=False)
    fill(model, read_weights(file), (), file)
    return model


def open_contents(read: Callable[[], Contents]) -> Pretrainer | TaskModel:
    contents = read()
    config, untrained = contents.config, contents.untrained
    model: Pretrainer | TaskModel
    if contents.head is None:
        model = build_network(contents.config_file, Pretrainer, config, drawn=bool(untrained))
        for name, weights in contents.beside.items():
            file = contents.folder / OBJECTIVES[name].foreign_file
            check_tensors(model.objectives[name].state_dict(), weights, (), file)
    else:
        reading = contents.pooling if contents.reads_cls else "cls"
        fitting = (config.encoder, contents.reads_cls, contents.classes, contents.dense, reading)
        model = build_network(contents.config_file, TaskModel, *fitting, drawn=False)
    fill(model, contents.state, untrained, contents.weights_file)
    return model


def rebuild(
    loaded: LoadedModel,
    config: Config,
    other: Config,
    change: Callable[[Tensor], Tensor],
    **fields: Any,
) -> LoadedModel:
    """The model in another config, with other values of some `fields`. `other` differs from
    `config` in what was changed: a tensor whose shape would differ there is changed, every other
    one is kept.
    """
    model = loaded.model

    def network(config: Config) -> Pretrainer | TaskModel:
        if isinstance(model, Pretrainer):
            return Pretrainer(config)
        return TaskModel(config.encoder, model.reads_cls, model.classes, model.dense, model.pooling)

    new = network(config)
    with torch.device("meta"):
        shapes = {name: tensor.shape for name, tensor in network(other).state_dict().items()}
    free = {name for name, tensor in new.state_dict().items() if tensor.shape != shapes[name]}
    state = {
        name: change(tensor) if name in free else tensor
        for name, tensor in model.state_dict().items()
    }
    fill(new, state, (), loaded.path)
    return replace(loaded, network=new, config=config, **fields)


def fill(
    model: Pretrainer | TaskModel,
    state: Mapping[str, Tensor] | Mapping[str, NDArray[np.float32]],
    untrained: Sequence[str],
    file: Path,
) -> None:
    """Put a state dict into a model, strictly but for the heads that are known to be absent."""
    expected = model.state_dict()
    check_tensors(expected, state, tuple(f"objectives.{name}." for name in untrained), file)
    model.load_state_dict(
        {**expected, **{name: torch.as_tensor(array) for name, array in state.items()}}
    )
    model.eval()


def check_tensors(
    expected: Mapping[str, Tensor],
    state: Mapping[str, Tensor] | Mapping[str, NDArray[np.float32]],
    absent: tuple[str, ...],
    file: Path,
) -> None:
    """Check names and shapes; only names that begin with one of `absent` may be missing."""
    missing = [name for name in expected if name not in state and not name.startswith(absent)]
    unknown = [name for name in state if name not in expected]
    if missing or unknown:
        problem = f"has no '{missing[0]}'" if missing else f"has an unknown '{unknown[0]}'"
        raise ModelError(f"{file} {problem}; it does not belong to the config in its folder")
    for name, tensor in state.items():
        if tuple(tensor.shape) != tuple(expected[name].shape):
            raise ModelError(
                f"{file} holds {name} of shape {tuple(tensor.shape)}, and its config asks for "
                f"{tuple(expected[name].shape)}; the two do not belong to the same model"
            )
