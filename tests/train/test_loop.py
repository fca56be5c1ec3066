"""The loop: the same seed is the same run, a step is the whole batch's, and nothing that is not
finite gets through.
"""

from __future__ import annotations

import json
import math
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from litebert.base.errors import ConfigError
from litebert.config import Config, MaskingConfig, SequenceConfig
from litebert.data.batches import Batch
from litebert.data.shards import Shards
from litebert.model.pretrainer import Pretrainer
from litebert.train import checkpoint, metrics, schedule
from litebert.train.device import choose
from litebert.train.loop import Loop, Outcome
from litebert.train.pretrain import TrainablePretrainer, build_pretrainer
from litebert.train.ranks import Ranks
from toys.pretraining import config, leave_at, loop_of, pretrain, result
from toys.refusals import names, refused


def gradient_at_optimizer(point: Config, data: Path, folder: Path) -> dict[str, Tensor]:
    """The gradient that the optimizer sees in the first step."""
    loop, seen = loop_of(point, data, folder), {}

    def step(factor: float) -> None:
        scales = {
            p: group.get("scale", 1.0) for group in loop.optimizers._groups for p in group["params"]
        }
        seen.update(
            {
                name: scales[p] * p.grad
                for name, p in loop.trainable.module.named_parameters()
                if p.grad is not None
            }
        )

    loop.optimizers.step = step  # type: ignore[method-assign]
    loop.train_step()
    return seen


# ------------------------------------------------------------------------------------- the same run


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["adamw", "lamb", "muon"])
def test_the_same_seed_is_the_same_run_and_another_seed_is_not(
    name: Literal["adamw", "lamb", "muon"], tiny_data: Path, tmp_path: Path
) -> None:
    def run(folder: str, seed: int) -> dict[str, bytes]:
        point = config(
            encoder={"hidden_dropout": 0.1, "attention_dropout": 0.1},
            train={
                "seed": seed,
                "optimizer": replace(config().train.optimizer, name=name, learning_rate=1e-2),
            },
        )
        pretrain(point, tiny_data, tmp_path / folder)
        return result(tmp_path / folder)

    first = run("first", seed=3)
    assert run("again", seed=3) == first
    other = run("other", seed=4)
    assert other["model.safetensors"] != first["model.safetensors"]
    assert other["metrics"] != first["metrics"]


def test_what_happens_between_steps_changes_nothing(tiny_data: Path, tmp_path: Path) -> None:
    """Evaluations, checkpoints and other users of torch's generator leave the run as it is."""
    point = config(encoder={"hidden_dropout": 0.3})
    pretrain(point, tiny_data, tmp_path / "plain")
    busy = config(
        encoder={"hidden_dropout": 0.3},
        train={"evaluate_every": "1 steps", "save_every": "1 steps"},
    )

    def draw(loop: object) -> None:
        torch.rand(7)

    pretrain(busy, tiny_data, tmp_path / "busy", on_step=draw)
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert result(tmp_path / "busy")[name] == result(tmp_path / "plain")[name]


# -------------------------------------------------------------------- one step is the whole batch's


def test_accumulation_gives_the_gradient_of_the_whole_batch(
    tiny_data: Path, tmp_path: Path
) -> None:
    fields: dict[str, Any] = {"sequences": SequenceConfig(length=64, short_probability=0.7)}
    point = config(train={"batch": "13 sequences", "clip": 0.0}, **fields)
    trainable = TrainablePretrainer(
        point,
        build_pretrainer(point, choose("float32", "cpu")),
        Shards.open(tiny_data),
        choose("float32"),
    )
    parts = [trainable.batch(0, slice(i, min(i + 3, 13))) for i in range(0, 13, 3)]
    assert len({trainable.count_predictions(part)["mlm"] for part in parts}) > 2, (
        "the micro-batches must differ in their masks"
    )
    assert len({trainable.count_predictions(part)["sop"] for part in parts}) > 1

    def mean_of(batch: Batch) -> Tensor:
        losses = trainable.module(batch)
        mean: Tensor = sum(loss.total / loss.count for loss in losses.values())
        return mean

    named = dict(trainable.module.named_parameters())
    whole = dict(
        zip(
            named,
            torch.autograd.grad(mean_of(trainable.batch(0, slice(None))), [*named.values()]),
            strict=True,
        )
    )
    naive = torch.autograd.grad(
        sum(map(mean_of, parts), torch.zeros(())) / len(parts), [*named.values()]
    )
    assert max((a - b).abs().max() for a, b in zip(naive, whole.values(), strict=True)) > 1e-4

    for micro in (0, 3, 5, 13, 99):
        trained = config(
            train={"batch": "13 sequences", "clip": 0.0, "micro_batch": micro}, **fields
        )
        seen = gradient_at_optimizer(trained, tiny_data, tmp_path / str(micro))
        assert seen.keys() == whole.keys()
        for name, gradient in seen.items():
            torch.testing.assert_close(
                gradient, whole[name], atol=1e-6, rtol=0, msg=f"{name} with micro_batch={micro}"
            )


def test_clipping_bounds_the_norm_and_keeps_the_direction(tiny_data: Path, tmp_path: Path) -> None:
    free = gradient_at_optimizer(config(train={"clip": 0.0}), tiny_data, tmp_path / "free")
    clipped = gradient_at_optimizer(config(train={"clip": 0.01}), tiny_data, tmp_path / "clipped")
    norm = math.sqrt(sum(float(g.square().sum()) for g in free.values()))
    assert norm > 0.02
    for name, gradient in free.items():
        torch.testing.assert_close(clipped[name], gradient * 0.01 / norm, atol=1e-8, rtol=1e-3)


def test_a_batch_in_tokens_is_as_many_full_sequences(tiny_data: Path, tmp_path: Path) -> None:
    shapes: list[tuple[int, ...]] = []
    loop = loop_of(config(train={"batch": "330 tokens"}), tiny_data, tmp_path)
    module: Any = loop.trainable.module
    module.encoder.register_forward_pre_hook(
        lambda module, inputs: shapes.append(tuple(inputs[0].shape))
    )
    loop.train_step()
    assert shapes == [(10, 32)]


def test_the_ranks_of_a_step_see_what_one_would(tiny_data: Path) -> None:
    point = config(sequences=SequenceConfig(length=64, short_probability=0.5))
    machine = choose("float32", "cpu")
    trainable = TrainablePretrainer(point, Pretrainer(point), Shards.open(tiny_data), machine)

    def sequences(rows: slice, step: int) -> list[tuple[Any, ...]]:
        batch = trainable.batch(step, rows)
        size = batch.input_ids.shape[1]
        masks: list[list[tuple[int, int]]] = [[] for _ in batch.input_ids]
        for position, label in zip(
            batch.masked_positions.tolist(), batch.masked_labels.tolist(), strict=True
        ):
            masks[position // size].append((position % size, label))
        lengths = (
            [size] * len(masks)
            if batch.attention_mask is None
            else batch.attention_mask.sum(1).tolist()
        )
        return [
            (ids[:length].tolist(), types[:length].tolist(), mask, int(label))
            for ids, types, mask, label, length in zip(
                batch.input_ids,
                batch.token_type_ids,
                masks,
                batch.sentence_labels,
                lengths,
                strict=True,
            )
        ]

    for step in (0, 7, 10_000):
        whole = sequences(slice(None), step)
        assert len(whole) == 8
        for size in (1, 2, 3):
            shares = [Ranks(rank, size).share(8) for rank in range(size)]
            assert [
                item for share in shares for item in sequences(slice(share.start, share.stop), step)
            ] == whole


def test_a_batch_smaller_than_the_group_is_refused() -> None:
    with refused(ConfigError, "train.batch", 2, 3):
        Ranks(0, 3).share(2)


def test_depth_grows_as_scheduled(tiny_data: Path, tmp_path: Path) -> None:
    applied: list[int] = []
    point = config(encoder={"layers": 4}, train={"depth_schedule": ((0.25, 1), (0.75, 2))})
    loop = loop_of(point, tiny_data, tmp_path)
    module: Any = loop.trainable.module
    module.encoder.register_forward_hook(
        lambda module, inputs, output: applied.append(inputs[3]) if module.training else None
    )
    loop.run()
    assert applied == [1] * 3 + [2] * 6 + [4] * 3
    rows = [row for row in metrics.read(tmp_path / "metrics.jsonl") if row["kind"] == "train"]
    assert [row["layers"] for row in rows] == applied


# ---------------------------------------------------------------------------------- what is written


def test_the_first_row_says_what_the_first_step_was(tiny_data: Path, tmp_path: Path) -> None:
    point = config(train={"clip": 0.0, "micro_batch": 3, "schedule": config().train.schedule})
    machine = choose("float32", "cpu")
    trainable = TrainablePretrainer(
        point, build_pretrainer(point, machine), Shards.open(tiny_data), machine
    )
    batch = trainable.batch(0, slice(None))
    losses = trainable.module(batch)
    gradient = gradient_at_optimizer(point, tiny_data, tmp_path / "gradient")
    pretrain(point, tiny_data, tmp_path / "run")
    rows = metrics.read(tmp_path / "run" / "metrics.jsonl")
    first = next(row for row in rows if row["kind"] == "train")
    for name, loss in losses.items():
        assert first[f"{name}_loss"] == pytest.approx(loss.total.item() / int(loss.count), rel=1e-5)
        assert first[f"{name}_accuracy"] == pytest.approx(int(loss.correct) / int(loss.count))
    assert first["loss"] == pytest.approx(first["mlm_loss"] + first["sop_loss"])
    assert first["gradient_norm"] == pytest.approx(
        math.sqrt(sum(float(g.square().sum()) for g in gradient.values())), rel=1e-5
    )
    assert first["learning_rate"] == 1e-2 * schedule.compute_factor(point.train.schedule, 0, 12)
    assert first["tokens"] == batch.tokens
    train = [row for row in rows if row["kind"] == "train"]
    assert [row["step"] for row in train] == list(range(1, 13))
    assert [row["step"] for row in rows if row["kind"] == "heldout"] == [12]
    assert not any(
        math.isnan(value) for row in train for value in row.values() if isinstance(value, float)
    )


def test_a_long_run_writes_two_hundred_rows(tiny_data: Path, tmp_path: Path) -> None:
    loop = loop_of(
        config(train={"evaluate_every": "10%", "save_every": "1h"}),
        tiny_data,
        tmp_path,
        steps=100_000,
    )
    assert loop.log_every == 500
    assert loop.evaluate_every == 10_000


def test_checkpoints_come_by_steps_and_old_ones_go(tiny_data: Path, tmp_path: Path) -> None:
    seen: set[str] = set()
    point = config(train={"save_every": "5 steps", "keep_checkpoints": 2})

    def look(loop: Loop[Batch]) -> None:
        seen.update(path.name for path in loop.checkpoints.glob("step-*"))

    pretrain(point, tiny_data, tmp_path, on_step=look)
    left = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert left == ["step-00000010", "step-00000012"]
    assert seen == {"step-00000005", "step-00000010"}


def test_checkpoints_come_by_time(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(10_000))
    monkeypatch.setattr("litebert.train.loop.time.monotonic", lambda: float(next(clock)))
    steps: list[int] = []
    save: Any = checkpoint.save

    def note_and_save(folder: Path, step: int, *rest: Any) -> Any:
        steps.append(step)
        return save(folder, step, *rest)

    monkeypatch.setattr("litebert.train.loop.checkpoint.save", note_and_save)
    pretrain(config(train={"save_every": "8s"}), tiny_data, tmp_path)
    assert len(steps) > 2
    assert steps[-1] == 12
    assert steps == sorted(set(steps))


# -------------------------------------------------------------------------- leaving and coming back


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_leaves_and_the_same_call_continues(
    number: signal.Signals, tiny_data: Path, tmp_path: Path, log_messages: list[str]
) -> None:
    point = config(encoder={"hidden_dropout": 0.1}, train={"evaluate_every": "4 steps"})
    pretrain(point, tiny_data, tmp_path / "whole")
    handlers = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)]
    left = pretrain(point, tiny_data, tmp_path / "cut", on_step=leave_at(5, number)).outcome
    assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)] == handlers
    assert (left.step, left.finished, left.signal) == (5, False, number)
    log_messages.clear()
    done = pretrain(point, tiny_data, tmp_path / "cut").outcome
    assert (done.step, done.finished, done.signal) == (12, True, None)
    assert done.seconds > left.seconds > 0
    names(log_messages[0], "step 5", "12")
    assert result(tmp_path / "cut") == result(tmp_path / "whole")


@pytest.mark.parametrize("objectives", [("mlm", "sop"), ("mlm", "rtd")])
def test_a_row_of_several_steps_is_the_same_when_cut_in_between(
    objectives: tuple[str, ...], tiny_data: Path, tmp_path: Path
) -> None:
    def train(folder: str, **changes: Any) -> Outcome:
        loop = loop_of(config(objectives=objectives), tiny_data, tmp_path / folder, **changes)
        loop.log_every = 4  # as in runs of 800 steps
        outcome = loop.run()
        return outcome

    train("whole")
    assert train("cut", on_step=leave_at(6)).step == 6
    assert train("cut").finished
    assert result(tmp_path / "cut") == result(tmp_path / "whole")
    rows = [
        row for row in metrics.read(tmp_path / "cut" / "metrics.jsonl") if row["kind"] == "train"
    ]
    assert [row["step"] for row in rows] == [4, 8, 12]
    for row in rows:
        assert ("rtd_replaced" in row) == ("rtd" in objectives)
        assert 0.05 < row.get("rtd_replaced", 0.1) <= 0.16, (
            "masks cover 15% and the generator hardly guesses right"
        )


def test_what_remarks_keep_in_mind_survives_an_interruption(
    tiny_data: Path, tmp_path: Path
) -> None:
    loop = loop_of(config(), tiny_data, tmp_path, on_step=leave_at(5))
    loop.trainable.diagnostic_state["plateau_rows"] = 7
    loop.run()
    again = loop_of(config(), tiny_data, tmp_path)
    assert again.trainable.diagnostic_state["plateau_rows"] >= 7
    assert again.step == 5


def test_a_signal_in_the_last_step_finishes(tiny_data: Path, tmp_path: Path) -> None:
    outcome = pretrain(config(), tiny_data, tmp_path, on_step=leave_at(12)).outcome
    assert outcome.finished


def test_a_second_ctrl_c_stops_at_once(tiny_data: Path, tmp_path: Path) -> None:
    def impatient(loop: Loop[Batch]) -> None:
        if loop.step == 5:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        pretrain(config(), tiny_data, tmp_path / "cut", on_step=impatient)
    pretrain(config(), tiny_data, tmp_path / "cut")
    pretrain(config(), tiny_data, tmp_path / "whole")
    assert result(tmp_path / "cut") == result(tmp_path / "whole")


def test_a_finished_run_returns_at_once(tiny_data: Path, tmp_path: Path) -> None:
    first = pretrain(config(), tiny_data, tmp_path).outcome
    before = result(tmp_path)
    steps: list[int] = []
    again = pretrain(
        config(), tiny_data, tmp_path, on_step=lambda loop: steps.append(loop.step)
    ).outcome
    assert steps == []
    assert again == Outcome(12, True, None, first.scores, first.tokens, first.seconds)
    assert result(tmp_path) == before
    assert "mlm_accuracy" in again.scores


def damage(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "flip":
        data[len(data) // 2] ^= 0x10
    path.write_bytes(bytes(data) if how == "flip" else bytes(data[: len(data) // 2]))
    if how == "remove":
        path.unlink()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "file", ["model.safetensors", "optimizer.safetensors", "state.json", "index.json"]
)
@pytest.mark.parametrize("how", ["flip", "truncate", "remove"])
def test_a_damaged_checkpoint_is_passed_over_and_it_is_said(
    file: str,
    how: str,
    tiny_data: Path,
    tmp_path: Path,
    whole_run: dict[str, bytes],
    log_messages: list[str],
) -> None:
    point = config(train={"save_every": "4 steps"})
    pretrain(point, tiny_data, tmp_path, on_step=leave_at(7))
    damage(tmp_path / "checkpoints" / "step-00000007" / file, how)
    log_messages.clear()
    pretrain(point, tiny_data, tmp_path)
    damaged, resumed, *_ = log_messages
    names(damaged, "step-00000007", file, "step-00000004")
    names(resumed, "step 4", "12")
    again = result(tmp_path)
    begun = whole_run["metrics"].splitlines()
    events = [line for line in again["metrics"].splitlines() if b'"kind": "event"' in line]
    (event,) = (line for line in events if line not in begun)
    assert json.loads(event)["message"] == damaged
    again["metrics"] = again["metrics"].replace(event + b"\n", b"")
    assert again == whole_run


@pytest.fixture(scope="module")
def whole_run(tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole")
    pretrain(config(train={"save_every": "4 steps"}), tiny_data, folder)
    return result(folder)


def test_masks_and_text_change_from_step_to_step(tiny_data: Path) -> None:
    point = config(masking=MaskingConfig())
    trainable = TrainablePretrainer(
        point, Pretrainer(point), Shards.open(tiny_data), choose("float32", "cpu")
    )
    first, second = trainable.batch(0, slice(None)), trainable.batch(1, slice(None))
    assert not torch.equal(first.input_ids, second.input_ids)
