"""The scores of a fine-tuned model, computed in parts.

    scores.json.parts/2-of-4/logits.npz    the logits of each batch of the part

One run sorts all rows by length and computes them in batches. Batch b belongs to part b modulo n,
as it would belong to a process of a group (`Ranks`). `merge` reads the labels again, takes the
logits of all parts in place of computing them, and scores as one run does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from litebert.answer.model import load
from litebert.answer.part_answers import make_answer_identity
from litebert.answer.scoring import Scored, score_predictor
from litebert.errors import DataError
from litebert.finished_parts import FinishedPart
from litebert.parts import (
    Part,
    compare_identities,
    finish_part,
    finish_target,
    is_finished,
    lock_part,
    read_marker,
)
from litebert.remote.output import check_output_file, open_output_file
from litebert.storage import atomic_write, write_json
from litebert.text.files import leave_out, list_files
from litebert.train.ranks import Ranks

T = TypeVar("T")
FILE = "logits.npz"


def describe_scores(model: str, measured_on: Mapping[str, Any], scored: Scored) -> dict[str, Any]:
    """Return the report of scores, as `litebert evaluate --json` prints it."""
    return {"model": model, **measured_on, **asdict(scored)}


def score_part(
    part: Part,
    model: str | Path,
    data: Sequence[str],
    out: str | Path,
    *,
    loading: Mapping[str, Any],
    scoring: Mapping[str, Any],
) -> int:
    """Compute the logits of one part of labeled files, for `merge` to write the report `out`.

    Args:
        loading: arguments of `load`.
        scoring: arguments of `score_file`.

    Returns:
        The batches of the part.

    Raises:
        ConfigError, ModelError, DataError: as in `evaluate`; or the part is of other work.
    """
    opened = load(model, **loading)
    work = {
        "model": str(model),
        "data": list(data),
        "loading": dict(loading),
        "scoring": dict(scoring),
    }
    identity = make_answer_identity("evaluate", opened, work, _list_inputs(data, out), out)
    with lock_part(out, part, identity) as target:
        folder = target.folder
        if not is_finished(folder):
            try:
                score_predictor(opened.predictor, data, ranks=_PartTurns(part=part), **scoring)
            except _Computed as computed:
                logits = {str(number): values for number, values in computed.results.items()}
                with atomic_write(folder / FILE) as file:
                    np.savez(file, **logits)
                finish_part(folder, part, identity, files=[FILE], count=len(logits))
                finish_target(target, FILE)
        return int(read_marker(folder)["count"])


def merge_scores(out: str | Path, parts: Sequence[FinishedPart]) -> None:
    """Write the report of all parts.

    Raises:
        DataError: a part is damaged, or the files or the model have changed since.
    """
    check_output_file(out)
    identity = parts[0].marker["identity"]
    work = identity["settings"]
    opened = load(work["model"], **work["loading"])
    chosen = {name: work[name] for name in ("model", "data", "loading", "scoring")}
    actual = make_answer_identity("evaluate", opened, chosen, _list_inputs(work["data"], out), out)
    if fault := compare_identities(identity, actual):
        raise DataError(
            f"part {parts[0].part} ({parts[0].folder}) was made {fault}, which `merge` finds here; "
            "restore the model and the files, or delete the parts and run their commands again"
        )
    results: dict[int, Any] = {}
    for part in parts:
        with np.load(part.open_file(FILE), allow_pickle=False) as logits:
            results |= {int(name): logits[name] for name in logits.files}
    turns = _AllTurns(results=results)
    scored = score_predictor(opened.predictor, work["data"], ranks=turns, **work["scoring"])
    measured_on = {"data": work["data"]}
    with open_output_file(out) as path:
        write_json(path, describe_scores(work["model"], measured_on, scored))


def _list_inputs(data: Sequence[str], out: str | Path) -> list[str]:
    files = list_files(data, lambda folder: sorted(p for p in folder.rglob("*") if p.is_file()))
    return leave_out(files, out, data)


class _Computed(Exception):
    """Carries the batches of a part out of the scoring, which needs those of all parts to go on."""

    def __init__(self, results: Mapping[int, Any]) -> None:
        super().__init__()
        self.results = results


@dataclass(frozen=True)
class _PartTurns(Ranks):
    """Has one part computed."""

    part: Part = field(default=Part(1, 1))

    def turns(self, count: int) -> list[int]:
        return [turn for turn in range(count) if self.part.has_turn(turn)]

    def union(self, results: Mapping[int, T]) -> list[T]:
        raise _Computed(results)


@dataclass(frozen=True)
class _AllTurns(Ranks):
    """Has nothing computed, because all batches are known."""

    results: Mapping[int, Any] = field(default_factory=dict)

    def turns(self, count: int) -> list[int]:
        return []

    def union(self, results: Mapping[int, T]) -> list[T]:
        return [self.results[number] for number in sorted(self.results)]
