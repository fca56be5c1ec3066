"""Any JSON in any file of a model folder gives an answer or one of our errors, never another
exception.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import litebert
from litebert.analysis.compare import compare, make_settings_table, make_table
from litebert.analysis.compare_tasks import compare_tasks, make_differences_table, make_task_table
from litebert.base.errors import LitebertError
from litebert.config import replace
from litebert.interop.cards import make_card
from litebert.interop.loaded import LoadedModel
from litebert.model.task_model import TaskModel
from toys import finetuning, pretraining
from toys.finetuning import finetune_seeds
from toys.folders import save_hf, small_tokenizer, tiny
from toys.tasks import task_of

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 5)
    | st.just(10**30)
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(
        ["mlm", "classes", "sequence", "table", "albert", "../x", "\0", "\ud800", "0", "1e400"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)
FILES = {
    "hf": ("config.json", "tokenizer_config.json", "tokenizer.json", "modules.json"),
    "own": ("recipe.json", "task.json", "tokenizer/tokenizer_config.json"),
    "run": (
        "recipe.json",
        "run.json",
        "metrics.jsonl",
        "checkpoints/*/state.json",
        "checkpoints/*/index.json",
        "tokenizer/tokenizer.json",
    ),
    "seeds": (
        "seeds.json",
        "seed-0/finetune.json",
        "seed-1/scores.json",
        "seed-0/checkpoints/*/state.json",
        "seed-0/checkpoints/*/index.json",
    ),
}


@pytest.fixture(scope="module")
def folders(
    tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Path, tiny_data: Path
) -> Path:
    """A good folder of each kind."""
    place = tmp_path_factory.mktemp("good")
    encoder = tiny(("mlm",), sharing="none", embedding_size=8).encoder.config
    save_hf(TaskModel(encoder, True, 2), small_tokenizer(), place / "hf", labels=("a", "b"))
    (place / "hf" / "modules.json").write_text(json.dumps([{"path": "1_Pooling"}]))
    litebert.pretrain(pretraining.config(train={"budget": "2 steps"}), tiny_data, place / "run")
    train, dev = (finetuning.write_table(place / f"{name}.csv", 20) for name in ("train", "dev"))
    config = replace(finetuning.config(epochs=1), steps=1)
    recipe = finetuning.recipe_file(place)
    task = task_of("table", train, dev=dev)
    finetune_seeds(recipe, task, place / "seeds", config, seeds=2, tokenizer=tiny_tokenizer)
    shutil.copytree(place / "seeds" / "seed-0" / "model", place / "own")
    return place


def paths_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value, but for those deep in a vocabulary."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value[:3])
        if isinstance(value, list)
        else ()
    )
    return [
        path,
        *(
            place
            for key, value in list(inner)[:40]
            for place in paths_in(value, (*path, key))
            if len(path) < 4
        ),
    ]


def change_value(value: Any, path: tuple[Any, ...], by: Any, how: str) -> Any:
    """The value with the one at `path` replaced, removed or with a stranger beside it."""
    if not path:
        return by
    copy = value.copy()
    if len(path) > 1:
        copy[path[0]] = change_value(value[path[0]], path[1:], by, how)
    elif how == "remove":
        del copy[path[0]]
    elif how == "add" and isinstance(copy, dict):
        copy["stranger"] = by
    else:
        copy[path[0]] = by
    return copy


def open_and_describe(folder: Path) -> None:
    loaded: LoadedModel = litebert.load(folder)
    make_card(loaded)
    if isinstance(loaded.model, TaskModel):
        litebert.load(folder).predict(["a text"])


def compare_with_itself(folder: Path) -> None:
    rows = compare([folder, folder])
    make_table(rows)
    make_settings_table(rows)


def tasks_compared(folder: Path) -> None:
    rows = compare_tasks([folder, folder])
    make_task_table(rows)
    make_differences_table(rows)


USES: dict[str, list[Callable[[Path], None]]] = {
    "hf": [open_and_describe],
    "own": [open_and_describe],
    "run": [open_and_describe, compare_with_itself],
    "seeds": [tasks_compared],
}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "file"), [(kind, file) for kind, files in FILES.items() for file in files]
)
@settings(
    max_examples=10,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_json_of_any_kind(kind: str, file: str, folders: Path, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / kind
        shutil.copytree(folders / kind, folder, copy_function=os.link)
        (path,) = folder.glob(file)
        lines = (
            path.read_text("utf-8").splitlines()
            if path.suffix == ".jsonl"
            else [path.read_text("utf-8")]
        )
        number = data.draw(st.integers(0, len(lines) - 1), "line")
        good = json.loads(lines[number])
        where, how = (
            data.draw(st.sampled_from(paths_in(good)), "where"),
            data.draw(st.sampled_from(["replace", "remove", "add"]), "how"),
        )
        lines[number] = json.dumps(change_value(good, where, data.draw(JSON, "value"), how))
        path.unlink()  # the other name of the good file stays
        path.write_text("\n".join(lines), encoding="utf-8")
        for use in USES[kind]:
            try:
                use(folder)
            except LitebertError:
                continue


@pytest.mark.parametrize(
    ("field", "value"), [("position_offset", 10**30), ("vocab_size", 10**15), ("init_std", "NaN")]
)
def test_a_recipe_that_nothing_can_be_built_from(
    field: str, value: Any, folders: Path, tmp_path: Path
) -> None:
    shutil.copytree(folders / "own", tmp_path / "own")
    recipe = json.loads((tmp_path / "own" / "recipe.json").read_text())
    recipe["encoder"][field] = value
    (tmp_path / "own" / "recipe.json").write_text(json.dumps(recipe))
    with pytest.raises(LitebertError):
        litebert.load(tmp_path / "own")
