"""Curves of runs side by side: what lies under them, and the page that `litebert compare` draws."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from litebert.analysis.curves import AXES, average_points, make_charts, read_points
from litebert.base.storage import write_json
from litebert.config import cost, replace
from litebert.config.serialization import to_dict
from litebert.train.pretrain import pretrain
from toys.pretraining import config
from toys.refusals import names


@pytest.fixture(scope="module")
def runs(tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs of two seeds, which grow from one layer to two and are scored after every sixth
    step.
    """
    folder, folders = tmp_path_factory.mktemp("curves"), []
    for seed in (0, 1):
        recipe = config(
            train={"depth_schedule": ((0.5, 1),), "evaluate_every": "6 steps", "seed": seed}
        )
        pretrain(recipe, tiny_data, folder / f"seed-{seed}")
        folders.append(folder / f"seed-{seed}")
    return folders


def test_operations_are_counted_at_the_depth_of_each_step(runs: list[Path]) -> None:
    point = config(encoder={"vocab_size": 400})
    single, two = (
        3 * cost.forward_flops(replace(point, encoder=replace(point.encoder, layers=n)))
        for n in (1, 2)
    )
    middle, end = read_points(runs[0])
    assert (middle.step, end.step) == (6, 12)
    assert middle.flops == pytest.approx(single * middle.tokens)
    assert end.flops == pytest.approx(middle.flops + two * (end.tokens - middle.tokens))
    assert middle.seconds is not None
    assert end.seconds is not None
    assert 0 < middle.seconds < end.seconds


def test_operations_are_counted_at_the_length_of_each_step(tmp_path: Path) -> None:
    recipe = config(encoder={"vocab_size": 400}, train={"length_schedule": ((0.5, 16),)})
    write_json(tmp_path / "recipe.json", to_dict(recipe))
    write_json(tmp_path / "run.json", {"steps": 12})
    rows = [(6, {"tokens": 100}), (12, {"tokens": 300})]
    with (tmp_path / "metrics.jsonl").open("w") as file:
        for step, row in rows:
            file.write(json.dumps({"step": step, "kind": "train", **row}) + "\n")
            file.write(json.dumps({"step": step, "kind": "heldout", "mlm_loss": 3.0}) + "\n")
    middle, end = read_points(tmp_path)
    assert middle.flops == pytest.approx(300 * cost.forward_flops(recipe, 16))
    assert end.flops == pytest.approx(middle.flops + 600 * cost.forward_flops(recipe))


def test_the_mean_course_is_that_of_all_seeds(runs: list[Path]) -> None:
    first, second = map(read_points, runs)
    for point, other, both in zip(first, second, average_points([first, second]), strict=True):
        assert both.scores["mlm_loss"] == pytest.approx(
            (point.scores["mlm_loss"] + other.scores["mlm_loss"]) / 2
        )
    assert average_points([]) == []


def test_each_score_has_one_chart_with_every_axis(runs: list[Path]) -> None:
    drawn = make_charts({path.name: read_points(path) for path in runs})
    assert len({score.title for score in drawn}) == len(drawn) >= 2
    for score in drawn:
        assert [chart.x_label for chart in score.charts] == list(AXES)
        assert all(
            {line.name for line in chart.series} == {"seed-0", "seed-1"} for chart in score.charts
        )


def test_accuracies_carry_their_errors(runs: list[Path]) -> None:
    points = read_points(runs[0])
    drawn = {score.title: score.charts[0].series[0] for score in make_charts({"run": points})}
    line = drawn["Accuracy on sentence order"]
    assert line.errors == pytest.approx(
        [100 * point.scores["sop_standard_error"] for point in points]
    )
    assert len(drawn["Accuracy on masked tokens"].errors) == len(points)
    assert not drawn["Loss on masked tokens"].errors


def test_an_axis_that_no_run_knows_is_left_out(runs: list[Path]) -> None:
    timeless = [replace(point, seconds=None) for point in read_points(runs[0])]
    (loss, *_) = make_charts({"run": timeless})
    assert [chart.x_label for chart in loss.charts] == list(AXES)[:3]


def test_compare_writes_a_page(
    runs: list[Path], tmp_path: Path, run: Callable[..., tuple[int, str, str]]
) -> None:
    status, _, err = run("compare", *runs, "--page", tmp_path / "page.html")
    assert status == 0, err
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    titles = re.findall("<h2>(.*?)</h2>", page)
    assert len(titles) == len(set(titles))
    assert page.count('type="radio"') == len(AXES), "one switch for all charts"
    status, _, err = run("compare", *runs, "--page", tmp_path)
    assert status == 2
    names(err, tmp_path)
