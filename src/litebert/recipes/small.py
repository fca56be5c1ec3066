"""Small recipes of every family, which train in minutes or an hour on two CPU cores.

They use the block that measurement prefers, in the form that other software computes
(docs/decisions.md).
"""

from __future__ import annotations

from litebert.config import (
    Config,
    EncoderConfig,
    MaskingConfig,
    OptimizerConfig,
    ScheduleConfig,
    SequenceConfig,
    TableConfig,
    TrainConfig,
    replace,
)
from litebert.recipes.published import SPANS


def make_small(
    name: str, hidden: int, embedding: int, layers: int, length: int, budget: str
) -> Config:
    """Return the block that learns fastest here: pre-norm, gated, rotary, without biases.

    It trains with Muon, and its depth grows. The token table starts from counts of neighboring
    tokens. ModernBERT's classes in `transformers` compute it, so all of these convert
    (docs/finetuning.md).
    """
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
            segment_types=0,
            positions="rotary",
            embedding_norm="after",
            norm="pre",
            first_norm=False,
            norm_eps=1e-6,
            feedforward="gated",
            prediction="hidden",
            bias=False,
        ),
        sequences=SequenceConfig(length=length),
        masking=MaskingConfig(unit="word", span="ngram", max_span=3, copies=0),
        objectives=("mlm", "sop"),
        table=TableConfig(start="cooccurrence"),
        train=TrainConfig(
            budget=budget,
            batch="64 sequences",
            save_every="1m",
            optimizer=OptimizerConfig(
                name="muon",
                learning_rate=3e-3,
                beta2=0.98,
                muon_learning_rate=0.02,
                weight_decay=0.01,
            ),
            schedule=ScheduleConfig(name="trapezoid", warmup=0.02, cooldown=0.4),
            depth_schedule=((0.25, 1), (0.6, layers // 2)),
        ),
    )


def _unshare(albert: Config, name: str) -> Config:
    """Return the same recipe without sharing and with E = H, trained on next sentences.

    Its depth does not grow.
    """
    encoder = replace(albert.encoder, sharing="none", embedding_size=albert.encoder.hidden_size)
    train = replace(albert.train, depth_schedule=())
    masking = replace(albert.masking, unit="token", span="single", copies=10)
    return replace(
        albert, name=name, encoder=encoder, masking=masking, objectives=("mlm", "nsp"), train=train
    )


def albert_tiny() -> Config:
    """ALBERT-tiny: 6 shared layers, H 128, E 64, for five minutes on two CPU cores.

    litebert pretrain albert-tiny --shards D --out R --budget 5m
    """
    return make_small("albert-tiny", hidden=128, embedding=64, layers=6, length=64, budget="5m")


def albert_mini() -> Config:
    """ALBERT-mini: 8 shared layers, H 256, E 128, for an hour on two CPU cores.

    litebert pretrain albert-mini --shards D --out R --budget 1h
    """
    return make_small("albert-mini", hidden=256, embedding=128, layers=8, length=128, budget="1h")


def bert_tiny() -> Config:
    """BERT of albert-tiny's shape: each layer has its own weights, E = H.

    litebert pretrain bert-tiny --shards D --out R
    """
    return _unshare(albert_tiny(), "bert-tiny")


def bert_mini() -> Config:
    """BERT of albert-mini's shape: each layer has its own weights, E = H.

    litebert pretrain bert-mini --shards D --out R
    """
    return _unshare(albert_mini(), "bert-mini")


def roberta_mini() -> Config:
    """RoBERTa of albert-mini's shape: full sentences, fresh masks.

    litebert pretrain roberta-mini --shards D --out R
    """
    bert = bert_mini()
    return replace(
        bert,
        name="roberta-mini",
        encoder=replace(bert.encoder, pooler=False),
        sequences=replace(bert.sequences, format="full-sentences", short_probability=0.0),
        masking=replace(bert.masking, copies=0),
        objectives=("mlm",),
    )


def electra_mini() -> Config:
    """ELECTRA of albert-mini's shape, with a generator of 1/4.

    litebert pretrain electra-mini --shards D --out R
    """
    bert, albert = bert_mini(), albert_mini()
    return replace(
        bert,
        name="electra-mini",
        encoder=replace(bert.encoder, embedding_size=albert.encoder.embedding_size, pooler=False),
        sequences=replace(bert.sequences, short_probability=0.05),
        masking=replace(bert.masking, copies=0, replace_mask=0.85, replace_random=0.0),
        objectives=("mlm", "rtd"),
        # Muon takes steps of one size however noisy the gradient, and that of replaced tokens is
        # (docs/decisions.md).
        train=replace(
            bert.train, optimizer=OptimizerConfig(name="adamw", learning_rate=5e-4, beta2=0.98)
        ),
    )


def spanbert_mini() -> Config:
    """SpanBERT of albert-mini's shape: spans in one document.

    litebert pretrain spanbert-mini --shards D --out R
    """
    bert = bert_mini()
    return replace(
        bert,
        name="spanbert-mini",
        encoder=replace(bert.encoder, pooler=False),
        sequences=replace(bert.sequences, format="doc-sentences", short_probability=0.0),
        masking=SPANS,
        objectives=("mlm", "sbo"),
    )
