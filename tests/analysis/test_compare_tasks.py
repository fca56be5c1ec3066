"""Fine-tuned models side by side, from folders written by hand."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from litebert.analysis.compare_tasks import (
    TaskRow,
    compare_tasks,
    make_differences_table,
    make_task_table,
)
from litebert.base.errors import RunError
from toys.refusals import names, refused


def folder(
    path: Path, task: str, model: str, *scores: float, metric: str = "accuracy", data: str = "d"
) -> Path:
    """A fine-tuning of one seed or several."""
    seeds = [path] if len(scores) == 1 else [path / f"seed-{i}" for i in range(len(scores))]
    for place, score in zip(seeds, scores, strict=True):
        place.mkdir(parents=True)
        about = {"format": 1, "task": task, "model": model, "metric": metric, "files": {}}
        about |= {"model_fingerprint": "m", "data_fingerprint": "d", "dev_fingerprint": data}
        about["config"] = {}
        (place / "finetune.json").write_text(json.dumps(about))
        (place / "scores.json").write_text(json.dumps({"other": 0.125, metric: score}))
    if len(scores) > 1:
        summary = {"scores": [{metric: score} for score in scores]}
        (path / "seeds.json").write_text(json.dumps(summary))
    return path


def test_a_row_for_each_task_and_a_column_for_each_model(tmp_path: Path) -> None:
    paths = [
        folder(tmp_path / "a", "rte", "runs/small", 0.5, 0.52, 0.54),
        folder(tmp_path / "b", "rte", "albert-tiny", 0.5, 0.51, 0.53),
        folder(tmp_path / "c", "rte", "runs/large", 0.70, 0.72, 0.71),
        folder(tmp_path / "d", "squad1", "runs/large", 40.0, 42.0, 41.5, metric="f1"),
    ]
    rows = compare_tasks(paths)
    settings = {"seeds": "3", "model fingerprint": "m", "data fingerprint": "d"}
    first = TaskRow(
        str(paths[0]), "rte", "runs/small", "accuracy", (50.0, 52.0, 54.0), "d", settings=settings
    )
    assert rows[0] == first
    shown = make_task_table(rows)
    assert shown.columns == ("task", "score", "small", "albert-tiny, from scratch", "large")
    assert shown.rows == (
        ("rte", "accuracy", "52.0 (50.0 to 54.0)", "51.0 (50.0 to 53.0)", "71.0 (70.0 to 72.0) *"),
        ("squad1", "f1", "-", "-", "41.5 (40.0 to 42.0)"),
    )
    assert shown.note == (
        "Scores times 100: median of 3 seeds (lowest to highest). "
        "* the highest mean of a row, or level with it: the difference is inside the noise of the "
        "seeds and of the rows (95%)."
    )
    nearly = make_task_table(compare_tasks(paths[:2])).rows[0]
    assert nearly[2:] == ("52.0 (50.0 to 54.0) *", "51.0 (50.0 to 53.0) *")


def test_one_seed_has_no_spread(tmp_path: Path) -> None:
    scores = {"a": 0.5, "b": 0.75}
    paths = [folder(tmp_path / name, "rte", name, score) for name, score in scores.items()]
    shown = make_task_table(compare_tasks(paths))
    assert shown.rows == (("rte", "accuracy", "50.0", "75.0"),)
    assert shown.note == "Scores times 100."


def test_other_questions_are_another_row(tmp_path: Path) -> None:
    paths = [folder(tmp_path / name, "table", name, 0.5, data=name) for name in ("a", "b")]
    assert make_task_table(compare_tasks(paths)).rows == (
        ("table", "accuracy", "50.0", "-"),
        ("table", "accuracy", "-", "50.0"),
    )


def one_answer(run: Path, value: bool) -> None:
    """A checkpoint that knows whether the run gives one answer to everything."""
    place = run / "checkpoints" / "step-00000009"
    place.mkdir(parents=True)
    (place / "state.json").write_text(json.dumps({"diagnostic_state": {"one_answer": value}}))
    digest = hashlib.sha256((place / "state.json").read_bytes()).hexdigest()
    (place / "index.json").write_text(json.dumps({"files": {"state.json": {"sha256": digest}}}))


def test_runs_that_recovered_and_runs_that_stayed_collapsed(tmp_path: Path) -> None:
    paths = [
        folder(tmp_path / name, "rte", name, 0.5, 0.6) for name in ("plain", "recovered", "stayed")
    ]
    for path in paths[1:]:
        (path / "seed-1" / "collapsed").mkdir()
    for path in paths:
        one_answer(path / "seed-1", path.name == "stayed")
    rows = compare_tasks(paths)
    assert [(row.restarted, row.collapsed) for row in rows] == [(0, 0), (1, 0), (1, 1)]
    plain, recovered, stayed = make_task_table(rows).rows[0][2:]
    assert plain == "55.0 (50.0 to 60.0) *"
    assert recovered == "55.0 (50.0 to 60.0) † *"
    assert stayed == "55.0 (50.0 to 60.0) ‡ *"
    assert "†" in make_task_table(rows).note
    assert "‡" in make_task_table(rows).note
    assert "‡" not in make_task_table(rows[:2]).note


def settings(run: Path, files: dict[str, list[str]] | None = None, **config: object) -> Path:
    """Put a config into every finetune.json of a run."""
    for file in run.rglob("finetune.json"):
        about = json.loads(file.read_text())
        about |= {"config": config, "files": files or about["files"]}
        file.write_text(json.dumps(about))
    return run


def test_one_model_with_other_settings(
    tmp_path: Path, run: Callable[..., tuple[int, str, str]]
) -> None:
    paths = [
        settings(folder(tmp_path / name, "rte", "runs/small", score), epochs=3, train=train)
        for name, score, train in (
            ("a", 0.5, {"seed": 0, "rate": 1e-3}),
            ("b", 0.6, {"seed": 0, "rate": 5e-4}),
            ("c", 0.7, {"seed": 1, "rate": 5e-4}),
        )
    ]
    rows = compare_tasks(paths)
    assert make_task_table(rows).columns == ("task", "score", "a", "b", "c")
    assert make_task_table(rows).rows == (("rte", "accuracy", "50.0", "60.0", "70.0"),)
    shown = make_differences_table(rows)
    assert shown.columns == ("setting", "a", "b", "c")
    assert shown.rows == (
        ("train.seed", "0", "0", "1"),
        ("train.rate", "0.001", "0.0005", "0.0005"),
    )
    status, out, _ = run("compare", *paths, "--markdown")
    assert status == 0
    assert "| train.rate | 0.001 | 0.0005 | 0.0005 |" in out
    status, out, _ = run("compare", *paths)
    assert status == 0
    assert "train.rate" in out
    data = json.loads(run("compare", *paths, "--json")[1])
    assert [row["settings"]["config.train.rate"] for row in data] == ["0.001", "0.0005", "0.0005"]
    assert data[0]["differing"] == ["train.seed", "train.rate"]


def test_one_model_on_several_tasks_with_two_settings(tmp_path: Path) -> None:
    paths = [
        settings(folder(tmp_path / f"{task}-{rate}", task, "small", 0.5), rate=rate)
        for task in ("rte", "cola")
        for rate in (1, 2)
    ]
    shown = make_task_table(compare_tasks(paths))
    assert shown.columns == ("task", "score", "small", "small #2")
    assert make_differences_table(compare_tasks(paths)).rows == (("rate", "1", "2"),)


def test_runs_that_differ_in_nothing_stand_side_by_side(tmp_path: Path) -> None:
    paths = [folder(tmp_path / name, "rte", "m", 0.5) for name in ("a", "b")]
    rows = compare_tasks(paths)
    assert make_task_table(rows).columns == ("task", "score", "a", "b")
    assert make_differences_table(rows).rows == ()


def test_tables_have_the_names_of_their_files(tmp_path: Path) -> None:
    films = {"train": ["films.csv"], "dev": ["films-dev.csv"]}
    goods = {"train": ["/home/me/goods.csv"]}
    rows = compare_tasks(
        [
            settings(folder(tmp_path / "a", "table", "m", 0.5, data="1"), films),
            settings(folder(tmp_path / "b", "table", "m", 0.5, data="2"), goods),
            folder(tmp_path / "c", "table", "m", 0.5, data="3"),
            folder(tmp_path / "d", "rte", "m", 0.5, data="4"),
        ]
    )
    names = [row[0] for row in make_task_table(rows).rows]
    assert names == ["table: films-dev.csv", "table: goods.csv", "table", "rte"]
    assert [row[0] for row in make_task_table(rows[:1]).rows] == ["table"]
    assert make_task_table(rows).columns == ("task", "score", "m")


def test_a_run_that_is_not_finished_wins_nothing(
    tmp_path: Path, run: Callable[..., tuple[int, str, str]]
) -> None:
    paths = [
        folder(tmp_path / name, "rte", name, 0.1 * i, 0.11 * i, 0.12 * i)
        for i, name in enumerate("abcd", 2)
    ]
    (paths[3] / "seed-2" / "scores.json").unlink()
    for seed in range(3):
        (paths[2] / f"seed-{seed}" / "scores.json").unlink()
    shown = make_task_table(compare_tasks(paths))
    assert shown.rows[0][2:] == (
        "22.0 (20.0 to 24.0)",
        "33.0 (30.0 to 36.0) *",
        "unfinished",
        "52.5 (50.0 to 55.0) unfinished",
    )
    assert run("compare", *paths)[0] == 0


def test_models_of_one_name_are_told_apart(tmp_path: Path) -> None:
    paths = [folder(tmp_path / str(i), "rte", f"{i}/run", 0.5) for i in range(2)]
    assert make_task_table(compare_tasks(paths)).columns[2:] == ("0/run", "1/run")


def test_what_is_refused(tmp_path: Path, run: Callable[..., tuple[int, str, str]]) -> None:
    good = folder(tmp_path / "good", "rte", "m", 0.5)
    (tmp_path / "empty").mkdir()
    with refused(RunError, tmp_path / "empty"):
        compare_tasks([good, tmp_path / "empty"])
    half = folder(tmp_path / "half", "rte", "m", 0.5, 0.6)
    (half / "seed-1" / "scores.json").unlink()
    assert compare_tasks([half])[0].unfinished == 1
    mixed = folder(tmp_path / "mixed", "rte", "m", 0.5, 0.6)
    folder(tmp_path / "mixed" / "seed-7", "cola", "m", 0.5)
    (mixed / "seeds.json").write_text(json.dumps({"scores": [{}, {}, {}]}))
    with refused(RunError, mixed):
        compare_tasks([mixed])
    changed = folder(tmp_path / "changed", "rte", "m", 0.5)
    (changed / "scores.json").write_text("{}")
    with refused(RunError, changed, "scores.json", "accuracy"):
        compare_tasks([changed])
    status, out, err = run("compare", good, tmp_path / "empty")
    assert (status, out) == (2, "")
    names(err.strip(), tmp_path / "empty")


def test_seeds_count_when_all_are_there_and_as_many_as_were_asked_for_last(tmp_path: Path) -> None:
    run = folder(tmp_path / "a", "rte", "small", 0.5, 0.52, 0.54)
    summary = run / "seeds.json"
    summary.write_text(json.dumps({"scores": [{}, {}]}))
    assert compare_tasks([run])[0].scores == (50.0, 52.0)
    summary.write_text('{"scores": 3}')
    with refused(RunError, summary):
        compare_tasks([run])
    summary.unlink()
    assert compare_tasks([run])[0].unfinished == 1
    assert make_task_table(compare_tasks([run])).rows[0][-1] == "52.0 (50.0 to 54.0) unfinished"


def test_a_mark_is_explained_beside_tasks_of_one_seed(tmp_path: Path) -> None:
    paths = [
        folder(tmp_path / "a", "rte", "small", 0.5, 0.52),
        folder(tmp_path / "b", "rte", "large", 0.8, 0.82),
        folder(tmp_path / "c", "cola", "small", 0.1, metric="matthews"),
    ]
    shown = make_task_table(compare_tasks(paths))
    assert shown.rows[0][-1] == "81.0 (80.0 to 82.0) *"
    assert shown.note.startswith(
        "Scores times 100: median of 1 or 2 seeds (lowest to highest). * the highest mean"
    )
