"""The points of fine-tuning: the hyper-parameters that the papers give, and ours for small
encoders.
"""

from __future__ import annotations

from typing import get_args

from litebert.config import EncoderConfig, FinetuneConfig, ScheduleConfig, replace
from litebert.config.finetuning import Choice
from litebert.errors import ConfigError, nearest


def _point(
    learning_rate: float,
    batch: int,
    length: int,
    *,
    steps: int = 0,
    epochs: float = 3.0,
    warmup: float = 0.1,
    dropout: float = -1.0,
    deletion: float = 0.0,
    weight_decay: float = 0.01,
    layer_decay: float = 1.0,
) -> FinetuneConfig:
    base = FinetuneConfig().train
    optimizer = replace(base.optimizer, learning_rate=learning_rate, weight_decay=weight_decay)
    schedule = ScheduleConfig(name="linear", warmup=warmup)
    train = replace(base, batch=f"{batch} sequences", optimizer=optimizer, schedule=schedule)
    return FinetuneConfig(
        length=length,
        steps=steps,
        epochs=epochs,
        dropout=dropout,
        deletion=deletion,
        layer_decay=layer_decay,
        train=train,
    )


def _decayed(rate: float, decay: float) -> dict[str, FinetuneConfig]:
    """ELECTRA's points. Its code has no multiple choice: that is `ANY` at the length of RACE."""
    return {
        **dict.fromkeys(("rte", "stsb"), _point(rate, 32, 128, epochs=10, layer_decay=decay)),
        **dict.fromkeys(_SQUAD, _point(rate, 32, 512, epochs=2, layer_decay=decay)),
        **dict.fromkeys(_CHOICES, _point(rate, 32, 512, epochs=3, layer_decay=decay)),
        ANY: _point(rate, 32, 128, epochs=3, layer_decay=decay),
    }


ANY = "any"
_SQUAD = ("squad1", "squad2")
_CHOICES = ("race", "choices")
"""RACE, and choices of your own: in rows of 512 tokens, as ALBERT and RoBERTa learn RACE, for its
articles are long.
"""

POINTS: dict[str, dict[str, FinetuneConfig]] = {
    # ALBERT table 14, for version 2: RACE at 1e-5 without dropout, as the table's setting diverges
    # for it (README).
    "albert": {
        "cola": _point(1e-5, 16, 512, steps=5336, warmup=320, dropout=0.0),
        "stsb": _point(2e-5, 16, 512, steps=3598, warmup=214, dropout=0.0),
        "sst2": _point(1e-5, 32, 512, steps=20935, warmup=1256, dropout=0.0),
        "mnli": _point(3e-5, 128, 512, steps=10000, warmup=1000, dropout=0.0),
        "qnli": _point(1e-5, 32, 512, steps=33112, warmup=1986, dropout=0.0),
        "qqp": _point(5e-5, 128, 512, steps=14000, warmup=1000, dropout=0.1),
        "rte": _point(3e-5, 32, 512, steps=800, warmup=200, dropout=0.1),
        "mrpc": _point(2e-5, 32, 512, steps=800, warmup=200, dropout=0.0),
        "wnli": _point(2e-5, 16, 512, steps=2000, warmup=250, dropout=0.1),
        "squad1": _point(5e-5, 48, 384, steps=3649, warmup=365, dropout=0.0),
        "squad2": _point(3e-5, 48, 512, steps=8144, warmup=814, dropout=0.0),
        "race": _point(1e-5, 32, 512, steps=12000, warmup=1000, dropout=0.0),
        "texts": _point(3e-5, 64, 128, epochs=1),  # as bert's: they are learned from dropout
        ANY: _point(2e-5, 32, 512, dropout=0.0),
    },
    # BERT appendix A.3 (the middle of its grid), and run_squad.py. Choices: the same grid, for the
    # paper has no RACE.
    "bert": {
        "squad1": _point(5e-5, 32, 384, epochs=3),
        "squad2": _point(5e-5, 48, 384, epochs=2),
        **dict.fromkeys(
            ("pairs", "texts"), _point(3e-5, 64, 128, epochs=1)
        ),  # SimCSE, appendix A: texts alone
        **dict.fromkeys(_CHOICES, _point(3e-5, 32, 512, epochs=3)),
        ANY: _point(3e-5, 32, 128, epochs=3),
    },
    # RoBERTa table 10.
    "roberta": {
        **dict.fromkeys(_SQUAD, _point(1.5e-5, 48, 512, epochs=2, warmup=0.06)),
        "race": _point(1e-5, 16, 512, epochs=4, warmup=0.06, weight_decay=0.1),
        ANY: _point(2e-5, 32, 512, epochs=10, warmup=0.06, weight_decay=0.1),
    },
    # ELECTRA's configure_finetuning.py: small and base, and large.
    "electra": _decayed(1e-4, 0.8),
    "electra-large": _decayed(5e-5, 0.9),
    # SpanBERT appendix B (the middle of its grid). Choices: as its questions, for the paper has no
    # RACE.
    "spanbert": {
        "cola": _point(2e-5, 32, 128, epochs=4),
        **dict.fromkeys((*_SQUAD, *_CHOICES), _point(2e-5, 32, 512, epochs=4)),
        ANY: _point(2e-5, 32, 128, epochs=10),
    },
    # Ours, for encoders of H up to 256 that trained in hours: smaller nets take larger rates
    # (docs/decisions.md).
    "small": {
        "race": _point(5e-4, 16, 256, epochs=3),
        "pairs": _point(3e-4, 64, 128, epochs=1),
        "texts": _point(2e-3, 128, 128, epochs=1, deletion=0.6),  # docs/results.md
        **dict.fromkeys(_SQUAD, _point(1e-3, 32, 256, epochs=3)),
        ANY: FinetuneConfig(),
    },
}
"""By recipe and task; `any` stands for every other task, and `texts` for --task pairs on texts
alone.
"""


def default_recipe_for(encoder: EncoderConfig, dense: str | None = None) -> str:
    """The recipe for an encoder where none is asked for: ours for a small one, else that of the
    paper it resembles.

    Args:
        dense: the activation of the dense map its classifiers have, as `LoadedModel.dense` says;
            gelu is ELECTRA's.
    """
    if encoder.hidden_size <= 256 and encoder.layers <= 8:
        return "small"
    if encoder.sharing != "none":
        return "albert"
    if encoder.position_offset:
        return "roberta"
    if dense == "gelu":
        return "electra-large" if encoder.hidden_size >= 1024 else "electra"
    return "bert"


def default_point(encoder: EncoderConfig, dense: str | None, task: str) -> FinetuneConfig:
    """The hyper-parameters where no recipe is named: those of `default_recipe_for`, with what a run
    chooses itself.

    Sentence vectors (`pairs`, `texts`) choose nothing, for their loss says little about the rate.

    Args:
        task: its point, as `Task.point` names it.
    """
    point = finetune_recipe(default_recipe_for(encoder, dense), task)
    return point if task in ("pairs", "texts") else replace(point, choose=get_args(Choice))


def finetune_recipe(name: str, task: str) -> FinetuneConfig:
    """The hyper-parameters a recipe gives a task.

    Raises:
        ConfigError: there is no such recipe.
    """
    if name not in POINTS:
        raise ConfigError(f"no fine-tuning recipe is called '{name}'; {nearest(name, POINTS)}")
    return POINTS[name].get(task, POINTS[name][ANY])
