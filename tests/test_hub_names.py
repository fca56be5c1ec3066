"""How names of the Hub are read, and told from paths."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from litebert import hub
from litebert.base.errors import ConfigError, ModelError
from litebert.finetuning.initial import load_initial
from litebert.recipes import HUB_NAMES, RECIPES


@pytest.mark.parametrize(
    "text",
    [
        *("hf:", "hf:a/b/c", "hf:a b", "hf:a/b@", "hf:/b", "hf:a\\b"),
        *("hf:../b", "hf:a/..", "hf:-a/b", "hf:a--b/c", "hf:.a"),
        *("hf:a/b@../../c", "hf:a/b@/c", "hf:a/b@c//d", "hf:a/b@c d", "hf:a/b@c\\d"),
    ],
)
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(ModelError, match="hf:OWNER/NAME"):
        hub.locate(text)


def test_a_name_has_a_revision_or_none() -> None:
    assert hub.parse_name("hf:a/b") == hub.HubName("a/b")
    assert hub.parse_name("hf:a/b@v1.0") == hub.HubName("a/b", "v1.0")
    assert str(hub.parse_name("hf:a/b@refs/pr/1")) == "hf:a/b@refs/pr/1"


def test_a_path_stays_one(tmp_path: Path) -> None:
    assert hub.locate(tmp_path) == tmp_path
    assert hub.locate("hub:x") == Path("hub:x")
    assert hub.find_origin(tmp_path) is None


def test_a_record_pins_whole_commits_only(tmp_path: Path) -> None:
    commit = "0123456789" * 4
    (tmp_path / "finetune.json").write_text(
        json.dumps({"model": "hf:a/b", "model_revision": "../../c", "teacher": "hf:c/d"})
    )
    hub.pin_to_record(tmp_path / "finetune.json")
    assert "hf:a/b" not in hub._pinned
    # A commit that the process has found before gives way to that of the record.
    hub._located["hf:c/d", False] = tmp_path
    record = {"teacher": "hf:c/d", "teacher_revision": commit}
    (tmp_path / "finetune.json").write_text(json.dumps(record))
    hub.pin_to_record(tmp_path / "finetune.json")
    assert hub._pinned.pop("hf:c/d") == commit
    assert ("hf:c/d", False) not in hub._located


def test_a_folder_of_the_cache_says_whose_it_is() -> None:
    commit = "0123456789" * 4
    folder = Path(f"/x/hub/models--a--b--c/snapshots/{commit}")
    assert hub.find_origin(folder) == hub.HubName("a/b--c", commit)


def test_the_published_names_are_those_of_recipes() -> None:
    assert set(HUB_NAMES) <= set(RECIPES)
    for name in HUB_NAMES.values():
        assert hub.parse_name(f"hf:{name}").repository == name


@pytest.mark.parametrize(
    ("recipe", "name"),
    [("albert-base", "albert/albert-base-v2"), ("bert-base", "google-bert/bert-base-uncased")],
)
def test_a_recipe_is_told_from_the_published_model(
    recipe: str, name: str, tiny_tokenizer: Path
) -> None:
    with pytest.raises(ConfigError, match=f"write hf:{name}"):
        load_initial(recipe)
    (note,) = load_initial(recipe, tiny_tokenizer).notes
    assert "untrained" in note
    assert f"hf:{name}" in note


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        (Path("s3://bucket/model"), "cannot be in a store; copy s3://bucket/model to a folder"),
        ("gs://bucket/model", "cannot be in a store; copy gs://bucket/model to a folder"),
        (Path("nowhere/model"), "no folder nowhere/model; for a model of that name"),
    ],
)
def test_a_folder_that_does_not_exist_is_told_from_a_store(
    folder: str | Path, expected: str
) -> None:
    assert expected in str(hub.refuse_missing(folder))
