"""The model that fine-tuning begins with: an encoder, pretrained or not, under a task's head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from litebert import hub
from litebert.base.errors import ConfigError, ModelError
from litebert.config import EncoderConfig, HeadActivation, Pooling, replace
from litebert.config.finetuning import FinetuneConfig
from litebert.demo import locate
from litebert.interop import read_folder
from litebert.interop.loaded import LoadedModel, fresh_dense, note_untrained
from litebert.interop.sentence_modules import vector_settings
from litebert.model.encoder import make_initializer
from litebert.model.pretrainer import Pretrainer
from litebert.model.task_model import TaskModel
from litebert.recipes import HUB_NAMES
from litebert.recipes.files import is_recipe_name, recipe
from litebert.tasks.similarity import learns_map
from litebert.tasks.task import Task
from litebert.tokenizer import Tokenizer


@dataclass(frozen=True)
class InitialModel:
    """The model that fine-tuning begins with."""

    encoder: EncoderConfig
    state: dict[str, torch.Tensor] | None
    """The encoder's weights; None for an untrained one."""
    tokenizer: Tokenizer
    dense: HeadActivation | None = None
    """The activation of a head's dense map on [CLS] without a pooler; None: a fresh pooler."""
    notes: tuple[str, ...] = ()
    """Notes about the model, for people."""
    pooling: Pooling = "cls"
    """Pooling of a head of whole texts in an encoder with `prediction=hidden`."""
    head: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """The weights that every head of the encoder starts from, by their names in the head."""
    vectors: Pooling | None = None
    """How the model was trained to make a vector of its states, where it says so."""


def load_initial(
    model: str | Path, tokenizer: str | Path | None = None, task: Task[Any] | None = None
) -> InitialModel:
    """Load the encoder of a model folder, or a recipe's untrained one; for a `task`, notes say
    which of its weights are missing.
    """
    if is_recipe_name(str(model)):
        if tokenizer is None:
            raise ConfigError(
                f"{model} is a recipe, an untrained network; give it a --tokenizer"
                + _suggest_published(model)
            )
        words, config = Tokenizer.load(tokenizer), recipe(str(model))
        note = f"{model} is a recipe: the network starts untrained{_suggest_published(model)}"
        if Path(model).is_dir():
            note += f" (for the folder of that name, write ./{model})"
        encoder = replace(config.encoder, vocab_size=words.vocab_size)
        return InitialModel(encoder, None, words, fresh_dense(config), (note,))
    loaded = read_folder(locate(model), tokenizer=tokenizer)
    if loaded.tokenizer is None:
        raise ConfigError(f"{model} has no tokenizer; give it a --tokenizer")
    words, shape = loaded.tokenizer, loaded.config.encoder
    # Fine-tuning has no use for other heads.
    unread = note_untrained(loaded.untrained, loaded.config, loaded.path)
    notes = [note for note in loaded.notes if note not in unread]
    head, hidden = _select_head_weights(loaded), shape.prediction == "hidden"
    if task is not None and hidden and not head:
        notes.append(
            f"{model} has no dense map of a prediction head; the task learns one of its own"
        )
    if (
        task is not None
        and task.output.reads_cls
        and not hidden
        and not shape.pooler
        and loaded.dense is None
    ):
        notes.append(f"{model} has no pooler; the task learns one of its own")
    state = loaded.model.encoder.state_dict()
    try:
        vectors = vector_settings(loaded)
    except ModelError:  # modules that only embedding asks for
        vectors = None
    trained_for = (
        vectors.pooling if vectors is not None else "mean" if loaded.pooling == "mean" else None
    )
    return InitialModel(
        shape, state, words, loaded.dense, tuple(notes), loaded.pooling, head, trained_for
    )


def _suggest_published(model: str | Path) -> str:
    name = HUB_NAMES.get(str(model))
    return f"; for the weights of its paper write {hub.PREFIX}{name}" if name else ""


def _select_head_weights(loaded: LoadedModel) -> dict[str, torch.Tensor]:
    """Select the dense map and the norm to go on with; a generator's have its width, and stay
    there.
    """
    if loaded.config.encoder.prediction != "hidden":
        return {}
    model = loaded.model
    if isinstance(model, Pretrainer):
        if (
            "mlm" not in model.objectives
            or "mlm" in loaded.untrained
            or model.config.generator is not None
        ):
            return {}
        state = model.objectives["mlm"].get_submodule("head").state_dict()
    else:
        state = model.head.state_dict()
    return {name: tensor for name, tensor in state.items() if name.startswith(("dense.", "norm."))}


def build_task_model(
    start: InitialModel,
    task: Task[Any],
    config: FinetuneConfig,
    fitted: Mapping[str, torch.Tensor] | None = None,
) -> TaskModel:
    """Build the encoder under a head: a function of the seed, but for the `fitted` weights."""
    shape = start.encoder
    if config.dropout >= 0:
        shape = replace(shape, hidden_dropout=config.dropout, attention_dropout=config.dropout)
    reads_cls = task.output.reads_cls
    hidden = shape.prediction == "hidden"
    mean = task.apart or (reads_cls and config.head_reads in ("mean", "unit"))
    dense = start.dense if reads_cls and not (hidden or shape.pooler or mean) else None
    shape = replace(shape, pooler=reads_cls and not hidden and not mean and dense is None)
    pooling: Pooling = "cls"
    if hidden and reads_cls and start.pooling != "apart":  # of a model of pairs
        pooling = start.pooling
    if mean:
        pooling = "apart" if task.apart else "unit" if config.head_reads == "unit" else "mean"
    torch.manual_seed(config.train.seed)
    model = TaskModel(shape, reads_cls, task.output.width, dense, pooling)
    model.head.dropout.p = config.head_dropout
    model.encoder.recompute = config.train.recompute
    if start.state is not None:
        # A pooler that it lacks stays fresh, and one without use is left out.
        fresh = model.encoder.state_dict()
        model.encoder.load_state_dict(
            {name: start.state.get(name, tensor) for name, tensor in fresh.items()}
        )
    if task.output.width:
        before = {} if pooling in ("unit", "apart") else start.head
        model.head.load_state_dict({**model.head.state_dict(), **before, **(fitted or {})})
    if config.distill.width and (config.distill.states or learns_map(task.output)):
        model.state_map = torch.nn.Linear(shape.hidden_size, config.distill.width)
        model.state_map.apply(make_initializer(shape))
    return model
