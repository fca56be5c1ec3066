"""Device choice, seeding and memory."""

from __future__ import annotations

import pytest
import torch

from litebert.base import machine
from litebert.base.errors import ConfigError
from litebert.train.device import Device, choose, seed_step
from toys.refusals import refused


def test_precision_is_what_was_asked_or_what_the_machine_computes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert choose("float32", "cpu").autocast is None
    assert choose("bfloat16", "cpu").autocast is torch.bfloat16
    for flags, expected in (
        ("fpu avx512f avx512_bf16", torch.bfloat16),
        ("fpu amx_bf16 amx_tile", torch.bfloat16),
        ("fpu avx512f avx2 avx_ne_convert", None),
        ("", None),
    ):
        monkeypatch.setattr(machine, "read_processor_facts", lambda flags=flags: {"flags": [flags]})
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False, raising=False)
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False, raising=False)
        assert choose("auto", "cpu").autocast is expected
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True, raising=False)
    assert choose("auto", "cpu").autocast is torch.bfloat16
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False, raising=False)
    arm = {"Features": ["fp asimd bf16"]}  # which names its unit otherwise
    monkeypatch.setattr(machine, "read_processor_facts", lambda: arm)
    assert choose("auto", "cpu").autocast is torch.bfloat16


def test_the_accelerator_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Some GPU")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    chosen = choose("auto")
    assert (chosen.device.type, chosen.autocast, chosen.name) == ("cuda", None, "Some GPU")
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation: not including_emulation
    )
    assert choose("auto", "cuda:0").autocast is torch.bfloat16
    with refused(ConfigError, "cuda:1", "auto", "cuda", "cpu"):
        choose("auto", "cuda:1")


def test_apples_accelerator_computes_in_float32_unless_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert (choose("auto").device.type, choose("auto").autocast) == ("mps", None)


@pytest.mark.parametrize("name", ["cuda", "mps", "tpu", "cpu:x", "meta"])
def test_a_device_that_is_not_there_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with refused(ConfigError, name, "auto", "cpu"):
        choose("float32", name)


@pytest.mark.parametrize(
    ("autocast", "dtype"), [(None, torch.float32), (torch.bfloat16, torch.bfloat16)]
)
def test_the_context_sets_the_type_of_products(
    autocast: torch.dtype | None, dtype: torch.dtype
) -> None:
    with Device(torch.device("cpu"), autocast, "x").autocast_context():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is dtype


def test_the_machine_is_described_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    text = choose("bfloat16", "cpu").describe()
    assert "\n" not in text
    assert torch.__version__ in text
    assert text.endswith("bfloat16 autocast")
    assert choose("float32", "cpu").describe().endswith("float32")
    assert choose("float32", "cpu").name
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 7)
    assert "7 CPU cores" in choose("float32", "cpu").describe()


def test_random_numbers_depend_on_seed_step_and_row_alone() -> None:
    def draw(seed: int, step: int, row: int = 0) -> torch.Tensor:
        seed_step(seed, step, row)
        return torch.rand(16)

    torch.rand(5)
    first = draw(1, 23)
    torch.rand(7)
    assert torch.equal(first, draw(1, 23))
    others = [
        draw(*key) for key in ((12, 3), (1, 24), (2, 23), (-1, 23), (0, 0), (1, 23, 1), (1, 2, 3))
    ]
    assert not any(torch.equal(first, other) for other in others)
