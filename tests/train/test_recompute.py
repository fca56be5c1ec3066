"""Recomputed activations: the same run bit for bit in less memory, planned, offered and chosen
where it is needed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from litebert.config import (
    Config,
    EncoderConfig,
    ReplacedTokenConfig,
    SequenceConfig,
    cost,
    replace,
)
from litebert.data.shards import Shards
from litebert.model.pretrainer import Pretrainer
from litebert.train import memory
from litebert.train.device import choose
from litebert.train.measure import make_batch
from litebert.train.memory import enable_recompute, fit_micro_batch, measure_peak_bytes
from toys.finetuning import recipe_file, write_table
from toys.points import batch, randomize
from toys.pretraining import MIB, config, leave_at, loop_of, pretrain, result, with_free
from toys.refusals import names
from toys.typed import typed

Run = Callable[..., tuple[int, str, str]]
CPU = choose("float32", "cpu")

MODERN: dict[str, Any] = {
    "layers": 3,
    "pooler": False,
    "norm": "pre",
    "first_norm": False,
    "embedding_norm": "after",
    "positions": "rotary",
    "window": 6,
    "global_every": 2,
    "window_rotary_base": 500.0,
    "bias": False,
    "prediction": "hidden",
}

POINTS: list[dict[str, Any]] = [
    {},
    {"encoder": {"hidden_dropout": 0.2, "attention_dropout": 0.1}, "train": {"micro_batch": 3}},
    {"encoder": {"layers": 4}, "train": {"depth_schedule": ((0.5, 2),)}},
    {"encoder": {"norm": "pre", "feedforward": "gated", "positions": "rotary", "sharing": "none"}},
    {
        "encoder": {"pooler": False},
        "objectives": ("mlm", "rtd"),
        "rtd": ReplacedTokenConfig(generator_width=0.5),
    },
    {"encoder": {"pooler": False}, "objectives": ("mlm", "sbo")},
    {"encoder": MODERN, "objectives": ("mlm",), "train": {"depth_schedule": ((0.5, 1),)}},
    {
        "encoder": MODERN,
        "objectives": ("mlm", "rtd"),
        "rtd": ReplacedTokenConfig(generator_width=0.5),
    },
]


@pytest.mark.thorough
@pytest.mark.parametrize("changes", POINTS, ids=str)
def test_a_run_is_the_same_to_the_bit(
    changes: dict[str, Any], tiny_data: Path, tmp_path: Path
) -> None:
    point, runs = config(**changes), []
    vocab_size = Shards.open(tiny_data).tokenizer.vocab_size
    point = replace(point, encoder=replace(point.encoder, vocab_size=vocab_size))
    for name, variant in (("kept", point), ("again", enable_recompute(point))):
        loop_of(variant, tiny_data, tmp_path / name).run()
        runs.append(result(tmp_path / name))
    assert runs[0] == runs[1]


@pytest.mark.parametrize("bfloat16", [False, True])
def test_gradients_of_padded_rows_are_the_same_too(bfloat16: bool) -> None:
    points = [config(encoder={"vocab_size": 50, "attention_dropout": 0.3})]
    points.append(enable_recompute(points[0]))
    gradients = []
    for point in points:
        model = Pretrainer(point)
        randomize(model)
        torch.manual_seed(0)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bfloat16):
            losses = model(batch())
        sum(loss.total for loss in losses.values()).backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, gradient in gradients[0].items():
        recomputed = gradients[1][name]
        assert gradient is not None
        assert recomputed is not None
        assert torch.equal(gradient, recomputed)


@pytest.mark.parametrize("objectives", [("mlm", "sop"), ("mlm", "rtd")])
def test_the_formula_knows_what_is_kept(objectives: tuple[str, ...]) -> None:
    """Between the passes, which is all but the one layer that is computed again."""
    shape = EncoderConfig(
        vocab_size=500,
        embedding_size=32,
        hidden_size=64,
        layers=12,
        heads=4,
        intermediate_size=128,
        max_positions=40,
        pooler="sop" in objectives,
    )
    point = enable_recompute(
        Config(name="x", encoder=shape, sequences=SequenceConfig(length=40), objectives=objectives)
    )
    point = replace(point, train=replace(point.train, precision="float32", batch="4 sequences"))
    model, storages = Pretrainer(point), dict[int, Tensor]()
    weight_storages = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in weight_storages:
            storages[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(make_batch(point, 4))
    between = sum(tensor.untyped_storage().nbytes() for tensor in storages.values())
    whole = cost.memory(replace(point, train=replace(point.train, recompute=False))).activations
    one_layer = (8 * 64 + 2 * 128) * 4 * 160
    planned = cost.memory(point).activations
    assert planned - one_layer == pytest.approx(between, rel=0.2)
    assert planned < whole / 2


@pytest.mark.thorough
def test_a_process_takes_less() -> None:
    point = config(encoder={"layers": 24, "hidden_size": 64, "intermediate_size": 256})
    assert measure_peak_bytes(enable_recompute(point), CPU) < measure_peak_bytes(point, CPU) / 2


def test_a_run_may_go_on_with_it(tiny_data: Path, tmp_path: Path) -> None:
    """A person would change it after running out of memory."""
    point = config(train={"save_every": "4 steps"})

    pretrain(point, tiny_data, tmp_path / "whole")
    pretrain(point, tiny_data, tmp_path / "parts", on_step=leave_at(6))
    pretrain(enable_recompute(point), tiny_data, tmp_path / "parts")
    assert result(tmp_path / "parts") == result(tmp_path / "whole")


# ------------------------------------------------------------------------------------- the commands


def test_pretrain_names_recomputation_where_it_is_the_remedy(
    run: Run, tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = typed(
        "pretrain albert-tiny --shards {} --out {} --budget '1 steps' "
        "--train.evaluate-sequences 2 --train.batch '4 sequences'",
        tiny_data,
        tmp_path / "run",
    )
    with_free(monkeypatch, 100 * MIB, each=90 * MIB, again=20 * MIB)
    status, _, err = run(*words)
    assert status == 2
    names(err.splitlines()[-1], "--train.recompute", "--train.micro-batch")
    fits = err.split("--train.micro-batch ")[1].split(",")[0]
    assert run(*words, "--train.recompute", "--train.micro-batch", fits)[0] == 0
    assert json.loads((tmp_path / "run" / "recipe.json").read_text())["train"]["recompute"] is True


@pytest.mark.thorough
def test_plan_chooses_it_where_too_little_fits_without(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = typed(
        "plan albert-tiny --measure --train.batch '8 sequences' --train.depth-schedule --json"
    )
    planned = {}
    for free in (100 * MIB, 10_000 * MIB):
        with_free(monkeypatch, free, each=60 * MIB, again=20 * MIB)
        status, out, err = run(*words)
        assert status == 0
        planned = json.loads(out)
        measured = planned["measured"]
        assert measured["recompute"] is (free < 1000 * MIB)
        assert ("--train.recompute --train.micro-batch auto" in err) is measured["recompute"]
        assert (measured["largest_micro_batch"] < 8) is measured["recompute"]
    saved = (
        planned["memory_bytes"]["activations"] - planned["recompute_memory_bytes"]["activations"]
    )
    assert saved > planned["memory_bytes"]["activations"] / 2
    assert 0.5 < planned["flops_per_token"]["recompute"] / planned["flops_per_token"]["forward"] < 1


def test_fine_tuning_recomputes_too(run: Run, tmp_path: Path, tiny_tokenizer: Path) -> None:
    table, model = write_table(tmp_path / "rows.csv", 40), recipe_file(tmp_path)
    for name, options in (("kept", ()), ("again", ("--train.recompute",))):
        words = typed(
            "finetune {} --tokenizer {} --task table --data {} --out {} --steps 3 "
            "--dropout 0.2 --length 32",
            model,
            tiny_tokenizer,
            table,
            tmp_path / name,
        )
        assert run(*words, *options)[0] == 0
    files = [tmp_path / name / "model" / "model.safetensors" for name in ("kept", "again")]
    assert files[0].read_bytes() == files[1].read_bytes()


# ------------------------------------------------------------------------- --train.micro-batch auto


def test_auto_takes_equal_passes_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    point = config(train={"batch": "100 sequences", "micro_batch": "auto"})
    resident = cost.memory(point, 1)
    fixed = resident.weights + resident.gradients + resident.optimizer
    for fits, chosen in ((40, 34), (50, 50), (99, 50), (1, 1), (0, 1)):
        with_free(monkeypatch, int((fixed + (fits + 0.5) * MIB) / memory.USABLE), each=MIB)
        assert fit_micro_batch(point, CPU) == chosen
    # Four processes of a machine share its memory.
    with_free(monkeypatch, 4 * int((fixed + 40.5 * MIB) / memory.USABLE))
    group: Any = SimpleNamespace(local_size=4)
    assert fit_micro_batch(point, CPU, ranks=group) == 34
    with_free(monkeypatch, 64 << 30, each=1 << 40)
    assert fit_micro_batch(point, CPU) == 100, "a batch that surely fits is not measured"


@pytest.mark.thorough
def test_a_run_keeps_the_micro_batch_that_auto_chose(
    run: Run, tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = typed(
        "pretrain albert-tiny --shards {} --budget '4 steps' --train.batch '6 sequences' "
        "--train.evaluate-sequences 2 --train.save-every '2 steps' --train.keep-checkpoints 5 "
        "--train.precision float32 --train.depth-schedule",
        tiny_data,
    )
    with_free(monkeypatch, 200 * MIB, each=60 * MIB)
    assert run(*words, "--out", tmp_path / "run", "--train.micro-batch", "auto")[0] == 0
    chosen = json.loads((tmp_path / "run" / "recipe.json").read_text())["train"]["micro_batch"]
    assert 1 <= chosen < 6
    whole = result(tmp_path / "run")
    last = max((tmp_path / "run" / "checkpoints").glob("step-*"))
    last.rename(tmp_path / "aside")
    with_free(monkeypatch, 64 << 30)  # now all would fit
    assert run(*words, "--out", tmp_path / "run", "--train.micro-batch", "auto")[0] == 0
    assert result(tmp_path / "run") == whole
    assert run(*words, "--out", tmp_path / "explicit", "--train.micro-batch", chosen)[0] == 0
    assert result(tmp_path / "explicit") == whole
    assert run(*words, "--out", tmp_path / "run", "--train.micro-batch", chosen + 1)[0] != 0


def test_a_fine_tuning_keeps_it_too(
    run: Run, tmp_path: Path, tiny_tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = typed(
        "finetune {} --tokenizer {} --task table --data {} --steps 2 --train.micro-batch auto",
        recipe_file(tmp_path),
        tiny_tokenizer,
        write_table(tmp_path / "rows.csv", 40),
    )
    place = ("--out", tmp_path / "run")
    with_free(monkeypatch, 20 * MIB, each=2 * MIB)
    assert run(*words, *place)[0] == 0
    recorded = json.loads((tmp_path / "run" / "finetune.json").read_text())["config"]["train"][
        "micro_batch"
    ]
    assert 1 <= recorded < 32
    with_free(monkeypatch, 64 << 30)
    assert run(*words, *place)[0] == 0
    with_free(monkeypatch, 20 * MIB, each=100 * MIB, again=MIB)
    status, _, err = run(*words, "--out", tmp_path / "other")
    assert status == 2
    names(err.splitlines()[-1], "--train.recompute")
