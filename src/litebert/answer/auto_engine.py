"""The engine `auto`: it measures the engines at hand on the texts at hand, takes the fastest and
remembers it.

The first rows, and all of a small input, are answered by the first engine, torch. When more come,
every engine computes parts of the batches in turns for a few seconds. Another engine must be faster
by a twentieth to be taken. What was chosen, the speeds, and the largest difference of a probability
to those of the first engine are logged, and kept beside the model for the same weights, machine and
versions.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

import numpy as np
import torch
from numpy.typing import NDArray

from litebert.answer.engines import PACKED_TOKENS, Engine
from litebert.answer.graphs import kept_places, weights_key
from litebert.config.serialization import to_json
from litebert.errors import ConfigError, MissingExtraError, ModelError
from litebert.finetuning.outputs import softmax
from litebert.finetuning.rows import PaddedRows
from litebert.interop import LoadedModel
from litebert.interop.exports import exported_graph
from litebert.json_reader import read_json
from litebert.registry import ENGINES
from litebert.storage import write_json
from litebert.train import device as devices

log = logging.getLogger("litebert")

CANDIDATES = ("torch", "torch-bfloat16", "onnx", "openvino", "openvino-bfloat16")
"""The first one that can be had answers while nothing is chosen, and the others are compared with
it.
"""
LATER = 768
"""Rows that are answered before any are measured: of fewer, measuring would take longer than it
saves.
"""
SECONDS = 4.0
"""How long all engines together are measured, about."""
PART_SECONDS = 0.2
"""How long the first engine computes a part."""
PARTS = 6
"""Batches of which parts are measured, at most."""
GAIN = 1.05
"""How much faster than the first engine another one must be."""


class AutoEngine:
    """An engine that becomes the fastest of several.

    Raises:
        ConfigError: there is no such device on this machine.
        ModelError: no engine can answer with the model.
    """

    tokens = PACKED_TOKENS

    def __init__(
        self,
        loaded: LoadedModel,
        device: str,
        clock: Callable[[], float] = time.perf_counter,
        later: int = LATER,
    ) -> None:
        self._loaded, self._device, self._clock, self._later = loaded, device, clock, later
        self._made: dict[str, Engine] = {}
        self._out: dict[str, str] = {}
        self._seconds: dict[str, float] = {}
        self._apart: dict[str, float] = {}
        self._seen = self._parts = self._rows = self._most = 0
        self._key = _key(loaded)
        on_cpu = devices.choose("float32", device).device.type == "cpu"
        self.name = self._remembered() if on_cpu else CANDIDATES[0]
        """The engine that was chosen; None as long as none is."""
        if self.name is not None and not self._make(self.name):
            self.name = None
        first = self.name or next(filter(self._make, CANDIDATES), None)
        if first is None:
            asked = CANDIDATES[:1] if exported_graph(loaded.path) is None else ("onnx", "openvino")
            why = "; ".join(
                f"{name}: {reason}" for name, reason in self._out.items() if name in asked
            )
            raise ModelError(f"no engine can answer with {loaded.path} ({why})")
        self._engine = self._made[first]

    def logits(self, rows: PaddedRows) -> NDArray[np.float32]:
        if self.name is None and self._seen >= self._later:
            self._measure(rows)
        self._seen += len(rows.ids)
        return self._engine.logits(rows)

    def settle(self, answer: Callable[[], object]) -> None:
        """Choose now, on the rows of an `answer` that is repeated, and not while somebody waits."""
        self._later = 0
        for _ in range(PARTS):
            if self.name is None:
                answer()

    def _make(self, name: str) -> bool:
        if name not in self._out:
            try:
                self._made[name] = ENGINES[name](self._loaded, self._device)
            except Exception as reason:  # a library's own kinds share no base
                self._leave_out(name, reason)
        return name in self._made

    def _leave_out(self, name: str, reason: Exception) -> None:
        self._out[name] = str(reason).partition("\n")[0] or type(reason).__name__
        absent = isinstance(
            reason, (ConfigError, MissingExtraError)
        )  # not on this machine, which is no news
        absent |= (
            isinstance(reason, ModelError) and exported_graph(self._loaded.path) is not None
        )  # without weights
        log.log(
            logging.DEBUG if absent else logging.INFO,
            f"the engine {name} is left out: {self._out[name]}",
        )
        for found in (self._made, self._seconds, self._apart):
            found.pop(name, None)

    def _measure(self, rows: PaddedRows) -> None:
        """All engines in turns on the first rows of a batch; the choice, when that was done often
        or long enough.
        """
        if not self._seconds:
            for name in CANDIDATES:
                if name in self._made or self._make(name):
                    self._timed(name, _first(rows, 8))  # what is done once
            first = next(iter(self._seconds))
            before = self._seconds[first]
            self._timed(first, _first(rows, 8))
            self._most = max(8, int(8 * PART_SECONDS / max(self._seconds[first] - before, 1e-9)))
            self._seconds = dict.fromkeys(self._seconds, 0.0)
        part, names = _first(rows, self._most), list(self._seconds)
        turn = self._parts % len(names)
        found = {name: self._timed(name, part) for name in names[turn:] + names[:turn]}
        names = list(self._seconds)  # those that did not fail
        for name in names:
            gap = _apart(found[name], found[names[0]], part.mask, _gives_states(self._loaded))
            self._apart[name] = max(self._apart.get(name, 0.0), gap)
        self._rows, self._parts = self._rows + len(part.ids), self._parts + 1
        if self._parts == PARTS or sum(self._seconds.values()) > SECONDS:
            self._choose(names)

    def _timed(self, name: str, rows: PaddedRows) -> NDArray[np.float32]:
        """An engine's logits, whose seconds are added up. One that fails is left out and gives
        none, but for the one that answers, whose error is raised."""
        start = self._clock()
        try:
            found = self._made[name].logits(rows)
        except Exception as reason:
            if self._made[name] is self._engine:
                raise
            self._leave_out(name, reason)
            return np.empty(0, np.float32)
        self._seconds[name] = self._seconds.get(name, 0.0) + self._clock() - start
        return found

    def _choose(self, names: list[str]) -> None:
        best = min(names, key=self._seconds.__getitem__)
        self.name = best if self._seconds[names[0]] >= GAIN * self._seconds[best] else names[0]
        self._engine = self._made[self.name]
        rates = {name: self._rows / max(self._seconds[name], 1e-9) for name in names}
        speeds = [f"{name} {rates[name]:,.0f} rows/s" for name in names]
        for i, name in enumerate(names[1:], 1):
            speeds[i] += f" (outputs differ by at most {self._apart[name]:.1g})"
        log.info(
            f"chose the engine {self.name} after measuring {self._rows} rows: {', '.join(speeds)}"
        )
        record = {
            "key": self._key,
            "engine": self.name,
            "rows_per_second": rates,
            "largest_difference": self._apart,
        }
        for place in kept_places(self._loaded.path):
            try:
                place.mkdir(parents=True, exist_ok=True)
                write_json(place / f"{self._key}.json", record)
                return
            except OSError as error:
                log.debug(f"the choice cannot be kept in {place}: {error}")

    def _remembered(self) -> str | None:
        """The engine that was chosen before."""
        for place in kept_places(self._loaded.path):
            if (file := place / f"{self._key}.json").is_file():
                name = read_json(file, ModelError, "delete it").get("engine")
                if name in CANDIDATES:
                    log.info(
                        f"using the engine {name}, as {file} records; delete the file to "
                        "measure again"
                    )
                    return str(name)
        return None


def _key(loaded: LoadedModel) -> str:
    """Of the weights and the config, the machine and the versions."""
    versions = {}
    for package in ("torch", "onnxruntime", "openvino"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = ""
    machine = devices.choose("float32", "cpu").name
    parts = [
        weights_key(loaded.path),
        to_json(loaded.config),
        machine,
        torch.get_num_threads(),
        versions,
    ]
    if _gives_states(
        loaded
    ):  # whose fastest engine may be another one than for answers of the same weights
        parts.append("states")
    return "engine-" + hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:20]


def _first(rows: PaddedRows, count: int) -> PaddedRows:
    return PaddedRows(rows.ids[:count], rows.types[:count], rows.mask[:count])


def _gives_states(loaded: LoadedModel) -> bool:
    """Whether logits are the last states, of which vectors are made."""
    return loaded.task.get("kind") == "backbone"


def _apart(
    logits: NDArray[np.float32],
    others: NDArray[np.float32],
    mask: NDArray[np.bool_],
    states: bool = False,
) -> float:
    """The largest difference of a probability of a class, or of single numbers or states of these
    themselves.
    """
    if logits.ndim == 3:  # of every token; how much padding an engine computes is its own affair
        length = min(logits.shape[1], others.shape[1])
        real = mask[:, :length]
        logits, others = logits[:, :length][real], others[:, :length][real]
    if logits.shape[-1] > 1 and not states:
        return float(
            np.abs(softmax(logits.astype(np.float64)) - softmax(others.astype(np.float64))).max()
        )
    return float(np.abs(logits - others).max())
