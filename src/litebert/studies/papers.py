"""The papers' comparisons as studies, each a function from the base config to a `Study`.

The figures beside them are those that the papers print, with the table they stand in: scores of
much larger models on other data. What can be compared is the sign of a difference, not its size.
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
    """What the layers share, at two embedding sizes (ALBERT, table 4)."""
    small, large = base.encoder.embedding_size, base.encoder.hidden_size
    kinds = {"all": "all", "attention": "attention", "feed-forward": "feedforward", "none": "none"}
    variants = {
        f"{name}, E {size}": vary(base, encoder={"sharing": kind, "embedding_size": size})
        for size in (large, small)
        for name, kind in kinds.items()
    }
    printed = {large: ("79.8", "81.6", "79.5", "82.3"), small: ("80.1", "81.7", "80.2", "81.6")}
    rows = {
        f"{name}, E {size}": (one,)
        for size, row in printed.items()
        for name, one in zip(kinds, row, strict=True)
    }
    groups = vary(base, encoder={"sharing": "groups", "groups": 2})
    return Study(
        "What does sharing parameters across layers cost, and which part of it?",
        {**variants, f"two groups, E {small}": groups},
        baseline=f"all, E {small}",
        paper=Published("ALBERT, table 4 (E 768 and 128)", (AVERAGE,), rows),
    )


def embedding(base: Config) -> Study:
    """Embedding sizes, with and without sharing (ALBERT, table 3)."""
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
    """Sentence objectives, each asked both sentence tasks (ALBERT, table 5)."""
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
            "The model without a sentence objective has no head to ask; the paper trained "
            "one for it.",
        ),
    )


def depth(base: Config) -> Study:
    """Layers of one shared block, each depth started from the one before (ALBERT, table 11)."""
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
            {names[n]: (one,) for n, one in printed.items()},
        ),
        remarks=(
            "Each depth from 3 on starts from the trained weights of the one before, as in "
            "the paper, so deeper "
            "variants have also seen more text.",
        ),
    )


def width(base: Config) -> Study:
    """Hidden sizes at three layers (ALBERT, table 12)."""
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
    """With and without dropout (ALBERT, table 8)."""
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
    """How much text there is to learn from (ALBERT, table 7, added ten times as much)."""
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
            "Where the steps read less than a part of the text once, that part is as good "
            "as all of it.",
        ),
    )


def time(base: Config) -> Study:
    """Equal wall clock: wide and shallow, narrow and deep, shared and not (ALBERT, table 6)."""
    hidden, heads, inner, layers = (
        getattr(base.encoder, name)
        for name in ("hidden_size", "heads", "intermediate_size", "layers")
    )
    wide = {"hidden_size": 2 * hidden, "heads": 2 * heads, "intermediate_size": 2 * inner}
    own = {"sharing": "none", "embedding_size": hidden}
    return Study(
        "In the same time, which model is better: a narrow deep one, a wide shallow one, "
        "or one that shares nothing?",
        {
            "shared": base,
            "shared, wide and shallow": vary(base, encoder={**wide, "layers": max(1, layers // 3)}),
            "shared, twice as deep": vary(base, encoder={"layers": 2 * layers}),
            "not shared": vary(base, encoder=own),
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
    """What is masked, and whether the masks are fresh (RoBERTa, table 1; SpanBERT, table 6; ALBERT,
    section 4.1).
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
        "Which tokens should be masked, and does it help to draw the masks anew?",
        {
            name: vary(base, masking={"copies": 0, **one})
            for name, one in {**kinds, **fixed}.items()
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
    """RoBERTa's four ways to fill a sequence (RoBERTa, table 2)."""
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
            "RoBERTa, table 2", ("RACE",), {name: (one,) for name, one in kinds.items()}
        ),
    )


def batch(base: Config) -> Study:
    """The same tokens in larger batches, by two optimizers (RoBERTa, table 3; ALBERT, section
    4.1)."""
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
                f"adamw, {least * times} sequences": (one,)
                for times, one in ((1, "3.99"), (4, "3.68"), (16, "3.77"))
            },
        ),
        remarks=(
            "The learning rate rises with the square root of the batch and was not tuned "
            "for each of them.",
        ),
    )


def _replaced(base: Config, **rtd: object) -> Config:
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
    """Sizes of ELECTRA's generator, and what it shares (ELECTRA, section 3.2 and figure 3)."""
    sizes = (0.25, 0.5, 1.0)
    variants = {f"generator {size:g}": _replaced(base, generator_width=size) for size in sizes}
    variants["generator 0.25, only tables shared"] = _replaced(
        base, generator_width=0.25, generator_embeddings="tables"
    )
    return Study(
        "How large should the generator be that makes the replaced tokens?",
        variants,
        baseline="generator 0.25",
        scores=("rtd_auc", "mlm_loss"),
        unjudged=("rtd_auc", "mlm_loss"),
        remarks=(
            "A larger generator makes harder replacements, so the first score falls for "
            "two reasons; only "
            "fine-tuning (--tasks) tells them apart. In figure 3 of ELECTRA 1/4 to 1/2 is "
            "best on GLUE.",
        ),
    )


def boundary(base: Config) -> Study:
    """With and without the span boundary objective, on two laws of spans (SpanBERT, tables 6 and
    7).
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
    """The five systems and albert-next, at one shape and one time."""
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

    def scaled(name: str) -> Config:
        own = recipe(names[name])
        wide = own.encoder.embedding_size == own.encoder.hidden_size
        size = base.encoder.hidden_size if wide else base.encoder.embedding_size
        return vary(
            own,
            encoder={**shape, "embedding_size": size},
            sequences={"length": base.sequences.length},
            train=small,
        )

    return Study(
        "Which of the five systems, and albert-next, learns most in the same time?",
        {name: scaled(name) for name in names},
        baseline="BERT",
        scores=("mlm_loss", "mlm_accuracy"),
        unjudged=("mlm_loss", "mlm_accuracy"),
        equal="time",
        remarks=(
            "The masked-word scores of ELECTRA are its small generator's; compare it by --tasks.",
            "Neither depth nor length grows here, which is part of what ALBERT and "
            "albert-next do by themselves.",
        ),
    )


def optimizers(base: Config) -> Study:
    """AdamW, LAMB and Muon on one shared block."""
    kinds = {
        "muon": {"name": "muon"},
        "adamw": {"name": "adamw", "learning_rate": 2e-3},
        "lamb": {"name": "lamb", "learning_rate": 1e-2},
    }
    return Study(
        "Which optimizer trains a small shared encoder fastest?",
        {name: vary(base, train={"optimizer": one}) for name, one in kinds.items()},
        baseline="adamw",
        remarks=(
            "One learning rate each, chosen for small shared encoders; none was tuned on "
            "this text.",
        ),
    )
