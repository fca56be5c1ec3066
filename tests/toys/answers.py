"""Fine-tuned models with random weights, and texts for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from litebert.config import EncoderConfig
from litebert.model.task_model import TaskModel
from litebert.tokenizer import Tokenizer
from toys.folders import save_litebert

SHAPE: dict[str, Any] = {
    "embedding_size": 8,
    "hidden_size": 16,
    "layers": 2,
    "heads": 2,
    "intermediate_size": 32,
    "max_positions": 64,
    "sharing": "all",
    "always_project": True,
}


def grow(model: torch.nn.Module) -> None:
    """Make the weights large enough for answers that differ."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.4 * torch.randn(parameter.shape, generator=generator))


def made(
    folder: Path,
    tokenizer: Path,
    kind: str,
    classes: int,
    labels: tuple[str, ...] = (),
    /,
    **task: Any,
) -> Path:
    """A model folder with random weights of some size; `task` goes into its task.json."""
    words, pooler = Tokenizer.load(tokenizer), kind in ("sequence", "choice")
    encoder = EncoderConfig(vocab_size=words.vocab_size, pooler=pooler, **SHAPE)
    model = TaskModel(encoder, pooler, classes)
    grow(model)
    save_litebert(model, words, folder, labels=labels, task={"kind": kind, "length": 64, **task})
    return folder


def texts(count: int, seed: int = 7, most: int = 14) -> list[str]:
    """Texts of at most `most` words."""
    rng = np.random.default_rng(seed)
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    return [
        " ".join("".join(rng.choice(syllables, 2)) for _ in range(rng.integers(1, most + 1)))
        for _ in range(count)
    ]
