"""A model in memory with what belongs to it, and the strict way to fill it with weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.nn import init
from torch.overrides import TorchFunctionMode

from litebert.config import Config
from litebert.config.finetuning import HeadName
from litebert.errors import ConfigError, DataError, LitebertError, ModelError
from litebert.model.heads import HeadActivation, Pooling
from litebert.model.pretrainer import Pretrainer
from litebert.model.task_model import TaskModel
from litebert.registry import OUTPUTS
from litebert.tokenizer import Tokenizer

M = TypeVar("M", Pretrainer, TaskModel)


@dataclass(frozen=True)
class LoadedModel:
    """A model folder in memory."""

    network: Pretrainer | TaskModel | Callable[[], TaskModel]
    """The network in evaluation mode, float32, on the CPU; or a function that reads its weights
    when `model` is first used.
    """
    config: Config
    tokenizer: Tokenizer | None
    """None where the folder has none."""
    path: Path
    labels: tuple[str, ...] = ()
    """Names of the classes of a fine-tuned model, where the folder has them."""
    untrained: tuple[str, ...] = ()
    """Objectives whose head is not in the folder and is freshly initialized."""
    notes: tuple[str, ...] = ()
    """Sentences about it that a person should know."""
    task: Mapping[str, Any] = field(default_factory=dict)
    """The task.json of a fine-tuned model, the `kind` of its head among it."""
    dense: HeadActivation | None = None
    """The activation of the dense map that a fresh classifier of texts puts on [CLS]; None where it
    reads a pooler.
    """
    pooling: Pooling = "cls"
    """The states that a fresh classifier of texts reads."""
    card: str = ""
    """The text of its README.md."""

    @cached_property
    def model(self) -> Pretrainer | TaskModel:
        """The network.

        Raises:
            ModelError: its weights were not read yet, and are damaged, missing or of another model.
        """
        return self.network if isinstance(self.network, (Pretrainer, TaskModel)) else self.network()

    @property
    def head(self) -> HeadName:
        """The head of a fine-tuned model: as its task says, else by what it reads."""
        if named := self.task.get("kind"):
            return cast(HeadName, named)
        assert isinstance(self.model, TaskModel)
        return next(
            output.head for output in OUTPUTS.values() if output.reads_cls == self.model.reads_cls
        )

    @property
    def task_record(self) -> dict[str, Any]:
        """The task.json of a fine-tuned model, from which its task is restored; empty for a
        pretrained one.
        """
        network = self.network
        if isinstance(network, Pretrainer):
            return {}
        if isinstance(network, TaskModel):
            classes, dense, pooling = network.classes, network.dense, network.pooling
        else:  # not built yet
            classes, dense, pooling = (
                self.task["classes"],
                self.task.get("dense"),
                self.task.get("pooling", "cls"),
            )
        read = {} if pooling == "cls" else {"pooling": pooling}
        return {
            **self.task,
            "kind": self.head,
            "classes": classes,
            "dense": dense,
            **read,
            "labels": list(self.labels),
        }

    def __post_init__(self) -> None:
        rows = self.config.encoder.vocab_size
        if self.tokenizer is not None and self.tokenizer.vocab_size > rows:
            raise ModelError(
                f"the tokenizer of {self.path} has {self.tokenizer.vocab_size} tokens, and "
                f"the model has {rows} rows "
                "for tokens; give the tokenizer that the model was trained with"
            )


def choose_tokenizer(
    read: Callable[[], Tokenizer | None], substitute: str | Path | None, folder: Path
) -> Tokenizer | None:
    """The tokenizer of a model folder, or the one that a person names for a folder without a
    readable tokenizer.

    Args:
        read: reads the folder's tokenizer; None where the folder has none.
        substitute: what a person names: a folder, *.model, vocab.txt or tokenizer.json.

    Raises:
        DataError: the file cannot be read.
        ConfigError: the folder has a readable tokenizer, and `substitute` is another tokenizer.
    """
    if substitute is None:
        return read()
    chosen = Tokenizer.load(substitute)
    try:
        stored = read()
    except LitebertError:  # the substitute is for such a folder
        return chosen
    if stored is not None and stored.fingerprint != chosen.fingerprint:
        raise another_tokenizer(substitute, folder)
    return chosen


def another_tokenizer(substitute: str | Path, folder: Path) -> ConfigError:
    """The refusal of a tokenizer that is not the model's."""
    return ConfigError(
        f"{substitute} is not the tokenizer that {folder} was trained with; leave "
        "--tokenizer out, or name that one"
    )


def require_fit(loaded: LoadedModel, substitute: str | Path) -> None:
    """Check that a tokenizer that a person names belongs to the model: it nearly fills the table of
    the words.

    Published tables are longer than their vocabulary by a few rows, to reach a multiple of 64 or
    128. A tokenizer with more tokens than rows is refused by `LoadedModel`.

    Raises:
        ModelError: a tenth of the rows, and more than 128, would belong to no token.
    """
    assert loaded.tokenizer is not None
    rows, tokens = loaded.config.encoder.vocab_size, loaded.tokenizer.vocab_size
    if rows - tokens > max(128, rows // 10):
        raise ModelError(
            f"{substitute} has {tokens:,} tokens and {loaded.path} has {rows:,} rows for tokens; "
            "give the tokenizer that the model was trained with"
        )


def require_tokenizer_of(
    data: str | Path, tokenizer: Tokenizer, loaded: LoadedModel, source: str | Path
) -> None:
    """Check that the token ids of prepared text mean to a model what they meant in its training.

    Args:
        data, tokenizer: the folder of the text, and its tokenizer.
        source: the folder of the model, as a person named it.

    Raises:
        DataError: the model has another tokenizer, or none. A vocabulary of equal size proves
            nothing, because its rows may stand for other tokens.
    """
    if loaded.tokenizer is None:
        raise DataError(
            f"{source} has no tokenizer, so nobody knows whether it has that of {data}; put the "
            "tokenizer that it was trained with there"
        )
    if loaded.tokenizer.fingerprint != tokenizer.fingerprint:
        raise DataError(
            f"{data} was prepared with another tokenizer than that of {source}; prepare the data "
            f"with --tokenizer {loaded.path}"
        )


def outputs_of(head: object) -> dict[str, Any]:
    """The registered outputs (`finetuning.outputs.Output`) of a head by name, the usual one
    first."""
    return {name: output for name, output in OUTPUTS.items() if output.head == head}


def note_untrained(untrained: Sequence[str], config: Config, folder: Path) -> list[str]:
    """Say which heads are freshly initialized."""
    objectives = config.build_objectives()
    return [
        f"{folder} has no {objectives[name].network_name}; that objective is untrained"
        for name in untrained
    ]


def fresh_dense(config: Config) -> HeadActivation | None:
    """The activation of the dense map that a fresh classifier of texts puts on [CLS]; None where it
    reads a pooler.

    An objective may say it. Otherwise tanh where positions have an offset, as in RoBERTa's code
    alone; a pooler in the code of the other papers. With prediction=hidden every head has a dense
    map, whatever the objectives.
    """
    if config.encoder.prediction == "hidden":
        return None
    activation = next(
        (
            objective.classifier
            for objective in config.build_objectives().values()
            if objective.classifier
        ),
        None,
    )
    return activation or ("tanh" if config.encoder.position_offset > 0 else None)


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
    """A network of a config, whose refusal to be built names the file that the config comes from.

    Args:
        drawn: its weights are initialized; not needed for a network that is filled with all of its
            weights.
    """
    try:
        with nullcontext() if drawn else _Zeros():
            return network(*arguments)
    except (ModelError, RuntimeError, TypeError, ValueError, OverflowError, MemoryError) as error:
        reason = str(error).partition("\n")[0]
        raise ModelError(f"{file} describes no model that can be built: {reason}") from None


def rebuild(
    loaded: LoadedModel,
    config: Config,
    other: Config,
    change: Callable[[Tensor], Tensor],
    **fields: Any,
) -> LoadedModel:
    """The model in another config, with other values of some fields of `LoadedModel`.

    Args:
        other: a config that differs from `config` in what was changed; a tensor whose shape would
            differ there is changed, and every other one is kept.
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
    model: Pretrainer | TaskModel, state: Mapping[str, Tensor], untrained: Sequence[str], file: Path
) -> None:
    """Put a state dict into a model, strictly but for the heads that are known to be absent."""
    expected = model.state_dict()
    check_tensors(expected, state, tuple(f"objectives.{name}." for name in untrained), file)
    model.load_state_dict({**expected, **state})
    model.eval()


def check_tensors(
    expected: Mapping[str, Tensor], state: Mapping[str, Tensor], absent: tuple[str, ...], file: Path
) -> None:
    """Names and shapes are those expected; only names that start with one of `absent` may be
    missing.

    Raises:
        ModelError: they are not; `file` is the one it names.
    """
    missing = [name for name in expected if name not in state and not name.startswith(absent)]
    unknown = [name for name in state if name not in expected]
    if missing or unknown:
        problem = f"has no '{missing[0]}'" if missing else f"has an unknown '{unknown[0]}'"
        raise ModelError(f"{file} {problem}; it does not belong to the config beside it")
    for name, tensor in state.items():
        if tensor.shape != expected[name].shape:
            raise ModelError(
                f"{file} holds {name} of shape {tuple(tensor.shape)}, and its config asks for "
                f"{tuple(expected[name].shape)}; the two do not belong to the same model"
            )
