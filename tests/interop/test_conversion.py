"""`litebert convert` as a user types it: names as `transformers` writes them, modules, labels,
destinations.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers
from safetensors.torch import load_file

from litebert.model.task_model import TaskModel
from toys.families import FAMILIES, build_peer, complaints
from toys.folders import save_hf, save_litebert, tiny
from toys.killed import leave_unfinished
from toys.refusals import names

Output = tuple[int, str, str]
MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_backbone_has_the_names_that_its_class_writes(
    family: str, run: Callable[..., Output], tmp_path: Path
) -> None:
    model = build_peer(family, "backbone")
    model.save_pretrained(tmp_path / "theirs")
    assert run("convert", tmp_path / "theirs", "--out", tmp_path / "back", "--to", "hf")[0] == 0
    again = load_file(tmp_path / "back" / "model.safetensors")
    assert again.keys() == load_file(tmp_path / "theirs" / "model.safetensors").keys()
    with complaints() as heard:
        _, report = type(model).from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not heard
    assert not any(report.values()), report
    config = json.loads((tmp_path / "back" / "config.json").read_text())
    assert config["architectures"] == [type(model).__name__]


def sentence_model(folder: Path) -> Path:
    """A folder as sentence-transformers lays it out."""
    build_peer("Bert", "backbone").save_pretrained(folder)
    (folder / "modules.json").write_text(json.dumps(MODULES))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 12}')
    return folder


def test_modules_of_sentence_transformers_go_there_and_back(
    run: Callable[..., Output], tmp_path: Path
) -> None:
    source = sentence_model(tmp_path / "source")
    for first, second, to in (("source", "own", "litebert"), ("own", "back", "hf")):
        status, _, err = run("convert", tmp_path / first, "--out", tmp_path / second, "--to", to)
        assert status == 0
        for name in ("modules.json", "1_Pooling", "sentence_bert_config.json"):
            assert err.count(name) == 1
        assert ", ," not in err, "the encoder has an empty path"
    for name in ("modules.json", "1_Pooling/config.json", "sentence_bert_config.json"):
        assert (tmp_path / "back" / name).read_bytes() == (source / name).read_bytes()


@pytest.mark.parametrize(
    ("modules", "copied"),
    [
        ([{"path": "../secret"}, {"path": "/etc"}, {"path": ".."}, {"path": 1}, {}, 3], []),
        ({"path": "1_Pooling"}, []),
        ([{"path": "1_Pooling"}, {"path": "1_Pooling"}, {"path": "gone"}], ["1_Pooling"]),
    ],
)
def test_nothing_outside_the_folder_is_copied(
    modules: Any, copied: list[str], run: Callable[..., Output], tmp_path: Path
) -> None:
    folder = sentence_model(tmp_path / "source")
    (tmp_path / "secret").mkdir()
    (folder / "modules.json").write_text(json.dumps(modules))
    assert run("convert", folder, "--out", tmp_path / "own", "--to", "litebert")[0] == 0
    assert [path.name for path in (tmp_path / "own").iterdir() if path.is_dir()] == copied


def test_broken_modules_are_refused(run: Callable[..., Output], tmp_path: Path) -> None:
    folder = sentence_model(tmp_path / "source")
    (folder / "modules.json").write_text("[{")
    status, _, err = run("convert", folder, "--out", tmp_path / "own", "--to", "litebert")
    assert status == 2
    names(err, folder / "modules.json")


def test_labels_that_do_not_name_each_number_are_left_out(
    run: Callable[..., Output], tmp_path: Path
) -> None:
    """An output of one's own may give fewer numbers than it has labels."""
    shape: dict[str, Any] = {"sharing": "none", "embedding_size": 8}
    model = TaskModel(tiny(("mlm",), **shape).encoder.config, True, 2)
    save_hf(
        model,
        None,
        tmp_path / "hf",
        labels=("bad", "fair", "good"),
        task={"kind": "sequence", "length": 16},
    )
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert config["id2label"] == {"0": "LABEL_0", "1": "LABEL_1"}
    with complaints() as heard:
        transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "hf")
    assert not heard
    notes = save_hf(
        model, None, tmp_path / "x", labels=("bad", "fair", "good"), task={"kind": "sequence"}
    )
    names(notes[-1], "bad", "fair", "good", 2)


def test_destinations(run: Callable[..., Output], tmp_path: Path) -> None:
    source, other, file = tmp_path / "m", tmp_path / "other", tmp_path / "file"
    save_litebert(tiny(), None, source)
    other.mkdir()
    (other / "kept").write_text("x")
    file.write_text("x")
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
    for destination in (other, file, source, source / "hf", source / "deep" / "hf", file / "under"):
        for to in ("hf", "litebert"):
            status, out, err = run("convert", source, "--out", destination, "--to", to)
            assert (status, out) == (2, "")
            names(err, destination)
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == before
    left = leave_unfinished(tmp_path / "new")
    assert run("convert", source, "--out", tmp_path / "new", "--to", "hf")[0] == 0
    assert not left.exists()
    shutil.rmtree(tmp_path / "new")
    assert run("convert", source, "--out", tmp_path / "a" / "b" / "new", "--to", "hf")[0] == 0
