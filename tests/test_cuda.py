"""Laws that only a GPU can show: nothing waits for it, its fast kernels are used, and it computes
what a CPU computes.

benchmarks/gpu.sh runs them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from litebert.config import EncoderConfig, OptimizerConfig, SequenceConfig, replace
from litebert.data.batches import Batch
from litebert.data.shards import Shards
from litebert.model.task_model import TaskModel
from litebert.model.unpadded import is_faster_unpadded
from litebert.train import metrics
from litebert.train.device import choose
from litebert.train.loop import Loop
from litebert.train.measure import make_batch, measure_matmul_speed
from litebert.train.pretrain import TrainablePretrainer, build_pretrainer
from litebert.train.schedule import Plan
from litebert.train.supply import prefetch
from toys.killed import Killed, kill_at
from toys.pretraining import config, pretrain, result

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.filterwarnings("ignore:Synchronization debug mode"),  # of `no_waiting`
]

GPU = torch.device("cuda")


@pytest.fixture
def no_waiting() -> Iterator[Callable[[], None]]:
    """Call it, and from there on whatever waits for the GPU is an error."""
    yield lambda: torch.cuda.set_sync_debug_mode("error")
    torch.cuda.set_sync_debug_mode("default")


def losses_of(folder: Path) -> list[float]:
    return [row["loss"] for row in metrics.read(folder / "metrics.jsonl") if row["kind"] == "train"]


@pytest.mark.parametrize("optimizer", ["adamw", "lamb", "muon"])
@pytest.mark.parametrize(
    "objectives", [("mlm", "sop"), ("mlm", "rtd"), ("mlm", "sbo")], ids="+".join
)
def test_a_step_never_waits(
    optimizer: Any,
    objectives: tuple[str, ...],
    tiny_data: Path,
    tmp_path: Path,
    no_waiting: Callable[[], None],
) -> None:
    point = config(
        objectives=objectives,
        train={"micro_batch": 3, "optimizer": OptimizerConfig(name=optimizer)},
    )
    machine = choose("bfloat16", "cuda")
    trainable = TrainablePretrainer(
        point, build_pretrainer(point, machine), Shards.open(tiny_data), machine
    )
    loop: Loop[Batch] = Loop(
        trainable, point.train, Plan((100,)), point.batch_sequences, machine, tmp_path
    )
    with prefetch(loop.make_batches, 0, lambda: 4, GPU) as batches:
        loop.train_step(next(batches))  # which finds its memory and libraries
        made = [next(batches) for _ in range(3)]
    no_waiting()
    for batch in made:
        loop.train_step(batch)
    torch.cuda.set_sync_debug_mode("default")
    loop._require_finite()


def test_batches_lie_in_page_locked_memory(tiny_data: Path, tmp_path: Path) -> None:
    point = config(objectives=("mlm", "rtd"))
    machine = choose("float32", "cuda")
    trainable = TrainablePretrainer(
        point, build_pretrainer(point, machine), Shards.open(tiny_data), machine
    )
    with prefetch(lambda step: [trainable.batch(step, slice(0, 8))], 0, lambda: 2, GPU) as batches:
        (batch,) = next(batches)
    tensors = [value for value in vars(batch).values() if isinstance(value, torch.Tensor)]
    assert all(tensor.is_pinned() for tensor in [*tensors, *batch.added.values()])


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_full_sequences_are_attended_to_by_the_flash_kernel(positions: Any) -> None:
    shape: dict[str, Any] = {
        "positions": positions,
        "hidden_size": 64,
        "heads": 1,
        "attention_dropout": 0.1,
    }
    point = config(encoder=shape, sequences=SequenceConfig(length=64))
    machine = choose("bfloat16", "cuda")
    model, batch = build_pretrainer(point, machine).train(), make_batch(point, 4).to(GPU)
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION]), machine.autocast_context():
        losses = model(batch)
    torch.stack([loss.total for loss in losses.values()]).sum().backward()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("optimizer", ["adamw", "lamb", "muon"])
def test_a_gpu_learns_what_a_cpu_learns(optimizer: Any, tiny_data: Path, tmp_path: Path) -> None:
    point = config(train={"optimizer": OptimizerConfig(name=optimizer, learning_rate=1e-3)})
    for device in ("cpu", "cuda"):
        pretrain(point, tiny_data, tmp_path / device, device=device)
    assert losses_of(tmp_path / "cuda") == pytest.approx(losses_of(tmp_path / "cpu"), rel=2e-3)


def test_who_makes_the_batches_changes_nothing_there_either(
    tiny_data: Path, tmp_path: Path
) -> None:
    point = config()
    for count in (0, 2):
        variant = replace(point, train=replace(point.train, batch_processes=count))
        pretrain(variant, tiny_data, tmp_path / str(count), device="cuda")
    assert losses_of(tmp_path / "2") == pytest.approx(losses_of(tmp_path / "0"), rel=1e-4)


def test_a_killed_run_continues_where_it_was(tiny_data: Path, tmp_path: Path) -> None:
    point = config(encoder={"hidden_dropout": 0.1}, train={"save_every": "5 steps"})
    pretrain(point, tiny_data, tmp_path / "whole", device="cuda")
    with pytest.raises(Killed):
        pretrain(point, tiny_data, tmp_path / "killed", device="cuda", on_step=kill_at(7))
    pretrain(point, tiny_data, tmp_path / "killed", device="cuda")
    assert losses_of(tmp_path / "killed") == pytest.approx(losses_of(tmp_path / "whole"), rel=1e-4)
    assert result(tmp_path / "killed").keys() == result(tmp_path / "whole").keys()


@pytest.mark.filterwarnings("ignore")
def test_compiled_blocks_learn_the_same(tiny_data: Path, tmp_path: Path) -> None:
    for compiled in (False, True):
        pretrain(
            config(train={"compile": compiled}), tiny_data, tmp_path / str(compiled), device="cuda"
        )
    assert losses_of(tmp_path / "True") == pytest.approx(losses_of(tmp_path / "False"), rel=1e-3)


def test_a_plan_says_what_share_of_the_products_is_reached(
    run: Callable[..., tuple[int, str, str]],
) -> None:
    status, out, _ = run(
        "plan",
        "albert-base",
        "--measure",
        "--device",
        "cuda",
        "--train.batch",
        "32 sequences",
        "--json",
    )
    assert status == 0
    measured = json.loads(out)["measured"]
    assert 0.05 < measured["share_of_products"] < 1
    assert measured["products_flops_per_second"] == measure_matmul_speed(choose("auto", "cuda"))
    assert measured["batch_processes"] >= 1


@pytest.mark.parametrize("window", [0, 16])
def test_a_pass_without_padding_computes_what_a_padded_one_does(window: int) -> None:
    """By the kernel for sequences of variable length, in bfloat16, its gradients too."""
    shape = EncoderConfig(
        vocab_size=100,
        hidden_size=64,
        embedding_size=64,
        heads=2,
        layers=2,
        intermediate_size=128,
        sharing="none",
        positions="rotary",
        hidden_dropout=0.0,
        attention_dropout=0.0,
        window=window,
        global_every=2 if window else 1,
    )
    torch.manual_seed(1)
    model = TaskModel(shape, reads_cls=False, classes=3).to(GPU).eval()
    ids = torch.randint(5, 100, (3, 60), device=GPU)
    mask = torch.arange(60, device=GPU)[None] < torch.tensor([[60], [7], [33]], device=GPU)
    machine = choose("bfloat16", "cuda")
    results = []
    for unpadded in (False, True):
        if unpadded:
            model.encoder.unpadded = is_faster_unpadded(model.encoder.config, GPU, machine.autocast)
        assert model.encoder.unpadded == unpadded
        model.zero_grad()
        with machine.autocast_context():
            logits = model(ids, None, mask)[mask].float()
        torch.autograd.backward(logits.pow(2).sum())
        weights = model.encoder.get_parameter("attention.0.qkv.weight")
        assert weights.grad is not None
        results.append((logits.detach(), weights.grad.clone()))
    for padded, packed in zip(*results, strict=True):
        assert float((padded - packed).abs().max()) <= 0.03 * float(padded.abs().max())
