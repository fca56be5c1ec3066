"""albert-next: the shared-weights encoder that measurement found best in a given time (docs/speedrun.md).

The block is that of the small recipes. Beside it: a first and a last layer of their own around one shared middle,
next-token prediction for the first half of the run, masks at 30 % after it, short sequences before long ones, and a
batch that follows from the budget.
"""

from __future__ import annotations

from litebert.config import (
    CausalConfig,
    Config,
    MaskingConfig,
    SequenceConfig,
    replace,
)
from litebert.recipes.small import small


def _next(name: str, hidden: int, embedding: int, layers: int, length: int, budget: str) -> Config:
    block = small(name, hidden=hidden, embedding=embedding, layers=layers, length=length, budget=budget)
    return replace(
        block,
        encoder=replace(block.encoder, own_ends=1, heads=hidden // min(64, hidden // 4)),
        sequences=SequenceConfig(length=length),
        masking=MaskingConfig(rate=0.3, unit="word", span="ngram", max_span=3, copies=0),
        objectives=("mlm", "clm", "sop"),
        clm=CausalConfig(share=0.5),
        train=replace(
            block.train,
            batch="auto",
            depth_schedule=((0.6, 2 + (layers - 2) // 4),),
            length_schedule=((0.7, length // 2),),
        ),
    )
