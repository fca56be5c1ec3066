"""The end-to-end scripts run, with budgets of a few steps."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_five_systems_end_in_one_table(
    tmp_path: Path, tiny_corpus: Path, warm_litebert: Path
) -> None:
    out = tmp_path / "with a space"
    command = [str(ROOT / "runs" / "five_systems.sh"), str(out), str(tiny_corpus)]
    settings = {**os.environ, "LITEBERT": str(warm_litebert), "BUDGET": "2 steps", "PIECES": "400"}
    done = subprocess.run(command, env=settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = (out / "table.md").read_text(encoding="utf-8").splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:7]] == [
        "albert-mini",
        "bert-mini",
        "roberta-mini",
        "electra-mini",
        "spanbert-mini",
    ]
    assert "RTD area (tokens alone)" in lines[0]
    assert done.stdout.endswith((out / "table.md").read_text(encoding="utf-8"))


def benchmarks(folder: Path) -> Path:
    """CoLA and WNUT-17 of some rows, in their layouts."""
    cola, wnut = folder / "glue" / "CoLA", folder / "wnut17"
    cola.mkdir(parents=True)
    wnut.mkdir()
    for part, rows in (("train", 40), ("dev", 12)):
        (cola / f"{part}.tsv").write_text(
            "".join(f"gj04\t{i % 2}\t\tbado {'kumi' * (i % 2)}\n" for i in range(rows))
        )
        (wnut / f"{part}.conll").write_text("bado\tO\nkumi\tB-person\n\n" * rows)
    return folder


@pytest.mark.thorough
def test_tasks_end_in_one_table(tmp_path: Path, tiny_corpus: Path, warm_litebert: Path) -> None:
    settings = {
        **os.environ,
        "LITEBERT": str(warm_litebert),
        "BUDGET": "2 steps",
        "PIECES": "400",
        "SEEDS": "1",
        "TWINS": "albert-tiny",
        "TASKS": "cola wnut17",
        "EPOCHS": "1",
        "LARGE": "1",
    }
    out = tmp_path / "out"
    command = [
        str(ROOT / "runs" / "tasks.sh"),
        str(out),
        str(benchmarks(tmp_path / "tasks")),
        str(tiny_corpus),
    ]
    done = subprocess.run(command, env=settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    table = (out / "table.md").read_text(encoding="utf-8")
    lines = table.splitlines()
    assert lines[0] == "| task | score | albert-tiny | albert-tiny, from scratch | baseline |"
    assert [line.split("|")[1].strip() for line in lines[2:4]] == ["cola", "tagging"]
    assert done.stdout.endswith(table)
