"""Graphs of models: made once, checked whenever they are opened, and made again where the disk
damaged them.
"""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest

import litebert
from answer.test_engines import LINES, PACKAGES, model_folder, needs, same
from litebert.answer.engines import graphs
from litebert.answer.engines.graphs import FOLDER
from litebert.answer.export import export
from litebert.base.errors import ModelError
from toys.refusals import names, refused


def test_a_graph_is_written_once_for_the_same_weights(tiny_tokenizer: Path, tmp_path: Path) -> None:
    needs("onnx")
    folder = model_folder(tmp_path / "m", tiny_tokenizer, "classes")
    litebert.load(folder, engine="onnx").predict(LINES)
    (file,) = (folder / FOLDER).glob("*.onnx")
    before = file.stat().st_mtime_ns
    litebert.load(folder, engine="onnx").predict(LINES)
    assert file.stat().st_mtime_ns == before
    other = litebert.load(model_folder(tmp_path / "other", tiny_tokenizer, "pairs"))
    os.replace(other.path / "model.safetensors", folder / "model.safetensors.new")
    (folder / "model.safetensors").write_bytes(
        (folder / "model.safetensors").read_bytes() + b" "
    )  # other content
    litebert.load(folder, engine="onnx")
    assert file.exists()


def test_what_two_make_at_once_is_written_once(tiny_tokenizer: Path, tmp_path: Path) -> None:
    model = litebert.load(model_folder(tmp_path / "m", tiny_tokenizer, "classes"))
    written = list[Path]()

    def write(file: Path) -> None:
        written.append(file)
        with open(file, "w") as part:
            for letter in "abc":
                part.write(letter)
                part.flush()
                time.sleep(0.02)  # the other one finds the file unfinished

    with ThreadPoolExecutor(2) as both:
        files = list(both.map(lambda _: graphs.make_once(model, ".part", write), range(2)))
    assert len(written) == 1
    assert files[0] == files[1]
    assert files[0].read_text() == "abc"


@pytest.mark.parametrize("damage", ["byte", "cut", "record"])
def test_a_kept_graph_that_is_damaged_is_made_again(
    damage: str, tiny_tokenizer: Path, tmp_path: Path, log_messages: list[str]
) -> None:
    needs("onnx")
    folder = model_folder(tmp_path / "m", tiny_tokenizer, "classes")
    expected = litebert.load(folder, engine="onnx").predict(LINES)
    (graph,) = (folder / FOLDER).glob("*.onnx")
    whole = graph.read_bytes()
    if damage == "record":
        graph.with_name(f"{graph.name}.sha256").write_bytes(b"\xff")
    else:  # the exponent of a weight in the middle of the file, or half of the file
        place = len(whole) // 2 // 4 * 4 + 3
        graph.write_bytes(
            whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
            if damage == "byte"
            else b""
        )
    log_messages.clear()
    same(litebert.load(folder, engine="onnx").predict(LINES), expected)
    assert graph.read_bytes() == whole
    names(next(line for line in log_messages if str(graph) in line), graph)


def test_a_graph_whose_answers_are_no_numbers_is_refused(
    tiny_tokenizer: Path, tmp_path: Path
) -> None:
    needs("onnx")
    folder = model_folder(tmp_path / "m", tiny_tokenizer, "classes")
    export(folder, tmp_path / "out", format="onnx")
    graph = onnx.load(tmp_path / "out/model.onnx")
    bias = next(tensor for tensor in graph.graph.initializer if tensor.dims == [3])
    bias.raw_data = np.array([0, np.nan, 0], np.float32).tobytes()
    onnx.save(graph, tmp_path / "out/model.onnx")
    with refused(ModelError, tmp_path / "out", "model.onnx"):  # for it is not what was written
        litebert.load(tmp_path / "out").predict(LINES)
    with refused(ModelError, tmp_path / "out", "model.onnx"):
        _ = litebert.load(tmp_path / "out").runtime
    (tmp_path / "out/digests.json").unlink()  # as where the graph was changed on purpose
    for engine in PACKAGES:
        needs(engine)
        with refused(ModelError, tmp_path / "out/model.onnx"):
            litebert.load(tmp_path / "out", engine=engine).predict(LINES)


def test_a_backup_beside_a_graph_is_no_part_of_it(tiny_tokenizer: Path, tmp_path: Path) -> None:
    needs("onnx")
    folder = model_folder(tmp_path / "m", tiny_tokenizer, "classes")
    export(folder, tmp_path / "out", format="onnx")
    expected = litebert.load(tmp_path / "out").predict(LINES)
    (tmp_path / "out/model.onnx.bak").write_bytes(b"of another model")
    same(litebert.load(tmp_path / "out").predict(LINES), expected)
    digests = tmp_path / "out/digests.json"
    record = json.loads(digests.read_text())
    record["files"]["model.onnx_data"] = record["files"]["model.onnx"]
    digests.write_text(json.dumps(record))
    with refused(ModelError, tmp_path / "out", "model.onnx_data"):  # it was there, and is lost
        litebert.load(tmp_path / "out").predict(LINES)


def test_a_folder_that_cannot_be_written_answers_too(
    tiny_tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("onnx")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = model_folder(tmp_path / "m", tiny_tokenizer, "classes")
    expected = litebert.load(folder).predict(LINES)
    (folder / FOLDER).touch()  # no folder can be made there, whoever asks
    same(litebert.load(folder, engine="onnx").predict(LINES), expected)
    assert list((tmp_path / "cache" / "litebert" / "answering").iterdir())
