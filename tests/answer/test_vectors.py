"""Sentence vectors: parity with `transformers`, the formats of `litebert embed`, int8, exports,
foreign folders.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

import litebert
from answer.test_engines import BYTES
from litebert.answer import vectors as module
from litebert.answer.engines.runtime import Capabilities, Runtime
from litebert.answer.vector_files import embed_file
from litebert.base.errors import ModelError
from litebert.base.registry import ENGINES
from litebert.config import Config, Pooling, SequenceConfig
from litebert.interop.loaded import LoadedModel, VectorMap
from litebert.interop.onnx.folder import save_onnx
from litebert.interop.sentence_modules import read_dense
from litebert.kernels.packing import DTYPES, Dtype
from litebert.model.pretrainer import Pretrainer
from litebert.model.task_model import TaskModel
from litebert.tasks.rows import PaddedRows
from litebert.tokenizer import Tokenizer
from toys.answers import made
from toys.families import build_peer
from toys.folders import load_module, save_litebert
from toys.points import randomize, shape
from toys.refusals import names, refused

Run = Callable[..., tuple[int, str, str]]
TEXTS = ["bado toto kumi.", "kumi", "Kumi mimi lala so ti bado, kumi!", "fa so", "la ti bado"] * 3


@pytest.fixture(scope="module")
def folder(tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model as `--task pairs` leaves it."""
    words = Tokenizer.load(tiny_tokenizer)
    model = TaskModel(shape(vocab_size=words.vocab_size, pooler=False), False, 0).eval()
    randomize(model, scale=0.15)
    place = tmp_path_factory.mktemp("vectors") / "pairs"
    task = {
        "task": "pairs",
        "kind": "backbone",
        "problem": "similarity",
        "length": 16,
        "pair": True,
        "vectors": {"pooling": "mean", "normalized": True},
    }
    save_litebert(model, words, place, task=task)
    return place


@torch.no_grad()
def encode_with_peer(hf: Path, pooling: str = "mean") -> NDArray[np.float32]:
    """Vectors of transformers, with what sentence-transformers does after it by hand."""
    import transformers

    model = transformers.AutoModel.from_pretrained(hf).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(hf)
    batch = tokenizer(TEXTS, padding=True, truncation=True, return_tensors="pt")
    states, real = model(**batch).last_hidden_state, batch["attention_mask"][..., None]
    vectors: NDArray[np.float32] = (
        states[:, 0] if pooling == "cls" else (states * real).sum(1) / real.sum(1)
    ).numpy()
    return vectors


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    normalized: NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return normalized


def test_a_model_of_vectors_everywhere(
    folder: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", 4)
    assert run("convert", folder, "--out", tmp_path / "hf", "--to", "hf")[0] == 0
    for name in (
        "modules.json",
        "1_Pooling/config.json",
        "2_Normalize",
        "sentence_bert_config.json",
    ):
        assert (tmp_path / "hf" / name).exists()
    kinds = [
        module["type"].rpartition(".")[2]
        for module in json.loads((tmp_path / "hf" / "modules.json").read_text())
    ]
    assert kinds == ["Transformer", "Pooling", "Normalize"]
    assert (
        json.loads((tmp_path / "hf" / "sentence_bert_config.json").read_text())["max_seq_length"]
        == 16
    )
    save_onnx(litebert.load(folder), tmp_path / "onnx")
    wanted = unit(encode_with_peer(tmp_path / "hf"))
    for place in (folder, tmp_path / "hf", tmp_path / "onnx"):
        np.testing.assert_allclose(litebert.load(place).encode(TEXTS), wanted, atol=1e-5)
    assert run("convert", tmp_path / "hf", "--out", tmp_path / "own", "--to", "litebert")[0] == 0
    np.testing.assert_allclose(litebert.load(tmp_path / "own").encode(TEXTS), wanted, atol=1e-5)
    plain = litebert.load(folder).vectors_by("cls", False).encode(TEXTS)
    np.testing.assert_allclose(plain, encode_with_peer(tmp_path / "hf", "cls"), atol=1e-5)
    pairs = list(pairwise(TEXTS))
    for engine in ("compiled", "torch"):
        answers = litebert.load(folder, engine=engine).predict(pairs)
        cosines = (wanted[:-1] * wanted[1:]).sum(1)
        np.testing.assert_allclose([answer["prediction"] for answer in answers], cosines, atol=1e-5)
    answers = litebert.load(tmp_path / "onnx").predict(pairs)
    np.testing.assert_allclose([answer["prediction"] for answer in answers], cosines, atol=1e-5)


def test_formats(folder: Path, tmp_path: Path, run: Run) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(
        "".join(json.dumps({"text": text, "id": i}) + "\n" for i, text in enumerate(TEXTS))
    )
    vectors: dict[str, Any] = {}
    for name, words in {
        "a.npy": (),
        "a.parquet": ("--keep", "id"),
        "a.jsonl": ("--keep", "id"),
        "b.npy": ("--vector-dtype", "int8"),
        "b.parquet": ("--vector-dtype", "int8", "--keep", "id"),
        "b.jsonl": ("--vector-dtype", "int8", "--keep", "id"),
    }.items():
        status, _, err = run("embed", folder, "--input", source, "--out", tmp_path / name, *words)
        assert status == 0, err
        if name.endswith(".npy"):
            vectors[name] = np.load(tmp_path / name)
            continue
        table = (
            pq.read_table(tmp_path / name).to_pylist()
            if name.endswith(".parquet")
            else [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        )
        assert [row["id"] for row in table] == list(range(len(TEXTS)))
        vectors[name] = np.array([row["vector"] for row in table])
    wanted = litebert.load(folder).encode(TEXTS)
    assert vectors["a.npy"].dtype == np.float32
    assert vectors["b.npy"].dtype == np.int8
    for name in ("a.npy", "a.parquet", "a.jsonl"):
        np.testing.assert_allclose(vectors[name], wanted, atol=1e-6)
    scale, offset = np.load(tmp_path / "b.scale.npy")
    for name in ("b.npy", "b.parquet", "b.jsonl"):
        np.testing.assert_array_equal(vectors[name], vectors["b.npy"])
        assert (np.abs(vectors[name] * scale + offset - wanted) <= 0.51 * scale).all(), (
            "half a step"
        )
    np.testing.assert_allclose(scale, (wanted.max(0) - wanted.min(0)) / 255, rtol=1e-4)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [*vectors, "b.scale.npy", "in.jsonl"]
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills and forks are POSIX's")
@pytest.mark.parametrize("name", ["v.npy", "v.parquet", "v.jsonl"])
def test_vectors_never_meet_the_scale_of_others(folder: Path, tmp_path: Path, name: str) -> None:
    """However many names were changed when the process was killed."""
    model, out, scale = litebert.load(folder), tmp_path / name, tmp_path / "v.scale.npy"
    pairs = []
    for number in (0, 1):
        source = tmp_path / f"{number}.txt"
        source.write_text("\n".join(TEXTS[number : number + 4]))
        embed_file(model, source, out, dtype="int8")
        pairs.append((out.read_bytes(), scale.read_bytes()))
    assert pairs[0][0] != pairs[1][0]
    assert pairs[0][1] != pairs[1][1]
    for kill in itertools.count(1):
        if not (child := os.fork()):
            calls, replace = itertools.count(1), os.replace

            def deadly(*names: Any, calls: Any = calls, replace: Any = replace) -> None:
                replace(*names)
                if next(calls) == kill:  # noqa: B023 - in this round's child alone
                    os.kill(os.getpid(), signal.SIGKILL)

            os.replace = deadly  # type: ignore[assignment]
            embed_file(model, tmp_path / "0.txt", out, dtype="int8")
            os._exit(0)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        found = (out.read_bytes(), scale.read_bytes() if scale.exists() else b"")
        assert found in pairs or not found[1], f"mixed after {kill} new names"
        if ended:
            break
    assert (kill, found) == (3, pairs[0])


def test_the_vectors_before_a_bad_row_are_kept_and_counted(
    folder: Path, tmp_path: Path, run: Run
) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text('{"text": "ba"}\n' * (module.CHUNK + 5) + '{"text": "de')
    status, _, err = run("embed", folder, "--input", source, "--out", out)
    assert status == 2
    assert len(out.read_text().splitlines()) == module.CHUNK
    names(next(line for line in err.splitlines() if "saved" in line), f"{module.CHUNK:,}", str(out))


def test_refusals(folder: Path, tiny_tokenizer: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "in.txt").write_text("bado\n")
    for words, places in (
        (("--out", tmp_path / "a.csv"), ("a.npy",)),
        (("--out", tmp_path / "a.npy", "--keep", "id"), ("a.npy", "--keep")),
        (("--vector-dtype", "int8"), ("int8", "--out")),
    ):
        status, out, err = run("embed", folder, "--input", tmp_path / "in.txt", *words)
        assert (status, out) == (2, "")
        names(err, *places)
    (tmp_path / "in.jsonl").write_text('{"text": "a", "id": 1}\n{"text": "b", "id": "x"}\n')
    status, _, err = run(
        "embed",
        folder,
        "--input",
        tmp_path / "in.jsonl",
        "--keep",
        "id",
        "--out",
        tmp_path / "a.parquet",
    )
    assert status == 2
    names(err, "'id'", ".jsonl")
    tokenizer = Tokenizer.load(tiny_tokenizer)
    classifier = TaskModel(shape(vocab_size=tokenizer.vocab_size), True, 2).eval()
    save_onnx(
        load_module(classifier, tokenizer, labels=("a", "b"), task={"kind": "sequence"}),
        tmp_path / "onnx",
    )
    with refused(ModelError, "onnx", "--head backbone"):
        litebert.load(tmp_path / "onnx").encode(["bado"])


def foreign(folder: Path, tokenizer: Path, pooling: dict[str, Any], *kinds: str) -> Path:
    """A folder as sentence-transformers writes it."""
    words = Tokenizer.load(tokenizer)
    build_peer("Bert", "backbone", vocab_size=words.vocab_size).save_pretrained(folder)
    words.save(folder)
    listed = ["Transformer", "Pooling", *kinds]
    modules = [
        {
            "idx": i,
            "name": str(i),
            "path": f"{i}_{kind}" if i else "",
            "type": f"sentence_transformers.{kind}",
        }
        for i, kind in enumerate(listed)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 6}')
    return folder


@pytest.mark.parametrize("pooling", [{"pooling_mode": "cls"}, {"pooling_mode_cls_token": True}])
def test_foreign_modules_are_applied_and_survive(
    pooling: dict[str, Any], tiny_tokenizer: Path, tmp_path: Path, run: Run
) -> None:
    place = foreign(tmp_path / "foreign", tiny_tokenizer, pooling, "Normalize")
    model = litebert.load(place)
    assert model.sentence_encoder.length == 6
    wanted = model.encode(TEXTS)
    np.testing.assert_allclose(np.linalg.norm(wanted, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(
        wanted, unit(model.vectors_by("cls", False).encode(TEXTS)), atol=1e-6
    )
    assert np.abs(wanted - model.vectors_by("mean").encode(TEXTS)).max() > 1e-3
    for first, second, to in (("foreign", "own", "litebert"), ("own", "back", "hf")):
        assert run("convert", tmp_path / first, "--out", tmp_path / second, "--to", to)[0] == 0
        np.testing.assert_allclose(
            litebert.load(tmp_path / second).encode(TEXTS), wanted, atol=1e-5
        )
    save_onnx(litebert.load(tmp_path / "own"), tmp_path / "onnx", "backbone")
    np.testing.assert_allclose(litebert.load(tmp_path / "onnx").encode(TEXTS), wanted, atol=1e-5)


def test_foreign_modules_that_are_not_computed_are_refused(
    tiny_tokenizer: Path, tmp_path: Path
) -> None:
    place = foreign(tmp_path / "max", tiny_tokenizer, {"pooling_mode": "max"})
    with refused(ModelError, "1_Pooling", "max"):
        litebert.load(place).encode(TEXTS)
    for kinds, named in (
        (("Router",), "not compute"),
        (("Normalize", "Dense"), "order"),
        (("Dense", "Dense"), "once"),
    ):
        place = foreign(
            tmp_path / "-".join(kinds), tiny_tokenizer, {"pooling_mode": "mean"}, *kinds
        )
        with refused(ModelError, "modules.json", *kinds, named, "--pooling"):
            litebert.load(place).encode(TEXTS)
        assert litebert.load(place).vectors_by("mean").encode(TEXTS).shape[0] == len(TEXTS)
    place = dense(
        foreign(tmp_path / "relu", tiny_tokenizer, {"pooling_mode": "mean"}, "Dense"),
        "activation.ReLU",
    )
    with refused(ModelError, place / "2_Dense" / "config.json", "ReLU", "--pooling"):
        litebert.load(place).encode(TEXTS)
    dense(place, "linear.Identity")
    save_file({"linear.weight": torch.zeros(5, 3)}, place / "2_Dense" / "model.safetensors")
    with refused(ModelError, 3, "Dense"):
        litebert.load(place).encode(TEXTS)
    (place / "2_Dense" / "model.safetensors").write_bytes(b"{}")
    with refused(ModelError, place / "2_Dense" / "model.safetensors"):
        litebert.load(place).encode(TEXTS)
    (place / "2_Dense" / "model.safetensors").unlink()
    with refused(ModelError, place / "2_Dense" / "model.safetensors"):
        litebert.load(place).encode(TEXTS)


def dense(folder: Path, activation: str, pickled: bool = False) -> Path:
    """The same with a map to five numbers."""
    (place := folder / "2_Dense").mkdir(exist_ok=True)
    width = json.loads((folder / "config.json").read_text())["hidden_size"]
    settings = {"in_features": width, "out_features": 5, "bias": True}
    (place / "config.json").write_text(
        json.dumps({**settings, "activation_function": f"torch.nn.modules.{activation}"})
    )
    state = {
        f"linear.{name}": tensor for name, tensor in torch.nn.Linear(width, 5).state_dict().items()
    }
    if pickled:
        torch.save(state, place / "pytorch_model.bin")
    else:
        save_file(state, place / "model.safetensors")
    return folder


@pytest.mark.parametrize("pickled", [False, True])
def test_a_map_in_bfloat16_is_read(pickled: bool, tmp_path: Path) -> None:
    weight = torch.randn(5, 3, generator=torch.manual_seed(0)).bfloat16()
    (place := tmp_path / "2_Dense").mkdir()
    (place / "config.json").write_text("{}")
    if pickled:
        torch.save({"linear.weight": weight}, place / "pytorch_model.bin")
    else:
        save_file({"linear.weight": weight}, place / "model.safetensors")
    read_weight = read_dense(tmp_path, "2_Dense").weight
    assert read_weight.dtype == np.float32
    np.testing.assert_array_equal(read_weight, weight.float().numpy())


@pytest.mark.parametrize("pickled", [False, True])
def test_a_map_of_a_foreign_folder_is_applied_and_survives(
    pickled: bool, tiny_tokenizer: Path, tmp_path: Path, run: Run
) -> None:
    place = foreign(
        tmp_path / "foreign", tiny_tokenizer, {"pooling_mode": "mean"}, "Dense", "Normalize"
    )
    dense(place, "activation.Tanh", pickled)
    model = litebert.load(place)
    assert model.sentence_encoder.width == 5
    wanted = model.encode(TEXTS)
    state = (
        torch.load(place / "2_Dense" / "pytorch_model.bin")
        if pickled
        else load_file(place / "2_Dense" / "model.safetensors")
    )
    plain = torch.from_numpy(model.vectors_by("mean", False).encode(TEXTS))
    mapped = torch.tanh(plain @ state["linear.weight"].T + state["linear.bias"]).numpy()
    np.testing.assert_allclose(wanted, unit(mapped), atol=1e-5)
    for first, second, to in (("foreign", "own", "litebert"), ("own", "back", "hf")):
        assert run("convert", tmp_path / first, "--out", tmp_path / second, "--to", to)[0] == 0
        np.testing.assert_allclose(
            litebert.load(tmp_path / second).encode(TEXTS), wanted, atol=1e-5
        )
    save_onnx(litebert.load(tmp_path / "own"), tmp_path / "onnx", "backbone")
    np.testing.assert_allclose(litebert.load(tmp_path / "onnx").encode(TEXTS), wanted, atol=1e-5)
    np.testing.assert_allclose(litebert.load(tmp_path / "onnx").encode(TEXTS), wanted, atol=1e-5)


def test_the_pooling_of_classifiers_survives_a_litebert_folder(tmp_path: Path, run: Run) -> None:
    build_peer("ModernBert", "backbone", classifier_pooling="mean").save_pretrained(
        tmp_path / "theirs"
    )
    for first, second, to in (("theirs", "own", "litebert"), ("own", "back", "hf")):
        assert litebert.load(tmp_path / first).pooling == "mean"
        assert run("convert", tmp_path / first, "--out", tmp_path / second, "--to", to)[0] == 0
    assert (
        json.loads((tmp_path / "back" / "config.json").read_text())["classifier_pooling"] == "mean"
    )


def test_a_foreign_model_reads_as_many_tokens_as_it_has_positions(tmp_path: Path) -> None:
    build_peer("ModernBert", "backbone", max_position_embeddings=700).save_pretrained(
        tmp_path / "long"
    )
    assert litebert.load(tmp_path / "long").config.sequences.length == 700


# ------------------------------------------------------------------------------------------ engines

PACKAGES = {"onnx": "onnxruntime"}


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ["compiled", "torch", "onnx"])
@pytest.mark.parametrize("kind", ["run", "hf", "exported", "pretrained", "classifier"])
def test_every_engine_gives_the_same_vectors(
    engine: str, kind: str, folder: Path, tiny_tokenizer: Path, tmp_path: Path, run: Run
) -> None:
    if engine in PACKAGES:
        pytest.importorskip(PACKAGES[engine])
    words, place = Tokenizer.load(tiny_tokenizer), tmp_path / kind
    if kind == "run":
        shutil.copytree(folder, place)
    elif kind == "hf":
        foreign(place, tiny_tokenizer, {"pooling_mode_mean_tokens": True}, "Normalize")
    elif kind == "exported":
        save_onnx(litebert.load(folder), place)
    elif kind == "classifier":
        model = TaskModel(shape(vocab_size=words.vocab_size), True, 2).eval()
        randomize(model, scale=0.15)
        save_litebert(
            model, words, place, labels=("a", "b"), task={"kind": "sequence", "length": 16}
        )
    else:
        encoder, sequences = shape(vocab_size=words.vocab_size), SequenceConfig(length=16)
        network = Pretrainer(
            Config(name="base", encoder=encoder, sequences=sequences, objectives=("mlm",))
        )
        randomize(network, scale=0.15)
        save_litebert(network, words, place)
    (tmp_path / "in.txt").write_text("\n".join(TEXTS))
    status, _, err = run(
        "embed",
        place,
        "--input",
        tmp_path / "in.txt",
        "--out",
        tmp_path / "v.npy",
        "--engine",
        engine,
    )
    if kind == "exported" and engine != "onnx":
        assert status == 2
        names(err, place, "onnx")
        return
    assert status == 0, err
    vectors = np.load(tmp_path / "v.npy")
    wanted = litebert.load(place).encode(TEXTS)
    np.testing.assert_allclose(vectors, wanted, atol=1e-5)
    alone = [litebert.load(place, engine=engine).encode([text])[0] for text in TEXTS[:3]]
    np.testing.assert_allclose(vectors[:3], alone, atol=1e-5)
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-2, "vectors of different texts differ"


def test_an_engine_that_cannot_give_vectors_is_refused(
    folder: Path, tmp_path: Path, run: Run
) -> None:
    (tmp_path / "in.txt").write_text("bado\n")
    for words, places in (
        (("--engine", "torchh"), ("'torch'",)),
        (("--engine", "torch", "--dtype", "int8"), ("int8", "float32 or bfloat16")),
    ):
        status, out, err = run("embed", folder, "--input", tmp_path / "in.txt", *words)
        assert (status, out) == (2, "")
        names(err, *places)


@pytest.mark.skipif(not BYTES, reason="this processor does not multiply bytes in vectors")
def test_vectors_in_8_bits_are_near(folder: Path) -> None:
    actual, wanted = (litebert.load(folder, dtype=dtype).encode(TEXTS) for dtype in DTYPES[::-2])
    assert 0.99 < (actual * wanted).sum(1).min() < 1 - 1e-7
    assert 0 < np.abs(actual - wanted).max() < 0.1


COLUMNS = {"text": "text", "pair": None, "label": "label"}


ROUNDED = ("--engine", "rounded", "--dtype", "int8")


class Rounded(Runtime):
    """An engine that rounds logits to whole numbers in 8 bits."""

    capabilities = Capabilities(dtypes=("float32", "int8"))

    def __init__(self, loaded: LoadedModel, device: str, dtype: Dtype) -> None:
        self._exact: Runtime = ENGINES["torch"](loaded, device)
        self._rounds = dtype == "int8"

    def logits(self, rows: PaddedRows) -> NDArray[np.float32]:
        logits: NDArray[np.float32] = self._exact.logits(rows)
        return logits.round() if self._rounds else logits

    def vectors(
        self, rows: PaddedRows, pooling: Pooling, vector_map: VectorMap | None = None
    ) -> NDArray[np.float32]:
        vectors: NDArray[np.float32] = self._exact.vectors(rows, pooling, vector_map)
        return vectors.round(1) if self._rounds else vectors


def test_an_engine_of_fewer_bits_says_how_far_it_is_from_float32(
    folder: Path, tiny_tokenizer: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The differences are those between what the two engines answer, counted here again."""
    monkeypatch.setitem(ENGINES._parts, "rounded", Rounded)
    table = tmp_path / "in.jsonl"
    table.write_text(
        "".join(
            json.dumps({"text": text, "label": "ab"[i % 2]}) + "\n" for i, text in enumerate(TEXTS)
        )
    )
    model = made(
        tmp_path / "m",
        tiny_tokenizer,
        "sequence",
        2,
        ("a", "b"),
        task="table",
        problem="classes",
        columns=COLUMNS,
    )
    rounded, exact = (
        litebert.load(model, engine="rounded", dtype=dtype).predict(TEXTS) for dtype in DTYPES[::-2]
    )
    changed = sum(
        answer["prediction"] != other["prediction"]
        for answer, other in zip(rounded, exact, strict=True)
    )
    for verb in (("predict", "--input"), ("evaluate", "--data")):
        status, _, err = run(verb[0], model, verb[1], table, *ROUNDED)
        assert status == 0, err
        (line,) = [line for line in err.splitlines() if "int8 differs" in line]
        assert "float32" in line
        assert f"{len(TEXTS)} rows" in line
        assert f"{changed} of {len(TEXTS)}" in line
        gap = re.search(r"logits by at most ([0-9.]+)", line)
        assert gap is not None
        assert 0.05 < float(gap[1]) <= 0.5, (
            "rounding to whole numbers moves a number by a half at most"
        )
    status, _, err = run("embed", folder, "--input", table, "--out", tmp_path / "v.npy", *ROUNDED)
    assert status == 0, err
    (line,) = [line for line in err.splitlines() if "int8 differs" in line]
    actual, wanted = (
        litebert.load(folder, engine="rounded", dtype=dtype).encode(TEXTS) for dtype in DTYPES[::-2]
    )
    lowest = float((actual * wanted).sum(1).min())
    match = re.search(r"at least ([0-9.]+)", line)
    assert match is not None
    assert float(match[1]) == pytest.approx(lowest, abs=2e-5)
    assert lowest < 0.9999
    for engine in ("compiled", "torch"):
        status, _, err = run("predict", model, "--input", table, "--engine", engine)
        assert (status, "float32" in err) == (0, False)


def test_a_few_vectors_start_no_thread_and_many_are_reported(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that reports would take part of the time of a short text."""
    started, start = list[str](), threading.Thread.start

    def count(thread: threading.Thread) -> None:
        started.append(thread.name)
        start(thread)

    model = litebert.load(folder)
    model.encode(TEXTS)
    monkeypatch.setattr(threading.Thread, "start", count)
    model.encode(TEXTS)
    assert "progress of encoding" not in started
    model.encode(TEXTS * 20)
    assert "progress of encoding" in started
