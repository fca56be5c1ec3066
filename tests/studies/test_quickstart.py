"""The main job from end to end on a small text, twice: the second time nothing is done again."""

from __future__ import annotations

import json
import pydoc_data.topics
from pathlib import Path

import pytest

from litebert.cli import main
from toys.refusals import names


def test_from_text_to_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("litebert.studies.quickstart.MEASURE_SECONDS", 0.2)
    text = tmp_path / "text.jsonl"
    topics = [topic for topic in pydoc_data.topics.topics.values() if 400 < len(topic) < 4000][:40]
    text.write_text("".join(json.dumps({"text": topic}) + "\n" for topic in topics), encoding="utf-8")
    out = tmp_path / "quickstart"
    command = ["quickstart", "--text", str(text), "--vocab-size", "400", "--budget", "4 steps", "--out", str(out)]

    assert main(command) == 0
    first = capsys.readouterr()
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "http" not in page.replace("http://www.w3.org", "")
    for word in ("MLM accuracy", "SOP accuracy", "albert-tiny", "bert-tiny", "[MASK]", "unigram entropy"):
        assert word in page
    assert "albert-tiny" in first.out
    next_commands = [line for line in first.err.splitlines() if line.startswith("  litebert ")]
    assert len(next_commands) == 3
    rows = [json.loads(line) for line in (out / "albert-tiny" / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["step"] == 4
    weights = {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")}

    assert main(command) == 0
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")} == weights


def test_a_text_too_small_for_the_vocabulary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.txt"
    text.write_text("A few words.\n\nA few more words, and then the end.\n" * 3)
    assert main(["quickstart", "--text", str(text), "--out", str(tmp_path / "out")]) == 2
    names(capsys.readouterr().err.splitlines()[-1], 8192, 32)
