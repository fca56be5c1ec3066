"""albert-next: the shared-weights encoder that measurement found best in a given time
(docs/reports/speedrun.md).

The block and the optimizer are those of the small recipes. Masks hide single tokens, 30% of them,
depth grows in a few steps, long sequences come after short ones, and the batch follows from the
budget. What else was tried is on that page.
"""

from __future__ import annotations

from litebert.config import Config, replace
from litebert.recipes.small import make_small

STUDENT_WIDTHS = (*range(32, 512, 32), *range(512, 1025, 64))


def _make_next(
    name: str,
    hidden: int,
    embedding: int,
    layers: int,
    length: int,
    budget: str,
    rate: float = 3e-3,
) -> Config:
    block = make_small(
        name, hidden=hidden, embedding=embedding, layers=layers, length=length, budget=budget
    )
    lengths = ((0.7, length // 2),) if length > 64 else ()
    depths = ((0.4, layers // 3), (0.7, 2 * layers // 3)) if layers > 3 else ((0.3, 2),)
    optimizer = replace(block.train.optimizer, learning_rate=rate)
    return replace(
        block,
        encoder=replace(block.encoder, heads=hidden // (32 if hidden < 512 else 64)),
        masking=replace(block.masking, rate=0.3, unit="token", span="single"),
        train=replace(
            block.train,
            batch="auto",
            depth_schedule=depths,
            length_schedule=lengths,
            optimizer=optimizer,
        ),
    )


def albert_next_tiny() -> Config:
    """albert-next-tiny: 3 layers of H 128, which predict the most masked tokens after ten minutes
    on two CPU cores.

    litebert pretrain albert-next-tiny --shards D --out R --budget 10m
    """
    return _make_next(
        "albert-next-tiny", hidden=128, embedding=64, layers=3, length=64, budget="10m", rate=6e-3
    )


def albert_next_mini() -> Config:
    """albert-next-mini: 8 layers of H 192, for half an hour and more on two CPU cores.

    litebert pretrain albert-next-mini --shards D --out R --budget 30m
    """
    return _make_next(
        "albert-next-mini", hidden=192, embedding=96, layers=8, length=128, budget="30m"
    )


def albert_next_base() -> Config:
    """albert-next-base: 12 layers of H 768, for a GPU, on which we have not trained it yet.

    litebert pretrain albert-next-base --shards D --out R --budget 8h
    """
    return _make_next(
        "albert-next-base", hidden=768, embedding=192, layers=12, length=512, budget="8h"
    )


def albert_next_large() -> Config:
    """albert-next-large: 24 layers of H 1024, for a GPU, on which we have not trained it yet.

    litebert pretrain albert-next-large --shards D --out R --budget 24h
    """
    return _make_next(
        "albert-next-large", hidden=1024, embedding=192, layers=24, length=512, budget="24h"
    )


def make_student(hidden: int, vocab_size: int) -> Config:
    """Make the recipe of a student that learns a task afterwards, with a hidden size of
    `STUDENT_WIDTHS`.

    Its layers share one block, and are few, because what a student is for is speed. Text comes as
    whole sentences across documents and without sentence order, because the texts of a task are
    often single sentences.
    """
    is_narrow = hidden < 192
    config = _make_next(
        f"student-{hidden}",
        hidden=hidden,
        embedding=min(hidden // 2, 192),
        layers=3 if hidden < 512 else 8 if hidden < 768 else 12,
        length=64 if is_narrow else 128,
        budget="10m",
        rate=6e-3 if is_narrow else 3e-3,
    )
    encoder = replace(config.encoder, vocab_size=vocab_size, pooler=False)
    sequences = replace(config.sequences, format="full-sentences", short_probability=0.0)
    return replace(config, encoder=encoder, sequences=sequences, objectives=("mlm",))
