"""Tables for people."""

from __future__ import annotations

import pytest

from litebert.commands.console import table


def test_tables_keep_names_whole_and_fold_what_is_long(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    table(("name", "count", "what"), [("a-long-name-1", "1,000", "word " * 12), ("b", "7", "[bold]x[/bold]")])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 40
    assert sum("a-long-name-1" in line for line in lines) == 1
    assert " ".join(lines).count("word") == 12
    assert "[bold]x[/bold]" in lines[-2]
