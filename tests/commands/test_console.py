"""Tables for people."""

from __future__ import annotations

import importlib
import io
import json
import sys

import pytest

from litebert.commands.console import parse, parse_known, print_json, print_markdown, table
from litebert.commands.points import PlanArguments
from litebert.model.objectives import score_rows
from litebert.recipes import RECIPES


def test_tables_keep_names_whole_and_fold_what_is_long(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    table(
        ("name", "count", "what"),
        [("a-long-name-1", "1,000", "word " * 12), ("b", "7", "[bold]x[/bold]")],
    )
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 40
    assert sum("a-long-name-1" in line for line in lines) == 1
    assert " ".join(lines).count("word") == 12
    assert "[bold]x[/bold]" in lines[-2]


def test_a_markdown_table_has_as_many_cells_in_every_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    note = "word " * 40
    print_markdown(("run", "score"), [("a|b", "1"), ("c", "2")], note)
    assert (
        capsys.readouterr().out
        == f"| run | score |\n| --- | --- |\n| a\\|b | 1 |\n| c | 2 |\n\n{note}\n"
    )


MLM = {"mlm_loss": 4.0, "mlm_perplexity": 54.6, "mlm_accuracy": 0.3, "mlm_majority": 0.05}
RTD = {"rtd_loss": 0.2, "rtd_accuracy": 0.93, "rtd_base_rate": 0.88, "rtd_replaced": 0.12}
RTD |= {"rtd_precision": 0.75, "rtd_recall": 0.5, "rtd_auc": 0.8125, "rtd_piece_auc": 0.55}


def test_every_score_stands_beside_what_guessing_gives() -> None:
    rows = dict(
        score_rows({**MLM, **RTD, "sbo_loss": 5.0, "sbo_accuracy": 0.2, "sbo_majority": 0.06})
    )
    assert rows["generator's MLM accuracy"] == "30.0% (most frequent token: 5.0%)"
    assert rows["tokens replaced"] == "12.0%"
    assert rows["RTD accuracy"] == "93.0% (always the commoner answer: 88.0%)"
    assert rows["RTD area under the curve"] == "0.812 (tokens alone: 0.550)"
    assert rows["RTD precision"] == "75.0% (of the tokens called replaced)"
    assert rows["RTD recall"] == "50.0% (of the replaced tokens)"
    assert rows["SBO accuracy"] == "20.0% (most frequent token: 6.0%)"
    pairs = {"sop_accuracy": 0.6, "sop_standard_error": 0.01, "sop_majority": 0.51}
    assert dict(score_rows({**MLM, **pairs})) == {
        "MLM loss (nats)": "4.000",
        "MLM perplexity": "54.6",
        "MLM accuracy": "30.0% (most frequent token: 5.0%)",
        "SOP accuracy": "60.0% ± 1.0% (majority: 51.0%)",
    }


def test_without_both_labels_there_is_no_curve_to_show() -> None:
    few = {"rtd_loss": 0.1, "rtd_accuracy": 1.0, "rtd_base_rate": 1.0, "rtd_replaced": 0.0}
    assert [name for name, _ in score_rows(few)] == ["tokens replaced", "RTD accuracy"]


def test_what_programs_read_is_utf8_whatever_the_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    print_json({"label": "größe"})
    sys.stdout.flush()
    assert json.loads(raw.getvalue().decode("utf-8")) == {"label": "größe"}


@pytest.mark.parametrize(
    "words",
    [
        "--measure a",
        "--device cpu a",
        "--device=cpu a",
        "--encoder.bias a",
        "--encoder.no-bias a --measure",
        "--encoder.always_project a",
        "--train.no-compile --train.seed 3 a",
        "--shards b c a",
        "--shards b -- a",
    ],
)
def test_the_recipe_is_found_after_any_options(words: str) -> None:
    """Flags are known from the dataclasses: a word after one is no value of it."""
    arguments, _ = parse_known(PlanArguments, words.split(), "plan", RECIPES["albert-tiny"]())
    assert arguments.recipe == "a"


def test_a_perplexity_beyond_all_measure_is_short() -> None:
    rows = dict(score_rows({**MLM, "mlm_loss": 108.0, "mlm_perplexity": 8.0e46}))
    assert rows["MLM perplexity"] == "8.0e+46"


@pytest.mark.parametrize(
    ("module", "name", "words", "field"),
    [
        ("evaluate", "EvaluateArguments", ["model", "--shards"], "shards"),
        ("analyze", "AnalyzeArguments", ["model", "--shards"], "shards"),
        ("models", "CompareArguments", ["run", "--shards"], "shards"),
        ("study", "StudyArguments", ["sharing", "--shards"], "shards"),
        ("text", "PrepareArguments", ["text", "--out"], "out"),
        ("merge", "MergeArguments", [], "out"),
    ],
)
def test_a_url_keeps_its_slashes(module: str, name: str, words: list[str], field: str) -> None:
    arguments = getattr(importlib.import_module(f"litebert.commands.{module}"), name)
    parsed = parse(arguments, [*words, "s3://bucket/data"], module)
    assert getattr(parsed, field) == "s3://bucket/data"
