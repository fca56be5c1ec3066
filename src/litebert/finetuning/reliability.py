"""Facts about the answers of a finished run to its first development part: reliability.json, which
the report draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from litebert.finetuning.calibration import Calibration, PrecisionPoint, record_points
from litebert.finetuning.items import EncodedPart
from litebert.storage import write_json

RELIABILITY = "reliability.json"
"""The file of a run folder."""


def write_reliability(
    folder: Path,
    part: EncodedPart,
    calibration: Calibration,
    precision: Sequence[PrecisionPoint],
    is_calibrated: bool,
) -> None:
    """Write reliability.json into a run folder.

    Args:
        calibration: that of the part.
        precision: by threshold, of the probabilities as the model gives them.
        is_calibrated: whether the model has the temperature.
    """
    record: dict[str, Any] = {
        "part": part.name,
        "calibrated": is_calibrated,
        "calibration": asdict(calibration),
        "precision": record_points(precision),
    }
    write_json(folder / RELIABILITY, record)
