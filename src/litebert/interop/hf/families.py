"""The tables of names: one `Family` for each family of encoders, by its `model_type` in
`registry.FAMILIES`; another family is another table. Checked against transformers 5.23.

A name on the foreign side is filled with `{slot}`, the index of a block in the foreign list; on
litebert's side with `{attention}`, `{feedforward}` (the blocks that slot holds) and `{sentence}`
(sop or nsp). `weights.py` reads every table in both directions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from litebert.config import EncoderConfig
from litebert.config.finetuning import HeadName

TASK_HEADS: tuple[HeadName, ...] = ("sequence", "tokens", "span", "choice")

TASK_PARTS = ("dense", "output", "summary", "classifier", "span")
"""Parts of a table that belong to those heads."""

_CLASSES: dict[HeadName, str] = {
    "backbone": "Model",
    "mlm": "ForMaskedLM",
    "pretraining": "ForPreTraining",
    "discriminator": "ForPreTraining",
    "sequence": "ForSequenceClassification",
    "tokens": "ForTokenClassification",
    "span": "ForQuestionAnswering",
    "choice": "ForMultipleChoice",
}


@dataclass(frozen=True)
class Names:
    """A module of litebert, and its foreign modules, stacked along the first dimension."""

    module: str
    foreign: tuple[str, ...]
    leaves: tuple[str, ...] = ("weight", "bias")
    first: bool = True
    """False where slot 0 lacks it."""
    may_bias: bool = False
    """True where it has a bias, beside the leaves, if `encoder.bias` says so."""
    untied: bool = False
    """True where only models with `encoder.untied` have it."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """All that is particular to one `model_type`."""

    model_type: str
    prefix: str = ""
    """The prefix of backbone names, without its dot, in every class but the bare backbone; by
    default the `model_type`.
    """
    classes: str
    """How the names of its classes begin."""
    parts: Mapping[str, tuple[Names, ...]]
    """The modules of each part: backbone, projection, pooler, mlm, sentence, discriminator, and
    those of TASK_PARTS.
    """
    heads: Mapping[HeadName, tuple[str, ...]]
    """Its classes, and the parts each holds beyond the backbone."""
    tied: Mapping[str, str]
    """Keys that repeat another one, unless `encoder.untied`; never written, accepted when equal."""
    sentence: Literal["sop", "nsp"] | None = None
    """The sentence objective its pretraining class has."""
    dense: Literal["tanh", "gelu"] | None = None
    """The activation in its classifiers of sequences; None where they read the pooler."""
    gelu_parts: tuple[HeadName, ...] = ()
    """Parts, called like their class, that compute gelu whatever hidden_act says."""
    grouped: bool = False
    """Slots are groups of layers (num_hidden_groups), else layers."""
    always_projects: bool = False
    """The map E -> H exists where E = H too."""
    offset_positions: bool = False
    """Positions begin at pad_token_id + 1 and leave out padding, instead of counting all from 0."""
    keys: Mapping[str, str] = field(default_factory=lambda: KEYS)
    """Fields of EncoderConfig and their keys in config.json."""
    absent: Mapping[str, Any] = field(default_factory=lambda: ABSENT)
    """The values of some fields where their key is absent."""
    computes: Mapping[str, object] = field(default_factory=lambda: CLASSIC)
    """Fields of EncoderConfig for which its classes have one value only."""
    windows: bool = False
    """config.json says which layers attend within a window, and how each kind rotates."""
    biases: tuple[str, ...] = ()
    """Keys that are each `encoder.bias` of some maps or norms, the last one of those in heads."""
    pooling: str = ""
    """The key of what its classifiers of texts read, where that is a choice."""
    repeats: Mapping[str, str] = field(default_factory=dict)
    """Further keys, and the fields of EncoderConfig that they repeat: litebert has one for both."""
    fixed: Mapping[str, object]
    """Keys that change the computation, with the one value that litebert computes, absent or not.
    """
    fixed_by_part: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """The same for keys that only some part reads."""
    token_ids: Mapping[str, tuple[str, int]]
    """Keys of special tokens: the tokenizer's attribute, and the value without a tokenizer."""
    classifier_dropout: str = "classifier_dropout"
    fits: Callable[[EncoderConfig, Collection[str], str | None], bool] = lambda *_: False
    """True where its classes are the ones to write a model to: by the encoder's config, the parts
    that the model has beside it, and the activation of its task head. The last registered family is
    asked first. By default it is read and never written.
    """

    def class_of(self, head: HeadName) -> str:
        return self.classes + _CLASSES[head]

    @property
    def backbone_prefix(self) -> str:
        return f"{self.prefix or self.model_type}."


KEYS: Mapping[str, str] = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "max_positions": "max_position_embeddings",
    "segment_types": "type_vocab_size",
    "hidden_dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "norm_eps": "layer_norm_eps",
    "init_std": "initializer_range",
    "activation": "hidden_act",
}
ABSENT: Mapping[str, Any] = {
    "hidden_dropout": 0.1,
    "attention_dropout": 0.1,
    "norm_eps": 1e-12,
    "init_std": 0.02,
    "activation": "gelu",
}
CLASSIC: Mapping[str, object] = {
    "norm": "post",
    "embedding_norm": "before",
    "feedforward": "plain",
    "positions": "learned",
    "window": 0,
    "global_tokens": 0,
    "bias": True,
    "prediction": "embedding",
    "untied": False,
}
"""The values of fields that all families but the last compute."""

HEADS: Mapping[HeadName, tuple[str, ...]] = {
    "backbone": ("pooler",),
    "mlm": ("mlm",),
    "sequence": ("pooler", "classifier"),
    "tokens": ("classifier",),
    "span": ("span",),
    "choice": ("pooler", "classifier"),
}
_CLASSIFIERS = {
    "classifier": (Names("head.classifier", ("classifier",)),),
    "span": (Names("head.classifier", ("qa_outputs",)),),
}
_TWO_MAPS = {  # of sequences, in RoBERTa and ELECTRA
    "dense": (Names("head.dense", ("classifier.dense",)),),
    "output": (Names("head.classifier", ("classifier.out_proj",)),),
}
_ENCODER_ONLY = {
    "is_decoder": False,
    "add_cross_attention": False,
    "position_embedding_type": "absolute",
}

# Their names of a block: the maps of queries, keys and values, then dense map and norm of
# attention, the two maps of the feed-forward block, and its norm.
_BLOCK = (
    "attention.self",
    "attention.output.dense",
    "attention.output.LayerNorm",
    "intermediate.dense",
    "output.dense",
    "output.LayerNorm",
)
_ALBERT_BLOCK = (
    "attention",
    "attention.dense",
    "attention.LayerNorm",
    "ffn",
    "ffn_output",
    "full_layer_layer_norm",
)


def _backbone(
    prefix: str, layer: str = "encoder.layer.{slot}", names: tuple[str, ...] = _BLOCK
) -> tuple[Names, ...]:
    embeddings = f"{prefix}.embeddings"
    heads, *others = (f"{prefix}.{layer}.{name}" for name in names)
    attention, feedforward = "encoder.attention.{attention}", "encoder.feedforward.{feedforward}"
    modules = (
        f"{attention}.output",
        f"{attention}.norm",
        *(f"{feedforward}.{of}" for of in ("input", "output", "norm")),
    )
    return (
        Names("encoder.embedding.word", (f"{embeddings}.word_embeddings",), ("weight",)),
        Names("encoder.embedding.position", (f"{embeddings}.position_embeddings",), ("weight",)),
        Names(
            "encoder.embedding.token_type", (f"{embeddings}.token_type_embeddings",), ("weight",)
        ),
        Names("encoder.embedding.norm", (f"{embeddings}.LayerNorm",)),
        Names(f"{attention}.qkv", (f"{heads}.query", f"{heads}.key", f"{heads}.value")),
        *(Names(module, (other,)) for module, other in zip(modules, others, strict=True)),
    )


def _mlm(dense: str, norm: str, bias: str) -> tuple[Names, ...]:
    return (
        Names("objectives.mlm.head.dense", (dense,)),
        Names("objectives.mlm.head.norm", (norm,)),
        Names("objectives.mlm.head", (bias,), ("bias",)),
    )


ALBERT = Family(
    model_type="albert",
    classes="Albert",
    fits=lambda config, has, dense: True,
    parts={
        "backbone": _backbone(
            "albert", "encoder.albert_layer_groups.{slot}.albert_layers.0", _ALBERT_BLOCK
        ),
        "projection": (
            Names("encoder.embedding.project", ("albert.encoder.embedding_hidden_mapping_in",)),
        ),
        "pooler": (Names("encoder.pooler", ("albert.pooler",)),),
        "mlm": _mlm("predictions.dense", "predictions.LayerNorm", "predictions"),
        "sentence": (
            Names("objectives.{sentence}.head.classifier", ("sop_classifier.classifier",)),
        ),
        **_CLASSIFIERS,
    },
    heads={**HEADS, "pretraining": ("pooler", "mlm", "sentence")},
    tied={
        "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    },
    sentence="sop",
    grouped=True,
    always_projects=True,
    absent={**ABSENT, "hidden_dropout": 0.0, "attention_dropout": 0.0, "activation": "gelu_new"},
    fixed={"inner_group_num": 1, "position_embedding_type": "absolute"},
    token_ids={
        "pad_token_id": ("pad_id", 0),
        "bos_token_id": ("cls_id", 2),
        "eos_token_id": ("sep_id", 3),
    },
    classifier_dropout="classifier_dropout_prob",
)

BERT = Family(  # SpanBERT's too
    model_type="bert",
    classes="Bert",
    fits=lambda config, has, dense: config.sharing == "none" and not config.projects,
    parts={
        "backbone": _backbone("bert"),
        "pooler": (Names("encoder.pooler", ("bert.pooler.dense",)),),
        "mlm": _mlm(
            "cls.predictions.transform.dense",
            "cls.predictions.transform.LayerNorm",
            "cls.predictions",
        ),
        "sentence": (Names("objectives.{sentence}.head.classifier", ("cls.seq_relationship",)),),
        **_CLASSIFIERS,
    },
    heads={**HEADS, "pretraining": ("pooler", "mlm", "sentence")},
    tied={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    sentence="nsp",
    fixed=_ENCODER_ONLY,
    token_ids={"pad_token_id": ("pad_id", 0)},
)

ROBERTA = Family(
    model_type="roberta",
    classes="Roberta",
    fits=lambda config, has, dense: config.position_offset > 0,
    parts={
        "backbone": _backbone("roberta"),
        "pooler": (Names("encoder.pooler", ("roberta.pooler.dense",)),),
        "mlm": _mlm("lm_head.dense", "lm_head.layer_norm", "lm_head"),
        **_TWO_MAPS,
        **_CLASSIFIERS,
    },
    heads={**HEADS, "sequence": ("dense", "output")},
    tied={
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    dense="tanh",
    gelu_parts=("mlm",),
    offset_positions=True,
    fixed=_ENCODER_ONLY,
    token_ids={
        "pad_token_id": ("pad_id", 1),
        "bos_token_id": ("cls_id", 0),
        "eos_token_id": ("sep_id", 2),
    },
)


def _fits_electra(config: EncoderConfig, has: Collection[str], dense: str | None) -> bool:
    if config.position_offset > 0:
        return False
    if not {*has} <= {*ALBERT.parts} or dense == "gelu":
        return True
    # A map E -> H without sharing has two homes; this one has no pooler, and a fixed activation in
    # its mlm head.
    factorized = config.embedding_size != config.hidden_size and not config.pooler and dense is None
    can_predict = "mlm" not in has or config.activation == "gelu"
    return config.sharing == "none" and factorized and can_predict


ELECTRA = Family(
    model_type="electra",
    classes="Electra",
    fits=_fits_electra,
    parts={
        "backbone": _backbone("electra"),
        "projection": (Names("encoder.embedding.project", ("electra.embeddings_project",)),),
        "mlm": _mlm(
            "generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head"
        ),
        "discriminator": (
            Names("objectives.rtd.head.dense", ("discriminator_predictions.dense",)),
            Names(
                "objectives.rtd.head.classifier", ("discriminator_predictions.dense_prediction",)
            ),
        ),
        **_TWO_MAPS,
        "summary": (Names("head.dense", ("sequence_summary.summary",)),),
        **_CLASSIFIERS,
    },
    heads={
        **HEADS,
        "backbone": (),
        "discriminator": ("discriminator",),
        "sequence": ("dense", "output"),
        "choice": ("summary", "classifier"),
    },
    tied={"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
    dense="gelu",
    gelu_parts=("mlm",),
    fixed=_ENCODER_ONLY,
    fixed_by_part={
        "summary": {"summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"}
    },
    token_ids={"pad_token_id": ("pad_id", 0)},
)


def _modern(module: str, foreign: str, first: bool = True) -> Names:
    return Names(module, (foreign,), ("weight",), first, may_bias=True)


MODERNBERT = Family(
    model_type="modernbert",
    prefix="model",
    classes="ModernBert",
    fits=lambda config, has, dense: True,
    parts={
        "backbone": (
            Names("encoder.embedding.word", ("model.embeddings.tok_embeddings",), ("weight",)),
            _modern("encoder.embedding.norm", "model.embeddings.norm"),
            _modern(
                "encoder.attention.{attention}.norm", "model.layers.{slot}.attn_norm", first=False
            ),
            _modern("encoder.attention.{attention}.qkv", "model.layers.{slot}.attn.Wqkv"),
            _modern("encoder.attention.{attention}.output", "model.layers.{slot}.attn.Wo"),
            _modern("encoder.feedforward.{feedforward}.norm", "model.layers.{slot}.mlp_norm"),
            _modern("encoder.feedforward.{feedforward}.input", "model.layers.{slot}.mlp.Wi"),
            _modern("encoder.feedforward.{feedforward}.output", "model.layers.{slot}.mlp.Wo"),
            _modern("encoder.norm", "model.final_norm"),
        ),
        "mlm": (
            _modern("objectives.mlm.head.dense", "head.dense"),
            _modern("objectives.mlm.head.norm", "head.norm"),
            Names("objectives.mlm.head", ("decoder",), ("bias",)),
            Names("objectives.mlm.head.word", ("decoder",), ("weight",), untied=True),
        ),
        "classifier": (
            _modern("head.dense", "head.dense"),
            _modern("head.norm", "head.norm"),
            Names("head.classifier", ("classifier",)),
        ),
    },
    heads={
        "backbone": (),
        "mlm": ("mlm",),
        "sequence": ("classifier",),
        "tokens": ("classifier",),
        "span": ("classifier",),
        "choice": ("classifier",),
    },
    tied={"decoder.weight": "model.embeddings.tok_embeddings.weight"},
    keys={
        **{field: key for field, key in KEYS.items() if field != "segment_types"},
        "hidden_dropout": "embedding_dropout",
        "attention_dropout": "attention_dropout",
        "norm_eps": "norm_eps",
        "activation": "hidden_activation",
    },
    absent={**ABSENT, "hidden_dropout": 0.0, "attention_dropout": 0.0, "norm_eps": 1e-5},
    computes={
        "norm": "pre",
        "embedding_norm": "after",
        "first_norm": False,
        "feedforward": "gated",
        "positions": "rotary",
        "segment_types": 0,
        "prediction": "hidden",
        "global_tokens": 0,
    },
    windows=True,
    biases=("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"),
    pooling="classifier_pooling",
    repeats={"mlp_dropout": "hidden_dropout", "classifier_activation": "activation"},
    fixed={"decoder_bias": True, "rope_scaling": None},
    token_ids={
        "pad_token_id": ("pad_id", 0),
        "bos_token_id": ("cls_id", 2),
        "eos_token_id": ("sep_id", 3),
        "cls_token_id": ("cls_id", 2),
        "sep_token_id": ("sep_id", 3),
    },
)
