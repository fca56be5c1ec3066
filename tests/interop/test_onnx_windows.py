"""Graphs of networks with windows: the answers of PyTorch, in values that grow with the length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray

import litebert
from litebert.interop.onnx.session import session
from toys.folders import save_litebert, tiny
from toys.points import randomize

WINDOW, BLOCK, LONGEST = 20, 64, 2048


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network whose layers are all windowed, exported as its states."""
    fields = {"window": WINDOW, "global_every": 0, "positions": "rotary", "norm": "pre"}
    model = tiny(("mlm",), max_positions=LONGEST, pooler=False, layers=3, **fields)
    randomize(model)
    path = tmp_path_factory.mktemp("windows")
    save_litebert(model.eval(), None, path / "ours")
    litebert.export(path / "ours", path / "exported", head="backbone", format="onnx")
    return path


def make_rows(rows: int, length: int) -> dict[str, NDArray[np.int64]]:
    ids = np.random.default_rng(length).integers(0, 40, (rows, length))
    mask = np.arange(length) < length // np.arange(1, rows + 1)[:, None]
    return {"input_ids": ids, "attention_mask": mask.astype(np.int64)}


@pytest.mark.parametrize(
    ("rows", "length"),
    [(1, 1), (2, WINDOW), (2, 4 * BLOCK), (2, 4 * BLOCK + 1), (3, 333), (1, 512), (2, LONGEST)],
)
def test_the_graph_gives_the_states_of_pytorch(folder: Path, rows: int, length: int) -> None:
    inputs = make_rows(rows, length)
    running = session(folder / "exported" / "model.onnx")
    rows_by_name = {
        value.name: inputs.get(value.name, np.zeros((rows, length), np.int64))
        for value in running.get_inputs()
    }
    encoder = litebert.load(folder / "ours").model.eval().encoder
    with torch.no_grad():
        ids, mask = (torch.from_numpy(inputs[name]) for name in ("input_ids", "attention_mask"))
        expected = encoder(ids, None, mask).last.numpy()
    real = inputs["attention_mask"] > 0
    (actual,) = running.run(None, rows_by_name)
    np.testing.assert_allclose(actual[real], expected[real], atol=1e-5)


def test_the_largest_value_of_the_graph_grows_with_the_length(folder: Path, tmp_path: Path) -> None:
    def largest(length: int) -> int:
        model = onnx.load(folder / "exported" / "model.onnx")
        names = [name for node in model.graph.node for name in node.output]
        added = {value.name for value in model.graph.output}
        model.graph.output.extend(
            onnx.helper.make_empty_tensor_value_info(name) for name in names if name not in added
        )
        onnx.save(model, tmp_path / "all.onnx")
        running = session(tmp_path / "all.onnx")
        inputs: dict[str, Any] = {
            value.name: np.ones((1, length), np.int64) for value in running.get_inputs()
        }
        return max(int(array.size) for array in running.run(None, inputs))

    assert largest(LONGEST) == 2 * LONGEST * 2 * BLOCK  # scores of two heads
    assert largest(LONGEST) == 2 * largest(LONGEST // 2)
