"""Studies: every one of them can be built, one of your own takes a few lines, and a grid runs from
end to end.
"""

from __future__ import annotations

import csv
import html
import json
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from litebert.base.errors import ConfigError
from litebert.config.serialization import to_dict
from litebert.studies import cells
from litebert.studies.papers import STUDIES, make_study
from litebert.studies.study import Scale, make_slug
from toys.refusals import names, refused
from toys.typed import typed

Output = tuple[int, str, str]
OWN = """
question = "Does a wider embedding help?"
baseline = "E 8"
[variants."E 8".encoder]
embedding_size = 8
[variants."E 16".encoder]
embedding_size = 16
"""
FUNCTION = """
from litebert.studies.study import Study, vary
def depths(base):
    variants = {f"{n} layers": vary(base, encoder={"layers": n}) for n in (1, 2)}
    after = {"2 layers": "1 layers"}
    return Study("How deep?", variants, baseline="1 layers", after=after)
"""


@pytest.mark.parametrize("scale", get_args(Scale))
@pytest.mark.parametrize("name", STUDIES)
def test_every_study_is_a_grid_of_possible_configs(name: str, scale: Scale) -> None:
    study = make_study(name, scale)
    plain = [json.dumps({**to_dict(config), "name": ""}) for config in study.variants.values()]
    assert len({*plain, *study.data}) >= len(plain), "two variants are the same"
    assert study.question.endswith("?")
    if study.paper:
        assert study.paper.rows.keys() <= study.variants.keys()
        assert {len(row) for row in study.paper.rows.values()} == {len(study.paper.columns)}
    lengths = {config.sequences.length for config in study.variants.values()}
    assert len(lengths) == 1, "held-out losses at several lengths answer different questions"


def test_a_study_of_your_own_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(OWN, encoding="utf-8")
    study = make_study(str(tmp_path / "own.toml"), "toy")
    assert [config.encoder.embedding_size for config in study.variants.values()] == [8, 16]
    (tmp_path / "grid.py").write_text(FUNCTION, encoding="utf-8")
    assert make_study(f"{tmp_path / 'grid.py'}:depths", "toy").after == {"2 layers": "1 layers"}


def test_the_study_of_the_page_has_the_original_block(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "studies.md").read_text(encoding="utf-8")
    section = page.partition("## Write your own study")[2].partition("\n## ")[0]
    code = textwrap.dedent("\n".join(re.findall(r"^(?:    .*|)$", section, re.M)))
    _, recipe, study = re.split(r"^# (?:small-albert|parts)\.toml.*$", code, flags=re.M)
    (tmp_path / "small-albert.toml").write_text(recipe, encoding="utf-8")
    (tmp_path / "parts.toml").write_text(study, encoding="utf-8")
    configs = make_study(str(tmp_path / "parts.toml"), "tiny").variants
    assert [config.encoder.sharing for config in configs.values()] == [
        "none",
        "attention",
        "feedforward",
        "all",
    ]
    assert {(c.encoder.norm, c.train.optimizer.name) for c in configs.values()} == {
        ("post", "lamb")
    }


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("baseline = 'a'", ["variants"]),
        ("[variants.a]\n[variants.b]\n[variants.c.encoder]\nlayers = 0", ["encoder.layers"]),
        ("[variants.a]\n[variants.b.encoder]\nlayer = 3", ["variants.b.encoder.layer", "layers"]),
        ("baseline = 'c'\n[variants.a]\n[variants.b]", ["c"]),
        ("equal = 'step'\n[variants.a]\n[variants.b]", ["step", "steps"]),
        ("[variants.a]\n[variants.A]", ["a, a"]),
        ("[after]\na = 'b'\n[variants.a]\n[variants.b]", ["a", "b"]),
        ("[data]\na = 1.5\n[variants.a]\n[variants.b]", ["1.5"]),
        ("color = 1\n[variants.a]\n[variants.b]", ["color"]),
        ("[variants", ["TOML"]),
    ],
)
def test_a_malformed_grid_is_refused_by_its_field(
    tmp_path: Path, text: str, places: list[str]
) -> None:
    file = tmp_path / "own.toml"
    file.write_text(text, encoding="utf-8")
    with refused(ConfigError, file, *places):
        make_study(str(file), "toy")


def test_what_is_no_study_is_refused() -> None:
    with refused(ConfigError, "sharin", "sharing"):
        make_study("sharin", "toy")
    with refused(ConfigError, "gone.py"):
        make_study("gone.py:f", "toy")


def test_names_of_variants_become_names_of_folders() -> None:
    assert make_slug("All, E 128 / N-grams") == "all-e-128-n-grams"
    assert make_slug("..") == "variant"


@pytest.fixture
def grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm_litebert: Path) -> Path:
    """A grid of two variants in the current folder, whose commands start at once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cells, "PROGRAM", (str(warm_litebert),))
    file = tmp_path / "own.toml"
    file.write_text(OWN, encoding="utf-8")
    return file


def test_a_grid_from_end_to_end(grid: Path, run: Callable[..., Output], tiny_data: Path) -> None:
    line = "study {} --shards {} --scale toy --budget '4 steps' --seeds 2 --jobs 2"
    words = typed(line, grid, tiny_data)
    status, out, err = run(*words, "--json")
    assert status == 0, err
    record = json.loads(out)
    assert {len(scores["mlm_loss"]) for scores in record["scores"].values()} == {2}
    assert record["failed"] == {}
    (difference,) = record["differences"]
    assert (difference["variant"], difference["score"]) == ("E 16", "mlm_loss")

    folder = grid.parent / "study-own"
    rows = list(csv.DictReader((folder / "results.csv").read_text(encoding="utf-8").splitlines()))
    assert {(row["variant"], row["seed"]) for row in rows} == {
        (v, s) for v in ("E 8", "E 16") for s in "01"
    }
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "Does a wider embedding help?" in page
    report = (folder / "report.md").read_text(encoding="utf-8")
    assert "Does a wider embedding help?" in report
    for text in (page, report, err):  # four steps teach nothing
        assert "'E 8', 'E 16' have learned little more than how frequent" in html.unescape(text)
    settings = json.loads((tiny_data / "index.json").read_text(encoding="utf-8"))["settings"]
    assert f"--tokenizer tokenizer --heldout {settings['heldout']:g} --out data" in report

    before = (folder / "results.csv").read_bytes()
    status, out, err = run(*words)  # nothing is done again
    assert status == 0, err
    assert (folder / "results.csv").read_bytes() == before
    status, _, err = run(*("5 steps" if word == "4 steps" else word for word in words[:-2]))
    assert status == 2
    names(err, "study-own", "budget")


def test_a_run_that_fails_loses_nothing_else(
    grid: Path, run: Callable[..., Output], tiny_data: Path
) -> None:
    wild = '[variants.wild.train.optimizer]\nname = "adamw"\nlearning_rate = 1e30\n'
    grid.write_text(OWN + wild, encoding="utf-8")
    line = "study {} --shards {} --scale toy --budget '4 steps' --seeds 1 --json"
    status, out, _ = run(*typed(line, grid, tiny_data))
    assert status == 1
    record = json.loads(out)
    assert list(record["failed"]) == ["wild-seed0"]
    names(record["failed"]["wild-seed0"], "learning_rate")
    assert {name for name, scores in record["scores"].items() if scores} == {"E 8", "E 16"}
    assert "wild" in (grid.parent / "study-own" / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_killed_at_any_instant_it_ends_with_the_same_table(grid: Path, tiny_data: Path) -> None:
    line = "study {} --shards {} --scale toy --budget '30 steps' --seeds 2 --out"
    command = [sys.executable, "-m", "litebert", *typed(line, grid, tiny_data)]
    subprocess.run([*command, "whole"], cwd=grid.parent, check=True, capture_output=True)
    draw = np.random.default_rng(0)
    for number in range(5):
        process = subprocess.Popen([*command, "killed"], cwd=grid.parent, stderr=subprocess.DEVNULL)
        time.sleep(float(draw.uniform(2, 15)))
        process.kill() if number % 2 else process.terminate()
        process.wait()
    subprocess.run([*command, "killed"], cwd=grid.parent, check=True, capture_output=True)
    results = [grid.parent / folder / "results.csv" for folder in ("whole", "killed")]
    assert results[0].read_bytes() == results[1].read_bytes()
