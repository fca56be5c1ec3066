"""A run that is killed at any instant and started again ends as one that was not killed.

The runs are `litebert pretrain` as a person types it, each in a process of its own, on a recipe
file with dropout, a growing depth, accumulation, and a checkpoint every third step.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from toys.groups import Groups
from toys.pretraining import ENCODER, result
from toys.typed import typed

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="kills and forks are POSIX's"),
]

RECIPE = f"""{ENCODER}
[train]
batch = "4 sequences"
micro_batch = 3
precision = "float32"
depth_schedule = [[0.3, 1]]
save_every = "3 steps"
evaluate_every = "10%"
evaluate_sequences = 8

[train.optimizer]
name = "OPTIMIZER"
learning_rate = 3e-3
"""
SYSTEM = f"""
base = "NAME-base"
{ENCODER}
[sbo]
position_size = 8

[rtd]
generator_width = 0.5

[train.schedule]
warmup = 0.1

[train]
batch = "4 sequences"
micro_batch = 3
precision = "float32"
save_every = "3 steps"
evaluate_every = "25%"
evaluate_sequences = 8
"""
"""Each system's published recipe: its own block, objectives, masks, format and optimizer,
shrunken."""


def words_of(folder: Path, data: Path, name: str, out: str, steps: int = 30) -> list[str]:
    """The command for an optimizer with the recipe above, or for one of the five systems."""
    recipe = folder / "recipe.toml"
    optimizer = name in ("adamw", "muon")
    recipe.write_text(
        RECIPE.replace("OPTIMIZER", name) if optimizer else SYSTEM.replace("NAME", name)
    )
    return typed(
        "pretrain {} --shards {} --out {} --budget {}",
        str(recipe),
        str(data),
        str(folder / out),
        f"{steps} steps",
    )


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """True if the condition came true in time; it is tried as often as possible."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.0002)
    return False


def writing(run: Path) -> bool:
    """True if the files of a checkpoint are being written at this instant."""
    folder = run / "checkpoints"
    return folder.is_dir() and any(name.startswith(".tmp-step-") for name in os.listdir(folder))


def stop_while_writing(process: int, run: Path) -> None:
    """Stop a process at an instant at which it writes a checkpoint, however busy the machine is."""
    while True:
        assert wait_for(lambda: writing(run), 60)
        os.kill(process, signal.SIGSTOP)
        if writing(run):
            return
        os.kill(process, signal.SIGCONT)  # it was done already


@pytest.mark.parametrize(
    ("kills", "while_writing", "steps"),
    [(8, 2, 90), pytest.param(20, 3, 120, marks=pytest.mark.slow)],
)
def test_many_kills_change_nothing(
    kills: int, while_writing: int, steps: int, groups: Groups, tiny_data: Path, tmp_path: Path
) -> None:
    def words(out: str) -> list[str]:
        return words_of(tmp_path, tiny_data, "adamw", out, steps)

    kill_and_compare("adamw", kills, while_writing, steps, groups, words, tmp_path)


SLOW = ("bert", "roberta", "spanbert")
"""Systems that have no kind of state which the others lack; the matrix resumes their objectives in
the default run.
"""


@pytest.mark.parametrize(
    "name",
    ["muon", "albert", "electra", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)],
)
def test_kills_change_nothing_for_each_optimizer_and_system(
    name: str, groups: Groups, tiny_data: Path, tmp_path: Path
) -> None:
    def words(out: str) -> list[str]:
        return words_of(tmp_path, tiny_data, name, out, 75)

    kill_and_compare(name, 5, 1, 75, groups, words, tmp_path)


TAUGHT = ("--distill.states", "0.5", "--distill.relations", "1")


@pytest.mark.parametrize("kind", ["taught", "longer"])
def test_kills_change_nothing_for_a_model_made_from_another(
    kind: str, groups: Groups, tiny_data: Path, tmp_path: Path
) -> None:
    """A smaller one with its teacher; one for longer texts, trained further."""
    other, small = tmp_path / "other", tmp_path / "small"
    changes = {
        "taught": ("--layers", "1"),
        "longer": typed("--positions 128 --window 8 --global-every 0 --global-tokens 1"),
    }
    for made in (
        words_of(tmp_path, tiny_data, "adamw", "other", 3),
        ["resize", str(other), "--out", str(small), *changes[kind]],
    ):
        groups.complete(1, *made)

    def words(out: str) -> list[str]:
        more = {
            "taught": (
                "--teacher",
                str(other),
                *TAUGHT,
            ),
            "longer": ("--sequences.length", "64"),
        }
        return [
            *typed(
                "pretrain --from {} --shards {} --out {} --budget '75 steps' "
                "--train.depth-schedule",
                str(small),
                str(tiny_data),
                str(tmp_path / out),
            ),
            *more[kind],
        ]

    kill_and_compare(kind, 5, 1, 75, groups, words, tmp_path)


def kill_and_compare(
    name: str,
    kills: int,
    while_writing: int,
    steps: int,
    groups: Groups,
    words_for: Callable[[str], list[str]],
    tmp_path: Path,
) -> None:
    """A run killed so many times or more, some while it wrote a checkpoint, ends as one that never
    was.

    Args:
        words_for: the command that trains into a folder of that name in `tmp_path`, with a
            checkpoint every third step.
    """
    groups.complete(1, *words_for("whole"))

    draw = random.Random(name)
    words, run = words_for("killed"), tmp_path / "killed"
    hits, progress = 0, [0]
    for kill in count():
        if kill >= kills and hits >= while_writing and progress[-1]:
            break
        assert kill < kills + 10, (
            "too few kills fell into the writing of a checkpoint to say anything"
        )
        stale = writing(run)
        (process,) = groups.start(1, *words)
        if kill % 5 == 0:  # anywhere, the start of the process included
            time.sleep(draw.uniform(0.0, 0.4 if name == "adamw" else 0.1))
        else:  # around the writing of the next checkpoint or the one after
            if stale:  # which the run clears away first
                assert wait_for(lambda: not writing(run), 60)
            assert wait_for(lambda: writing(run), 60)
            if kill % 5 == 2 or draw.random() < 0.3:
                assert wait_for(lambda: not writing(run), 60)
                assert wait_for(lambda: writing(run), 60)
            if kill % 5 == 1:
                stop_while_writing(process, run)
                hits += 1
            else:
                time.sleep(draw.choice((0.0, draw.uniform(0.0, 0.006), draw.uniform(0.0, 0.03))))
        os.kill(process, signal.SIGKILL)
        ended = groups.end()
        assert ended.statuses == [-signal.SIGKILL], f"before kill {kill + 1}: {ended.output}"
        assert "Traceback" not in ended.output
        progress.append(
            max((int(path.name[5:13]) for path in (run / "checkpoints").glob("step-*")), default=0)
        )
    assert progress == sorted(progress), "a kill lost a checkpoint"
    assert 0 < progress[-1] < steps

    output = groups.complete(1, *words).output
    assert f"continuing from step {progress[-1]} of {steps}" in output
    assert result(run) == result(tmp_path / "whole")
    left = [f"step-{step:08d}" for step in (steps - 3, steps)]
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == left


@pytest.mark.parametrize("taught", [False, True], ids=["alone", "taught"])
def test_kills_change_nothing_for_a_fine_tuning(
    taught: bool, groups: Groups, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    """At random instants: in reading, training, evaluation, checkpoints, the writing of what is
    left at the end, and in a teacher's answers."""
    (tmp_path / "small.toml").write_text(ENCODER)
    draw = random.Random("fine-tuning")
    write_labeled(tmp_path, draw)

    def words(out: str, seeds: str = "2", epochs: str = "2") -> list[str]:
        return [*finetune_words(tmp_path, tiny_tokenizer, out, seeds, epochs), *more]

    more: list[str] = []
    if taught:
        groups.complete(1, *words("teacher", seeds="1", epochs="1"))
        (tmp_path / "more.csv").write_text("text\n" + "bado kumi\nlalo feti\n" * 40)
        more = typed(
            "--teacher {} --unlabeled {} --distill.states 1",
            str(tmp_path / "teacher"),
            str(tmp_path / "more.csv"),
        )
    groups.complete(1, *words("whole"))
    whole, run, killed = tmp_path / "whole", tmp_path / "killed", 0
    end = saves(whole)
    for number in range(14):
        (process,) = groups.start(1, *words("killed"))
        if number in (0, 5):  # anywhere, the start of the process included
            time.sleep(draw.uniform(0.0, 0.2))
        else:  # after one save or a few, and in the end after the last one, in what is written then
            until = min(end, saves(run) + draw.randint(1, 3)) if number < 10 else end
            assert wait_for(partial(has_saved, run, until), 60)
            time.sleep(draw.choice((0.0, draw.uniform(0.0, 0.006), draw.uniform(0.0, 0.1))))
        with suppress(ProcessLookupError):  # it had come to its end
            os.kill(process, signal.SIGKILL)
        ended = groups.end()
        if ended.statuses == [0]:
            break
        assert ended.statuses == [-signal.SIGKILL], ended.output
        killed += 1
    assert killed >= 6
    groups.complete(1, *words("killed"))
    assert_same_files(run, whole)


def write_labeled(folder: Path, draw: random.Random) -> None:
    """Write texts with a label each, for training and development."""
    for part, rows in (("train", 160), ("dev", 40)):
        texts = (
            " ".join(draw.choices(("bado", "kumi", "feti", "lalo"), k=draw.randint(1, 12)))
            for _ in range(rows)
        )
        rows_of = (f"{text},{'yes' if 'bado' in text else 'no'}\n" for text in texts)
        (folder / f"{part}.csv").write_text("text,label\n" + "".join(rows_of))


def finetune_words(folder: Path, tokenizer: Path, out: str, seeds: str, epochs: str) -> list[str]:
    """The command that learns the labels of `write_labeled` and saves often."""
    options = {
        "--task": "table",
        "--data": str(folder / "train.csv"),
        "--dev": str(folder / "dev.csv"),
        "--tokenizer": str(tokenizer),
        "--out": str(folder / out),
        "--seeds": seeds,
        "--epochs": epochs,
        "--length": "32",
        "--train.precision": "float32",
        "--train.batch": "8 sequences",
        "--train.save-every": "4 steps",
        "--train.optimizer.learning-rate": "3e-3",
        "--train.evaluate-every": "20%",
    }
    words = [word for option in options.items() for word in option]
    return ["finetune", str(folder / "small.toml"), *words]


def assert_same_files(run: Path, whole: Path) -> None:
    """Both folders hold the same files with the same bytes, but for seconds and owners."""
    timed = {"state.json", "index.json", "speed.jsonl", "report.html", ".lock"}
    files = {path.relative_to(whole) for path in whole.rglob("*") if path.is_file()}
    assert {path.relative_to(run) for path in run.rglob("*") if path.is_file()} == files
    for name in files:
        if name.name not in timed:
            assert (run / name).read_bytes() == (whole / name).read_bytes(), name


def has_saved(run: Path, count: int) -> bool:
    """True once the runs below a folder have written so many checkpoints."""
    return saves(run) >= count


def saves(folder: Path, every: int = 4) -> int:
    """How many checkpoints the runs below a folder have written, those set aside included."""
    names = [names for path, names, _ in os.walk(folder) if path.endswith("checkpoints")]
    newest = [
        max((int(name[5:13]) for name in folder_names if name.startswith("step-")), default=0)
        for folder_names in names
    ]
    return sum(newest) // every


def test_a_kill_before_the_last_pruning_leaves_no_checkpoint_more(
    tiny_data: Path, tmp_path: Path
) -> None:
    """The next call finds nothing left to train, and yet removes what the configuration does not
    keep.
    """
    from litebert.cli import main

    words = words_of(tmp_path, tiny_data, "adamw", "run", 9)
    folder = tmp_path / "run" / "checkpoints"
    assert main(words) == 0
    steps = sorted(path.name for path in folder.iterdir())
    shutil.copytree(folder / steps[0], folder / "step-00000003")
    assert main(words) == 0
    assert (
        sorted(path.name for path in folder.iterdir())
        == steps
        == ["step-00000006", "step-00000009"]
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_with_its_status_and_says_how_to_continue(
    number: signal.Signals, groups: Groups, tiny_data: Path, tmp_path: Path
) -> None:
    words, run = words_of(tmp_path, tiny_data, "adamw", "run"), tmp_path / "run"
    (process,) = groups.start(1, *words)
    assert wait_for(lambda: any((run / "checkpoints").glob("step-*")), 60)
    os.kill(process, number)
    ended = groups.end()
    assert ended.statuses == [128 + number]
    step = max(int(path.name[5:]) for path in (run / "checkpoints").glob("step-*"))
    left = f"saved at step {step} of 30; run the same command to continue"
    assert ended.output.splitlines()[-1] == left
    assert f"continuing from step {step} of 30" in groups.complete(1, *words).output


def test_a_folder_serves_one_process_at_a_time(
    groups: Groups, tiny_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from litebert.cli import main

    words, run = words_of(tmp_path, tiny_data, "adamw", "run"), tmp_path / "run"
    (process,) = groups.start(1, *words)
    assert wait_for(lambda: any((run / "checkpoints").glob("step-*")), 60)
    os.kill(process, signal.SIGSTOP)
    try:
        before = (run / "metrics.jsonl").read_bytes()
        assert main(words) == 2
        assert (run / "metrics.jsonl").read_bytes() == before
    finally:
        os.kill(process, signal.SIGKILL)
    assert f"is in use by process {process}" in capsys.readouterr().err
    assert groups.end().statuses == [-signal.SIGKILL]
    groups.complete(1, *words)
