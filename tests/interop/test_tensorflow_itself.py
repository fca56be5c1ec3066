"""Files that TensorFlow wrote are read without it.

TensorFlow is installed from the package index into an environment made for this test;
LITEBERT_TENSORFLOW names the Python of one that exists.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from litebert import load
from litebert.base.errors import ModelError
from litebert.interop.files import to_tensor
from litebert.interop.tensorflow.bundle import Bundle
from toys.bundles import variables, write_config
from toys.environments import python_with
from toys.families import assert_equal_outputs, build_peer, inputs, our_outputs, their_outputs
from toys.refusals import refused

VERSIONS = ("tensorflow-cpu==2.21.0",)
SCRIPT = Path(__file__).parents[1] / "peers" / "write_tensorflow.py"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python of an environment with TensorFlow."""
    return python_with(
        VERSIONS, tmp_path_factory.mktemp("tensorflow") / "venv", "LITEBERT_TENSORFLOW"
    )


def save(python: str, held: dict[str, torch.Tensor], prefix: Path, *options: str) -> None:
    """A checkpoint of some variables, by TensorFlow."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    arrays = prefix.with_suffix(".npz")
    values: dict[str, Any] = {name: tensor.numpy() for name, tensor in held.items()}
    np.savez(arrays, **values)
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PYTHONHOME")
    }
    done = subprocess.run(
        [python, str(SCRIPT), str(arrays), str(prefix), *options],
        env=clean,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    arrays.unlink()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "prefix", "options"),
    [
        ("Bert", "bert_model.ckpt", ()),
        ("Bert", "bert_model.ckpt", ("sharded",)),
        ("Albert", "model.ckpt-best", ()),
        ("Albert", "variables/variables", ()),
    ],
)
def test_their_checkpoints(
    family: str, prefix: str, options: tuple[str, ...], python: str, tmp_path: Path
) -> None:
    changes: dict[str, Any] = {"hidden_act": "gelu_new"} if family == "Albert" else {}
    model = build_peer(family, "pretraining", **changes)
    held = variables(family, model.state_dict())
    save(python, held, tmp_path / prefix, *options)
    write_config(
        tmp_path / f"{family.lower()}_config.json",
        model,
        *["embedding_size"] * (family == "Albert"),
    )
    bundle = Bundle.open(tmp_path / f"{prefix}.index")
    assert bundle.entries.keys() == held.keys()
    assert all(torch.equal(to_tensor(bundle.read(name)), tensor) for name, tensor in held.items())
    assert_equal_outputs(
        their_outputs(model, inputs()), our_outputs(load(tmp_path).model, inputs())
    )


@pytest.mark.slow
def test_a_partitioned_variable(python: str, tmp_path: Path) -> None:
    model = build_peer("Bert", "mlm")
    held = dict(sorted(variables("Bert", model.state_dict(), slots=False).items()))
    save(python, held, tmp_path / "x.ckpt", "sliced")
    write_config(tmp_path / "bert_config.json", model)
    with refused(ModelError, "x.ckpt.index", sorted(held)[0], "slices"):
        load(tmp_path)
