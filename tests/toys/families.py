"""Tiny random models of `transformers`, with nothing left at a zero or a one that could hide a
mistake.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from litebert.config import (
    Config,
    EncoderConfig,
    ReplacedTokenConfig,
    SequenceConfig,
    SpanBoundaryConfig,
)
from litebert.model.encoder import Encoder
from litebert.model.objectives.mlm import MaskedLanguageModeling
from litebert.model.objectives.rtd import ReplacedTokenDetection
from litebert.model.objectives.sentence_order import SentenceOrder
from litebert.model.pretrainer import Pretrainer
from litebert.model.task_model import TaskModel

VOCABULARY, LENGTH, BATCH = 61, 12, 3
TOLERANCE = 1e-5

BASE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 20,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "Albert": {**BASE, "embedding_size": 16},
    "Bert": BASE,
    "Roberta": {
        **BASE,
        "max_position_embeddings": 22,
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
    },
    "Electra": {**BASE, "embedding_size": 16},
    "ModernBert": {
        **{key: value for key, value in BASE.items() if not key.endswith("_prob")},
        "attention_dropout": 0.1,
        "embedding_dropout": 0.1,
        "mlp_dropout": 0.1,
        "local_attention": 5,
        "global_attn_every_n_layers": 3,
        "pad_token_id": 0,
        "bos_token_id": 2,
        "cls_token_id": 2,
        "eos_token_id": 3,
        "sep_token_id": 3,
    },
}
"""Fields of each family's config; SpanBERT has BERT's classes."""

_TASKS = {
    "sequence": "ForSequenceClassification",
    "tokens": "ForTokenClassification",
    "span": "ForQuestionAnswering",
    "choice": "ForMultipleChoice",
}
_SENTENCES = {"backbone": "Model", "mlm": "ForMaskedLM", "pretraining": "ForPreTraining", **_TASKS}
UNPOOLED = ("Electra", "ModernBert")
HEADS: dict[str, dict[str, str]] = {
    "Albert": _SENTENCES,
    "Bert": _SENTENCES,
    "Roberta": {"backbone": "Model", "mlm": "ForMaskedLM", **_TASKS},
    "Electra": {
        "backbone": "Model",
        "mlm": "ForMaskedLM",
        "discriminator": "ForPreTraining",
        **_TASKS,
    },
    "ModernBert": {"backbone": "Model", "mlm": "ForMaskedLM", **_TASKS},
}


def build_peer(family: str, head: str, **changes: Any) -> Any:
    """A random model of a family in evaluation mode."""
    if head in ("sequence", "tokens"):
        changes.setdefault("num_labels", 3)
    config = getattr(transformers, f"{family}Config")(**{**FAMILIES[family], **changes})
    model = getattr(transformers, family + HEADS[family][head])(config)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            center = 1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0
            # Weights this wide move attention away from uniform, so that its masks and scales
            # count.
            parameter.copy_(center + 0.15 * torch.randn(parameter.shape, generator=generator))
    model.tie_weights()
    return model.eval()


def randomize(model: torch.nn.Module) -> None:
    """The same for a model of ours."""
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            center = 1.0 if name.endswith("norm.weight") else 0.0
            parameter.copy_(center + 0.15 * torch.randn(parameter.shape, generator=generator))


NO_POOLER: dict[str, Any] = {"sharing": "none", "pooler": False, "activation": "gelu"}
MODERN: dict[str, Any] = {
    "norm": "pre",
    "embedding_norm": "after",
    "first_norm": False,
    "feedforward": "gated",
    "positions": "rotary",
    "bias": False,
    "prediction": "hidden",
    "segment_types": 0,
    "pooler": False,
    "norm_eps": 1e-5,
}
"""ModernBERT's point; windows, bases and sharing are free."""


def point(**changes: Any) -> EncoderConfig:
    """The shape of their models as one of ours."""
    base = {
        "vocab_size": VOCABULARY,
        "embedding_size": 16,
        "hidden_size": 32,
        "layers": 4,
        "heads": 4,
        "intermediate_size": 48,
        "max_positions": 20,
    }
    return EncoderConfig(**{**base, **changes})


def build_litebert(
    objectives: Any,
    rtd: ReplacedTokenConfig = ReplacedTokenConfig(),  # noqa: B008 (frozen)
    sbo: SpanBoundaryConfig = SpanBoundaryConfig(),  # noqa: B008
    **changes: Any,
) -> Pretrainer:
    """A random model of ours in evaluation mode."""
    config = Config(
        name="x",
        encoder=point(**changes),
        sequences=SequenceConfig(length=12),
        objectives=objectives,
        rtd=rtd,
        sbo=sbo,
    )
    model = Pretrainer(config).eval()
    randomize(model)
    return model


def inputs(pad_id: int = 0, types: int = 2, left: bool = False) -> dict[str, Tensor]:
    """Ids (B, S) padded at the right (or the left) to three lengths, with token types unless there
    are 0.
    """
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(5, VOCABULARY, (BATCH, LENGTH), generator=generator)
    segment = ((torch.arange(LENGTH) >= 5).long() % max(1, types)).repeat(BATCH, 1)
    mask = torch.arange(LENGTH) < torch.tensor([[LENGTH], [9], [6]])
    if left:
        mask = mask.flip(1)
    return {
        "input_ids": ids.where(mask, torch.tensor(pad_id)),
        **({"token_type_ids": segment * mask} if types else {}),
        "attention_mask": mask.long(),
    }


def inputs_of(family: str, left: bool = False) -> dict[str, Tensor]:
    """Inputs as a family's tokenizer makes them."""
    pad_id, types = {"Roberta": (1, 1), "ModernBert": (0, 0)}.get(family, (0, 2))
    return inputs(pad_id, types, left)


@contextmanager
def complaints() -> Iterator[list[str]]:
    """Messages that `transformers` logs at warning level or above inside the block."""
    heard: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())

    root, ear = logging.getLogger("transformers"), Ear(logging.WARNING)
    root.addHandler(ear)
    try:
        yield heard
    finally:
        root.removeHandler(ear)


def reopen(folder: Path) -> Any:
    """Open a folder with the class its config.json names; every weight must be there and none be
    left over.
    """
    config = transformers.AutoConfig.from_pretrained(folder)
    (architecture,) = config.architectures
    with complaints() as heard:
        model, report = getattr(transformers, architecture).from_pretrained(
            folder, output_loading_info=True
        )
    assert not heard, heard
    problems = {name: problems for name, problems in report.items() if problems}
    assert not problems, problems
    return model.eval()


@torch.no_grad()
def their_outputs(model: Any, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Everything a model computes, by the names that `our_outputs` uses; padded positions are
    zeroed.
    """
    if "MultipleChoice" in type(model).__name__:  # sequences are the choices of one question
        output = model(
            **{name: tensor[None] for name, tensor in batch.items()}, output_hidden_states=True
        )
    else:
        output = model(**batch, output_hidden_states=True)
    outputs = {f"hidden {i}": state for i, state in enumerate(output.hidden_states)}
    backbone = getattr(model, model.base_model_prefix, model)
    if getattr(backbone, "pooler", None) is not None:
        outputs["pooled"] = backbone(**batch).pooler_output
    name = type(model).__name__
    if "ForMaskedLM" in name:
        outputs["mlm"] = output.logits
    elif name == "ElectraForPreTraining":
        outputs["rtd"] = output.logits[..., None]
    elif "ForPreTraining" in name:
        outputs["mlm"] = output.prediction_logits
        outputs["sentence"] = (
            output.sop_logits if "sop_logits" in output else output.seq_relationship_logits
        )
    elif "MultipleChoice" in name:
        outputs["task"] = output.logits.reshape(-1, 1)
    elif "QuestionAnswering" in name:
        outputs["task"] = torch.stack((output.start_logits, output.end_logits), dim=-1)
    elif "logits" in output:
        outputs["task"] = output.logits
    return _real(outputs, batch)


@torch.no_grad()
def our_outputs(model: Pretrainer | TaskModel, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Everything one of our models computes."""
    output = model.encoder(**batch)
    inputs: dict[str, Any] = batch
    states = [*model.encoder.states(**inputs)]
    outputs = {f"hidden {i}": state for i, state in enumerate((*states[:-1], output.last))}
    if output.pooled is not None:
        outputs["pooled"] = output.pooled
    if isinstance(model, TaskModel):
        outputs["task"] = model(**batch)
    else:
        for name, objective in model.named_objectives.items():
            network: Any = model.objectives[name]
            if isinstance(objective, MaskedLanguageModeling) and "generator" not in network:
                outputs["mlm"] = _mlm_everywhere(network.head, output.last, model)
            elif isinstance(objective, ReplacedTokenDetection):
                outputs["rtd"] = network.head(output.last)
            elif isinstance(objective, SentenceOrder):
                assert output.pooled is not None, name
                outputs["sentence"] = network.head(output.pooled)
    return _real(outputs, batch)


@torch.no_grad()
def generator_outputs(model: Pretrainer, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Everything that the generator in one of our models computes."""
    mlm: Any = model.objectives["mlm"]
    states = list(mlm.generator.states(**batch, lender=model.encoder.embedding))
    last = mlm.generator.read_out(states[-1]).last
    outputs = {f"hidden {i}": state for i, state in enumerate((*states[:-1], last))}
    return _real({**outputs, "mlm": _mlm_everywhere(mlm.head, last, model, mlm.generator)}, batch)


def _mlm_everywhere(
    head: torch.nn.Module, last: Tensor, model: Pretrainer, reader: Encoder | None = None
) -> Tensor:
    logits: Tensor = head(
        last, model.encoder.embedding.word.weight, (reader or model.encoder).embedding.map
    )
    return logits


def _real(outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> dict[str, Tensor]:
    mask = batch["attention_mask"].bool()[..., None]
    return {name: tensor * mask if tensor.ndim == 3 else tensor for name, tensor in outputs.items()}


def assert_equal_outputs(
    first: dict[str, Tensor], second: dict[str, Tensor], ignore: tuple[str, ...] = ()
) -> None:
    """Same outputs, each within the tolerance in every number."""
    assert first.keys() - set(ignore) == second.keys() - set(ignore)
    for name in first.keys() - set(ignore):
        assert first[name].shape == second[name].shape, name
        assert first[name].abs().max() > 0.01, f"{name} is all but zero and proves nothing"
        worst = float((first[name] - second[name]).abs().max())
        assert worst <= TOLERANCE, f"{name} differs by {worst}"
