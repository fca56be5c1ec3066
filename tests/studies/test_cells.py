"""The processes of a study: what is left of them, which GPU they see, and what counts as their
score.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from litebert.base.errors import RunError
from litebert.base.json_reader import read_json
from litebert.base.storage import lock_folder, write_json
from litebert.data.batches import Batches
from litebert.data.shards import Shards
from litebert.studies import cells
from litebert.studies.cells import Cell, Command, make_cells, read_scores, run_cells
from litebert.studies.findings import Findings, find_decided
from litebert.studies.grid import make_environment
from litebert.studies.papers import make_study
from litebert.studies.plan import PLAN, Plan, StudySettings, make_plan
from litebert.studies.study import Study, make_base_config, vary
from toys.refusals import names, refused


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    data = tmp_path / "data"
    return Plan("own", tmp_path, data, "toy", "4 steps", 1, 2, 1, {"a": 4}, "cpu", {}, 400, "text")


@pytest.fixture
def started_processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes that a study starts, which would sleep for a minute."""
    processes: list[subprocess.Popen[bytes]] = []
    start = cells._start_next

    def start_recorded(*arguments: object) -> object:
        job = start(*arguments)  # type: ignore[arg-type]
        processes.append(job.process)
        return job

    monkeypatch.setattr(cells, "_start_next", start_recorded)
    monkeypatch.setattr(cells, "PROGRAM", (sys.executable, "-c", "import time; time.sleep(60)"))
    yield processes
    for process in processes:
        process.kill()


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_no_process_is_left_behind(
    plan: Plan,
    started_processes: list[subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
    error: type[BaseException],
) -> None:
    def fail(_: float) -> None:
        raise error

    monkeypatch.setattr(cells, "time", SimpleNamespace(sleep=fail, monotonic=time.monotonic))
    folder = plan.folder / "scores" / "a-seed0"
    folder.mkdir(parents=True)
    (folder / "pretrain.1.part").touch()
    command = Command(("pretrain",), folder / "pretrain.json")
    grid = [Cell("a", seed, plan.run_folder("a", seed), 4, (command,)) for seed in (0, 1)]
    with pytest.raises(error):
        run_cells(grid, plan)
    assert [process.poll() is None for process in started_processes] == [False, False]
    assert not (folder / "pretrain.1.part").exists(), "it was left by a killed study"


def test_a_cell_waits_for_whoever_still_works_in_its_folders(tmp_path: Path) -> None:
    task = tmp_path / "tasks" / "a-seed0-sst2"
    commands = (
        Command(("pretrain", "--out", str(tmp_path / "run")), tmp_path / "pretrain.json"),
        Command(("finetune", "--out", str(task)), tmp_path / "sst2.json"),
    )
    cell = Cell("a", 0, tmp_path / "run", 4, commands)
    assert cells._may_start(cell, {})
    with lock_folder(task, RunError):
        assert not cells._may_start(cell, {})
    assert cells._may_start(cell, {})


def test_scores_are_fractions(tmp_path: Path) -> None:
    write_json(tmp_path / "heldout.json", {"scores": {"mlm_loss": 3.5, "sequences": 4}})
    write_json(tmp_path / "sst2.json", {"metric": "accuracy", "scores": [{"accuracy": 0.75}]})
    write_json(tmp_path / "squad.json", {"metric": "f1", "scores": [{"f1": 81.3}]})
    names = ("pretrain", "heldout", "sst2", "squad")
    commands = tuple(Command((), tmp_path / f"{name}.json") for name in names)
    scores = read_scores(Cell("a", 0, tmp_path, 4, commands))
    assert scores == pytest.approx({"mlm_loss": 3.5, "sst2": 0.75, "squad": 0.813})


@pytest.mark.parametrize(
    ("named", "visible", "seen"),
    [
        (None, 2, ["0", "1", "0"]),
        (None, 1, ["0", "0", "0"]),
        ("2,5", 2, ["2", "5", "2"]),
        ("", 0, ["", "", ""]),
    ],
)
def test_places_share_the_visible_gpus(
    monkeypatch: pytest.MonkeyPatch, named: str | None, visible: int, seen: list[str]
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: visible)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if named is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert [make_environment(place, 0)["CUDA_VISIBLE_DEVICES"] for place in range(3)] == seen
    assert make_environment(0, 3)["OMP_NUM_THREADS"] == "3"


def test_a_plan_continues_with_the_same_folders_only(tiny_data: Path, tmp_path: Path) -> None:
    base = make_base_config("toy")
    schedule = {"length_schedule": [(0.5, 16)]}
    variants = {"a": base, "grows": vary(base, train=schedule)}
    study = Study("Does it?", variants, baseline="a", equal="tokens")

    def plan(**extras: object) -> Plan:
        few: Any = {"budget": "30 steps", "seeds": 1, "jobs": 1, "device": "cpu", **extras}
        settings = StudySettings(scale="toy", **few)
        return make_plan(study, "own", tmp_path / "out", tiny_data, settings)

    with lock_folder(tmp_path / "out", RunError):
        first = plan(blimp=tmp_path / "pairs")
        # A step of the second reads three quarters of the tokens.
        assert first.steps == {"a": 30, "grows": 40}
        first.recipe_file("a").unlink()  # as a kill leaves it
        assert plan(tasks={"sst2": tmp_path / "sst2"}) == first
        assert first.recipe_file("a").is_file()
    scored_on = read_json(tmp_path / "out" / PLAN, RunError)["scored_on"]
    assert set(scored_on) == {"--blimp", "--tasks sst2"}
    for extras in ({"blimp": tmp_path / "others"}, {"tasks": {"sst2": tmp_path / "others"}}):
        with refused(RunError, tmp_path / "out", tmp_path / "others"):
            plan(**extras)


FAKE = """
import json, sys
verb, run = sys.argv[1], sys.argv[2].replace("\\\\", "/").split("/")[-1]
if verb == "pretrain":
    print(json.dumps({}))
else:
    variant, seed = run.split("-seed")
    noise = [0.01, -0.01, 0.02, 0.0, -0.02][int(seed)]
    value = {"a": 0.0, "b": 1.0 + noise / 100, "c": noise}[variant]
    print(json.dumps({"scores": {"mlm_loss": int(seed) + value}}))
"""


def run_fake_study(
    folder: Path, monkeypatch: pytest.MonkeyPatch, interrupted_after: int | None
) -> tuple[set[str], str]:
    """Run a study of a baseline, a variant far from it and one like it, stopped again and again.

    Returns:
        The runs that have scores, and the verdicts.
    """
    program = folder / "fake.py"
    program.parent.mkdir(parents=True)
    program.write_text(FAKE, encoding="utf-8")
    monkeypatch.setattr(cells, "PROGRAM", (sys.executable, "-I", str(program)))
    base = make_base_config("toy")
    variants = {name: vary(base, encoder={"layers": i + 1}) for i, name in enumerate("abc")}
    study, steps = Study("Is it?", variants, baseline="a"), dict.fromkeys("abc", 4)
    plan = Plan(
        "own", folder, folder, "toy", "4 steps", 5, 2, 1, steps, "cpu", {}, 400, "", baseline="a"
    )
    while True:
        grid, polls = make_cells(study, plan, StudySettings()), 0

        def sleep(_: float) -> None:
            nonlocal polls
            polls += 1
            if interrupted_after is not None and polls > interrupted_after:
                raise KeyboardInterrupt
            time.sleep(0.02)

        fake_time = SimpleNamespace(sleep=sleep, monotonic=time.monotonic)
        monkeypatch.setattr(cells, "time", fake_time)
        try:
            run_cells(grid, plan, lambda cells: find_decided(study, plan, (), cells))
            break
        except KeyboardInterrupt:
            continue
    ended = {cell.run.name for cell in grid if cell.done}
    assert ended == {path.name for path in (folder / "scores").iterdir()}
    return ended, " ".join(Findings(study, plan, grid).verdicts())


@pytest.mark.thorough
def test_a_variant_ends_when_its_verdict_stands_however_often_the_study_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, verdicts = run_fake_study(tmp_path / "whole", monkeypatch, None)
    first = {f"{variant}-seed{seed}" for variant in "abc" for seed in range(3)}
    assert ended == first | {f"{variant}-seed{seed}" for variant in "ac" for seed in (3, 4)}
    names(verdicts, "'b' is 1.000 nats worse than 'a'", "beyond the noise", "inside the noise")
    for number, polls in enumerate((9, 15, 23)):
        folder = tmp_path / str(number)
        assert run_fake_study(folder, monkeypatch, polls) == (ended, verdicts)


def test_two_variants_of_one_seed_read_the_same_text_in_the_same_order(tiny_data: Path) -> None:
    """So they are pairs: bit for bit the same batches, and other batches with another seed."""
    study = make_study("sharing", "toy")
    shards = Shards.open(tiny_data)

    def read(variant: str, seed: int) -> list[bytes]:
        config = study.variants[variant]
        laws = (config.sequences, config.masking, None, config.batch_sequences)
        batches = Batches(shards.train, shards.tokenizer, *laws, seed)
        fields = ("input_ids", "token_type_ids", "masked_positions", "masked_labels")
        return [
            getattr(batches(step), name).numpy().tobytes() for step in range(3) for name in fields
        ]

    first = read("all", 1)
    assert all(read(variant, 1) == first for variant in study.variants)
    assert read("all", 2) != first


def test_the_recipes_of_a_study_differ_in_nothing_that_makes_batches() -> None:
    for name in ("sharing", "embedding", "dropout", "depth"):
        study = make_study(name, "claim")
        inputs = {
            (config.sequences, config.masking, config.batch_sequences, config.train.seed)
            for config in study.variants.values()
        }
        assert len(inputs) == 1, name
