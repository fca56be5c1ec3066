"""The search for hyper-parameters, as a person types it: its trials, a kill, and the winner."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import litebert
from litebert.config import FinetuneConfig
from litebert.errors import ConfigError
from litebert.tasks.registry import open_task
from toys.finetuning import recipe_file, write_table
from toys.refusals import refused

Run = Callable[..., tuple[int, str, str]]
pytest.importorskip("optuna")
pytestmark = pytest.mark.filterwarnings("ignore")  # Optuna warns of its own experiments


def words_for(folder: Path, tokenizer: Path, *more: object) -> list[str]:
    train, dev = write_table(folder / "train.csv", 120), write_table(folder / "dev.csv", 30, 1)
    words = ["finetune", recipe_file(folder), "--task", "table", "--data", train, "--dev", dev]
    words += ["--tokenizer", tokenizer, "--out", folder / "run", "--no-baseline", "--length", 32]
    words += ["--train.precision", "float32", "--no-restart"]
    return [str(word) for word in (*words, *more)]


def read_search(folder: Path) -> Any:
    return json.loads((folder / "run" / "search.json").read_text(encoding="utf-8"))


@pytest.mark.thorough
def test_the_best_trial_is_refitted(tiny_tokenizer: Path, tmp_path: Path, run: Run) -> None:
    words = words_for(tmp_path, tiny_tokenizer, "--epochs", 2, "--search", "6 trials")
    status, _, err = run(*words)
    assert status == 0, err
    record = read_search(tmp_path)
    assert sum(record["folds"]) == 120  # training rows alone
    assert len(record["trials"]) == 6
    finished = [trial for trial in record["trials"] if trial["state"] == "finished"]
    best = max(finished, key=lambda trial: trial["score"])
    assert best["score"] == record["best"]["score"]
    assert best["score"] >= record["trials"][0]["score"]
    values = record["best"]["values"]
    assert values.keys() == {"rate", "batch", "layer_decay"}  # epochs and length were given
    config = json.loads((tmp_path / "run" / "finetune.json").read_text())["config"]
    assert config["train"]["optimizer"]["learning_rate"] == values["rate"]
    assert config["train"]["batch"] == f"{values['batch']} sequences"
    assert (config["layer_decay"], config["epochs"]) == (values["layer_decay"], 2.0)
    assert config["choose"] == []
    assert "search of" in err
    assert "on folds of the training part" in err
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Search" in page
    assert "fell behind the median" in page

    status, _, err = run(*words)  # the result is there, and the run too
    assert status == 0, err
    assert read_search(tmp_path) == record


@pytest.mark.thorough
def test_a_search_that_was_killed_goes_on(tiny_tokenizer: Path, tmp_path: Path) -> None:
    """The lost trial begins again, and the trials before it stay."""
    words = words_for(tmp_path, tiny_tokenizer, "--epochs", 2, "--search", "5 trials")
    command = [sys.executable, "-m", "litebert", *words]
    journal = tmp_path / "run" / "search.journal"
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 120
        while count_starts(journal) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
    begun = count_starts(journal)
    assert begun >= 3
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    trials = read_search(tmp_path)["trials"]
    assert len([trial for trial in trials if trial["state"] != "failed"]) == 5
    lost = [trial for trial in trials if trial["state"] == "failed"]
    assert len(lost) <= 1
    for trial in lost:
        again = [other for other in trials if other["number"] > trial["number"]]
        values = trial["values"].items()  # some of them, where the kill came early
        assert any(values <= other["values"].items() for other in again)


def count_starts(journal: Path) -> int:
    """Count the trials that began, of which Optuna writes an operation of number 4 each."""
    if not journal.is_file():
        return 0
    return journal.read_text(encoding="utf-8").count('"op_code":4')


@pytest.mark.thorough
def test_a_search_in_python_and_what_it_leaves(tiny_tokenizer: Path, tmp_path: Path) -> None:
    files = open_task("table", write_table(tmp_path / "train.csv", 120))
    config = FinetuneConfig(epochs=1, length=32)
    model, out = recipe_file(tmp_path), tmp_path / "run"

    def fit(**options: Any) -> Any:
        words = {"tokenizer": tiny_tokenizer, "baseline": False, "device": "cpu", **options}
        return litebert.finetune(model, files, out, config, **words)

    done = fit(search="3 trials", fixed=("epochs", "length"))
    assert done.outcome.finished
    record = read_search(tmp_path)
    assert len(record["trials"]) == 3
    values = record["best"]["values"]
    assert values.keys() == {"rate", "batch", "layer_decay"}
    saved = json.loads((out / "finetune.json").read_text())["config"]
    assert saved["train"]["optimizer"]["learning_rate"] == values["rate"]
    written = (out / "search.json").read_bytes()
    assert fit(search="3 trials", fixed=("epochs", "length")).scores == done.scores
    assert (out / "search.json").read_bytes() == written
    with refused(ConfigError, "epoch", "epochs"):
        fit(search="3 trials", fixed=("epoch",))


@pytest.mark.parametrize(
    ("more", "parts"),
    [
        (("--search", "20"), ("search is '20'", "20m or 30 trials")),
        (("--search", "5s", "--teacher", "baseline"), ("without a teacher", "--search")),
        (("--search", "5s", "--target", "number"), ("'label' is 'yes', not a number",)),
    ],
)
def test_what_cannot_be_searched(
    more: tuple[str, ...], parts: tuple[str, ...], tiny_tokenizer: Path, tmp_path: Path, run: Run
) -> None:
    status, out, err = run(*words_for(tmp_path, tiny_tokenizer, *more))
    assert (status, out) == (2, "")
    assert all(part in err for part in parts), err
    assert not (tmp_path / "run" / "finetune.json").exists()


def test_optuna_is_an_extra(
    tiny_tokenizer: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("litebert.finetuning.search.find_spec", lambda name: None)
    status, out, err = run(*words_for(tmp_path, tiny_tokenizer, "--search", "5s"))
    assert (status, out) == (2, "")
    assert "optuna is not installed; run: pip install 'litebert[search]'" in err
