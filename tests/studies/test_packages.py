"""The classifier of the quickstart, on made-up docstrings: a fair split, the same table again, two
networks.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.monkeypatch import MonkeyPatch

from litebert.base.errors import DataError
from litebert.config import replace
from litebert.studies import packages
from litebert.text.python_docs import find_package
from toys.finetuning import read_rows
from toys.refusals import refused


def docs() -> Iterator[tuple[str, str]]:
    """Three packages of five modules with twenty docstrings each, and one too small."""
    draw = random.Random(0)
    for package, sign in (("one", "bado"), ("two", "kumi"), ("three", "feti"), ("small", "lalo")):
        for module in range(5 if package != "small" else 1):
            for i in range(20):
                rest = " ".join(draw.choices(("toto", "mimi", "rere", "sasa"), k=6))
                yield (
                    f"{sign} {rest}\n{module} {i}",
                    f"/usr/lib/python3/site-packages/{package}/m{module}.py",
                )


@pytest.fixture(autouse=True)
def small(monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "read_python_docs", docs)
    monkeypatch.setattr(packages, "TRAIN", 40)
    monkeypatch.setattr(packages, "DEV", 20)


def test_the_package_of_a_path() -> None:
    assert find_package("/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py") == "torch"
    assert find_package("/usr/lib/python3/dist-packages/six.py") == "six"
    for path in ("/usr/lib/python3.12/json/__init__.py", "pydoc_data.topics['if']"):
        assert find_package(path) == "python"


def test_modules_are_either_learned_from_or_scored_on(tmp_path: Path) -> None:
    train, dev = (read_rows(file) for file in packages.write_table(tmp_path / "packages"))
    for rows, count in ((train, 40), (dev, 20)):
        labels = [row["package"] for row in rows]
        assert {name: labels.count(name) for name in labels} == dict.fromkeys(
            ("one", "two", "three"), count
        )
    places = [
        {(row["package"], row["docstring"].split()[-2]) for row in rows} for rows in (train, dev)
    ]
    assert not places[0] & places[1]
    assert "\n" not in train[0]["docstring"]


def test_the_table_is_written_once(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    files = packages.write_table(tmp_path / "packages")
    first = [file.read_bytes() for file in files]
    monkeypatch.setattr(packages, "read_python_docs", lambda: iter(()))
    assert packages.write_table(tmp_path / "packages") == files
    assert [file.read_bytes() for file in files] == first
    with refused(DataError, "python-docs"):
        packages.write_table(tmp_path / "other")


@pytest.mark.thorough
def test_the_classifier_stands_beside_its_baseline(
    tiny_data: Path, tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    from litebert.recipes.files import recipe
    from litebert.train.pretrain import pretrain

    base, config = packages.make_config(), recipe("albert-tiny")
    train = replace(base.train, precision="float32", batch="8 sequences")
    monkeypatch.setattr(packages, "make_config", lambda: replace(base, epochs=4, train=train))
    train = replace(config.train, budget="2 steps", batch="4 sequences", precision="float32")
    pretrain(replace(config, train=train), tiny_data, tmp_path / "run")
    done, classes = packages.classify(tmp_path / "run", tmp_path)
    assert classes == 3
    assert done.outcome.finished
    assert done.scores["accuracy"] > 0.5  # a third would be guessing, and the first word tells
    assert done.baseline is not None
    assert done.baseline.scores["accuracy"] > 0.9  # the first word tells
    assert (tmp_path / "classifier" / "model").is_dir()
