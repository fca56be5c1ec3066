"""The presets of fine-tuning: the hyper-parameters of the papers, and ours for small encoders."""

from __future__ import annotations

from litebert.base.errors import ConfigError, nearest
from litebert.config import EncoderConfig, FinetuneConfig, ScheduleConfig, replace


def _make_preset(
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


def _make_electra_presets(rate: float, decay: float) -> dict[str, FinetuneConfig]:
    """Return ELECTRA's presets.

    Its code has no multiple choice. That is `ANY` at the length of RACE.
    """
    return {
        **dict.fromkeys(("rte", "stsb"), _make_preset(rate, 32, 128, epochs=10, layer_decay=decay)),
        **dict.fromkeys(_SQUAD, _make_preset(rate, 32, 512, epochs=2, layer_decay=decay)),
        **dict.fromkeys(_CHOICES, _make_preset(rate, 32, 512, epochs=3, layer_decay=decay)),
        ANY: _make_preset(rate, 32, 128, epochs=3, layer_decay=decay),
    }


ANY = "any"
_SQUAD = ("squad1", "squad2")
_CHOICES = ("race", "choices")
"""RACE, and multiple choice on the user's own rows. They take sequences of 512 tokens, as in ALBERT
and RoBERTa, because RACE has long articles.
"""

FINETUNE_PRESETS: dict[str, dict[str, FinetuneConfig]] = {
    # ALBERT table 14, for version 2: RACE at 1e-5 without dropout, as the table's setting diverges
    # for it (README).
    "albert": {
        "cola": _make_preset(1e-5, 16, 512, steps=5336, warmup=320, dropout=0.0),
        "stsb": _make_preset(2e-5, 16, 512, steps=3598, warmup=214, dropout=0.0),
        "sst2": _make_preset(1e-5, 32, 512, steps=20935, warmup=1256, dropout=0.0),
        "mnli": _make_preset(3e-5, 128, 512, steps=10000, warmup=1000, dropout=0.0),
        "qnli": _make_preset(1e-5, 32, 512, steps=33112, warmup=1986, dropout=0.0),
        "qqp": _make_preset(5e-5, 128, 512, steps=14000, warmup=1000, dropout=0.1),
        "rte": _make_preset(3e-5, 32, 512, steps=800, warmup=200, dropout=0.1),
        "mrpc": _make_preset(2e-5, 32, 512, steps=800, warmup=200, dropout=0.0),
        "wnli": _make_preset(2e-5, 16, 512, steps=2000, warmup=250, dropout=0.1),
        "squad1": _make_preset(5e-5, 48, 384, steps=3649, warmup=365, dropout=0.0),
        "squad2": _make_preset(3e-5, 48, 512, steps=8144, warmup=814, dropout=0.0),
        "race": _make_preset(1e-5, 32, 512, steps=12000, warmup=1000, dropout=0.0),
        # As BERT's, for texts are learned from dropout.
        "texts": _make_preset(3e-5, 64, 128, epochs=1),
        ANY: _make_preset(2e-5, 32, 512, dropout=0.0),
    },
    # BERT appendix A.3 (the middle of its grid), and run_squad.py. Choices: the same grid, for the
    # paper has no RACE.
    "bert": {
        "squad1": _make_preset(5e-5, 32, 384, epochs=3),
        "squad2": _make_preset(5e-5, 48, 384, epochs=2),
        # SimCSE, appendix A, for texts alone.
        **dict.fromkeys(("pairs", "texts"), _make_preset(3e-5, 64, 128, epochs=1)),
        **dict.fromkeys(_CHOICES, _make_preset(3e-5, 32, 512, epochs=3)),
        ANY: _make_preset(3e-5, 32, 128, epochs=3),
    },
    # RoBERTa table 10.
    "roberta": {
        **dict.fromkeys(_SQUAD, _make_preset(1.5e-5, 48, 512, epochs=2, warmup=0.06)),
        "race": _make_preset(1e-5, 16, 512, epochs=4, warmup=0.06, weight_decay=0.1),
        ANY: _make_preset(2e-5, 32, 512, epochs=10, warmup=0.06, weight_decay=0.1),
    },
    # ELECTRA's configure_finetuning.py: small and base, and large.
    "electra": _make_electra_presets(1e-4, 0.8),
    "electra-large": _make_electra_presets(5e-5, 0.9),
    # SpanBERT appendix B (the middle of its grid). Choices: as its questions, for the paper has no
    # RACE.
    "spanbert": {
        "cola": _make_preset(2e-5, 32, 128, epochs=4),
        **dict.fromkeys((*_SQUAD, *_CHOICES), _make_preset(2e-5, 32, 512, epochs=4)),
        ANY: _make_preset(2e-5, 32, 128, epochs=10),
    },
    # Ours, for encoders of H up to 256 that trained in hours: smaller nets take larger rates
    # (docs/decisions.md).
    "small": {
        "race": _make_preset(5e-4, 16, 256, epochs=3),
        "pairs": _make_preset(3e-4, 64, 128, epochs=1),
        "texts": _make_preset(2e-3, 128, 128, epochs=1, deletion=0.6),  # docs/reports/results.md
        "taught": _make_preset(3e-3, 128, 128, epochs=2),  # docs/reports/results.md
        **dict.fromkeys(_SQUAD, _make_preset(1e-3, 32, 256, epochs=3)),
        ANY: FinetuneConfig(),
    },
}
"""Recipes of fine-tuning by name and task. `any` stands for every other task, `texts` for
--task pairs on texts alone, and `taught` for --task pairs with a teacher.
"""


def choose_preset_name(encoder: EncoderConfig, dense: str | None = None) -> str:
    """Choose the preset of an encoder where none is named.

    It is ours for a small encoder, else that of the paper that the encoder resembles.

    Args:
        dense: activation of the dense layer in its classifiers, as in `LoadedModel.dense`; gelu is
            ELECTRA's.
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


def choose_default_preset(encoder: EncoderConfig, dense: str | None, task: str) -> FinetuneConfig:
    """Return the hyper-parameters where no preset is named.

    They are those of `choose_preset_name`, with None for what a run chooses by itself. Sentence
    vectors (`pairs`, `texts`, `taught`) choose nothing, for their loss says little about the rate.

    Args:
        task: the key of its preset, as in `Task.point`.
    """
    preset = finetune_preset(choose_preset_name(encoder, dense), task)
    if task in ("pairs", "texts", "taught"):
        return preset
    preset = share_warmup(preset)
    optimizer = replace(preset.train.optimizer, learning_rate=None)
    train = replace(preset.train, batch=None, optimizer=optimizer)
    return replace(
        preset, length=None, epochs=None, steps=0, head_reads=None, fit_head=None, train=train
    )


def share_warmup(preset: FinetuneConfig) -> FinetuneConfig:
    """Turn the warm-up of a number of steps, as in a paper, into a share of the steps."""
    schedule = preset.train.schedule
    if not preset.steps or schedule.warmup < 1:
        return preset
    schedule = replace(schedule, warmup=schedule.warmup / preset.steps)
    return replace(preset, train=replace(preset.train, schedule=schedule))


def finetune_preset(name: str, task: str) -> FinetuneConfig:
    if name not in FINETUNE_PRESETS:
        raise ConfigError(f"no preset is called '{name}'; {nearest(name, FINETUNE_PRESETS)}")
    return FINETUNE_PRESETS[name].get(task, FINETUNE_PRESETS[name][ANY])
