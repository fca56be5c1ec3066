"""The report's words on seeds, and on scores that are only shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from litebert.base.errors import ConfigError
from litebert.base.storage import write_json
from litebert.config import cost
from litebert.studies.cells import Cell, Command
from litebert.studies.findings import AGREES, DISAGREES, NOISE, Findings, make_verdict_table
from litebert.studies.page import write_markdown, write_reports
from litebert.studies.papers import generator, systems
from litebert.studies.plan import Plan, list_preparing_commands
from litebert.studies.study import Published, Study, make_base_config, vary
from litebert.tokenizer.training import train_tokenizer
from toys.prepare import run as prepare
from toys.refusals import refused

SCORES = ("mlm_loss", "mlm_accuracy")


@pytest.fixture
def study() -> Study:
    base = make_base_config("toy")
    return Study(
        "Which?", {"a": base, "b": vary(base, encoder={"layers": 3})}, baseline="a", scores=SCORES
    )


def make_findings(
    study: Study, folder: Path, losses: Mapping[str, Sequence[float | None]]
) -> Findings:
    """Findings of a study whose runs ended with these losses, None for one that failed."""
    steps = dict.fromkeys(losses, 4)
    plan = Plan("own", folder, folder, "toy", "4 steps", 3, 1, 1, steps, "cpu", {}, 400, "text")
    cells = []
    for variant, variant_losses in losses.items():
        for seed, loss in enumerate(variant_losses):
            files = [
                folder / "scores" / f"{variant}{seed}" / f"{name}.json"
                for name in ("pretrain", "heldout")
            ]
            files[0].parent.mkdir(parents=True)
            if loss is not None:
                write_json(files[0], {})
                write_json(files[1], {"scores": {"mlm_loss": loss}})
            fault = "" if loss is not None else "killed"
            commands = tuple(Command(("pretrain",), file) for file in files)
            cells.append(
                Cell(variant, seed, plan.run_folder(variant, seed), 4, commands, fault=fault)
            )
    return Findings(study, plan, cells)


def test_the_seeds_are_those_that_ended(study: Study, tmp_path: Path) -> None:
    table = make_findings(
        study, tmp_path, {"a": [3.0, 3.1, 3.2], "b": [2.0, None, 2.1]}
    ).make_table()
    assert "3 seeds (2 of 'b')" in table.note
    encoder = replace(study.variants["a"].encoder, vocab_size=400)
    assert table.rows[0][1] == f"{sum(cost.encoder_parameters(encoder).values()) / 1e6:.2f} M"


def test_one_seed_has_no_interval(study: Study, tmp_path: Path) -> None:
    findings = make_findings(study, tmp_path, {"a": [3.0], "b": [2.0]})
    assert "95%" not in findings.make_table().note
    assert ["95%" in figure.x_label for figure in findings.make_figures()] == [False]


def test_seeds_that_agree_exactly_are_not_tested(study: Study, tmp_path: Path) -> None:
    same = make_findings(study, tmp_path, {"a": [3.0, 3.0], "b": [2.0, 2.0]})
    assert not any("*" in cell for row in same.make_table().rows for cell in row)
    assert "p " not in same.verdicts()[0]


def test_a_figure_has_the_name_of_its_score(study: Study, tmp_path: Path) -> None:
    study = replace(study, scores=("mlm_loss", "sop_loss"))
    write_reports(
        make_findings(study, tmp_path, {"a": [3.0, 3.1], "b": [2.0, 2.1]}), ("study", "own")
    )
    figures = {path.name for path in (tmp_path / "figures").iterdir()}
    assert figures == {"mlm_loss.png", "mlm_loss_difference.png"}


def test_scores_that_cannot_be_compared_get_no_verdict(study: Study, tmp_path: Path) -> None:
    losses = {"a": [3.0, 3.1, 3.2], "b": [1.0, 1.11, 1.2]}
    judged = make_findings(study, tmp_path / "judged", losses)
    assert any("*" in cell for row in judged.make_table().rows for cell in row)
    shown = make_findings(replace(study, unjudged=SCORES), tmp_path / "shown", losses)
    assert "difference" not in shown.make_table().columns
    assert "*" not in "".join(cell for row in shown.make_table().rows for cell in row)
    assert (shown.differences, len(shown.verdicts())) == ([], 1)
    for build in (generator, systems):
        assert {
            score for score in build(make_base_config("toy")).scores if score.startswith("mlm")
        } <= {*build(make_base_config("toy")).unjudged}
    with refused(ConfigError, "sop_loss"):
        replace(study, unjudged=("sop_loss",))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("column", "losses", "fit"),
    [
        ("score", [2.0, 2.1, 2.0], AGREES),
        ("perplexity", [2.0, 2.1, 2.0], DISAGREES),
        ("score", [4.0, 4.1, 4.0], DISAGREES),
        ("score", [3.0, 3.1, 3.3], NOISE),
    ],
)
def test_a_difference_stands_beside_the_papers(
    study: Study, tmp_path: Path, column: str, losses: list[float], fit: str
) -> None:
    paper = Published("a table", ("other", column), {"a": ("-", "80.0"), "b": ("70.0", "81.5")})
    study = replace(study, paper=paper, scores=("mlm_loss",))
    findings = make_findings(study, tmp_path, {"a": [3.0, 3.1, 3.2], "b": losses})
    table = make_verdict_table(findings.differences, study)
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert (row["paper's difference"], row["sign of both"]) == (f"+1.5 {column}", fit)
    write_reports(findings, ("study", "own"))
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if line == "| " + " | ".join(table.rows[0]) + " |"]


def test_an_objective_is_compared_with_the_papers_column_of_its_name(
    study: Study, tmp_path: Path
) -> None:
    paper = Published("a table", ("other", "MLM"), {"a": ("1", "2"), "b": ("2", "1")})
    study = replace(study, paper=paper, scores=("mlm_loss",))
    findings = make_findings(study, tmp_path, {"a": [3.0, 3.1, 3.2], "b": [2.0, 2.1, 2.0]})
    assert make_verdict_table(findings.differences, study).rows[0][-1] == DISAGREES


def test_networks_that_know_only_frequencies_are_named(study: Study, tmp_path: Path) -> None:
    findings = make_findings(study, tmp_path, {"a": [3.0, 3.1, 3.2], "b": [2.0, 2.1, 2.0]})
    assert findings.warn_of_frequencies() == ""
    findings.plan = replace(findings.plan, entropy=3.2)
    warning = findings.warn_of_frequencies()
    assert "of 'a' have" in warning
    assert "(3.20 nats)" in warning


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"kind": "unigram"}, "--vocab-size 400 --kind unigram --out tokenizer"),
        (
            {"kind": "unigram", "lower_case": False},
            "--vocab-size 400 --kind unigram --no-lower-case",
        ),
        (
            {"kind": "wordpiece", "strip_accents": True},
            "--vocab-size 400 --kind wordpiece --strip-accents --out",
        ),
        ({"kind": "bpe"}, "--vocab-size 400 --kind bpe --out"),
    ],
    ids=["unigram", "capitals", "accents", "bpe"],
)
def test_the_commands_repeat_the_recorded_settings(
    tiny_corpus: Path, tmp_path: Path, options: dict[str, Any], expected: str
) -> None:
    texts = tiny_corpus.read_text(encoding="utf-8").split("\n\n")
    train_tokenizer(texts, vocab_size=400, **options).save(tmp_path / "tokenizer")
    shards = prepare(tiny_corpus, tmp_path / "data", tmp_path / "tokenizer", heldout=0.25)
    first, second = list_preparing_commands(shards)
    assert expected in first
    assert second == "prepare my-text --tokenizer tokenizer --heldout 0.25 --out data"


def test_a_variant_without_a_head_guesses(study: Study, tmp_path: Path) -> None:
    """Its accuracy is that of the most frequent answer, which the other runs report."""
    study = replace(study, scores=("sop_accuracy",), chance=("sop_accuracy",))
    findings = make_findings(study, tmp_path, {"a": [1.0, 1.0, 1.0], "b": [1.0, 1.0, 1.0]})
    for seed, accuracy in enumerate((0.60, 0.61, 0.62)):
        scores = {"sop_accuracy": accuracy, "sop_majority": 0.5}
        write_json(tmp_path / "scores" / f"b{seed}" / "heldout.json", {"scores": scores})
    findings = Findings(study, findings.plan, findings.cells)
    assert findings.scores["a"]["sop_accuracy"] == [0.5] * 3
    (difference,) = findings.differences
    assert difference.value == pytest.approx(0.11)
    assert difference.is_beyond_noise
    with refused(ConfigError, "nsp_accuracy"):
        replace(study, chance=("nsp_accuracy",))


def test_the_page_of_a_study_says_what_a_student_asks(study: Study, tmp_path: Path) -> None:
    paper = Published("a table", ("score",), {"a": ("80.0",), "b": ("81.5",)})
    study = replace(study, paper=paper, finding="It is so.", scores=("mlm_loss",))
    findings = make_findings(study, tmp_path, {"a": [3.0, 3.1, 3.2], "b": [2.0, 2.11, 2.2]})
    (tmp_path / "times.csv").write_text("a-seed0,pretrain,75.0\n", encoding="utf-8")
    words = "study own --shards novels --out there --seeds 3 --pilot old"  # the reader lacks old
    page = tmp_path / "own.md"
    write_markdown(findings, tuple(words.split()), page)
    text = page.read_text(encoding="utf-8")
    for sentence in (
        "# Which?",
        "It is so.",
        "The one comparison agrees with the paper.",
        "| 3 of 3 | ",
        " | agrees |",
        "](own.png)",
        "1 min 15 s of one core",
        "litebert study own --shards data --seeds 3\n",
        "`--pilot` names an earlier study",
    ):
        assert sentence in text
    assert (tmp_path / "own.png").stat().st_size > 1000
