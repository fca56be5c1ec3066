"""The scores of any model: a pretrained one on held-out text, a fine-tuned one on labeled files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from litebert.answer.exits import Exit
from litebert.answer.model import Model, load
from litebert.answer.scoring import Scored, score_file
from litebert.errors import ConfigError, ModelError
from litebert.model.pretrainer import Pretrainer
from litebert.tasks.splits import Source
from litebert.train.evaluate import evaluate_pretrained


def evaluate(
    model: str | Path,
    *,
    shards: str | Path | None = None,
    data: Source | None = None,
    sequences: int = 2048,
    length: int | None = None,
    tokenizer: str | Path | None = None,
    engine: str | None = None,
    exit_confidence: Exit = "auto",
    min_precision: float | None = None,
    mistakes: int = 0,
    slice_columns: Sequence[str] = (),
    device: str = "auto",
    **options: Any,
) -> Scored:
    """Score a run folder, a litebert or Hugging Face folder, or a model on the Hub.

    Args:
        shards: for a pretrained model: a folder of `prepare`, whose held-out part is scored.
        data: for a fine-tuned model: labeled files of its task, as `score_file` reads them.
        sequences: the most held-out sequences to score.
        length: tokens per sequence; by default the length that the model was trained with.
        tokenizer: for a folder that has no tokenizer or one that cannot be read.
        engine: with `data`, what computes the answers, as in `load`.
        exit_confidence: with `data`, when texts exit the network early, as in `load`.
        min_precision: with `data`, which answers are left out, as in `load`.
        mistakes: with `data`, as in `score_file`.
        slice_columns: with `data`, as in `score_file`.
        device: auto, cpu, cuda, cuda:N, or mps on a Mac.
        options: with `data`, how the files are read, as in `score_file`.

    Raises:
        ConfigError: neither `shards` nor `data` is given, or the wrong one for this model, or a
            size or an option that cannot be.
        ModelError: the model cannot be opened, or has nothing to score.
        DataError: the shards or the files cannot be used.
    """
    if shards is not None and data is None:
        scores = evaluate_pretrained(
            model, shards, sequences=sequences, length=length, device=device, tokenizer=tokenizer
        )
        return Scored(None, scores, {})
    opened = load(
        model,
        engine=engine,
        exit_confidence=exit_confidence,
        device=device,
        tokenizer=tokenizer,
        min_precision=min_precision,
    )
    _require_fit(opened, shards, data)
    assert data is not None
    return score_file(opened, data, mistakes=mistakes, slice_columns=slice_columns, **options)


def _require_fit(model: Model, shards: str | Path | None, data: Source | None) -> None:
    """Refuse what a model is not scored on.

    Raises:
        ConfigError, ModelError: names the option that the model needs.
    """
    is_pretrained = not model.task and isinstance(model.network, Pretrainer)
    if shards is not None:
        wrong, right = ("--data", "--shards") if is_pretrained else ("--shards", "--data")
        kind = "pretrained" if is_pretrained else "fine-tuned"
        raise ConfigError(f"{model.path} is {kind}; leave {wrong} out, and give {right} alone")
    if is_pretrained and data is None:
        raise ConfigError(
            f"{model.path} is pretrained; name prepared text with --shards, or sentence pairs "
            "with --blimp"
        )
    if is_pretrained:
        raise ModelError(
            f"{model.path} is pretrained, and --data scores fine-tuned models; name prepared text "
            "with --shards, or fine-tune the model first"
        )
    if data is None:
        raise ConfigError(f"{model.path} is fine-tuned; name labeled files with --data")
