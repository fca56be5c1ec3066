"""Every study from end to end at toy size: `make studies-smoke`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from litebert.studies import cells
from litebert.studies.papers import STUDIES, make_study
from toys.typed import typed


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_every_study_runs(
    name: str,
    tmp_path: Path,
    tiny_data: Path,
    warm_litebert: Path,
    run: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cells, "PROGRAM", (str(warm_litebert),))
    monkeypatch.setattr("litebert.train.measure._is_enough", lambda passes, *_: passes >= 2)
    out = tmp_path / "out"
    line = "study {} --shards {} --scale toy --budget '4 steps' --seeds 1 --out {} --json"
    status, output, err = run(*typed(line, name, tiny_data, out))
    assert status == 0, err
    record, study = json.loads(output), make_study(name, "toy")
    assert set(record["scores"]) == set(study.variants)
    assert all(study.scores[0] in scores for scores in record["scores"].values())
    assert study.question in (out / "report.html").read_text(encoding="utf-8")
