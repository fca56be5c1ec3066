"""Weights that changed on the disk, hold no numbers or are no weights at all: refused whoever opens
the folder.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import litebert
from litebert.base.errors import ModelError
from litebert.interop.files import read_metadata, read_weights
from litebert.interop.loaded import VectorMap
from litebert.interop.sentence_modules import read_dense, write_dense
from toys.answers import made, texts
from toys.finetuning import config, recipe_file, write_table
from toys.folders import save_hf, save_litebert, small_tokenizer, tiny
from toys.refusals import names, refused
from toys.tasks import task_of

Run = Callable[..., tuple[int, str, str]]
WEIGHTS = "model.safetensors"
LINES = texts(4)


def flip(file: Path, place: int) -> None:
    """Another bit in one byte."""
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


def rewrite(file: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> str:
    """Other tensors in a file that no digest belongs to, as of another program; the name of the
    first one.
    """
    tensors = load_file(file)
    change(tensors)
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()}, file, {"format": "pt"}
    )
    return next(iter(tensors))


def spoil(tensors: dict[str, torch.Tensor], value: float, name: str = "word") -> None:
    tensor = next(
        tensor for key, tensor in tensors.items() if name in key and tensor.is_floating_point()
    )
    tensor.view(-1)[3] = value


@pytest.fixture(scope="module")
def folders(tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fine-tuned run, a tuned litebert folder, a pretrained one, and one of Hugging Face's."""
    place = tmp_path_factory.mktemp("whole")
    table = task_of(
        "table", write_table(place / "train.csv", 40), dev=write_table(place / "dev.csv", 20)
    )
    litebert.finetune(
        recipe_file(place), table, place / "run", config(epochs=1), tokenizer=tiny_tokenizer
    )
    made(
        place / "tuned",
        tiny_tokenizer,
        "sequence",
        2,
        ("no", "yes"),
        task="table",
        problem="classes",
    )
    save_litebert(tiny(), small_tokenizer(), place / "pretrained")
    save_hf(tiny(), small_tokenizer(), place / "foreign")
    (place / "lines.csv").write_text("text\n" + "\n".join(LINES) + "\n")
    return place


VERBS: dict[str, tuple[str, ...]] = {
    "predict": ("run", "predict", "{}", "--input", "lines.csv"),
    "evaluate": ("run", "evaluate", "{}", "--data", "dev.csv"),
    "embed": (
        "run",
        "embed",
        "{}",
        "--input",
        "lines.csv",
        "--text-column",
        "text",
        "--out",
        "vectors.npy",
    ),
    "fill-mask": ("pretrained", "fill-mask", "{}", "a [MASK] folder"),
    "convert": ("tuned", "convert", "{}", "--out", "out", "--to", "hf"),
    "export": ("tuned", "export", "{}", "--out", "out"),
    "finetune": (
        "pretrained",
        "finetune",
        "{}",
        "--task",
        "table",
        "--data",
        "train.csv",
        "--out",
        "out",
    ),
    "teacher": (
        "run",
        "finetune",
        "tuned",
        "--teacher",
        "{}",
        "--task",
        "table",
        "--data",
        "train.csv",
        "--out",
        "out",
    ),
    "serve": ("run", "serve", "{}", "--port", "0"),
}


@pytest.mark.parametrize(
    "verb", [pytest.param(verb, marks=[pytest.mark.slow] * (verb == "serve")) for verb in VERBS]
)
def test_every_verb_refuses_a_flipped_byte(
    verb: str, folders: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(folders, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    kind, *words = VERBS[verb]
    file = Path(kind, "model" if kind == "run" else "", WEIGHTS)
    flip(file, file.stat().st_size - 9)
    status, out, err = run(*(word.format(kind) for word in words))
    assert (status, out) == (2, "")
    names(err.splitlines()[-1], file)
    assert not Path("out").exists()


def test_no_byte_of_a_file_of_weights_changes_an_answer(folders: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(folders / "tuned", tmp_path / "m")
    file, expected = folder / WEIGHTS, litebert.load(folder).predict(LINES)
    whole, header = file.read_bytes(), int.from_bytes(file.read_bytes()[:8], "little")
    draw = np.random.default_rng(0)
    places = [
        *range(8),
        *draw.integers(8, 8 + header, 60),
        *draw.integers(8 + header, len(whole), 20),
    ]
    refusals = 0
    for place in map(int, places):
        flip(file, place)
        try:
            assert litebert.load(folder).predict(LINES) == expected, (
                f"byte {place} of {header} and {len(whole)}"
            )
        except ModelError as error:
            names(str(error), folder)
            refusals += 1
        file.write_bytes(whole)
    assert refusals > 70, "all but some of the texts beside the tensors"


def test_a_folder_without_a_digest_opens(folders: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(folders / "tuned", tmp_path / "m")
    expected = litebert.load(folder).predict(LINES)
    assert len(read_metadata(folder / WEIGHTS)["digest"]) == 64
    for header in (
        {"tokenizer_fingerprint": read_metadata(folder / WEIGHTS)["tokenizer_fingerprint"]},
        None,
    ):
        save_file(load_file(folder / WEIGHTS), folder / WEIGHTS, header)
        assert litebert.load(folder).predict(LINES) == expected


def test_equal_models_have_equal_bytes(tmp_path: Path) -> None:
    model = tiny()
    for name in ("one", "two"):
        save_litebert(model, small_tokenizer(), tmp_path / name)
    assert (tmp_path / "one" / WEIGHTS).read_bytes() == (tmp_path / "two" / WEIGHTS).read_bytes()


def test_the_best_weights_of_a_run_are_checked_before_they_become_its_model(
    folders: Path, tmp_path: Path
) -> None:
    place = shutil.copytree(folders, tmp_path / "here")
    (place / "run/scores.json").unlink()  # as if it had been killed before its end
    best = place / "run/best.safetensors"
    table = task_of("table", place / "train.csv", dev=place / "dev.csv")
    flip(best, best.stat().st_size - 9)
    again = (recipe_file(place), table, place / "run", config(epochs=1))
    with refused(ModelError, best):
        litebert.finetune(*again, tokenizer=folders / "run/model/tokenizer")
    flip(best, best.stat().st_size - 9)
    assert litebert.finetune(*again, tokenizer=folders / "run/model/tokenizer").outcome.finished


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("kind", ["tuned", "pretrained", "foreign", "pickle", "float16", "float64"])
def test_weights_that_are_no_numbers_are_refused(
    kind: str, value: float, folders: Path, tmp_path: Path, run: Run
) -> None:
    folder = shutil.copytree(
        folders / (kind if (folders / kind).exists() else "foreign"), tmp_path / "m"
    )
    file = folder / WEIGHTS

    def change(tensors: dict[str, torch.Tensor]) -> None:
        if kind.startswith("float"):
            tensors.update(
                {name: tensor.to(getattr(torch, kind)) for name, tensor in tensors.items()}
            )
        spoil(tensors, 1e300 if kind == "float64" and value == float("inf") else value)

    rewrite(file, change)
    if kind == "pickle":
        torch.save(load_file(file), folder / "pytorch_model.bin")
        file.unlink()
        file = folder / "pytorch_model.bin"
    with refused(ModelError, file):
        litebert.load(folder)
    status, out, err = run("convert", folder, "--out", tmp_path / "out", "--to", "litebert")
    assert (status, out, (tmp_path / "out").exists()) == (2, "", False)
    names(err, file)


def test_large_finite_weights_are_weights(folders: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(folders / "foreign", tmp_path / "m")
    largest = torch.finfo(torch.float32).max  # the sum of two is infinite
    for name in ("word", "position"):
        rewrite(folder / WEIGHTS, partial(spoil, value=largest, name=name))
    rewrite(
        folder / WEIGHTS, lambda tensors: next(iter(tensors.values())).view(-1)[:2].fill_(largest)
    )
    litebert.load(folder)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "bool"])
@pytest.mark.parametrize("kind", ["tuned", "foreign"])
def test_numbers_of_another_kind_are_no_weights(
    kind: str, dtype: str, folders: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(folders / kind, tmp_path / "m")

    def change(tensors: dict[str, torch.Tensor]) -> None:
        name = next(name for name in tensors if "word" in name)
        tensors[name] = (tensors[name] * 10).to(getattr(torch, dtype))

    rewrite(folder / WEIGHTS, change)
    with refused(ModelError, folder / WEIGHTS, dtype):
        litebert.load(folder)


def test_counters_that_old_files_hold_are_no_weights(folders: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(folders / "foreign", tmp_path / "m")
    rewrite(
        folder / WEIGHTS,
        lambda tensors: tensors.update({"albert.embeddings.position_ids": torch.arange(16)[None]}),
    )
    litebert.load(folder)


def test_the_map_of_vectors_is_checked_too(tmp_path: Path) -> None:
    weight = np.arange(6, dtype=np.float32).reshape(2, 3)
    write_dense(tmp_path / "2_Dense", VectorMap(weight, np.zeros(2, np.float32)))
    np.testing.assert_array_equal(read_dense(tmp_path, "2_Dense").weight, weight)
    file = tmp_path / "2_Dense" / WEIGHTS
    flip(file, file.stat().st_size - 9)
    with refused(ModelError, file):
        read_dense(tmp_path, "2_Dense")
    rewrite(file, lambda tensors: tensors["linear.weight"].fill_(float("nan")))
    with refused(ModelError, file, "linear.weight"):
        read_dense(tmp_path, "2_Dense")
    rewrite(
        file, lambda tensors: tensors.update({"linear.weight": torch.ones(2, 3, dtype=torch.int8)})
    )
    with refused(ModelError, file, "linear.weight"):
        read_dense(tmp_path, "2_Dense")


def test_numbers_that_a_file_does_not_store_are_refused_at_once(tmp_path: Path) -> None:
    """A file of a kilobyte can name a tensor of terabytes."""
    weights = {"encoder.weight": torch.zeros(1).expand(10**6, 10**6)}
    torch.save(weights, tmp_path / "pytorch_model.bin")
    with refused(ModelError, tmp_path / "pytorch_model.bin", "encoder.weight"):
        read_weights(tmp_path / "pytorch_model.bin")
