"""The tutorials run as printed, print what they show, and quote the code as it is."""

from __future__ import annotations

import csv
import gzip
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from generate import quote_code
from litebert.demo import unpack
from litebert.demo.tickets import write_tickets
from toys.groups import free_port
from toys.tutorials import Block, Law, Shell, find_missing, read_blocks

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
SMALL = {
    "--budget '1M tokens'": "--budget '40 steps'",
    "--budget '200 steps'": "--budget '4 steps'",
    "--train.save-every '50 steps'": "--train.save-every '5 steps'",
    "--scale micro": "--scale toy",
    "litebert fit tickets/train.csv": "litebert fit tickets/train.csv --methods tfidf frozen",
    "sleep 90": "sleep 25",
}
"""Sizes of the pages, and those that a test has time for."""
PORTS = ("8017", "8018", "9090", "9093")
VARYING = ("fill-mask", "litebert predict", "litebert fit", "litebert evaluate", "litebert study")
"""Commands whose words depend on how long a model was trained."""
NEEDS = {"alert": ("prometheus", "prometheus-alertmanager", "promtool", "amtool")}
"""Programs of other projects that a page runs."""


def make_environment(program: Path) -> dict[str, str]:
    """Return an environment in which `litebert` and `python` are those of the test."""
    path = os.pathsep.join(
        [str(program.parent), str(Path(sys.executable).parent), os.environ["PATH"]]
    )
    source = str(ROOT / "src")
    return {**os.environ, "PATH": path, "PYTHONPATH": source, "HF_HUB_OFFLINE": "1"}


def run_block(shell: Shell, block: Block, folder: Path, environment: dict[str, str]) -> list[str]:
    """Run a block, which must succeed, and return the lines that it prints."""
    if block.kind == "python":
        words = [sys.executable, "-c", block.text]
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()
    status, lines = shell.run(block.text)
    assert status == 0, "\n".join([block.text, *lines])
    # The program names itself by its path or its Python where its PATH has no litebert.
    names = rf"(?:{re.escape(sys.executable)} -m |\S+/)litebert"
    return [re.sub(rf"^next: {names} ", "next: litebert ", line) for line in lines]


@pytest.mark.thorough
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_run_as_printed_at_a_small_size(
    page: Path, tmp_path: Path, warm_litebert: Path
) -> None:
    for program in NEEDS.get(page.stem, ()):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    rules = tmp_path / "litebert" / "examples" / "alerts.yaml"  # beside the reader's clone
    rules.parent.mkdir(parents=True)
    alerts = (ROOT / "examples" / "alerts.yaml").read_text(encoding="utf-8")
    rules.write_text(alerts.replace("for: 1m", "for: 2s"), encoding="utf-8")
    small = {**SMALL, **{port: str(free_port()) for port in PORTS}}
    text = page.read_text(encoding="utf-8")
    # What is killed must be the program itself, not what started it.
    environment = make_environment(Path(sys.executable) if "kill -9" in text else warm_litebert)
    shell, missing = Shell(tmp_path, environment), []
    try:
        for block in read_blocks(text):
            commands, printed = block.text, block.printed
            for size, smaller in small.items():
                commands = commands.replace(size, smaller)
            for port in PORTS:
                printed = printed.replace(port, small[port])
            lines = run_block(shell, Block(block.kind, commands), tmp_path, environment)
            if not any(verb in block.text for verb in VARYING):
                missing += find_missing(printed, lines, Law(values=False))
    finally:
        shell.close()
    assert missing == []


@pytest.mark.thorough
def test_ten_lines_train_tune_explain_and_save(tmp_path: Path) -> None:
    train, *_ = write_tickets(tmp_path / "tickets")
    rows = train.read_text(encoding="utf-8").splitlines()[:41]
    train.write_text("\n".join([*rows, ""]), encoding="utf-8")
    model = unpack(tmp_path / "models")["words"]
    script = ROOT / "examples" / "ten_lines.py"
    environment = make_environment(Path(sys.executable))
    done = subprocess.run(
        [sys.executable, str(script), str(model), str(train)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    best, explanation, team = done.stdout.splitlines()
    assert "'epochs': " in best
    assert "WordWeight(" in explanation
    assert team in {row.rpartition(",")[2] for row in rows[1:]}
    assert (tmp_path / "saved" / "model.safetensors").is_file()


def test_novels_become_text(tmp_path: Path) -> None:
    """The example reads the markup of ELTeC: title pages and notes are no text."""
    novel = """<TEI xmlns="http://www.tei-c.org/ns/1.0"><teiHeader><p/></teiHeader><text>
        <front><div><p>A TITLE</p></div></front>
        <body><div><head>I.</head><p>So <hi>very</hi>
            late!</p><quote><l>Ein Vers,</l></quote></div><div>
            <p>En<note>No <p>text</p></note>de<lb/>hier<ref>1</ref></p></div></body>
        <back><div type="notes"><p>A note</p></div></back></text></TEI>"""
    (tmp_path / "level1").mkdir()
    (tmp_path / "level1" / "A.xml").write_text(novel, encoding="utf-8")
    words = [sys.executable, str(ROOT / "examples" / "novels.py"), str(tmp_path), "out"]
    subprocess.run(words, cwd=tmp_path, check=True)
    text = gzip.decompress((tmp_path / "out" / "A.txt.gz").read_bytes()).decode()
    assert text == "I.\nSo very late!\nEin Vers,\n\nEnde hier\n"
    missing = subprocess.run([*words, "B"], cwd=tmp_path, capture_output=True, text=True)
    assert (missing.returncode, "no novel B" in missing.stderr) == (1, True)


def test_a_quote_is_the_code() -> None:
    mark = "<!-- code: toys.tutorials:read_blocks | block = None | for kind -->"
    page = f"Before.\n\n{mark}\n```py\nold\n```\n\nAfter.\n"
    assert quote_code(page) == page.replace("old", "block = None")
    assert quote_code(quote_code(page)) == quote_code(page)
    quoted = (ROOT / "docs" / "tutorials" / "albert.md").read_text(encoding="utf-8")
    assert quote_code(quoted) == quoted, "write it again: make docs"
    assert quoted.count("<!-- code: ") == quoted.count("```py\n") == 5
    with pytest.raises(AttributeError):
        quote_code(page.replace("read_blocks", "nothing"))
    with pytest.raises(StopIteration):
        quote_code(page.replace("block = None |", "no such line |"))


def test_tickets_are_the_same_everywhere_and_hard(tmp_path: Path) -> None:
    train, test, unlabeled = write_tickets(tmp_path)
    again = write_tickets(tmp_path / "again")
    assert [path.read_bytes() for path in again] == [
        path.read_bytes() for path in (train, test, unlabeled)
    ]
    learned, scored = (
        list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
        for path in (train, test)
    )
    texts = {row["text"] for row in learned} | set(unlabeled.read_text("utf-8").splitlines())
    assert not texts & {row["text"] for row in scored}
    assert {row["team"] for row in learned} == {row["team"] for row in scored}
    assert len({row["team"] for row in learned}) == 5


def test_what_a_page_shows_is_compared() -> None:
    lines = ["wrote data", "accuracy        0.66    0.7375", "took 3 s"]
    assert find_missing("wrote data\n...\ntook 9 s\n", lines, Law()) == []
    assert find_missing("accuracy  0.70 0.75\n", lines[1:], Law()) == []
    assert find_missing("accuracy  0.90 0.75\n", lines[1:], Law()) == ["accuracy  0.90 0.75"]
    assert find_missing("wrote data\ntook 9 s\n", lines, Law()) == ["took 9 s"]
    assert find_missing("wrote runs\n", lines, Law(values=False)) == ["wrote runs"]
    assert find_missing("800 tickets\n", ["801 tickets"], Law()) == ["800 tickets"]
