"""Trackers: each gets the stream of a run, goes on where it stopped, and can never stop the run."""

from __future__ import annotations

import json
import math
import sqlite3
import struct
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module, util
from pathlib import Path
from typing import Any

import pytest

from litebert.base.registry import TRACKERS, load_extensions
from litebert.config import replace
from litebert.train.metrics import MetricsLog, read
from litebert.train.pretrain import pretrain
from litebert.train.trackers import TrackedRun, Tracker, keep_artifacts
from toys.finetuning import recipe_file, write_table
from toys.pretraining import config

ROOT = Path(__file__).resolve().parents[2]
Run = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.filterwarnings("ignore")  # libraries of others warn of their own plans


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder where all trackers write, and no key of any service."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    if util.find_spec("trackio") is not None:  # it reads its folder once, when it is imported
        import trackio

        before = Path(vars(trackio)["TRACKIO_DIR"])
        for module in [part for name, part in sys.modules.items() if name.startswith("trackio")]:
            for name, value in list(vars(module).items()):
                if isinstance(value, Path) and value.is_relative_to(before):
                    moved = tmp_path / "trackio" / value.relative_to(before)
                    monkeypatch.setattr(module, name, moved)
    return tmp_path


def write_and_resume(folder: Path, name: str) -> None:
    """A run that is killed after step 3, with a checkpoint at step 2, and goes on to step 4."""
    folder.mkdir()
    (folder / "finetune.json").write_text(json.dumps({"config": {"epochs": 2.0}}))
    first = MetricsLog(folder, trackers=[name])
    for step in (1, 2, 3):
        first.write("train", step, loss=1 / step, done=True, bad=math.nan)
    first.write("event", 3, message="a warning")
    first.close()
    second = MetricsLog(folder, resume=2, trackers=[name])
    for step in (3, 4):
        second.write("train", step, loss=1 / step)
    second.close()
    (folder / "scores.json").write_text('{"accuracy": 0.5}')
    (folder / "report.html").write_text("<p>")
    (folder / "model").mkdir()
    (folder / "model" / "recipe.json").write_text("{}")
    keep_artifacts(folder, [name], 4)


EXPECTED = {1: 1.0, 2: 0.5, 3: 1 / 3, 4: 0.25}


@pytest.mark.thorough
def test_tensorboard_forgets_what_a_resume_cuts(places: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    write_and_resume(places / "run", "tensorboard")
    events = accumulator.EventAccumulator(str(places / "run" / "tensorboard"))
    events.Reload()
    assert events.Tags()["scalars"] == ["train/loss"]
    losses = {event.step: event.value for event in events.Scalars("train/loss")}
    assert losses == pytest.approx(EXPECTED)
    assert len(events.Scalars("train/loss")) == 4


@pytest.mark.thorough
def test_mlflow_goes_on_in_the_same_record(places: Path) -> None:
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    write_and_resume(places / "run", "mlflow")
    client: Any = MlflowClient((places / "mlruns").as_uri())
    experiment = client.get_experiment_by_name("litebert")
    (record,) = client.search_runs([experiment.experiment_id])
    history = client.get_metric_history(record.info.run_id, "train/loss")
    assert [(point.step, point.value) for point in history] == [
        pytest.approx(pair) for pair in EXPECTED.items()
    ]
    assert record.data.params == {"config.epochs": "2.0"}
    assert record.info.status == "FINISHED"
    kinds = {file.path for file in client.list_artifacts(record.info.run_id)}
    assert kinds == {"config", "curves", "model", "report", "scores"}


@pytest.mark.thorough
def test_trackio_goes_on_in_the_same_record(places: Path) -> None:
    pytest.importorskip("trackio")
    write_and_resume(places / "run", "trackio")
    with sqlite3.connect(places / "trackio" / "litebert.db") as database:
        rows = database.execute("select run_name, step, metrics from metrics").fetchall()
    database.close()
    assert len({name for name, _, _ in rows}) == 1
    logged = {step: json.loads(text)["train/loss"] for _, step, text in rows}
    assert len(rows) == 4
    assert logged == pytest.approx(EXPECTED)
    names = {path.name for path in (places / "trackio" / "artifacts").rglob("*") if path.is_file()}
    assert len(names) >= 4


@pytest.mark.thorough
def test_wandb_writes_offline_records_of_one_run(places: Path) -> None:
    pytest.importorskip("wandb")
    write_and_resume(places / "run", "wandb")
    files = sorted((places / "run" / "wandb").glob("offline-run-*/*.wandb"))
    identity = json.loads((places / "run" / "trackers.json").read_text())["wandb"]["id"]
    assert len(files) == 3  # two processes and the artifacts
    assert {file.stem for file in files} == {f"run-{identity}"}
    losses = {step: row["train/loss"] for file in files for step, row in read_wandb(file)}
    assert losses == pytest.approx(EXPECTED)


def read_wandb(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of an offline record with a loss, by step."""
    internal: Any = import_module("wandb.proto.wandb_internal_pb2")
    for data in read_log(file.read_bytes()):
        record = internal.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            row = {"/".join(item.nested_key) or item.key: item.value_json for item in items}
            if "train/loss" in row:
                yield record.history.step.num, {key: json.loads(text) for key, text in row.items()}


def read_log(data: bytes, block: int = 1 << 15) -> Iterator[bytes]:
    """The records of a log in LevelDB's format, after the seven bytes of W&B's header."""
    place, parts = 7, b""
    while place + 7 <= len(data):
        if block - place % block < 7:  # the rest of a block is too small for a header
            place += block - place % block
            continue
        _, size, kind = struct.unpack_from("<IHB", data, place)
        parts += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


class Failing(Tracker):
    """Fails at the second row, as a service that is gone."""

    package = extra = "json"
    rows = 0

    def __init__(self, run: TrackedRun) -> None:
        run.memory["name"] = "failing"

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        Failing.rows += 1
        if Failing.rows > 1:
            raise ConnectionError("nobody answers")

    def close(self) -> None:
        """Nothing is left to write."""


@pytest.mark.thorough
def test_a_tracker_that_fails_never_stops_training(
    tiny_tokenizer: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TRACKERS._parts, "failing", Failing)
    words = finetune_words(tmp_path, tiny_tokenizer, "--tracker", "failing")
    status, _, err = run(*words)
    assert status == 0, err
    assert err.count("the tracker failing failed") == 1
    assert "ConnectionError: nobody answers" in err
    rows = [row for row in read(tmp_path / "run" / "metrics.jsonl") if row["kind"] == "train"]
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert Failing.rows == 2
    assert (tmp_path / "run" / "scores.json").is_file()


def test_pretraining_names_its_trackers_in_its_recipe_alone(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []

    class Noted(Failing):
        def log(self, step: int, numbers: Mapping[str, float]) -> None:
            steps.append(step)

    monkeypatch.setitem(TRACKERS._parts, "noted", Noted)
    run = pretrain(config(tracker=("noted",)), tiny_data, tmp_path)
    assert set(steps) == set(range(1, 13))
    assert run.config == replace(config(), encoder=run.config.encoder)
    assert '"tracker"' not in (tmp_path / "recipe.json").read_text()


@pytest.mark.parametrize("state", ['{"tensorboard": 5}', "[1]", '"x"', '{"failing": ["a"]}', "{"])
def test_a_damaged_memory_begins_a_new_record(
    state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Quiet(Failing):
        def log(self, step: int, numbers: Mapping[str, float]) -> None:
            """Take everything."""

    monkeypatch.setitem(TRACKERS._parts, "failing", Quiet)
    (tmp_path / "trackers.json").write_text(state)
    log = MetricsLog(tmp_path, resume=0, trackers=["failing"])
    log.write("train", 1, loss=1.0)
    log.close()
    assert json.loads((tmp_path / "trackers.json").read_text())["failing"] == {"name": "failing"}


@pytest.mark.parametrize("fault", ["leaves", "remembers", "folder"])
def test_nothing_that_a_tracker_does_stops_a_run(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd(Tracker):
        package = extra = "json"

        def __init__(self, run: TrackedRun) -> None:
            if fault == "remembers":
                run.memory["client"] = object()

        def log(self, step: int, numbers: Mapping[str, float]) -> None:
            if fault == "leaves":
                raise SystemExit(3)

        def close(self) -> None:
            """Nothing is left to write."""

    monkeypatch.setitem(TRACKERS._parts, "odd", Odd)
    if fault == "folder":
        (tmp_path / "trackers.json").mkdir()
    log = MetricsLog(tmp_path, trackers=["odd"])
    for step in (1, 2):
        log.write("train", step, loss=1.0)
    log.close()
    assert len(read(tmp_path / "metrics.jsonl")) == 2
    (warning,) = (record.getMessage() for record in caplog.records)
    assert ("trackers.json" if fault == "folder" else "the tracker odd failed") in warning


@pytest.mark.thorough
@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "sqlite:////proc/no/x.db"])
def test_mlflow_that_is_down_holds_a_run_up_for_seconds(
    address: str, places: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    began = time.monotonic()
    log = MetricsLog(places, trackers=["mlflow"])
    log.write("train", 1, loss=1.0)
    log.close()
    assert time.monotonic() - began < 40
    assert "the tracker mlflow failed" in caplog.text


@pytest.mark.thorough
def test_a_tracker_of_a_file_of_its_own(
    tiny_tokenizer: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example of docs/finetuning.md, as it stands there."""
    page = (ROOT / "docs" / "finetuning.md").read_text(encoding="utf-8")
    code = page[
        page.index("    from litebert.base.registry") : page.index(
            "\nRun it with `LITEBERT_EXTENSIONS"
        )
    ]
    (tmp_path / "printed.py").write_text(textwrap.dedent(code), encoding="utf-8")
    monkeypatch.setenv("LITEBERT_EXTENSIONS", str(tmp_path / "printed.py"))
    load_extensions()
    try:
        status, out, err = run(*finetune_words(tmp_path, tiny_tokenizer, "--tracker", "printed"))
    finally:
        del TRACKERS._parts["printed"]
    assert status == 0, err
    assert "train/loss" in err
    assert "train/loss" not in out


def finetune_words(folder: Path, tokenizer: Path, *more: object) -> list[str]:
    train, dev = write_table(folder / "train.csv", 60), write_table(folder / "dev.csv", 20, 1)
    words = ["finetune", recipe_file(folder), "--task", "table", "--data", train, "--dev", dev]
    words += ["--tokenizer", tokenizer, "--out", folder / "run", "--no-baseline", "--steps", 4]
    words += ["--length", 32, "--train.batch", "16 sequences", "--train.precision", "float32"]
    words += ["--train.optimizer.learning-rate", 1e-3, "--no-restart"]
    return [str(word) for word in (*words, *more)]


@pytest.mark.thorough
def test_all_trackers_of_one_run(tiny_tokenizer: Path, places: Path, run: Run) -> None:
    """They get the rows of metrics.jsonl, and the same command again adds none."""
    for name in ("mlflow", "tensorboard", "trackio", "wandb"):
        pytest.importorskip(name)
    names = ("tensorboard", "wandb", "mlflow", "trackio")
    words = finetune_words(places, tiny_tokenizer, "--tracker", *names, "--json")
    for _ in range(2):
        status, out, err = run(*words)
        assert status == 0, err
        assert "failed" not in err
        assert json.loads(out)["metric"] == "accuracy"
    rows = read(places / "run" / "metrics.jsonl")
    losses = {row["step"]: row["loss"] for row in rows if row["kind"] == "train"}
    with sqlite3.connect(places / "trackio" / "litebert.db") as database:
        texts = database.execute("select step, metrics from metrics").fetchall()
    database.close()
    logged = [(step, json.loads(text)) for step, text in texts]
    assert {step: row["train/loss"] for step, row in logged if "train/loss" in row} == losses
    assert len([row for _, row in logged if "train/loss" in row]) == len(losses)
    assert any("heldout/accuracy" in row for _, row in logged)
    assert len(list((places / "mlruns").rglob("model.safetensors"))) == 1
    assert list((places / "run" / "wandb").rglob("*.wandb"))
    assert list((places / "run" / "tensorboard").iterdir())


def test_what_a_tracker_needs_is_said_before_anything_is_read(
    tiny_tokenizer: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, out, err = run(*finetune_words(tmp_path, tiny_tokenizer, "--tracker", "wanb"))
    assert (status, out) == (2, "")
    assert "there is no tracker 'wanb'; did you mean 'wandb'?" in err
    write_table(tmp_path / "train.csv", 10)
    words = ("--data", str(tmp_path / "train.csv"), "--out", str(tmp_path / "small"))
    status, out, err = run("distill", "model", *words, "--tracker", "wanb")
    assert (status, out) == (2, "")
    assert "there is no tracker 'wanb'" in err
    monkeypatch.setattr("litebert.train.trackers.find_spec", lambda name: None)
    status, out, err = run(*finetune_words(tmp_path, tiny_tokenizer, "--tracker", "mlflow"))
    assert (status, out) == (2, "")
    assert "mlflow is not installed; run: pip install 'litebert[mlflow]'" in err
    assert not (tmp_path / "run").exists()
