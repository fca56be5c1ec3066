"""`litebert export --format onnx`: the folder that it writes answers as the model does, and what is
wrong leaves nothing behind.
"""

from __future__ import annotations

import errno
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import litebert
from answer.test_pretrained import folder_of
from litebert.answer.engines.onnx_runtime import OnnxRuntime
from litebert.base.errors import ConfigError, MissingExtraError, ModelError
from litebert.interop import LoadedModel, read_folder
from litebert.interop.onnx import folder as onnx_folder
from litebert.interop.onnx.folder import NAME
from litebert.interop.records import read_tokenizer
from litebert.tokenizer import Tokenizer
from toys.answers import made, texts
from toys.finetuning import write_table
from toys.folders import save_litebert, tiny
from toys.points import randomize
from toys.refusals import names, refused

Run = Callable[..., tuple[int, str, str]]
ONNX = "--format", "onnx"
INT8 = *ONNX, "--dtype", "int8"
LINES = texts(6, most=6)
ASKED: dict[str, tuple[int, tuple[str, ...], list[Any]]] = {
    "sequence": (3, ("red", "green", "blue"), LINES),
    "tokens": (3, ("O", "B-X", "I-X"), LINES),
    "span": (2, (), list(zip(LINES, texts(6, seed=2), strict=True))),
    "choice": (1, (), [(LINES[0], LINES[1], LINES[2:5])]),
}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_table(tmp_path / "labeled.csv", 40)


def classifier(folder: Path, tokenizer: Path) -> Path:
    return made(folder, tokenizer, "sequence", 2, ("no", "yes"), task="table", problem="classes")


@pytest.mark.parametrize("kind", ASKED)
def test_an_export_answers_as_its_model(
    kind: str, tiny_tokenizer: Path, tmp_path: Path, run: Run
) -> None:
    classes, labels, texts = ASKED[kind]
    folder = made(tmp_path / "ours", tiny_tokenizer, kind, classes, labels)
    status, out, err = run("export", folder, "--out", tmp_path / "out", *ONNX, "--json")
    assert status == 0, err
    report = json.loads(out)
    assert (report["head"], report["drop"]) == (kind, None)
    assert report["difference"] < 1e-4
    assert report["size"] == (tmp_path / "out" / NAME).stat().st_size
    opened = litebert.load(tmp_path / "out")
    assert opened.engine == "onnx"
    assert opened.task_record == litebert.load(folder).task_record
    for answer, other in zip(
        litebert.load(folder).predict(texts), opened.predict(texts), strict=True
    ):
        assert answer["prediction"] == other["prediction"]
    tokenizer = read_tokenizer(tmp_path / "out")
    assert tokenizer is not None
    assert tokenizer.encode(LINES) == read_folder(folder).tokenizer.encode(LINES)  # type: ignore[union-attr]
    settings = json.loads((tmp_path / "out" / "config.json").read_text())
    if labels:
        assert list(settings["id2label"].values()) == list(labels)
    with refused(ModelError, str(tmp_path / "out"), "ONNX"):
        litebert.load(tmp_path / "out", engine="torch")


def test_8_bits_are_measured_on_labeled_files(
    tiny_tokenizer: Path, tmp_path: Path, table: Path, run: Run
) -> None:
    folder = classifier(tmp_path / "ours", tiny_tokenizer)
    done = litebert.export(
        folder, tmp_path / "small", dtype="int8", data=table, max_drop=100, format="onnx"
    )
    assert done.drop is not None
    assert (done.drop.metric, done.drop.examples) == ("accuracy", 40)
    assert done.drop.before == pytest.approx(100 * score(folder, table))
    assert done.drop.after == pytest.approx(100 * score(tmp_path / "small", table, "onnx"))
    small = litebert.load(tmp_path / "small")
    for text, beside in zip(LINES, small.predict(LINES), strict=True):
        (alone,) = small.predict([text])
        assert beside["probabilities"] == pytest.approx(alone["probabilities"], abs=1e-6)
    whole = litebert.export(folder, tmp_path / "whole", format="onnx")
    stored = {
        tensor.name: tensor for tensor in onnx.load(tmp_path / "small" / NAME).graph.initializer
    }
    shared = [name for name, tensor in stored.items() if tensor.data_type == onnx.TensorProto.INT8]
    assert {"encoder.embedding.word.weight", "encoder.attention.0.qkv.weight"} < {*shared}
    assert done.size < whole.size

    status, out, err = run("export", folder, "--out", tmp_path / "unmeasured", *INT8)
    assert status == 0
    assert "not measured" in err
    assert "accuracy" not in out
    words = (
        "export",
        folder,
        "--out",
        tmp_path / "scored",
        *INT8,
        "--data",
        table,
        "--max-drop",
        100,
    )
    status, out, err = run(*words)
    assert (status, "not measured" in err) == (0, False)
    assert "accuracy in int8" in out


def score(folder: Path, table: Path, engine: str = "torch") -> float:
    return litebert.evaluate(litebert.load(folder, engine=engine), data=table).scores["accuracy"]


def test_8_bits_that_cost_too_much_are_not_written(
    tiny_tokenizer: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, right = classifier(tmp_path / "ours", tiny_tokenizer), OnnxRuntime.logits
    rows = [
        f"{text},{answer['prediction']}"
        for text, answer in zip(LINES, litebert.load(folder).predict(LINES), strict=True)
    ]
    (tmp_path / "own.csv").write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    monkeypatch.setattr(OnnxRuntime, "logits", lambda self, rows: -right(self, rows))
    status, out, err = run(
        "export", folder, "--out", tmp_path / "out", *INT8, "--data", tmp_path / "own.csv"
    )
    assert (status, out) == (2, "")
    names(err, "0.5", "accuracy", "100.00", "0.00", "--max-drop")
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_is_refused(
    tiny_tokenizer: Path, tmp_path: Path, table: Path, run: Run
) -> None:
    folder, taken = classifier(tmp_path / "ours", tiny_tokenizer), tmp_path / "taken"
    taken.mkdir()
    (taken / "file").touch()
    for words, places in {
        ("export", folder, "--out", taken): (taken,),
        ("export", tmp_path / "gone", "--out", tmp_path / "out"): (tmp_path / "gone",),
        ("export", folder, "--out", tmp_path / "out", *ONNX, "--head", "mlm"): (
            "mlm",
            "sequence",
            "backbone",
        ),
        ("export", folder, "--out", tmp_path / "out", *ONNX, "--data", table): ("--dtype",),
        ("export", folder, "--out", tmp_path / "out", *INT8, "--data", tmp_path / "gone.csv"): (
            tmp_path / "gone.csv",
        ),
        (
            "export",
            folder,
            "--out",
            tmp_path / "out",
            *INT8,
            "--data",
            table,
            "--max-drop",
            "-1",
        ): ("-1.0",),
    }.items():
        status, out, err = run(*words)
        assert (status, out) == (2, "")
        names(err, *places)
    with refused(ConfigError, "backbone", "--data"):
        litebert.export(
            folder, tmp_path / "out", dtype="int8", data=table, head="backbone", format="onnx"
        )
    assert not (tmp_path / "out").exists()


def test_nothing_stays_of_an_export_that_failed(
    tiny_tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = classifier(tmp_path / "ours", tiny_tokenizer)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, refused(ModelError, str(tmp_path / "out")):
        patch.setattr(onnx, "save_model", full)
        litebert.export(folder, tmp_path / "out", format="onnx")
    with monkeypatch.context() as patch, refused(ModelError, str(folder), "PyTorch"):
        patch.setattr(onnx_folder, "ALLOWED", -1.0)
        litebert.export(folder, tmp_path / "out", format="onnx")
    for package in ("onnx", "onnxruntime"):
        with (
            monkeypatch.context() as patch,
            refused(MissingExtraError, package, "'litebert[onnx]'"),
        ):
            patch.setitem(sys.modules, package, None)
            litebert.export(folder, tmp_path / "out", format="onnx")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ours"]


def test_a_wrong_window_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny(("mlm",), window=128, global_every=2, max_positions=160)
    randomize(model)
    save_litebert(model.eval(), None, tmp_path / "ours")
    litebert.export(tmp_path / "ours", tmp_path / "right", format="onnx")
    whole: Any = vars(onnx_folder)["onnx_model"]

    def wide(loaded: LoadedModel, *rest: Any) -> Any:
        encoder = replace(loaded.config.encoder, window=150)
        loaded.model.encoder.config = encoder
        try:
            return whole(replace(loaded, config=replace(loaded.config, encoder=encoder)), *rest)
        finally:
            loaded.model.encoder.config = model.encoder.config

    monkeypatch.setattr(onnx_folder, "onnx_model", wide)
    with refused(ModelError, tmp_path / "ours", "PyTorch"):
        litebert.export(tmp_path / "ours", tmp_path / "out", format="onnx")


def test_what_windows_cost_in_a_graph_is_told(tmp_path: Path, run: Run) -> None:
    shape = {"positions": "rotary", "norm": "pre", "max_positions": 400, "sharing": "all"}
    within = {"window": 8, "global_every": 2}
    shapes = {"global tokens": {**within, "global_tokens": 1}, "windows": within, "whole": {}}
    for name, fields in shapes.items():
        save_litebert(
            tiny(("mlm",), **fields, **shape).eval(),
            None,
            tmp_path / name,
        )
        status, _, err = run("export", tmp_path / name, "--out", tmp_path / f"{name}-out", *ONNX)
        assert status == 0, err
        notes = [line for line in err.splitlines() if "all pairs of tokens" in line]
        assert len(notes) == ("global_tokens" in fields)
        for line in notes:
            names(line, "400", f"{4 * 2 * 400**2 / 1e9:.2g} GB")


def test_a_model_that_no_class_of_transformers_computes(tmp_path: Path, run: Run) -> None:
    model = tiny(("mlm",), sharing="groups", groups=2, positions="rotary", norm="pre")
    save_litebert(model.eval(), None, tmp_path / "ours")
    status, _, err = run("export", tmp_path / "ours", "--out", tmp_path / "out", *ONNX)
    assert status == 0
    assert "no tokenizer" in err
    assert "config.json" in err
    assert json.loads((tmp_path / "out" / "config.json").read_text())["vocab_size"] == 40
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *(NAME, "digests.json", "config.json", "recipe.json", "README.md")
    }
    assert replace(read_folder(tmp_path / "ours"), notes=()).untrained == ()


def test_weights_that_one_file_cannot_hold_lie_beside_it(
    tiny_tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_folder, "_LARGEST_FILE", 1000)
    folder = classifier(tmp_path / "ours", tiny_tokenizer)
    written = litebert.export(folder, tmp_path / "out", format="onnx")
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "out").glob(f"{NAME}*")}
    assert sizes.keys() == {NAME, f"{NAME}_data"}
    assert written.size == sum(sizes.values())
    answers = [
        litebert.load(tmp_path / "out", engine="onnx").predict(LINES),
        litebert.load(folder).predict(LINES),
    ]
    assert [answer["prediction"] for answer in answers[0]] == [
        answer["prediction"] for answer in answers[1]
    ]


def test_a_model_is_pickled_before_and_after_it_answers(
    tiny_tokenizer: Path, tmp_path: Path
) -> None:
    folder = folder_of(tmp_path / "ours", Tokenizer.load(tiny_tokenizer))
    litebert.export(folder, tmp_path / "states", head="backbone", format="onnx")
    for place in (folder, tmp_path / "states"):
        model = litebert.load(place)
        fresh = pickle.loads(pickle.dumps(model))
        vectors = model.encode(["bado"])
        again = pickle.loads(pickle.dumps(model))
        for copy in (fresh, again):
            np.testing.assert_array_equal(copy.encode(["bado"]), vectors)


_WITHOUT_TORCH = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "onnx", "transformers"):
            raise ImportError(name)
sys.meta_path.insert(0, Blocked())
import litebert
from dataclasses import replace
masks, states = (replace(litebert.load(folder), threads=1) for folder in sys.argv[1:])
print(masks.fill_mask("bado ___ kumi")[0][0].id, states.encode(["bado", "kumi"]).shape)
"""


def test_an_export_guesses_masks_and_gives_vectors_without_torch(
    tiny_tokenizer: Path, tmp_path: Path
) -> None:
    folder = folder_of(tmp_path / "ours", Tokenizer.load(tiny_tokenizer))
    litebert.export(folder, tmp_path / "masks", head="mlm", format="onnx")
    litebert.export(folder, tmp_path / "states", head="backbone", format="onnx")
    masks, states = litebert.load(tmp_path / "masks"), litebert.load(tmp_path / "states")
    (guesses,), (expected,) = (
        model.fill_mask("bado ___ kumi", top=3) for model in (masks, litebert.load(folder))
    )
    assert [guess.token for guess in guesses] == [guess.token for guess in expected]
    assert [guess.probability for guess in guesses] == pytest.approx(
        [guess.probability for guess in expected], abs=1e-5
    )
    with refused(ModelError, tmp_path / "masks", "ONNX"):
        masks.score(["bado"])
    with refused(ModelError, tmp_path / "masks", "--head backbone"):
        masks.encode(["bado"])
    with refused(ModelError, tmp_path / "states", "--head mlm"):
        states.fill_mask("bado ___ kumi")
    with refused(ModelError, tmp_path / "masks", "task"):
        masks.predict(["bado"])
    with refused(ConfigError, "0.5", "onnx"):
        litebert.load(tmp_path / "states", exit_confidence=0.5)
    out = subprocess.run(
        [sys.executable, "-c", _WITHOUT_TORCH, masks.path, states.path],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert out == f"{expected[0].id} (2, 16)\n"
