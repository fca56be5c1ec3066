"""Writes an archive of tiny files of every format, and the numbers that this version reads there.

    python tests/formats/write_archive.py

makes VERSION.tar.xz in this folder, in about a minute. It refuses to write over an archive, because
an archive is what a release wrote. `tests/test_formats.py` opens each archive.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from litebert import evaluate, load
from litebert.data.shards import Shards
from litebert.demo.tickets import write_tickets
from litebert.tokenizer import Tokenizer

FOLDER = Path(__file__).parent
RECIPE = """
base = "albert-tiny"
objectives = ["mlm"]
[sequences]
length = 32
[encoder]
embedding_size = 8
hidden_size = 16
layers = 2
heads = 2
intermediate_size = 32
max_positions = 32
[train]
depth_schedule = []
keep_checkpoints = 1
evaluate_sequences = 8
batch = "4 sequences"
precision = "float32"
"""
TEXTS = ["Die Rechnung ist falsch.", "Das Paket kam nicht an."]
LEFT_OUT = (".lock", "report.html", "text.txt", "train.csv", "small.toml")
"""Files that carry no promise, or that the commands read."""


def make(folder: Path) -> None:
    """Make a tokenizer, shards, a run, a classifier and an export in an empty folder."""
    train, _, unlabeled = write_tickets(folder / "tickets")
    lines = unlabeled.read_text(encoding="utf-8").splitlines()[:200]
    (folder / "text.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")
    rows = train.read_text(encoding="utf-8").splitlines()[:61]
    (folder / "train.csv").write_text("\n".join([*rows, ""]), encoding="utf-8")
    (folder / "small.toml").write_text(RECIPE, encoding="utf-8")
    for words in (
        "tokenizer train text.txt --split line --vocab-size 120 --out tokenizer",
        "prepare text.txt --split line --tokenizer tokenizer --heldout 0.1 --out data",
        "pretrain small.toml --shards data --budget 8steps --out run",
        "finetune run --task table --data train.csv --label-column team --steps 4 --fp32 "
        "--batch-size 4 --max-length 32 --lr 1e-3 --no-examples --out classifier",
        "export classifier --out exported",
    ):
        subprocess.run([sys.executable, "-m", "litebert", *words.split()], cwd=folder, check=True)


def read_numbers(folder: Path) -> dict[str, Any]:
    """Read the numbers in each folder of an archive, by the functions that people call."""
    shards = Shards.open(folder / "data", verify=True)
    splits = (shards.train, shards.heldout)
    return {
        "tokens": Tokenizer.load(folder / "tokenizer").encode(TEXTS),
        "shards": {
            "documents": [len(split.document_tokens) - 1 for split in splits],
            "tokens": [split.tokens for split in splits],
            "unigram_entropy": shards.unigram_entropy,
        },
        "run": evaluate(folder / "run", shards=folder / "data").scores["mlm_loss"],
        "vectors": np.asarray(load(folder / "run").encode(TEXTS))[:, :4].tolist(),
        "classifier": _read_probabilities(folder / "classifier"),
        "exported": _read_probabilities(folder / "exported"),
    }


def _read_probabilities(folder: Path) -> list[dict[str, float]]:
    return [answer["probabilities"] for answer in load(folder).predict(TEXTS)]


def _forget_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def main() -> None:
    archive = FOLDER / f"{metadata.version('litebert')}.tar.xz"
    if archive.exists():
        raise SystemExit(f"{archive} is what a release wrote; raise the version first")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        make(folder)
        (folder / "numbers.json").write_text(json.dumps(read_numbers(folder), indent=1))
        with tarfile.open(archive, "w:xz") as file:
            for path in sorted(folder.rglob("*")):
                name = path.relative_to(folder)
                if path.is_file() and path.name not in LEFT_OUT and name.parts[0] != "tickets":
                    file.add(path, name.as_posix(), filter=_forget_owner)
    sys.stdout.write(f"wrote {archive}: {archive.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
