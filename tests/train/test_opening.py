"""Opening a run for anything but training: damaged and missing checkpoints, pickles, files nested
too deeply.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from litebert import load
from litebert.base.errors import LitebertError, ModelError, RunError
from litebert.base.storage import file_record, index_text
from litebert.train import checkpoint
from litebert.train.pretrain import pretrain
from toys.folders import save_litebert, tiny
from toys.pretraining import config
from toys.refusals import names, refused
from toys.typed import typed

Run = Callable[..., tuple[int, str, str]]
DEEP = "[" * 100_000 + "]" * 100_000


@pytest.fixture(scope="module")
def trained_run(tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with checkpoints of steps 8 and 12."""
    return pretrain(
        config(train={"save_every": "4 steps"}), tiny_data, tmp_path_factory.mktemp("run") / "run"
    ).folder


@pytest.fixture
def pair(trained_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained_run, tmp_path / "run"))


def damage(file: Path, how: str) -> None:
    if how == "changed":
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    elif how == "gone":
        file.unlink()
    else:
        file.parent.joinpath("index.json").write_text(DEEP)


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["changed", "gone", "nested"])
@pytest.mark.parametrize("verb", ["evaluate", "finetune", "convert", "predict"])
def test_a_verb_says_that_it_uses_an_older_checkpoint(
    verb: str, how: str, pair: Path, tiny_data: Path, tmp_path: Path, run: Run
) -> None:
    damage(pair / "checkpoints" / "step-00000012" / "model.safetensors", how)
    (tmp_path / "rows.csv").write_text("text,label\n" + "a,x\nb,y\n" * 20)
    words: dict[str, Sequence[object]] = {
        "evaluate": ("--shards", tiny_data, "--sequences", "8"),
        "finetune": typed(
            "--task table --data {} --out {} --steps 1", tmp_path / "rows.csv", tmp_path / "tuned"
        ),
        "convert": ("--out", tmp_path / "converted", "--to", "litebert"),
        "predict": ("--input", tmp_path / "rows.csv"),
    }
    status, _, err = run(verb, pair, *words[verb])
    assert status == (2 if verb == "predict" else 0)  # it is not fine-tuned, which comes after
    [line] = [line for line in err.splitlines() if "step-00000012" in line]
    names(line, pair / "checkpoints" / "step-00000012", "step-00000008")


def test_a_run_whose_checkpoints_are_all_damaged(pair: Path) -> None:
    for file in (pair / "checkpoints").glob("*/model.safetensors"):
        damage(file, "changed")
    with refused(ModelError, pair, "step-00000008", "step-00000012"):
        load(pair)


@pytest.mark.parametrize("empty", [True, False])
def test_a_run_before_its_first_checkpoint(
    empty: bool, pair: Path, tiny_data: Path, run: Run
) -> None:
    shutil.rmtree(pair / "checkpoints")
    if empty:
        (pair / "checkpoints").mkdir()
    status, _, err = run("evaluate", pair, "--shards", tiny_data)
    assert status == 2
    names(err.splitlines()[-1], pair, "no checkpoint yet")
    assert "pytorch_model.bin" not in err


class Anything:
    """An object that runs code when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("ran",)


def test_a_pickle_that_runs_code_is_refused_as_such(
    tmp_path: Path, run: Run, tiny_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save_litebert(tiny(), None, "m")
    Path("m/model.safetensors").unlink()
    torch.save({"weight": Anything()}, "m/pytorch_model.bin")
    status, _, err = run("evaluate", "m", "--shards", tiny_data)
    assert status == 2
    names(err.splitlines()[-1], "m/pytorch_model.bin", "model.safetensors")
    assert "weights_only" not in err
    assert "damaged" not in err
    Path("m/pytorch_model.bin").write_bytes(pickle.dumps({"weight": Anything()}))
    with refused(ModelError, "m/pytorch_model.bin"):
        load("m")
    Path("m/pytorch_model.bin").write_bytes(b"PK\x03\x04 cut off")
    with refused(ModelError, "m/pytorch_model.bin", "copy it again"):
        load("m")
    assert not Path("ran").exists()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "text",
    [DEEP, '{"a": ' * 100_000 + "1" + "}" * 100_000, '{"encoder": ' + "[" * 900 + "]" * 900 + "}"],
)
@pytest.mark.parametrize(
    "file",
    [
        "recipe.json",
        "run.json",
        "checkpoints/step-00000012/index.json",
        "checkpoints/step-00000012/state.json",
        "metrics.jsonl",
        "tokenizer/tokenizer.json",
    ],
)
def test_json_nested_too_deeply_ends_in_one_sentence(
    file: str, text: str, pair: Path, tiny_data: Path, run: Run
) -> None:
    (pair / file).write_text(text)
    for words in (("evaluate", pair, "--shards", tiny_data, "--sequences", "8"), ("compare", pair)):
        status, _, err = run(*words)
        assert status in (0, 2)
        assert "Traceback" not in err
    with pytest.raises(LitebertError) if file in ("recipe.json", "run.json") else memoryless():
        pretrain(config(train={"save_every": "4 steps"}), tiny_data, pair)


class memoryless:
    """Whatever happens, it is nothing but an error of ours."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, LitebertError)


@pytest.mark.parametrize("file", ["config.json", "task.json", "recipe.json"])
def test_a_model_with_json_nested_too_deeply(
    file: str, tmp_path: Path, tiny_data: Path, run: Run
) -> None:
    save_litebert(tiny(), None, tmp_path / "m")
    if file == "config.json":
        (tmp_path / "m" / "recipe.json").unlink()
    (tmp_path / "m" / file).write_text(DEEP)
    status, _, err = run("evaluate", tmp_path / "m", "--shards", tiny_data)
    assert status == 2
    names(err.splitlines()[-1], tmp_path / "m" / file)


@pytest.mark.parametrize("suffix", ["json", "toml"])
def test_a_recipe_file_nested_too_deeply(suffix: str, tmp_path: Path, run: Run) -> None:
    path = tmp_path / f"deep.{suffix}"
    path.write_text(f"a = {DEEP}" if suffix == "toml" else DEEP)
    status, _, err = run("plan", path)
    assert status == 2
    names(err.splitlines()[-1], path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tokens", "many"),
        ("window", []),
        ("window", {"steps": 1}),
        ("scores", 7),
        ("diagnostic_state", None),
        ("seconds", None),
        ("tokens", ...),
    ],
)
def test_a_state_that_cannot_be_continued_is_named(
    key: str, value: object, pair: Path, tiny_data: Path
) -> None:
    """Whole by its hashes, and written by something else."""
    folder = pair / "checkpoints" / "step-00000012"
    state = json.loads((folder / "state.json").read_text())
    state.pop(key)
    (folder / "state.json").write_text(json.dumps(state if value is ... else {**state, key: value}))
    records = {name: file_record(folder / name) for name in checkpoint._HASHED}
    (folder / "index.json").write_text(index_text(records))
    with refused(RunError, folder / "state.json"):
        pretrain(config(train={"save_every": "4 steps"}), tiny_data, pair)
