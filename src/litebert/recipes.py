"""THE POINTS: named configs, each a function that returns one complete `Config`.

The papers' systems come as published, with the batch and budget of their tables. The small ones train in minutes on
two CPU cores and take the block that measurement prefers (docs/decisions.md). A variant is `replace(recipe(), ...)`.
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from litebert.config import (
    Config,
    EncoderConfig,
    MaskingConfig,
    OptimizerConfig,
    ScheduleConfig,
    SequenceConfig,
    TrainConfig,
    from_dict,
    replace,
)
from litebert.errors import ConfigError, nearest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# ---- ALBERT: Lan et al. 2020, tables 1 and 14, and the official version 2 configurations ---------------------------


def _albert(name: str, hidden: int, layers: int, heads: int, dropout: float) -> Config:
    return Config(
        name=name,
        encoder=EncoderConfig(
            embedding_size=128,
            hidden_size=hidden,
            layers=layers,
            heads=heads,
            intermediate_size=4 * hidden,
            sharing="all",
            activation="gelu_tanh",
            hidden_dropout=dropout,
            attention_dropout=dropout,
        ),
        sequences=SequenceConfig(length=512),
        masking=MaskingConfig(unit="word", span="ngram", max_span=3, copies=0),
        objectives=("mlm", "sop"),
        train=TrainConfig(
            budget="125000 steps",
            batch="4096 sequences",
            micro_batch=32,
            optimizer=OptimizerConfig(name="lamb", learning_rate=1.76e-3, bias_correction=False),
            schedule=ScheduleConfig(name="tf_linear", warmup=3125),
        ),
    )


def albert_base() -> Config:
    """ALBERT-base, version 2 (no dropout): 12 layers, H 768. 12M parameters in table 1, average 80.1 in table 2.

    litebert pretrain albert-base --data D --out R. A cluster's work: 262 G tokens at the paper's budget.
    """
    return _albert("albert-base", 768, 12, 12, dropout=0.0)


def albert_large() -> Config:
    """ALBERT-large, version 2: 24 layers, H 1024. 18M parameters in table 1, average 82.4 in table 2.

    litebert pretrain albert-large --data D --out R
    """
    return _albert("albert-large", 1024, 24, 16, dropout=0.0)


def albert_xlarge() -> Config:
    """ALBERT-xlarge, version 2: 24 layers, H 2048, 16 heads as released. 60M in table 1, average 85.5 in table 2.

    litebert pretrain albert-xlarge --data D --out R
    """
    return _albert("albert-xlarge", 2048, 24, 16, dropout=0.0)


def albert_xxlarge() -> Config:
    """ALBERT-xxlarge, version 2: 12 layers, H 4096. 235M in table 1 (222.6M exactly), average 88.7 in table 2.

    litebert pretrain albert-xxlarge --data D --out R
    """
    return _albert("albert-xxlarge", 4096, 12, 64, dropout=0.0)


def albert_base_v1() -> Config:
    """ALBERT-base, version 1: dropout 0.1. litebert pretrain albert-base-v1 --data D --out R"""
    return _albert("albert-base-v1", 768, 12, 12, dropout=0.1)


def albert_large_v1() -> Config:
    """ALBERT-large, version 1: dropout 0.1. litebert pretrain albert-large-v1 --data D --out R"""
    return _albert("albert-large-v1", 1024, 24, 16, dropout=0.1)


def albert_xlarge_v1() -> Config:
    """ALBERT-xlarge, version 1: dropout 0.1. litebert pretrain albert-xlarge-v1 --data D --out R"""
    return _albert("albert-xlarge-v1", 2048, 24, 16, dropout=0.1)


def albert_xxlarge_v1() -> Config:
    """ALBERT-xxlarge, version 1, the one size that had no dropout then either.

    litebert pretrain albert-xxlarge-v1 --data D --out R
    """
    return _albert("albert-xxlarge-v1", 4096, 12, 64, dropout=0.0)


# ---- BERT: Devlin et al. 2019, section 3 and appendix A.2 ----------------------------------------------------------


def _bert(name: str, hidden: int, layers: int, heads: int, vocab_size: int) -> Config:
    return Config(
        name=name,
        encoder=EncoderConfig(
            vocab_size=vocab_size,
            embedding_size=hidden,
            hidden_size=hidden,
            layers=layers,
            heads=heads,
            intermediate_size=4 * hidden,
            sharing="none",
            activation="gelu",
            hidden_dropout=0.1,
            attention_dropout=0.1,
        ),
        sequences=SequenceConfig(length=512),
        masking=MaskingConfig(unit="token", span="single", copies=10),
        objectives=("mlm", "nsp"),
        train=TrainConfig(
            budget="1000000 steps",
            batch="256 sequences",
            micro_batch=32,
            optimizer=OptimizerConfig(name="adamw", learning_rate=1e-4, bias_correction=False),
            schedule=ScheduleConfig(name="tf_linear", warmup=10000),
        ),
    )


def bert_base() -> Config:
    """BERT-base: 12 layers, H 768, vocabulary 30522. 110M parameters. litebert pretrain bert-base --data D --out R"""
    return _bert("bert-base", 768, 12, 12, 30522)


def bert_large() -> Config:
    """BERT-large: 24 layers, H 1024, vocabulary 30522. 340M in its paper, 335.1M exactly.

    litebert pretrain bert-large --data D --out R
    """
    return _bert("bert-large", 1024, 24, 16, 30522)


def bert_xlarge() -> Config:
    """BERT-xlarge of ALBERT's first version: 24 layers, H 2048, vocabulary 30000. 1270M parameters.

    litebert pretrain bert-xlarge --data D --out R
    """
    return _bert("bert-xlarge", 2048, 24, 32, 30000)


# ---- small ones, in minutes ----------------------------------------------------------------------------------------


def _small(name: str, hidden: int, embedding: int, layers: int, length: int, budget: str) -> Config:
    """The block that learns fastest here: pre-norm, gated, rotary, without biases; Muon; depth that grows."""
    return Config(
        name=name,
        encoder=EncoderConfig(
            vocab_size=8192,
            embedding_size=embedding,
            hidden_size=hidden,
            layers=layers,
            heads=hidden // 32,
            intermediate_size=2 * hidden,
            max_positions=512,
            sharing="all",
            positions="rotary",
            norm="pre",
            norm_eps=1e-6,
            feedforward="gated",
            bias=False,
        ),
        sequences=SequenceConfig(length=length),
        masking=MaskingConfig(unit="word", span="ngram", max_span=3, copies=0),
        objectives=("mlm", "sop"),
        train=TrainConfig(
            budget=budget,
            batch="64 sequences",
            save_every="1m",
            optimizer=OptimizerConfig(
                name="muon", learning_rate=3e-3, beta2=0.98, muon_learning_rate=0.02, weight_decay=0.01
            ),
            schedule=ScheduleConfig(name="trapezoid", warmup=0.02, cooldown=0.4),
            depth_schedule=((0.25, 1), (0.6, layers // 2)),
        ),
    )


def _unshared(albert: Config, name: str) -> Config:
    """The twin without sharing and with E = H, trained on next sentences; its layers cannot grow."""
    encoder = replace(albert.encoder, sharing="none", embedding_size=albert.encoder.hidden_size)
    train = replace(albert.train, depth_schedule=())
    masking = replace(albert.masking, unit="token", span="single", copies=10)
    return replace(albert, name=name, encoder=encoder, masking=masking, objectives=("mlm", "nsp"), train=train)


def albert_tiny() -> Config:
    """ALBERT-tiny: 6 shared layers, H 128, E 64, for five minutes on two CPU cores.

    litebert pretrain albert-tiny --data D --out R --budget 5m
    """
    return _small("albert-tiny", hidden=128, embedding=64, layers=6, length=64, budget="5m")


def albert_mini() -> Config:
    """ALBERT-mini: 8 shared layers, H 256, E 128, for an hour on two CPU cores.

    litebert pretrain albert-mini --data D --out R --budget 1h
    """
    return _small("albert-mini", hidden=256, embedding=128, layers=8, length=128, budget="1h")


def bert_tiny() -> Config:
    """BERT of albert-tiny's shape: layers of their own, E = H. litebert pretrain bert-tiny --data D --out R"""
    return _unshared(albert_tiny(), "bert-tiny")


def bert_mini() -> Config:
    """BERT of albert-mini's shape: layers of their own, E = H. litebert pretrain bert-mini --data D --out R"""
    return _unshared(albert_mini(), "bert-mini")


RECIPES: dict[str, Callable[[], Config]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        albert_tiny, albert_mini, albert_base, albert_large, albert_xlarge, albert_xxlarge,
        albert_base_v1, albert_large_v1, albert_xlarge_v1, albert_xxlarge_v1,
        bert_tiny, bert_mini, bert_base, bert_large, bert_xlarge,
    )
}  # fmt: skip

PUBLISHED: dict[str, tuple[str, str]] = {
    "albert-base": ("12M", "ALBERT table 1"),
    "albert-large": ("18M", "ALBERT table 1"),
    "albert-xlarge": ("60M", "ALBERT table 1"),
    "albert-xxlarge": ("235M", "ALBERT table 1; its section 3.2 says 233M"),
    "bert-base": ("110M", "BERT section 3; ALBERT table 1 says 108M with its vocabulary of 30000"),
    "bert-large": ("340M", "BERT section 3; ALBERT table 1 says 334M with its vocabulary of 30000"),
    "bert-xlarge": ("1270M", "ALBERT's first version, table 1"),
}
"""Parameters as the papers print them, and where."""


def recipe(name: str, seen: tuple[Path, ...] = ()) -> Config:
    """The config a name stands for: a recipe, a TOML or JSON file, or `file.py:function`.

    A file gives every field it wants to set; `base = "RECIPE"` at its top starts from a recipe.

    Raises:
        ConfigError: no such recipe or file, or a field outside the space.
    """
    if name in RECIPES:
        return RECIPES[name]()
    path, _, function = name.partition(":")
    if path.endswith(".py"):
        return _from_python(Path(path), function)
    if path.endswith((".toml", ".json")):
        return _from_file(Path(name), seen)
    raise ConfigError(f"no recipe is called '{name}'; {nearest(name, RECIPES)}")


def names_recipe(word: str) -> bool:
    """Whether a word has the form of what `recipe` takes."""
    return word in RECIPES or word.endswith((".toml", ".json")) or ".py:" in word


def _from_file(path: Path, seen: tuple[Path, ...]) -> Config:
    if path.resolve() in seen:
        raise ConfigError(f"recipe file {path} is its own base; base it on a recipe's name or another file")
    try:
        text = path.read_text(encoding="utf-8")
        data: Any = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise ConfigError(f"recipe file {path} cannot be read: {error.strerror}") from None
    except ValueError as error:  # both decoders name the line
        raise ConfigError(f"recipe file {path} is not valid {path.suffix[1:].upper()}: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"recipe file {path} must hold a table of fields")
    base = Config(name=path.stem)
    if "base" in data:
        name = str(data.pop("base"))
        beside = path.parent / name.partition(":")[0]  # files are named as seen from this one
        base = recipe(str(path.parent / name) if beside.is_file() else name, (*seen, path.resolve()))
    data.setdefault("name", path.stem)
    try:
        return from_dict(Config, data, base=base)
    except ConfigError as error:
        raise ConfigError(f"recipe file {path}: {error}") from None


def _from_python(path: Path, function: str) -> Config:
    if not path.is_file():
        raise ConfigError(f"recipe file {path} does not exist")
    try:
        namespace = runpy.run_path(str(path))
    except Exception as error:
        raise ConfigError(f"recipe file {path} cannot be run: {type(error).__name__}: {error}") from error
    if not callable(namespace.get(function)):
        names = [name for name, value in namespace.items() if callable(value) and not name.startswith("_")]
        raise ConfigError(f"recipe file {path} has no function '{function}'; {nearest(function, names)}")
    try:
        config = namespace[function]()
    except Exception as error:
        raise ConfigError(f"{path}:{function} fails: {type(error).__name__}: {error}") from error
    if not isinstance(config, Config):
        raise ConfigError(f"{path}:{function} returned {type(config).__name__}; it must return a litebert Config")
    return config
