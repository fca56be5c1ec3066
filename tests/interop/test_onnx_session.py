"""ONNX Runtime sessions by themselves."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, load_model, save_model

import litebert
from answer.test_engines import model_folder
from litebert.demo import unpack
from litebert.interop.onnx.session import session

_RUN = """
import sys
from pathlib import Path
from litebert.interop.onnx.session import session

print(session(Path(sys.argv[1]), threads=1).run(None, {"x": [2.0]}))
"""


_WITHOUT_TORCH = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, Refuse())
import litebert
from litebert.cli import main

(answer,) = litebert.load(sys.argv[1], engine=sys.argv[5]).predict(["a wonderful film"])
assert answer["prediction"] == "positive", answer
words = ["--input", sys.argv[2], "--engine", sys.argv[5]]
assert main(["embed", sys.argv[3], *words, "--out", sys.argv[4]]) == 0
sys.exit(main(["predict", sys.argv[1], *words]))
"""


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """A graph that negates a number."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    nodes = [helper.make_node("Neg", ["x"], ["y"])]
    negative = helper.make_graph(nodes, "negative", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 17)]
    save_model(
        helper.make_model(negative, opset_imports=opsets, ir_version=8), tmp_path / "one.onnx"
    )
    return tmp_path / "one.onnx"


def test_a_session_writes_nothing_into_the_home_of_its_user(graph: Path, tmp_path: Path) -> None:
    """ONNX Runtime's telemetry would write a device id and a database of events there."""
    home = tmp_path / "home"
    home.mkdir()
    unset = {
        name: value
        for name, value in os.environ.items()
        if name not in {"ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME"}
    }
    words = [sys.executable, "-c", _RUN, str(graph)]
    done = subprocess.run(
        words, env={**unset, "HOME": str(home)}, capture_output=True, text=True, check=True
    )
    assert "-2." in done.stdout
    assert not list(home.iterdir())


def test_a_session_with_no_number_of_threads_loads_no_torch(graph: Path) -> None:
    program = _RUN.replace(", threads=1", "") + "\nassert 'torch' not in sys.modules\n"
    words = [sys.executable, "-c", program, str(graph)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "-2." in done.stdout


def test_threads_of_a_service_sleep_soon(graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def entry(name: str) -> str:
        options = session(graph, threads=1).get_session_options()
        return str(options.get_session_config_entry(f"session.intra_op.{name}"))

    monkeypatch.setattr("onnxruntime.__version__", "1.26.0")
    assert entry("spin_duration_us") == "50"
    monkeypatch.setattr("onnxruntime.__version__", "1.25.1")  # which ignores the duration
    assert entry("allow_spinning") == "0"


_PREDICT = """
import sys
from litebert.cli import main
status = main(["predict", sys.argv[1], "--engine", "onnx", "--quiet"])
print(status, *{name.partition(".")[0] for name in sys.modules})
"""
UNUSED = {
    *("torch", "transformers", "pyarrow", "sklearn", "scipy", "huggingface_hub", "matplotlib"),
    *("sentencepiece", "google", "asyncio", "ssl", "filelock", "rich"),
}
"""Libraries that `predict` starts without; each took part of its start, or would."""


@pytest.mark.thorough
def test_predict_of_an_export_imports_no_library_that_it_does_not_use(tmp_path: Path) -> None:
    litebert.export(unpack(tmp_path / "models")["sentiment"], tmp_path / "exported")
    (tmp_path / "texts.txt").write_text("a dull story\n")
    words = [sys.executable, "-c", _PREDICT, str(tmp_path / "exported")]
    with open(tmp_path / "texts.txt") as texts:
        done = subprocess.run(words, stdin=texts, capture_output=True, text=True, check=True)
    status, *loaded = done.stdout.splitlines()[-1].split()
    assert status == "0", done.stderr
    assert {"numpy", "onnxruntime"} <= set(loaded)
    assert not UNUSED & set(loaded)


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ["onnx"])
def test_an_export_answers_where_there_is_no_torch(engine: str, tmp_path: Path) -> None:
    pytest.importorskip({"onnx": "onnxruntime"}.get(engine, engine))
    models = unpack(tmp_path / "models")
    litebert.export(models["sentiment"], tmp_path / "exported", int8=True)
    litebert.export(models["vectors"], tmp_path / "states")
    (tmp_path / "texts.txt").write_text("a dull story\na wonderful film\n")
    paths = [str(tmp_path / name) for name in ("exported", "texts.txt", "states", "v.npy")]
    words = [sys.executable, "-c", _WITHOUT_TORCH, *paths, engine]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = csv.DictReader(done.stdout.splitlines())
    assert [row["prediction"] for row in rows] == ["negative", "positive"]
    expected = litebert.load(models["vectors"]).encode(["a dull story", "a wonderful film"])
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), expected, atol=1e-5)


@pytest.mark.parametrize("fault", ["no output", "shape", "size"])
def test_a_graph_of_another_program_is_one_sentence(
    fault: str, tiny_tokenizer: Path, tmp_path: Path, run: Any
) -> None:
    folder = model_folder(tmp_path / "model", tiny_tokenizer, "classes")
    assert run("export", folder, "--out", tmp_path / "out")[0] == 0
    file = tmp_path / "out" / "model.onnx"
    graph = load_model(file, load_external_data=False)
    if fault == "no output":
        del graph.graph.output[:]
    else:
        size = 3 if fault == "shape" else 10**12
        shape = helper.make_tensor("n", TensorProto.INT64, [1], [size])
        del graph.graph.node[:]
        del graph.graph.initializer[:]
        graph.graph.node.append(helper.make_node("Constant", [], ["n"], value=shape))
        name = graph.graph.output[0].name
        graph.graph.node.append(helper.make_node("ConstantOfShape", ["n"], [name]))
    save_model(graph, file)
    (tmp_path / "t.txt").write_text("bado toto\nkumi\n")
    words = (
        "predict",
        tmp_path / "out",
        "--input",
        tmp_path / "t.txt",
        "--out",
        tmp_path / "a.csv",
    )
    status, _, err = run(*words)
    assert (status, "Traceback" in err) == (2, False), err
    assert "model.onnx" in err
