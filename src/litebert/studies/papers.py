"""The papers' comparisons as studies, each a function from the base config to a `Study`.

Each study has the figures that its paper prints, with the number of the table. They are scores of
much larger models on other data. So only the sign of a difference can be compared, not its size.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from litebert.config import Config, replace
from litebert.recipes.files import recipe
from litebert.recipes.published import SPANS
from litebert.studies.study import Published, Study, vary

AVERAGE = "average of five tasks"


def sharing(base: Config) -> Study:
    """Share all, some or no weights across layers, at two embedding sizes (ALBERT, table 4)."""
    small, large = base.encoder.embedding_size, base.encoder.hidden_size
    kinds = {"all": "all", "attention": "attention", "feed-forward": "feedforward", "none": "none"}
    variants = {
        f"{name}, E {size}": vary(base, encoder={"sharing": kind, "embedding_size": size})
        for size in (large, small)
        for name, kind in kinds.items()
    }
    printed = {large: ("79.8", "81.6", "79.5", "82.3"), small: ("80.1", "81.7", "80.2", "81.6")}
    rows = {
        f"{name}, E {size}": (figure,)
        for size, row in printed.items()
        for name, figure in zip(kinds, row, strict=True)
    }
    groups = vary(base, encoder={"sharing": "groups", "groups": 2})
    return Study(
        "What does sharing parameters across layers cost, and which part of it?",
        {**variants, f"two groups, E {small}": groups},
        baseline=f"all, E {small}",
        paper=Published("ALBERT, table 4 (E 768 and 128)", (AVERAGE,), rows),
    )


def embedding(base: Config) -> Study:
    """Vary the embedding size, with and without sharing (ALBERT, table 3)."""
    hidden = base.encoder.hidden_size
    sizes = dict(zip((hidden // 8, hidden // 4, hidden // 2, hidden), range(4), strict=True))
    printed = {
        "shared": ("79.0", "80.1", "79.6", "79.8"),
        "not shared": ("81.3", "81.7", "81.8", "82.3"),
    }
    kinds = {"shared": "all", "not shared": "none"}
    return Study(
        "How wide must the embeddings be?",
        {
            f"E {size}, {name}": vary(base, encoder={"embedding_size": size, "sharing": kind})
            for name, kind in kinds.items()
            for size in sizes
        },
        baseline=f"E {hidden // 4}, shared",
        paper=Published(
            "ALBERT, table 3 (E 64, 128, 256, 768)",
            (AVERAGE,),
            {
                f"E {size}, {name}": (printed[name][i],)
                for name in kinds
                for size, i in sizes.items()
            },
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
    return Study(
        "What does a model learn from next sentences, from sentence order, and from neither?",
        {name: vary(base, objectives=objectives) for name, objectives in kinds.items()},
        baseline="SOP",
        scores=("mlm_accuracy", "nsp_accuracy", "sop_accuracy"),
        paper=Published("ALBERT, table 5", ("MLM", "NSP", "SOP", AVERAGE), printed),
        remarks=(
            "The model without a sentence objective has no head for it; the paper trained such a "
            "head.",
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
        paper=Published(
            "ALBERT, table 11 (H 1024)",
            (AVERAGE,),
            {names[count]: (figure,) for count, figure in printed.items()},
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
        paper=Published(
            "ALBERT, table 12 (H 1024, 2048, 4096, 6144)",
            (AVERAGE,),
            {name: (factors[by],) for name, by in widths.items()},
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
        scores=("mlm_loss", "mlm_accuracy"),
        paper=Published(
            "ALBERT, table 8 (xxlarge)", (AVERAGE,), {"without": ("90.7",), "with 0.1": ("90.4",)}
        ),
    )


def data(base: Config) -> Study:
    """Vary the amount of text to learn from (ALBERT, table 7, added ten times as much)."""
    shares = {"1/8 of the text": 1 / 8, "1/4 of the text": 1 / 4, "1/2 of the text": 1 / 2}
    return Study(
        "How much does more text help, at equal steps?",
        {**dict.fromkeys(shares, base), "all of the text": base},
        baseline="all of the text",
        scores=("mlm_loss", "mlm_accuracy"),
        data=shares,
        paper=Published(
            "ALBERT, table 7 (16 GB and 160 GB)",
            (AVERAGE,),
            {"1/8 of the text": ("80.1",), "all of the text": ("80.8",)},
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
        scores=("mlm_loss", "mlm_accuracy"),
        equal="time",
        paper=Published(
            "ALBERT, table 6 (xxlarge for 32 h, BERT-large for 34 h)",
            (AVERAGE,),
            {"shared, wide and shallow": ("88.7",), "not shared": ("87.2",)},
        ),
    )


def masking(base: Config) -> Study:
    """Vary the masked units, with fresh and with fixed masks.

    See RoBERTa, table 1; SpanBERT, table 6; ALBERT, section 4.1.
    """
    kinds: dict[str, dict[str, Any]] = {
        "tokens": {"unit": "token", "span": "single"},
        "words": {"unit": "word", "span": "single"},
        "n-grams": {"unit": "word", "span": "ngram", "max_span": 3},
        "geometric spans": {"unit": "word", "span": "geometric", "max_span": 10},
    }
    fixed = {
        f"tokens, {n} fixed mask{'s' * (n > 1)}": {**kinds["tokens"], "copies": n}
        for n in (1, 4, 10)
    }
    return Study(
        "Which tokens should be masked, and do fresh masks help?",
        {
            name: vary(base, masking={"copies": 0, **changes})
            for name, changes in {**kinds, **fixed}.items()
        },
        baseline="tokens",
        scores=("mlm_loss", "mlm_accuracy"),
        paper=Published(
            "RoBERTa, table 1 (MNLI); SpanBERT, table 6 (SQuAD 2.0 F1)",
            ("MNLI", "SQuAD 2.0"),
            {
                "tokens": ("84.0", "83.8"),
                "words": ("-", "84.3"),
                "geometric spans": ("-", "85.4"),
                "tokens, 10 fixed masks": ("84.3", "-"),
            },
        ),
        remarks=(
            "All are scored on single tokens masked at 15 %, which is what the first "
            "variant trains on.",
        ),
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
        scores=("mlm_loss", "mlm_accuracy"),
        equal="tokens",
        paper=Published(
            "RoBERTa, table 2", ("RACE",), {name: (figure,) for name, figure in kinds.items()}
        ),
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
        paper=Published(
            "RoBERTa, table 3 (batches of 256, 2,000 and 8,000)",
            ("perplexity",),
            {
                f"adamw, {least * times} sequences": (figure,)
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
        scores=("mlm_loss", "mlm_accuracy"),
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
