"""The page is well formed, holds what it was given, and reaches for nothing outside itself."""

from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from litebert.analysis import report
from litebert.analysis.charts import COLORS
from litebert.analysis.report import (
    STYLE,
    Chart,
    Section,
    Series,
    Table,
    render,
    run_sections,
    write,
)
from litebert.analysis.run_report import write_run

VOID = {"meta", "path", "circle", "br"}
HOSTILE = '<script>alert("x")</script> & {style}'


class Reader(HTMLParser):
    """Texts by element; refuses a tag that is closed out of turn."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(page.replace("<wbr>", ""))  # where a line may break
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and data.strip():
            self.texts.setdefault(self.open[-1], []).append(data.strip())


def train_row(step: int, **scores: float | None) -> dict[str, Any]:
    return {"kind": "train", "step": step, **scores}


def heldout_row(step: int, **scores: float) -> dict[str, Any]:
    return {"kind": "heldout", "step": step, **scores}


ROWS: list[dict[str, Any]] = [
    train_row(step, loss=9 - step / 100, mlm_loss=8 - step / 100, mlm_accuracy=step / 1000)
    | {"sop_accuracy": 0.5, "learning_rate": 1e-3, "layers": 1 + step // 200}
    for step in range(10, 401, 10)
]
ROWS += [
    heldout_row(200, mlm_loss=6.1, mlm_accuracy=0.2, sop_accuracy=0.55, sop_majority=0.51),
    heldout_row(400, mlm_loss=4.321, mlm_accuracy=0.4, sop_accuracy=0.625, sop_majority=0.51),
    {"kind": "event", "step": 200, "message": f"left the plateau {HOSTILE}"},
]


def charts(sections: list[Section]) -> dict[str, Chart]:
    return {section.title: section for section in sections if isinstance(section, Chart)}


def lines(chart: Chart) -> dict[str, Series]:
    return {series.name: series for series in chart.series}


def page() -> str:
    cells = (("one", "1,234,567", "a & b"), ("two", "89", "<b>"))
    table = Table("Scores", ("model", "parameters", "what"), cells)
    return render("A run", "What it did.", [table, *run_sections(ROWS, 6.5)])


def test_the_page_is_well_formed_and_holds_what_it_was_given() -> None:
    read = Reader(page())
    assert read.texts["h1"] == ["A run"]
    assert "What it did." in read.texts["p"]
    assert {"1,234,567", "a & b", "<b>"} <= set(read.texts["td"])
    assert {"4.321", "62.5", "6.5"} <= set(read.texts["b"]), "the last values of the curves"
    assert read.seen.count("svg") == 5


def test_the_page_reaches_for_nothing_outside_itself() -> None:
    text = page()
    outside = r"https?:|//[a-z]|\bsrc=|\bhref=\"[^#]|url\([^#]|@import"
    assert not re.search(outside, text, re.IGNORECASE)
    assert "script" not in Reader(text).seen


def test_every_text_is_escaped() -> None:
    series = Series(HOSTILE, (1, 2), (1, 2))
    table = Table(HOSTILE, (HOSTILE,), ((HOSTILE,),), HOSTILE)
    chart = Chart(HOSTILE, (series, series), HOSTILE, HOSTILE, HOSTILE)
    text = render(HOSTILE, HOSTILE, [table, chart])
    read = Reader(text)
    assert "script" not in read.seen
    assert sum(HOSTILE in part for parts in read.texts.values() for part in parts) == 13
    assert 'aria-label="&lt;script&gt;alert(&quot;' in text


def test_columns_of_numbers_are_set_to_the_right() -> None:
    cells = (("one", "1,234", "4.5 MiB"), ("2", "43.1% ± 0.5%", "–"))
    html = render("t", "", [Table("t", ("a", "b", "c"), cells)])
    assert re.findall(r"<th [^>]*number[^>]*>(.)</th>", html) == ["b", "c"]
    assert len(re.findall(r"<td [^>]*number[^>]*>", html)) == 4


def test_charts_that_follow_one_another_share_a_grid() -> None:
    chart = Chart("c", (Series("s", (1, 2), (1, 2)),), "x", "y")
    html = render("t", "", [chart, chart, Table("between", ("a",), (("1",),)), chart])
    assert html.count('<div class="charts">') == 2


def test_empty_inputs_say_so() -> None:
    html = render("t", "", [Table("empty", ("a",), ()), *run_sections([], None)])
    assert html.count("Nothing was recorded yet.") == 2
    assert Reader(html).texts["h2"] == ["empty", "Loss"]


def test_the_curves_of_a_run() -> None:
    sections = run_sections(ROWS, unigram_entropy=6.5)
    by_title = charts(sections)
    assert list(by_title) == [
        "Loss on masked tokens",
        "Accuracy on masked tokens",
        "Accuracy on sentence order",
        "Learning rate",
        "Depth",
    ]
    loss = lines(by_title["Loss on masked tokens"])
    assert loss["held out"].ys == (6.1, 4.321)
    assert loss["training"].xs == tuple(range(10, 401, 10))
    assert loss["unigram entropy"] == Series("unigram entropy", (10, 400), (6.5, 6.5), dashed=True)
    order = lines(by_title["Accuracy on sentence order"])
    assert order["held out"].ys == pytest.approx((55.0, 62.5))
    assert order["always the commoner answer"].dashed
    assert order["always the commoner answer"].ys == (51.0, 51.0)
    events = sections[-1]
    assert isinstance(events, Table)
    assert events.rows == (("200", f"left the plateau {HOSTILE}"),)


def test_a_curve_ends_with_its_error_and_its_size() -> None:
    scores = {"sop_accuracy": 0.538, "sop_standard_error": 0.0224, "sop_pairs": 496.0}
    rows = [train_row(step, sop_accuracy=0.5) for step in (10, 20)]
    rows += [heldout_row(step, **scores) for step in (10, 20)]
    (chart,) = charts(run_sections(rows)).values()
    assert lines(chart)["training"].errors == ()
    assert lines(chart)["held out"].errors == pytest.approx((2.24, 2.24))
    assert "held out <b>53.8 ± 2.2</b> (496 pairs)" in render("t", "", [chart])


def test_a_last_window_of_a_few_steps_is_not_drawn() -> None:
    rows = [train_row(step, mlm_loss=5.0) for step in (10, 20, 30, 31)]
    for some in (rows, rows[:3]):
        loss = lines(charts(run_sections(some))["Loss on masked tokens"])
        assert loss["training"].xs == (10, 20, 30)


def test_a_report_begins_with_scores_and_curves(tmp_path: Path) -> None:
    (tmp_path / "recipe.json").write_text(
        '{"name": "r", "encoder": {"layers": 2, "hidden_size": 16}}'
    )
    (tmp_path / "run.json").write_text('{"steps": 400, "machine": "a desk"}')
    scores = {"rtd_accuracy": 0.9, "rtd_base_rate": 0.87, "rtd_auc": 0.75, "rtd_precision": 0.5}
    scores |= {"rtd_recall": 0.25, "mlm_standard_error": 0.004, "mlm_predictions": 9801.0}
    rows = [*ROWS[:-2], {**ROWS[-2], **scores}, ROWS[-1]]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "speed.jsonl").touch()
    html = write_run(tmp_path).read_text(encoding="utf-8")
    first, *_, table, events = (
        Reader(part).texts for part in re.findall("<section>(.*?)</section>", html, re.DOTALL)
    )
    assert first["b"] == ["40.0%", "62.5%", "90.0%", "0.750"], "what runs are compared by"
    assert first["small"] == ["± 0.4%"]
    assert "on 9,801 masked tokens" in first["dd"]
    assert html.index("<dl") < html.index("<svg") < html.index("<table")
    assert {"40.0% ± 0.4%", "9,801 masked tokens", "25.0%"} <= set(table["td"])
    assert events["h2"] == ["What happened"]


def test_a_fine_tuning_report_gives_the_error_of_a_share_of_rows(tmp_path: Path) -> None:
    (tmp_path / "finetune.json").write_text(
        '{"task": "table", "metric": "accuracy", "model": "m", "steps": 2}'
    )
    (tmp_path / "scores.json").write_text('{"macro_f1": 0.71, "accuracy": 0.75}')
    (tmp_path / "predictions").mkdir()
    answers = "prediction,p_good\n" + '"good, ""fine""\n",0.5\n' * 200
    (tmp_path / "predictions" / "dev.csv").write_text(answers)
    rows = [heldout_row(2, accuracy=0.75, macro_f1=0.71)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "speed.jsonl").touch()
    read = Reader(write_run(tmp_path).read_text(encoding="utf-8"))
    assert read.texts["dt"] == ["accuracy", "macro F1"], "the metric first"
    assert read.texts["b"][0] == "0.750"
    assert read.texts["small"] == ["± 0.031"]
    assert "on 200 rows" in read.texts["dd"]


def test_a_long_table_stays_a_table_on_a_phone() -> None:
    for count, is_cards in ((8, True), (9, False)):
        html = render("t", "", [Table("t", ("a", "b", "c"), (("1", "2", "3"),) * count)])
        assert ('class="cards"' in html) is is_cards


def test_long_names_break_at_their_joints_only() -> None:
    table = Table("t", ("a", "b"), (("train.optimizer.learning_rate", "1.5 of/2"),))
    html = render("t", "", [table])
    assert "train.<wbr>optimizer.<wbr>learning_<wbr>rate" in html
    assert "1.5 of/<wbr>2" in html
    assert "overflow-wrap: anywhere" not in re.sub(r"(h1|section).*", "", STYLE)


def test_throughput_over_the_time_of_training() -> None:
    rows = [
        {"step": i, "kind": "speed", "seconds": 60.0 * i, "tokens_per_second": 1000.0 + i}
        | {"share_of_peak": 0.25}
        for i in (1, 2, 3)
    ]
    chart = charts(run_sections(rows))["Throughput"]
    assert chart.series[0].points() == [(1, 1001, 0), (2, 1002, 0), (3, 1003, 0)]
    assert "1,002" in chart.note
    assert "25%" in chart.note
    assert "Throughput" not in [section.title for section in run_sections([])]


@pytest.mark.parametrize(
    ("seconds", "unit"), [(20, "seconds"), (1200, "minutes"), (20_000, "hours")]
)
def test_throughput_is_over_a_time_in_a_fitting_unit(seconds: float, unit: str) -> None:
    rows = [
        {"step": step, "kind": "speed", "seconds": seconds * step / 2, "tokens_per_second": 9.0}
        for step in (1, 2)
    ]
    assert charts(run_sections(rows))["Throughput"].x_label.startswith(unit)


def test_scores_of_fine_tuning_are_named_and_share_a_scale() -> None:
    scores = {"exact": 60.0, "total": 11873.0, "HasAns_f1": 70.0, "best_f1": 61.0}
    scores |= {"best_f1_thresh": -3.0, "macro_f1": 0.5, "rmse": 250.0}
    by_title = charts(run_sections([heldout_row(step, **scores) for step in (1, 2)]))
    names = [set(lines(chart)) for title, chart in by_title.items() if "development split" in title]
    assert names == [{"exact match", "F1, with an answer", "macro F1"}, {"root mean squared error"}]


def test_every_table_scrolls_in_a_box_of_its_own() -> None:
    wide = Table("wide", tuple(f"column {number}" for number in range(30)), (("1,234",) * 30,))
    html = render("t", "", [wide, *run_sections(ROWS)])
    assert html.count("<table ") == html.count('<div class="wide" tabindex="0"><table ') == 2
    assert re.search(r"\.wide \{[^}]*overflow-x: auto", html)


def test_every_color_is_defined_light_and_dark() -> None:
    used = set(re.findall(r"var\((--[a-z0-9-]+)\)", STYLE)) - {"--own"}
    assert {f"--line-{number}" for number in range(COLORS)} <= used
    assert all(STYLE.count(f"{name}: #") == 2 for name in used)


def test_only_what_a_run_recorded_is_drawn() -> None:
    rows = [train_row(step, mlm_loss=5.0, layers=6, nsp_accuracy=0.9) for step in (1, 2)]
    titles = ["Loss on masked tokens", "Accuracy on the next sentence"]
    assert set(charts(run_sections(rows))) == {*titles}


def test_the_curves_of_replaced_tokens_and_of_spans() -> None:
    scores = {"rtd_accuracy": 0.9, "rtd_base_rate": 0.88, "rtd_auc": 0.75, "rtd_precision": 0.5}
    scores |= {"rtd_recall": 0.25, "sbo_accuracy": 0.2, "sbo_majority": 0.07}
    first = train_row(1, rtd_accuracy=0.8, rtd_replaced=0.14, sbo_accuracy=0.1)
    by_title = charts(run_sections([first, heldout_row(2, **scores)]))
    accuracy = lines(by_title["Accuracy on replaced tokens"])
    assert [list(accuracy[name].ys) for name in ("training", "held out")] == [[80], [90]]
    assert list(accuracy["always the commoner answer"].ys) == [88, 88]
    spans = lines(by_title["Accuracy on tokens predicted from around their span"])
    assert list(spans["held out"].ys) == [20]
    assert list(spans["always the commoner answer"].ys) == pytest.approx([7, 7])
    chart = by_title["Finding the replaced tokens"]
    assert {name: line.ys[0] for name, line in lines(chart).items()} == pytest.approx(
        {"area under the curve": 75, "precision": 50, "recall": 25, "share replaced": 14}
    )
    for word in ("area under the curve", "50% is guessing", "precision", "recall"):
        assert word in chart.note
    assert not [
        title for title in charts(run_sections(ROWS)) if "replaced" in title or "span" in title
    ]


def test_a_step_written_twice_counts_once_and_missing_numbers_are_gaps() -> None:
    losses = ((2, 1.0), (1, 3.0), (2, 2.0), (3, None), (4, math.nan))
    rows = [train_row(step, mlm_loss=loss) for step, loss in losses]
    loss = lines(charts(run_sections(rows))["Loss on masked tokens"])
    assert (loss["training"].xs, loss["training"].ys) == ((1, 2), (3.0, 2.0))


def test_writing_replaces_the_page_in_one_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.html"
    write(path, "first", "", [])
    monkeypatch.setattr(report, "render", lambda *_: (_ for _ in ()).throw(RuntimeError("killed")))
    with pytest.raises(RuntimeError):
        write(path, "second", "", [])
    assert Reader(path.read_text(encoding="utf-8")).texts["h1"] == ["first"]
    monkeypatch.undo()
    write(path, "third", "", [])
    assert Reader(path.read_text(encoding="utf-8")).texts["h1"] == ["third"]
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
