"""The studies by their names: the papers' comparisons, and your own from a file.

A comparison of a paper is a function from the base config to a `Study`, with the figures that the
paper prints. They are scores of much larger models on other data, so only signs can be compared.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

from litebert.base.errors import ConfigError, LitebertError, nearest, require
from litebert.config import Config, TableConfig, replace
from litebert.config.serialization import from_dict
from litebert.recipes.files import load_function, read_base, recipe
from litebert.recipes.published import SPANS
from litebert.studies.study import PRIMARY, Equal, Published, Scale, Study, make_base_config, vary

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

AVERAGE = "average of five tasks"
WITH_ACCURACY: dict[str, Any] = {
    "scores": ("mlm_loss", "mlm_accuracy"),
    "unjudged": ("mlm_accuracy",),
}
"""The scores of a study that shows the accuracy beside the loss, which decides."""


def sharing(base: Config) -> Study:
    """Share all, some or no weights across layers (ALBERT, table 4).

    There are twelve layers at least, because depth is what is shared.
    """
    kinds = {"all": "all", "attention": "attention", "feed-forward": "feedforward", "none": "none"}
    layers = max(12, base.encoder.layers)
    return Study(
        "What does sharing parameters across layers cost, and which part of it?",
        {
            name: vary(base, encoder={"sharing": kind, "layers": layers})
            for name, kind in kinds.items()
        },
        baseline="none",  # so that the cost of each part is a difference that the study plans
        finding="Sharing the feed-forward block costs 1.4 points; sharing attention costs none.",
        naming=(
            "Each name says which weights the layers share. With 'attention', only the attention "
            "weights are shared, and each layer has its own feed-forward weights. With "
            "'feed-forward', only the feed-forward weights are shared. With 'all', both are "
            "shared, and with 'none', neither."
        ),
        paper=Published.of(
            "ALBERT, table 4 (E 128)",
            AVERAGE,
            {"all": "80.1", "attention": "81.7", "feed-forward": "80.2", "none": "81.6"},
        ),
    )


def embedding(base: Config) -> Study:
    """Vary the embedding size of a network that shares its layers (ALBERT, table 3)."""
    hidden = base.encoder.hidden_size
    printed = {hidden // 8: "79.0", hidden // 4: "80.1", hidden // 2: "79.6", hidden: "79.8"}
    *first, last = printed
    return Study(
        "How wide must the embeddings be when all layers share one block?",
        {f"E {size}": vary(base, encoder={"embedding_size": size}) for size in printed},
        baseline=f"E {hidden // 4}",
        finding="E 128 is best: half of it loses 1.1 points, and more of it gains none.",
        naming=(
            f"E is the embedding size. Here {', '.join(map(str, first))} and {last} stand for the "
            f"paper's 64, 128, 256 and 768. The hidden size is {hidden} here, and 768 in the paper."
        ),
        paper=Published.of(
            "ALBERT, table 3 (E 64, 128, 256, 768, shared)",
            AVERAGE,
            {f"E {size}": figure for size, figure in printed.items()},
        ),
    )


def order(base: Config) -> Study:
    """Vary the sentence objective, and score each on both sentence tasks (ALBERT, table 5)."""
    printed = {
        "none": ("54.9", "52.4", "53.3", "79.0"),
        "NSP": ("54.5", "90.5", "52.0", "79.2"),
        "SOP": ("54.0", "78.9", "86.5", "80.1"),
    }
    kinds = {"none": ["mlm"], "NSP": ["mlm", "nsp"], "SOP": ["mlm", "sop"]}
    # Sentence order is learned after millions of tokens, or after half as many from this table.
    base = replace(base, table=TableConfig(start="cooccurrence"))
    return Study(
        "What does a model learn from next sentences, from sentence order, and from neither?",
        {name: vary(base, objectives=objectives) for name, objectives in kinds.items()},
        baseline="none",
        scores=("sop_accuracy", "nsp_accuracy", "mlm_accuracy"),
        chance=("sop_accuracy", "nsp_accuracy"),
        unjudged=("mlm_accuracy",),
        finding="A model of next sentences knows no order; a model of order knows both.",
        paper=Published("ALBERT, table 5", ("MLM", "NSP", "SOP", AVERAGE), printed),
        remarks=(
            "The model without a sentence objective has no head for it, so it gives the most "
            "frequent answer; the paper trained such a head.",
            "The token table of all variants starts from counts of neighboring tokens, so that "
            "sentence order is learned sooner.",
        ),
    )


def depth(base: Config) -> Study:
    """Vary the layers of a shared block, each depth from the trained depth before (ALBERT, table
    11).
    """
    layers = (1, 3, 6, 12, 24)
    printed = dict(zip(layers, ("52.9", "71.2", "77.2", "81.5", "82.1"), strict=True))
    names = {count: f"{count} layer{'s' * (count > 1)}" for count in layers}
    return Study(
        "How deep should one shared block be applied?",
        {names[count]: vary(base, encoder={"layers": count}) for count in layers},
        baseline=names[12],
        after={names[deep]: names[shallow] for shallow, deep in pairwise(layers)},
        paper=Published.of(
            "ALBERT, table 11 (H 1024)",
            AVERAGE,
            {names[count]: figure for count, figure in printed.items()},
        ),
        remarks=(
            "Each depth from 3 on starts from the trained weights of the depth before, as in "
            "the paper. So deeper variants have also seen more text.",
        ),
    )


def width(base: Config) -> Study:
    """Vary the hidden size at three layers (ALBERT, table 12)."""
    hidden, heads = base.encoder.hidden_size, base.encoder.heads
    factors = dict(zip((0.5, 1, 2, 3), ("71.2", "74.6", "76.3", "74.0"), strict=True))
    widths = {f"H {int(hidden * by)}": by for by in factors}
    return Study(
        "How wide should the hidden states be?",
        {
            name: vary(
                base,
                encoder={
                    "layers": 3,
                    "hidden_size": int(hidden * by),
                    "heads": max(1, int(heads * by)),
                    "intermediate_size": int(base.encoder.intermediate_size * by),
                },
            )
            for name, by in widths.items()
        },
        baseline=f"H {hidden}",
        paper=Published.of(
            "ALBERT, table 12 (H 1024, 2048, 4096, 6144)",
            AVERAGE,
            {name: factors[by] for name, by in widths.items()},
        ),
    )


def dropout(base: Config) -> Study:
    """Train with and without dropout (ALBERT, table 8)."""
    return Study(
        "Does dropout help where the model does not overfit?",
        {
            "without": vary(base, encoder={"hidden_dropout": 0.0, "attention_dropout": 0.0}),
            "with 0.1": vary(base, encoder={"hidden_dropout": 0.1, "attention_dropout": 0.1}),
        },
        baseline="without",
        **WITH_ACCURACY,
        finding="Dropout costs 0.3 points where the network does not overfit.",
        paper=Published.of(
            "ALBERT, table 8 (xxlarge)", AVERAGE, {"without": "90.7", "with 0.1": "90.4"}
        ),
    )


def data(base: Config) -> Study:
    """Vary the amount of text to learn from (ALBERT, table 7, added ten times as much)."""
    shares = {"1/8 of the text": 1 / 8, "1/4 of the text": 1 / 4, "1/2 of the text": 1 / 2}
    return Study(
        "How much does more text help, at equal steps?",
        {**dict.fromkeys(shares, base), "all of the text": base},
        baseline="all of the text",
        **WITH_ACCURACY,
        data=shares,
        paper=Published.of(
            "ALBERT, table 7 (16 GB and 160 GB)",
            AVERAGE,
            {"1/8 of the text": "80.1", "all of the text": "80.8"},
        ),
        remarks=(
            "If the steps do not read a share of the text once, that share is as good as all "
            "of the text.",
        ),
    )


def time(base: Config) -> Study:
    """Compare wide and deep, shared and not, at equal wall-clock time (ALBERT, table 6)."""
    hidden, heads, inner, layers = (
        getattr(base.encoder, name)
        for name in ("hidden_size", "heads", "intermediate_size", "layers")
    )
    wide = {"hidden_size": 2 * hidden, "heads": 2 * heads, "intermediate_size": 2 * inner}
    unshared = {"sharing": "none", "embedding_size": hidden}
    return Study(
        "In the same time, which model is better: a narrow deep one, a wide shallow one, "
        "or one that shares nothing?",
        {
            "shared": base,
            "shared, wide and shallow": vary(base, encoder={**wide, "layers": max(1, layers // 3)}),
            "shared, twice as deep": vary(base, encoder={"layers": 2 * layers}),
            "not shared": vary(base, encoder=unshared),
        },
        baseline="not shared",
        **WITH_ACCURACY,
        equal="time",
        paper=Published.of(
            "ALBERT, table 6 (xxlarge for 32 h, BERT-large for 34 h)",
            AVERAGE,
            {"shared, wide and shallow": "88.7", "not shared": "87.2"},
        ),
    )


def masking(base: Config) -> Study:
    """Vary the share and the unit of masks (Wettig et al. 2023; SpanBERT, table 6; ALBERT, section
    4.1).
    """
    kinds: dict[str, dict[str, Any]] = {
        "tokens, 15%": {"unit": "token", "span": "single", "rate": 0.15},
        "tokens, 7.5%": {"unit": "token", "span": "single", "rate": 0.075},
        "tokens, 40%": {"unit": "token", "span": "single", "rate": 0.4},
        "words, 15%": {"unit": "word", "span": "single"},
        "n-grams, 15%": {"unit": "word", "span": "ngram", "max_span": 3},
        "spans, 15%": {"unit": "word", "span": "geometric", "max_span": 10},
    }
    return Study(
        "How many tokens should be masked, and in which units?",
        {name: vary(base, masking={"copies": 0, **changes}) for name, changes in kinds.items()},
        baseline="tokens, 15%",
        **WITH_ACCURACY,
        finding=(
            "A large network learns more from 40% than from 15% of masked tokens (Wettig et al. "
            "2023). Spans beat words and tokens in questions about text (SpanBERT)."
        ),
        expected={"tokens, 40%": "better"},
        paper=Published.of(
            "SpanBERT, table 6 (SQuAD 2.0 F1)",
            "SQuAD 2.0",
            {"tokens, 15%": "83.8", "words, 15%": "84.3", "spans, 15%": "85.4"},
        ),
        remarks=(
            "All are scored on single tokens masked at 15%, which is what the first "
            "variant trains on.",
        ),
    )


def copies(base: Config) -> Study:
    """Train on fixed masks and on fresh ones (RoBERTa, table 1)."""
    tokens = {"unit": "token", "span": "single"}
    names = {n: f"{n} fixed mask{'s' * (n > 1)}" for n in (1, 4, 10)}
    fixed = {name: vary(base, masking={**tokens, "copies": n}) for n, name in names.items()}
    return Study(
        "Do masks that are drawn anew in each epoch help?",
        {"fresh masks": vary(base, masking={**tokens, "copies": 0}), **fixed},
        baseline="fresh masks",
        **WITH_ACCURACY,
        finding="Fresh masks are as good as ten fixed ones, or better.",
        paper=Published.of(
            "RoBERTa, table 1 (MNLI)", "MNLI", {"fresh masks": "84.0", names[10]: "84.3"}
        ),
        remarks=("Masks that the steps do not use up are as good as fresh ones.",),
    )


def formats(base: Config) -> Study:
    """Compare RoBERTa's four ways to fill a sequence (RoBERTa, table 2)."""
    kinds = {
        "segment-pair": "64.2",
        "sentence-pair": "63.0",
        "full-sentences": "64.8",
        "doc-sentences": "65.6",
    }
    return Study(
        "What should a training sequence consist of?",
        {
            name: vary(
                base,
                sequences={"format": name},
                objectives=["mlm", "nsp"] if "pair" in name else ["mlm"],
            )
            for name in kinds
        },
        baseline="segment-pair",
        **WITH_ACCURACY,
        equal="tokens",
        paper=Published.of("RoBERTa, table 2", "RACE", kinds),
    )


def batch(base: Config) -> Study:
    """Learn the same tokens in larger batches, with two optimizers.

    See RoBERTa, table 3, and ALBERT, section 4.1.
    """
    variants, least = {}, base.batch_sequences
    for name, rate in (("adamw", 1e-3), ("lamb", 5e-3)):
        for times in (1, 4, 16):
            optimizer = {"name": name, "learning_rate": rate * times**0.5}
            variants[f"{name}, {least * times} sequences"] = vary(
                base, train={"batch": f"{least * times} sequences", "optimizer": optimizer}
            )
    return Study(
        "Do larger batches learn as much from the same tokens, and does LAMB keep them stable?",
        variants,
        baseline=f"adamw, {least} sequences",
        equal="tokens",
        paper=Published.of(
            "RoBERTa, table 3 (batches of 256, 2,000 and 8,000)",
            "perplexity",
            {
                f"adamw, {least * times} sequences": figure
                for times, figure in ((1, "3.99"), (4, "3.68"), (16, "3.77"))
            },
        ),
        remarks=(
            "The learning rate rises with the square root of the batch, and was not tuned "
            "for each batch.",
        ),
    )


def _make_rtd_config(base: Config, **rtd: object) -> Config:
    """Return a config of ELECTRA: replaced token detection with single masked tokens."""
    encoder = {"pooler": False}
    optimizer = {"name": "adamw", "learning_rate": 1e-3}
    return vary(
        base,
        encoder=encoder,
        objectives=["mlm", "rtd"],
        rtd=rtd,
        train={"optimizer": optimizer},
        masking={"unit": "token", "span": "single"},
    )


def generator(base: Config) -> Study:
    """Vary the size and the sharing of ELECTRA's generator (ELECTRA, section 3.2, figure 3)."""
    variants = {
        f"generator {size:g}": _make_rtd_config(base, generator_width=size)
        for size in (0.25, 0.5, 1.0)
    }
    variants["generator 0.25, only tables shared"] = _make_rtd_config(
        base, generator_width=0.25, generator_embeddings="tables"
    )
    return Study(
        "How large should the generator be that makes the replaced tokens?",
        variants,
        baseline="generator 0.25",
        scores=("rtd_auc", "mlm_loss"),
        unjudged=("rtd_auc", "mlm_loss"),
        remarks=(
            "A larger generator makes harder replacements, so the first score falls for two "
            "reasons. Only fine-tuning (--tasks) tells them apart. In figure 3 of ELECTRA 1/4 to "
            "1/2 is best on GLUE.",
        ),
    )


def replacement(base: Config) -> Study:
    """Compare replaced tokens with masked tokens at equal operations (ELECTRA, table 1)."""
    rtd = _make_rtd_config(base)
    return Study(
        "Do replaced tokens teach more than masked tokens, from the same operations?",
        {"masked tokens": vary(rtd, objectives=["mlm"], rtd={}), "replaced tokens": rtd},
        baseline="masked tokens",
        scores=("mlm_loss",),
        unjudged=("mlm_loss",),
        equal="operations",
        finding="At equal operations, replaced tokens are 2.9 points better on GLUE.",
        paper=Published.of(
            "ELECTRA, table 1 (base)", "GLUE", {"masked tokens": "82.2", "replaced tokens": "85.1"}
        ),
        remarks=(
            "With replaced tokens, a small generator predicts the masked tokens. So only "
            "--tasks compare the two.",
        ),
    )


def boundary(base: Config) -> Study:
    """Train with and without the span boundary objective, on two laws of spans (SpanBERT, tables 6
    and 7).
    """
    spans = {
        "geometric spans": replace(SPANS),
        "single tokens": vary(base, masking={"unit": "token", "span": "single"}).masking,
    }
    variants = {}
    for name, law in spans.items():
        for objectives in (["mlm"], ["mlm", "sbo"]):
            label = f"{name}, {'with' if 'sbo' in objectives else 'without'} SBO"
            config = vary(
                base,
                objectives=objectives,
                sequences={"format": "doc-sentences"},
                encoder={"pooler": False},
            )
            variants[label] = replace(config, masking=law)
    return Study(
        "Does predicting a span from its boundary help?",
        variants,
        baseline="geometric spans, without SBO",
        **WITH_ACCURACY,
        paper=Published(
            "SpanBERT, table 7 (SQuAD 2.0 F1, coreference)",
            ("SQuAD 2.0", "coreference"),
            {
                "geometric spans, without SBO": ("86.7", "76.3"),
                "geometric spans, with SBO": ("86.8", "79.0"),
            },
        ),
    )


def systems(base: Config) -> Study:
    """Compare the five systems and albert-next, at the same shape and time."""
    names = {
        "ALBERT": "albert-mini",
        "BERT": "bert-mini",
        "RoBERTa": "roberta-mini",
        "ELECTRA": "electra-mini",
        "SpanBERT": "spanbert-mini",
        "albert-next": "albert-next-mini",
    }
    shape = {
        name: getattr(base.encoder, name)
        for name in ("hidden_size", "layers", "heads", "intermediate_size")
    }
    small = {
        "evaluate_sequences": base.train.evaluate_sequences,
        "batch": base.train.batch,
        "depth_schedule": [],
        "length_schedule": [],
    }

    def scale(name: str) -> Config:
        config = recipe(names[name])
        is_wide = config.encoder.embedding_size == config.encoder.hidden_size
        size = base.encoder.hidden_size if is_wide else base.encoder.embedding_size
        return vary(
            config,
            encoder={**shape, "embedding_size": size},
            sequences={"length": base.sequences.length},
            train=small,
        )

    return Study(
        "Which of the five systems, and albert-next, learns most in the same time?",
        {name: scale(name) for name in names},
        baseline="BERT",
        scores=("mlm_loss", "mlm_accuracy"),
        unjudged=("mlm_loss", "mlm_accuracy"),
        equal="time",
        remarks=(
            "The masked-word scores of ELECTRA are its small generator's; compare it by --tasks.",
            "Neither depth nor length grows here, although they do in the recipes of ALBERT and "
            "albert-next.",
        ),
    )


def optimizers(base: Config) -> Study:
    """Compare AdamW, LAMB and Muon on a shared block."""
    kinds = {
        "muon": {"name": "muon"},
        "adamw": {"name": "adamw", "learning_rate": 2e-3},
        "lamb": {"name": "lamb", "learning_rate": 1e-2},
    }
    return Study(
        "Which optimizer trains a small shared encoder fastest?",
        {name: vary(base, train={"optimizer": changes}) for name, changes in kinds.items()},
        baseline="adamw",
        remarks=(
            "Each has a learning rate that was chosen for small shared encoders, and was not "
            "tuned on this text.",
        ),
    )


# ----------------------------------------------------------------------------------- by their names

STUDIES: dict[str, Callable[[Config], Study]] = {
    study.__name__: study
    for study in (
        sharing,
        embedding,
        order,
        depth,
        width,
        dropout,
        data,
        time,
        masking,
        copies,
        formats,
        batch,
        generator,
        replacement,
        boundary,
        systems,
        optimizers,
    )
}


def make_study(name: str, scale: Scale) -> Study:
    """Make the study of a name: a name in `STUDIES`, a TOML file, or `file.py:function`."""
    if scale not in get_args(Scale):
        raise ConfigError(f"scale is '{scale}'; {nearest(scale, get_args(Scale))}")
    base = make_base_config(scale)
    path, _, function_name = name.partition(":")
    if name in STUDIES:
        function = STUDIES[name]
    elif path.endswith(".py"):
        function = load_function(Path(path), function_name, "study")
    elif name.endswith(".toml"):
        return _read_toml(Path(name), base)
    else:
        raise ConfigError(
            f"'{name}' is no study, no TOML file and no file.py:function; {nearest(name, STUDIES)}"
        )
    try:
        study: object = function(base)
    except LitebertError as error:
        raise ConfigError(f"study {name}: {error}") from None
    except Exception as error:
        raise ConfigError(f"study {name} fails: {type(error).__name__}: {error}") from error
    if not isinstance(study, Study):
        raise ConfigError(
            f"study {name} returned {type(study).__name__}; it must return a litebert Study"
        )
    return study


_KEYS = ("question", "base", "baseline", "scores", "equal", "after", "data", "variants")


def _read_toml(path: Path, base: Config) -> Study:
    try:
        fields = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"study file {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"study file {path} is not valid TOML: {error}") from None
    try:
        for key in fields:
            require(key in _KEYS, f"unknown field '{key}'; {nearest(key, _KEYS)}")
        variants = fields.get("variants")
        if not isinstance(variants, dict):
            raise ConfigError("it has no variants; give a table [variants.NAME] for each")
        if "base" in fields:
            base = read_base(str(fields["base"]), path)
        configs = {
            name: from_dict(Config, changes, f"variants.{name}.", base)
            for name, changes in variants.items()
        }
        equal = fields.get("equal", "steps")
        require(
            equal in get_args(Equal), f"equal is '{equal}'; {nearest(str(equal), get_args(Equal))}"
        )
        after, data = dict(fields.get("after", {})), dict(fields.get("data", {}))
        return Study(
            question=str(fields.get("question", path.stem)),
            variants=configs,
            baseline=str(fields.get("baseline", next(iter(configs), ""))),
            scores=tuple(map(str, fields.get("scores", (PRIMARY,)))),
            equal=equal,
            after={str(later): str(earlier) for later, earlier in after.items()},
            data={str(name): float(share) for name, share in data.items()},
        )
    except (ConfigError, TypeError, ValueError) as error:
        raise ConfigError(f"study file {path}: {error}") from None
