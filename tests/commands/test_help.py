"""Help: each verb on a screen, with examples that it takes, and whole with `--help all`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import MISSING
from pathlib import Path
from typing import Any

import pytest

from litebert.base.registry import TASKS
from litebert.cli import EXAMPLES, VERBS, main
from litebert.commands.completion import verbs
from litebert.commands.console import parse, parse_with_recipe
from litebert.commands.options import list_options
from litebert.commands.task_options import CHOSEN, parse_with_task
from litebert.config import Config
from litebert.config.finetuning import FinetuneConfig
from litebert.recipes import RECIPES
from litebert.tasks.registry import find_task

Output = tuple[int, str, str]
EVERY = {**dict(verbs()), "a recipe": Config, "a fine-tuning recipe": FinetuneConfig}
DEFAULTS = {Config: RECIPES["albert-tiny"](), FinetuneConfig: CHOSEN}
VERBS_ALONE: dict[str, Any] = {name: cls for name, cls in EVERY.items() if cls not in DEFAULTS}
LEAKS = r"\(default|\(optional|\(required|None|Annotated|ANNOTATED|STR\b|\bFalse\b|\bTrue\b"


def options_of(name: str) -> list[Any]:
    return [*list_options(EVERY[name], DEFAULTS.get(EVERY[name]))]


@pytest.fixture(params=[80, 100])
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("COLUMNS", str(request.param))
    return int(request.param)


HELPS = [*VERBS_ALONE, *(f"{verb} --task {task}" for verb in ("finetune",) for task in TASKS)]


@pytest.mark.parametrize("name", HELPS)
def test_help_fits_a_screen(name: str, width: int, run: Callable[..., Output]) -> None:
    status, out, err = run(*name.split(), "--help")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    examples = [line for line in lines if line.startswith("  litebert ")]
    assert lines[0].startswith(f"litebert {name.partition(' --')[0]}")
    assert len(lines) <= 40
    assert 1 <= len(examples) <= 3
    assert all(len(line) <= width for line in lines)
    assert not re.search(LEAKS, out)
    assert all(flag in lines[-1] or flag in lines[-2] for flag in ("--quiet", "--verbose"))
    for option in options_of(name.partition(" --")[0]):
        assert option.default is not MISSING or option.name in out


@pytest.mark.parametrize("name", VERBS_ALONE)
def test_help_all_shows_every_option(name: str, width: int, run: Callable[..., Output]) -> None:
    out = run(*name.split(), "--help", "all")[1]
    fields: list[Any] = []
    if name in ("pretrain", "plan"):
        fields = options_of("a recipe")
    if name in ("finetune", "distill"):
        fields = options_of("a fine-tuning recipe")
        fields += list_options(find_task("table")[1].options)
    own = list_options(VERBS_ALONE[name]) if not fields else ()
    for option in (*own, *fields):
        assert f"  {option.form.partition(' ')[0]}" in out, option.name
        assert " ".join(option.meaning.split()) in " ".join(out.split()), option.name
    assert not re.search(LEAKS, out)


@pytest.mark.parametrize("task", TASKS)
def test_help_all_shows_the_options_of_a_task(task: str, run: Callable[..., Output]) -> None:
    out = run("finetune", "--task", task, "--help", "all")[1]
    for option in list_options(TASKS[task].options):
        assert f"  {option.form.partition(' ')[0]}" in out, option.name
    assert not re.search(LEAKS, out)


def test_help_as_other_programs_have_it(run: Callable[..., Output]) -> None:
    wanted = run("finetune", "--help")
    assert run("help", "finetune") == run("--help", "finetune") == run("finetune", "-h") == wanted
    assert run("help", "finetune", "all") == run("finetune", "--help", "all")
    assert run("help", "tokenizer", "train") == run("tokenizer", "train", "--help")
    assert run("help", "all") == run("--help", "all") == run("help")
    assert run("-V") == run("version") == run("--version")
    assert run("help", "fintune")[0] == 2


def test_common_options_exist() -> None:
    """Each is an option of the verb, of its recipe or of a task, and no other verb hides any."""
    of_tasks = {option.name for task in TASKS for option in list_options(TASKS[task].options)}
    of_recipes = {option.name for name in list(EVERY)[-2:] for option in options_of(name)}
    for name, cls in VERBS_ALONE.items():
        common = {f"--{word}" for word in getattr(cls, "common", "").split()}
        assert common <= {option.name for option in list_options(cls)} | of_tasks | of_recipes, name


def read_example(words: list[str]) -> Any:
    """What a verb reads of a command, as it begins."""
    name = " ".join(words[:2]) if words[0] == "tokenizer" else words[0]
    cls, rest = VERBS_ALONE[name], words[len(name.split()) :]
    if name in ("plan", "pretrain"):
        return parse_with_recipe(cls, rest, name, lambda _: RECIPES["albert-tiny"]())
    if name in ("finetune", "distill"):
        from litebert.commands import distill, tasks

        plain: Any = getattr({"finetune": tasks, "distill": distill}[name], cls.__name__)
        return parse_with_task(plain, rest, name)
    return parse(cls, rest, name)


@pytest.mark.parametrize(
    "example", [example for cls in VERBS_ALONE.values() for example in cls.examples] + [*EXAMPLES]
)
def test_examples_are_read(example: str) -> None:
    program, *words = shlex.split(example)
    assert program == "litebert"
    assert words[0] in VERBS
    read_example(words)


@pytest.mark.parametrize("name", EVERY)
def test_every_option_has_a_help_of_one_sentence(name: str) -> None:
    for option in options_of(name):
        assert len(option.meaning) > 8, option.name
        assert "\n" not in option.meaning, option.name
        assert len(option.meaning) <= 130, option.name


@pytest.mark.parametrize("name", EVERY)
def test_an_option_that_only_turns_something_off_has_a_field_of_that_name(name: str) -> None:
    """Otherwise the help of `--no-x` would say what `--x` does."""
    names = [option.name for option in options_of(name)]
    opposites = [option.opposite for option in options_of(name) if option.is_flag]
    assert len({*names, *opposites}) == len(names) + len(opposites)


OLD = """--text --pair --pairs --label --text-field --output --train --recipe --extend --transplant
--exit --exits --exit-drop --unlabelled --memory --timeout --max-wait --batch-wait
--max-body"""
"""Names that the command line had before its renames."""
OF_SHARDS = ("pretrain", "compare", "analyze", "study", "resize")


@pytest.mark.parametrize("name", VERBS_ALONE)
def test_names_keep_the_rules(name: str) -> None:
    names = {option.name for option in options_of(name)}
    assert not names & {*OLD.split()}
    assert "--data" not in names or name not in OF_SHARDS, "--shards names prepared text"


def test_the_reference_shows_no_annotations() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "reference.md"
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"Annotated\[|Arg\(|typing|NoneType", text)
    items = [line for line in text.splitlines() if re.match(r"- `(--)?[\w.-]+`", line)]
    assert len(items) > 100
    assert not [item for item in items if item.endswith(": ")]


def test_a_screen_holds_the_verbs(run: Callable[..., Output]) -> None:
    lines = run("--help")[1].splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert sum(line.startswith("  litebert ") for line in lines) == 3
    assert main(["--help"]) == 0
