"""The ONNX graph of a model gives the answers of its network, for every point of the space and
every head.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from extension.test_alibi import LinearBias
from litebert.base.errors import ModelError
from litebert.base.registry import POSITIONS
from litebert.config import EncoderConfig, replace
from litebert.interop.onnx.graph import onnx_model
from litebert.interop.onnx.operators import LARGEST, WORDS, Int8Graph
from litebert.model.attention_positions import AttentionPositions
from litebert.model.positions import Positions
from litebert.model.pretrainer import Pretrainer
from litebert.model.task_model import TaskModel
from litebert.recipes import RECIPES
from litebert.recipes.files import recipe
from toys.folders import load_module
from toys.points import PIECES, config, randomize, shape
from toys.refusals import refused

ALLOWED = 1e-4
POINTS: dict[str, dict[str, Any]] = {
    "shared": {},
    "unshared": {"sharing": "none", "embedding_size": 16},
    "attention shared": {"sharing": "attention"},
    "groups": {"sharing": "groups", "groups": 2},
    "pre-norm, gated, rotary": {
        "norm": "pre",
        "feedforward": "gated",
        "positions": "rotary",
        "bias": False,
    },
    "windows": {
        "window": 4,
        "global_every": 2,
        "positions": "rotary",
        "window_rotary_base": 100.0,
        "norm": "pre",
        "first_norm": False,
        "embedding_norm": "after",
        "segment_types": 0,
    },
    "global tokens": {"window": 4, "global_every": 0, "global_tokens": 2},
    "offset positions, one type": {"position_offset": 2, "segment_types": 1, "activation": "gelu"},
    "predicting": {"prediction": "hidden", "embedding_norm": "after", "pooler": False},
    "relu": {"activation": "relu"},
    "three groups": {"sharing": "groups", "groups": 3, "layers": 5},
    "a first layer without a norm": {"norm": "pre", "first_norm": False},
    "a head with tables of its own": {
        "untied": True,
        "prediction": "hidden",
        "embedding_norm": "after",
        "embedding_size": 16,
    },
    "silu": {"activation": "silu", "embedding_size": 16, "always_project": True},
    "a bias of the scores": {"positions": "biased"},
}


class Biased(Positions):
    def attention(self) -> AttentionPositions:
        return LinearBias(self.config)


class Turned(AttentionPositions):
    def rotate(self, x_BASD: Tensor) -> Tensor:
        return x_BASD.flip(-1)


class Turning(Positions):
    def attention(self) -> AttentionPositions:
        return Turned()


@pytest.fixture(autouse=True, scope="module")
def _register() -> None:
    POSITIONS.add("biased", Biased)
    POSITIONS.add("turned", Turning)


def rows(batch: int, length: int, types: int) -> dict[str, NDArray[np.int64]]:
    """Random rows, each two tokens shorter than the one before."""
    random = np.random.default_rng(length)
    mask = np.arange(length) < np.maximum(length - 2 * np.arange(batch)[:, None], 2)
    arrays = {
        "input_ids": np.where(mask, random.integers(5, PIECES, (batch, length)), 0),
        "attention_mask": mask + 0,
    }
    return arrays | (
        {"token_type_ids": random.integers(0, types, (batch, length)) * mask} if types > 1 else {}
    )


def assert_the_same(
    model: Pretrainer | TaskModel, head: Any, expected: Any, **fields: Any
) -> onnx.ModelProto:
    """Both give the same outputs on real tokens, whatever the batch and the length; the ONNX
    model."""
    exported = onnx_model(load_module(model, **fields), head)
    onnx.checker.check_model(exported, full_check=True)
    session = onnxruntime.InferenceSession(
        exported.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for batch, length in ((3, 12), (1, 5), (2, 24)):
        arrays = rows(batch, length, model.encoder.config.segment_types)
        assert [node.name for node in session.get_inputs()] == list(arrays)
        outputs = dict(
            zip(
                [node.name for node in session.get_outputs()],
                session.run(None, arrays),
                strict=True,
            )
        )
        with torch.no_grad():
            answers = expected({name: torch.from_numpy(array) for name, array in arrays.items()})
        assert outputs.keys() == answers.keys()
        for name, answer in answers.items():
            assert outputs[name].shape == answer.shape
            real = (
                arrays["attention_mask"] == 1 if outputs[name].shape[:2] == (batch, length) else ...
            )
            assert np.abs(outputs[name][real] - answer.numpy()[real]).max() < ALLOWED, name
    return exported


def encode(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    encoder: Any = model.encoder
    last: Tensor = encoder(
        batch["input_ids"], batch.get("token_type_ids"), batch["attention_mask"]
    ).last
    return last


def guesses(model: Pretrainer, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    last, tables = encode(model, batch), model.encoder.embedding
    head: Any = model.objectives["mlm"].head
    return {"logits": head(last, tables.word.weight, tables.map)}


@pytest.mark.parametrize("point", POINTS)
def test_every_point_of_the_space(point: str) -> None:
    model = Pretrainer(config(("mlm",), **POINTS[point])).eval()
    randomize(model)
    exported = assert_the_same(model, "mlm", lambda batch: guesses(model, batch))
    stored = sum(
        int(np.prod(tensor.dims)) for tensor in exported.graph.initializer if tensor.data_type == 1
    )
    tables = {
        "a bias of the scores": 4 * 24 * 24,
        "windows": 4 * 24 * 4,
        "pre-norm, gated, rotary": 2 * 24 * 4,
    }
    parameters = sum(
        parameter.numel()
        for name, parameter in model.named_parameters()
        if not name.startswith("encoder.pooler")
    )
    assert parameters <= stored <= parameters + tables.get(point, 0) + 8, "a weight is stored twice"


@pytest.mark.parametrize(
    "name", [name for name in RECIPES if name.endswith(("-tiny", "-mini", "-base", "-base-v1"))]
)
def test_every_recipe(name: str) -> None:
    """The recipe as it stands, but narrow."""
    whole = recipe(name)
    old = whole.encoder
    narrow = 8 if old.embedding_size < old.hidden_size else 16
    sizes: dict[str, Any] = {
        "vocab_size": PIECES,
        "embedding_size": narrow,
        "hidden_size": 16,
        "heads": 4,
        "intermediate_size": 24,
        "max_positions": 24,
        "layers": 4,
    }
    train, sequences = (
        replace(whole.train, depth_schedule=(), length_schedule=()),
        replace(whole.sequences, length=16),
    )
    encoder = replace(old, **sizes)
    model = Pretrainer(
        replace(whole, encoder=encoder, sequences=sequences, train=train, objectives=("mlm",))
    ).eval()
    randomize(model)
    assert_the_same(model, "backbone", lambda batch: {"last_hidden_state": encode(model, batch)})


HEADS: dict[str, tuple[bool, int, dict[str, Any], dict[str, Any]]] = {
    "sequence": (True, 3, {}, {}),
    "sequence with tanh": (True, 1, {"dense": "tanh"}, {"pooler": False}),
    "sequence with gelu": (True, 2, {"dense": "gelu"}, {"pooler": False}),
    "sequence of [CLS], predicting": (True, 3, {}, {"pooler": False, "prediction": "hidden"}),
    "sequence of the mean": (
        True,
        3,
        {"pooling": "mean"},
        {"pooler": False, "prediction": "hidden"},
    ),
    "sequence of the mean of length 1": (True, 3, {"pooling": "unit"}, {"pooler": False}),
    "tokens": (False, 5, {}, {}),
    "tokens, predicting": (False, 5, {}, {"pooler": False, "prediction": "hidden"}),
    "span": (False, 2, {}, {}),
}


@pytest.mark.parametrize("name", HEADS)
def test_every_head(name: str) -> None:
    reads_cls, classes, head, changes = HEADS[name]
    model = TaskModel(shape(**changes), reads_cls, classes, **head).eval()
    randomize(model)

    def answer_span(batch: dict[str, Tensor]) -> dict[str, Tensor]:
        logits = model(batch["input_ids"], batch["token_type_ids"], batch["attention_mask"])
        return (
            {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}
            if name == "span"
            else {"logits": logits}
        )

    kind = name.split()[0].strip(",")
    assert_the_same(model, kind, answer_span, task={"kind": kind})
    bare = assert_the_same(
        model, "backbone", lambda batch: {"last_hidden_state": encode(model, batch)}
    )
    assert not any(
        tensor.name.startswith(("head.", "encoder.pooler")) for tensor in bare.graph.initializer
    )


def test_choices_are_rows_of_their_example() -> None:
    model = TaskModel(shape(), True, 1).eval()
    randomize(model)
    exported = onnx_model(load_module(model, task={"kind": "choice"}))
    session = onnxruntime.InferenceSession(
        exported.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    batch = rows(6, 16, 2)
    with torch.no_grad():
        expected = model(
            *map(
                torch.from_numpy,
                (batch["input_ids"], batch["token_type_ids"], batch["attention_mask"]),
            )
        )
    (logits,) = session.run(None, {name: array.reshape(2, 3, 16) for name, array in batch.items()})
    assert np.abs(logits - expected.numpy().reshape(2, 3)).max() < ALLOWED


def test_what_cannot_be_exported_is_refused() -> None:
    tuned = TaskModel(
        EncoderConfig(vocab_size=40, hidden_size=16, heads=4, layers=1, intermediate_size=8),
        True,
        2,
    )
    with refused(ModelError, "mlm", "sequence", "backbone"):
        onnx_model(load_module(tuned, task={"kind": "sequence"}), "mlm")
    with refused(ModelError, "turned", "tables", "rotary"):
        onnx_model(load_module(Pretrainer(config(("mlm",), positions="turned"))))


@pytest.mark.parametrize("point", ["shared", "windows", "predicting", "offset positions, one type"])
def test_8_bit_weights(point: str) -> None:
    """Also where the table of words is the last map; each large weight is stored once, as int8."""
    model = Pretrainer(config(("mlm",), **POINTS[point])).eval()
    randomize(model, scale=0.1)
    graph = Int8Graph(multiplies_words=True)
    exported = onnx_model(load_module(model), "mlm", graph)
    onnx.checker.check_model(exported, full_check=True)
    session = onnxruntime.InferenceSession(
        exported.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    batch = rows(3, 12, model.encoder.config.segment_types)
    with torch.no_grad():
        wanted = guesses(model, {name: torch.from_numpy(array) for name, array in batch.items()})[
            "logits"
        ].numpy()
    real = batch["attention_mask"] == 1
    (actual,) = session.run(None, batch)
    assert np.linalg.norm((actual - wanted)[real]) < 0.1 * np.linalg.norm(wanted[real])
    for i, count in enumerate(real.sum(1)):  # alone and without padding, or in the batch
        (alone,) = session.run(
            None, {name: array[i : i + 1, :count] for name, array in batch.items()}
        )
        assert np.abs(actual[i, :count] - alone[0]).max() <= 1e-6
    small = [
        tensor for tensor in exported.graph.initializer if tensor.data_type == onnx.TensorProto.INT8
    ]
    assert {tensor.name for tensor in small} >= {
        WORDS,
        "encoder.attention.0.qkv.weight",
        "encoder.feedforward.0.input.weight",
    }
    assert all(np.abs(onnx.numpy_helper.to_array(tensor)).max() <= LARGEST for tensor in small)
    matrices = sum(
        parameter.numel()
        for name, parameter in model.named_parameters()
        if parameter.ndim == 2
        and "position" not in name
        and "token_type" not in name
        and "pooler" not in name
    )
    assert sum(int(np.prod(tensor.dims)) for tensor in small) == matrices


def test_the_size_of_a_file_is_that_of_its_parameters() -> None:
    model = TaskModel(recipe("albert-base").encoder, True, 2)
    opened = load_module(model, task={"kind": "sequence"})
    bytes_of_parameters = 4 * sum(parameter.numel() for parameter in model.parameters())
    assert onnx_model(opened).ByteSize() < 1.01 * bytes_of_parameters
    assert onnx_model(opened, "backbone").ByteSize() <= 45_500_000
    assert onnx_model(opened, graph=Int8Graph(multiplies_words=False)).ByteSize() <= 12_500_000
