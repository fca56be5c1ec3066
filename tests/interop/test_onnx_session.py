"""ONNX Runtime sessions by themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from onnx import TensorProto, helper, save_model

_RUN = """
import sys
from pathlib import Path
from litebert.interop.onnx.session import session

print(session(Path(sys.argv[1]), threads=1).run(None, {"x": [2.0]}))
"""


def test_a_session_writes_nothing_into_the_home_of_its_user(tmp_path: Path) -> None:
    """ONNX Runtime's telemetry would write a device id and a database of events there."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["y"])], "negative", ends[:1], ends[1:]
    )
    save_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "one.onnx",
    )
    home = tmp_path / "home"
    home.mkdir()
    unset = {
        name: value
        for name, value in os.environ.items()
        if name not in {"ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME"}
    }
    words = [sys.executable, "-c", _RUN, str(tmp_path / "one.onnx")]
    done = subprocess.run(
        words, env={**unset, "HOME": str(home)}, capture_output=True, text=True, check=True
    )
    assert "-2." in done.stdout
    assert not list(home.iterdir())


def test_a_session_with_no_number_of_threads_loads_no_torch(tmp_path: Path) -> None:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["y"])], "negative", ends[:1], ends[1:]
    )
    save_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "one.onnx",
    )
    program = _RUN.replace(", threads=1", "") + "\nassert 'torch' not in sys.modules\n"
    words = [sys.executable, "-c", program, str(tmp_path / "one.onnx")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "-2." in done.stdout
