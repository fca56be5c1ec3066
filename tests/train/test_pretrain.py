"""Run folders: what they hold, whose they are, budgets, and what it is told."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from litebert.analysis.curves import read_points
from litebert.base.errors import ConfigError, DataError, RunError
from litebert.base.storage import lock_folder
from litebert.config import Config, MaskingConfig, OptimizerConfig, ScheduleConfig, replace
from litebert.config.serialization import from_dict
from litebert.data.batches import Batch
from litebert.data.shards import Shards
from litebert.tokenizer import Tokenizer
from litebert.train import metrics
from litebert.train.device import choose
from litebert.train.loop import Loop
from litebert.train.measure import Rate, count_steps
from litebert.train.pretrain import build_pretrainer
from toys.killed import Killed, kill
from toys.prepare import run as prepare
from toys.pretraining import config, leave_at, pretrain, result
from toys.refusals import names, refused

# --------------------------------------------------------------------------------------- the folder


def test_a_run_folder_holds_what_a_person_reads(
    tiny_data: Path, tmp_path: Path, log_messages: list[str]
) -> None:
    point = config(encoder={"vocab_size": 30000})
    run = pretrain(point, tiny_data, tmp_path / "deep" / "run")
    assert run.folder == tmp_path / "deep" / "run"
    assert {path.name for path in run.folder.iterdir()} == {
        "recipe.json",
        "run.json",
        "tokenizer",
        "metrics.jsonl",
        "speed.jsonl",
        "checkpoints",
        ".lock",
    }
    recipe = from_dict(Config, json.loads((run.folder / "recipe.json").read_text()))
    assert recipe == run.config == replace(point, encoder=replace(point.encoder, vocab_size=400))
    names(log_messages[0], "encoder.vocab_size", 400, 30000)
    shards = Shards.open(tiny_data)
    assert Tokenizer.load(run.folder / "tokenizer").fingerprint == shards.tokenizer.fingerprint
    facts = json.loads((run.folder / "run.json").read_text())
    assert facts["steps"] == run.steps == 12
    assert facts["data_fingerprint"] == shards.fingerprint
    assert run.outcome.tokens == metrics.read(run.folder / "metrics.jsonl")[-2]["tokens"]


@pytest.mark.parametrize(("size", "warned"), [(16, False), (24, True)])
def test_tables_wider_than_the_states_are_remarked(
    size: int, warned: bool, tiny_data: Path, tmp_path: Path, log_messages: list[str]
) -> None:
    pretrain(
        config(encoder={"embedding_size": size}, train={"budget": "1 steps"}), tiny_data, tmp_path
    )
    remarks = [message for message in log_messages if "encoder.hidden_size" in message]
    assert len(remarks) == warned
    if warned:
        names(
            remarks[0],
            "encoder.embedding_size",
            size,
            "encoder.hidden_size",
            16,
            "--encoder.embedding-size 16",
        )


def test_a_run_in_another_thread_trains_too(tiny_data: Path, tmp_path: Path) -> None:
    """Signals belong to the main thread; elsewhere, as in a notebook's worker, a run goes on
    without them.
    """
    pretrain(config(), tiny_data, tmp_path / "main")
    worker = threading.Thread(target=pretrain, args=(config(), tiny_data, tmp_path / "thread"))
    worker.start()
    worker.join()
    assert result(tmp_path / "thread") == result(tmp_path / "main")


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (config(encoder={"layers": 3}), ("encoder.layers", 2, 3)),
        (config(train={"seed": 1}), ("train.seed", 0, 1)),
        (config(train={"budget": "13 steps"}), ("train.budget", "12 steps", "13 steps")),
        (
            config(train={"optimizer": OptimizerConfig(name="lamb")}),
            ("train.optimizer.name", "adamw", "lamb"),
        ),
        (config(objectives=("mlm",)), ("objectives", "mlm", "sop")),
    ],
)
def test_another_config_is_refused_by_its_field(
    other: Config, named: tuple[object, ...], tiny_data: Path, tmp_path: Path
) -> None:
    pretrain(config(), tiny_data, tmp_path)
    before = result(tmp_path)
    with refused(RunError, tmp_path, *named, "--out"):
        pretrain(other, tiny_data, tmp_path)
    assert result(tmp_path) == before


def test_other_data_is_refused_and_data_that_was_prepared_again_is_told_from_it(
    tiny_corpus: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    data, other, folder = (tmp_path / name for name in ("data", "other", "run"))
    prepare(tiny_corpus, data, tiny_tokenizer)
    prepare(tiny_corpus, other, tiny_tokenizer, heldout=0.2)
    pretrain(config(), data, folder)
    with refused(RunError, folder, other, f"--shards {data}"):
        pretrain(config(), other, folder)
    shutil.rmtree(data)
    other.rename(data)
    with refused(RunError, folder, data, "restore it"):
        pretrain(config(), data, folder)


@pytest.mark.parametrize("verb", ["pretrain", "evaluate"])
def test_what_is_no_data_is_called_what_it_is(
    verb: str, tiny_data: Path, tiny_corpus: Path, tmp_path: Path, run: Any
) -> None:
    trained = pretrain(config(), tiny_data, tmp_path / "run").folder
    words = (
        ("pretrain", "albert-tiny", "--out", tmp_path / "new")
        if verb == "pretrain"
        else ("evaluate", trained)
    )
    for source in (tiny_corpus, trained):
        status, _, err = run(*words, "--shards", source)
        assert status == 2
        names(err.splitlines()[-1], source, "litebert prepare")
        assert "does not exist" not in err


def test_a_folder_in_use_is_refused(tiny_data: Path, tmp_path: Path) -> None:
    with lock_folder(tmp_path, RunError), refused(RunError, tmp_path, os.getpid()):
        pretrain(config(), tiny_data, tmp_path)


@pytest.mark.parametrize("place", ["a-file", "a-file/run"])
def test_a_file_in_the_way_is_refused(place: str, tiny_data: Path, tmp_path: Path) -> None:
    (tmp_path / "a-file").write_text("kept")
    with refused(RunError, tmp_path / "a-file"):
        pretrain(config(), tiny_data, tmp_path / place)
    assert (tmp_path / "a-file").read_text() == "kept"


def test_data_that_is_not_there_or_holds_nothing_out_is_refused_before_a_folder_is_made(
    tiny_corpus: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    prepare(tiny_corpus, tmp_path / "all", tiny_tokenizer, heldout=0.0)
    for name, *places in (("no-data",), ("all", "--heldout")):
        with refused(DataError, tmp_path / name, *places):
            pretrain(config(), tmp_path / name, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.thorough
@pytest.mark.parametrize("file", ["run.json", "recipe.json", "metrics.jsonl"])
@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "\x00\xff"])
def test_a_damaged_file_of_the_folder_is_named(
    file: str, content: str, tiny_data: Path, tmp_path: Path
) -> None:
    pretrain(config(), tiny_data, tmp_path)
    (tmp_path / file).write_bytes(
        (content + "\nx\n" if file == "metrics.jsonl" else content).encode("latin-1")
    )
    with refused(RunError, tmp_path / file):
        pretrain(config(), tiny_data, tmp_path)


@pytest.mark.parametrize(
    "changed",
    [
        {"steps": 1e400},
        {"corrections": [{"step": 5}]},
        {"corrections": [{"step": 50, "from": 40, "to": 60}]},
        {"extensions": {"from_step": 1}},
        {"extensions": 7},
        {"extensions": [7]},
        {"extensions": [{"budget": "9 steps"}]},
        {"extensions": [{"budget": "9 steps", "from_step": 500}]},
    ],
)
def test_a_changed_plan_is_refused_wherever_it_is_read(
    changed: dict[str, Any], tiny_data: Path, tmp_path: Path
) -> None:
    pretrain(config(), tiny_data, tmp_path)
    file = tmp_path / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changed))
    for read in (lambda: pretrain(config(), tiny_data, tmp_path), lambda: read_points(tmp_path)):
        with refused(RunError, file, "was changed"):
            read()


@pytest.mark.parametrize("span", [[], [0.0], ["soon", 5.0], {}])
def test_a_changed_time_is_refused(span: Any, tiny_data: Path, tmp_path: Path) -> None:
    pretrain(config(), tiny_data, tmp_path)
    file = tmp_path / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"time_budget": span}))
    with refused(RunError, file, "was changed"):
        pretrain(config(), tiny_data, tmp_path)


def test_checkpoints_without_a_run_are_not_overwritten(tiny_data: Path, tmp_path: Path) -> None:
    pretrain(config(), tiny_data, tmp_path)
    (tmp_path / "run.json").unlink()
    with refused(RunError, tmp_path, "run.json", "checkpoints"):
        pretrain(config(), tiny_data, tmp_path)


def test_a_start_cut_short_starts_again(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the recipe was written and before the run was."""

    with monkeypatch.context() as patch:
        patch.setattr("litebert.train.start.buy_steps", kill)
        with pytest.raises(Killed):
            pretrain(config(), tiny_data, tmp_path / "cut")
    pretrain(config(), tiny_data, tmp_path / "cut")
    pretrain(config(), tiny_data, tmp_path / "whole")
    assert result(tmp_path / "cut") == result(tmp_path / "whole")


def test_the_untrained_model_is_a_function_of_the_seed() -> None:
    machine = choose("float32", "cpu")
    torch.manual_seed(1)
    first = build_pretrainer(config(), machine).state_dict()
    torch.manual_seed(2)
    second = build_pretrainer(config(), machine).state_dict()
    third = build_pretrainer(config(train={"seed": 1}), machine).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert any(not torch.equal(first[name], third[name]) for name in first)


# ------------------------------------------------------------------------------------------ budgets


def test_a_time_budget_becomes_steps_once(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_messages: list[str]
) -> None:
    point = config(train={"budget": "2s"})
    monkeypatch.setattr("litebert.train.measure.measure", lambda *_, **__: Rate(((1.0, 0.1),), 0.0))
    still = SimpleNamespace(monotonic=lambda: 0.0, perf_counter=time.perf_counter)
    for module in ("measure", "pretrain", "loop"):
        monkeypatch.setattr(f"litebert.train.{module}.time", still)

    cut = pretrain(point, tiny_data, tmp_path / "cut", on_step=leave_at(7))
    assert (cut.steps, cut.outcome.step) == (20, 7)
    names(log_messages[0], "2s", "20 steps", "2,560 tokens/s")
    monkeypatch.setattr(
        "litebert.train.measure.measure", lambda *_, **__: pytest.fail("measured again")
    )
    done = pretrain(point, tiny_data, tmp_path / "cut")
    assert (done.steps, done.outcome.step) == (20, 20)
    pretrain(config(train={"budget": "20 steps"}), tiny_data, tmp_path / "whole")
    assert result(tmp_path / "cut") == result(tmp_path / "whole")


@pytest.mark.parametrize(
    ("seconds", "warmup", "least"), [("15s", 0.025, 20), ("15s", 100.0, 200), ("1m", 100.0, 200)]
)
def test_a_time_too_short_for_the_schedule_is_refused_with_one_that_will_do(
    seconds: str,
    warmup: float,
    least: int,
    tiny_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("litebert.train.measure.measure", lambda *_, **__: Rate(((1.0, 1.0),), 1.0))
    point = config(train={"budget": seconds, "schedule": ScheduleConfig(warmup=warmup)})
    with refused(ConfigError, f"--budget {seconds}", least) as caught:
        pretrain(point, tiny_data, tmp_path / "run")
    assert not (tmp_path / "run" / "run.json").exists()
    enough = re.search(r"--budget (\d+s)", str(caught.value).split(";")[1])
    assert enough is not None
    assert (
        count_steps(
            replace(point, train=replace(point.train, budget=enough[1])), Rate(((1.0, 1.0),), 1.0)
        )
        >= least
    )


def test_a_short_time_budget_is_measured_and_kept(tiny_data: Path, tmp_path: Path) -> None:
    run = pretrain(config(train={"budget": "1s"}), tiny_data, tmp_path)
    assert run.outcome.finished
    assert run.outcome.seconds < 20
    assert json.loads((tmp_path / "run.json").read_text())["seconds_per_step"] > 0


def test_a_budget_in_tokens_sees_as_many(tiny_data: Path, tmp_path: Path) -> None:
    run = pretrain(config(train={"budget": "3k tokens"}), tiny_data, tmp_path)
    assert run.steps == 12  # 3000 / (8 x 32)
    assert 0.7 * 3000 < run.outcome.tokens <= 12 * 8 * 32


# ------------------------------------------------------------------------------- remarks of the run


def events(run: Path) -> list[str]:
    return [row["message"] for row in metrics.read(run / "metrics.jsonl") if row["kind"] == "event"]


@pytest.mark.thorough
def test_a_run_that_cannot_learn_is_told_so(
    tiny_data: Path, tmp_path: Path, log_messages: list[str]
) -> None:
    """The first knows how frequent pieces are from the start and its learning rate is nothing."""
    entropy = Shards.open(tiny_data).unigram_entropy
    schedule = ScheduleConfig(name="trapezoid", warmup=0.0, cooldown=0.0)
    stuck = config(
        encoder={"hidden_size": 8, "embedding_size": 8, "intermediate_size": 8, "layers": 1},
        objectives=("mlm",),
        train={
            "budget": "320 steps",
            "batch": "64 sequences",
            "optimizer": OptimizerConfig(learning_rate=1e-9),
            "schedule": schedule,
        },
    )

    def know_frequencies(loop: Loop[Batch]) -> None:
        if loop.step == 1:
            ids = torch.cat([loop.trainable.batch(i, slice(None)).masked_labels for i in range(60)])
            counts = torch.bincount(ids, minlength=400).float()
            state = dict(loop.trainable.module.named_parameters())
            state["encoder.embedding.word.weight"].data.zero_()
            bias = next(
                p
                for name, p in state.items()
                if name.startswith("objectives.mlm") and p.shape == (400,)
            )
            bias.data.copy_(torch.log((counts + 0.2) / counts.sum()))

    pretrain(stuck, tiny_data, tmp_path / "stuck", on_step=know_frequencies)
    [event] = events(tmp_path / "stuck")
    assert log_messages.count(event) == 1
    last = metrics.read(tmp_path / "stuck" / "metrics.jsonl")[-2]
    assert math.isclose(last["mlm_loss"], entropy, abs_tol=0.5)


@pytest.mark.thorough
def test_a_run_that_learns_is_not_told_of_a_plateau(tmp_path: Path) -> None:
    """Text in which every word follows from the one before."""
    words = [a + b for a in "bdfgkl" for b in "aeiou"]
    lines = [" ".join(words[(i + j) % 30] for j in range(90)) for i in range(120)]
    (tmp_path / "text.txt").write_text("\n\n".join(lines))
    (tmp_path / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])
    )
    data = tmp_path / "data"
    prepare(tmp_path / "text.txt", data, tmp_path / "vocab.txt", heldout=0.5)
    point = config(
        encoder={
            "hidden_size": 32,
            "embedding_size": 16,
            "layers": 1,
            "norm": "pre",
            "positions": "rotary",
        },
        objectives=("mlm",),
        masking=MaskingConfig(unit="token", span="single"),
        train={
            "budget": "480 steps",
            "optimizer": OptimizerConfig(name="muon", learning_rate=1e-2),
        },
    )
    run = pretrain(point, data, tmp_path / "run")
    assert events(run.folder) == []
    assert run.outcome.scores["mlm_accuracy"] > 0.9
