"""The weights that a pretraining run starts from: another model's, or a token table that is started
from counts of neighboring tokens or from another model's table.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import numpy as np
import torch

from litebert.base.errors import ModelError
from litebert.change.vocabulary import project_table, require_tokenizer, with_rows_of
from litebert.config import Config, replace
from litebert.data.cooccurrence import compute_token_vectors, count_neighbors, count_tokens
from litebert.data.mixture import TrainingData
from litebert.interop import read_folder
from litebert.interop.models import config_of
from litebert.model.heads import SpanBoundaryHead, VocabularyHead
from litebert.model.pretrainer import Pretrainer
from litebert.tokenizer.spelling import find_sources
from litebert.train import checkpoint, schedule

log = logging.getLogger("litebert")

_NO_WEIGHTS = ("hidden_dropout", "attention_dropout", "init", "init_std", "untied", "pooler")
"""Fields of an encoder in which it may differ from the weights it starts from."""


def build_further_recipe(source: str | Path) -> Config:
    """Build the recipe to train a model further with: its own without a teacher, at full depth and
    length, with the rate rising again over the first twentieth.

    For a folder that does not say how it was trained (Hugging Face), it has the model's shape, the
    objectives of its heads, and defaults.
    """
    config = config_of(source).without_its_run()
    calm = replace(config.train.schedule, warmup=schedule.REWARM)
    return replace(config, train=replace(config.train, schedule=calm))


def read_optimizer(source: str | Path, config: Config) -> Mapping[str, torch.Tensor] | None:
    """Read the optimizer's state that a run ended with; None if there is none of this kind."""
    folder = Path(source) / "checkpoints"
    if not folder.is_dir():
        return None
    was, now = config_of(source).train.optimizer.name, config.train.optimizer.name
    if was != now:
        log.info(f"the optimizer of {source} was {was} and is {now} here, so its state is not used")
        return None
    newest = checkpoint.find_newest(folder)
    return None if newest is None else newest.load_optimizer()


def load_weights(source: str | Path, model: Pretrainer, shards: TrainingData) -> None:
    """Put the encoder and the objectives that fit into a new model; log what stays untrained."""
    loaded = with_rows_of(shards.path, shards.tokenizer, read_folder(source), source)
    target, source_shape = model.config.encoder, loaded.config.encoder
    # Shared blocks are the same ones at every depth.
    by_depth = source_shape.sharing != target.sharing or target.sharing != "all"
    free = (*_NO_WEIGHTS, *(() if by_depth else ("layers",)))
    differ = [
        f"encoder.{name} is {getattr(source_shape, name)} there and {getattr(target, name)} here"
        for name in (field.name for field in fields(target))
        if name not in free and getattr(source_shape, name) != getattr(target, name)
    ]
    if differ:
        raise ModelError(
            f"the weights of {source} do not fit this recipe ({'; '.join(differ)}); give the "
            "recipe they were trained with, or these fields as they are there"
        )
    weights, state = loaded.model.state_dict(), model.state_dict()
    fitting = {
        key: tensor
        for key, tensor in weights.items()
        if key in state and state[key].shape == tensor.shape
    }
    taken = {key: tensor for key, tensor in fitting.items() if key.startswith("encoder.")}
    fresh = sorted(
        {key.split(".")[1] for key in state if key.startswith("encoder.") and key not in taken}
    )
    for name, objective in model.named_objectives.items():
        keys = [key for key in state if key.startswith(f"objectives.{name}.")]
        if name not in loaded.untrained and all(key in fitting for key in keys):
            taken.update({key: fitting[key] for key in keys})
        else:
            fresh.append(objective.network_name)
    model.load_state_dict({**state, **taken})
    log.info(
        f"starting from the weights of {source}"
        + (f"; untrained: {', '.join(fresh)}" if fresh else "")
    )


def start_table(model: Pretrainer, shards: TrainingData) -> None:
    """Start the token table from counts of neighboring tokens in the training text, and the output
    biases from the frequencies of tokens, where `Config.table` says so.

    A token without neighbors in the text, such as [MASK], keeps its random row.
    """
    table, encoder = model.config.table, model.config.encoder
    if table.start == "random":
        return
    started = time.monotonic()
    counts = count_neighbors(shards.train, encoder.vocab_size, table)
    vectors = torch.from_numpy(compute_token_vectors(counts, encoder.embedding_size, table.std))
    # A token that never occurs is taken to have occurred half a time, so that its logarithm is
    # finite.
    shares = torch.from_numpy(np.maximum(counts.tokens, 0.5) / counts.tokens.sum())
    heads = [
        module
        for module in model.objectives.modules()
        if isinstance(module, (VocabularyHead, SpanBoundaryHead))
    ]
    with torch.no_grad():
        word = model.encoder.embedding.word.weight
        counted = vectors.any(dim=1, keepdim=True).to(word.device)
        word.copy_(torch.where(counted, vectors.to(word), word))
        for head in heads:
            head.bias.copy_(shares.log())
    seconds = time.monotonic() - started
    log.info(
        f"the token table starts from counts of neighboring tokens, made from "
        f"{counts.tokens.sum():,} tokens in {seconds:.0f} s"
    )


def take_table(model: Pretrainer, shards: TrainingData, source: str | Path) -> None:
    """Start the token table from another model's, of any width and tokenizer; a token that the
    other tokenizer cannot spell keeps its row.
    """
    loaded = read_folder(source)
    table = loaded.model.encoder.embedding.word.weight
    sources = find_sources(require_tokenizer(loaded), shards.tokenizer)
    word = model.encoder.embedding.word.weight
    counts = count_tokens(shards.train, len(word))
    rows = project_table(
        table.detach().cpu().double().numpy(),
        [source.ids for source in sources],
        counts,
        width=word.shape[1],
        std=model.config.table.std,
    )
    has_source = torch.tensor([bool(source.ids) for source in sources]).to(word.device)
    with torch.no_grad():
        word.copy_(torch.where(has_source[:, None], torch.from_numpy(rows).to(word), word))
    log.info(
        f"the token table starts from the table of {source}, with {table.shape[1]} numbers a "
        f"row reduced to {word.shape[1]}, for {int(has_source.sum()):,} of {len(word):,} tokens"
    )
