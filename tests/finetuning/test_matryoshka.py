"""`finetune --task pairs --matryoshka`: sizes that vectors may be cut to, in training and wherever
vectors go."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import litebert
from finetuning.test_pairs import COLUMNS, batch_of, write_pairs
from litebert.base.errors import ConfigError
from litebert.config import EncoderConfig, FinetuneConfig
from litebert.finetuning.setup import settle_for_output
from toys.finetuning import recipe_file
from toys.refusals import names, refused
from toys.tasks import Pairs

Run = Callable[..., tuple[int, str, str]]
TEXTS = ["bakidi dakeko", "figo", "bekado gimuna dilemo bakidi dakeko"]
NAMES = ["--text-column", "one", "--pair-column", "two", "--label-column", "score"]


def scale(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    scaled: NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return scaled


def test_the_loss_is_the_mean_over_the_sizes(tiny_tokenizer: Path, tmp_path: Path) -> None:
    file = write_pairs(tmp_path / "a.csv", 6)
    task, plain = (Pairs(file, dev=file, matryoshka=sizes, **COLUMNS) for sizes in ((4, 2), None))
    assert task.output.sizes == (2, 4)
    batch = batch_of(task, tiny_tokenizer)
    states = torch.randn(*batch.input_ids.shape, 6, generator=torch.Generator().manual_seed(0))
    vectors = task.output.arrange(states, batch)
    totals = []
    for size in (6, 4, 2):
        cut = vectors[..., :size] / vectors[..., :size].norm(dim=-1, keepdim=True)
        totals.append(float(plain.output.total(cut, batch.targets)[0]))
    assert float(task.output.loss(states, batch).total) == pytest.approx(np.mean(totals), rel=1e-5)


def train(run: Run, tokenizer: Path, folder: Path, *words: object) -> tuple[int, str, str]:
    model = recipe_file(folder)
    data, dev = write_pairs(folder / "train.csv", 60), write_pairs(folder / "dev.csv", 40, 1)
    return run(
        *("finetune", model, "--tokenizer", tokenizer, "--task", "pairs", "--data", data),
        *("--dev", dev, *NAMES, "--out", folder / "run", "--steps", 4, "--device", "cpu"),
        *words,
    )


def check_scores_of_an_export(run: Run, tuned: Path, folder: Path, spearman: float) -> None:
    """An export with 8-bit weights is compared with the vectors of its size."""
    status, out, err = run(
        *("export", tuned, "--out", folder / "int8", "--max-drop", 100, "--json"),
        *("--data", folder / "dev.csv", "--vector-size", 8),
    )
    assert status == 0, err
    assert json.loads(out)["drop"]["before"] / 100 == pytest.approx(spearman, abs=1e-4)
    assert litebert.load(folder / "int8").encode(TEXTS).shape == (3, 8)


def check_refusals(run: Run, tuned: Path, folder: Path) -> None:
    """Sizes that cannot be are refused, in Python and in the folder of the model."""
    for size in ("8", 8.0, True):
        with refused(ConfigError, "vector_size", size):
            litebert.load(tuned).vectors_by(size=size)  # type: ignore[arg-type]
    record = tuned / "model" / "task.json"
    settings = json.loads(record.read_text())
    settings["vectors"]["sizes"] = [8, 4000]
    record.write_text(json.dumps(settings))
    rows = {"embed": ("--input", folder / "texts.txt"), "evaluate": ("--data", folder / "dev.csv")}
    for verb, words in rows.items():
        status, _, err = run(verb, tuned, *words)
        assert status == 2
        names(err.splitlines()[-1], record, "sizes", 4000, 31)


@pytest.mark.thorough
def test_a_size_is_the_same_wherever_vectors_go(
    tiny_tokenizer: Path, tmp_path: Path, run: Run
) -> None:
    sizes = ("--matryoshka", 4, 8)
    status, out, err = train(run, tiny_tokenizer, tmp_path, *sizes, "--json")
    assert status == 0, err
    scores = json.loads(out)["scores"][0]
    assert scores.keys() == {
        *("spearman", "pearson", "spearman_cut_to_4", "pearson_cut_to_4"),
        *("spearman_cut_to_8", "pearson_cut_to_8"),
    }
    tuned = tmp_path / "run"
    whole = litebert.load(tuned).encode(TEXTS)
    wanted = scale(whole[:, :8])
    source = tmp_path / "texts.txt"
    source.write_text("\n".join(TEXTS))
    embedded = tmp_path / "vectors.npy"
    words: list[Any] = ["--input", source, "--out", embedded, "--vector-size", 8]
    assert run("embed", tuned, *words)[0] == 0
    np.testing.assert_allclose(np.load(embedded), wanted, atol=1e-6)

    for form in ("litebert", "hf"):
        folder = tmp_path / form
        status, _, err = run("convert", tuned, "--out", folder, "--to", form, "--vector-size", 8)
        assert status == 0, err
        np.testing.assert_allclose(litebert.load(folder).encode(TEXTS), wanted, atol=1e-5)
    assert json.loads((tmp_path / "litebert" / "task.json").read_text())["vectors"]["sizes"] == [4]
    status, _, err = run(
        "export", tuned, "--out", tmp_path / "onnx", "--vector-size", 8, "--format", "onnx"
    )
    assert status == 0, err
    np.testing.assert_allclose(litebert.load(tmp_path / "onnx").encode(TEXTS), wanted, atol=1e-5)
    pair = litebert.load(tmp_path / "litebert").predict([(TEXTS[0], TEXTS[2])])
    assert pair[0]["prediction"] == pytest.approx(float(wanted[0] @ wanted[2]), abs=1e-5)
    # The scores of the smaller model are those that the training reported for the size.
    status, out, err = run(
        *("evaluate", tmp_path / "litebert", "--data", tmp_path / "dev.csv", "--json"),
        *("--device", "cpu"),
    )
    assert status == 0, err
    evaluated = json.loads(out)["scores"]
    assert evaluated["spearman"] == pytest.approx(scores["spearman_cut_to_8"], abs=1e-4)
    assert evaluated["spearman_cut_to_4"] == pytest.approx(scores["spearman_cut_to_4"], abs=1e-4)

    check_scores_of_an_export(run, tuned, tmp_path, scores["spearman_cut_to_8"])

    peers = pytest.importorskip(
        "sentence_transformers", reason="sentence-transformers is not installed"
    )
    peer = peers.SentenceTransformer(str(tmp_path / "hf"), device="cpu")
    np.testing.assert_allclose(peer.encode(TEXTS), wanted, atol=1e-5)
    status, _, err = run("embed", tuned, *words[:-1], 500)
    assert status == 2
    names(err, 500, whole.shape[1])
    check_refusals(run, tuned, tmp_path)


def test_mistakes_get_a_sentence(tiny_tokenizer: Path, tmp_path: Path, run: Run) -> None:
    status, _, err = train(run, tiny_tokenizer, tmp_path, "--matryoshka", 4000)
    assert status == 2
    names(err.splitlines()[-1], "matryoshka", 4000)
    status, _, err = train(run, tiny_tokenizer, tmp_path, "--matryoshka", 4, "--whiten")
    assert status == 2
    names(err.splitlines()[-1], "--whiten", "--matryoshka")
    status, _, err = train(run, tiny_tokenizer, tmp_path, "--matryoshka")
    assert status == 2
    names(err.splitlines()[-1], "matryoshka", "64 128")
    file = write_pairs(tmp_path / "a.csv", 6)
    with refused(ConfigError, "matryoshka", "4.5"):
        Pairs(file, dev=file, matryoshka=(4.5,), **COLUMNS)
    task = Pairs(file, dev=file, matryoshka=(0,), **COLUMNS)
    with refused(ConfigError, "matryoshka", 0):
        settle_for_output(task.output, FinetuneConfig(), EncoderConfig(hidden_size=16, heads=2))
