"""Words of a verb while it works and when it ends: lines, bars, remarks, the next command, and
how it is stopped.
"""

from __future__ import annotations

import io
import json
import logging
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from litebert.base import progress
from litebert.base.errors import nearest
from litebert.cli import VERBOSITY, VERBS, main
from litebert.commands.bars import Bars
from litebert.text.tally import format_count
from litebert.train import metrics
from toys.finetuning import RECIPE, write_table
from toys.refusals import names
from toys.typed import typed

pytestmark = pytest.mark.thorough


Output = tuple[int, str, str]
Run = Callable[..., Output]
STEPS = (
    '\n[train]\nbudget = "8 steps"\nbatch = "4 sequences"\nevaluate_sequences = 8\nsave_every '
    '= "4 steps"\n'
)


@pytest.fixture(scope="module")
def folder(tiny_corpus: Path, tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a space in its name: a recipe, a table, a pretrained run, a fine-tuned one."""
    place = tmp_path_factory.mktemp("speaking") / "my files"
    place.mkdir()
    (place / "small.toml").write_text(
        f'base = "albert-tiny"\n{RECIPE}{STEPS}depth_schedule = [[0.5, 1]]\n'
    )
    write_table(place / "table.csv", 80)
    shutil.copy(tiny_corpus, place / "text.txt")
    run = ["pretrain", place / "small.toml", "--shards", tiny_data, "--out", place / "run"]
    task = typed("--task table --data {} --out {} --epochs 1", place / "table.csv", place / "tuned")
    for words in (run, ["finetune", place / "run", *task]):
        assert main(list(map(str, words))) == 0
    return place


def command(verb: str, folder: Path, data: Path, out: Path) -> Sequence[object]:
    """Each verb as a user types it."""
    text, recipe = folder / "table.csv", folder / "small.toml"
    commands: dict[str, Sequence[object]] = {
        "recipes": ["recipes"],
        "plan": ["plan", recipe, "--measure"],
        "tokenizer train": typed(
            "tokenizer train {} --kind bpe --vocab-size 300 --out {}", text, out
        ),
        "tokenizer inspect": ["tokenizer", "inspect", text, "--tokenizer", data / "tokenizer"],
        "prepare": typed(
            "prepare {} --tokenizer {} --out {} --heldout 0.1", text, data / "tokenizer", out
        ),
        "pretrain": ["pretrain", recipe, "--shards", data, "--out", out],
        "evaluate": ["evaluate", folder / "run", "--shards", data],
        "compare": ["compare", folder / "run", "--shards", data],
        "finetune": typed(
            "finetune {} --task table --data {} --out {} --epochs 1", folder / "run", text, out
        ),
        "predict": ["predict", folder / "tuned", "--input", text, "--out", f"{out}.csv"],
        "evaluate tuned": ["evaluate", folder / "tuned", "--data", text],
        "quickstart": typed(
            "quickstart --source {} --vocab-size 400 --budget '8 steps' --out {}",
            folder / "text.txt",
            out,
        ),
        "convert": ["convert", folder / "run", "--out", out, "--to", "litebert"],
    }
    return commands[verb]


LONG = (
    *("plan", "pretrain", "evaluate", "compare", "finetune", "convert", "predict", "prepare"),
    *("tokenizer train", "tokenizer inspect", "evaluate tuned"),
)
SHORT = ("recipes",)


@pytest.mark.parametrize(
    "verb", [*LONG, *SHORT, pytest.param("quickstart", marks=pytest.mark.slow)]
)
def test_no_verb_that_takes_long_is_silent_and_each_ends_with_a_command_that_is_right(
    verb: str,
    run: Run,
    folder: Path,
    tiny_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Output goes to a file, where lines come as often as they can: no five seconds pass without
    one.
    """
    monkeypatch.setattr("litebert.train.measure._is_enough", lambda passes, *_: passes >= 3)
    monkeypatch.setattr("litebert.train.memory._PROBE", 8 << 20)
    monkeypatch.setattr("litebert.studies.quickstart.MEASURE_SECONDS", 0.1)
    monkeypatch.chdir(tmp_path)  # where the next command writes
    out, times = tmp_path / "an out", [time.monotonic()]
    clock = logging.Handler()
    clock.emit = lambda record: times.append(time.monotonic())  # type: ignore[method-assign]
    progress.log.addHandler(clock)
    with monkeypatch.context() as often:
        often.setattr(progress, "EVERY", 0.001)
        status, _, err = run(*command(verb, folder, tiny_data, out))
    times.append(time.monotonic())
    progress.log.removeHandler(clock)
    assert status == 0, err
    if verb not in SHORT:
        assert " so far" in err
        assert max(after - before for before, after in pairwise(times)) < 5, (
            "of 30 s that are allowed; a machine may be busy"
        )
    if verb == "quickstart":
        return
    if verb in ("tokenizer train", "prepare", "pretrain", "finetune", "predict", "convert"):
        assert any(line.startswith("wrote ") and str(out) in line for line in err.splitlines())
    if verb in ("predict", "evaluate tuned"):
        return
    [line] = [line for line in err.splitlines() if line.startswith("next: ")]
    if verb == "convert":
        return
    words = shlex.split(line.removeprefix("next: "))
    place = next(i for i, word in enumerate(words) if word in VERBS)
    assert words[:place] in (["litebert"], [sys.executable, "-m", "litebert"])
    placeholder = any(Path(word).stem.isupper() for word in words[place:])
    short = ["--budget", "2 steps"] if words[place] == "pretrain" else []
    status, _, err = run(*words[place:], *short, "--help" if placeholder else "--quiet")
    assert (status, err) == (0, "")


def test_quiet_and_verbose_stand_anywhere(
    run: Run, folder: Path, tiny_data: Path, tmp_path: Path
) -> None:
    words = command("pretrain", folder, tiny_data, tmp_path / "out")
    status, out, err = run("--quiet", *words)
    assert (status, err) == (0, "")
    assert "MLM accuracy" in out
    status, again, err = run(*words, "--verbose")
    assert (status, again) == (0, out)
    assert "training: took" in err
    status, out, err = run(words[0], "--quiet", *words[1:], "--verbose")
    assert (status, out) == (2, "")
    names(err, *VERBOSITY)


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_every_verb_names_quiet_and_verbose(verb: str, run: Run) -> None:
    _, out, _ = run(verb, "--help")
    assert all(flag in out for flag in VERBOSITY)


def test_lines_come_at_every_evaluation_and_checkpoint(
    run: Run, folder: Path, tiny_data: Path, tmp_path: Path
) -> None:
    _, _, err = run(*command("pretrain", folder, tiny_data, tmp_path / "out"))
    rows = metrics.read(tmp_path / "out" / "metrics.jsonl")
    for row in rows:
        if row["kind"] == "heldout":
            [line] = [
                line for line in err.splitlines() if f"step {row['step']} of 8: held-out" in line
            ]
            names(
                line, f"mlm loss {row['mlm_loss']:.3g}", f"mlm accuracy {row['mlm_accuracy']:.1%}"
            )
    assert [line for line in err.splitlines() if line.startswith("checkpoint")] == [
        "checkpoint at step 4 of 8",
        "checkpoint at step 8 of 8",
    ]


def test_a_run_that_learned_only_how_frequent_pieces_are_says_so(
    run: Run, folder: Path, tiny_data: Path, tmp_path: Path
) -> None:
    entropy = json.loads((tiny_data / "index.json").read_text())["unigram_entropy"]
    _, out, err = run(*command("pretrain", folder, tiny_data, tmp_path / "out"), "--json")
    loss = json.loads(out)["heldout"]["mlm_loss"]
    assert loss > entropy
    [line] = [line for line in err.splitlines() if f"{entropy:.2f}" in line]
    names(line, f"{loss:.2f}", 8)


@pytest.mark.parametrize("verb", ["pretrain", "finetune"])
def test_remarks_are_in_the_metrics_and_in_the_report(
    verb: str, run: Run, folder: Path, tiny_data: Path, tmp_path: Path
) -> None:
    """A warm-up that is never left, and texts that are cut, are remarks from before the first
    step."""
    more = ["--train.schedule.warmup", 100] if verb == "pretrain" else ["--length", 8]
    words = [*command(verb, folder, tiny_data, tmp_path / "out"), *more]
    assert run(*words)[0] == 0

    def events() -> list[str]:
        return [
            row["message"]
            for row in metrics.read(tmp_path / "out" / "metrics.jsonl")
            if row["kind"] == "event"
        ]

    first = events()
    assert any(("warm-up" if verb == "pretrain" else "than 8 tokens") in event for event in first)
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "What happened" in page
    assert "Learning rate" in page
    assert run(*words)[0] == 0
    assert events() == first, "a run that continues repeats none"


def test_the_report_agrees_with_itself_and_explains_the_depth(folder: Path) -> None:
    page = (folder / "run" / "report.html").read_text(encoding="utf-8")
    last = [
        row for row in metrics.read(folder / "run" / "metrics.jsonl") if row["kind"] == "heldout"
    ][-1]
    assert f"{last['mlm_loss']:.3f}" in page
    assert f"held out <b>{last['mlm_loss']:.4g}</b>" in page
    assert "from step 5 on" in page, "the first step at full depth"


# -------------------------------------------------------------------------------- how it is stopped


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_during_imports_ends_in_one_line(
    number: signal.Signals, status: int, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Signals(MetaPathFinder):
        def find_spec(self, name: str, *_: Any) -> None:
            if name == "litebert.commands.evaluate":
                os.kill(os.getpid(), number)

    monkeypatch.delitem(sys.modules, "litebert.commands.evaluate", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Signals(), *sys.meta_path])
    before = signal.getsignal(number)
    actual, out, err = run("evaluate", "a", "--shards", "b")
    assert (actual, out) == (status, "")
    names(err, "litebert evaluate")
    assert signal.getsignal(number) is before


def _memory_error(*_: object, **__: object) -> None:
    raise MemoryError


def _no_room(*_: object, **__: object) -> None:
    import torch

    torch.empty(2**50)


def _too_wide(*_: object, **__: object) -> None:
    raise RuntimeError("a fault of ours")


@pytest.mark.parametrize("fault", [_memory_error, _no_room])
def test_memory_that_runs_out_is_one_sentence(
    fault: Callable[..., None], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("litebert.answer.evaluation.evaluate", fault)
    status, out, err = run("evaluate", "a", "--shards", "b")
    assert (status, out) == (2, "")
    names(err, "litebert evaluate", "memory", "--train.micro-batch")


def test_faults_of_ours_are_not_hidden(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("litebert.answer.evaluation.evaluate", _too_wide)
    with pytest.raises(RuntimeError, match="a fault of ours"):
        run("evaluate", "a", "--shards", "b")


def test_closed_streams_stop_no_verb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    assert main(["plan", "albert-tiny"]) == 0
    assert main(["plan", "albert-tyni"]) == 2
    for stream in (sys.stdout, sys.stderr):
        stream.close()


# --------------------------------------------------------------------------------------------- bars


def test_words_stand_above_the_bars_and_the_bars_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LONG", 0.01)
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=100)
    progress.set_display(Bars(console))
    try:
        with progress.task("training", 10, "steps") as bar:
            bar.advance(5)
            bar.text = "loss 6.12"
            with progress.task("scoring"):
                time.sleep(0.3)
                console.print("a word")
        end = len(written.getvalue())
    finally:
        progress.set_display(None)
    shown = written.getvalue()
    for part in ("training", "5 of 10 steps (50%)", "loss 6.12", "scoring", "a word\n"):
        assert part in shown
    assert len(shown) == end
    assert shown.rindex("\x1b[2K") > shown.rindex("training"), "what was drawn is erased"
    assert "\x1b[?25h" in shown, "the cursor is back"


def test_counts_and_choices_read_well() -> None:
    assert [format_count(1, "answer"), format_count(2, "answer"), format_count(1200, "row")] == [
        "1 answer",
        "2 answers",
        "1,200 rows",
    ]
    assert nearest("text", [""]) == nearest("text", [])
    assert not nearest("text", []).rstrip().endswith(":")
