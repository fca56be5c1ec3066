"""The memory that a batch takes, and what is refused before a run starts or a network is
built."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from litebert import load
from litebert.base import machine
from litebert.base.errors import ConfigError, ModelError, RunError
from litebert.base.machine import read_free_memory
from litebert.config import Config, DistillConfig, SequenceConfig, cost, replace
from litebert.config.serialization import to_json
from litebert.model.task_model import TaskModel
from litebert.recipes.files import recipe
from litebert.train import memory
from litebert.train.device import choose
from litebert.train.memory import (
    explain_out_of_memory,
    find_largest_micro_batch,
    measure_peak_bytes,
    require_memory,
)
from toys.folders import load_module, save_hf, save_litebert, tiny
from toys.pretraining import MIB, config, with_free
from toys.refusals import names, refused
from toys.typed import typed

Run = Callable[..., tuple[int, str, str]]
CPU = choose("float32", "cpu")

PASS = """
import json, os, resource, signal, sys
from pathlib import Path
from litebert.config import Config
from litebert.config.serialization import from_dict
from litebert.base.machine import keep_freed_memory
from litebert.train.device import choose
from litebert.train.memory import _train_once
from litebert.model.teacher import Teacher
from litebert.model.pretrainer import Pretrainer

point, teacher = json.loads(sys.argv[1])
point, teacher = from_dict(Config, point), teacher and from_dict(Config, teacher)

def peak(sequences):  # in a new process: a second batch would reuse the holes of the first
    ours, its = os.pipe()
    if os.fork() == 0:
        signal.alarm(100)
        keep_freed_memory()
        model, device = Pretrainer(point), choose("float32", "cpu")
        other = Pretrainer(teacher) if teacher else None
        model.teacher = Teacher(other.encoder, other.objectives["mlm"]["head"]) if other else None
        for size in (1, sequences):
            _train_once(model, point, device, size)
        os.write(its, str(1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss).encode())
        os._exit(0)
    os.close(its)
    os.wait()
    return int(os.read(ours, 100))

sizes = json.loads(sys.argv[2])
print(json.dumps([sizes, [peak(sequences) for sequences in sizes]]))
"""


def point(name: str = "albert-tiny", **train: Any) -> Config:
    whole = recipe(name)
    return replace(
        whole, train=replace(whole.train, precision="float32", depth_schedule=(), **train)
    )


def really(sizes: tuple[int, ...], config: Config, teacher: Config | None = None) -> float:
    """Bytes that a sequence more takes at the peak of a process."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "OMP_NUM_THREADS": "1",
    }
    configs = json.dumps([json.loads(to_json(config)), teacher and json.loads(to_json(teacher))])
    words = [sys.executable, "-c", PASS, configs, json.dumps(sizes)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    return statistics.linear_regression(*json.loads(done.stdout)).slope


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="counts pages as Linux does")
def test_the_peak_of_a_batch_is_what_a_process_really_takes() -> None:
    """On batches several times as large as those that are measured. A plan that is too small by
    less than what is kept back of the free memory still fits; one that is twice too large wastes
    half of it."""
    taken = really((30, 75, 120), point())
    assert memory.USABLE * taken < measure_peak_bytes(point(), CPU) < 2 * taken


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="counts pages as Linux does")
def test_a_teacher_beside_its_student_is_counted() -> None:
    """One of twice the width and more layers, whose states and relations are learned: most of what
    is taken.
    """
    teacher, alone = recipe("bert-mini"), point()
    distill = DistillConfig(
        soft=1,
        states=1,
        state_layers=((3, 4), (6, 8)),
        relations=1,
        relation_layers=((6, 8),),
        relation_heads=8,
        width=256,
    )
    sequences = replace(alone.sequences, length=128)
    student = replace(
        alone,
        objectives=("mlm", "soft", "states", "relations"),
        distill=distill,
        sequences=sequences,
    )
    taken = really((10, 25, 40), student, teacher)
    planned = measure_peak_bytes(student, CPU) + cost.teacher_bytes(teacher.encoder, 128)
    assert memory.USABLE * taken < planned < 2 * taken
    assert really((10, 25, 40), replace(alone, sequences=sequences)) < memory.USABLE * taken


def test_a_large_model_is_measured_with_few_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def peaks(config: Config, device: object, sizes: tuple[int, ...]) -> list[int]:
        calls.append((config.encoder.layers, sizes))
        return [size * 2 * cost.memory(config, 1).activations for size in sizes]

    monkeypatch.setattr(memory, "_measure_child_peaks", peaks)
    for name, layers in (("albert-tiny", 12), ("albert-base", 4), ("bert-base", 4)):
        whole = point(name)
        assert measure_peak_bytes(whole, CPU) == pytest.approx(
            2 * cost.memory(whole, 1).activations, rel=0.01
        )
        assert calls[-1][0] == min(layers, whole.encoder.layers)
        assert max(calls[-1][1]) <= 64


def test_parts_that_another_process_does_not_know_are_planned_generously(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert measure_peak_bytes(point(), CPU) > 2 * cost.memory(point(), 1).activations


def test_the_largest_micro_batch_fills_the_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    small = config()
    fixed = cost.memory(small, 1)
    resident = fixed.weights + fixed.gradients + fixed.optimizer
    monkeypatch.setattr(memory, "measure_peak_bytes", lambda *_: 1000)
    monkeypatch.setattr(
        memory, "measure_free_memory", lambda _: int((resident + 1000 * 7.5) / memory.USABLE)
    )
    assert find_largest_micro_batch(small, CPU) == 7
    monkeypatch.setattr(memory, "measure_free_memory", lambda _: resident // 2)
    assert find_largest_micro_batch(small, CPU) == 0


# ------------------------------------------------------------------------------ before a run starts


def test_a_batch_that_does_not_fit_is_refused_with_one_that_does(
    run: Run, tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = typed(
        "pretrain albert-tiny --shards {} --out {} --budget '1 steps'", tiny_data, tmp_path / "run"
    )
    wide = [
        *words,
        *typed(
            "--train.batch '4096 sequences' --train.evaluate-sequences 2 --train.precision float32"
        ),
    ]
    with_free(monkeypatch, 200 * MIB)
    status, _, err = run(*wide)
    assert status == 2
    names(
        err.splitlines()[-1],
        "train.micro_batch",
        "4,096 sequences",
        "--train.micro-batch",
        "200.0 MiB",
    )
    fits = int(err.split("--train.micro-batch ")[1].split(",")[0])
    assert 50 < fits < 160
    assert not (tmp_path / "run").exists()
    with_free(monkeypatch, MIB)
    status, _, err = run(*wide)
    assert status == 2
    names(err.splitlines()[-1], "albert-tiny", "4,096 sequences")
    assert "--train.micro-batch" not in err
    with_free(monkeypatch, 64 << 30)
    assert run(*words, "--train.batch", "8 sequences", "--train.evaluate-sequences", "2")[0] == 0


def test_a_fine_tuning_that_does_not_fit_is_refused_too(
    run: Run, tmp_path: Path, tiny_tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = "".join(f"a text number {i},{'ab'[i % 2]}\n" for i in range(40))
    (tmp_path / "rows.csv").write_text("text,label\n" + rows)
    words = typed(
        "finetune albert-tiny --from-scratch --tokenizer {} --task table --data {} "
        "--out {} --steps 1 --train.precision float32 --train.batch '32 sequences'",
        tiny_tokenizer,
        tmp_path / "rows.csv",
        tmp_path / "run",
    )
    with_free(monkeypatch, 60 * MIB, each=2 * MIB)
    status, _, err = run(*words)
    assert status == 2
    names(err.splitlines()[-1], "train.micro_batch", "--train.micro-batch")
    fits = err.split("--train.micro-batch ")[1].split(",")[0]
    assert run(*words, "--train.micro-batch", fits)[0] == 0


def test_memory_that_runs_out_all_the_same_is_one_sentence() -> None:
    for error in (
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("DefaultCPUAllocator: not enough memory"),
    ):
        wanted = refused(RunError, "--train.micro-batch 16", "--train.recompute", "32 sequences")
        with wanted, explain_out_of_memory(CPU, 32, recompute=False):
            raise error
    with (
        pytest.raises(RuntimeError, match="other"),
        explain_out_of_memory(CPU, 32, recompute=False),
    ):
        raise RuntimeError("other")


# ------------------------------------------------------------------------------------- what is free


def test_free_memory_is_some_of_the_machine_and_of_its_control_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = resource.getpagesize() * os.sysconf("SC_PHYS_PAGES")
    assert 0 < read_free_memory() <= total
    (tmp_path / "memory.max").write_text(f"{50 * MIB}\n")
    (tmp_path / "memory.current").write_text(f"{30 * MIB}\n")
    (tmp_path / "memory.stat").write_text(f"anon 7\ninactive_file {4 * MIB}\n")
    monkeypatch.setattr(machine, "_cgroups", lambda: [tmp_path / "none", tmp_path])
    assert read_free_memory() == 24 * MIB
    (tmp_path / "memory.max").write_text("max\n")
    assert read_free_memory() > 24 * MIB


# ------------------------------------------------------------------------ before a network is built

SIZES = (
    "vocab_size",
    "embedding_size",
    "hidden_size",
    "layers",
    "heads",
    "intermediate_size",
    "max_positions",
)


@pytest.mark.parametrize("size", [10**6, 10**9, 10**18])
@pytest.mark.parametrize("field", SIZES)
def test_a_recipe_with_a_monstrous_size_is_refused_before_anything_is_built(
    field: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "read_free_memory", lambda: 8 * MIB)
    save_litebert(tiny(), None, tmp_path / "m")
    file = tmp_path / "m" / "recipe.json"
    data = json.loads(file.read_text())
    data["encoder"][field] = size
    if field == "heads":
        data["encoder"]["hidden_size"] = size
    file.write_text(json.dumps(data))
    with refused(ModelError, file):
        load(tmp_path / "m")


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize(
    "key",
    [
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "intermediate_size",
        "max_position_embeddings",
        "embedding_size",
        "type_vocab_size",
    ],
)
def test_so_is_a_config_of_transformers(key: str, groups: int, tmp_path: Path) -> None:
    save_hf(tiny(), None, tmp_path / "m")
    file = tmp_path / "m" / "config.json"
    file.write_text(
        json.dumps({**json.loads(file.read_text()), "num_hidden_groups": groups, key: 10**9})
    )
    with refused(ModelError, file, key, 10**9):
        load(tmp_path / "m")


def test_so_are_the_classes_of_a_task(tmp_path: Path) -> None:
    save_litebert(TaskModel(tiny().encoder.config, True, 2), None, tmp_path / "m")
    file = tmp_path / "m" / "task.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "classes": 10**12}))
    with refused(ModelError, file):
        load(tmp_path / "m")


@pytest.mark.thorough
def test_a_recipe_too_large_to_build_can_be_planned_and_not_trained(
    run: Run, tiny_data: Path, tmp_path: Path
) -> None:
    wide = typed(
        "--encoder.hidden-size 65536 --encoder.intermediate-size 1000000 --encoder.sharing none"
    )
    assert run("plan", "albert-tiny", *wide, "--train.depth-schedule")[0] == 0
    status, _, err = run(
        *typed("pretrain albert-tiny --shards {} --out {}", tiny_data, tmp_path / "run"),
        *wide,
        "--train.depth-schedule",
    )
    assert status == 2
    names(err.splitlines()[-1], "albert-tiny")


def test_a_config_of_its_length_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with_free(monkeypatch, 100 * MIB, each=10 * MIB)
    longer = config(sequences=SequenceConfig(length=64), train={"batch": "4096 sequences"})
    with refused(ConfigError, "64 tokens", "train.micro_batch"):
        require_memory(longer, CPU)
    assert load_module(tiny()).config.name == "tiny"
