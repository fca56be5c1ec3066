"""THE POINTS: named configs, each a function that returns one complete `Config`; and points of fine-tuning.

`published` has the papers' systems, `small` those that train in minutes, `finetuning` what the papers fine-tune with,
`files` reads recipes of your own.
"""

from __future__ import annotations

from collections.abc import Callable

from litebert.config import Config
from litebert.recipes.published import PUBLISHED as PUBLISHED
from litebert.recipes.published import SPANS as SPANS
from litebert.recipes.published import (
    albert_base,
    albert_base_v1,
    albert_large,
    albert_large_v1,
    albert_xlarge,
    albert_xlarge_v1,
    albert_xxlarge,
    albert_xxlarge_v1,
    bert_base,
    bert_large,
    bert_xlarge,
    electra_base,
    electra_large,
    electra_small,
    roberta_base,
    roberta_large,
    spanbert_base,
    spanbert_large,
)
from litebert.recipes.small import (
    albert_mini,
    albert_tiny,
    bert_mini,
    bert_tiny,
    electra_mini,
    roberta_mini,
    spanbert_mini,
)

RECIPES: dict[str, Callable[[], Config]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        albert_tiny, albert_mini, albert_base, albert_large, albert_xlarge, albert_xxlarge,
        albert_base_v1, albert_large_v1, albert_xlarge_v1, albert_xxlarge_v1,
        bert_tiny, bert_mini, bert_base, bert_large, bert_xlarge,
        roberta_mini, roberta_base, roberta_large,
        electra_mini, electra_small, electra_base, electra_large,
        spanbert_mini, spanbert_base, spanbert_large,
    )
}  # fmt: skip
