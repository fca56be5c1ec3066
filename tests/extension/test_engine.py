"""An engine of one's own: `transformers` computes the logits, litebert does the rest, for every
kind of head.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import softmax

import litebert
from litebert.answer.engines.runtime import Capabilities, Runtime, Walk
from litebert.base.errors import ConfigError, ModelError
from litebert.base.registry import ENGINES
from litebert.interop import LoadedModel
from litebert.tasks.rows import PaddedRows
from litebert.tokenizer import Tokenizer
from toys.answers import made, texts
from toys.refusals import refused


class Theirs(Runtime):
    """The class of `transformers` that a converted folder names."""

    used = 0

    def __init__(self, loaded: LoadedModel, device: str) -> None:
        import transformers

        folder = loaded.path.with_name("theirs")
        if not folder.exists():
            litebert.convert(loaded.path, folder, to="hf")
        config = transformers.AutoConfig.from_pretrained(folder)
        self.network = getattr(transformers, config.architectures[0]).from_pretrained(folder).eval()

    @torch.no_grad()
    def logits(self, rows: PaddedRows) -> NDArray[np.float32]:
        Theirs.used += 1
        ids, types, mask = (torch.from_numpy(array) for array in rows)
        if self.network.config.architectures[0].endswith("MultipleChoice"):
            logits: NDArray[np.float32]
            logits = self.network(ids[None], mask[None], types[None]).logits.T.numpy()
            return logits
        out = self.network(ids, mask, types)
        both = (out.start_logits, out.end_logits) if "start_logits" in out else ()
        return (torch.stack(both, dim=-1) if both else out.logits).numpy()


@pytest.fixture(autouse=True, scope="module")
def _register() -> None:
    ENGINES.add("theirs", Theirs)


LINES = texts(6, most=6)
ASKED: dict[str, tuple[int, tuple[str, ...], list[Any]]] = {
    "sequence": (3, ("red", "green", "blue"), LINES),
    "tokens": (3, ("O", "B-X", "I-X"), LINES),
    "span": (2, (), list(zip(LINES, texts(6, seed=2), strict=True))),
    "choice": (1, (), [(LINES[0], LINES[1], LINES[2:5])]),
}


@pytest.mark.parametrize("kind", ASKED)
def test_another_engine_gives_the_same_answers(
    kind: str, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    classes, labels, texts = ASKED[kind]
    folder = made(tmp_path / "ours", tiny_tokenizer, kind, classes, labels)
    our_answers, before = litebert.load(folder).predict(texts), Theirs.used
    peer_answers = litebert.load(folder, engine="theirs").predict(texts)
    assert Theirs.used > before
    for answer, other in zip(our_answers, peer_answers, strict=True):
        assert answer.keys() == other.keys()
        assert answer["prediction"] == other["prediction"]
        assert other.get("offsets") == answer.get("offsets")
        for key in answer.keys() - {"prediction", "words", "offsets", "entities"}:
            assert other[key] == pytest.approx(answer[key], abs=1e-4)


class Exported(Runtime):
    """The logits of a text are the sums of what a file says of its tokens."""

    def __init__(self, loaded: LoadedModel, device: str) -> None:
        self.table_VC = np.load(loaded.path / "exported.npy")

    def logits(self, rows: PaddedRows) -> NDArray[np.float32]:
        summed: NDArray[np.float32] = (self.table_VC[rows.ids] * rows.mask[..., None]).sum(1)
        return summed


def test_a_registered_engine_answers_from_a_folder_without_weights(
    tiny_tokenizer: Path, tmp_path: Path
) -> None:
    ENGINES.add("exported", Exported)
    folder = made(tmp_path, tiny_tokenizer, "sequence", 3, ("red", "green", "blue"), task="table")
    whole = litebert.load(folder)
    (folder / "model.safetensors").unlink()
    words = Tokenizer.load(folder / "tokenizer")
    table_VC = np.random.default_rng(0).normal(size=(words.vocab_size, 3)).astype(np.float32)
    np.save(folder / "exported.npy", table_VC)
    opened = litebert.load(folder, engine="exported")
    assert (opened.task_record, opened.head, opened.labels) == (
        whole.task_record,
        whole.head,
        whole.labels,
    )
    for ids, answer in zip(words.encode(LINES), opened.predict(LINES), strict=True):
        expected = softmax(table_VC[[words.cls_id, *ids, words.sep_id]].sum(0))
        assert list(answer["probabilities"].values()) == pytest.approx(expected.tolist(), abs=1e-5)
    with refused(ModelError, "model.safetensors", str(folder)):
        _ = opened.model
    with refused(ModelError, "model.safetensors", str(folder)):
        litebert.load(folder)


class LayerByLayer(Runtime):
    """PyTorch's layers, one after the other."""

    capabilities = Capabilities(early_exit=True)

    def __init__(self, loaded: LoadedModel, device: str) -> None:
        self._exact: Runtime = ENGINES["torch"](loaded, device)

    def logits(self, rows: PaddedRows) -> NDArray[np.float32]:
        return self._exact.logits(rows)

    def walk(self, rows: PaddedRows) -> Walk:
        return self._exact.walk(rows)


def test_an_engine_that_goes_layer_by_layer_lets_texts_leave_early(
    tiny_tokenizer: Path, tmp_path: Path
) -> None:
    ENGINES.add("layers", LayerByLayer)
    exits = {"problem": "classes", "exits": {"patience": 1, "threshold": 0.0}}
    folder = made(tmp_path, tiny_tokenizer, "sequence", 3, ("red", "green", "blue"), **exits)
    answers = litebert.load(folder, engine="layers").predict(LINES)
    assert answers == litebert.load(folder, engine="torch").predict(LINES)
    assert {answer["layers"] for answer in answers} == {1}, "of two layers"
    with refused(ConfigError, "theirs", "--exit-confidence off"):
        litebert.load(folder, engine="theirs").predict(LINES)


def test_an_engine_that_is_not_registered_is_refused(tmp_path: Path) -> None:
    with refused(ConfigError, "'thiers'", "'theirs'"):
        litebert.load(tmp_path, engine="thiers")
