"""Weights in several files, and under the names that DataParallel gives them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from litebert import load
from litebert.base.errors import ModelError
from litebert.change.conversion import convert
from toys.folders import save_hf, small_tokenizer, tiny, write_shards
from toys.refusals import refused

INDEX = "model.safetensors.index.json"
FIRST = "model-00001-of-00003.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = tiny(("mlm",), sharing="none", embedding_size=8)
    save_hf(model, small_tokenizer(), tmp_path / "hf")
    return tmp_path / "hf"


def convert_to_tensors(folder: Path, out: Path) -> dict[str, torch.Tensor]:
    convert(folder, out, to="litebert")
    return load_file(out / "model.safetensors")


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) for name in first
    )


def test_shards_are_the_model_of_the_one_file(folder: Path, tmp_path: Path) -> None:
    whole = convert_to_tensors(folder, tmp_path / "whole")
    write_shards(folder)
    assert same(whole, convert_to_tensors(folder, tmp_path / "shards"))


@pytest.mark.parametrize("ending", ["safetensors", "bin"])
def test_shards_that_save_pretrained_writes(ending: str, folder: Path, tmp_path: Path) -> None:
    whole = convert_to_tensors(folder, tmp_path / "whole")
    shutil.copytree(folder, tmp_path / "shards")
    (tmp_path / "shards" / "model.safetensors").unlink()
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder)
    model.save_pretrained(tmp_path / "shards", max_shard_size="1KB")
    assert (tmp_path / "shards" / INDEX).is_file()
    if ending == "bin":
        index = json.loads((tmp_path / "shards" / INDEX).read_text())
        for name in set(index["weight_map"].values()):
            file = tmp_path / "shards" / name
            pickled = name.replace("model-", "pytorch_model-").replace("safetensors", "bin")
            torch.save(load_file(file), file.with_name(pickled))
            file.unlink()
        (tmp_path / "shards" / INDEX).unlink()
        index["weight_map"] = {
            tensor: name.replace("model-", "pytorch_model-").replace("safetensors", "bin")
            for tensor, name in index["weight_map"].items()
        }
        listed = tmp_path / "shards" / "pytorch_model.bin.index.json"
        listed.write_text(json.dumps(index))
    assert same(whole, convert_to_tensors(tmp_path / "shards", tmp_path / "read"))


def _change(**fields: Any) -> Callable[[Path], object]:
    return lambda folder: (folder / INDEX).write_text(json.dumps(fields))


def _lose_a_tensor(folder: Path) -> None:
    tensors = load_file(folder / FIRST)
    tensors.popitem()
    save_file(tensors, folder / FIRST)


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (lambda folder: (folder / INDEX).unlink(), (INDEX, FIRST)),
        (lambda folder: (folder / FIRST).unlink(), (FIRST, INDEX)),
        (lambda folder: (folder / FIRST).write_bytes(b"x"), (FIRST,)),
        (_lose_a_tensor, (FIRST, INDEX)),
        (_change(), (INDEX, "weight_map")),
        (_change(weight_map=[1]), (INDEX, "weight_map")),
        (_change(weight_map={"a": "../" + FIRST}), (INDEX, "../" + FIRST)),
        (_change(weight_map={"a": "pytorch_model-00001-of-00002.bin"}), (INDEX, ".bin")),
        (_change(weight_map={"a": 3}), (INDEX, "3")),
    ],
)
def test_broken_shards(
    spoil: Callable[[Path], object], named: tuple[str, ...], folder: Path
) -> None:
    write_shards(folder)
    spoil(folder)
    with refused(ModelError, *named):
        load(folder).model  # noqa: B018


def test_names_of_data_parallel(folder: Path, tmp_path: Path) -> None:
    whole = convert_to_tensors(folder, tmp_path / "whole")
    file = folder / "model.safetensors"
    tensors = {f"module.{name}": tensor for name, tensor in load_file(file).items()}
    save_file(tensors, file)
    assert same(whole, convert_to_tensors(folder, tmp_path / "parallel"))


def test_one_name_of_data_parallel_is_no_model(folder: Path) -> None:
    file = folder / "model.safetensors"
    tensors = load_file(file)
    name = next(iter(tensors))
    tensors[f"module.{name}"] = tensors.pop(name)
    save_file(tensors, file)
    with refused(ModelError, str(file), name):
        load(folder).model  # noqa: B018
