"""The golden runs: twenty steps of each small recipe shape, in float32 on one CPU thread, on made-up text.

    python tests/golden/runner.py [--out FILE | --record]

prints (or writes) JSON: for every run its losses and gradient norms by step, the held-out scores at the end and a
checksum of the final weights; --record writes the losses alone to losses.json, which `test_golden.py` reads.

It speaks to litebert through `recipe`, `prepare` and `pretrain` alone, so that one runner serves two versions of the
package: see `compare.py`. The vocabulary is given and not learned, so that what is pinned here is the way from text
to weights, not the training of tokenizers.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

STEPS = 20
RECORDED = Path(__file__).with_name("losses.json")

SHRUNKEN: dict[str, dict[str, Any]] = {
    "encoder": {
        "hidden_size": 32,
        "embedding_size": 16,
        "heads": 4,
        "layers": 3,
        "intermediate_size": 64,
        "max_positions": 64,
    },
    "train": {"micro_batch": 3, "schedule": {"name": "tf_linear", "warmup": 5}},
}


def points() -> dict[str, dict[str, Any]]:
    """The runs by name: a recipe to start from, as `base`, and its changed fields."""
    unshared = {**SHRUNKEN["encoder"], "embedding_size": 32}
    lamb, adamw, muon = ({"name": name} for name in ("lamb", "adamw", "muon"))
    return {
        "albert-tiny": {"base": "albert-tiny"},
        "bert-tiny": {"base": "bert-tiny"},
        "albert-base, shrunken, LAMB": {
            "base": "albert-base",
            "encoder": SHRUNKEN["encoder"],
            "train": {**SHRUNKEN["train"], "optimizer": lamb},
        },
        "albert-base-v1, shrunken, AdamW": {
            "base": "albert-base-v1",
            "encoder": SHRUNKEN["encoder"],
            "train": {**SHRUNKEN["train"], "optimizer": {**adamw, "bias_correction": True, "learning_rate": 1e-3}},
        },
        "bert-base, shrunken, AdamW": {
            "base": "bert-base",
            "encoder": unshared,
            "train": {**SHRUNKEN["train"], "optimizer": {**adamw, "learning_rate": 1e-3}},
        },
        "bert-base, shrunken, Muon": {
            "base": "bert-base",
            "encoder": unshared,
            "train": {**SHRUNKEN["train"], "optimizer": {**muon, "learning_rate": 1e-3}},
        },
        **{
            f"{base}, shrunken, AdamW": {
                "base": base,
                "encoder": unshared,
                "rtd": {"generator_width": 0.5},
                "sbo": {"position_size": 16},
                "train": {**SHRUNKEN["train"], "optimizer": {**adamw, "learning_rate": 1e-3}},
            }
            for base in ("roberta-base", "electra-base", "spanbert-base")
        },
    }


def write_text(folder: Path) -> tuple[Path, Path]:
    """Made-up documents and a WordPiece vocabulary for them."""
    draw = random.Random(20191)
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    words = sorted({"".join(draw.choices(syllables, k=draw.randint(1, 3))) for _ in range(300)})
    documents = []
    for _ in range(80):
        topic = draw.sample(words, 40)
        sentences = (" ".join(draw.choices(topic, k=draw.randint(4, 16))) for _ in range(draw.randint(3, 20)))
        documents.append(" ".join(f"{sentence.capitalize()}." for sentence in sentences))
    text, vocabulary = folder / "text.txt", folder / "vocab.txt"
    text.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *words[::2], *syllables]
    pieces += ["##" + syllable for syllable in syllables]
    vocabulary.write_text("\n".join(dict.fromkeys(pieces)) + "\n", encoding="utf-8")
    return text, vocabulary


def run_all(names: list[str] | None = None) -> dict[str, Any]:
    """The results of the runs, of all by default."""
    import torch

    from litebert.data.prepare import prepare
    from litebert.recipes import RECIPES

    results = {}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            text, vocabulary = write_text(Path(folder))
            data = Path(folder, "data")
            prepare([str(text)], data, tokenizer=vocabulary, heldout=0.1, processes=1)
            for number, (name, point) in enumerate(points().items()):
                if point["base"] in RECIPES and (names is None or name in names):  # an older version has fewer
                    results[name] = _run(point, data, Path(folder, str(number)))
    finally:
        torch.set_num_threads(threads)
    return {"torch": torch.__version__, "runs": results}


def _run(point: dict[str, Any], data: Path, out: Path) -> dict[str, Any]:
    from litebert import recipe
    from litebert.train.pretrain import pretrain

    train = {
        **point.get("train", {}),
        "budget": f"{STEPS} steps",
        "batch": "8 sequences",
        "precision": "float32",
        "evaluate_every": "100%",
        "evaluate_sequences": 32,
    }
    file = out.with_suffix(".json")
    file.write_text(json.dumps({**point, "name": "golden", "sequences": {"length": 64}, "train": train}))
    pretrain(recipe(str(file)), data, out, device="cpu")
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in rows if row["kind"] == "train"]
    assert len(steps) == STEPS
    last = max((out / "checkpoints").glob("step-*"))
    return {
        "losses": [row["loss"] for row in steps],
        "gradient_norms": [row["gradient_norm"] for row in steps],
        "heldout": {key: value for key, value in rows[-1].items() if key not in ("step", "kind")},
        "weights": hashlib.sha256((last / "model.safetensors").read_bytes()).hexdigest(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the golden runs and print their numbers as JSON.")
    parser.add_argument("--out", type=Path, help="file to write instead of printing")
    parser.add_argument("--record", action="store_true", help="write losses.json anew")
    parser.add_argument("--package", action="store_true", help="print only which litebert would run")
    arguments = parser.parse_args()
    if arguments.package:
        import litebert

        sys.stdout.write(f"{litebert.__file__}\n")
        return
    found = run_all()
    if arguments.record:
        found = {"torch": found["torch"], "losses": {name: run["losses"] for name, run in found["runs"].items()}}
        arguments.out = RECORDED
    text = json.dumps(found, indent=1) + "\n"
    if arguments.out is None:
        sys.stdout.write(text)
    else:
        arguments.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
