"""Narrower networks: importance is the slope of the loss in a gate, what matters least is cut, and
what is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from litebert import pretrain
from litebert.base.errors import ConfigError, DataError, ModelError
from litebert.change.narrowing import Importance, importance_of
from litebert.change.shrinking import Shrinking, shrink
from litebert.config import cost
from litebert.interop import read_folder
from litebert.model.pretrainer import Pretrainer
from litebert.train.evaluate import evaluate_pretrained
from litebert.train.importance import measure_importance
from toys.folders import load_module, save_litebert, tiny
from toys.pretraining import config
from toys.refusals import refused
from toys.typed import typed

CLASSIC: dict[str, Any] = {"embedding_size": 8, "sharing": "none", "layers": 3}
SHARED: dict[str, Any] = {
    "norm": "pre",
    "first_norm": False,
    "positions": "rotary",
    "segment_types": 0,
    "bias": False,
    "embedding_norm": "after",
    "prediction": "hidden",
    "feedforward": "gated",
}
SHAPES = pytest.mark.parametrize("shape", [CLASSIC, SHARED], ids=["classic", "shared"])


def large(**shape: Any) -> Pretrainer:
    """A model with weights large enough that every one of them shows in the output."""
    torch.manual_seed(0)
    model = tiny(("mlm", "sop"), **shape).double()
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return model.eval()


def loss(model: Pretrainer) -> Tensor:
    """A loss that reads all states."""
    ids = torch.randint(5, 40, (3, 12), generator=torch.manual_seed(1))
    read = model.encoder(ids)
    total: Tensor = (read.last.sin() * torch.linspace(-1, 1, read.last.shape[-1])).sum()
    return total


def make_importance(
    features: list[float], heads: list[float], units: list[float], model: Pretrainer
) -> Importance:
    """The same importance in all blocks."""
    count = len(model.encoder.attention)
    return Importance(
        torch.tensor(features), (torch.tensor(heads),) * count, (torch.tensor(units),) * count
    )


@SHAPES
def test_importance_is_the_slope_of_the_loss_in_a_gate(shape: dict[str, Any]) -> None:
    model, step = large(**shape), 1e-5
    loss(model).backward()  # type: ignore[no-untyped-call]
    importance = importance_of(model.encoder)
    state = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}

    @torch.no_grad()
    def slope(gate: Callable[[float], None]) -> float:
        sides = []
        for sign in (1, -1):
            gate(1 + sign * step)
            sides.append(loss(model).item())
            model.load_state_dict(state)
        return abs(sides[0] - sides[1]) / (2 * step)

    def scale(columns: Tensor, factor: float) -> None:
        columns.mul_(factor)

    for attention, heads in zip(model.encoder.attention, importance.heads, strict=True):
        output: Any = attention.get_submodule("output")
        columns = output.weight.data.view(8, 2, 4)
        for head in range(2):
            assert slope(partial(scale, columns[:, head])) == pytest.approx(
                float(heads[head]), rel=1e-4
            )
    for block, units in zip(model.encoder.feedforward, importance.units, strict=True):
        output = block.get_submodule("output")
        weight = output.weight.data
        for unit in (0, 7, 15):
            assert slope(partial(scale, weight[:, unit])) == pytest.approx(
                float(units[unit]), rel=1e-4
            )
    norms = [
        module
        for name, module in model.encoder.named_modules()
        if isinstance(module, torch.nn.LayerNorm) and (module.weight.shape == (8,))
    ]

    def feature(norm: torch.nn.LayerNorm, place: int, factor: float) -> None:
        norm.weight.data[place] *= factor
        if norm.bias is not None:
            norm.bias.data[place] *= factor

    for place in (0, 5):
        slopes = [slope(partial(feature, norm, place)) for norm in norms]
        assert sum(slopes) == pytest.approx(float(importance.features[place]), rel=1e-4)


@SHAPES
def test_units_without_an_effect_are_cut_without_a_loss(shape: dict[str, Any]) -> None:
    model, dead = large(**shape), [1, 4, 5, 9, 15]
    for block in model.encoder.feedforward:
        output: Any = block.get_submodule("output")
        output.weight.data[:, dead] = 0
    loss(model).backward()  # type: ignore[no-untyped-call]
    importance = importance_of(model.encoder)
    made = shrink(
        load_module(model), Shrinking(intermediate_size=11, importance=lambda: importance)
    )
    assert made.loaded.config.encoder.intermediate_size == 11
    assert made.importance_kept == pytest.approx(
        {"features": 1.0, "heads": 1.0, "inner units": 1.0}
    )
    assert not made.left_out
    student = made.loaded.model.double()
    torch.testing.assert_close(loss(student), loss(model), rtol=1e-5, atol=1e-5)  # type: ignore[arg-type]


@SHAPES
def test_what_is_kept_are_the_features_and_heads_that_matter_most(shape: dict[str, Any]) -> None:
    model = large(**shape)
    features = [1.0, 9.0, 2.0, 8.0, 7.0, 0.0, 0.0, 3.0]
    importance = make_importance(features, [1.0, 3.0], [0.0] * 8 + [1.0] * 8, model)
    made = shrink(
        load_module(model),
        Shrinking(hidden_size=4, intermediate_size=8, importance=lambda: importance),
    )
    assert made.importance_kept == pytest.approx(
        {"features": 0.9, "heads": 0.75, "inner units": 1.0}
    )
    encoder, rows = made.loaded.config.encoder, [1, 3, 4, 7]
    assert (encoder.hidden_size, encoder.heads, encoder.intermediate_size) == (4, 1, 8)
    assert made.loaded.config.objectives == ("mlm", "sop")
    narrow, wide = (
        made.loaded.model.state_dict(),
        {name: tensor.float() for name, tensor in model.state_dict().items()},
    )
    for number in range(len(model.encoder.attention)):
        place = f"encoder.attention.{number}."
        for which in range(3):  # queries, keys and values of the second head
            narrow_rows = narrow[place + "qkv.weight"][4 * which : 4 * which + 4]
            assert torch.equal(
                narrow_rows, wide[place + "qkv.weight"][8 * which + 4 : 8 * which + 8][:, rows]
            )
        assert torch.equal(
            narrow[place + "output.weight"], wide[place + "output.weight"][rows][:, 4:]
        )
        place = f"encoder.feedforward.{number}."
        first = wide[place + "input.weight"].split(16)
        expected = torch.cat([matrix[8:, rows] for matrix in first])
        assert torch.equal(narrow[place + "input.weight"], expected)
        assert torch.equal(narrow[place + "norm.weight"], wide[place + "norm.weight"][rows])
    if "embedding_size" in shape:  # E is H
        assert torch.equal(
            narrow["encoder.embedding.word.weight"], wide["encoder.embedding.word.weight"][:, rows]
        )
    else:
        assert torch.equal(
            narrow["encoder.embedding.word.weight"], wide["encoder.embedding.word.weight"]
        )
        name = "encoder.embedding.project.weight"
        assert torch.equal(narrow[name], wide[name][rows])
    dense = "objectives.mlm.head.dense.weight"
    assert torch.equal(narrow[dense], wide[dense][rows][:, rows])
    assert made.parameters[1] == sum(cost.model_parameters(made.loaded.config).values())


@pytest.mark.parametrize(
    "shape",
    [
        {"layers": 4, "sharing": "groups", "groups": 2, "embedding_size": 8},
        {**SHARED, "untied": True},
        {**SHARED, "bias": True, "activation": "gelu"},
    ],
    ids=["groups", "untied", "biases"],
)
def test_any_point_of_the_space_becomes_narrower(shape: dict[str, Any]) -> None:
    """Equal importance keeps the first parts, so what is left must stand where it
    stood.
    """
    model = large(**shape)
    importance = make_importance([1.0] * 8, [1.0] * 2, [1.0] * 16, model)
    made = shrink(
        load_module(model),
        Shrinking(hidden_size=4, intermediate_size=8, importance=lambda: importance),
    )
    assert not made.left_out
    narrow, wide = (
        made.loaded.model.state_dict(),
        {name: tensor.float() for name, tensor in model.state_dict().items()},
    )
    assert narrow.keys() == wide.keys()
    for name, tensor in narrow.items():
        source, corner = wide[name], tuple(slice(size) for size in tensor.shape)
        if "qkv" in name:
            source, corner = (
                source.view(3, 2, 4, *source.shape[1:]),
                (slice(3), slice(1), slice(4), *corner[1:]),
            )
        elif "feedforward" in name and "input" in name and shape.get("feedforward") == "gated":
            source, corner = (
                source.view(2, 16, *source.shape[1:]),
                (slice(2), slice(8), *corner[1:]),
            )
        assert torch.equal(tensor, source[corner].reshape(tensor.shape)), name
    assert loss(made.loaded.model).isfinite()  # type: ignore[arg-type]


def test_a_narrower_network_can_be_merged_and_factorized_too() -> None:
    model = large(**CLASSIC)
    importance = make_importance([1.0] * 8, [1.0, 2.0], [1.0] * 16, model)
    made = shrink(
        load_module(model),
        Shrinking(hidden_size=4, embedding_size=2, share="all", importance=lambda: importance),
    )
    encoder = made.loaded.config.encoder
    assert (encoder.hidden_size, encoder.embedding_size, encoder.sharing) == (4, 2, "all")
    assert made.energy is not None
    assert set(made.distances) == {"attention 1", "feedforward 1"}


@pytest.mark.thorough
def test_what_matters_most_keeps_more_than_what_matters_least(
    tiny_data: Path, tmp_path: Path
) -> None:
    run = pretrain(config(train={"budget": "60 steps"}), tiny_data, tmp_path / "run").folder
    best = measure_importance(run, tiny_data, batches=4)
    assert torch.equal(best.features, measure_importance(run, tiny_data, batches=4).features)
    worst = Importance(
        -best.features, tuple(-head for head in best.heads), tuple(-unit for unit in best.units)
    )
    losses, source = {}, read_folder(run)
    inner = source.config.encoder.intermediate_size // 4
    for name, importance in (("most", best), ("least", worst)):
        made = shrink(
            source,
            Shrinking(intermediate_size=inner, importance=lambda measured=importance: measured),  # type: ignore[misc]
        )
        save_litebert(made.loaded.model, source.tokenizer, tmp_path / name)
        losses[name] = evaluate_pretrained(tmp_path / name, tiny_data)["mlm_loss"]
    whole = evaluate_pretrained(run, tiny_data)["mlm_loss"]
    assert abs(losses["most"] - whole) < abs(losses["least"] - whole)


# ------------------------------------------------------------------------ the command, and refusals


@pytest.mark.thorough
def test_the_command_keeps_what_matters_and_says_what_was_lost(
    run: Any, tiny_data: Path, tmp_path: Path
) -> None:
    folder = pretrain(config(train={"budget": "2 steps"}), tiny_data, tmp_path / "run").folder
    shape = read_folder(folder).config.encoder
    words = typed(
        "resize {} --out {} --hidden-size {} --shards {}",
        folder,
        tmp_path / "small",
        shape.hidden_size // 2,
        tiny_data,
    )
    status, out, err = run(*words)
    assert status == 0, err
    for shown in ("importance of features kept", "importance of heads kept", "held-out mlm loss"):
        assert shown in out
    small = read_folder(tmp_path / "small").config.encoder
    assert (small.hidden_size, small.heads) == (shape.hidden_size // 2, shape.heads // 2)


def test_widths_that_cannot_be_are_refused(run: Any, tiny_data: Path, tmp_path: Path) -> None:
    model = large(**CLASSIC)

    def never() -> Importance:
        raise AssertionError("nothing is measured for sizes that cannot be")

    for size in (3, 6, 16):
        with refused(ConfigError, "--hidden-size", size):
            shrink(load_module(model), Shrinking(hidden_size=size, importance=never))
    with refused(ConfigError, "--intermediate-size", 17, 16):
        shrink(load_module(model), Shrinking(intermediate_size=17, importance=never))
    with refused(ModelError, "always_project", "--hidden-size"):
        shrink(
            load_module(tiny(embedding_size=8, always_project=True)),
            Shrinking(hidden_size=4, importance=never),
        )
    with refused(ConfigError, "--hidden-size", "--shards"):
        Shrinking(hidden_size=4)
    save_litebert(model.float(), None, tmp_path / "model")
    with refused(DataError, "tokenizer"):
        measure_importance(tmp_path / "model", tiny_data)
    status, _, err = run(
        "resize", tmp_path / "model", "--out", tmp_path / "small", "--hidden-size", 4
    )
    assert status == 2
    assert "--shards" in err
