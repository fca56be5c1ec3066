"""What fine-tuning begins with: an encoder and its weights, a fresh head for the task, a rate for each layer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from litebert.config import EncoderConfig, replace
from litebert.data.tokenizer import Tokenizer
from litebert.errors import ConfigError
from litebert.finetuning import FinetuneConfig
from litebert.interop import load
from litebert.model.heads import TaskModel
from litebert.recipe_files import names_recipe, recipe
from litebert.tasks.task import Task


@dataclass(frozen=True)
class Start:
    """What fine-tuning begins with."""

    encoder: EncoderConfig
    state: dict[str, torch.Tensor] | None
    """The encoder's weights; None for an untrained one."""
    tokenizer: Tokenizer


def starting_point(model: str | Path, tokenizer: str | Path | None = None) -> Start:
    """The encoder of a model folder, or a recipe's untrained one.

    Raises:
        ModelError: the folder is no model.
        ConfigError: a recipe without a tokenizer, or a folder that has none.
    """
    given = None if tokenizer is None else Tokenizer.load(tokenizer)
    if names_recipe(str(model)):
        if given is None:
            raise ConfigError(f"{model} is a recipe, an untrained network; give it a --tokenizer")
        encoder = recipe(str(model)).encoder
        return Start(replace(encoder, vocab_size=given.vocab_size), None, given)
    loaded = load(model)
    words = given or loaded.tokenizer
    if words is None:
        raise ConfigError(f"{model} has no tokenizer; give it a --tokenizer")
    if words.vocab_size > loaded.config.encoder.vocab_size:
        raise ConfigError(f"the tokenizer has {words.vocab_size} pieces and {model} has "
                          f"{loaded.config.encoder.vocab_size}; give the model's own")  # fmt: skip
    return Start(loaded.config.encoder, loaded.model.encoder.state_dict(), words)


def task_model(start: Start, task: Task[Any], config: FinetuneConfig) -> TaskModel:
    """The encoder under a fresh head, a function of the seed."""
    shape = start.encoder
    if config.dropout >= 0:
        shape = replace(shape, hidden_dropout=config.dropout, attention_dropout=config.dropout)
    reads_cls = task.kind in TaskModel.READS_CLS
    if not reads_cls:
        shape = replace(shape, pooler=False)
    dense = None
    if reads_cls and not shape.pooler:  # RoBERTa's head has tanh, ELECTRA's gelu
        dense = "tanh" if shape.position_offset else "gelu"
    classes = {"span": 2, "choice": 1, "number": 1}.get(task.problem, len(task.labels))
    torch.manual_seed(config.train.seed)
    model = TaskModel(shape, task.kind, classes, dense)  # type: ignore[arg-type]
    model.head.dropout.p = config.head_dropout
    if start.state is not None:
        wanted = model.encoder.state_dict()
        model.encoder.load_state_dict({name: start.state[name] for name in wanted})
    return model


def layer_rates(model: TaskModel, decay: float) -> dict[str, float]:
    """A factor of the learning rate by parameter name: 1 for the head, less by `decay` for every layer below it.

    A block that several layers share has the rate of the highest of them. (ELECTRA's code scales its top layer by
    decay squared; here it is decay.)
    """
    config = model.encoder.config
    depth_of: dict[str, int] = {}
    for layer, (a, f) in enumerate(zip(config.attention_of(), config.feedforward_of(), strict=True), start=1):
        depth_of[f"encoder.attention.{a}."] = layer
        depth_of[f"encoder.feedforward.{f}."] = layer
    rates = {}
    for name, _ in model.named_parameters():
        depth = next((depth for prefix, depth in depth_of.items() if name.startswith(prefix)), None)
        if depth is None:
            depth = 0 if name.startswith("encoder.embedding.") else config.layers + 1
        rates[name] = decay ** (config.layers + 1 - depth)
    return rates
