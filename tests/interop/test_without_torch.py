"""Folders of all families are read without torch, to the bits that torch reads."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from litebert import load
from litebert.interop import read_folder
from litebert.interop.files import read_weights
from toys.families import FAMILIES, HEADS, build_litebert, build_peer
from toys.folders import save_hf, write_shards

READ = """
import sys
from pathlib import Path
import numpy as np
from litebert.interop.hf.reading import read_contents

for folder in map(Path, sys.argv[1:]):
    contents = read_contents(folder, "tokens")
    beside = {
        f"objectives.{objective}.{name}": array
        for objective, weights in contents.beside.items()
        for name, array in weights.items()
    }
    np.savez(folder / "read.npz", **contents.weights, **beside)
    print(contents.config.encoder)
assert "torch" not in sys.modules
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A folder for every class of every family, in every type of weights, and one with a file
    beside its weights.
    """
    root = tmp_path_factory.mktemp("folders")
    made = []
    types = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
    for family in FAMILIES:
        for head, kind in zip(HEADS[family], 2 * types, strict=False):
            folder = root / f"{family}-{head}"
            build_peer(family, head).to(kind).save_pretrained(folder)
            made.append(folder)
    write_shards(made[0])
    spans: dict[str, Any] = {"sharing": "none", "embedding_size": 32}
    save_hf(build_litebert(("mlm", "sbo"), **spans), None, root / "spans")
    return [*made, root / "spans"]


def test_every_class_of_every_family(folders: list[Path]) -> None:
    program = [sys.executable, "-c", READ, *map(str, folders)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    configs = done.stdout.splitlines()
    for folder, config in zip(folders, configs, strict=True):
        loaded = read_folder(folder, "tokens")
        assert config == str(loaded.config.encoder)
        arrays = np.load(folder / "read.npz")
        skipped = tuple(f"objectives.{name}." for name in loaded.untrained)
        state = {
            name: tensor
            for name, tensor in loaded.model.state_dict().items()
            if not name.startswith(skipped)
        }
        assert {*arrays} == state.keys(), folder
        for name, tensor in state.items():
            assert arrays[name].dtype == np.float32
            assert np.array_equal(arrays[name], tensor.numpy()), (folder, name)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_numbers_are_those_that_torch_reads(kind: torch.dtype, tmp_path: Path) -> None:
    build_peer("Bert", "backbone").to(kind).save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    assert {tensor.dtype for tensor in tensors.values()} == {kind}
    state = read_folder(tmp_path).model.state_dict()
    widened = tensors["embeddings.word_embeddings.weight"].float()
    assert torch.equal(state["encoder.embedding.word.weight"], widened)


def test_places_of_any_alignment(tmp_path: Path) -> None:
    """Other programs may write an odd number of bytes before the weights."""
    build_peer("Bert", "pretraining").save_pretrained(tmp_path)
    expected = read_folder(tmp_path).model.state_dict()
    file = tmp_path / "model.safetensors"
    size = int.from_bytes(file.read_bytes()[:8], "little")
    header, data = file.read_bytes()[8 : 8 + size].rstrip(), file.read_bytes()[8 + size :]
    odd = header + b" " * (1 + len(header) % 2)
    file.write_bytes(len(odd).to_bytes(8, "little") + odd + data)
    state = read_folder(tmp_path).model.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in expected.items())


def test_a_constant_of_old_files_is_left_out(tmp_path: Path) -> None:
    build_peer("Bert", "pretraining").save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    expected = read_folder(tmp_path).model.state_dict()
    constants = {
        "bert.embeddings.position_ids": torch.arange(16)[None],
        "bert.embeddings.token_type_ids": torch.zeros(1, 16),
    }
    save_file({**load_file(file), **constants}, file, {"format": "pt"})
    state = read_folder(tmp_path).model.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in expected.items())


def test_a_folder_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_peer("Bert", "sequence").save_pretrained(tmp_path)
    files = list[Path]()

    def read(file: Path) -> dict[str, NDArray[np.float32]]:
        files.append(file)
        return read_weights(file)

    monkeypatch.setattr("litebert.interop.hf.reading.read_weights", read)
    for engine in ("compiled", "torch"):
        opened = load(tmp_path, engine=engine)
        assert len(files) == 1
        files.clear()
    again = pickle.loads(pickle.dumps(opened))
    assert again.task_record == load(tmp_path).task_record
