"""The end-to-end scripts run, with budgets of a few steps."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import litebert
from litebert.demo import unpack

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_five_systems_end_in_one_table(
    tmp_path: Path, tiny_corpus: Path, warm_litebert: Path
) -> None:
    out = tmp_path / "with a space"
    command = [str(ROOT / "runs" / "five_systems.sh"), str(out), str(tiny_corpus)]
    settings = {**os.environ, "LITEBERT": str(warm_litebert), "BUDGET": "2 steps", "PIECES": "400"}
    done = subprocess.run(command, env=settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = (out / "table.md").read_text(encoding="utf-8").splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:7]] == [
        "albert-mini",
        "bert-mini",
        "roberta-mini",
        "electra-mini",
        "spanbert-mini",
    ]
    assert "RTD area (tokens alone)" in lines[0]
    assert done.stdout.endswith((out / "table.md").read_text(encoding="utf-8"))


def benchmarks(folder: Path) -> Path:
    """CoLA and WNUT-17 of some rows, in their layouts."""
    cola, wnut = folder / "glue" / "CoLA", folder / "wnut17"
    cola.mkdir(parents=True)
    wnut.mkdir()
    for part, rows in (("train", 40), ("dev", 12)):
        (cola / f"{part}.tsv").write_text(
            "".join(f"gj04\t{i % 2}\t\tbado {'kumi' * (i % 2)}\n" for i in range(rows))
        )
        (wnut / f"{part}.conll").write_text("bado\tO\nkumi\tB-person\n\n" * rows)
    return folder


@pytest.mark.thorough
def test_tasks_end_in_one_table(tmp_path: Path, tiny_corpus: Path, warm_litebert: Path) -> None:
    settings = {
        **os.environ,
        "LITEBERT": str(warm_litebert),
        "BUDGET": "2 steps",
        "PIECES": "400",
        "SEEDS": "1",
        "TWINS": "albert-tiny",
        "TASKS": "cola wnut17",
        "EPOCHS": "1",
        "LARGE": "1",
    }
    out = tmp_path / "out"
    command = [
        str(ROOT / "runs" / "tasks.sh"),
        str(out),
        str(benchmarks(tmp_path / "tasks")),
        str(tiny_corpus),
    ]
    done = subprocess.run(command, env=settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    table = (out / "table.md").read_text(encoding="utf-8")
    lines = table.splitlines()
    assert lines[0] == "| task | score | albert-tiny | albert-tiny, from scratch | baseline |"
    assert [line.split("|")[1].strip() for line in lines[2:4]] == ["cola", "tagging"]
    assert done.stdout.endswith(table)


def write_ratings(folder: Path) -> Path:
    """Write an archive of rated snippets in the layout of vaderSentiment's source distribution."""
    inner = folder / "hutto_ICWSM_2014.tar.gz"
    words = {2.5: "tamu", -2.5: "kali"}
    with tarfile.open(inner, "w:gz") as packed:
        for name in ("movieReviewSnippets", "amazonReviewSnippets"):
            lines = [
                f"{i}_1\t{rating}\t{name[0]}{i} bado {words[rating]} kumi\r\n"
                for i in range(60)
                for rating in words
            ]
            data = "".join(lines).encode()
            info = tarfile.TarInfo(f"hutto_ICWSM_2014/{name}_GroundTruth.txt")
            info.size = len(data)
            packed.addfile(info, io.BytesIO(data))
    archive = folder / "vaderSentiment-3.3.2.tar.gz"
    with tarfile.open(archive, "w:gz") as outer:
        outer.add(inner, "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz")
    return archive


@pytest.mark.slow
def test_the_models_of_the_demo_are_made_and_packed(
    tmp_path: Path, tiny_corpus: Path, tiny_data: Path, warm_litebert: Path
) -> None:
    encoder = tmp_path / "encoder"
    make = [str(warm_litebert), "pretrain", "albert-next-tiny", "--shards", str(tiny_data)]
    subprocess.run([*make, "--budget", "2 steps", "--out", str(encoder)], check=True)
    settings = {
        **os.environ,
        "LITEBERT": str(warm_litebert),
        "PYTHON": sys.executable,
        "ARCHIVE": str(write_ratings(tmp_path)),
        "BUDGET": "2 steps",
        "PIECES": "300",
        "EPOCHS": "1",
    }
    vectors = unpack(tmp_path / "package")["vectors"]
    out = tmp_path / "out"
    texts = [str(tiny_corpus), str(vectors)]
    command = [str(ROOT / "runs" / "demo.sh"), str(out), str(encoder), *texts]
    for _ in range(2):  # the second time, everything is there
        done = subprocess.run(command, env=settings, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    folders = unpack(tmp_path / "models", out / "models.zip")
    assert sorted(folders) == ["sentiment", "vectors", "words"]
    (answer,) = litebert.load(folders["sentiment"]).predict(["bado tamu"])
    assert set(answer["probabilities"]) == {"negative", "positive"}


@pytest.mark.slow
def test_the_encoder_of_the_package_answers_as_it_was_taught(tmp_path: Path) -> None:
    """From a random teacher to a folder that has the vectors of the student."""
    programs, work = ROOT / "runs" / "encoder", tmp_path / "work"
    tokenizer = unpack(tmp_path / "package")["vectors"] / "tokenizer"
    shutil.copytree(tokenizer, work / "tokenizer")
    shutil.copytree(tokenizer, work / "teacher")
    sizes = {"word": 16384, "position": 512, "token_type": 2}
    shapes: dict[str, tuple[int, ...]] = {
        f"embeddings.{k}_embeddings.weight": (n, 384) for k, n in sizes.items()
    }
    norms = ["embeddings.LayerNorm"]
    for layer in (f"encoder.layer.{i}." for i in range(6)):
        norms += [f"{layer}attention.output.LayerNorm", f"{layer}output.LayerNorm"]
        names = ("attention.self.query", "attention.self.key", "attention.self.value")
        square = {f"{layer}{name}": (384, 384) for name in (*names, "attention.output.dense")}
        inner = {f"{layer}intermediate.dense": (1536, 384), f"{layer}output.dense": (384, 1536)}
        for name, shape in (square | inner).items():
            shapes |= {f"{name}.weight": shape}
            shapes |= {f"{name}.bias": shape[:1]}
    shapes |= {f"{name}.{part}": (384,) for name in norms for part in ("weight", "bias")}
    drawn = torch.Generator().manual_seed(0)
    weights = {name: 0.1 * torch.randn(shape, generator=drawn) for name, shape in shapes.items()}
    save_file(weights, work / "teacher" / "model.safetensors")
    pages = "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "docs").glob("*.md")))
    # A mask that is written in a text is a token to `tokenizers`, and letters to litebert.
    texts = [t for t in pages.splitlines() if len(t) > 20 and "[" not in t][:100]
    (work / "corpus.txt").write_text("\n".join(texts) + "\n", "utf-8")
    (work / "counts.json").write_text(json.dumps({"documentation": len(texts)}))
    size = ("--embedding", "32", "--hidden", "64", "--inner", "64", "--tokens", "1024")
    brief = ("--minutes", "0.05", "--table-seconds", "1")
    python = [sys.executable, str(programs / "train.py")]
    subprocess.run([*python, str(work), *size, *brief], check=True)
    python = [sys.executable, str(programs / "folder.py")]
    subprocess.run([*python, str(work), str(work / "vectors")], check=True)

    spec = importlib.util.spec_from_file_location("train", programs / "train.py")
    assert spec is not None
    assert spec.loader is not None
    train = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(train)
    student, saved = train.Student(16384, 32, 64, 2, 64), load_file(work / "student.safetensors")
    names = student.names() | {"map.weight": "map.weight", "map.bias": "map.bias"}
    student.load_state_dict({ours: saved[theirs] for ours, theirs in names.items()})
    flat, lengths = train.tokens_of(work / "tokenizer" / "tokenizer.json", texts)
    rows = train.rows_of(flat, lengths, np.arange(len(texts)), "cpu")
    with torch.no_grad():
        vectors = train.run(lambda i: student.map(student.means([i])), rows, len(texts), "cpu")
    expected = torch.nn.functional.normalize(vectors, dim=-1).numpy()
    np.testing.assert_allclose(litebert.load(work / "vectors").encode(texts), expected, atol=2e-5)
