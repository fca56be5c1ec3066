"""Nothing that is not finite reaches the optimizer or a checkpoint, and the run says in which step
it came.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from litebert.base.errors import NonFiniteError
from litebert.config import OptimizerConfig
from litebert.data.batches import Batch
from litebert.train import checkpoint, metrics
from litebert.train.device import Device
from litebert.train.loop import Loop
from toys.pretraining import config, loop_of, pretrain, result
from toys.refusals import refused

pytestmark = pytest.mark.thorough


def poison(kind: str, at: int) -> Callable[[Loop[Batch]], None]:
    """After step `at`, break the next one."""

    def on_step(loop: Loop[Batch]) -> None:
        if loop.step != at:
            return
        if kind == "weights":
            next(iter(loop.parameters)).data.view(-1)[0] = math.inf
        elif kind == "gradient":
            parameter: Any = loop.parameters[0]
            parameter.register_hook(lambda gradient: gradient * math.nan)
        else:
            forward = loop.trainable.compute_losses

            def losses(batch: Batch, layers: int) -> Any:
                terms = forward(batch, layers)
                object.__setattr__(terms["mlm"], "total", terms["mlm"].total * math.nan)
                return terms

            loop.trainable.compute_losses = losses  # type: ignore[method-assign]

    return on_step


@pytest.mark.parametrize("kind", ["loss", "gradient"])
@pytest.mark.parametrize("clip", [0.0, 1.0])
def test_what_is_not_finite_never_reaches_the_optimizer(
    kind: str, clip: float, tiny_data: Path, tmp_path: Path
) -> None:
    loop = loop_of(config(train={"clip": clip}), tiny_data, tmp_path, on_step=poison(kind, at=5))
    before: list[dict[str, Tensor]] = []

    def step(factor: float, take: Callable[[float], None] = loop.optimizers.step) -> None:
        take(factor)
        state = {**loop.trainable.module.state_dict(), **loop.optimizers.state()}
        before.append({name: tensor.clone() for name, tensor in state.items()})

    loop.optimizers.step = step  # type: ignore[method-assign]
    with refused(NonFiniteError, kind, "step 6", "train.optimizer.learning_rate"):
        loop.run()
    assert len(before) == 5
    after = {**loop.trainable.module.state_dict(), **loop.optimizers.state()}
    for name, tensor in before[-1].items():
        assert torch.equal(after[name], tensor), name
        assert tensor.isfinite().all(), name


@pytest.mark.parametrize("kind", ["loss", "gradient"])
@pytest.mark.parametrize("optimizer", ["adamw", "lamb", "muon"])
def test_an_accelerator_is_asked_at_the_next_row_and_the_optimizer_gets_nothing_until_then(
    kind: str, optimizer: Any, tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Device, "answers_at_once", False)
    seen: list[int] = []

    def look(loop: Loop[Batch]) -> None:
        poison(kind, at=5)(loop)
        tensors = [*loop.trainable.module.state_dict().values(), *loop.optimizers.state().values()]
        assert all(tensor.isfinite().all() for tensor in tensors)
        seen.append(loop.step)

    optimizers = config().train.optimizer.__class__(name=optimizer)
    point = config(
        train={"save_every": "4 steps", "evaluate_every": "4 steps", "optimizer": optimizers}
    )
    loop = loop_of(point, tiny_data, tmp_path, steps=16, on_step=look)
    loop.log_every = 8
    with refused(NonFiniteError, kind, "step 6"):
        loop.run()
    assert seen == list(range(1, 9))
    assert [path.name for path in loop.checkpoints.iterdir()] == ["step-00000004"]
    assert [row["step"] for row in metrics.read(tmp_path / "metrics.jsonl")] == [4]


def test_what_an_accelerator_computes_is_what_is_computed_anywhere(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretrain(config(), tiny_data, tmp_path / "here")
    monkeypatch.setattr(Device, "answers_at_once", False)
    pretrain(config(), tiny_data, tmp_path / "there")
    assert result(tmp_path / "there") == result(tmp_path / "here")


def test_weights_that_are_not_finite_are_never_saved(tiny_data: Path, tmp_path: Path) -> None:
    point = config(train={"save_every": "5 steps"})
    with refused(NonFiniteError, "weights", "step 10"):
        pretrain(point, tiny_data, tmp_path, on_step=poison("weights", at=10))
    newest = checkpoint.find_newest(tmp_path / "checkpoints")
    assert newest is not None
    assert newest.step == 5
    assert newest.damaged == ()


@pytest.mark.parametrize("rate", [1e12, 1e30, 1e39])
def test_an_absurd_learning_rate_stops_with_a_finite_checkpoint(
    rate: float, tiny_data: Path, tmp_path: Path
) -> None:
    optimizer = config().train.optimizer.__class__(
        name="adamw", learning_rate=rate, weight_decay=0.1
    )
    point = config(
        encoder={"norm": "pre"},
        train={"save_every": "1 steps", "budget": "30 steps", "optimizer": optimizer, "clip": 0.0},
    )
    with refused(NonFiniteError, "train.optimizer.learning_rate"):
        pretrain(point, tiny_data, tmp_path)
    newest = checkpoint.find_newest(tmp_path / "checkpoints")
    tensors = {} if newest is None else newest.load_model()
    assert all(tensor.isfinite().all() for tensor in tensors.values())


# ----------------------------------------------------------------- an accelerator is not waited for


class Waits(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses what would make the program wait for an accelerator: reading a number, finding where
    a mask is true.
    """

    NAMES = "_local_scalar_dense nonzero masked_select is_nonzero equal multinomial unique2"
    WAITS = tuple(f"aten.{name}." for name in NAMES.split())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if str(func).startswith(self.WAITS):
            pytest.fail(f"a training step waits: {func}")
        if str(func).startswith("aten.index"):
            masks = [
                argument
                for argument in args[1]
                if argument is not None and argument.dtype == torch.bool
            ]
            assert not masks, "a training step waits: it is indexed by a mask"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("optimizer", ["adamw", "lamb", "muon"])
@pytest.mark.parametrize(
    "objectives", [("mlm", "sop"), ("mlm", "rtd"), ("mlm", "sbo")], ids="+".join
)
def test_a_step_never_waits_for_the_device(
    optimizer: Literal["adamw", "lamb", "muon"],
    objectives: tuple[str, ...],
    tiny_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Device, "answers_at_once", False)
    # As an accelerator computes.
    monkeypatch.setattr("litebert.model.fused.library", lambda: None)
    point = config(
        objectives=objectives,
        train={"micro_batch": 3, "optimizer": OptimizerConfig(name=optimizer)},
    )
    loop = loop_of(point, tiny_data, tmp_path)
    batches = loop.make_batches(0)
    assert any(batch.attention_mask is not None for batch in batches)
    counts = loop._count_predictions(batches)  # still in the machine's own memory
    monkeypatch.setattr(loop, "_count_predictions", lambda batches: counts)
    with Waits():  # type: ignore[no-untyped-call]
        loop.train_step(batches)
    assert loop.step == 1
