"""The papers' systems as published, with the batch and budget of their tables."""

from __future__ import annotations

from litebert.config import (
    Config,
    EncoderConfig,
    MaskingConfig,
    OptimizerConfig,
    ReplacedTokenConfig,
    ScheduleConfig,
    SequenceConfig,
    TrainConfig,
    replace,
)

# -------------- ALBERT: Lan et al. 2020, tables 1 and 14, and the official version 2 configurations


def _make_albert(name: str, hidden: int, layers: int, heads: int, dropout: float) -> Config:
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
    """ALBERT-base, version 2 (no dropout): 12 layers, H 768. 12M parameters, average 80.1 (tables
    1, 2).

    litebert pretrain albert-base --shards D --out R. A cluster's work: 262 G tokens at the paper's
    budget.
    """
    return _make_albert("albert-base", 768, 12, 12, dropout=0.0)


def albert_large() -> Config:
    """ALBERT-large, version 2: 24 layers, H 1024. 18M parameters in table 1, average 82.4 in table
    2.

    litebert pretrain albert-large --shards D --out R
    """
    return _make_albert("albert-large", 1024, 24, 16, dropout=0.0)


def albert_xlarge() -> Config:
    """ALBERT-xlarge, version 2: 24 layers, H 2048, 16 heads as released. 60M in table 1, average
    85.5 in table 2.

    litebert pretrain albert-xlarge --shards D --out R
    """
    return _make_albert("albert-xlarge", 2048, 24, 16, dropout=0.0)


def albert_xxlarge() -> Config:
    """ALBERT-xxlarge, version 2: 12 layers, H 4096. 235M in table 1 (222.6M exactly), average 88.7
    in table 2.

    litebert pretrain albert-xxlarge --shards D --out R
    """
    return _make_albert("albert-xxlarge", 4096, 12, 64, dropout=0.0)


def albert_base_v1() -> Config:
    """ALBERT-base, version 1: dropout 0.1. litebert pretrain albert-base-v1 --shards D --out R"""
    return _make_albert("albert-base-v1", 768, 12, 12, dropout=0.1)


def albert_large_v1() -> Config:
    """ALBERT-large, version 1: dropout 0.1. litebert pretrain albert-large-v1 --shards D --out R"""
    return _make_albert("albert-large-v1", 1024, 24, 16, dropout=0.1)


def albert_xlarge_v1() -> Config:
    """ALBERT-xlarge, version 1: dropout 0.1.

    litebert pretrain albert-xlarge-v1 --shards D --out R
    """
    return _make_albert("albert-xlarge-v1", 2048, 24, 16, dropout=0.1)


def albert_xxlarge_v1() -> Config:
    """ALBERT-xxlarge, version 1, which had no dropout either.

    litebert pretrain albert-xxlarge-v1 --shards D --out R
    """
    return _make_albert("albert-xxlarge-v1", 4096, 12, 64, dropout=0.0)


# --------------------------------------------- BERT: Devlin et al. 2019, section 3 and appendix A.2


def _make_encoder(hidden: int, layers: int, heads: int, vocab_size: int) -> EncoderConfig:
    return EncoderConfig(
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
    )


def _make_bert(name: str, hidden: int, layers: int, heads: int, vocab_size: int) -> Config:
    return Config(
        name=name,
        encoder=_make_encoder(hidden, layers, heads, vocab_size),
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
    """BERT-base: 12 layers, H 768, vocabulary 30522. 110M parameters.

    litebert pretrain bert-base --shards D --out R
    """
    return _make_bert("bert-base", 768, 12, 12, 30522)


def bert_large() -> Config:
    """BERT-large: 24 layers, H 1024, vocabulary 30522. 340M in its paper, 335.1M exactly.

    litebert pretrain bert-large --shards D --out R
    """
    return _make_bert("bert-large", 1024, 24, 16, 30522)


def bert_xlarge() -> Config:
    """BERT-xlarge of ALBERT's first version: 24 layers, H 2048, vocabulary 30000. 1270M parameters.

    litebert pretrain bert-xlarge --shards D --out R
    """
    return _make_bert("bert-xlarge", 2048, 24, 32, 30000)


# ---------------------------------------------------------------- RoBERTa: Liu et al. 2019, table 9


def _make_roberta(
    name: str, hidden: int, layers: int, heads: int, learning_rate: float, warmup: int
) -> Config:
    encoder = _make_encoder(hidden, layers, heads, vocab_size=50265)
    return Config(
        name=name,
        encoder=replace(
            encoder, position_offset=2, segment_types=1, pooler=False, norm_eps=1e-5, init="normal"
        ),
        sequences=SequenceConfig(format="full-sentences", length=512, short_probability=0.0),
        masking=MaskingConfig(unit="token", span="single", copies=0),
        objectives=("mlm",),
        train=TrainConfig(
            budget="500000 steps",
            batch="8192 sequences",
            micro_batch=32,
            clip=0.0,
            optimizer=OptimizerConfig(name="adamw", learning_rate=learning_rate, beta2=0.98),
            schedule=ScheduleConfig(name="linear", warmup=warmup),
        ),
    )


def roberta_base() -> Config:
    """RoBERTa-base: 12 layers, H 768, byte-level BPE of 50265. 125M parameters in its code; GLUE
    figures in table 8.

    litebert pretrain roberta-base --shards D --out R
    """
    return _make_roberta("roberta-base", 768, 12, 12, 6e-4, 24000)


def roberta_large() -> Config:
    """RoBERTa-large: 24 layers, H 1024. 355M parameters; SQuAD 1.1 / 2.0 F1 94.6 / 89.4 in table 4.

    litebert pretrain roberta-large --shards D --out R
    """
    return _make_roberta("roberta-large", 1024, 24, 16, 4e-4, 30000)


# --------------------------------------- ELECTRA: Clark et al. 2020, table 6, and the official code


def _make_electra(
    name: str,
    encoder: EncoderConfig,
    length: int,
    mask_rate: float,
    width: float,
    steps: int,
    batch: int,
    rate: float,
) -> Config:
    return Config(
        name=name,
        encoder=replace(encoder, pooler=False),
        sequences=SequenceConfig(length=length, short_probability=0.05),
        # As in the code: 15% of what is predicted stays in sight. The paper (section 3.1) masks
        # all of it.
        masking=MaskingConfig(
            rate=mask_rate, unit="token", span="single", replace_mask=0.85, replace_random=0.0
        ),
        objectives=("mlm", "rtd"),
        rtd=ReplacedTokenConfig(generator_width=width),
        train=TrainConfig(
            budget=f"{steps} steps",
            batch=f"{batch} sequences",
            micro_batch=32,
            optimizer=OptimizerConfig(learning_rate=rate, bias_correction=False),
            schedule=ScheduleConfig(name="product_linear", warmup=10000),
        ),
    )


def electra_small() -> Config:
    """ELECTRA-small: 12 layers, H 256, E 128, generator 1/4 (released: 1). 14M parameters, GLUE
    79.9 in table 1.

    litebert pretrain electra-small --shards D --out R
    """
    encoder = replace(_make_encoder(256, 12, 4, 30522), embedding_size=128)
    return _make_electra(
        "electra-small", encoder, 128, 0.15, width=1 / 4, steps=1_000_000, batch=128, rate=5e-4
    )


def electra_base() -> Config:
    """ELECTRA-base: 12 layers, H 768, generator 1/3. 110M parameters, GLUE 85.1 in table 1.

    litebert pretrain electra-base --shards D --out R
    """
    encoder = _make_encoder(768, 12, 12, 30522)
    return _make_electra(
        "electra-base", encoder, 512, 0.15, width=1 / 3, steps=766_000, batch=256, rate=2e-4
    )


def electra_large() -> Config:
    """ELECTRA-large: 24 layers, H 1024, generator 1/4, 25% masked. 335M parameters, GLUE 89.0 in
    table 2.

    litebert pretrain electra-large --shards D --out R. Table 2's best ran --budget "1750000 steps".
    """
    encoder = _make_encoder(1024, 24, 16, 30522)
    return _make_electra(
        "electra-large", encoder, 512, 0.25, width=1 / 4, steps=400_000, batch=2048, rate=2e-4
    )


# -------------------------------------------------- SpanBERT: Joshi et al. 2020, sections 3 and 4.2

SPANS = MaskingConfig(
    unit="word", span="geometric", max_span=10, geometric_p=0.2, replace_per="span"
)
"""SpanBERT section 3.1."""


def _make_spanbert(name: str, bert: Config) -> Config:
    return replace(
        bert,
        name=name,
        encoder=replace(bert.encoder, vocab_size=28996, pooler=False, init="normal"),
        sequences=SequenceConfig(format="doc-sentences", length=512, short_probability=0.0),
        masking=SPANS,
        objectives=("mlm", "sbo"),
        train=replace(
            bert.train,
            budget="2400000 steps",
            optimizer=OptimizerConfig(name="adamw", learning_rate=1e-4, eps=1e-8, weight_decay=0.1),
        ),
    )


def spanbert_base() -> Config:
    """SpanBERT-base: BERT-base's shape, cased vocabulary 28996. SQuAD 1.1 / 2.0 F1 92.4 / 83.6 in
    its README.

    litebert pretrain spanbert-base --shards D --out R
    """
    return _make_spanbert("spanbert-base", bert_base())


def spanbert_large() -> Config:
    """SpanBERT-large: BERT-large's shape, cased vocabulary 28996. SQuAD 1.1 / 2.0 test F1 94.6 /
    88.7 in table 1.

    litebert pretrain spanbert-large --shards D --out R
    """
    return _make_spanbert("spanbert-large", bert_large())


# --------------------------------- ModernBERT: Warner et al. 2024, table 4 and the yaml of its code


def _make_modernbert(
    name: str,
    hidden: int,
    layers: int,
    heads: int,
    inner: int,
    rate: float,
    batch: int,
    warmup: int,
) -> Config:
    """Return the main phase at 1,024 tokens.

    Its code uses StableAdamW, which clips the update instead of the gradients. Here it is AdamW
    with clipped gradients. Two things are left out: the last 300 G tokens at 8,192, for which
    --sequences.length 8192 is needed, and the growth of the batch over the first 50 G.
    """
    return Config(
        name=name,
        encoder=EncoderConfig(
            vocab_size=50368,
            embedding_size=hidden,
            hidden_size=hidden,
            layers=layers,
            heads=heads,
            intermediate_size=inner,
            sharing="none",
            max_positions=8192,
            segment_types=0,
            positions="rotary",
            rotary_base=160000.0,  # 10,000 until the phase at 8,192
            window=128,
            global_every=3,
            embedding_norm="after",
            norm="pre",
            first_norm=False,
            norm_eps=1e-5,
            feedforward="gated",
            activation="gelu",
            bias=False,
            prediction="hidden",
            pooler=False,
        ),
        sequences=SequenceConfig(format="full-sentences", length=1024, short_probability=0.0),
        masking=MaskingConfig(rate=0.3, unit="token", span="single", copies=0),
        objectives=("mlm",),
        train=TrainConfig(
            budget="1719G tokens",
            batch=f"{batch} sequences",
            micro_batch=32,
            optimizer=OptimizerConfig(
                name="adamw", learning_rate=rate, beta2=0.98, weight_decay=1e-5
            ),
            schedule=ScheduleConfig(name="trapezoid", warmup=warmup, cooldown=0.03),
        ),
    )


def modernbert_base() -> Config:
    """ModernBERT-base: 22 layers, H 768, two of three within a window of 128. 149M parameters, GLUE
    88.4 in its paper.

    litebert pretrain modernbert-base --shards D --out R
    """
    return _make_modernbert("modernbert-base", 768, 22, 12, 1152, rate=8e-4, batch=4608, warmup=636)


def modernbert_large() -> Config:
    """ModernBERT-large: 28 layers, H 1024. 395M parameters, GLUE 90.4 in its paper, where the rate
    fell to 5e-5 midway.

    litebert pretrain modernbert-large --shards D --out R
    """
    return _make_modernbert(
        "modernbert-large", 1024, 28, 16, 2624, rate=5e-4, batch=4928, warmup=396
    )


PUBLISHED: dict[str, tuple[str, str]] = {
    "albert-base": ("12M", "ALBERT table 1"),
    "albert-large": ("18M", "ALBERT table 1"),
    "albert-xlarge": ("60M", "ALBERT table 1"),
    "albert-xxlarge": ("235M", "ALBERT table 1; its section 3.2 says 233M"),
    "bert-base": ("110M", "BERT section 3; ALBERT table 1 says 108M with its vocabulary of 30000"),
    "bert-large": ("340M", "BERT section 3; ALBERT table 1 says 334M with its vocabulary of 30000"),
    "bert-xlarge": ("1270M", "ALBERT's first version, table 1"),
    "roberta-base": ("125M", "RoBERTa's code"),
    "roberta-large": ("355M", "RoBERTa's code; ELECTRA's table 2 says 356M"),
    "electra-small": ("14M", "ELECTRA table 1, of the discriminator"),
    "electra-base": ("110M", "ELECTRA table 1, of the discriminator"),
    "electra-large": ("335M", "ELECTRA table 2, of the discriminator"),
    "modernbert-base": ("149M", "ModernBERT section 2.1.3"),
    "modernbert-large": ("395M", "ModernBERT section 2.1.3"),
}
"""Parameters as the papers print them, and their source."""

HUB_NAMES: dict[str, str] = {
    "albert-base": "albert/albert-base-v2",
    "albert-large": "albert/albert-large-v2",
    "albert-xlarge": "albert/albert-xlarge-v2",
    "albert-xxlarge": "albert/albert-xxlarge-v2",
    "albert-base-v1": "albert/albert-base-v1",
    "albert-large-v1": "albert/albert-large-v1",
    "albert-xlarge-v1": "albert/albert-xlarge-v1",
    "albert-xxlarge-v1": "albert/albert-xxlarge-v1",
    "bert-base": "google-bert/bert-base-uncased",
    "bert-large": "google-bert/bert-large-uncased",
    "roberta-base": "FacebookAI/roberta-base",
    "roberta-large": "FacebookAI/roberta-large",
    "electra-small": "google/electra-small-discriminator",
    "electra-base": "google/electra-base-discriminator",
    "electra-large": "google/electra-large-discriminator",
    "spanbert-base": "SpanBERT/spanbert-base-cased",
    "spanbert-large": "SpanBERT/spanbert-large-cased",
    "modernbert-base": "answerdotai/ModernBERT-base",
    "modernbert-large": "answerdotai/ModernBERT-large",
}
"""The repository on the Hugging Face Hub with the weights that a paper's authors trained."""
