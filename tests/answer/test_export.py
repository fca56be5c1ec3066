"""`litebert export`: its folder answers as the model does, bit for bit in the same type, from
weights that processes share; and what is wrong leaves nothing behind.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import litebert
from answer.test_engines import ASKED, BYTES, model_folder
from litebert.answer.engines.compiled import CompiledRuntime
from litebert.base.errors import ConfigError, ModelError
from litebert.interop import read_folder
from litebert.interop.names import WEIGHTS
from litebert.kernels import packing
from litebert.kernels.packing import DTYPES, Dtype, count_bytes, pack
from litebert.tasks.rows import PaddedRows
from litebert.tokenizer import Tokenizer
from toys.answers import texts
from toys.families import FAMILIES, build_peer
from toys.finetuning import write_table
from toys.folders import save_litebert, small_tokenizer, tiny
from toys.points import randomize
from toys.refusals import names, refused
from toys.tokenizing import Kind, train

Run = Callable[..., tuple[int, str, str]]
LINES, SHORT = texts(60, most=6), texts(6, most=2)
TYPES: list[Any] = [
    "float32",
    pytest.param(
        "int8", marks=pytest.mark.skipif(not BYTES, reason="this processor multiplies no bytes")
    ),
]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", ASKED)
def test_an_export_answers_as_its_run(
    name: str, dtype: Dtype, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    folder = model_folder(tmp_path / "run", tiny_tokenizer, name)
    litebert.export(folder, tmp_path / "out", dtype=dtype)
    exported, run = litebert.load(tmp_path / "out"), litebert.load(folder, dtype=dtype)
    assert (exported.engine, exported.dtype) == ("compiled", dtype)
    assert exported.task_record == run.task_record
    assert exported.predict(ASKED[name][-1]) == run.predict(ASKED[name][-1])
    np.testing.assert_array_equal(exported.encode(LINES), run.encode(LINES))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("family", ["Albert", "Bert", "Electra", "ModernBert", "Roberta"])
def test_masks_and_vectors_of_every_family(family: str, dtype: Dtype, tmp_path: Path) -> None:
    kinds: dict[str, Kind] = {"Albert": "unigram", "Roberta": "bpe", "ModernBert": "bpe"}
    tokenizer = train(kinds.get(family, "wordpiece"))
    ids = {"pad_token_id": tokenizer.pad_id} if "pad_token_id" in FAMILIES[family] else {}
    build_peer(family, "mlm", vocab_size=tokenizer.vocab_size, **ids).save_pretrained(
        tmp_path / "hf"
    )
    tokenizer.save(tmp_path / "hf")
    litebert.export(tmp_path / "hf", tmp_path / "out", dtype=dtype)
    exported = litebert.load(tmp_path / "out")
    foreign = litebert.load(tmp_path / "hf", dtype=dtype)
    np.testing.assert_array_equal(exported.encode(SHORT), foreign.encode(SHORT))
    for logits, others in zip(exported.logits(SHORT), foreign.logits(SHORT), strict=True):
        np.testing.assert_array_equal(logits, others)
    exact = litebert.load(tmp_path / "hf").logits(SHORT)[0]
    near = 0 if dtype == "float32" else 0.1 * np.abs(exact).max()
    np.testing.assert_allclose(exported.logits(SHORT)[0], exact, atol=near)


@pytest.mark.skipif(not BYTES, reason="this processor multiplies no bytes")
def test_a_generator_fills_masks_from_an_export(tmp_path: Path) -> None:
    model = tiny(("mlm", "rtd"), hidden_size=64, intermediate_size=128)
    randomize(model)
    tokenizer = small_tokenizer()
    save_litebert(model.eval(), tokenizer, tmp_path / "run")
    litebert.export(tmp_path / "run", tmp_path / "out")
    exported, run = litebert.load(tmp_path / "out"), litebert.load(tmp_path / "run", dtype="int8")
    for logits, others in zip(exported.logits(SHORT), run.logits(SHORT), strict=True):
        np.testing.assert_array_equal(logits, others)


def test_in_half_the_bits_the_file_has_half_the_size(tiny_tokenizer: Path, tmp_path: Path) -> None:
    """A processor that does not multiply bfloat16 answers in float32 with what the file has."""
    torch.manual_seed(0)
    folder = model_folder(tmp_path / "run", tiny_tokenizer, "classes")
    sizes = {dtype: litebert.export(folder, tmp_path / dtype, dtype=dtype).size for dtype in DTYPES}
    weights = {dtype: read_folder(tmp_path / dtype).read_weights() for dtype in DTYPES}
    packed = [name for name in weights["float32"] if packing.in_panels(name)]
    assert len(packed) == 4, "the layers share them"
    steps: dict[Dtype, float] = {"bfloat16": 2**-8, "int8": 1 / 254}
    for dtype, step in steps.items():
        for name, exact in weights["float32"].items():
            gaps = np.abs(weights[dtype][name] - exact)
            is_packed = name in packed or packing.is_table(name)
            assert (gaps <= 1.001 * step * is_packed * np.abs(exact).max()).all(), name
    assert sizes["int8"] < sizes["bfloat16"] < sizes["float32"]
    exact = litebert.load(folder).encode(LINES)
    for dtype in DTYPES:
        vectors = litebert.load(tmp_path / dtype).encode(LINES)
        np.testing.assert_allclose(vectors, exact, atol=0.05 * np.abs(exact).max())


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_packed_weight_is_the_weight(dtype: Dtype) -> None:
    draw = np.random.default_rng(0)
    for rows, wide in [(1, 4), (16, 8), (33, 4), (40, 60), (96, 64)]:
        weight = draw.normal(size=(rows, wide)).astype(np.float32)
        for is_table in (False, True):
            packed = pack(weight, dtype, is_table)
            assert packed.data.shape == count_bytes(weight.shape, dtype, is_table)
            gaps = np.abs(packed.unpack() - weight)
            assert (gaps <= {"float32": 0, "bfloat16": 2**-8, "int8": 1 / 253}[dtype] * 5).all()
        cut = pack(weight, dtype).rows(16, 32) if rows >= 32 else None
        if cut is not None:
            part = cut if isinstance(cut, np.ndarray) else cut.unpack()
            np.testing.assert_array_equal(part, pack(weight, dtype).unpack()[16:32])


@pytest.mark.skipif(sys.platform != "linux", reason="reads the maps of a process of Linux")
def test_weights_stay_in_the_file(tmp_path: Path) -> None:
    """So all processes share them, and none copies them."""
    model = tiny(("mlm",), hidden_size=128, intermediate_size=512, embedding_size=128)
    save_litebert(model.eval(), None, tmp_path / "run")
    litebert.export(tmp_path / "run", tmp_path / "out", dtype="float32")
    exported = litebert.load(tmp_path / "out")
    network = exported.runtime.network  # type: ignore[attr-defined]
    spans = [
        [int(end, 16) for end in line.split()[0].split("-")]
        for line in Path("/proc/self/maps").read_text().splitlines()
        if line.endswith(str(tmp_path / "out" / WEIGHTS))
    ]
    held = [array for array in network._held if getattr(array, "nbytes", 0) >= 4 * 128 * 128]
    assert len(held) > 4
    for array in held:
        assert any(begin <= array.ctypes.data < end for begin, end in spans)
        assert array.ctypes.data % 64 == 0 or array.shape[0] == model.config.encoder.vocab_size


def test_other_engines_read_an_export(tiny_tokenizer: Path, tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "run", tiny_tokenizer, "classes")
    litebert.export(folder, tmp_path / "out")
    given, exact = (litebert.load(tmp_path / "out", engine="torch"), litebert.load(folder))
    for answer, other in zip(given.predict(LINES), exact.predict(LINES), strict=True):
        assert answer["probabilities"] == pytest.approx(other["probabilities"], abs=0.05)


def test_a_damaged_export_is_one_sentence(tiny_tokenizer: Path, tmp_path: Path, run: Run) -> None:
    folder = model_folder(tmp_path / "run", tiny_tokenizer, "classes")
    litebert.export(folder, tmp_path / "out")
    file = tmp_path / "out" / WEIGHTS
    whole = file.read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")
    (tmp_path / "in.txt").write_text("\n".join(LINES))

    def refuse(content: bytes) -> str:
        file.write_bytes(content)
        status, out, err = run("predict", tmp_path / "out", "--input", tmp_path / "in.txt")
        assert (status, out) == (2, "")
        names(err, file)
        return err

    for size in (0, 7, 8, start - 1, start, start + 1, len(whole) // 2, len(whole) - 1):
        refuse(whole[:size])
    draw = np.random.default_rng(0)
    for place in draw.integers(start, len(whole), 20):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << int(draw.integers(8))
        refuse(bytes(flipped))

    def rewrite(old: bytes, new: bytes) -> bytes:
        assert old in whole[:start]
        return whole.replace(old, new.ljust(len(old)), 1)

    version = rb"\\\"version\\\": 1"
    assert "2" in refuse(
        rewrite(version.replace(rb"\\\"", b'\\\\\\"'), b'\\\\\\"version\\\\\\": 2')
    )
    shape = re.search(rb"encoder.embedding.word.weight[^\[]*\[(\d+), 8\]", whole[:start])
    assert shape is not None
    refuse(rewrite(shape[0], shape[0].replace(b" 8]", b" 9]")))
    file.write_bytes(whole)
    assert len(litebert.load(tmp_path / "out").predict(LINES)) == len(LINES)


def test_fewer_bits_are_measured_on_labeled_files(
    tiny_tokenizer: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = model_folder(tmp_path / "run", tiny_tokenizer, "classes")
    answers = litebert.load(folder).predict(LINES)
    rows = [f"{text},{answer['prediction']}" for text, answer in zip(LINES, answers, strict=True)]
    data = tmp_path / "own.csv"
    data.write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    status, out, err = run("export", folder, "--out", tmp_path / "a", "--data", data, "--json")
    assert status == 0, err
    report = json.loads(out)
    assert report["size"] == (tmp_path / "a" / WEIGHTS).stat().st_size
    assert report["drop"]["before"] == 100
    scores = litebert.evaluate(litebert.load(tmp_path / "a"), data=data).scores
    assert report["drop"]["after"] == pytest.approx(100 * scores["accuracy"])
    status, out, err = run("export", folder, "--out", tmp_path / "b")
    assert (status, "not measured" in err, "accuracy" in out) == (0, True, False)

    right = CompiledRuntime.logits

    def answer(self: CompiledRuntime, rows: PaddedRows) -> Any:
        return right(self, rows) * (-1 if self.network.dtype == "int8" else 1)

    monkeypatch.setattr(CompiledRuntime, "logits", answer)
    status, out, err = run("export", folder, "--out", tmp_path / "c", "--data", data)
    assert (status, out) == (2, "")
    names(err, "0.5", "accuracy", "100.00", "0.00", "--max-drop")
    assert not (tmp_path / "c").exists()


def test_what_cannot_be_is_refused(
    tiny_tokenizer: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, table = (
        model_folder(tmp_path / "run", tiny_tokenizer, "classes"),
        write_table(tmp_path / "labeled.csv", 4),
    )
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    for words, places in {
        ("--out", tmp_path / "taken"): (tmp_path / "taken",),
        ("--out", tmp_path / "out", "--head", "backbone"): ("--head", "--format onnx"),
        ("--out", tmp_path / "out", "--dtype", "float32", "--data", table): ("--dtype", "--data"),
        ("--out", tmp_path / "out", "--data", tmp_path / "gone.csv"): (tmp_path / "gone.csv",),
        ("--out", tmp_path / "out", "--data", table, "--max-drop", "-1"): ("-1.0",),
        ("--out", tmp_path / "out", "--format", "onnx", "--dtype", "bfloat16"): ("bfloat16",),
    }.items():
        status, out, err = run("export", folder, *words)
        assert (status, out) == (2, "")
        names(err, *places)
    with refused(ModelError, tmp_path / "gone"):
        litebert.export(tmp_path / "gone", tmp_path / "out")
    save_litebert(tiny(("mlm",), hidden_size=18, heads=3).eval(), None, tmp_path / "odd")
    with refused(ConfigError, "int8", "4 divides", "--dtype"):
        litebert.export(tmp_path / "odd", tmp_path / "out")
    litebert.export(tmp_path / "odd", tmp_path / "half", dtype="bfloat16")
    assert not (tmp_path / "out").exists()


def test_an_export_is_a_folder_of_its_own(tiny_tokenizer: Path, tmp_path: Path) -> None:
    """It needs nothing of the run, and an export of it, or a litebert folder, keeps its numbers."""
    folder = model_folder(tmp_path / "run", tiny_tokenizer, "classes")
    litebert.export(folder, tmp_path / "out")
    expected = litebert.load(tmp_path / "out").predict(LINES)
    folder.rename(tmp_path / "elsewhere")
    litebert.export(tmp_path / "out", tmp_path / "again")
    assert litebert.load(tmp_path / "again").predict(LINES) == expected
    assert Tokenizer.load(tmp_path / "out").encode(LINES)
    assert (tmp_path / "out" / "README.md").is_file()
