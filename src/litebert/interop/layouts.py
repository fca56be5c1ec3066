"""The tables: one `Layout` for each `model_type` of Hugging Face that can be read and written.

Supporting another family is writing another table. Names and shapes were checked against transformers 5.23.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from litebert.interop.names import Head, Layout, Row

_WEIGHT = ("weight",)

_SIZES = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "max_positions": "max_position_embeddings",
    "segment_types": "type_vocab_size",
}

_CLASSIFIER = Row("head.classifier", ("classifier",))
_SPAN = Row("head.classifier", ("qa_outputs",))
# A classifier of two maps, as in RoBERTa and ELECTRA.
_DENSE = Row("head.dense", ("classifier.dense",))
_OUTPUT = Row("head.classifier", ("classifier.out_proj",))

_ENCODER_ONLY: Mapping[str, object] = {
    "is_decoder": False,
    "add_cross_attention": False,
    "position_embedding_type": "absolute",
}


def _numbers(dropout: float) -> dict[str, tuple[str, float]]:
    return {
        "hidden_dropout": ("hidden_dropout_prob", dropout),
        "attention_dropout": ("attention_probs_dropout_prob", dropout),
        "norm_eps": ("layer_norm_eps", 1e-12),
        "init_std": ("initializer_range", 0.02),
    }


def _embeddings(prefix: str) -> tuple[Row, ...]:
    stem = f"{prefix}embeddings"
    return (
        Row("encoder.embedding.word", (f"{stem}.word_embeddings",), _WEIGHT),
        Row("encoder.embedding.position", (f"{stem}.position_embeddings",), _WEIGHT),
        Row("encoder.embedding.token_type", (f"{stem}.token_type_embeddings",), _WEIGHT),
        Row("encoder.embedding.norm", (f"{stem}.LayerNorm",)),
    )


def _backbone(prefix: str) -> tuple[Row, ...]:
    """BERT's names, which RoBERTa and ELECTRA have under another prefix."""
    layer = f"{prefix}encoder.layer.{{slot}}"
    heads = f"{layer}.attention.self"
    return (
        *_embeddings(prefix),
        Row("encoder.attention.{attention}.qkv", (f"{heads}.query", f"{heads}.key", f"{heads}.value")),
        Row("encoder.attention.{attention}.output", (f"{layer}.attention.output.dense",)),
        Row("encoder.attention.{attention}.norm", (f"{layer}.attention.output.LayerNorm",)),
        Row("encoder.feedforward.{feedforward}.input", (f"{layer}.intermediate.dense",)),
        Row("encoder.feedforward.{feedforward}.output", (f"{layer}.output.dense",)),
        Row("encoder.feedforward.{feedforward}.norm", (f"{layer}.output.LayerNorm",)),
    )


_A = "albert.encoder.albert_layer_groups.{slot}.albert_layers.0"

ALBERT = Layout(
    model_type="albert",
    prefix="albert.",
    parts={
        "backbone": (
            *_embeddings("albert."),
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
        "classifier": (_CLASSIFIER,),
        "span": (_SPAN,),
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

BERT = Layout(  # SpanBERT's too
    model_type="bert",
    prefix="bert.",
    parts={
        "backbone": _backbone("bert."),
        "pooler": (Row("encoder.pooler", ("bert.pooler.dense",)),),
        "mlm": (
            Row("objectives.mlm.head.dense", ("cls.predictions.transform.dense",)),
            Row("objectives.mlm.head.norm", ("cls.predictions.transform.LayerNorm",)),
            Row("objectives.mlm.head", ("cls.predictions",), ("bias",)),
        ),
        "sentence": (Row("objectives.{sentence}.head.classifier", ("cls.seq_relationship",)),),
        "classifier": (_CLASSIFIER,),
        "span": (_SPAN,),
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
    sizes=_SIZES,
    numbers=_numbers(dropout=0.1),
    fixed=_ENCODER_ONLY,
    token_ids={"pad_token_id": ("pad_id", 0)},
)

ROBERTA = Layout(
    model_type="roberta",
    prefix="roberta.",
    parts={
        "backbone": _backbone("roberta."),
        "pooler": (Row("encoder.pooler", ("roberta.pooler.dense",)),),
        "mlm": (
            Row("objectives.mlm.head.dense", ("lm_head.dense",)),
            Row("objectives.mlm.head.norm", ("lm_head.layer_norm",)),
            Row("objectives.mlm.head", ("lm_head",), ("bias",)),
        ),
        "dense": (_DENSE,),
        "output": (_OUTPUT,),
        "classifier": (_CLASSIFIER,),
        "span": (_SPAN,),
    },
    heads={
        "backbone": Head("RobertaModel", ("pooler",)),
        "mlm": Head("RobertaForMaskedLM", ("mlm",)),
        "sequence": Head("RobertaForSequenceClassification", ("dense", "output")),
        "tokens": Head("RobertaForTokenClassification", ("classifier",)),
        "span": Head("RobertaForQuestionAnswering", ("span",)),
        "choice": Head("RobertaForMultipleChoice", ("pooler", "classifier")),
    },
    tied={
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    dense="tanh",
    erf_mlm=True,
    offset_positions=True,
    sizes=_SIZES,
    numbers=_numbers(dropout=0.1),
    fixed=_ENCODER_ONLY,
    token_ids={"pad_token_id": ("pad_id", 1), "bos_token_id": ("cls_id", 0), "eos_token_id": ("sep_id", 2)},
)

ELECTRA = Layout(
    model_type="electra",
    prefix="electra.",
    parts={
        "backbone": _backbone("electra."),
        "projection": (Row("encoder.embedding.project", ("electra.embeddings_project",)),),
        "mlm": (
            Row("objectives.mlm.head.dense", ("generator_predictions.dense",)),
            Row("objectives.mlm.head.norm", ("generator_predictions.LayerNorm",)),
            Row("objectives.mlm.head", ("generator_lm_head",), ("bias",)),
        ),
        "discriminator": (
            Row("objectives.rtd.head.dense", ("discriminator_predictions.dense",)),
            Row("objectives.rtd.head.classifier", ("discriminator_predictions.dense_prediction",)),
        ),
        "dense": (_DENSE,),
        "output": (_OUTPUT,),
        "summary": (Row("head.dense", ("sequence_summary.summary",)),),
        "classifier": (_CLASSIFIER,),
        "span": (_SPAN,),
    },
    heads={
        "backbone": Head("ElectraModel", ()),
        "mlm": Head("ElectraForMaskedLM", ("mlm",)),
        "discriminator": Head("ElectraForPreTraining", ("discriminator",)),
        "sequence": Head("ElectraForSequenceClassification", ("dense", "output")),
        "tokens": Head("ElectraForTokenClassification", ("classifier",)),
        "span": Head("ElectraForQuestionAnswering", ("span",)),
        "choice": Head("ElectraForMultipleChoice", ("summary", "classifier")),
    },
    tied={"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
    dense="gelu",
    erf_mlm=True,
    sizes={**_SIZES, "embedding_size": "embedding_size"},
    numbers=_numbers(dropout=0.1),
    fixed=_ENCODER_ONLY,
    fixed_by_part={"summary": {"summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"}},
    token_ids={"pad_token_id": ("pad_id", 0)},
)

LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {layout.model_type: layout for layout in (ALBERT, BERT, ROBERTA, ELECTRA)}
)
