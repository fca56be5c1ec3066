"""The machine of a run: which device computes, in which precision, and how reports name it.

`auto` uses bfloat16 autocast only if the hardware multiplies bfloat16 natively: emulated, it is
slower than float32. Weights, gradients and optimizer state stay float32 in either case.
"""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch

from litebert.base import machine
from litebert.base.errors import ConfigError


@dataclass(frozen=True)
class Device:
    """The device of a run, and the precision it computes in."""

    device: torch.device
    autocast: torch.dtype | None
    """The type of matrix products, where it is not float32."""
    name: str

    @property
    def precision(self) -> str:
        return "float32" if self.autocast is None else str(self.autocast).removeprefix("torch.")

    @property
    def answers_at_once(self) -> bool:
        """True if reading a number waits for no queued work."""
        return self.device.type == "cpu"

    def autocast_context(self) -> AbstractContextManager[Any]:
        """Return the context for forward passes; it does nothing in float32."""
        if self.autocast is None:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.autocast)

    def describe(self) -> str:
        """Describe the machine in one line: its name, its cores, torch, and the precision."""
        precision = self.precision + (" autocast" if self.autocast else "")
        return (
            f"{self.name}, {machine.count_cores()} CPU cores, torch {torch.__version__}, "
            f"{precision}"
        )


def choose(precision: Literal["auto", "float32", "bfloat16"], device: str = "auto") -> Device:
    """Choose the named device, or the best one of this machine, and the precision for it."""
    accelerators = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    # Best first.
    kinds = [*(kind for kind, is_present in accelerators.items() if is_present), "cpu"]
    try:
        selected = torch.device(kinds[0] if device == "auto" else device)
    except RuntimeError:
        # A name that torch does not know is refused as one that is absent.
        selected = torch.device("meta")
    count = torch.cuda.device_count() if selected.type == "cuda" else 1
    if selected.type not in kinds or (selected.index or 0) >= count:
        raise ConfigError(
            f"this machine has no device '{device}'; choose one of: auto, {', '.join(kinds)}"
        )
    native = precision == "auto" and _computes_bfloat16(selected)
    name = machine.read_processor_name()
    if selected.type == "cuda":
        name = torch.cuda.get_device_name(selected)
    return Device(selected, torch.bfloat16 if native or precision == "bfloat16" else None, name)


def seed_step(seed: int, step: int, row: int = 0) -> None:
    """Seed torch by (seed, step, first row) alone: a resumed run needs no state."""
    key = f"{seed}:{step}" if row == 0 else f"{seed}:{step}:{row}"
    digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
    torch.manual_seed(int.from_bytes(digest, "little"))


def _computes_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        # x86 names its two kinds of unit; ARM writes `bf16`.
        if instructions := machine.read_instructions():
            return not instructions.isdisjoint({"avx512_bf16", "amx_bf16", "bf16"})
        checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
        return any(getattr(torch.cpu, check, lambda: False)() for check in checks)
    return False
