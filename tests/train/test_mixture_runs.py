"""A run on several sets by weight: its record, its continuation, its processes and its report."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from litebert.base.errors import DataError, RunError
from litebert.data.mixture import open_data
from litebert.train.supply import PretrainingBatches
from toys.groups import Groups
from toys.killed import Killed, kill_at
from toys.prepare import run as prepare
from toys.pretraining import ENCODER, config, pretrain, result
from toys.refusals import names, refused


@pytest.fixture(scope="module")
def other_data(
    tiny_corpus: Path, tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Half of the text of `tiny_data`."""
    folder = tmp_path_factory.mktemp("other")
    (folder / "half.txt").write_text(tiny_corpus.read_text().split("\n\n", 100)[100])
    prepare(folder / "half.txt", folder / "other", tiny_tokenizer, heldout=0.2)
    return folder / "other"


def test_a_mixed_run_records_and_continues(
    tiny_data: Path, other_data: Path, tmp_path: Path, log_messages: list[str]
) -> None:
    sets = {str(tiny_data): 2, str(other_data): 1}
    point = config(train={"save_every": "5 steps"})
    pretrain(point, sets, tmp_path / "whole")
    record = json.loads((tmp_path / "whole" / "run.json").read_text())
    first, second = record["sets"]
    assert (first["data"], first["weight"], second["weight"]) == (str(tiny_data), 2, 1)
    assert first["share"] == pytest.approx(2 / 3)
    epochs = PretrainingBatches(point, open_data(sets)).count_epochs(12)
    assert [first["epochs"], second["epochs"]] == epochs
    assert any(f"{other_data} gives 33.3%" in message for message in log_messages)

    with pytest.raises(Killed):
        pretrain(point, sets, tmp_path / "cut", on_step=kill_at(7))
    again = {str(tiny_data): 1.0, str(other_data): 0.5}  # the same weights
    pretrain(point, again, tmp_path / "cut")
    assert result(tmp_path / "cut") == result(tmp_path / "whole")
    for data, place in (
        ({str(tiny_data): 1, str(other_data): 1}, f"--shards {tiny_data}:2 {other_data}:1"),
        (tiny_data, f"--shards {tiny_data}:2 {other_data}:1"),
    ):
        with refused(RunError, tmp_path / "whole", place):
            pretrain(point, data, tmp_path / "whole")


@pytest.mark.thorough
def test_a_set_that_changed_is_named(
    tiny_data: Path, tiny_corpus: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    import shutil

    def write(heldout: float) -> None:
        shutil.rmtree(tmp_path / "b", ignore_errors=True)
        prepare(tiny_corpus, tmp_path / "b", tiny_tokenizer, heldout=heldout)

    write(0.2)
    sets = {str(tiny_data): 2, str(tmp_path / "b"): 1}
    pretrain(config(), sets, tmp_path / "run")
    write(0.3)
    with refused(RunError, tmp_path / "b", "prepared again"):
        pretrain(config(), sets, tmp_path / "run")
    write(0)
    with refused(DataError, tmp_path / "b", "--heldout"):
        pretrain(config(), sets, tmp_path / "other")


@pytest.mark.thorough
def test_processes_that_make_batches_mix_alike(
    tiny_data: Path, other_data: Path, tmp_path: Path
) -> None:
    sets = {str(tiny_data): 2, str(other_data): 1}
    pretrain(config(), sets, tmp_path / "here")
    pretrain(config(train={"batch_processes": 2}), sets, tmp_path / "there")
    assert result(tmp_path / "there") == result(tmp_path / "here")


@pytest.mark.thorough
def test_a_table_starts_from_a_mixture(tiny_data: Path, other_data: Path, tmp_path: Path) -> None:
    from litebert.config import TableConfig

    point = config(table=TableConfig(start="cooccurrence"))
    sets = {str(tiny_data): 2, str(other_data): 1}
    pretrain(point, sets, tmp_path / "mixed")
    pretrain(point, tiny_data, tmp_path / "alone")
    assert result(tmp_path / "mixed") != result(tmp_path / "alone")


@pytest.mark.thorough
def test_an_extension_counts_its_epochs(tiny_data: Path, other_data: Path, tmp_path: Path) -> None:
    sets = {str(tiny_data): 2, str(other_data): 1}
    pretrain(config(), sets, tmp_path / "run")
    before = json.loads((tmp_path / "run" / "run.json").read_text())["sets"]
    pretrain(config(), sets, tmp_path / "run", add_budget="12 steps")
    after = json.loads((tmp_path / "run" / "run.json").read_text())["sets"]
    assert [entry["epochs"] for entry in after] == [2 * entry["epochs"] for entry in before]


@pytest.mark.thorough
def test_words_of_the_command_line(
    run: Callable[..., tuple[int, str, str]], tiny_data: Path, other_data: Path, tmp_path: Path
) -> None:
    recipe = tmp_path / "small.toml"
    recipe.write_text(f'{ENCODER}\n[train]\nbatch = "4 sequences"\nbudget = "8 steps"\n')
    sets = ("--shards", f"{tiny_data}:3", f"{other_data}:1")
    status, out, err = run("plan", recipe, *sets, "--json")
    assert status == 0, err
    planned = json.loads(out)
    assert [entry["share"] for entry in planned["data"]] == [0.75, 0.25]
    assert "100.0%" in run("plan", recipe, "--shards", tiny_data)[1]
    assert run("plan", recipe, *sets, "--budget", "1h")[0] == 2  # it is no option of plan
    _, out, _ = run("plan", recipe, *sets, "--train.budget", "1h")
    assert "--measure" in out
    status, _, err = run("pretrain", *sets, recipe, "--out", tmp_path / "run")
    assert status == 0, err
    assert f"--shards {tiny_data}" in err
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert [entry["epochs"] for entry in record["sets"]] == [
        entry["epochs"] for entry in planned["data"]
    ]
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Data by weight" in page
    assert "75.0%" in page
    status, out, err = run("compare", tmp_path / "run", "--json")
    assert status == 0, err
    assert f"{tiny_data.name}:3 {other_data.name}:1" in out
    status, _, err = run(
        "pretrain", recipe, "--shards", f"{tiny_data}:-1", other_data, "--out", tmp_path / "b"
    )
    assert status == 2
    names(err.splitlines()[-1], tiny_data, "-1")


@pytest.mark.thorough
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the toy forks")
def test_two_ranks_mix_as_one_does(
    groups: Groups, tiny_data: Path, other_data: Path, tmp_path: Path
) -> None:
    recipe = tmp_path / "small.toml"
    recipe.write_text(
        f'{ENCODER}\n[train]\nbatch = "8 sequences"\nmicro_batch = 4\nprecision = "float32"\n'
        'budget = "8 steps"\nevaluate_sequences = 16\n'
    )
    losses = {}
    for size in (1, 2):
        run = tmp_path / f"run{size}"
        sets = ("--shards", f"{tiny_data}:2", f"{other_data}:1")
        groups.complete(size, "pretrain", recipe, *sets, "--out", run)
        lines = (run / "metrics.jsonl").read_text().splitlines()
        losses[size] = [
            row["mlm_loss"] for line in lines if "mlm_loss" in (row := json.loads(line))
        ]
    assert losses[2] == pytest.approx(losses[1], abs=1e-5)
