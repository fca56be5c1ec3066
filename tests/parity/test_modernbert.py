"""ModernBERT's network: one of `transformers` and ours with its weights compute the same, padded,
windowed and long.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

from litebert.config import Config, EncoderConfig, SequenceConfig
from litebert.model.pretrainer import Pretrainer
from litebert.model.task_model import TaskModel
from toys.families import TOLERANCE

HIDDEN, LAYERS, VOCABULARY = 32, 5, 90


def build_peer(kind: str = "ForMaskedLM", length: int = 40, window: int = 8, **changes: Any) -> Any:
    """A random model, of whose layers the first and the fourth read everything."""
    make_config: Any = transformers.ModernBertConfig
    config = make_config(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=24,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        max_position_embeddings=length,
        local_attention=window,
        global_attn_every_n_layers=3,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        cls_token_id=1,
        sep_token_id=2,
        attn_implementation="sdpa",
        **{"num_labels": 3, **changes},
    )
    model = getattr(transformers, f"ModernBert{kind}")(config)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            center = 1.0 if "norm" in name and name.endswith("weight") else 0.0
            parameter.copy_(center + 0.15 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def shape(length: int = 40, window: int = 8, **changes: Any) -> EncoderConfig:
    fields: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "embedding_size": HIDDEN,
        "hidden_size": HIDDEN,
        "layers": LAYERS,
        "heads": 2,
        "intermediate_size": 24,
        "max_positions": length,
        "sharing": "none",
        "segment_types": 0,
        "positions": "rotary",
        "rotary_base": 160000.0,
        "window": window,
        "global_every": 3,
        "embedding_norm": "after",
        "norm": "pre",
        "first_norm": False,
        "norm_eps": 1e-5,
        "feedforward": "gated",
        "activation": "gelu",
        "bias": False,
        "prediction": "hidden",
        "pooler": False,
    }
    return EncoderConfig(**{**fields, **changes})


def names(backbone: str, head: str) -> dict[str, str]:
    """Their name of each of our parameters."""
    mapping = {
        "encoder.embedding.word": "embeddings.tok_embeddings",
        "encoder.embedding.norm": "embeddings.norm",
        "encoder.norm": "final_norm",
    }
    for i in range(LAYERS):
        mapping |= {
            f"encoder.attention.{i}.{our_name}": f"layers.{i}.{peer_name}"
            for our_name, peer_name in (
                ("qkv", "attn.Wqkv"),
                ("output", "attn.Wo"),
                ("norm", "attn_norm"),
            )
        }
        mapping |= {
            f"encoder.feedforward.{i}.{our_name}": f"layers.{i}.{peer_name}"
            for our_name, peer_name in (
                ("input", "mlp.Wi"),
                ("output", "mlp.Wo"),
                ("norm", "mlp_norm"),
            )
        }
    del mapping["encoder.attention.0.norm"]
    named = {
        f"{our_name}.weight": f"{backbone}{peer_name}.weight"
        for our_name, peer_name in mapping.items()
    }
    return named | {f"{head}.{part}.weight": f"head.{part}.weight" for part in ("dense", "norm")}


def fill_module(model: nn.Module, source: Any, mapping: dict[str, str]) -> Any:
    """Ours with their weights, strictly."""
    state = source.state_dict()
    model.load_state_dict({our_name: state[name] for our_name, name in mapping.items()})
    return model.eval()


def pretrainer(source: Any, **changes: Any) -> Pretrainer:
    config = Config(
        name="x", encoder=shape(**changes), sequences=SequenceConfig(length=8), objectives=("mlm",)
    )
    head = "objectives.mlm.head"
    model: Pretrainer = fill_module(
        Pretrainer(config), source, names("model.", head) | {f"{head}.bias": "decoder.bias"}
    )
    return model


def make_batch(rows: int, length: int) -> dict[str, Tensor]:
    ids = torch.randint(3, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(3))
    lengths = length - torch.arange(rows)[:, None] * (length // (rows + 1))
    mask = torch.arange(length) < lengths
    return {"input_ids": ids * mask, "attention_mask": mask.long()}


def compare(actual: Tensor, wanted: Tensor, mask: Tensor) -> None:
    assert wanted.abs().max() > 0.1
    assert float(((actual - wanted) * mask[..., None]).abs().max()) <= TOLERANCE


@pytest.mark.parametrize(
    ("length", "window"), [(40, 8), (40, 128), (300, 9), (300, 128), (2048, 128)]
)
@torch.no_grad()
def test_every_state_and_the_logits(length: int, window: int) -> None:
    source = build_peer(length=length, window=window)
    model = pretrainer(source, length=length, window=window)
    batch = make_batch(3 if length < 2048 else 2, length)
    mask = batch["attention_mask"]
    output = source(**batch, output_hidden_states=True)
    inputs: dict[str, Any] = batch
    states = list(model.encoder.states(**inputs))
    for state, wanted in zip(states[:-1], output.hidden_states[:-1], strict=True):
        compare(state, wanted, mask)
    last = model.encoder(**batch).last
    compare(last, output.hidden_states[-1], mask)
    embedding: Any = model.encoder.embedding
    head: Any = model.objectives["mlm"].head
    compare(head(last, embedding.word.weight, embedding.map), output.logits, mask)
    alone = {"input_ids": batch["input_ids"][:1]}
    compare(
        model.encoder(**alone).last, source.model(**alone).last_hidden_state, torch.ones(1, length)
    )


def test_gradients() -> None:
    """Gradients of a loss over real tokens, by every parameter."""
    source = build_peer(length=300)
    model = pretrainer(source, length=300)
    batch = make_batch(3, 300)
    labels = torch.where(batch["attention_mask"] > 0, batch["input_ids"], -100)
    source(**batch, labels=labels).loss.backward()
    last = model.encoder(**batch).last.flatten(0, 1)
    embedding: Any = model.encoder.embedding
    head: Any = model.objectives["mlm"].head
    loss: Any = nn.functional.cross_entropy(
        head(last, embedding.word.weight, embedding.map), labels.flatten()
    )
    loss.backward()
    wanted = dict(source.named_parameters())
    mapping = names("model.", "objectives.mlm.head") | {"objectives.mlm.head.bias": "decoder.bias"}
    for name, parameter in model.named_parameters():
        expected = wanted[mapping[name]].grad
        assert parameter.grad is not None
        assert (parameter.grad - expected).norm() <= 1e-5 * expected.norm() + 1e-7, name


HEADS: list[tuple[str, bool, int, Any]] = [
    # class, whether it reads [CLS], numbers it gives, what it reads
    ("ForSequenceClassification", True, 3, "cls"),
    ("ForSequenceClassification", True, 3, "mean"),
    ("ForMultipleChoice", True, 1, "cls"),
    ("ForMultipleChoice", True, 1, "mean"),
    ("ForTokenClassification", False, 3, "cls"),
    ("ForQuestionAnswering", False, 2, "cls"),
]


@pytest.mark.parametrize(("kind", "reads_cls", "classes", "pooling"), HEADS)
@torch.no_grad()
def test_heads_of_fine_tuning(kind: str, reads_cls: bool, classes: int, pooling: Any) -> None:
    changes = {"num_labels": 2} if kind == "ForQuestionAnswering" else {}
    source = build_peer(kind, classifier_pooling=pooling, **changes)
    mapping = names("model.", "head") | {
        f"head.classifier.{leaf}": f"classifier.{leaf}" for leaf in ("weight", "bias")
    }
    model = fill_module(TaskModel(shape(), reads_cls, classes, pooling=pooling), source, mapping)
    batch = make_batch(3, 40)
    if kind == "ForMultipleChoice":
        wanted = source(**{name: tensor[None] for name, tensor in batch.items()}).logits.T
    elif kind == "ForQuestionAnswering":
        output = source(**batch)
        wanted = torch.stack((output.start_logits, output.end_logits), -1)
    else:
        wanted = source(**batch).logits
    mask = torch.ones(3, 1) if reads_cls else batch["attention_mask"]
    compare(
        model(**batch)[:, None] if reads_cls else model(**batch),
        wanted[:, None] if reads_cls else wanted,
        mask,
    )
