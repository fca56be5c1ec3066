"""`pretrain` tells how many pairs of segments have no label, and warns where these are many."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from litebert.data.shards import Shards
from toys.finetuning import RECIPE
from toys.prepare import run as prepare
from toys.typed import typed

pytestmark = pytest.mark.thorough


Output = tuple[int, str, str]
QUICK = (
    "[train]\nbudget = '2 steps'\nbatch = '4 sequences'\ndepth_schedule = "
    "[]\nevaluate_sequences = 8\n"
)


@pytest.fixture
def start(
    tiny_tokenizer: Path, run: Callable[..., Output], tmp_path: Path
) -> Callable[..., tuple[str, float]]:
    """Pretrain on documents of one or two short sentences; what is logged, and the share of
    documents of one.
    """

    def call(single: int, double: int, *options: object) -> tuple[str, float]:
        draw = random.Random(0)  # equal documents would be one

        def sentence() -> str:
            return " ".join(
                draw.choices(["ba", "de", "fi", "go", "ku", "la", "mo", "ne", "pi", "ra"], k=8)
            )

        documents = [sentence() for _ in range(single)] + [
            f"{sentence()}\n{sentence()}" for _ in range(double)
        ]
        (tmp_path / "text.txt").write_text("\n\n".join(documents) + "\n", encoding="utf-8")
        prepare(tmp_path / "text.txt", tmp_path / "data", tiny_tokenizer)
        sentences = Shards.open(tmp_path / "data").train.document_sentences
        assert set(sentences.tolist()) == {1, 2}
        (tmp_path / "small.toml").write_text(
            f'base = "albert-tiny"\n{RECIPE}\n{QUICK}', encoding="utf-8"
        )
        words = typed(
            "pretrain {} --shards {} --out {}",
            tmp_path / "small.toml",
            tmp_path / "data",
            tmp_path / "run",
        )
        status, _, err = run(*words, "--sequences.short-probability", 0, *options)
        assert status == 0, err
        return " ".join(err.split()), float((sentences == 1).mean())

    return call


@pytest.mark.parametrize(("single", "double", "warned"), [(45, 15, True), (6, 54, False)])
def test_the_share_is_logged_and_a_large_one_warned_about(
    single: int, double: int, warned: bool, start: Callable[..., tuple[str, float]]
) -> None:
    # A document fits in one sequence, so one of a single sentence has no label.
    message, share = start(single, double)
    assert f"{share:.0%} at length" in message
    assert ("--sequences.length" in message) == warned
    assert ("--objectives mlm" in message) == warned


def test_an_objective_without_pairs_logs_no_share(start: Callable[..., tuple[str, float]]) -> None:
    message, _ = start(45, 15, "--objectives", "mlm")
    assert "at length" not in message
