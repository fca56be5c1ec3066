"""What fine-tuning begins with: an encoder and its weights, a fresh head for the task, a rate for each layer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from litebert.config import EncoderConfig, replace
from litebert.config.finetuning import FinetuneConfig
from litebert.errors import ConfigError
from litebert.finetuning.task import Task
from litebert.interop import load
from litebert.interop.loaded import fresh_dense, untrained_notes
from litebert.model.task_model import HeadActivation, TaskModel
from litebert.recipes.files import names_recipe, recipe
from litebert.tokenizer import Tokenizer


@dataclass(frozen=True)
class InitialModel:
    """What fine-tuning begins with."""

    encoder: EncoderConfig
    state: dict[str, torch.Tensor] | None
    """The encoder's weights; None for an untrained one."""
    tokenizer: Tokenizer
    dense: HeadActivation | None = None
    """The activation of the dense map that a head puts on [CLS] where there is no pooler; None: a fresh pooler."""
    notes: tuple[str, ...] = ()
    """What a person should know about it."""


def load_initial(model: str | Path, tokenizer: str | Path | None = None, task: Task[Any] | None = None) -> InitialModel:
    """The encoder of a model folder, or a recipe's untrained one.

    Args:
        task: what it is fine-tuned for; then the notes say which of its weights the encoder lacks.

    Raises:
        ModelError: the folder is no model.
        ConfigError: a recipe without a tokenizer, a folder that has none, or another tokenizer than the folder's.
    """
    given = None if tokenizer is None else Tokenizer.load(tokenizer)
    if names_recipe(str(model)):
        if given is None:
            raise ConfigError(f"{model} is a recipe, an untrained network; give it a --tokenizer")
        config = recipe(str(model))
        note = f"{model} is a recipe: the network starts untrained"
        if Path(model).is_dir():
            note += f" (for the folder of that name, write ./{model})"
        encoder = replace(config.encoder, vocab_size=given.vocab_size)
        return InitialModel(encoder, None, given, fresh_dense(config), (note,))
    loaded = load(model)
    if given is not None and loaded.tokenizer is not None and given.fingerprint != loaded.tokenizer.fingerprint:
        raise ConfigError(f"{model} was trained with a tokenizer of its own, and {tokenizer} is another; "
                          "leave --tokenizer out")  # fmt: skip
    words = given or loaded.tokenizer
    if words is None:
        raise ConfigError(f"{model} has no tokenizer; give it a --tokenizer")
    if words.vocab_size > loaded.config.encoder.vocab_size:
        raise ConfigError(f"the tokenizer has {words.vocab_size} pieces and {model} has "
                          f"{loaded.config.encoder.vocab_size}; give the model's own")  # fmt: skip
    shape = loaded.config.encoder
    unread = untrained_notes(loaded.untrained, loaded.config, loaded.path)  # of heads that fine-tuning has no use for
    notes = [note for note in loaded.notes if note not in unread]
    if task is not None and task.output.reads_cls and not shape.pooler and loaded.dense is None:
        notes.append(f"{model} has no pooler; the task learns one of its own")
    return InitialModel(shape, loaded.model.encoder.state_dict(), words, loaded.dense, tuple(notes))


def task_model(start: InitialModel, task: Task[Any], config: FinetuneConfig) -> TaskModel:
    """The encoder under a fresh head, a function of the seed."""
    shape = start.encoder
    if config.dropout >= 0:
        shape = replace(shape, hidden_dropout=config.dropout, attention_dropout=config.dropout)
    reads_cls = task.output.reads_cls
    dense = start.dense if reads_cls and not shape.pooler else None
    shape = replace(shape, pooler=reads_cls and dense is None)
    torch.manual_seed(config.train.seed)
    model = TaskModel(shape, reads_cls, task.output.width, dense)
    model.head.dropout.p = config.head_dropout
    if start.state is not None:  # a pooler that it lacks stays fresh, and one without use is left out
        fresh = model.encoder.state_dict()
        model.encoder.load_state_dict({name: start.state.get(name, tensor) for name, tensor in fresh.items()})
    return model


def layer_rates(model: TaskModel, decay: float) -> dict[str, float]:
    """A factor of the learning rate by parameter name: 1 for the head, less by `decay` for every layer below it.

    A block that several layers share has the rate of the highest of them. (ELECTRA's code scales its top layer by
    decay squared; here it is decay.)
    """
    depths, top = model.encoder.depths(), model.encoder.config.layers + 1
    return {name: decay ** (top - depths.get(parameter, top)) for name, parameter in model.named_parameters()}
