"""Recipes: named configs, each a function that returns one complete `Config`, and those of
fine-tuning.

`published` has the papers' systems, and `small` those that train in minutes. `albert_next` has what
measurement found best in a given time. `finetuning` has the hyper-parameters of the papers. `files`
reads the user's own recipes.
"""

from __future__ import annotations

from collections.abc import Callable

from litebert.config import Config
from litebert.recipes import albert_next, published, small
from litebert.recipes.albert_next import STUDENT_WIDTHS as STUDENT_WIDTHS
from litebert.recipes.albert_next import make_student as make_student
from litebert.recipes.published import HUB_NAMES as HUB_NAMES
from litebert.recipes.published import PUBLISHED as PUBLISHED
from litebert.recipes.published import SPANS as SPANS

_FUNCTIONS: tuple[Callable[[], Config], ...] = (
    small.albert_tiny,
    small.albert_mini,
    published.albert_base,
    published.albert_large,
    published.albert_xlarge,
    published.albert_xxlarge,
    published.albert_base_v1,
    published.albert_large_v1,
    published.albert_xlarge_v1,
    published.albert_xxlarge_v1,
    small.bert_tiny,
    small.bert_mini,
    published.bert_base,
    published.bert_large,
    published.bert_xlarge,
    small.roberta_mini,
    published.roberta_base,
    published.roberta_large,
    small.electra_mini,
    published.electra_small,
    published.electra_base,
    published.electra_large,
    small.spanbert_mini,
    published.spanbert_base,
    published.spanbert_large,
    published.modernbert_base,
    published.modernbert_large,
    albert_next.albert_next_tiny,
    albert_next.albert_next_mini,
    albert_next.albert_next_base,
    albert_next.albert_next_large,
)
RECIPES = {function.__name__.replace("_", "-"): function for function in _FUNCTIONS}


def __getattr__(name: str) -> Callable[[], Config]:
    """Return the function of a recipe, so that it can be imported from here too."""
    if name.replace("_", "-") not in RECIPES:
        raise AttributeError(f"module 'litebert.recipes' has no attribute '{name}'")
    return RECIPES[name.replace("_", "-")]
