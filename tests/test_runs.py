"""The end-to-end scripts run, with budgets of a few steps."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_five_systems_end_in_one_table(tmp_path: Path, tiny_corpus: Path) -> None:
    environment = {
        **os.environ, "BUDGET": "2 steps", "PIECES": "400", "OMP_NUM_THREADS": "1",
        "LITEBERT": str(Path(sys.executable).with_name("litebert")),
    }  # fmt: skip
    out = tmp_path / "with a space"
    command = [str(ROOT / "runs" / "five_systems.sh"), str(out), str(tiny_corpus)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = (out / "table.md").read_text(encoding="utf-8").splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:7]] == [
        "albert-mini", "bert-mini", "roberta-mini", "electra-mini", "spanbert-mini",
    ]  # fmt: skip
    assert "RTD area (pieces alone)" in lines[0]
    assert done.stdout.endswith((out / "table.md").read_text(encoding="utf-8"))
