"""Names of other programs' weights and settings, as tables; `weights.py` reads every one of them in both directions.

A `Layout` is what one `model_type` of Hugging Face means: rows of name templates, the heads its classes put together,
and the keys of its config.json. A template is filled with `{slot}`, the index of a block in their list, on their side
and with `{attention}`, `{feedforward}` (the blocks that slot holds) and `{sentence}` (sop or nsp) on ours. Supporting
another family is writing another table. Names and shapes were checked against transformers 5.23.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from litebert.config import Activation

HeadName = Literal["backbone", "mlm", "pretraining", "sequence", "tokens", "span", "choice"]


@dataclass(frozen=True)
class Row:
    """One of our modules and theirs. Several of theirs are ours stacked along the first dimension."""

    ours: str
    theirs: tuple[str, ...]
    leaves: tuple[str, ...] = ("weight", "bias")
    skip: int = 0
    """Leading rows of theirs that mean nothing and are not kept; zeros when written."""


@dataclass(frozen=True)
class Head:
    """A class of theirs and the parts of the table it holds, beyond the backbone."""

    architecture: str
    parts: tuple[str, ...]


@dataclass(frozen=True)
class Layout:
    """All that is particular to one `model_type`."""

    model_type: str
    prefix: str
    """Comes before backbone names in every class but the bare backbone."""
    parts: Mapping[str, tuple[Row, ...]]
    """Rows by part: backbone, projection, pooler, mlm, sentence, classifier, span."""
    heads: Mapping[HeadName, Head]
    tied: Mapping[str, str]
    """Keys that repeat another one; never written, accepted when equal."""
    sentence: Literal["sop", "nsp"]
    """The sentence objective its pretraining class has."""
    grouped: bool
    """Slots are groups of layers (num_hidden_groups), else layers."""
    always_projects: bool
    """The map E -> H exists where E = H too."""
    sizes: Mapping[str, str]
    """Fields of EncoderConfig and their required whole-number keys."""
    numbers: Mapping[str, tuple[str, float]]
    """Fields of EncoderConfig, their keys, and what an absent key means."""
    activation: str
    """What an absent hidden_act means."""
    fixed: Mapping[str, object]
    """Keys that change the computation, with the one value ours has; an absent key means that value."""
    token_ids: Mapping[str, tuple[str, int]]
    """Keys of special tokens: the tokenizer's attribute, and the value without a tokenizer."""
    classifier_dropout: str


ACTIVATIONS: Mapping[str, Activation] = MappingProxyType(
    {
        "gelu": "gelu",
        "gelu_new": "gelu_tanh",
        "relu": "relu",
        "silu": "silu",
        # Other spellings of the same functions, read and never written.
        "gelu_python": "gelu",
        "gelu_pytorch_tanh": "gelu_tanh",
        "gelu_fast": "gelu_tanh",
        "swish": "silu",
    }
)
"""Their hidden_act, ours; the first spelling of each of ours is the one written."""

OLD_LEAVES: Mapping[str, str] = MappingProxyType({"gamma": "weight", "beta": "bias"})
"""Names that files from before 2019 give to the parameters of a layer norm."""

BUFFERS = ("position_ids", "token_type_ids")
"""Constants that older files hold beside the weights."""

WEIGHT = ("weight",)

_SIZES = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "max_positions": "max_position_embeddings",
    "segment_types": "type_vocab_size",
}


def _numbers(dropout: float) -> dict[str, tuple[str, float]]:
    return {
        "hidden_dropout": ("hidden_dropout_prob", dropout),
        "attention_dropout": ("attention_probs_dropout_prob", dropout),
        "norm_eps": ("layer_norm_eps", 1e-12),
        "init_std": ("initializer_range", 0.02),
    }


_A = "albert.encoder.albert_layer_groups.{slot}.albert_layers.0"

ALBERT = Layout(
    model_type="albert",
    prefix="albert.",
    parts={
        "backbone": (
            Row("encoder.embedding.word", ("albert.embeddings.word_embeddings",), WEIGHT),
            Row("encoder.embedding.position", ("albert.embeddings.position_embeddings",), WEIGHT),
            Row("encoder.embedding.token_type", ("albert.embeddings.token_type_embeddings",), WEIGHT),
            Row("encoder.embedding.norm", ("albert.embeddings.LayerNorm",)),
            Row(
                "encoder.attention.{attention}.qkv",
                (f"{_A}.attention.query", f"{_A}.attention.key", f"{_A}.attention.value"),
            ),
            Row("encoder.attention.{attention}.output", (f"{_A}.attention.dense",)),
            Row("encoder.attention.{attention}.norm", (f"{_A}.attention.LayerNorm",)),
            Row("encoder.feedforward.{feedforward}.input", (f"{_A}.ffn",)),
            Row("encoder.feedforward.{feedforward}.output", (f"{_A}.ffn_output",)),
            Row("encoder.feedforward.{feedforward}.norm", (f"{_A}.full_layer_layer_norm",)),
        ),
        "projection": (Row("encoder.embedding.project", ("albert.encoder.embedding_hidden_mapping_in",)),),
        "pooler": (Row("encoder.pooler", ("albert.pooler",)),),
        "mlm": (
            Row("objectives.mlm.head.dense", ("predictions.dense",)),
            Row("objectives.mlm.head.norm", ("predictions.LayerNorm",)),
            Row("objectives.mlm.head", ("predictions",), ("bias",)),
        ),
        "sentence": (Row("objectives.{sentence}.head.classifier", ("sop_classifier.classifier",)),),
        "classifier": (Row("head.classifier", ("classifier",)),),
        "span": (Row("head.classifier", ("qa_outputs",)),),
    },
    heads={
        "backbone": Head("AlbertModel", ("pooler",)),
        "mlm": Head("AlbertForMaskedLM", ("mlm",)),
        "pretraining": Head("AlbertForPreTraining", ("pooler", "mlm", "sentence")),
        "sequence": Head("AlbertForSequenceClassification", ("pooler", "classifier")),
        "tokens": Head("AlbertForTokenClassification", ("classifier",)),
        "span": Head("AlbertForQuestionAnswering", ("span",)),
        "choice": Head("AlbertForMultipleChoice", ("pooler", "classifier")),
    },
    tied={
        "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    },
    sentence="sop",
    grouped=True,
    always_projects=True,
    sizes={**_SIZES, "embedding_size": "embedding_size"},
    numbers=_numbers(dropout=0.0),
    activation="gelu_new",
    fixed={"inner_group_num": 1, "position_embedding_type": "absolute"},
    token_ids={"pad_token_id": ("pad_id", 0), "bos_token_id": ("cls_id", 2), "eos_token_id": ("sep_id", 3)},
    classifier_dropout="classifier_dropout_prob",
)

_B = "bert.encoder.layer.{slot}"

BERT = Layout(
    model_type="bert",
    prefix="bert.",
    parts={
        "backbone": (
            Row("encoder.embedding.word", ("bert.embeddings.word_embeddings",), WEIGHT),
            Row("encoder.embedding.position", ("bert.embeddings.position_embeddings",), WEIGHT),
            Row("encoder.embedding.token_type", ("bert.embeddings.token_type_embeddings",), WEIGHT),
            Row("encoder.embedding.norm", ("bert.embeddings.LayerNorm",)),
            Row(
                "encoder.attention.{attention}.qkv",
                (f"{_B}.attention.self.query", f"{_B}.attention.self.key", f"{_B}.attention.self.value"),
            ),
            Row("encoder.attention.{attention}.output", (f"{_B}.attention.output.dense",)),
            Row("encoder.attention.{attention}.norm", (f"{_B}.attention.output.LayerNorm",)),
            Row("encoder.feedforward.{feedforward}.input", (f"{_B}.intermediate.dense",)),
            Row("encoder.feedforward.{feedforward}.output", (f"{_B}.output.dense",)),
            Row("encoder.feedforward.{feedforward}.norm", (f"{_B}.output.LayerNorm",)),
        ),
        "pooler": (Row("encoder.pooler", ("bert.pooler.dense",)),),
        "mlm": (
            Row("objectives.mlm.head.dense", ("cls.predictions.transform.dense",)),
            Row("objectives.mlm.head.norm", ("cls.predictions.transform.LayerNorm",)),
            Row("objectives.mlm.head", ("cls.predictions",), ("bias",)),
        ),
        "sentence": (Row("objectives.{sentence}.head.classifier", ("cls.seq_relationship",)),),
        "classifier": (Row("head.classifier", ("classifier",)),),
        "span": (Row("head.classifier", ("qa_outputs",)),),
    },
    heads={
        "backbone": Head("BertModel", ("pooler",)),
        "mlm": Head("BertForMaskedLM", ("mlm",)),
        "pretraining": Head("BertForPreTraining", ("pooler", "mlm", "sentence")),
        "sequence": Head("BertForSequenceClassification", ("pooler", "classifier")),
        "tokens": Head("BertForTokenClassification", ("classifier",)),
        "span": Head("BertForQuestionAnswering", ("span",)),
        "choice": Head("BertForMultipleChoice", ("pooler", "classifier")),
    },
    tied={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    sentence="nsp",
    grouped=False,
    always_projects=False,
    sizes=_SIZES,
    numbers=_numbers(dropout=0.1),
    activation="gelu",
    fixed={"is_decoder": False, "add_cross_attention": False, "position_embedding_type": "absolute"},
    token_ids={"pad_token_id": ("pad_id", 0)},
    classifier_dropout="classifier_dropout",
)

LAYOUTS: Mapping[str, Layout] = MappingProxyType({layout.model_type: layout for layout in (ALBERT, BERT)})
