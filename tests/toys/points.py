"""Small points of the space, and batches without a corpus."""

from __future__ import annotations

from typing import Any

import torch

from litebert.config import Config, EncoderConfig, SequenceConfig
from litebert.data.batches import Batch
from litebert.data.masking import find_span_boundaries

PIECES = 50


def shape(**changes: Any) -> EncoderConfig:
    """H 16, four layers, E 8."""
    base: dict[str, Any] = {
        "vocab_size": PIECES,
        "embedding_size": 8,
        "hidden_size": 16,
        "layers": 4,
        "heads": 4,
        "intermediate_size": 24,
        "max_positions": 24,
    }
    return EncoderConfig(**{**base, **changes})


def config(objectives: tuple[str, ...] = ("mlm", "sop"), **changes: Any) -> Config:
    """The same with objectives."""
    return Config(
        name="x",
        encoder=shape(**changes),
        sequences=SequenceConfig(length=16),
        objectives=objectives,
    )


def randomize(module: torch.nn.Module, seed: int = 1, scale: float = 0.3) -> None:
    """Random parameters everywhere, so that no bias or norm is neutral."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            center = 1.0 if name.endswith("norm.weight") else 0.0
            parameter.copy_(center + scale * torch.randn(parameter.shape, generator=generator))


def batch(rows: int = 3, length: int = 16, padded: bool = True, seed: int = 2) -> Batch:
    """Random ids in two segments, a fifth of them to predict, sentence labels of which the last is
    missing.
    """
    generator = torch.Generator().manual_seed(seed)
    lengths = length - 3 * torch.arange(rows)[:, None] if padded else torch.full((rows, 1), length)
    mask = torch.arange(length) < lengths
    ids = torch.randint(5, PIECES, (rows, length), generator=generator) * mask
    positions = mask.flatten().nonzero()[:, 0]
    chosen = (
        positions[torch.randperm(len(positions), generator=generator)[: len(positions) // 5]]
        .sort()
        .values
    )
    labels = torch.arange(rows) % 2
    labels[-1] = -100
    return Batch(
        input_ids=ids,
        token_type_ids=(torch.arange(length) >= 5).long() * mask,
        attention_mask=mask if padded else None,
        masked_positions=chosen,
        masked_labels=torch.randint(5, PIECES, (len(chosen),), generator=generator),
        sentence_labels=labels,
        masked_boundaries=torch.from_numpy(find_span_boundaries(mask.numpy(), chosen.numpy())),
    )


def same_batch(first: Batch, other: Batch) -> bool:
    """Return whether two batches have the same tensors, to the bit."""
    tensors, others = (
        {
            name: value
            for name, value in {**vars(batch), **batch.added}.items()
            if torch.is_tensor(value)
        }
        for batch in (first, other)
    )
    return tensors.keys() == others.keys() and all(
        torch.equal(tensor, others[name]) for name, tensor in tensors.items()
    )
