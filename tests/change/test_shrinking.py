"""Smaller models from larger ones: exact where nothing is lost, measured where something is, and
what is refused.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from litebert.base.errors import ConfigError, ModelError
from litebert.change.shrinking import Shrinking, shrink
from litebert.config import cost
from litebert.interop import read_folder
from litebert.model.pretrainer import Pretrainer
from toys.folders import load_module, save_litebert, small_tokenizer, tiny
from toys.refusals import names, refused
from toys.typed import typed

CLASSIC: dict[str, Any] = {"embedding_size": 8, "sharing": "none", "layers": 3}
"""BERT: E = H, layers of their own, norms after each sum, a pooler."""
MODERN: dict[str, Any] = {
    **CLASSIC,
    "norm": "pre",
    "first_norm": False,
    "positions": "rotary",
    "segment_types": 0,
    "embedding_norm": "after",
    "prediction": "hidden",
    "bias": False,
}


def large(seed: int = 0, objectives: tuple[str, ...] = ("mlm", "sop"), **shape: Any) -> Pretrainer:
    """A model with weights large enough that every one of them shows in the output."""
    torch.manual_seed(seed)
    model = tiny(objectives, **{**CLASSIC, **shape})
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return model.eval()


def outputs(model: Pretrainer) -> tuple[Tensor, Tensor | None]:
    """Logits of all tokens of some texts with padding, and the pooled states."""
    ids = torch.randint(5, 40, (3, 12), generator=torch.manual_seed(1))
    mask = torch.arange(12) < torch.tensor([12, 9, 4])[:, None]
    types = (torch.arange(12) > 5).long().expand(3, 12) * bool(model.config.encoder.segment_types)
    with torch.no_grad():
        read = model.encoder(ids, types, mask)
        table, map_ = model.encoder.embedding.word.weight, model.encoder.embedding.map
        logits = model.get_submodule("objectives.mlm.head")(read.last[mask], table, map_)
    return logits, read.pooled


def same(model: Pretrainer, other: Any, atol: float = 1e-5) -> None:
    for left, right in zip(outputs(model), outputs(other), strict=True):
        torch.testing.assert_close(left, right, atol=atol, rtol=1e-4)


@pytest.mark.parametrize("shape", [CLASSIC, MODERN], ids=["classic", "modern"])
def test_tables_of_low_rank_are_factorized_without_a_loss(shape: dict[str, Any]) -> None:
    model = large(**shape)
    basis = torch.linalg.qr(torch.randn(8, 3))[0]
    embedding: Any = model.encoder.embedding
    tables = [embedding.word.weight]
    if not shape.get("positions"):
        tables += [embedding.position.weight, embedding.token_type.weight]
    for table in tables:
        table.data = table.data @ basis @ basis.T
    made = shrink(load_module(model), Shrinking(embedding_size=3))
    assert made.energy == pytest.approx(1.0)
    assert not made.distances
    assert not made.left_out
    assert made.loaded.config.encoder.embedding_size == 3
    same(model, made.loaded.model)


def test_what_is_cut_off_is_the_energy_that_is_missing() -> None:
    model = large()
    embedding: Any = model.encoder.embedding
    rows = torch.cat(
        [embedding.word.weight, embedding.position.weight, embedding.token_type.weight]
    )
    values = torch.linalg.svdvals(rows.detach().double()).square()
    energies = []
    for size in (7, 4, 1):
        made = shrink(load_module(model), Shrinking(embedding_size=size))
        assert made.energy == pytest.approx((values[:size].sum() / values.sum()).item())
        small: Any = made.loaded.model.encoder.embedding
        table, map_ = small.word.weight, small.project.weight
        left = (table @ map_.T - embedding.word.weight).square().sum().item()
        assert left <= values[size:].sum().item() + 1e-4
        energies.append(made.energy or 0.0)
        after = sum(parameter.numel() for parameter in made.loaded.model.parameters())
        assert made.parameters == (
            sum(parameter.numel() for parameter in model.parameters()),
            after,
        )
        assert after == sum(cost.model_parameters(made.loaded.config).values())
    assert energies == sorted(energies, reverse=True)


@pytest.mark.parametrize("share", ["all", "attention", "feedforward", "groups"])
@pytest.mark.parametrize("merge", ["average", "first", "middle", "last"])
def test_equal_layers_become_one_block_without_a_loss(share: Any, merge: Any) -> None:
    model = large()
    for part in (model.encoder.attention, model.encoder.feedforward):
        for block in part[1:]:
            block.load_state_dict(part[0].state_dict())
    made = shrink(
        load_module(model),
        Shrinking(share=share, groups=2 if share == "groups" else 1, merge=merge),
    )
    assert set(made.distances.values()) == {0.0}
    first, two = outputs(model), outputs(made.loaded.model)  # type: ignore[arg-type]
    for before, after in zip(first, two, strict=True):
        assert before is not None
        assert after is not None
        assert torch.equal(before, after)


def test_the_mean_and_its_distance() -> None:
    model = large(layers=4)
    made = shrink(load_module(model), Shrinking(share="groups", groups=2, layers=2))
    merged, original = made.loaded.model.state_dict(), model.state_dict()
    key = "encoder.feedforward.{}.input.weight"
    mean = (original[key.format(2)] + original[key.format(3)]) / 2
    torch.testing.assert_close(merged[key.format(1)], mean)
    blocks = [
        torch.cat([tensor.flatten() for tensor in model.encoder.attention[i].state_dict().values()])
        for i in (0, 1)
    ]
    half = (blocks[0] - blocks[1]).norm() / 2
    expected = math.sqrt(2 * half**2 / (blocks[0].norm() ** 2 + blocks[1].norm() ** 2))
    assert made.distances["attention 1"] == pytest.approx(expected, rel=1e-4)
    assert list(made.distances) == ["attention 1", "attention 2", "feedforward 1", "feedforward 2"]


def test_chosen_layers_are_taken_as_they_are() -> None:
    model = large(layers=4)
    made = shrink(load_module(model), Shrinking(layers=2, merge="last"))
    student_state, teacher_state = made.loaded.model.state_dict(), model.state_dict()
    for student, teacher in ((0, 1), (1, 3)):
        assert torch.equal(
            student_state[f"encoder.attention.{student}.qkv.weight"],
            teacher_state[f"encoder.attention.{teacher}.qkv.weight"],
        )


def test_a_first_layer_without_a_norm_has_no_say_in_the_norm() -> None:
    model = large(**MODERN)
    made = shrink(load_module(model), Shrinking(share="all"))
    norms = [model.state_dict()[f"encoder.attention.{i}.norm.weight"] for i in (1, 2)]
    torch.testing.assert_close(
        made.loaded.model.state_dict()["encoder.attention.0.norm.weight"], sum(norms) / 2
    )
    outputs(made.loaded.model)  # type: ignore[arg-type]


# ------------------------------------------------------------------------ the command, and refusals


def test_the_command_writes_a_model_that_opens(run: Any, tmp_path: Path) -> None:
    save_litebert(large(), small_tokenizer(), tmp_path / "bert")
    words = typed(
        "resize {} --out {} --share all --embedding-size 4", tmp_path / "bert", tmp_path / "albert"
    )
    status, out, err = run(*words)
    assert status == 0
    for shown in ("energy", "attention 1", "feedforward 1"):
        assert shown in out
    next_step = (out + err).partition("next:")[2].splitlines()[0]
    names(next_step, f"pretrain --from {tmp_path / 'albert'} --teacher {tmp_path / 'bert'}")
    shape = read_folder(tmp_path / "albert").config.encoder
    assert (shape.sharing, shape.layers, shape.embedding_size) == ("all", 3, 4)
    out = run(*words[:3], tmp_path / "thin", "--layers", 1, "--json")[1]
    record = json.loads(out)
    assert record["path"] == str(tmp_path / "thin")
    assert record["parameters"][1] < record["parameters"][0]
    status, _, err = run("resize", tmp_path / "bert", "--out", tmp_path / "other")
    assert status == 2
    names(err, "--layers")


def test_what_cannot_be_made_smaller_is_refused(tmp_path: Path) -> None:
    with refused(ConfigError, "--layers", 5, 3):
        shrink(load_module(large()), Shrinking(layers=5))
    with refused(ConfigError, "--embedding-size", 9, 7):
        shrink(load_module(large()), Shrinking(embedding_size=9))
    with refused(ModelError, "--embedding-size"):
        shrink(load_module(tiny()), Shrinking(embedding_size=2))  # a norm stands before its map
    with refused(ModelError, "generator"):
        shrink(load_module(large(objectives=("mlm", "rtd"))), Shrinking(share="all"))


def test_sizes_that_change_nothing_are_refused() -> None:
    with refused(ConfigError, "--groups", "--share"):
        Shrinking(groups=2)
    with refused(ConfigError, "--merge", "--share"):
        Shrinking(merge="first", embedding_size=4)
    with refused(ConfigError, "encoder.layers", 0):
        shrink(load_module(large()), Shrinking(layers=0))
